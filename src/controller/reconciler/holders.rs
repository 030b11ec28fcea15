//! Rules 1 and 9: who holds a volume, and whether another may get it.
//!
//! A holder is what EC2 shows, or what a call under way may make; never the mere existence of a VolumeAttachment.

use super::sharing;
use super::work::Work;
use crate::controller::actual::in_flight::{CallEnd, CallKind, DEAD_AFTER};
use crate::controller::actual::readings::Sight;
use crate::controller::actual::volume::Volume;
use crate::controller::policy::Rule;
use crate::controller::reason::BlockedReason;
use crate::model::ids::{InstanceId, NodeName};
use crate::model::volume::{AttachmentReading, AttachmentState, VolumeState};

/// Whether AttachVolume of the volume to `instance` may be sent, as far as holders go; or who is in the way.
pub fn free_for(work: &Work<'_>, instance: &InstanceId) -> Result<(), BlockedReason> {
    let readings = &work.volume.readings;
    let volume = match readings.current() {
        None if !work.ctx.policy.holds(Rule::ReadBeforeActing) => return Ok(()),
        None => return Err(BlockedReason::VolumeNotRead),
        Some(Sight::Missing) if readings.are_consistent() => return Err(BlockedReason::VolumeMissing),
        Some(Sight::Missing) => return Err(BlockedReason::VolumeNotRead),
        Some(Sight::Seen(volume)) => volume,
    };
    if is_shared(work) {
        return match volume.attachments.iter().find(|a| a.instance.as_ref() == Some(instance)) {
            Some(attachment) => Err(holder_reason(work.volume, attachment)),
            None => Ok(()),
        };
    }
    if !work.ctx.policy.holds(Rule::OneHolder) {
        return Ok(());
    }
    if work.volume.calls.may_make_holder_besides(instance) && work.ctx.policy.holds(Rule::NoSwitchAfterSend) {
        return Err(BlockedReason::CallInFlight);
    }
    if let Some(attachment) = volume.attachments.iter().find(|a| a.state != AttachmentState::Detached) {
        return Err(holder_reason(work.volume, attachment));
    }
    if volume.state != VolumeState::Available {
        return Err(BlockedReason::VolumeState(format!("{:?}", volume.state)));
    }
    // A detach that was not answered Done is believed by consistent spaced reads only.
    let unsure =
        work.volume.calls.last().is_some_and(|last| last.kind == CallKind::Detach && last.end == CallEnd::Dead)
            || work.volume.calls.iter().any(|call| call.kind == CallKind::Detach);
    if unsure && !readings.are_spaced() {
        return Err(BlockedReason::WaitingForEc2);
    }
    if volume.multi_attach_enabled {
        // EC2 does not arbitrate here: one read is not enough, and nothing may be under way at all, nor left by an
        // earlier leader.
        if !readings.are_spaced() {
            return Err(BlockedReason::WaitingForEc2);
        }
        if !work.volume.calls.is_empty() {
            return Err(BlockedReason::CallInFlight);
        }
        let inherited = work.ctx.lease_start().map(|start| start + DEAD_AFTER);
        let waits = inherited.is_none_or(|until| work.now().monotonic < until);
        if waits && work.ctx.policy.holds(Rule::InheritedCallsWait) {
            return Err(BlockedReason::InheritedCalls);
        }
    }
    Ok(())
}

/// Reads on while a holder is in the way: often where it is a machine on its way out, of which EC2 takes the volume any
/// moment.
pub fn poll_until_free(work: &mut Work<'_>) {
    work.poll();
    let shown = work.volume.readings.volume().into_iter().flat_map(|volume| &volume.attachments);
    let ending = shown.filter_map(|a| a.instance.as_ref()).any(|id| work.ctx.syncer.states.is_ending(id));
    if ending {
        work.poll_ending();
    }
}

/// Whether the volume may be attached to several instances: EC2 says so, and every source is ReadWriteMany and Block.
pub fn is_shared(work: &Work<'_>) -> bool {
    sharing::is_shared_volume(work.volume, work.ctx, work.key)
}

/// What is in the way, by an attachment EC2 shows.
fn holder_reason(volume: &Volume, attachment: &AttachmentReading) -> BlockedReason {
    match node_of(volume, attachment) {
        Some(node) => BlockedReason::MultiAttach(node),
        None => BlockedReason::HeldByUnknownAttachment {
            instance: attachment.instance.clone(),
            device: attachment.device.as_ref().map_or_else(String::new, |device| device.to_string()),
        },
    }
}

/// The node whose slot explains an attachment: same instance, same device.
pub fn node_of(volume: &Volume, attachment: &AttachmentReading) -> Option<NodeName> {
    let instance = attachment.instance.as_ref()?;
    let device = attachment.device.as_ref()?;
    volume.slots.iter().find_map(|(node, slot)| {
        let recorded = slot.recorded.as_ref()?;
        (recorded.instance == *instance && recorded.device.slot() == device.slot()).then(|| node.clone())
    })
}
