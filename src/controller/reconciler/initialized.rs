//! A volume that nobody may use before its blocks are loaded from the snapshot: `blockattachuntilinitialized`.
//!
//! Flow: asked between the confirmation of an attach and the status of its VolumeAttachment; what EC2 has said is on the
//! volume, what is asked is in [`crate::controller::syncer::volume_statuses`]. Must never take back what was stated.

use smol_str::SmolStr;

use super::work::Work;
use crate::controller::actual::slot::Slot;
use crate::model::attachment::AttachmentSource;
use crate::model::claim::PersistentVolumeSource;

/// The attribute of a PersistentVolume by which the EBS CSI driver holds an attach back until the volume is initialized.
const BLOCK_UNTIL_INITIALIZED: &str = "blockattachuntilinitialized";

/// Whether the volume is initialized, where its PersistentVolume makes that a condition of its use. One that was stated
/// attached before is in use already.
pub fn may_be_used(slot: &Slot, work: &mut Work<'_>) -> bool {
    let Some(object) = &slot.object else { return true };
    let AttachmentSource::PersistentVolume(name) = &object.source else { return true };
    if work.volume.initialized || object.status.attached {
        return true;
    }
    let attributes = match work.ctx.desired.persistent_volume(name).map(|volume| &volume.source) {
        Some(PersistentVolumeSource::Csi { attributes, .. }) => attributes,
        _ => return true,
    };
    let asks =
        |(key, value): (&SmolStr, &SmolStr)| key.eq_ignore_ascii_case(BLOCK_UNTIL_INITIALIZED) && value == "true";
    if !attributes.iter().any(asks) {
        return true;
    }
    if let Some(id) = work.id {
        work.ctx.syncer.volume_statuses.want(id, work.ctx.now.monotonic);
    }
    false
}
