//! An attach that hangs: DetachVolume of the attempt, then the next device name.
//!
//! Flow: `attach` comes here while EC2 shows its attachment `attaching`. The fencing ladder is for volumes that may be
//! mounted; this one cannot be, and only then it is given up. What follows is the way of a refused name: the next one is
//! recorded, AttachVolume is sent with it once the volume is free and no call to the instance is left. Must never use
//! Force, nor take the name again on that instance.

use super::detach;
use super::stuck::HUNG_AFTER;
use super::work::Work;
use crate::controller::actual::in_flight::{CallEnd, CallKind};
use crate::controller::actual::in_use::{self, InUse};
use crate::controller::actual::slot::{Origin, Slot};
use crate::controller::command::BudgetClass;
use crate::model::volume::AttachmentState;

/// Gives the attempt up if it hangs and the volume cannot be mounted. Whether it did, or waits for its turn to.
pub fn give_up(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let now = work.now().monotonic;
    if !hangs(slot, work) || !cannot_be_mounted(slot, work) {
        return false;
    }
    let Some(recorded) = slot.recorded.clone() else { return false };
    detach::send(slot, work, BudgetClass::Frees);
    if !work.has_call(Some(&recorded.instance)) {
        return true;
    }
    let text =
        format!("it hangs in attaching as {} on {}: the next device name follows", recorded.device, recorded.instance);
    work.ctx.notes.attach_failed(work.ctx.desired.wants(work.key), work.node, work.key, &text, now);
    work.ctx.syncer.instances.record(&recorded.instance).devices.hung(&recorded.device);
    slot.tried.push(recorded.device);
    slot.needs_name = true;
    // What a read shows from here on is the end of this attempt, not its success.
    slot.attach_sent = None;
    if let Some(transit) = &mut slot.in_transit {
        transit.given_up = Some(now);
    }
    true
}

/// Shown `attaching` for too long since its send, or since it was given up in vain. One that was given up and is shown
/// `attached` by consistent reads all the same is not what was recorded as the next step either.
fn hangs(slot: &Slot, work: &Work<'_>) -> bool {
    let now = work.now().monotonic;
    let Some(shown) = work.shown(slot) else { return false };
    match (&shown.state, &slot.in_transit) {
        (AttachmentState::Attaching, Some(transit)) => {
            now.saturating_since(transit.given_up.unwrap_or(transit.since)) >= HUNG_AFTER
        }
        (AttachmentState::Attached, _) if slot.needs_name && slot.attach_sent.is_none() => {
            let readings = &work.volume.readings;
            let taken_off = work.volume.calls.last().is_some_and(|last| {
                last.kind == CallKind::Detach && last.end == CallEnd::Done && slot.instance() == Some(&last.instance)
            });
            taken_off && readings.are_consistent() && now.saturating_since(readings.barrier()) >= HUNG_AFTER
        }
        _ => false,
    }
}

/// Whether nothing can have it mounted: made here while EC2 showed it free, never attached, never listed (rule 3); or found
/// unattached and unlisted, with its absence from volumesInUse being evidence and no call of an earlier leader left.
fn cannot_be_mounted(slot: &Slot, work: &Work<'_>) -> bool {
    if slot.cannot_be_mounted() && !work.is_listed() {
        return slot.attach_sent.is_some() || slot.needs_name;
    }
    let stated = slot.object.as_ref().is_none_or(|object| object.status.attached);
    if slot.origin != Origin::Found || stated || slot.ever_attached || slot.ever_listed || work.is_listed() {
        return false;
    }
    if work.inherited_wait(slot).is_some() {
        return false;
    }
    let Some(node) = work.node_of(slot) else { return false };
    let attachment = in_use::Attachment {
        name: work.name,
        instance: slot.instance(),
        node_uid: slot.recorded_uid(),
        unmounted_by_person: false,
    };
    let csi = work.record().and_then(|record| record.csi_ebs.as_ref());
    in_use::in_use(node, csi, attachment, &work.ctx.policy) == InUse::No
}
