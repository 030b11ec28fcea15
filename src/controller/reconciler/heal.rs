//! Rules 8 and 9: a VolumeAttachment that a person deleted (or stripped) under a mounted volume comes back.
//!
//! Flow: a Terminating one that is wanted and that EC2 confirms attached loses its finalizer without a detach and is made
//! again at once, with the old recorded values; one that vanished is made again when consistent reads show it attached.
//! Must never heal while a call may still land, nor after a DetachVolume that may have its effect.

use super::attach;
use super::detach;
use super::work::Work;
use crate::controller::actual::slot::{Confirmation, DetachSent, Heal, LeaveStep, Origin, Slot, WriteKind};
use crate::controller::event::Role;
use crate::controller::policy::Rule;
use crate::controller::reason::BlockedReason;
use crate::model::attachment::{AttachmentSource, NewAttachmentSource};
use crate::model::volume::AttachmentState;

/// Advances a Terminating VolumeAttachment that is wanted where it is.
pub fn terminating(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    let unusable = slot.detach_sent == DetachSent::Sent && work.ctx.policy.holds(Rule::UnusableAfterDetach);
    if unusable || !work.ctx.policy.holds(Rule::Heal) {
        return detach::finish(slot, work);
    }
    if work.is_confirmed_free(slot) {
        return detach::end(slot, work);
    }
    if work.volume.readings.current().is_none() {
        work.ctx.want_read(work.key, now);
        return slot.block(BlockedReason::VolumeNotRead, now);
    }
    let attached = work.shown(slot).is_some_and(|attachment| attachment.state == AttachmentState::Attached);
    if !attached {
        work.poll_for_consistency();
        return slot.block(BlockedReason::Terminating, now);
    }
    if work.waits_for_call(slot) || work.waits_for_inherited_calls(slot) {
        return;
    }
    if !work.volume.readings.are_consistent() {
        work.poll_for_consistency();
        return slot.block(BlockedReason::Terminating, now);
    }
    relist_then_remove(slot, work);
}

/// Listed again first, if rule 6 had unlisted it: a kubelet mounts nothing from a Terminating VolumeAttachment. Then the
/// finalizer goes without a detach.
fn relist_then_remove(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    if work.node_of(slot).is_none() {
        return slot.block(BlockedReason::NodeGone, now);
    }
    if let (None, Some(attachment), Some(recorded)) = (&slot.confirmed, work.shown(slot), &slot.recorded) {
        // A refused DetachVolume had left it unsure; consistent reads show it attached.
        let device = attachment.device.clone().unwrap_or_else(|| recorded.device.clone());
        slot.confirmed = Some(Confirmation { device, attach_time: attachment.attach_time, at: now });
    }
    // The list is what tells the next leader that the attachment is ours, if this one dies between the two halves (rule 9).
    if slot.unlisted || !work.is_listed() {
        let acknowledged = work.record().is_some_and(|record| {
            record.acknowledged.as_ref().is_some_and(|known| known.list.contains_key(work.name)) && work.is_listed()
        });
        if !acknowledged {
            slot.heal = Some(Heal::Relisting);
            attach::list(slot, work, now);
            return slot.block(BlockedReason::Terminating, now);
        }
        slot.unlisted = false;
    }
    let Some(object) = slot.object.clone() else { return };
    work.write(slot, Role::Attacher, WriteKind::HealRemove, detach::without_finalizer(object));
    if slot.write.is_some_and(|write| write.kind == WriteKind::HealRemove) {
        slot.heal = Some(Heal::Removing);
    }
}

/// The object went without being finished by this process (a person, or the first half of a heal): it is made again with
/// the old recorded values if EC2 shows the attachment, wanted or not; what is not wanted is then led out.
pub fn remake(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    let Some(recorded) = slot.recorded.clone() else {
        slot.forget_object();
        return;
    };
    if work.ctx.policy.holds(Rule::SameInstanceWaits) && work.waits_for_call(slot) {
        return;
    }
    if slot.cleared || slot.detach_sent == DetachSent::Sent {
        return detach::finish(slot, work);
    }
    let healing = slot.heal == Some(Heal::Making) && slot.confirmed.is_some();
    if !healing {
        if work.waits_for_inherited_calls(slot) {
            return;
        }
        if work.is_confirmed_free(slot) {
            return detach::end(slot, work);
        }
        if work.shown(slot).is_none() || !work.volume.readings.are_consistent() {
            work.poll_for_consistency();
            return slot.block(BlockedReason::VolumeNotRead, now);
        }
    }
    let Some(source) = source_of(slot, work) else {
        return slot.block(BlockedReason::VolumeNotRead, now);
    };
    attach::create(slot, work, &source, recorded, Origin::MadeOver);
}

/// The source a VolumeAttachment is made again from: what it had, else what a PersistentVolume or a pod says.
pub fn source_of(slot: &Slot, work: &Work<'_>) -> Option<NewAttachmentSource> {
    if let Some(source) = &slot.source {
        return Some(source.clone());
    }
    if let Some(object) = &slot.object
        && let AttachmentSource::PersistentVolume(name) = &object.source
    {
        return Some(NewAttachmentSource::PersistentVolume(name.clone()));
    }
    let wanted = work.ctx.desired.wants(work.key).first().map(|want| want.source.clone());
    wanted.or_else(|| {
        let volume = work.ctx.desired.persistent_volumes_of(work.key).next()?;
        Some(NewAttachmentSource::PersistentVolume(volume.name.clone()))
    })
}

/// The finalizer went without a detach: the object is to be made again, and nothing of the way out counts any more.
pub fn removed(slot: &mut Slot) {
    slot.vanished = true;
    slot.heal = Some(Heal::Making);
    slot.cleared = false;
    slot.leaving = None;
}

/// A heal is over once the object stands again.
pub fn made(slot: &mut Slot) {
    slot.heal = None;
    slot.vanished = false;
    slot.cleared = false;
    slot.leaving = None;
    slot.detach_sent = DetachSent::Nothing;
    slot.finish_asked = false;
}

/// Takes the way out back: the volume is wanted again and nothing irreversible was done.
pub fn stay(slot: &mut Slot, work: &mut Work<'_>) {
    let deleting = slot.write.is_some_and(|write| write.kind == WriteKind::Delete);
    if deleting || slot.leaving.is_none() {
        return;
    }
    let step = slot.leaving.as_ref().map(|leaving| leaving.step.clone());
    slot.leaving = None;
    if !matches!(step, Some(LeaveStep::Wish) | None) {
        work.unwish();
        work.ctx.dirty_nodes.insert(work.node.clone());
    }
}
