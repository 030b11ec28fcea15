//! What every state machine of the core may look at and change besides its own volume.
//!
//! Flow: [`super::Controller`] owns one and lends it to the reconciler, the syncer and the reports. Owns the parts that
//! are shared between volumes; must never hold a volume.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::actual::full_instances::FullInstances;
use super::actual::nodes::{NodeRecord, Wish};
use super::actual::slot::WriteKind;
use super::backoff::Backoff;
use super::command::BudgetClass;
use super::desired::DesiredStateOfWorld;
use super::event::{Role, Term};
use super::leadership::{Leadership, Permit};
use super::notes::Notes;
use super::outbox::{Outbox, Target};
use super::placements::Placements;
use super::policy::{Policy, Rule, Settings};
use super::status::{Disagreement, ForcedReason};
use super::syncer::Syncer;
use super::timer::{TimerKey, Timers};
use crate::model::ids::{InstanceId, NodeName, UniqueVolumeName, VolumeKey};
use crate::model::time::{Monotonic, Now};

/// The shared parts.
#[derive(Debug)]
pub struct Context {
    /// The present, as of the plan under way.
    pub now: Now,
    /// What people set.
    pub settings: Settings,
    /// The rules in force.
    pub policy: Policy,
    /// Guards.
    pub leadership: Leadership,
    /// When leading began, on both clocks.
    pub leading_since: Option<Now>,
    /// What pods want.
    pub desired: DesiredStateOfWorld,
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, NodeRecord>,
    /// The node behind each instance, by providerID.
    pub node_of_instance: BTreeMap<InstanceId, NodeName>,
    /// Volumes of which a PersistentVolume is being written.
    pub persistent_volume_writes: BTreeSet<VolumeKey>,
    /// PersistentVolumes to be told where they can be used.
    pub placements: Placements,
    /// Reads of EC2.
    pub syncer: Syncer,
    /// Deadlines.
    pub timers: Timers,
    /// Instances that EC2 said are full, and who waits for room there.
    pub full: FullInstances,
    /// Delays after failures, per slot and operation.
    pub backoff: Backoff<BackoffKey, Operation>,
    /// Commands.
    pub outbox: Outbox,
    /// Events to be written.
    pub notes: Notes,
    /// Detaches by rungs (c) and (d) so far.
    pub forced_detaches: BTreeMap<ForcedReason, u64>,
    /// Reads of EC2 that disagreed with what was believed, so far.
    pub disagreements: BTreeMap<Disagreement, u64>,
    /// Whether the watches of nodes, CSINodes and VolumeAttachments have synced.
    pub actual_synced: bool,
    /// Volumes to be looked at.
    pub dirty_volumes: BTreeSet<VolumeKey>,
    /// Nodes whose list is to be looked at.
    pub dirty_nodes: BTreeSet<NodeName>,
}

/// What fails and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackoffKey {
    /// EC2 calls and writes of a slot.
    Slot(VolumeKey, NodeName),
    /// Patches and reads of a node.
    Node(NodeName),
    /// The finalizer of a PersistentVolume.
    PersistentVolume(VolumeKey),
}

/// What is tried again: a change of operation starts the delays anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// AttachVolume.
    Attach,
    /// DetachVolume.
    Detach,
    /// The way out: live reads that did not pass.
    Leave,
    /// A write to the API server.
    Write(WriteKind),
    /// A write to a PersistentVolume.
    PersistentVolume,
    /// A nodes/status patch.
    NodePatch,
    /// Live reads of a node.
    LiveRead,
}

impl Context {
    /// Whether every watch has synced.
    pub fn is_synced(&self) -> bool {
        self.actual_synced && self.desired.has_synced() || !self.policy.holds(Rule::ReadBeforeActing)
    }

    /// Whether this process has the role at all.
    pub fn has_role(&self, role: Role) -> bool {
        self.settings.roles.contains(&role)
    }

    /// Leave to mutate in `role` now.
    pub fn permit(&self, role: Role) -> Option<Permit> {
        if !self.has_role(role) {
            return None;
        }
        self.leadership.permit(role, self.now.monotonic, &self.policy)
    }

    /// The term for reads.
    pub fn term(&self) -> Term {
        self.permit(Role::Attacher).or_else(|| self.permit(Role::AttachDetach)).map_or(Term(0), |permit| permit.term)
    }

    /// The lease start that reads must follow: the later one of the roles held.
    pub fn lease_start(&self) -> Option<Monotonic> {
        let later = |latest: Option<Monotonic>, role: &Role| Some(latest.max(Some(self.leadership.since(*role)?)));
        self.settings.roles.iter().try_fold(None, later).flatten()
    }

    /// Whether it is the slot's turn in `class`; it waits for one otherwise.
    pub fn ask(&mut self, class: BudgetClass, target: Target) -> bool {
        self.outbox.ask(class, target, self.now.monotonic)
    }

    /// Looks at a volume again not later than `at`.
    pub fn wake_volume(&mut self, volume: &VolumeKey, at: Monotonic, why: &'static str) {
        self.timers.arm(TimerKey::Volume(volume.clone()), at, why);
    }

    /// Looks at a volume again after `delay`.
    pub fn wake_volume_in(&mut self, volume: &VolumeKey, delay: Duration, why: &'static str) {
        self.wake_volume(volume, self.now.monotonic + delay, why);
    }

    /// Wishes something of a node's list; the node is looked at if the wish is new.
    pub fn wish(&mut self, node: &NodeName, name: &UniqueVolumeName, wish: Wish) {
        let record = self.nodes.entry(node.clone()).or_default();
        if record.wishes.get(name) != Some(&wish) {
            record.wishes.insert(name.clone(), wish);
            self.dirty_nodes.insert(node.clone());
        }
    }

    /// Withdraws a wish.
    pub fn unwish(&mut self, node: &NodeName, name: &UniqueVolumeName) {
        if let Some(record) = self.nodes.get_mut(node) {
            record.wishes.remove(name);
            record.removed.remove(name);
        }
    }

    /// Forgets a node of which nothing is left: no object, no volume, no pod, nothing under way.
    pub fn forget_node(&mut self, name: &NodeName) {
        let Some(record) = self.nodes.get(name) else { return };
        if !record.is_forgettable() || self.desired.wanted_on(name).next().is_some() {
            return;
        }
        if let Some(instance) = record.gone.as_ref().and_then(|gone| gone.instance.as_ref())
            && self.syncer.states.is_terminated(instance)
        {
            // What is known of names on a machine that may come back is kept.
            self.syncer.instances.forget(instance);
            self.full.forget(instance);
        }
        self.backoff.clear(&BackoffKey::Node(name.clone()));
        self.nodes.remove(name);
    }

    /// Whether a PersistentVolume of the volume is being written.
    pub fn has_persistent_volume_write(&self, key: &VolumeKey) -> bool {
        self.persistent_volume_writes.contains(key)
    }

    /// When the next call of a sweep may be made. Before every watch has synced there is none: what is pending is not
    /// known yet, and comes first.
    pub fn next_sweep_due(&self) -> Option<Monotonic> {
        if !self.is_synced() || self.leading_since.is_none() {
            return None;
        }
        self.syncer.next_sweep_due(self.outbox.budget.share(BudgetClass::Sweep))
    }

    /// Wants a read of an EBS volume that begins not before `at`.
    pub fn want_read(&mut self, volume: &VolumeKey, at: Monotonic) {
        if let Some(id) = volume.aws_volume_id() {
            self.syncer.want_volume(&id, at.max(self.now.monotonic));
        }
    }
}
