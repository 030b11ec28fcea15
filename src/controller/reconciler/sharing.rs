//! Whether a volume is shared: the property belongs to the volume, whoever asks.

use crate::controller::actual::volume::Volume;
use crate::controller::context::Context;
use crate::model::ids::VolumeKey;

/// Whether the volume may be attached to several instances: EC2 says so, and every source is ReadWriteMany and Block.
pub fn is_shared_volume(volume: &Volume, ctx: &Context, key: &VolumeKey) -> bool {
    volume.readings.last_seen().is_some_and(|seen| seen.multi_attach_enabled) && ctx.desired.shareable(key)
}
