//! Rule 6 from the delete on, and rule 7: DetachVolume, EC2's confirmation, the end of the VolumeAttachment.
//!
//! Flow: entered when the ladder was climbed and the VolumeAttachment is Terminating (or gone without its finalizer).
//! DetachVolume names instance and recorded device, never Force, and is not repeated blindly. Must never remove the
//! finalizer before EC2 confirmed the end and every call made under the object is answered or dead.

use super::error_status;
use super::stuck;
use super::work::Work;
use crate::controller::actual::in_flight::{CallEnd, CallKind};
use crate::controller::actual::nodes::Wish;
use crate::controller::actual::slot::{DetachSent, Slot, WriteKind};
use crate::controller::command::{BudgetClass, Call, Ec2Call, KubernetesCall};
use crate::controller::context::Operation;
use crate::controller::event::Role;
use crate::controller::outbox::Pending;
use crate::controller::policy::Rule;
use crate::controller::reason::BlockedReason;
use crate::controller::syncer::states::Machine;
use crate::model::attachment::VolumeAttachment;
use crate::model::volume::AttachmentState;

/// Advances a detach that was cleared (or ordered, where this process has not the role attach-detach).
pub fn finish(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    let marks = work.ctx.policy.holds(Rule::MarkOnRelist);
    if slot.forced && marks && work.node_of(slot).is_some() && !work.carries_mark() {
        // It left the list by (c) or (d) and the Node was registered again since: the mark died with the old one.
        work.wish(Wish::Marked);
    }
    if work.is_confirmed_free(slot) {
        return end(slot, work);
    }
    if work.volume.calls.any_unanswered() {
        return slot.block(BlockedReason::CallInFlight, now);
    }
    if work.volume.readings.current().is_none() {
        if !sendable_without_reading(slot, work) {
            work.poll();
            return slot.block(BlockedReason::VolumeNotRead, now);
        }
        return order(slot, work);
    }
    if work.machine(slot) == Machine::Terminated && work.shown(slot).is_some() {
        // EC2 takes it off by itself, and refuses calls to a terminated instance.
        work.poll_ending();
        return slot.block(BlockedReason::WaitingForEc2, now);
    }
    match work.shown(slot).map(|attachment| attachment.state.clone()) {
        Some(AttachmentState::Attached | AttachmentState::Attaching) if may_send(slot, work) => order(slot, work),
        Some(_) => {
            work.poll();
            slot.block(stuck::waiting_reason(slot, work), now);
        }
        None => {
            let after_done = slot.detach_sent == DetachSent::Sent;
            if after_done {
                work.poll()
            } else {
                work.poll_for_consistency()
            }
            if after_done {
                work.poll_for_consistency();
            }
            slot.block(BlockedReason::WaitingForEc2, now);
        }
    }
}

/// The usual way: EC2 confirmed the attachment earlier and nothing happened since; the read that shows it may be old.
fn sendable_without_reading(slot: &Slot, work: &Work<'_>) -> bool {
    slot.confirmed.is_some()
        && slot.detach_sent == DetachSent::Nothing
        && work.volume.calls.is_empty()
        && work.machine(slot) != Machine::Terminated
}

/// Not before the last DetachVolume is answered or dead, nor after Done before consistent reads show it attached again.
fn may_send(slot: &Slot, work: &Work<'_>) -> bool {
    let Some(instance) = slot.instance() else { return false };
    if work.has_call(Some(instance)) {
        return false;
    }
    match work.volume.calls.last() {
        Some(last) if last.kind == CallKind::Detach && last.instance == *instance && last.end == CallEnd::Done => {
            work.volume.readings.are_consistent()
        }
        _ => true,
    }
}

fn order(slot: &mut Slot, work: &mut Work<'_>) {
    let is_wanted = work.ctx.desired.wants(work.key).iter().any(|want| want.node != *work.node);
    let frees = is_wanted || slot.instance().is_some_and(|instance| work.ctx.full.is_awaited(instance));
    send(slot, work, if frees { BudgetClass::Frees } else { BudgetClass::Detach });
}

/// DetachVolume of the slot's instance and recorded device, when it is its turn. Who calls has cleared it.
pub fn send(slot: &mut Slot, work: &mut Work<'_>, class: BudgetClass) {
    let now = work.now();
    slot.block_by_refusal(CallKind::Detach, now.monotonic);
    if !work.backoff_over(slot, Operation::Detach) {
        return;
    }
    if let Err(reason) = work.guard() {
        if matches!(reason, BlockedReason::VolumeGuard(_)) {
            error_status::state_detach_error(slot, work, &reason.to_string());
        }
        return slot.block(reason, now.monotonic);
    }
    let (Some(recorded), Some(id)) = (slot.recorded.clone(), work.id.cloned()) else { return };
    let Some(permit) = work.ctx.permit(Role::Attacher) else {
        return slot.block(BlockedReason::NotLeading, now.monotonic);
    };
    let target = work.target();
    if !work.ctx.ask(class, target) {
        return slot.block(BlockedReason::Budget, now.monotonic);
    }
    let call =
        Ec2Call::DetachVolume { volume: id, instance: recorded.instance.clone(), device: recorded.device.clone() };
    let pending = Pending::Detach { volume: work.key.clone(), node: work.node.clone() };
    let command = work.ctx.outbox.push(class, permit, Call::Ec2(call), pending);
    work.volume.calls.open(command, CallKind::Detach, recorded.instance, now);
    // Until its answer says otherwise, it may have its effect: the volume is unusable here until attached anew.
    slot.detach_sent = DetachSent::Sent;
    slot.refusal = None;
    if work.ctx.policy.holds(Rule::UnusableAfterDetach) {
        slot.confirmed = None;
    }
    slot.block(BlockedReason::WaitingForEc2, now.monotonic);
}

/// EC2 confirmed the end: the finalizer goes, and with it the object, once every call under it is answered or dead.
pub fn end(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    // With its object gone there is no finalizer to keep: then it is the memory of this process that waits.
    let rule = if slot.object.is_some() { Rule::FinalizerUntilCallsDead } else { Rule::SameInstanceWaits };
    if (work.ctx.policy.holds(rule) && work.waits_for_call(slot)) || work.waits_for_inherited_calls(slot) {
        return;
    }
    slot.freed = true;
    let Some(object) = slot.object.clone() else { return close(slot, work) };
    if !object.has_attacher_finalizer() {
        // Somebody else's finalizer keeps it: nothing of ours is left to do, but its name is taken until it goes.
        slot.finish_asked = true;
        work.unwish();
        return slot.block(BlockedReason::Terminating, now);
    }
    slot.finish_asked = true;
    work.write(slot, Role::Attacher, WriteKind::Finish, without_finalizer(object));
}

/// The write that takes the attacher's finalizer away: of a Terminating object, the last one ends it.
pub fn without_finalizer(object: VolumeAttachment) -> KubernetesCall {
    let finalizer = object.driver.attacher_finalizer();
    let VolumeAttachment { name, uid, resource_version, mut finalizers, .. } = object;
    finalizers.retain(|present| *present != finalizer);
    KubernetesCall::SetAttachmentFinalizers { name, uid, resource_version, finalizers }
}

/// The slot's attachment is over.
pub fn close(slot: &mut Slot, work: &mut Work<'_>) {
    if let Some(object) = &slot.object {
        work.remember_end(object.uid.clone());
    }
    if let (Some(recorded), Some(id)) = (&slot.recorded, work.id) {
        let node = work.ctx.nodes.get(work.node).and_then(|record| record.object_of(&recorded.instance));
        let devices = &mut work.ctx.syncer.instances.record(&recorded.instance).devices;
        devices.release(id);
        if slot.forced {
            // It may still be mounted: its name is not used again on that instance while that is so.
            devices.block(id, &recorded.device, node);
        }
    }
    slot.forget_object();
    work.unwish();
    if work.is_listed() {
        work.volume.listed_only.insert(work.node.clone());
    }
    work.succeed();
    work.ctx.dirty_nodes.insert(work.node.clone());
    work.ctx.dirty_volumes.insert(work.key.clone());
}
