//! `attachError` and `detachError` of a VolumeAttachment: what is said there, once for each thing to say.
//!
//! Flow: whoever cannot go on states an error; `reconciler` writes it with the slot's next turn. Must never repeat what the
//! object says already, nor write about an attach once the object is Terminating.

use super::work::Work;
use crate::controller::actual::slot::{Slot, WriteKind};
use crate::controller::command::AttachmentStatusChange;
use crate::model::attachment::AttachmentError;

/// gRPC ResourceExhausted: the kubelet gives the pod back and the scheduler learns the true limit.
pub const RESOURCE_EXHAUSTED: i32 = 8;
/// gRPC InvalidArgument.
pub const INVALID_ARGUMENT: i32 = 3;
/// gRPC NotFound.
pub const NOT_FOUND: i32 = 5;
/// gRPC PermissionDenied.
pub const PERMISSION_DENIED: i32 = 7;
/// gRPC Internal.
pub const INTERNAL: i32 = 13;

/// An attachError that is due, unless the VolumeAttachment says it already.
pub fn state_error(slot: &mut Slot, work: &mut Work<'_>, text: &str, grpc: i32) {
    let error = AttachmentError { message: text.into(), code: Some(grpc), time: Some(work.now().wall) };
    let stated = slot.object.as_ref().and_then(|object| object.status.attach_error.as_ref());
    let said = stated.or(match &slot.error_to_write {
        Some(AttachmentStatusChange::AttachError(error)) => Some(error),
        _ => None,
    });
    if said.is_none_or(|known| known.message != error.message || known.code != error.code) {
        slot.error_to_write = Some(AttachmentStatusChange::AttachError(error));
        work.ctx.dirty_volumes.insert(work.key.clone());
    }
}

/// The same of a detachError, with the event that says it: nobody else would hear why the volume stays.
pub fn state_detach_error(slot: &mut Slot, work: &mut Work<'_>, text: &str) {
    let now = work.now();
    let Some(object) = slot.object.clone() else { return };
    work.ctx.notes.detach_waits(work.key, work.node, &object, text, false, now.monotonic);
    let error = AttachmentError { message: text.into(), code: None, time: Some(now.wall) };
    let said = object.status.detach_error.as_ref().or(match &slot.error_to_write {
        Some(AttachmentStatusChange::DetachError(error)) => Some(error),
        _ => None,
    });
    if said.is_none_or(|known| known.message != error.message) {
        slot.error_to_write = Some(AttachmentStatusChange::DetachError(error));
        work.ctx.dirty_volumes.insert(work.key.clone());
    }
}

/// Writes an attachError or a detachError that is due, while the VolumeAttachment is what it was about.
pub fn write_error(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let Some(change) = slot.error_to_write.clone() else { return false };
    let still_due = match &change {
        AttachmentStatusChange::DetachError(_) => slot.is_terminating(),
        _ => slot.is_live(),
    };
    if !still_due {
        slot.error_to_write = None;
        return false;
    }
    work.write_status(slot, WriteKind::StatusError, change);
    slot.write.is_some()
}
