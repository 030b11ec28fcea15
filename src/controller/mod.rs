//! The core: a pure state machine between events in and commands out.
//!
//! Flow: the driver (daemon or simulator) calls `ingest(event)`* → `plan(now)` → `poll_command()`* → `next_wake()`, and
//! nothing else. Owns everything attachd believes and every decision it makes. Must never do IO, read a clock, run a
//! task, take a lock, draw a random number or iterate an unordered map.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod actual;
mod answers;
pub mod backoff;
pub mod budget;
pub mod command;
mod context;
pub mod desired;
pub mod devices;
pub mod event;
pub mod explain;
mod intake;
pub mod invariants;
pub mod leadership;
pub mod notes;
mod outbox;
mod placements;
pub mod policy;
pub mod queue;
pub mod reason;
mod reconciler;
pub mod report;
pub mod status;
mod store;
mod survey;
mod syncer;
mod timer;
mod unresolved;
mod volume_guard;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::{NodeName, VolumeKey};
use crate::model::time::{Monotonic, Now};
use actual::full_instances::FullInstances;
use actual::volume::Volume;
use backoff::Backoff;
use budget::Budget;
use command::{BudgetClass, Call, Command, KubernetesCall};
use context::Context;
use desired::DesiredStateOfWorld;
use event::{Event, EventKind, GuardChange, Role};
use leadership::Leadership;
use notes::Notes;
use outbox::{Outbox, Pending, Target};
use placements::Placements;
use policy::{Policy, Settings};
use report::{node_status, persistent_volume};
use status::Status;
use store::Store;
use syncer::Syncer;
use syncer::batch::Read;
use syncer::sweep::Place;
use timer::{TimerKey, Timers};

/// The core. One owner, no locks; the same type runs in the daemon and in the simulator.
#[derive(Debug)]
pub struct Controller {
    store: Store,
    /// Whether every watch had synced in the last plan.
    was_synced: bool,
}

/// When the core wants to be planned again, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Not later than this.
    pub at: Monotonic,
    /// What is due then, for people reading a trace.
    pub why: &'static str,
}

impl Controller {
    /// A core that knows nothing yet.
    pub fn new(settings: Settings, policy: Policy) -> Self {
        let ctx = Context {
            now: Now::default(),
            desired: DesiredStateOfWorld::new(policy.clone()),
            outbox: Outbox::new(Budget::new(&settings)),
            syncer: Syncer::new(settings.sweep_period),
            settings,
            policy,
            leadership: Leadership::default(),
            leading_since: None,
            nodes: BTreeMap::new(),
            node_of_instance: BTreeMap::new(),
            persistent_volume_writes: BTreeSet::new(),
            placements: Placements::default(),
            timers: Timers::default(),
            full: FullInstances::default(),
            backoff: Backoff::new(),
            notes: Notes::default(),
            forced_detaches: BTreeMap::new(),
            disagreements: BTreeMap::new(),
            actual_synced: false,
            dirty_volumes: BTreeSet::new(),
            dirty_nodes: BTreeSet::new(),
        };
        Self { store: Store::new(ctx), was_synced: false }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.store.ctx.settings
    }

    /// Its figures, for metrics. Changes nothing.
    pub fn status(&self, now: Now) -> Status {
        survey::survey(&self.store, now)
    }

    /// Takes in one event. Decides nothing: all events at hand are taken in first.
    pub fn ingest(&mut self, event: Event) {
        self.store.ctx.now = event.at;
        match event.kind {
            EventKind::Watch(event) => {
                self.store.ctx.desired.ingest(&event);
                intake::watch(&mut self.store, event);
            }
            EventKind::Outcome(outcome) => answers::absorb(&mut self.store, outcome),
            EventKind::Guard(change) => self.guard(change),
        }
    }

    fn guard(&mut self, change: GuardChange) {
        let ctx = &mut self.store.ctx;
        let before = ctx.lease_start();
        let too_short = before.is_some() && ctx.settings.roles.iter().any(|role| ctx.permit(*role).is_none());
        ctx.leadership.change(change);
        let lease_start = ctx.lease_start();
        if lease_start.is_none() {
            ctx.leading_since = None;
        } else if lease_start != before {
            ctx.leading_since = Some(ctx.now);
            intake::leading_began(&mut self.store);
        } else if too_short {
            // What was refused because the guard ended too soon is looked at again.
            intake::everything_known(&mut self.store);
        }
    }

    /// Decides what follows from everything taken in so far.
    pub fn plan(&mut self, now: Now) {
        self.store.ctx.now = now;
        self.store.ctx.outbox.budget.advance(now.monotonic);
        while let Some(key) = self.store.ctx.timers.pop_due(now.monotonic) {
            match key {
                TimerKey::Volume(volume) => self.store.ctx.dirty_volumes.insert(volume),
                TimerKey::Node(node) => self.store.ctx.dirty_nodes.insert(node),
            };
        }
        self.take_desired();
        self.take_sync();
        if !self.store.unresolved.is_empty() && self.store.ctx.is_synced() && self.store.ctx.leading_since.is_some() {
            unresolved::look(&mut self.store.ctx, &mut self.store.unresolved);
        }
        self.drive_dirty();
        while let Some(target) = self.next_turn() {
            self.take_turn(target);
            self.drive_dirty();
        }
    }

    /// The last watch has synced, whichever it was: everything is looked at.
    fn take_sync(&mut self) {
        let synced = self.store.ctx.is_synced();
        if synced && !self.was_synced {
            intake::resolve_again(&mut self.store);
            intake::everything_known(&mut self.store);
        }
        self.was_synced = synced;
    }

    fn take_desired(&mut self) {
        let dirty = self.store.ctx.desired.take_dirty();
        if !dirty.is_empty() && !self.store.unresolved.is_empty() && self.store.ctx.is_synced() {
            intake::resolve_again(&mut self.store);
        }
        let ctx = &mut self.store.ctx;
        ctx.dirty_volumes.extend(dirty);
        for node in ctx.desired.take_dirty_nodes() {
            if let Some(record) = ctx.nodes.get(&node) {
                ctx.dirty_volumes.extend(record.volumes.iter().cloned());
            }
        }
        for problem in ctx.desired.take_problems() {
            if let desired::ProblemChange::Appeared(why) = &problem.change
                && why.needs_a_person()
            {
                ctx.notes.unresolved(&problem.pod, &problem.uid, &why.to_string(), ctx.now.monotonic);
            }
        }
    }

    fn drive_dirty(&mut self) {
        loop {
            if let Some(key) = self.store.ctx.dirty_volumes.pop_first() {
                let volume = self.store.volumes.entry(key.clone()).or_default();
                reconciler::reconcile(&key, volume, &mut self.store.ctx);
                place_in_sweep(&key, volume, &mut self.store.ctx);
                if volume.is_forgettable() {
                    self.store.volumes.remove(&key);
                }
            } else if let Some(node) = self.store.ctx.dirty_nodes.pop_first() {
                node_status::report(&node, &mut self.store.ctx);
                self.store.ctx.forget_node(&node);
            } else {
                return;
            }
        }
    }

    /// Grants the next turn for which there is a token, after asking for those of reads and events that are due.
    fn next_turn(&mut self) -> Option<Target> {
        let ctx = &mut self.store.ctx;
        let now = ctx.now.monotonic;
        if ctx.leading_since.is_some() {
            if ctx.syncer.next_due(ctx.settings.instance_period).is_some_and(|due| due <= now) {
                ctx.outbox.ask(BudgetClass::Poll, Target::Describe, now);
            }
            if ctx.next_sweep_due().is_some_and(|due| due <= now) {
                ctx.outbox.ask(BudgetClass::Sweep, Target::Sweep, now);
            }
            persistent_volume::ask(ctx);
            if ctx.notes.is_waiting() {
                ctx.outbox.ask(BudgetClass::Event, Target::Event, now);
            }
        }
        ctx.outbox.grant()
    }

    fn take_turn(&mut self, target: Target) {
        let ctx = &mut self.store.ctx;
        match target {
            Target::Slot(volume, _) | Target::PersistentVolume(volume, _) => {
                ctx.dirty_volumes.insert(volume);
            }
            Target::Node(node) | Target::LiveReads(node) => {
                ctx.dirty_nodes.insert(node);
            }
            Target::Describe => {
                ctx.outbox.use_turn();
                self.describe();
            }
            Target::Sweep => {
                ctx.outbox.use_turn();
                self.sweep();
            }
            Target::Placement => {
                ctx.outbox.use_turn();
                persistent_volume::place(ctx, &self.store.volumes);
            }
            Target::Event => {
                ctx.outbox.use_turn();
                if let (Some(permit), Some(note)) =
                    (ctx.permit(Role::AttachDetach).or(ctx.permit(Role::Attacher)), ctx.notes.pop())
                {
                    let call = Call::Kubernetes(KubernetesCall::CreateEvent(note));
                    ctx.outbox.push(BudgetClass::Event, permit, call, Pending::Event);
                }
            }
        }
    }

    fn describe(&mut self) {
        let ctx = &mut self.store.ctx;
        let read = ctx.syncer.next_poll(ctx.now.monotonic, ctx.settings.instance_period, &ctx.node_of_instance);
        self.send_read(BudgetClass::Poll, read);
    }

    fn sweep(&mut self) {
        let ctx = &mut self.store.ctx;
        let read = ctx.syncer.next_sweep(ctx.outbox.budget.share(BudgetClass::Sweep), ctx.now.monotonic);
        self.send_read(BudgetClass::Sweep, read);
    }

    fn send_read(&mut self, class: BudgetClass, read: Option<Read>) {
        let ctx = &mut self.store.ctx;
        if let Some(read) = read {
            ctx.outbox.push_read(class, ctx.term(), Call::Ec2(read.call()), Pending::Read(read));
        }
    }

    /// How long ago each attached volume was read, by node. Changes nothing.
    pub fn freshness(&self, now: Now) -> BTreeMap<NodeName, explain::Freshness> {
        explain::freshness(&self.store, now)
    }

    /// Everything that waits, and why.
    pub fn waiting(&self) -> Vec<explain::Waiting> {
        explain::waiting(&self.store)
    }

    /// The invariants of the core's own state that do not hold: none, or there is a bug.
    pub fn broken_invariants(&self) -> Vec<invariants::Broken> {
        invariants::check(&self.store)
    }

    /// The next command decided; the driver starts it at once.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.store.ctx.outbox.pop()
    }

    /// When `plan` is due again if nothing happens before.
    pub fn next_wake(&self) -> Option<Wake> {
        let ctx = &self.store.ctx;
        ctx.leading_since?;
        let timer = ctx.timers.next().map(|(at, why)| Wake { at, why });
        let turn = ctx.outbox.next_turn().map(|at| Wake { at, why: "budget" });
        // One that is due already has asked for its turn: the budget says when that comes.
        let due = ctx.syncer.next_due(ctx.settings.instance_period);
        let read = due.filter(|at| *at > ctx.now.monotonic).map(|at| Wake { at, why: "describe" });
        let sweep = ctx.next_sweep_due().filter(|at| *at > ctx.now.monotonic).map(|at| Wake { at, why: "sweep" });
        let place =
            ctx.placements.next_due().filter(|at| *at > ctx.now.monotonic).map(|at| Wake { at, why: "placement" });
        let look = unresolved::next_look(&self.store.unresolved).filter(|at| *at > ctx.now.monotonic);
        let look = look.map(|at| Wake { at, why: "unresolved VolumeAttachment" });
        [timer, turn, read, sweep, place, look].into_iter().flatten().min_by_key(|wake| wake.at)
    }
}

/// Tells the sweep where the volume belongs, after everything that could change it.
fn place_in_sweep(key: &VolumeKey, volume: &Volume, ctx: &mut Context) {
    let Some(id) = key.aws_volume_id() else { return };
    let place = match volume.slots.keys().next() {
        Some(node) => Some(Place::On(node.clone())),
        None => ctx.desired.persistent_volumes_of(key).next().map(|_| Place::Loose),
    };
    ctx.syncer.place(&id, place, ctx.now.monotonic);
}
