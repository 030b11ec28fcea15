//! The driver, with scripts in the place of the core: the contract of calls, leadership, faults, and wrongdoers that the
//! checkers must catch.

mod machines;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use smol_str::SmolStr;

use super::*;
use crate::controller::Wake;
use crate::controller::command::{
    AttachmentStatusChange, BudgetClass, Call, Command, CommandId, Ec2Call, KubernetesCall, NewAttachment, Recorded,
};
use crate::controller::event::{Event, EventKind, Kind, Role, Term, WatchEvent};
use crate::controller::policy::{Policy, Settings};
use crate::model::attachment::NewAttachmentSource;
use crate::model::device::DeviceName;
use crate::model::ids::{AttachmentKey, AwsVolumeId, PersistentVolumeName, VolumeKey};
use crate::model::outcome::{Answer, CallResult};
use crate::sim::checkers::{Checker, Invariant, Violation};

/// A core that does what the test pushes, and keeps what it is told.
#[derive(Debug, Default)]
struct Script {
    commands: VecDeque<Command>,
    outcomes: BTreeMap<CommandId, Vec<CallResult>>,
    guards: Vec<(Now, Role, Option<Term>)>,
    watched: Vec<WatchEvent>,
    given: u64,
}

impl Commander for Script {
    fn new(_: &Settings, _: &Policy) -> Self {
        Self::default()
    }

    fn ingest(&mut self, event: Event) {
        match event.kind {
            EventKind::Outcome(outcome) => self.outcomes.entry(outcome.id).or_default().push(outcome.result),
            EventKind::Guard(change) => self.guards.push((event.at, change.role, change.guard.map(|guard| guard.term))),
            EventKind::Watch(event) => self.watched.push(event),
        }
    }

    fn plan(&mut self, _: Now) {}

    fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    fn next_wake(&self) -> Option<Wake> {
        None
    }
}

struct Bench {
    driver: Driver<Script>,
    n1: NodeName,
    n2: NodeName,
    volume: AwsVolumeId,
    checker: Checker,
    found: Vec<Violation>,
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mut driver = Driver::new(DriverOptions { trace: true, ..DriverOptions::new(seed) });
        let (n1, n2) = (driver.add_node("n1"), driver.add_node("n2"));
        let volume = driver.add_workload("a", &n1, secs(15));
        let mut bench = Self { driver, n1, n2, volume, checker: Checker::new(), found: Vec::new() };
        bench.run(30);
        bench
    }

    fn run(&mut self, seconds: u64) {
        let until = self.driver.now().monotonic + secs(seconds);
        let (checker, found) = (&mut self.checker, &mut self.found);
        self.driver.run_until(until, |driver| found.extend(checker.look(driver.world())));
    }

    /// Lets the leading process give a command, with its guard's end as its deadline.
    fn give(&mut self, call: Call) -> CommandId {
        let now = self.driver.now();
        let process = self.driver.processes.iter_mut().find(|process| process.term.is_some()).expect("a leader");
        process.core.given += 1;
        let id = CommandId(process.core.given);
        let (term, not_after) = (process.term.expect("leads"), process.guard_until);
        process.core.commands.push_back(Command { id, term, not_after, class: BudgetClass::Write, call });
        process.wake = Some(now.monotonic);
        id
    }

    fn outcome(&self, id: CommandId) -> Vec<CallResult> {
        let process = self.driver.processes.last().expect("a process");
        process.core.outcomes.get(&id).cloned().unwrap_or_default()
    }

    fn key(&self) -> AttachmentKey {
        AttachmentKey { volume: VolumeKey::ebs(&self.volume), node: self.n1.clone() }
    }

    fn attach_call(&self, node: &NodeName, device: &str) -> Call {
        let instance = self.driver.machine(node).expect("a machine").instance().clone();
        Call::Ec2(Ec2Call::AttachVolume {
            volume: self.volume.clone(),
            instance,
            device: DeviceName::new(device),
            card: None,
        })
    }

    fn detach_call(&self, node: &NodeName, device: &str) -> Call {
        let instance = self.driver.machine(node).expect("a machine").instance().clone();
        Call::Ec2(Ec2Call::DetachVolume { volume: self.volume.clone(), instance, device: DeviceName::new(device) })
    }

    fn create_call(&self) -> Call {
        let node = self.driver.world().nodes[&self.n1].clone();
        Call::Kubernetes(KubernetesCall::CreateAttachment(NewAttachment {
            key: self.key(),
            source: NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv-a")),
            recorded: Some(Recorded {
                instance: self.driver.machine(&self.n1).expect("a machine").instance().clone(),
                node_uid: node.uid,
                device: DeviceName::new("/dev/xvdaa"),
            }),
        }))
    }

    fn list_call(&self, listed: bool) -> Call {
        let node = self.driver.world().nodes[&self.n1].clone();
        let entry = listed.then(|| (self.key().volume.unique_name(), SmolStr::default()));
        Call::Kubernetes(KubernetesCall::PatchNodeStatus {
            name: node.name,
            uid: node.uid,
            resource_version: node.resource_version,
            volumes_attached: entry.into_iter().collect(),
            marks: None,
            touch: None,
        })
    }

    /// Attaches by the book, until the pod runs on the mounted volume.
    fn attach_by_the_book(&mut self) {
        self.give(self.create_call());
        self.run(1);
        self.give(self.attach_call(&self.n1.clone(), "/dev/xvdaa"));
        self.run(6);
        let object = self.driver.world().attachments.values().next().expect("made").clone();
        let change = AttachmentStatusChange::Attached { device_path: DeviceName::new("/dev/xvdaa") };
        let (name, uid) = (object.name, object.uid);
        self.give(Call::Kubernetes(KubernetesCall::PatchAttachmentStatus { name, uid, change }));
        self.run(1);
        self.give(self.list_call(true));
        self.run(15);
        assert_eq!(self.driver.world().mounts.len(), 1, "mounted");
        assert!(self.found.is_empty(), "{:?}", self.found);
    }

    fn has_found(&self, invariant: Invariant) -> bool {
        self.found.iter().any(|violation| violation.invariant == invariant)
    }
}

#[test]
fn the_world_lets_a_volume_be_attached_by_the_book_and_measures_it() {
    let mut bench = Bench::new(1);
    bench.attach_by_the_book();
    let measures = bench.driver.measures();
    assert_eq!((measures.attach_times.len(), measures.first_attaches, measures.start_times.len()), (1, 1, 1));
    assert_eq!(bench.driver.world().counts.ec2_mutations(), 1);
}

#[test]
fn every_command_gets_exactly_one_outcome_whatever_happens_to_its_call() {
    let faults = [
        None,
        Some(CallFault::LoseRequest),
        Some(CallFault::LoseReply),
        Some(CallFault::ApplyLate(secs(40))),
        Some(CallFault::Duplicate(secs(20))),
        Some(CallFault::Duplicate(secs(2))),
        Some(CallFault::Throttle),
        Some(CallFault::Slow(secs(3))),
        Some(CallFault::DelaySend(secs(60))),
    ];
    for fault in faults {
        let mut bench = Bench::new(2);
        if let Some(fault) = fault {
            bench.driver.fault_next_call(CallTarget::AttachVolume, fault);
        }
        let id = bench.give(bench.attach_call(&bench.n1.clone(), "/dev/xvdaa"));
        bench.run(120);
        let outcome = bench.outcome(id);
        assert_eq!(outcome.len(), 1, "{fault:?}: {outcome:?}");
        let attached = bench.driver.world().volumes[&bench.volume].attachments.len();
        match fault {
            None | Some(CallFault::Slow(_)) => {
                assert_eq!((&outcome[0], attached), (&CallResult::Done(Answer::Accepted), 1), "{fault:?}");
            }
            Some(CallFault::Duplicate(by)) if by < ATTEMPT_TIMEOUT => {
                let refused = matches!(&outcome[0], CallResult::Refused(_));
                assert!(refused && attached == 1, "the second landing met the first: {outcome:?}");
            }
            Some(CallFault::LoseReply | CallFault::ApplyLate(_) | CallFault::Duplicate(_)) => {
                assert!(matches!(outcome[0], CallResult::Uncertain(_)) && attached == 1, "{fault:?}: {outcome:?}");
            }
            Some(CallFault::LoseRequest) => {
                assert!(matches!(outcome[0], CallResult::Uncertain(_)) && attached == 0, "{outcome:?}");
            }
            Some(CallFault::Throttle) => assert_eq!((&outcome[0], attached), (&CallResult::Throttled, 0)),
            Some(CallFault::DelaySend(_)) => assert_eq!((&outcome[0], attached), (&CallResult::NotSent, 0)),
        }
        assert!(bench.driver.flights.is_empty() && bench.driver.world().calls_in_flight.is_empty(), "{fault:?}");
    }
}

#[test]
fn what_a_dead_process_sent_still_lands() {
    let mut bench = Bench::new(3);
    bench.driver.fault_next_call(CallTarget::AttachVolume, CallFault::ApplyLate(secs(65)));
    bench.give(bench.attach_call(&bench.n1.clone(), "/dev/xvdaa"));
    bench.run(1);
    bench.driver.inject(Fault::ChangeLeader(OldLeader::Dies));
    bench.run(50);
    assert!(bench.driver.world().volumes[&bench.volume].attachments.is_empty());
    assert_eq!(bench.driver.world().calls_in_flight.len(), 1);
    assert_eq!(bench.driver.processes.len(), 1, "only the new leader");
    bench.run(20);
    assert_eq!(bench.driver.world().volumes[&bench.volume].attachments.len(), 1);
}

#[test]
fn a_new_leader_waits_for_the_lease_and_the_old_one_ends_with_its_guard() {
    for old in [OldLeader::Dies, OldLeader::LivesOn] {
        let mut bench = Bench::new(4);
        bench.driver.renew_leases(bench.driver.now.monotonic);
        let until = bench.driver.processes[0].guard_until.expect("a lease");
        bench.driver.inject(Fault::ChangeLeader(old));
        let alive = bench.driver.processes.len();
        assert_eq!(alive, if old == OldLeader::Dies { 1 } else { 2 });
        bench.run(60);
        assert_eq!(bench.driver.processes.len(), 1, "{old:?}");
        let terms = &bench.driver.world().terms;
        assert_eq!(terms[&Term(1)].ended, Some(until), "{old:?}");
        assert!(terms[&Term(2)].since >= until && terms[&Term(2)].ended.is_none());
        let guards = &bench.driver.processes[0].core.guards;
        assert!(guards.iter().all(|(at, _, term)| *term == Some(Term(2)) && at.monotonic >= until));
        assert!(guards.iter().any(|(_, role, _)| *role == Role::Attacher));
    }
}

#[test]
fn a_restarted_process_lists_everything_anew_and_leads_again() {
    let mut bench = Bench::new(5);
    bench.driver.inject(Fault::RestartController);
    assert!(bench.driver.processes.is_empty());
    bench.run(60);
    let process = &bench.driver.processes[0];
    assert_eq!((process.number, process.term), (2, Some(Term(2))));
    let ended = process.core.watched.iter().filter(|event| matches!(event, WatchEvent::End { .. })).count();
    assert_eq!(ended, Kind::ALL.len());
}

#[test]
fn a_still_watch_shows_nothing_while_live_reads_are_fresh() {
    let mut bench = Bench::new(6);
    bench.driver.inject(Fault::StallWatch(Some(Kind::Node), secs(100)));
    let seen = bench.driver.processes[0].core.watched.len();
    bench.driver.inject(Fault::Taint(bench.n2.clone()));
    let id = bench.give(Call::Kubernetes(KubernetesCall::GetNode { name: bench.n2.clone() }));
    bench.run(30);
    let fresh = |result: &CallResult| matches!(result, CallResult::Done(Answer::Node(Some(n))) if n.out_of_service);
    assert!(bench.outcome(id).iter().all(fresh) && !bench.outcome(id).is_empty());
    let shown = |bench: &Bench| {
        let watched = &bench.driver.processes[0].core.watched[seen..];
        watched.iter().any(|e| matches!(e, WatchEvent::Applied(crate::controller::event::Object::Node(_))))
    };
    assert!(!shown(&bench));
    bench.run(100);
    assert!(shown(&bench));
}

#[test]
fn a_terminated_instance_takes_its_mounts_attachments_and_node_along() {
    let mut bench = Bench::new(7);
    bench.attach_by_the_book();
    bench.driver.inject(Fault::TerminateInstance(bench.n1.clone()));
    bench.run(200);
    let world = bench.driver.world();
    assert!(world.mounts.is_empty() && world.volumes[&bench.volume].attachments.is_empty());
    assert!(!world.nodes.contains_key(&bench.n1), "the cloud's loop deleted the Node");
    let pod = world.pods.values().next().expect("made again elsewhere");
    assert_eq!(pod.node.as_ref(), Some(&bench.n2));
    assert!(bench.found.is_empty(), "{:?}", bench.found);
}

#[test]
fn a_stopped_instance_comes_back_with_another_boot_and_mounts_again() {
    let mut bench = Bench::new(8);
    bench.attach_by_the_book();
    let boot = bench.driver.machine(&bench.n1).expect("there").boot().clone();
    bench.driver.inject(Fault::StopInstance(bench.n1.clone()));
    bench.run(60);
    assert!(bench.driver.world().mounts.is_empty());
    assert_eq!(bench.driver.world().volumes[&bench.volume].attachments.len(), 1, "EC2 keeps it attached");
    bench.driver.inject(Fault::StartInstance(bench.n1.clone()));
    bench.run(120);
    assert_ne!(bench.driver.machine(&bench.n1).expect("there").boot(), &boot);
    assert_eq!(bench.driver.world().mounts.len(), 1);
}

#[test]
fn healing_brings_every_node_back() {
    let mut bench = Bench::new(9);
    bench.driver.inject(Fault::TerminateInstance(bench.n1.clone()));
    bench.driver.inject(Fault::Partition(bench.n2.clone()));
    bench.driver.inject(Fault::Taint(bench.n2.clone()));
    bench.run(400);
    assert!(!bench.driver.world().nodes.contains_key(&bench.n1));
    bench.driver.heal_all();
    bench.run(60);
    assert!(bench.driver.world().nodes.values().all(|node| node.ready.is_true && !node.out_of_service));
    assert_eq!(bench.driver.world().nodes.len(), 2);
    assert!(bench.driver.run_until_quiet(secs(3600), |_| {}));
}

#[test]
fn the_checkers_world_stays_like_the_models_through_chaos() {
    for seed in 0..6 {
        let mut bench = Bench::new(seed);
        bench.attach_by_the_book();
        let every = (secs(5), secs(30));
        bench.driver.begin_chaos(ChaosOptions { every, at_large_every: every, move_every: Some(every) });
        bench.run(3600);
        let (driver, world) = (&bench.driver, bench.driver.world());
        assert!(driver.api.nodes().eq(world.nodes.values()), "seed {seed}");
        assert!(driver.api.attachments().eq(world.attachments.values()), "seed {seed}");
        let kernels: usize = driver.kubelets.values().map(|kubelet| kubelet.machine().mounts().len()).sum();
        let orphans: usize = driver.orphans.values().map(|machine| machine.mounts().len()).sum();
        assert_eq!(world.mounts.len(), kernels + orphans, "seed {seed}");
        for instance in driver.ec2.instances() {
            assert_eq!(world.instances.get(instance.id()).map(|entry| &entry.state), Some(instance.state()));
        }
        let attachments = |volume: &crate::sim::ec2::Volume| volume.attachments().len();
        for volume in driver.ec2.volumes() {
            assert_eq!(world.volumes[volume.id()].attachments.len(), attachments(volume), "seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let run = |seed| {
        let mut bench = Bench::new(seed);
        bench.attach_by_the_book();
        let every = (secs(5), secs(60));
        bench.driver.begin_chaos(ChaosOptions { every, at_large_every: every, move_every: None });
        bench.run(1800);
        (bench.driver.take_trace(), bench.driver.steps())
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11).0, run(12).0);
}

#[test]
fn who_detaches_a_mounted_volume_is_caught() {
    let mut bench = Bench::new(13);
    bench.attach_by_the_book();
    bench.give(bench.detach_call(&bench.n1.clone(), "/dev/xvdaa"));
    bench.run(10);
    assert!(bench.has_found(Invariant::MountedAttachmentStays), "{:?}", bench.found);
    assert!(bench.has_found(Invariant::UnlistedBeforeDetach), "{:?}", bench.found);
}

#[test]
fn who_unlists_what_is_in_use_is_caught() {
    let mut bench = Bench::new(14);
    bench.attach_by_the_book();
    bench.give(bench.list_call(false));
    bench.run(10);
    assert!(bench.has_found(Invariant::InUseStaysListed), "{:?}", bench.found);
}

#[test]
fn who_attaches_without_an_intent_is_caught() {
    let mut bench = Bench::new(15);
    bench.give(bench.attach_call(&bench.n1.clone(), "/dev/xvdaa"));
    bench.run(10);
    assert!(bench.has_found(Invariant::IntentBeforeAttach), "{:?}", bench.found);
}

#[test]
fn who_lists_what_is_not_attached_is_caught() {
    let mut bench = Bench::new(16);
    bench.give(bench.list_call(true));
    bench.run(10);
    assert!(bench.has_found(Invariant::ListedOnlyIfAttached), "{:?}", bench.found);
}

#[test]
fn who_sends_after_its_lease_is_caught_and_not_after_prevents_it() {
    for guarded in [false, true] {
        let mut bench = Bench::new(17);
        bench.give(bench.create_call());
        bench.run(1);
        // It hangs before the socket for longer than its lease lasts.
        bench.driver.fault_next_call(CallTarget::AttachVolume, CallFault::DelaySend(secs(35)));
        let attach = bench.attach_call(&bench.n1.clone(), "/dev/xvdaa");
        bench.give(attach);
        if !guarded {
            let command = bench.driver.processes[0].core.commands.back_mut().expect("just given");
            command.not_after = None;
        }
        bench.driver.inject(Fault::ChangeLeader(OldLeader::LivesOn));
        bench.run(120);
        assert_eq!(bench.has_found(Invariant::SentUnderLease), !guarded, "{:?}", bench.found);
        assert_eq!(bench.driver.world().counts.of("AttachVolume"), u64::from(!guarded));
    }
}

#[test]
fn what_is_to_follow_on_a_call_follows_on_that_one_alone() {
    let mut bench = Bench::new(1);
    bench.driver.schedule_after_call("PatchNodeStatus", 2, secs(3), Fault::Taint(bench.n1.clone()));
    let tainted = |bench: &Bench| bench.driver.api.node(&bench.n1).is_some_and(|node| node.out_of_service);
    let call = bench.list_call(false);
    bench.give(call);
    bench.run(10);
    assert!(!tainted(&bench), "the first is not the second");
    let call = bench.list_call(false);
    bench.give(call);
    bench.run(2);
    assert!(!tainted(&bench), "not at once");
    bench.run(2);
    assert!(tainted(&bench));
}

#[test]
fn a_claim_deleted_under_a_pod_is_gone_until_the_world_is_healed() {
    let mut bench = Bench::new(1);
    let volume = bench.volume.clone();
    let claims = |bench: &Bench| bench.driver.world().claims.len();
    let before = claims(&bench);
    bench.driver.inject(Fault::DeleteClaim(volume));
    assert_eq!(claims(&bench), before - 1);
    bench.driver.heal_all();
    assert_eq!(claims(&bench), before);
}
