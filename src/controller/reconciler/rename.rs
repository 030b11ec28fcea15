//! Another device name for an attachment whose recorded one cannot be used: taken, hung, or the volume may be mounted
//! under it from an attachment that is gone.
//!
//! Flow: `attach` comes here before it sends AttachVolume, `ordered` when it records another Node. Must never send
//! AttachVolume: that follows when the name is acknowledged (rule 5).

use super::attach;
use super::work::Work;
use crate::controller::actual::slot::{Slot, WriteKind};
use crate::controller::command::{KubernetesCall, Recorded};
use crate::controller::event::Role;

/// Records the next device name; only then AttachVolume is sent with it.
pub(super) fn rename(slot: &mut Slot, work: &mut Work<'_>) {
    if let Some(recorded) = slot.recorded.clone() {
        rename_as(slot, work, recorded);
    }
}

/// Records `recorded` with the next device name in the place of its own, which the volume may be mounted under.
pub(super) fn rename_as(slot: &mut Slot, work: &mut Work<'_>, recorded: Recorded) {
    let Some(object) = slot.object.clone() else { return };
    let Some(cards) = attach::cards_of(slot, work, &recorded.instance) else { return };
    attach::block_name(slot, work);
    slot.needs_name = true;
    if !slot.tried.contains(&recorded.device) {
        slot.tried.push(recorded.device.clone());
    }
    let Some(device) = attach::choose_device(slot, work, &recorded.instance, cards) else { return };
    let call = KubernetesCall::RecordAttachment {
        name: object.name,
        uid: object.uid,
        resource_version: object.resource_version,
        finalizers: object.finalizers,
        recorded: Recorded { device, ..recorded },
    };
    work.write(slot, Role::Attacher, WriteKind::Record, call);
}
