//! One look at one slot: the volume, the rest of the core, and the small steps every operation is made of.
//!
//! Flow: `reconciler` makes one per slot that it advances. A slot under work is taken out of its volume, so that it can be
//! changed beside it.

use std::time::Duration;

use super::machine;
use crate::controller::actual::in_flight::{CallEnd, DEAD_AFTER};
use crate::controller::actual::in_use;
use crate::controller::actual::nodes::{NodeRecord, Wish};
use crate::controller::actual::readings::{Sight, attachment_on};
use crate::controller::actual::slot::{Slot, Write, WriteKind};
use crate::controller::actual::volume::Volume;
use crate::controller::backoff::Pace;
use crate::controller::command::{AttachmentStatusChange, BudgetClass, Call, KubernetesCall};
use crate::controller::context::{BackoffKey, Context, Operation};
use crate::controller::event::Role;
use crate::controller::outbox::{Pending, Target};
use crate::controller::policy::{Policy, Rule};
use crate::controller::reason::BlockedReason;
use crate::controller::syncer::states::Machine;
use crate::controller::volume_guard;
use crate::model::ids::{AwsVolumeId, InstanceId, NodeName, Uid, UniqueVolumeName, VolumeKey};
use crate::model::node::Node;
use crate::model::time::{Monotonic, Now};
use crate::model::volume::{AttachmentReading, AttachmentState, VolumeState};

/// Ends are remembered for this long: no watch event and no answer is that late.
pub const ENDS_REMEMBERED: Duration = Duration::from_secs(600);
/// A volume of a machine that is on its way out is read this often: EC2 takes it off any moment.
const ENDING_IS_READ_EVERY: Duration = Duration::from_secs(1);
/// A volume in use on a sound machine while it is wanted elsewhere is read this often: only a person takes it off there.
const UNEXPECTED_IS_READ_EVERY: Duration = Duration::from_secs(15);

/// Tags that speak against a volume are read again after this.
const TAGS_AGAIN: Duration = Duration::from_secs(60);

/// What a slot is advanced with.
pub struct Work<'a> {
    /// The volume.
    pub key: &'a VolumeKey,
    /// Its EBS id; `None` for other drivers.
    pub id: Option<&'a AwsVolumeId>,
    /// Its name on lists.
    pub name: &'a UniqueVolumeName,
    /// The node.
    pub node: &'a NodeName,
    /// The volume's record, without the slot under work.
    pub volume: &'a mut Volume,
    /// The rest.
    pub ctx: &'a mut Context,
}

impl Work<'_> {
    /// The VolumeAttachment with this UID is over: nothing late may bring it back.
    pub fn remember_end(&mut self, uid: Uid) {
        self.volume.ended.insert(uid, self.ctx.now.monotonic);
        self.ctx.wake_volume_in(self.key, ENDS_REMEMBERED, "ends forgotten");
    }

    /// The present.
    pub fn now(&self) -> Now {
        self.ctx.now
    }

    /// The node's record, if there is one.
    pub fn record(&self) -> Option<&NodeRecord> {
        self.ctx.nodes.get(self.node)
    }

    /// The Node object, if there is one.
    pub fn node_object(&self) -> Option<&Node> {
        self.record()?.object.as_ref()
    }

    /// The Node object, if it is of the slot's instance (other drivers: whatever it is).
    pub fn node_of(&self, slot: &Slot) -> Option<&Node> {
        match slot.instance() {
            Some(instance) => self.record()?.object_of(instance),
            None => self.node_object(),
        }
    }

    /// The entry of the slot's instance at the slot's device in the newest read that counts.
    pub fn shown(&self, slot: &Slot) -> Option<&AttachmentReading> {
        let recorded = slot.recorded.as_ref()?;
        let volume = self.volume.readings.volume()?;
        let attachment = attachment_on(volume, &recorded.instance)?;
        let same = attachment.device.as_ref().is_some_and(|device| device.slot() == recorded.device.slot());
        let any_device = !self.ctx.policy.holds(Rule::ForeignByDevice);
        (same || any_device).then_some(attachment).filter(|a| a.state != AttachmentState::Detached)
    }

    /// Whether EC2 confirms that the volume is not attached to the slot's instance at the slot's device (rule 6, *free*).
    ///
    /// Once confirmed it stays so until a read shows the attachment again: the finalizer may have to wait for its turn,
    /// while the volume is attached elsewhere already and no read will show it `available` any more.
    pub fn is_confirmed_free(&self, slot: &Slot) -> bool {
        let readings = &self.volume.readings;
        let Some(sight) = readings.current() else { return slot.freed };
        if self.shown(slot).is_some() {
            return false;
        }
        if slot.freed || !self.ctx.policy.holds(Rule::SpacedReadsWhenUnsure) {
            return true;
        }
        let consistent = match sight {
            // In-use without attachments contradicts itself (a cut answer looks like that).
            Sight::Seen(volume) => {
                !(volume.state == VolumeState::InUse && volume.attachments.is_empty()) && readings.are_spaced()
            }
            Sight::Missing => readings.are_spaced() && self.is_surely_missing(),
        };
        let after_done = self.volume.calls.last().is_some_and(|last| {
            last.end == CallEnd::Done
                && last.kind == crate::controller::actual::in_flight::CallKind::Detach
                && slot.instance() == Some(&last.instance)
        });
        let multi_attach = readings.last_seen().is_some_and(|volume| volume.multi_attach_enabled);
        consistent || (after_done && !multi_attach && matches!(sight, Sight::Seen(_)) && readings.shows_free())
    }

    /// Until when the slot's calls by an earlier leader may be under way.
    pub fn inherited_wait(&self, slot: &Slot) -> Option<Monotonic> {
        if !self.ctx.policy.holds(Rule::InheritedCallsWait) {
            return None;
        }
        slot.inherited_until.filter(|until| *until > self.now().monotonic)
    }

    /// Until when calls of an earlier leader may be under way for a volume that is found without a VolumeAttachment.
    pub fn inherited_by_process(&self) -> Option<Monotonic> {
        if !self.ctx.policy.holds(Rule::InheritedCallsWait) {
            return None;
        }
        self.ctx.lease_start().map(|start| start + DEAD_AFTER).filter(|until| *until > self.now().monotonic)
    }

    /// Whether a call for the slot's instance is under way and not dead: then the slot waits for its end.
    pub fn waits_for_call(&mut self, slot: &mut Slot) -> bool {
        if !self.has_call(slot.instance()) {
            return false;
        }
        if let Some(at) = self.volume.calls.next_death() {
            self.ctx.wake_volume(self.key, at, "call dead");
        }
        slot.block(BlockedReason::CallInFlight, self.now().monotonic);
        true
    }

    /// Whether the slot's calls by an earlier leader may be under way: then the slot waits until they are dead.
    pub fn waits_for_inherited_calls(&mut self, slot: &mut Slot) -> bool {
        let Some(until) = self.inherited_wait(slot) else { return false };
        self.ctx.wake_volume(self.key, until, "inherited calls dead");
        slot.block(BlockedReason::InheritedCalls, self.now().monotonic);
        true
    }

    /// Whether EC2 knows no such volume, while it shows others of this cluster (rule 17).
    pub fn is_surely_missing(&self) -> bool {
        let readings = &self.volume.readings;
        let alone = !self.ctx.policy.holds(Rule::AbsenceNeedsCompany);
        readings.missing_since().is_some() && (alone || readings.are_in_company())
    }

    /// What EC2 says of the slot's machine (other drivers: of the machine behind the node).
    pub fn machine(&self, slot: &Slot) -> Machine {
        let now = self.now().monotonic;
        let instance = machine::machine_behind(self.key, self.node, slot, self.ctx);
        instance.map_or(Machine::Unknown, |id| self.ctx.syncer.states.machine(&id, now, &self.ctx.policy))
    }

    /// Whether consistent reads show the volume without any attachment to the slot's instance, at whatever device.
    pub fn is_shown_free_of_instance(&self, slot: &Slot) -> bool {
        let Some(instance) = slot.instance() else { return false };
        let readings = &self.volume.readings;
        readings.are_consistent()
            && match readings.current() {
                Some(Sight::Seen(volume)) => attachment_on(volume, instance).is_none(),
                Some(Sight::Missing) => self.is_surely_missing(),
                None => false,
            }
    }

    /// Whether a call to the slot's instance is neither answered nor dead.
    pub fn has_call(&self, instance: Option<&InstanceId>) -> bool {
        instance.is_some_and(|instance| self.volume.calls.any_to(instance))
    }

    /// Whether the volume is marked unknown since the node's present boot.
    pub fn is_marked(&self) -> bool {
        let policy = &self.ctx.policy;
        self.node_object().is_some_and(|node| in_use::mark(node, self.name, policy) == in_use::Mark::PresentBoot)
    }

    /// Whether the mark of the present boot is there, whatever it counts for.
    pub fn carries_mark(&self) -> bool {
        let marked = |node| in_use::mark(node, self.name, &Policy::FULL) == in_use::Mark::PresentBoot;
        self.node_object().is_some_and(marked)
    }

    /// Whether a person's word that the volume is not mounted counts: written for the present boot, and the kubelet wrote
    /// its status since without showing it in use (rule 3).
    pub fn word_of_person_counts(&self, slot: &Slot, node: Option<&Node>) -> bool {
        let (Some(node), Some(word)) = (node, &slot.unmounted_word) else { return false };
        word.counts
            && node.boot_id.as_ref().is_some_and(|present| present.as_str() == word.boot.as_str())
            && node.ready.heartbeat.is_some_and(|heartbeat| heartbeat > word.seen)
            && !node.volumes_in_use.contains(self.name)
    }

    /// Wants a read as soon as it is of use, and again while waiting: fast where most operations finish, slower later.
    pub fn poll(&mut self) {
        let now = self.now().monotonic;
        let since = now.saturating_since(self.volume.readings.barrier());
        let began = self.volume.readings.began().unwrap_or(self.volume.readings.barrier());
        let interval = match since.as_secs() {
            0 => Duration::from_millis(1000),
            1..=5 => Duration::from_millis(500),
            6..=14 => Duration::from_secs(1),
            15..=59 => Duration::from_secs(2),
            60..=299 => Duration::from_secs(5),
            _ => Duration::from_secs(15),
        };
        self.ctx.want_read(self.key, began + interval);
    }

    /// Wants a read now and then, of what only a person would change.
    pub fn poll_slowly(&mut self) {
        let now = self.now().monotonic;
        let at = self.volume.readings.began().map_or(now, |began| began + UNEXPECTED_IS_READ_EVERY);
        self.ctx.want_read(self.key, at);
    }

    /// Wants a read soon: the volume is on a machine that is on its way out.
    pub fn poll_ending(&mut self) {
        let began = self.volume.readings.began().unwrap_or(self.now().monotonic);
        self.ctx.want_read(self.key, began + ENDING_IS_READ_EVERY);
    }

    /// Wants the reads that prove or disprove a silent detach.
    pub fn poll_silent(&mut self) {
        let at = self.volume.readings.next_useful_for_silent_detach();
        self.ctx.want_read(self.key, at);
    }

    /// Wants the next read that brings consistent spaced reads nearer.
    pub fn poll_for_consistency(&mut self) {
        let at = self.volume.readings.next_useful();
        self.ctx.want_read(self.key, at);
    }

    /// Whether the volume guard allows AttachVolume and DetachVolume; if not, the tags are looked at again after a while.
    pub fn guard(&mut self) -> Result<(), BlockedReason> {
        let allowed = volume_guard::check(self.volume.readings.last_seen(), &self.ctx.settings.volume_guard);
        match &allowed {
            Ok(()) => {}
            Err(BlockedReason::VolumeNotRead) => self.poll(),
            Err(_) => {
                let began = self.volume.readings.began().unwrap_or(self.volume.readings.barrier());
                self.ctx.want_read(self.key, began + TAGS_AGAIN);
            }
        }
        allowed
    }

    /// Whether the slot may try `operation` now; looks again when it may.
    pub fn backoff_over(&mut self, slot: &mut Slot, operation: Operation) -> bool {
        let key = self.backoff_key();
        let Some(at) = self.ctx.backoff.ready_at(&key, &operation) else { return true };
        if at <= self.now().monotonic {
            return true;
        }
        if !matches!(slot.blocked.as_ref().map(|b| &b.reason), Some(BlockedReason::Refused(_))) {
            slot.block(BlockedReason::Backoff, self.ctx.now.monotonic);
        }
        self.ctx.wake_volume(self.key, at, "backoff over");
        false
    }

    /// Notes a failure; the slot is looked at again when the delay is over.
    pub fn fail(&mut self, operation: Operation, pace: Pace) {
        let key = self.backoff_key();
        let at = self.ctx.backoff.failed(&key, operation, pace, self.ctx.now.monotonic);
        self.ctx.wake_volume(self.key, at, "backoff over");
    }

    /// Forgets failures.
    pub fn succeed(&mut self) {
        let key = self.backoff_key();
        self.ctx.backoff.clear(&key);
    }

    fn backoff_key(&self) -> BackoffKey {
        BackoffKey::Slot(self.key.clone(), self.node.clone())
    }

    /// The target of the slot's turns.
    pub fn target(&self) -> Target {
        Target::Slot(self.key.clone(), self.node.clone())
    }

    /// Sends a write on behalf of the slot, when it is its turn. The role is the one whose job it is.
    pub fn write(&mut self, slot: &mut Slot, role: Role, kind: WriteKind, call: KubernetesCall) {
        if !self.backoff_over(slot, Operation::Write(kind)) {
            return;
        }
        let Some(permit) = self.ctx.permit(role) else {
            return slot.block(BlockedReason::NotLeading, self.ctx.now.monotonic);
        };
        let target = self.target();
        if !self.ctx.ask(BudgetClass::Write, target) {
            return slot.block(BlockedReason::Writing, self.ctx.now.monotonic);
        }
        let pending = Pending::Write { volume: self.key.clone(), node: self.node.clone(), kind };
        let id = self.ctx.outbox.push(BudgetClass::Write, permit, Call::Kubernetes(call), pending);
        slot.write = Some(Write { id, kind });
        slot.block(BlockedReason::Writing, self.ctx.now.monotonic);
    }

    /// Writes a status of the VolumeAttachment, if there is one.
    pub fn write_status(&mut self, slot: &mut Slot, kind: WriteKind, change: AttachmentStatusChange) {
        let Some(object) = &slot.object else { return };
        let call = KubernetesCall::PatchAttachmentStatus { name: object.name.clone(), uid: object.uid.clone(), change };
        self.write(slot, Role::Attacher, kind, call);
    }

    /// Wishes something of the node's list.
    pub fn wish(&mut self, wish: Wish) {
        self.ctx.wish(self.node, self.name, wish);
    }

    /// Withdraws the wish.
    pub fn unwish(&mut self) {
        self.ctx.unwish(self.node, self.name);
    }

    /// Whether the node's list holds the volume, as far as the newest Node object tells.
    pub fn is_listed(&self) -> bool {
        self.node_object().is_some_and(|node| node.volumes_attached.contains_key(self.name))
    }
}
