//! Benchmark of the core: events per second, and time per event and per swept volume as the number of volumes grows.
//!
//! A world at rest of N volumes (20 a node) is made with the simulator's models, then pods are moved one after the other:
//! each move is deleted pod, emptied volumesInUse, detach, attach, listing. Only time inside the core counts. Work must be
//! proportional to the change: with 100,000 volumes an event may cost at most 1.5 times what it costs with 1,000.
//!
//! Sweeps are work in proportion to what there is, by design: one answer for 200 volumes is one event. So they are kept out
//! of the moves by a long sweep period, and measured by themselves when the moves are over: whole rounds over a world at
//! rest in which nothing else is sent. What a swept volume costs (asking for it and taking in its answer) must not grow
//! either; a sweep period of 60 s then costs N times that a minute.
//!
//! Run: `cargo bench --no-default-features --bench core`.
#![allow(clippy::print_stdout, clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use attachd::controller::Controller;
use attachd::controller::command::{Call, Ec2Call};
use attachd::controller::event::{Event, EventKind, Guard, GuardChange, Kind, Role, Term, WatchEvent};
use attachd::controller::policy::{Bucket, Policy, Settings};
use attachd::model::claim::{AccessMode, PersistentVolume, PersistentVolumeSource, Placement};
use attachd::model::ids::{
    BootId, ClaimKey, DriverName, InstanceId, InstanceType, NodeName, PersistentVolumeName, PodKey, ProviderId,
    ResourceVersion, Uid, VolumeHandle, VolumeKey, Zone,
};
use attachd::model::node::{CsiDriver, CsiNode};
use attachd::model::outcome::Outcome;
use attachd::model::time::{Monotonic, Now, Wall};
use attachd::sim::api_server::Api;
use attachd::sim::api_server::{KubeletStatus, NewNode};
use attachd::sim::checkers::world::Actor;
use attachd::sim::ec2::Ec2Model;
use attachd::sim::ec2::{Ec2Options, Throttling};

const PER_NODE: usize = 20;
/// The moves take some hours of it: no more than a few answers of a sweep come meanwhile.
const SWEEP_PERIOD: Duration = Duration::from_secs(1_000 * 3_600);
const ZONE: &str = "us-east-1a";

struct Bench {
    core: Controller,
    api: Api,
    ec2: Ec2Model,
    now: Now,
    outcomes: VecDeque<Outcome>,
    spent: Duration,
    events: u64,
    /// Volumes that a read asked for.
    asked_for: u64,
    /// Commands of any other kind.
    others: u64,
    volumes: Vec<VolumeKey>,
}

fn node(index: usize) -> NodeName {
    NodeName::new(format!("n{index}"))
}

fn instance(index: usize) -> InstanceId {
    InstanceId::parse(&format!("i-{index:017x}")).expect("a valid id")
}

impl Bench {
    fn new(count: usize) -> Self {
        let plenty = Bucket { burst: 1_000_000, per_second: 1_000_000.0 };
        let settings = Settings {
            ec2_mutating: plenty,
            ec2_describe: plenty,
            ec2_sweep: plenty,
            api_writes: plenty,
            sweep_period: SWEEP_PERIOD,
            ..Settings::default()
        };
        let options = Ec2Options { throttling: Throttling::Off, ..Ec2Options::default() };
        let now = Now { monotonic: Monotonic::new(Duration::from_secs(1)), wall: Wall::from_millis(1_900_000_000_000) };
        let mut bench = Self {
            core: Controller::new(settings, Policy::FULL),
            api: Api::new(),
            ec2: Ec2Model::new(options, 7),
            now,
            outcomes: VecDeque::new(),
            spent: Duration::ZERO,
            events: 0,
            asked_for: 0,
            others: 0,
            volumes: Vec::new(),
        };
        bench.populate(count);
        bench
    }

    fn populate(&mut self, count: usize) {
        self.api.put_csi_driver(CsiDriver { name: DriverName::ebs(), attach_required: true });
        for index in 0..count / PER_NODE + 1 {
            let (kind, zone) = (InstanceType::new("m7i.48xlarge"), Zone::new(ZONE));
            self.ec2.add_running_instance(self.now, instance(index), kind, zone.clone());
            let provider_id = ProviderId::Instance { instance: instance(index), zone: Some(zone.clone()) };
            let new = NewNode { name: node(index), provider_id, zone, boot_id: BootId::new("b") };
            self.api.register_node(self.now, &new);
            let status = KubeletStatus { ready: true, ..KubeletStatus::default() };
            self.api.patch_by_kubelet(self.now, &node(index), &status).expect("a node");
            let drivers = [(DriverName::ebs(), instance(index).text())].into();
            self.api.put_csi_node(CsiNode { name: node(index), drivers, ebs_allocatable: None });
        }
        for index in 0..count {
            let id = self.ec2.create_volume(self.now, Zone::new(ZONE), false);
            self.volumes.push(VolumeKey::ebs(&id));
            let volume = PersistentVolume {
                name: PersistentVolumeName::new(format!("pv{index}")),
                uid: Uid::new(""),
                resource_version: ResourceVersion::new(""),
                deleting: false,
                finalizers: Vec::new(),
                claim: None,
                source: PersistentVolumeSource::Csi {
                    driver: DriverName::ebs(),
                    handle: VolumeHandle::new(id.text()),
                    attributes: Default::default(),
                },
                access_modes: [AccessMode::ReadWriteOnce].into(),
                block: false,
                placement: Placement::default(),
            };
            self.api.create_bound_claim(&ClaimKey::new("d", format!("c{index}")), volume);
            self.bind(index, index / PER_NODE);
        }
        self.now = self.now.plus(Duration::from_secs(10));
        for kind in Kind::ALL {
            self.feed(EventKind::Watch(WatchEvent::Begin { kind, generation: 1 }));
            for object in self.api.list(kind) {
                self.feed(EventKind::Watch(WatchEvent::Item { generation: 1, object }));
            }
            self.feed(EventKind::Watch(WatchEvent::End { kind, generation: 1 }));
        }
        self.api.take_changes();
        for role in [Role::AttachDetach, Role::Attacher] {
            let guard = Guard { term: Term(1), since: self.now.monotonic, until: None };
            self.feed(EventKind::Guard(GuardChange { role, guard: Some(guard) }));
        }
    }

    fn bind(&mut self, index: usize, to: usize) {
        let (key, claims) = (PodKey::new("d", format!("p{index}")), [format!("c{index}").into()]);
        self.api.create_pod(self.now, &key, &node(to), &claims).expect("a new pod");
    }

    fn feed(&mut self, kind: EventKind) {
        let event = Event { at: self.now, kind };
        let started = Instant::now();
        self.core.ingest(event);
        self.spent += started.elapsed();
        self.events += 1;
    }

    /// Runs until virtual `until`: everything the core asks is answered at once.
    fn run(&mut self, until: Duration) {
        let end = self.now.plus(until);
        loop {
            self.ec2.advance(self.now);
            for change in self.api.take_changes() {
                let event = match (&change.after, change.deleted()) {
                    (Some(object), _) => WatchEvent::Applied(object.clone()),
                    (None, Some(key)) => WatchEvent::Deleted(key),
                    (None, None) => continue,
                };
                self.feed(EventKind::Watch(event));
            }
            while let Some(outcome) = self.outcomes.pop_front() {
                self.feed(EventKind::Outcome(outcome));
            }
            let started = Instant::now();
            self.core.plan(self.now);
            self.spent += started.elapsed();
            while let Some(command) = self.core.poll_command() {
                match &command.call {
                    Call::Ec2(Ec2Call::DescribeVolumes { volumes, .. }) => self.asked_for += volumes.len() as u64,
                    _ => self.others += 1,
                }
                let began = self.now;
                let ended = began.plus(Duration::from_millis(1));
                let result = match &command.call {
                    Call::Ec2(call) => self.ec2.call(began, call),
                    Call::Kubernetes(call) => self.api.call(began, Actor::Attachd(Term(1)), call),
                };
                self.outcomes.push_back(Outcome { id: command.id, began, ended, result });
            }
            if !self.outcomes.is_empty() {
                self.now = self.now.plus(Duration::from_millis(1));
                continue;
            }
            let wake = self.core.next_wake().map(|wake| wake.at);
            let next = [wake, self.ec2.next_change()].into_iter().flatten().min();
            let next = next.unwrap_or(end.monotonic).max(self.now.monotonic + Duration::from_millis(1));
            if next >= end.monotonic {
                self.now = end;
                return;
            }
            self.now = self.now.plus(next.saturating_since(self.now.monotonic));
        }
    }

    fn report_in_use(&mut self, at: usize) {
        let name = node(at);
        let listed = self.api.node(&name).map(|node| node.volumes_attached.keys().cloned().collect::<BTreeSet<_>>());
        let status = KubeletStatus { volumes_in_use: listed, ready: true, ..KubeletStatus::default() };
        self.api.patch_by_kubelet(self.now, &name, &status).expect("a node");
    }

    /// Moves `count` volumes, one after the other, to the node after theirs and back.
    fn moves(&mut self, count: usize) {
        let nodes = self.volumes.len() / PER_NODE;
        for step in 0..count {
            let index = (step * 7919) % self.volumes.len();
            let key = PodKey::new("d", format!("p{index}"));
            let from = self.api.pod(&key).and_then(|pod| pod.node.clone()).expect("bound");
            let from: usize = from.as_str()[1..].parse().expect("a number");
            let uid = self.api.pod(&key).map(|pod| pod.uid.clone()).expect("a pod");
            self.api.remove_pod(Actor::Platform, &key, &uid);
            let name = node(from);
            let gone = self.volumes[index].unique_name();
            let rest = self.api.node(&name).map(|node| node.volumes_in_use.clone()).unwrap_or_default();
            let rest: BTreeSet<_> = rest.into_iter().filter(|name| *name != gone).collect();
            let status = KubeletStatus { volumes_in_use: Some(rest), ready: true, ..KubeletStatus::default() };
            self.api.patch_by_kubelet(self.now, &name, &status).expect("a node");
            let to = (from + 1) % (nodes + 1);
            self.bind(index, to);
            self.run(Duration::from_secs(40));
            self.report_in_use(to);
            self.run(Duration::from_secs(3));
            let listed = self.api.node(&node(to)).is_some_and(|node| node.volumes_attached.contains_key(&gone));
            assert!(listed, "{gone} did not reach its node: {:#?}", self.core.waiting());
        }
    }
}

/// Time inside the core, and how many of what it was spent on.
struct Measured {
    spent: Duration,
    count: u64,
}

impl Bench {
    fn begin(&mut self) {
        (self.spent, self.events, self.asked_for, self.others) = (Duration::ZERO, 0, 0, 0);
    }

    /// Events of 200 moves.
    fn measure_moves(&mut self) -> Measured {
        self.moves(20);
        self.begin();
        self.moves(200);
        Measured { spent: self.spent, count: self.events }
    }

    /// Volumes of whole sweeps over the world at rest, of 200,000 volumes or more in all.
    fn measure_sweeps(&mut self) -> Measured {
        self.run(SWEEP_PERIOD);
        self.begin();
        let rounds = 200_000_usize.div_ceil(self.volumes.len());
        self.run(SWEEP_PERIOD * u32::try_from(rounds).expect("few rounds"));
        assert_eq!(self.others, 0, "the world is not at rest: {:#?}", self.core.waiting());
        Measured { spent: self.spent, count: self.asked_for }
    }
}

fn print(what: &str, measured: &[(usize, Measured)]) {
    println!("{:>9} {what:>16} {:>12} {:>12} {:>9}", "volumes", "per second", "ns each", "ratio");
    let each = |measured: &Measured| measured.spent.as_nanos() as f64 / measured.count as f64;
    for (volumes, one) in measured {
        let (each, first) = (each(one), each(&measured[0].1));
        println!("{volumes:>9} {:>16} {:>12.0} {each:>12.0} {:>9.2}", one.count, 1e9 / each, each / first);
    }
}

fn main() {
    let (mut moves, mut sweeps) = (Vec::new(), Vec::new());
    for count in [1_000, 10_000, 100_000] {
        let mut bench = Bench::new(count);
        bench.run(Duration::from_secs(600));
        for at in 0..count / PER_NODE {
            bench.report_in_use(at);
        }
        // Kubernetes Events of the attaches so far go out slowly, and would be counted as events of the moves.
        bench.run(Duration::from_secs(72 * 3_600));
        moves.push((count, bench.measure_moves()));
        sweeps.push((count, bench.measure_sweeps()));
    }
    print("events of moves", &moves);
    print("swept volumes", &sweeps);
}
