//! The role attacher without attach-detach: a VolumeAttachment is kube-controller-manager's order, its deletionTimestamp the
//! order back.
//!
//! Flow: `reconciler` comes here where this process has not the role attach-detach. The fencing ladder was climbed by who
//! gave the order; one guard is added, for a VolumeAttachment that a person deleted, and one help: those of terminated
//! instances are collected. Must never make, heal or adopt a VolumeAttachment, nor hold against a node that is not Ready.

use std::time::Duration;

use super::attach;
use super::detach;
use super::error_status::{self, INVALID_ARGUMENT, PERMISSION_DENIED};
use super::rename;
use super::work::Work;
use crate::controller::actual::readings::Sight;
use crate::controller::actual::slot::{DetachSent, LeaveStep, Leaving, NewSource, Rung, Slot, WriteKind};
use crate::controller::command::{KubernetesCall, Recorded};
use crate::controller::desired::{AccessCheck, Want};
use crate::controller::event::Role;
use crate::controller::reason::BlockedReason;
use crate::controller::syncer::states::Machine;
use crate::model::attachment::AttachmentSource;
use crate::model::node::Node;
use crate::model::pod::InlineEbs;

/// A node that holds the volume is read again after this, if no watch tells of it before.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// What a VolumeAttachment is an order for.
pub fn source(slot: &Slot) -> Option<NewSource> {
    match &slot.object.as_ref()?.source {
        AttachmentSource::PersistentVolume(name) => Some(NewSource::PersistentVolume(name.clone())),
        AttachmentSource::Inline { handle, .. } => Some(NewSource::Inline(InlineEbs {
            volume_id: handle.text(),
            fs_type: None,
            partition: 0,
            read_only: false,
        })),
        AttachmentSource::Unreadable => None,
    }
}

/// Whether the order cannot be carried out (yet): what cannot be decided is said in its attachError, since nobody else
/// would hear of it.
pub fn refused(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    if !slot.is_live() || slot.confirmed.is_some() || slot.attach_sent.is_some() {
        return false;
    }
    let now = work.now().monotonic;
    let reason = match attach::identity(work) {
        Err(reason @ (BlockedReason::NotAnInstance | BlockedReason::IdentityMismatch)) => Err(reason),
        Err(_) => return false,
        Ok(instance) => match work.ctx.desired.access(work.key) {
            AccessCheck::Refused(why) => Err(BlockedReason::AccessMode(why.to_string())),
            // One that was not read yet is read before it is attached.
            _ => match work.guard() {
                Ok(()) | Err(BlockedReason::VolumeNotRead) => attach::zones_agree(work, &instance),
                refused => refused,
            },
        },
    };
    let Err(reason) = reason else {
        let Some(source) = source(slot) else { return false };
        let Err(reason) = attach::protected(slot, work, &source) else { return false };
        slot.block(reason, now);
        return true;
    };
    let text = reason.to_string();
    let code = if matches!(reason, BlockedReason::VolumeGuard(_)) { PERMISSION_DENIED } else { INVALID_ARGUMENT };
    slot.block(reason, now);
    error_status::state_error(slot, work, &text, code);
    true
}

/// Whether the order stands for a terminated instance. Then nothing is done under it any more; and once EC2 shows the
/// volume attached nowhere and no pod that does not end already binds it there, the VolumeAttachment goes: kube-controller-
/// manager's next look (60 s) marks the volume detached and attaches it elsewhere, where alone it would wait six minutes.
/// (`attached: false` would not do: it would forget the node's entry and leave the VolumeAttachment behind.)
pub fn collected(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    if !slot.is_live() || work.machine(slot) != Machine::Terminated {
        return false;
    }
    let now = work.now().monotonic;
    slot.block(BlockedReason::InstanceTerminated, now);
    let binds = |want: &Want| want.node == *work.node && !want.deleting;
    if work.ctx.desired.wants(work.key).iter().any(binds) {
        return true;
    }
    let readings = &work.volume.readings;
    let attached_nowhere = match readings.current() {
        Some(Sight::Seen(volume)) => volume.attachments.is_empty() && readings.shows_free(),
        Some(Sight::Missing) => work.is_surely_missing(),
        None => false,
    };
    if !attached_nowhere || !readings.are_consistent() || !work.volume.calls.is_empty() {
        work.poll_for_consistency();
        return true;
    }
    let Some(object) = slot.object.clone() else { return true };
    let (name, uid, resource_version) = (object.name, object.uid, object.resource_version);
    let call = KubernetesCall::DeleteAttachment { name, uid, resource_version };
    work.write(slot, Role::Attacher, WriteKind::Delete, call);
    true
}

/// Records the present Node in an order that was given for an earlier Node object of that name: with another device name,
/// if the volume may have been mounted under the recorded one.
pub fn record_again(slot: &mut Slot, work: &mut Work<'_>) {
    let (Some(object), Some(recorded)) = (slot.object.clone(), slot.recorded.clone()) else { return };
    let Ok(instance) = attach::identity(work) else { return };
    let Some(node_uid) = work.node_object().map(|node| node.uid.clone()) else { return };
    let recorded = Recorded { instance, node_uid, ..recorded };
    if !slot.fresh_name {
        return rename::rename_as(slot, work, recorded);
    }
    rename::record(slot, work, object, recorded);
}

/// Advances a VolumeAttachment that is being deleted.
pub fn detach(slot: &mut Slot, work: &mut Work<'_>) {
    let untouched = !slot.cleared && slot.detach_sent != DetachSent::Sent;
    if untouched && !work.is_confirmed_free(slot) && is_held(slot, work) {
        return;
    }
    // Ordered without evidence that it is unmounted: its device name is not used again while it may be mounted under it.
    slot.forced |= untouched && !is_evidently_unused(slot, work);
    slot.cleared = true;
    detach::finish(slot, work);
}

/// Whether the Node object that is recorded is Ready and does not report the volume in use.
fn is_evidently_unused(slot: &Slot, work: &Work<'_>) -> bool {
    work.node_of(slot).is_some_and(|node| {
        node.ready.is_true && Some(&node.uid) == slot.recorded_uid() && !node.volumes_in_use.contains(work.name)
    })
}

/// Whether the volume is in use on a Ready node that nobody fenced, by a live read: then it was a person who deleted the
/// VolumeAttachment.
fn is_held(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let now = work.now();
    let first = Leaving { since: now, found_at_start: false, step: checking(now.monotonic) };
    let LeaveStep::Checking { after, .. } = slot.leaving.get_or_insert(first).step else { return false };
    let in_use = |node: &Node| node.ready.is_true && !node.out_of_service && node.volumes_in_use.contains(work.name);
    let live = work.record().and_then(|record| record.live_result(after)).map(|(node, _)| {
        node.filter(|node| node.provider_id.as_ref().and_then(|id| id.instance()) == slot.instance())
            .is_some_and(in_use)
    });
    let by_watch = work.node_of(slot).is_some_and(in_use);
    if live == Some(false) && !by_watch {
        return false;
    }
    if by_watch || live == Some(true) {
        if let Some(leaving) = &mut slot.leaving {
            leaving.step = checking(now.monotonic);
        }
        slot.block(BlockedReason::InUse, now.monotonic);
        work.ctx.notes.held(work.key, work.node, slot.object.as_ref(), now.monotonic);
        work.ctx.wake_volume_in(work.key, READ_AGAIN, "held by the node");
        return true;
    }
    let node = work.node.clone();
    work.ctx.nodes.entry(node.clone()).or_default().ask_live(after, work.key);
    work.ctx.dirty_nodes.insert(node);
    slot.block(BlockedReason::Writing, now.monotonic);
    true
}

fn checking(after: crate::model::time::Monotonic) -> LeaveStep {
    LeaveStep::Checking { rung: Rung::Released, after, uid: None }
}
