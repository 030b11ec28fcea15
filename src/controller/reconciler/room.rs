//! Rule 15, slots of an instance: an attach for which there is no room waits, and what makes room goes first.
//!
//! Flow: `attach` asks [`is_there`] as the last thing before its turn; `outcome` tells how EC2 answered; `reconciler` calls
//! [`review`] after each look at a slot. Only EC2 says that an instance is full. The CSINode's count never refuses anything:
//! above it an attach waits while a detach on that node is open, no longer.

use std::collections::BTreeSet;

use super::error_status::{self, RESOURCE_EXHAUSTED};
use super::work::Work;
use crate::controller::actual::slot::{DetachSent, Slot};
use crate::controller::context::Context;
use crate::controller::reason::BlockedReason;
use crate::model::ids::{InstanceId, VolumeKey};
use crate::model::outcome::CallResult;

/// Whether AttachVolume may be sent, as far as slots go; says why not.
pub fn is_there(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId) -> bool {
    let now = work.now().monotonic;
    let full = work.ctx.full.is_full(instance, now);
    let leaving = work.ctx.full.leaving(instance).next().is_some();
    if leaving && (full.is_some() || is_above_count(work, instance)) {
        wait(slot, work, instance);
        slot.block(BlockedReason::WaitingForSlot, now);
    } else if let Some(full) = &full {
        wait(slot, work, instance);
        tell(slot, work, &full.said);
    } else {
        return true;
    }
    if let Some(full) = full {
        work.ctx.wake_volume(work.key, full.ask_at, "a full instance is asked again");
    }
    false
}

/// Whether the instance has as many volumes as its CSINode counts slots, without those that wait for one.
fn is_above_count(work: &mut Work<'_>, instance: &InstanceId) -> bool {
    let csi = work.record().and_then(|record| record.csi.as_ref());
    let Some(count) = csi.and_then(|(csi, _)| csi.ebs_allocatable) else { return false };
    let (own, full) = (work.id, &work.ctx.full);
    let devices = &work.ctx.syncer.instances.record(instance).devices;
    let held = devices.volumes().filter(|id| Some(*id) != own && !full.waits(instance, &VolumeKey::ebs(id)));
    held.collect::<BTreeSet<_>>().len() >= count as usize
}

/// It waits for a slot. What leaves the instance goes before all else from now on.
fn wait(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId) {
    slot.waits_on = Some(instance.clone());
    if work.ctx.full.wait(instance, work.key) {
        work.ctx.dirty_volumes.extend(work.ctx.full.leaving(instance).cloned());
    }
}

/// Says that the instance is full: the kubelet gives the pod back for it (LIMIT-06).
fn tell(slot: &mut Slot, work: &mut Work<'_>, said: &str) {
    let now = work.now().monotonic;
    slot.block(BlockedReason::Refused(said.to_owned()), now);
    work.ctx.notes.attach_failed(work.ctx.desired.wants(work.key), work.node, work.key, said, now);
    error_status::state_error(slot, work, said, RESOURCE_EXHAUSTED);
}

/// AttachVolume was sent.
pub fn asked(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId) {
    let now = work.now().monotonic;
    work.ctx.full.asked(instance, now);
    if let Some(instance) = slot.waits_on.take() {
        work.ctx.full.stop_waiting(&instance, work.key);
    }
}

/// EC2 refused AttachVolume: no room.
pub fn refused(slot: &mut Slot, work: &mut Work<'_>, said: &str) {
    let Some(instance) = slot.instance().cloned() else { return };
    let now = work.now().monotonic;
    work.ctx.full.refused(&instance, said, now);
    is_there(slot, work, &instance);
}

/// AttachVolume ended otherwise.
pub fn answered(slot: &Slot, work: &mut Work<'_>, result: &CallResult) {
    let Some(instance) = slot.instance() else { return };
    let may_ask = match result {
        CallResult::Done(_) => work.ctx.full.accepted(instance),
        CallResult::NotSent | CallResult::Throttled | CallResult::Refused(_) => work.ctx.full.undecided(instance),
        CallResult::Uncertain(_) => return,
    };
    work.ctx.dirty_volumes.extend(may_ask);
}

/// A read shows that an attachment to the instance is gone: who waits for its slot is looked at.
pub fn freed(instance: &InstanceId, ctx: &mut Context) {
    let may_ask = ctx.full.freed(instance, ctx.now.monotonic);
    ctx.dirty_volumes.extend(may_ask);
}

/// Keeps the account of the slot: whether it waits for room, and whether it makes some.
pub fn review(key: &VolumeKey, slot: &mut Slot, wanted: bool, ctx: &mut Context) {
    let stays = wanted && slot.is_live() && slot.confirmed.is_none();
    if let Some(instance) = slot.waits_on.take_if(|_| !stays) {
        ctx.full.stop_waiting(&instance, key);
    }
    let leaves = slot.instance().filter(|_| makes_room(slot));
    if leaves == slot.leaves.as_ref() {
        return;
    }
    let leaves = leaves.cloned();
    if let Some(instance) = slot.leaves.take() {
        let look_again = ctx.full.left(&instance, key);
        ctx.dirty_volumes.extend(look_again);
    }
    if let Some(instance) = &leaves {
        ctx.full.leaves(instance, key);
    }
    slot.leaves = leaves;
}

/// Whether the attachment is on its way out, and nothing keeps it but EC2 and the budgets.
fn makes_room(slot: &Slot) -> bool {
    let open =
        slot.cleared || slot.is_on_its_way_out() || (slot.is_terminating() && slot.detach_sent == DetachSent::Sent);
    let kept = slot.blocked.as_ref().is_some_and(|blocked| {
        matches!(
            blocked.reason,
            BlockedReason::StuckInEc2 { .. } | BlockedReason::Refused(_) | BlockedReason::VolumeGuard(_)
        )
    });
    open && !slot.freed && !kept
}
