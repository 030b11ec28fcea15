//! The device name of an attachment: the next free one, and another where the recorded one cannot be used: taken, hung, or
//! the volume may be mounted under it from an attachment that is gone.
//!
//! Flow: `attach` comes here before it sends AttachVolume, `ordered` when it records another Node. Must never send
//! AttachVolume: that follows when the name is acknowledged (rule 5).

use super::work::Work;
use crate::controller::actual::in_use::{Mark, mark};
use crate::controller::actual::slot::{Slot, WriteKind};
use crate::controller::backoff::Pace;
use crate::controller::command::{KubernetesCall, Recorded};
use crate::controller::context::Operation;
use crate::controller::event::Role;
use crate::controller::reason::BlockedReason;
use crate::controller::syncer::instances::Readiness;
use crate::model::attachment::VolumeAttachment;
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId, VolumeKey};

/// Records the next device name; only then AttachVolume is sent with it.
pub(super) fn rename(slot: &mut Slot, work: &mut Work<'_>) {
    if let Some(recorded) = slot.recorded.clone() {
        rename_as(slot, work, recorded);
    }
}

/// Records `recorded` with the next device name in the place of its own, which the volume may be mounted under.
pub(super) fn rename_as(slot: &mut Slot, work: &mut Work<'_>, recorded: Recorded) {
    let Some(object) = slot.object.clone() else { return };
    let Some(cards) = cards_of(slot, work, &recorded.instance) else { return };
    block_name(slot, work);
    slot.needs_name = true;
    if !slot.tried.contains(&recorded.device) {
        slot.tried.push(recorded.device.clone());
    }
    let Some(device) = choose_device(slot, work, &recorded.instance, cards) else { return };
    record(slot, work, object, Recorded { device, ..recorded });
}

/// Writes what is recorded for the attachment.
pub(super) fn record(slot: &mut Slot, work: &mut Work<'_>, object: VolumeAttachment, recorded: Recorded) {
    let VolumeAttachment { name, uid, resource_version, finalizers, .. } = object;
    let call = KubernetesCall::RecordAttachment { name, uid, resource_version, finalizers, recorded };
    work.write(slot, Role::Attacher, WriteKind::Record, call);
}

/// The recorded name is not used again on that instance while the volume may be mounted under it.
pub(super) fn block_name(slot: &Slot, work: &mut Work<'_>) {
    let (Some(recorded), Some(id)) = (&slot.recorded, work.id) else { return };
    let node = work.ctx.nodes.get(work.node).and_then(|record| record.object_of(&recorded.instance));
    work.ctx.syncer.instances.record(&recorded.instance).devices.block(id, &recorded.device, node);
}

/// The device for the next AttachVolume: the one reserved already, else the next name; with more than one EBS card, also
/// the card.
pub(super) fn choose_device(
    slot: &mut Slot,
    work: &mut Work<'_>,
    instance: &InstanceId,
    cards: u32,
) -> Option<DeviceName> {
    let now = work.now().monotonic;
    let id = work.id?;
    unblock_unmounted(work, instance);
    let devices = &mut work.ctx.syncer.instances.record(instance).devices;
    if let Some(reserved) = devices
        .reserved(id)
        .filter(|device| !slot.tried.contains(device) && !devices.is_blocked(id, device) && !devices.is_hung(device))
    {
        return Some(reserved.clone());
    }
    let after = slot.recorded.as_ref().map(|recorded| &recorded.device);
    match devices.reserve_next(id, cards, &slot.tried, after, now) {
        Ok(choice) => {
            slot.card = choice.card;
            Some(choice.device)
        }
        Err(_) => {
            work.ctx.syncer.instances.distrust(instance);
            slot.tried.clear();
            work.fail(Operation::Attach, Pace::Slow);
            slot.block(BlockedReason::NoFreeDevice, now);
            None
        }
    }
}

/// Names of volumes that do not count as in use on the node any more are free again: the machine was booted since, or the
/// Node object by which they were blocked neither lists nor reports nor marks the volume (rule 3). While it is listed, that
/// it is not reported may be older than the mount.
fn unblock_unmounted(work: &mut Work<'_>, instance: &InstanceId) {
    let Some(node) = work.ctx.nodes.get(work.node).and_then(|record| record.object_of(instance)) else { return };
    let devices = &mut work.ctx.syncer.instances.record(instance).devices;
    let free: Vec<AwsVolumeId> = devices
        .blocked()
        .filter(|(volume, blocked)| {
            let name = VolumeKey::ebs(volume).unique_name();
            let booted = matches!((&blocked.boot_id, &node.boot_id), (Some(then), Some(present)) if then != present);
            let released = blocked.node_uid.as_ref() == Some(&node.uid)
                && !node.volumes_in_use.contains(&name)
                && !node.volumes_attached.contains_key(&name)
                && mark(node, &name, &work.ctx.policy) != Mark::PresentBoot;
            booted || released
        })
        .map(|(volume, _)| volume.clone())
        .collect();
    for volume in &free {
        devices.unblock(volume);
    }
}

/// The EBS cards of the instance; `None` while it is being read, and the slot waits for that.
pub(super) fn cards_of(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId) -> Option<u32> {
    let now = work.now().monotonic;
    match work.ctx.syncer.instances.ready(instance, now) {
        Readiness::Ready(cards) => return Some(cards),
        Readiness::Asked => {}
        Readiness::NotVisible(again) => work.ctx.wake_volume(work.key, again, "instance not visible"),
    }
    slot.block(BlockedReason::InstanceNotVisible, now);
    None
}
