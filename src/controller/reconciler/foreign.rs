//! Rule 9: attachments that EC2 shows and nothing here explains are reported, also where nobody wants the volume.
//!
//! Flow: at the end of every look at a volume. Owns the memory of what was reported. Must never touch such an attachment:
//! whether it is led out is people's word, and `lead_out_foreign` carries it out.

use super::holders;
use crate::controller::actual::volume::{Reported, Volume};
use crate::controller::context::Context;
use crate::controller::status::Disagreement;
use crate::model::ids::VolumeKey;
use crate::model::volume::{AttachmentReading, AttachmentState};

/// Reports what consistent reads show attached that nothing here explains; forgets what is gone.
pub fn report(key: &VolumeKey, volume: &mut Volume, ctx: &mut Context) {
    let left = volume.slots.is_empty() && ctx.desired.persistent_volumes_of(key).next().is_none();
    let Some(seen) = volume.readings.volume().filter(|_| !left) else {
        if left {
            volume.foreign.clear();
        }
        return;
    };
    if seen.attachments.is_empty() && volume.foreign.is_empty() {
        return;
    }
    let strangers: Vec<AttachmentReading> = seen
        .attachments
        .iter()
        .filter(|attachment| attachment.state != AttachmentState::Detached && !is_explained(volume, ctx, attachment))
        .cloned()
        .collect();
    volume.foreign.retain(|known, _| strangers.iter().any(|stranger| stranger.instance == *known));
    for stranger in strangers {
        let reported = volume.foreign.entry(stranger.instance.clone()).or_insert(Reported::NotYet);
        if *reported == Reported::Yes {
            continue;
        }
        if !volume.readings.are_consistent() {
            // One read may be old, or show what our own call just made.
            ctx.want_read(key, volume.readings.next_useful());
            continue;
        }
        *reported = Reported::Yes;
        *ctx.disagreements.entry(Disagreement::ForeignAttachment).or_default() += 1;
        let volumes = ctx.desired.persistent_volumes_of(key);
        ctx.notes.foreign_attachment(volumes, key, &stranger, ctx.now.monotonic);
    }
}

/// Whether something here explains the attachment, or will soon: a VolumeAttachment whose records are not complete yet, a
/// list that names the volume.
fn is_explained(volume: &Volume, ctx: &Context, attachment: &AttachmentReading) -> bool {
    if holders::node_of(volume, attachment).is_some() {
        return true;
    }
    let Some(instance) = &attachment.instance else { return false };
    let incomplete = volume.slots.values().any(|slot| {
        slot.recorded.is_none()
            && slot.object.as_ref().is_some_and(|object| object.instance().as_ref() == Some(instance))
    });
    incomplete || ctx.node_of_instance.get(instance).is_some_and(|node| volume.listed_only.contains(node))
}
