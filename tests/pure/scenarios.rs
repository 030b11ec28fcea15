//! The scenarios with their numbers, in virtual time: what makes attachd worth having, held for ten seeds each.

use std::collections::BTreeMap;
use std::time::Duration;

use attachd::controller::policy::Policy;
use attachd::model::ids::{AwsVolumeId, InstanceId, NodeName, Uid};
use attachd::model::time::Monotonic;
use attachd::sim::checkers::wanted::volume_of_pod;
use attachd::sim::checkers::world::instance_of;
use attachd::sim::driver::Measures;
use attachd::sim::run::{Report, Run};
use attachd::sim::scenarios::{Options, Scenario};

/// What a run showed of pods made in place of others and of the attachments made for them.
#[derive(Default)]
struct Seen {
    /// When the pod was there.
    pods: BTreeMap<Uid, (AwsVolumeId, InstanceId, Monotonic)>,
    /// When EC2 accepted AttachVolume, by generation.
    attaches: BTreeMap<u64, (AwsVolumeId, InstanceId, Monotonic)>,
    /// When the first DetachVolume was sent.
    detached: Option<Monotonic>,
}

impl Seen {
    fn look(&mut self, run: &Run) {
        let world = run.world();
        for pod in world.pods.values() {
            let instance = pod.node.as_ref().and_then(|name: &NodeName| instance_of(world.nodes.get(name)?));
            if let (Some(volume), Some(instance)) = (volume_of_pod(world, pod), instance) {
                let there = (volume, instance.clone(), world.now.monotonic);
                self.pods.entry(pod.uid.clone()).or_insert(there);
            }
        }
        for (id, volume) in &world.volumes {
            for attachment in &volume.attachments {
                let made = (id.clone(), attachment.instance.clone(), attachment.since);
                self.attaches.entry(attachment.generation).or_insert(made);
            }
        }
        if world.counts.of("DetachVolume") > 0 {
            self.detached.get_or_insert(world.now.monotonic);
        }
    }

    /// From each pod made in place of another until AttachVolume for it was accepted.
    fn waits(&self) -> Vec<Duration> {
        let first = |volume: &AwsVolumeId| self.pods.values().filter(|(of, ..)| of == volume).map(|(.., at)| *at).min();
        let replaced = self.pods.values().filter(|(volume, _, at)| first(volume).is_some_and(|first| *at > first));
        replaced
            .map(|(volume, instance, at)| {
                let attach = self.attaches.values().find(|(v, i, since)| v == volume && i == instance && since >= at);
                attach.expect("attached for the pod").2.saturating_since(*at)
            })
            .collect()
    }
}

/// Runs a scenario with ten seeds; every invariant holds in each.
fn each_seed(name: &str, mut judge: impl FnMut(&Report, &Seen)) {
    let scenario = Scenario::named(name).expect("a scenario");
    for seed in 1..=10 {
        let options = Options { seed, ..Options::default() };
        let mut run = Run::new(scenario.start(&options, Policy::FULL), scenario.lasts);
        let mut seen = Seen::default();
        run.play(|run| seen.look(run));
        let report = run.into_report();
        assert_eq!(report.violations, [], "{name}, seed {seed}");
        judge(&report, &seen);
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn longest(times: &[Duration]) -> Duration {
    Measures::percentile(times, 100).expect("there are some")
}

#[test]
fn the_volumes_of_a_terminated_instance_are_attached_within_ten_seconds_of_the_pod() {
    each_seed("instance-terminated", |report, seen| {
        assert_eq!((report.measures.moves, report.counts.of("DetachVolume")), (1, 0), "EC2 has freed it");
        let waits = seen.waits();
        assert!(waits.len() == 1 && longest(&waits) <= secs(10), "{waits:?}");
        assert!(longest(&report.measures.restart_times) <= secs(25), "upstream: 368 s");
    });
}

#[test]
fn the_volumes_of_a_stopped_instance_are_attached_two_reads_and_a_detach_after_the_pod() {
    each_seed("stopped", |report, seen| {
        assert_eq!((report.measures.moves, report.counts.of("DetachVolume")), (1, 1));
        // Two instance periods, ten seconds between the reads, EC2's detach.
        let waits = seen.waits();
        assert!(waits.len() == 1 && longest(&waits) <= secs(2 * 5 + 10 + 5), "{waits:?}");
    });
}

#[test]
fn nothing_is_detached_from_a_machine_that_runs_though_its_kubelet_is_dead() {
    each_seed("kubelet-dead", |report, seen| {
        assert_eq!(report.measures.detached_while_mounted, 0);
        let back = Monotonic::new(secs(660));
        assert!(seen.detached.is_some_and(|at| at > back), "only once the kubelet was back: {:?}", seen.detached);
        assert_eq!(report.measures.events.get("ForceDetachWithheld"), Some(&1), "a person is told");
        assert_eq!(report.measures.moves, 1);
    });
}

#[test]
fn a_silent_detach_is_noticed_within_a_sweep_and_fifteen_seconds_and_its_pod_starts_again() {
    each_seed("silent-detach", |report, _| {
        let noticed = &report.measures.notice_times;
        assert!(noticed.len() == 1 && noticed[0] <= secs(60 + 15), "{noticed:?}");
        assert_eq!(report.measures.events.get("VolumeDetachedExternally"), Some(&2), "told on pod and volume");
        let started = longest(&report.measures.restart_times);
        assert!(started <= secs(30), "upstream: never; here {started:?}");
    });
}

#[test]
fn stale_reads_delay_moves_and_cost_no_call_twice() {
    each_seed("stale-reads", |report, _| {
        assert_eq!((report.measures.first_attaches, report.measures.moves), (6, 6));
        assert_eq!((report.counts.of("AttachVolume"), report.counts.of("DetachVolume")), (12, 6));
        assert!(longest(&report.measures.restart_times) <= secs(120), "{:?}", report.measures.restart_times);
    });
}

#[test]
fn after_an_outage_everything_runs_within_half_a_minute_and_nothing_was_believed_gone() {
    each_seed("api-outage", |report, _| {
        assert_eq!((report.measures.first_attaches, report.measures.moves), (3, 3));
        assert!(longest(&report.measures.times_since_outage) <= secs(30), "{:?}", report.measures.times_since_outage);
        assert_eq!(report.measures.events.get("VolumeDetachedExternally"), None);
    });
}
