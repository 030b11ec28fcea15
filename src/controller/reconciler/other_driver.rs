//! Other CSI drivers: attachd makes, watches and deletes the VolumeAttachment, and the driver's own attacher does the rest.
//!
//! "EC2 confirms" reads "its VolumeAttachment's status says" here; the ladder, the list and the live reads are the same.
//! Created with name and spec only: no finalizer, annotation, PersistentVolume finalizer or status, ever.

use std::time::Duration;

use super::attach;
use super::leave;
use super::work::Work;
use crate::controller::actual::nodes::Wish;
use crate::controller::actual::slot::{Origin, Slot, WriteKind};
use crate::controller::actual::volume::Volume;
use crate::controller::command::{KubernetesCall, NewAttachment};
use crate::controller::context::Context;
use crate::controller::event::Role;
use crate::controller::reason::BlockedReason;
use crate::model::attachment::NewAttachmentSource;
use crate::model::ids::{AttachmentKey, Uid};

/// The attacher has this long before its attachment counts as uncertain and is reported.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// Said again after this.
const SAY_AGAIN: Duration = Duration::from_secs(300);
/// As for EBS: listed at the latest this long after the status said attached.
const LIST_AFTER: Duration = Duration::from_secs(12);

/// Advances an attachment that is wanted on the node and whose turn it is.
pub fn attach(slot: &mut Slot, work: &mut Work<'_>, source: &NewAttachmentSource) {
    let now = work.now().monotonic;
    let Some(object) = slot.object.clone() else {
        if work.node_object().is_none() {
            return slot.block(BlockedReason::NodeGone, now);
        }
        let key = AttachmentKey { volume: work.key.clone(), node: work.node.clone() };
        let new = NewAttachment { key, source: source.clone(), recorded: None };
        slot.origin = Origin::Found;
        slot.node_uid = work.node_object().map(|node| node.uid.clone());
        return work.write(slot, Role::AttachDetach, WriteKind::Create, KubernetesCall::CreateAttachment(new));
    };
    if object.status.attached {
        let since = slot.confirmed_at.get_or_insert(now);
        let not_before = *since + LIST_AFTER;
        attach::keep_listed(slot, work, not_before);
        return;
    }
    slot.confirmed_at = None;
    let since = slot.blocked.as_ref().filter(|b| b.reason == BlockedReason::OtherAttacher).map_or(now, |b| b.since);
    slot.block(BlockedReason::OtherAttacher, now);
    if now >= since + ANSWER_WITHIN {
        let error = object.status.attach_error.as_ref().map(|error| error.message.to_string());
        let text = error.unwrap_or_else(|| "the driver's attacher has not answered for 2 minutes".to_owned());
        work.ctx.notes.attach_failed(work.ctx.desired.wants(work.key), work.node, work.key, &text, now);
    }
    let due = since + ANSWER_WITHIN;
    let again = if due > now { due } else { now + SAY_AGAIN };
    work.ctx.wake_volume(work.key, again, "attacher has not answered");
}

/// Advances the way out: by the ladder to the delete; the attacher ends it.
pub fn detach(slot: &mut Slot, work: &mut Work<'_>) {
    if slot.is_terminating() {
        unlist(work);
        slot.block(BlockedReason::OtherAttacher, work.ctx.now.monotonic);
        return;
    }
    leave::leave(slot, work);
}

/// The Node objects under which VolumeAttachments were first seen, which those do not record; one that never matches where
/// there was none.
pub fn record_nodes(volume: &mut Volume, ctx: &Context) {
    for (node, slot) in volume.slots.iter_mut().filter(|(_, slot)| slot.object.is_some() && slot.node_uid.is_none()) {
        let present = ctx.nodes.get(node).and_then(|record| record.object.as_ref());
        slot.node_uid = Some(present.map_or_else(|| Uid::new(""), |node| node.uid.clone()));
    }
}

/// A node lists the volume though no VolumeAttachment is left of it: a person took it, or it ended while no leader looked.
pub fn listed_only(slot: &mut Slot, work: &mut Work<'_>) {
    if !work.is_listed() {
        work.unwish();
        work.volume.listed_only.remove(work.node);
        work.ctx.dirty_volumes.insert(work.key.clone());
        return;
    }
    if !unlist(work) {
        slot.block(BlockedReason::InUse, work.ctx.now.monotonic);
    }
}

/// Wishes a volume off the list whose VolumeAttachment is gone or going, unless the node reports it in use (rule 4).
fn unlist(work: &mut Work<'_>) -> bool {
    let in_use = work.node_object().is_some_and(|node| node.volumes_in_use.contains(work.name));
    if work.is_listed() && !in_use {
        work.wish(Wish::Dropped);
    }
    !in_use
}
