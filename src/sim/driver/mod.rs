//! The virtual clock and everything that hangs on it: delivers events, carries out commands, injects faults.
//!
//! Flow: [`Driver::step`] takes the earliest thing that is due anywhere, lets it happen, carries what changed to whoever
//! watches, and lets the core plan when nothing else is due at that moment. One step is one event delivered or one stage
//! of one call, so a fault can be put between any two. Owns time, order and chance. Must never decide anything for the
//! core nor tell it more than a real cluster would.

mod carry;
mod chaos;
mod commander;
mod describe;
mod fault;
mod flight;
mod heal;
mod inject;
mod leadership;
mod measure;
mod mirror;
mod options;
mod preconditions;
mod process;
mod reason;
mod send;
mod setup;
mod takeover;
#[cfg(test)]
mod tests;
mod trace;

pub use chaos::{ChaosOptions, KINDS, KINDS_AT_LARGE};
pub use commander::Commander;
pub use fault::{CallFault, CallTarget, Fault, OldLeader};
pub use flight::{ATTEMPT_TIMEOUT, DEAD_AFTER};
pub use measure::Measures;
pub use options::{CallFaultRates, DriverOptions, Latencies, LeaseOptions};
pub use takeover::Takeover;
pub use trace::{Actor, Moment, TraceEntry};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::controller::Controller;
use crate::controller::event::Role;
use crate::model::ids::{InstanceId, NodeName};
use crate::model::time::{Monotonic, Now, Wall};
use crate::sim::api_server::Api;
use crate::sim::checkers::world::{Touched, World, WorldRules};
use crate::sim::dice::Dice;
use crate::sim::ec2::{Ec2Fault, Ec2Model};
use crate::sim::kubelet::{Deed, Kubelet, Machine, Surroundings};
use crate::sim::workload::{Apps, AttachDetachController, ControlPlane, OtherAttacher};
use flight::Flight;
use process::Process;

/// Where the wall clock stands when a run starts: 2026-01-01T00:00:00Z.
const EPOCH_MILLIS: i64 = 1_767_225_600_000;
/// A core that wants to be woken at once is woken this much later: time must pass.
const SHORTEST_WAKE: Duration = Duration::from_millis(1);
/// How long nothing but polls and heartbeats must happen for the world to count as quiet: longer than the
/// kubelet's longest back-off (122 s) and than W (70 s).
pub const QUIET_FOR: Duration = Duration::from_secs(200);

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Due {
    /// A call reaches the socket.
    Send(u64),
    /// A call reaches its server.
    Arrive(u64),
    /// A call's caller learns what came of it, or gives up.
    Answer(u64),
    /// A process may take the lease.
    Takeover(u64),
    /// The guard of a process that is cut off from its lease ends.
    GuardEnds(u64),
    /// A process that lost its lease is gone.
    Exit(u64),
    /// A process is started again.
    StartProcess,
    /// A scheduled fault or action.
    Fault(Fault),
    /// EC2 may show a terminated instance no longer.
    LookAgain(InstanceId),
    /// A fault of EC2 that lasted for a while ends.
    Ec2FaultEnds(Ec2Fault),
    /// The timeline says what upstream would do at this moment.
    Remark(&'static str),
    /// Chance draws the next fault of a node or a volume.
    Chaos,
    /// Chance draws the next fault of attachd, its calls or its watches.
    ChaosAtLarge,
    /// Chance moves the next pod.
    Move,
}

/// What is to follow on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trigger {
    kind: &'static str,
    nth: u64,
    after: Duration,
    fault: Fault,
}

/// The earliest thing that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Ec2,
    Queue,
    Kubelet,
    Plane,
    Apps,
    AttachDetach,
    OtherAttacher,
    Watches(u64),
    Wake(u64),
}

/// One stream of chance for each who needs it.
#[derive(Clone, Debug)]
struct Streams {
    calls: Dice,
    watches: Dice,
    kubelets: Dice,
    workload: Dice,
    chaos: Dice,
}

/// A world in virtual time, with the core in it.
#[derive(Debug)]
pub struct Driver<C = Controller> {
    options: DriverOptions,
    now: Now,
    steps: u64,
    sequence: u64,
    queue: BTreeMap<(Monotonic, u64), Due>,
    dice: Streams,

    api: Api,
    ec2: Ec2Model,
    kubelets: BTreeMap<NodeName, Kubelet>,
    kubelets_due: BTreeSet<(Monotonic, NodeName)>,
    kubelet_due: BTreeMap<NodeName, Monotonic>,
    leases_renewed: BTreeMap<NodeName, bool>,
    node_of: BTreeMap<InstanceId, NodeName>,
    /// Machines that lost their name to another, still running.
    orphans: BTreeMap<InstanceId, Machine>,
    /// Instances whose state may change.
    changing: BTreeSet<InstanceId>,
    apps: Apps,
    plane: ControlPlane,
    /// kube-controller-manager's own, where attachd has not its role.
    attach_detach: Option<AttachDetachController>,
    /// The attacher of another CSI driver.
    other_attacher: OtherAttacher,

    processes: Vec<Process<C>>,
    last_process: u64,
    last_term: u64,
    lease_until: Monotonic,
    flights: BTreeMap<u64, Flight>,
    last_flight: u64,
    call_faults: VecDeque<(CallTarget, CallFault)>,
    triggers: Vec<Trigger>,
    decided: BTreeMap<&'static str, u64>,
    chaos: Option<ChaosOptions>,
    /// Remarks that wait for the first pod made in place of another.
    remarks: Vec<(Duration, &'static str)>,
    /// Reads that fail for now: the timeline says it once.
    failing_reads: BTreeSet<&'static str>,

    /// Whether a fault made EC2 refuse calls for rate that were within it.
    throttled_by_chance: bool,

    world: World,
    measures: Measures,
    trace: Vec<TraceEntry>,
    last_activity: Monotonic,
}

impl<C: Commander> Driver<C> {
    /// An empty world with one attachd process that leads at once.
    pub fn new(options: DriverOptions) -> Self {
        let stream = |number| Dice::new(options.seed, number);
        let dice = Streams {
            calls: stream(1),
            watches: stream(2),
            kubelets: stream(3),
            workload: stream(4),
            chaos: stream(5),
        };
        let now = Now { monotonic: Monotonic::ZERO, wall: Wall::from_millis(EPOCH_MILLIS) };
        let world = World {
            now,
            rules: WorldRules::from(&options.settings),
            touched: Touched::everything(),
            ..World::default()
        };
        let mut driver = Self {
            now,
            steps: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            dice,
            api: Api::new(),
            ec2: Ec2Model::new(options.ec2.clone(), options.seed),
            kubelets: BTreeMap::new(),
            kubelets_due: BTreeSet::new(),
            kubelet_due: BTreeMap::new(),
            leases_renewed: BTreeMap::new(),
            node_of: BTreeMap::new(),
            orphans: BTreeMap::new(),
            changing: BTreeSet::new(),
            apps: Apps::default(),
            plane: ControlPlane::new(options.control_plane.clone()),
            other_attacher: OtherAttacher::new(),
            attach_detach: (!options.settings.roles.contains(&Role::AttachDetach)).then(AttachDetachController::new),
            processes: Vec::new(),
            last_process: 0,
            last_term: 0,
            lease_until: Monotonic::ZERO,
            flights: BTreeMap::new(),
            last_flight: 0,
            call_faults: VecDeque::new(),
            triggers: Vec::new(),
            decided: BTreeMap::new(),
            chaos: None,
            remarks: Vec::new(),
            failing_reads: BTreeSet::new(),
            throttled_by_chance: false,
            world,
            measures: Measures::default(),
            trace: Vec::new(),
            last_activity: Monotonic::ZERO,
            options,
        };
        driver.add_csi_driver();
        driver.schedule_due(Monotonic::ZERO, Due::StartProcess);
        driver
    }

    /// The time.
    pub fn now(&self) -> Now {
        self.now
    }

    /// How many steps were made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The options of the run.
    pub fn options(&self) -> &DriverOptions {
        &self.options
    }

    /// The world as checkers look at it, with the news since [`Driver::forget_news`].
    pub fn world(&self) -> &World {
        &self.world
    }

    /// After a look: what follows is news.
    pub fn forget_news(&mut self) {
        self.world.forget_news();
    }

    /// The measures so far.
    pub fn measures(&self) -> &Measures {
        &self.measures
    }

    /// The timeline since it was last taken; empty unless [`DriverOptions::trace`].
    pub fn take_trace(&mut self) -> Vec<TraceEntry> {
        std::mem::take(&mut self.trace)
    }

    /// Calls by kind as the core commanded them, whether they have left the socket or not: it is here that a fault of the
    /// next call takes hold.
    pub fn calls_decided(&self) -> &BTreeMap<&'static str, u64> {
        &self.decided
    }

    /// The workloads.
    pub fn apps(&self) -> &Apps {
        &self.apps
    }

    /// Whether a fault made EC2 refuse calls for rate that were within it.
    pub fn was_throttled_by_chance(&self) -> bool {
        self.throttled_by_chance
    }

    /// The machine behind a node's name.
    pub fn machine(&self, node: &NodeName) -> Option<&Machine> {
        self.kubelets.get(node).map(Kubelet::machine)
    }

    /// The names of all nodes ever added.
    pub fn node_names(&self) -> impl Iterator<Item = &NodeName> {
        self.kubelets.keys()
    }

    /// The core of the process that leads, if one does.
    pub fn leading_core(&self) -> Option<&C> {
        self.processes
            .iter()
            .rev()
            .find(|process| process.term.is_some() && process.renews)
            .map(|process| &process.core)
    }

    /// Puts a fault (or an action) into the future.
    pub fn schedule(&mut self, after: Duration, fault: Fault) {
        self.schedule_due(self.now.monotonic + after, Due::Fault(fault));
    }

    /// Puts what upstream would do at a moment into the timeline; nothing else happens by it.
    pub fn remark(&mut self, moment: Moment, text: &'static str) {
        match moment {
            Moment::Start(after) => self.schedule_due(Monotonic::ZERO + after, Due::Remark(text)),
            Moment::Replacement(after) => self.remarks.push((after, text)),
        }
    }

    /// Lets a fault (or an action) follow on the `nth` call of a kind (counted from 1, named as in
    /// [`crate::sim::checkers::world::CallCounts::by_kind`]), so long after it left the socket.
    pub fn schedule_after_call(&mut self, kind: &'static str, nth: u64, after: Duration, fault: Fault) {
        self.triggers.push(Trigger { kind, nth, after, fault });
    }

    /// Lets the next thing happen. False if nothing ever will.
    pub fn step(&mut self) -> bool {
        let Some((at, source)) = self.next_source() else { return false };
        self.steps += 1;
        self.renew_leases(at);
        self.now = self.now.plus(at.saturating_since(self.now.monotonic));
        self.world.now = self.now;
        if source == Source::Ec2 || self.ec2.next_change().is_some_and(|due| due <= at) {
            self.ec2.advance(self.now);
        }
        self.handle(source);
        self.settle();
        if self.next_source().is_none_or(|(next, _)| next > self.now.monotonic) {
            self.plan();
        }
        true
    }

    /// Steps until `until`; `look` sees the world after each step.
    pub fn run_until(&mut self, until: Monotonic, mut look: impl FnMut(&Self)) {
        while self.next_time().is_some_and(|at| at <= until) {
            self.step();
            look(self);
            self.forget_news();
        }
        self.now = self.now.plus(until.saturating_since(self.now.monotonic));
        self.world.now = self.now;
    }

    /// Steps until nothing but polls and heartbeats has happened for [`QUIET_FOR`]. True if that came about
    /// within `limit`.
    pub fn run_until_quiet(&mut self, limit: Duration, mut look: impl FnMut(&Self)) -> bool {
        let end = self.now.monotonic + limit;
        loop {
            if self.is_quiet() {
                return true;
            }
            if self.next_time().is_none_or(|at| at > end) || !self.step() {
                return self.is_quiet();
            }
            look(self);
            self.forget_news();
        }
    }

    /// Whether nothing but polls and heartbeats has happened for a while, and nothing is planned.
    pub fn is_quiet(&self) -> bool {
        let planned = self.queue.values().any(|due| {
            matches!(
                due,
                Due::Fault(_)
                    | Due::Remark(_)
                    | Due::Ec2FaultEnds(_)
                    | Due::Chaos
                    | Due::ChaosAtLarge
                    | Due::Move
                    | Due::Takeover(_)
                    | Due::GuardEnds(_)
                    | Due::StartProcess
            )
        });
        !planned
            && self.apps.next_due().is_none()
            && !self.plane.is_waiting()
            && !self.attach_detach.as_ref().is_some_and(|controller| controller.is_busy(self.now.monotonic))
            && self.now.monotonic.saturating_since(self.last_activity) >= QUIET_FOR
            && !self.flights.values().any(|flight| flight::is_mutating(&flight.command.call))
    }

    /// When the next thing is due.
    pub fn next_time(&self) -> Option<Monotonic> {
        self.next_source().map(|(at, _)| at)
    }

    fn next_source(&self) -> Option<(Monotonic, Source)> {
        let mut best: Option<(Monotonic, Source)> = None;
        let mut offer = |at: Option<Monotonic>, source: Source| {
            if let Some(at) = at
                && best.as_ref().is_none_or(|(least, _)| at < *least)
            {
                best = Some((at, source));
            }
        };
        offer(self.ec2.next_change(), Source::Ec2);
        offer(self.queue.keys().next().map(|(at, _)| *at), Source::Queue);
        offer(self.kubelets_due.first().map(|(at, _)| *at), Source::Kubelet);
        offer(self.plane.next_due(), Source::Plane);
        offer(self.apps.next_due(), Source::Apps);
        offer(self.other_attacher.next_due(), Source::OtherAttacher);
        offer(self.attach_detach.as_ref().and_then(AttachDetachController::next_due), Source::AttachDetach);
        for process in &self.processes {
            offer(process.next_delivery(), Source::Watches(process.number));
            offer(process.wake, Source::Wake(process.number));
        }
        best
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Ec2 => {}
            Source::Queue => {
                if let Some((_, due)) = self.queue.pop_first() {
                    self.handle_due(due);
                }
            }
            Source::Kubelet => {
                if let Some((_, node)) = self.kubelets_due.first().cloned() {
                    self.with_kubelet(&node, Kubelet::wake);
                }
            }
            Source::Plane => {
                let ec2 = &self.ec2;
                let gone = |id: &InstanceId| {
                    ec2.instance(id).is_none_or(|i| *i.state() == crate::model::volume::InstanceState::Terminated)
                };
                for (who, what) in self.plane.wake(self.now, &mut self.api, gone) {
                    self.note(Actor::ControlPlane(who), what, "");
                }
            }
            Source::Apps => self.apps.wake(self.now, &mut self.api, &mut self.dice.workload),
            Source::OtherAttacher => {
                for what in self.other_attacher.wake(self.now, &mut self.api) {
                    self.note(Actor::ControlPlane("other-attacher"), what, "");
                }
            }
            Source::AttachDetach => {
                let Some(controller) = &mut self.attach_detach else { return };
                for what in controller.wake(self.now, &mut self.api) {
                    self.note(Actor::ControlPlane("attach-detach"), what, "");
                }
            }
            Source::Watches(number) => {
                let now = self.now;
                if let Some(process) = self.process(number) {
                    process.deliver(now);
                }
            }
            Source::Wake(number) => {
                if let Some(process) = self.process(number) {
                    process.wake = None;
                    process.dirty = true;
                }
            }
        }
    }

    fn handle_due(&mut self, due: Due) {
        match due {
            Due::Send(id) => self.send(id),
            Due::Arrive(id) => self.arrive(id),
            Due::Answer(id) => self.answer(id),
            Due::Takeover(number) => self.take_over(number),
            Due::GuardEnds(number) => self.end_guard(number),
            Due::Exit(number) => self.exit(number),
            Due::StartProcess => self.start_process(),
            Due::Fault(fault) => self.inject(fault),
            Due::LookAgain(instance) => self.mirror_instance(&instance),
            Due::Ec2FaultEnds(fault) => {
                self.ec2.end(&fault);
                if fault == Ec2Fault::Outage {
                    self.note(Actor::Ec2, "the API is there again", "");
                    self.measures.ec2_is_back(self.now.monotonic);
                }
            }
            Due::Remark(text) => self.note(Actor::Upstream, text, ""),
            Due::Chaos => self.draw_chaos(),
            Due::ChaosAtLarge => self.draw_chaos_at_large(),
            Due::Move => self.draw_move(),
        }
    }

    fn schedule_due(&mut self, at: Monotonic, due: Due) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), due);
    }

    fn process(&mut self, number: u64) -> Option<&mut Process<C>> {
        self.processes.iter_mut().find(|process| process.number == number)
    }

    /// Lets every process plan that has something to plan on, and starts what it commands.
    fn plan(&mut self) {
        let now = self.now;
        let mut commands = Vec::new();
        for process in &mut self.processes {
            if !std::mem::take(&mut process.dirty) {
                continue;
            }
            process.core.plan(now);
            while let Some(command) = process.core.poll_command() {
                commands.push((process.number, command));
            }
            process.wake = process.core.next_wake().map(|wake| wake.at.max(now.monotonic + SHORTEST_WAKE));
        }
        for (number, command) in commands {
            self.start_call(number, command);
        }
    }

    /// Works on one kubelet and takes up everything that follows.
    fn with_kubelet<R>(
        &mut self,
        node: &NodeName,
        work: impl FnOnce(&mut Kubelet, &mut Surroundings<'_>) -> R,
    ) -> Option<R> {
        let kubelet = self.kubelets.get_mut(node)?;
        let mut deeds: Vec<Deed> = Vec::new();
        let mut at = Surroundings {
            now: self.now,
            api: &mut self.api,
            ec2: &mut self.ec2,
            dice: &mut self.dice.kubelets,
            deeds: &mut deeds,
        };
        let result = work(kubelet, &mut at);
        let (due, renews) = (kubelet.next_due(), kubelet.renews_lease());
        if let Some(old) = self.kubelet_due.remove(node) {
            self.kubelets_due.remove(&(old, node.clone()));
        }
        if let Some(due) = due {
            self.kubelet_due.insert(node.clone(), due);
            self.kubelets_due.insert((due, node.clone()));
        }
        if self.leases_renewed.insert(node.clone(), renews) != Some(renews) {
            self.plane.lease_changed(self.now, node, renews);
        }
        for deed in deeds {
            self.take_deed(node, deed);
        }
        Some(result)
    }

    fn note(&mut self, who: Actor, what: impl Into<String>, why: impl Into<String>) {
        if self.options.trace {
            let (at, step) = (self.now.monotonic, self.steps);
            self.trace.push(TraceEntry { at, step, who, what: what.into(), why: why.into() });
        }
    }
}
