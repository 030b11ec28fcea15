//! Rule 5: the way of an attachment from a wish to a listed volume.
//!
//! Order: decided (instance, zone, access, device) → PersistentVolume finalizer → VolumeAttachment with everything
//! recorded in its create → AttachVolume → confirmed by DescribeVolumes → status → `volumesAttached`. Each step looks at
//! what is so, not at what was done last, so a crash anywhere resumes here. Must never send AttachVolume while anything
//! may still hold the volume, nor repeat it blindly.

use std::time::Duration;

use super::error_status;
use super::holders;
use super::hung_attach;
use super::initialized;
use super::rename;
use super::room;
use super::stuck;
use super::work::Work;
use crate::controller::actual::in_flight::{AttachSend, CallEnd, CallKind, InFlightCall};
use crate::controller::actual::nodes::{Identity, Wish};
use crate::controller::actual::readings::Sight;
use crate::controller::actual::slot::{Confirmation, DetachSent, NewSource, Origin, Slot, WriteKind};
use crate::controller::backoff::Pace;
use crate::controller::command::{
    AttachmentStatusChange, BudgetClass, Call, Ec2Call, KubernetesCall, NewAttachment, Recorded,
};
use crate::controller::context::Operation;
use crate::controller::desired::AccessCheck;
use crate::controller::event::Role;
use crate::controller::leadership::Permit;
use crate::controller::outbox::Pending;
use crate::controller::policy::Rule;
use crate::controller::reason::BlockedReason;
use crate::controller::status::Disagreement;
use crate::model::device::DeviceName;
use crate::model::ids::{AttachmentKey, InstanceId};
use crate::model::time::Monotonic;
use crate::model::volume::{AttachmentState, VolumeState};

/// A read older than this is taken again before a VolumeAttachment is made.
const READ_MAX_AGE: Duration = Duration::from_secs(15);
/// EC2's clock may be this much behind ours (and writes whole seconds).
const ATTACH_TIME_SLACK: Duration = Duration::from_secs(60);
/// Listed this long after the confirmation, if the node has not listed the volume in use before: earlier only throws the
/// kubelet into back-off (its status comes every 10 s).
const LIST_AFTER: Duration = Duration::from_secs(12);

/// The state of a machine whose volume vanished is read within this, if it can be read at all.
const STATE_READ_WITHIN: Duration = Duration::from_secs(12);

/// Advances the attachment of an EBS volume that is wanted on the node and whose turn it is.
pub fn attach(slot: &mut Slot, work: &mut Work<'_>, source: &NewSource) {
    let now = work.now().monotonic;
    let instance = match identity(work) {
        Ok(instance) => instance,
        Err(reason) => return slot.block(reason, now),
    };
    if slot.object.is_none() {
        return make(slot, work, source, &instance);
    }
    if slot.confirmed.is_some() {
        return uphold(slot, work);
    }
    if take_confirmation(slot, work) {
        return uphold(slot, work);
    }
    let stated = slot.object.as_ref().is_some_and(|object| object.status.attached) && slot.attach_sent.is_none();
    let reported = work.is_listed() || !work.ctx.has_role(Role::AttachDetach);
    if stated && reported && !work.volume.readings.have_begun() && work.ctx.policy.holds(Rule::ReadBeforeActing) {
        // At rest, as an earlier leader left it: the first sweep reads it, and the poll is left to what is pending.
        return slot.block(BlockedReason::VolumeNotRead, now);
    }
    if stated && work.volume.readings.current().is_some() && work.shown(slot).is_none() {
        // Attached as an earlier leader stated it, and gone: that takes the same proof as one of our own.
        if !lost(slot, work) {
            work.poll_silent();
            slot.block(BlockedReason::WaitingForEc2, now);
        }
        return;
    }
    send(slot, work, &instance, source);
}

/// Takes note if EC2 confirms the attachment, wanted or not.
pub fn take_confirmation(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let Some(confirmation) = confirm(slot, work) else { return false };
    if let (Some(instance), Some(time)) = (slot.instance(), confirmation.attach_time) {
        work.volume.attach_times.insert(instance.clone(), time);
    }
    slot.confirmed = Some(confirmation);
    slot.fresh_name = false;
    slot.ever_attached = true;
    slot.tried.clear();
    slot.needs_name = false;
    slot.unlisted = false;
    // What a person said before it was attached says nothing about now.
    slot.void_word();
    work.succeed();
    true
}

/// The instance behind the node, or why it cannot be told (rule 19).
pub fn identity(work: &Work<'_>) -> Result<InstanceId, BlockedReason> {
    let Some(record) = work.record() else { return Err(BlockedReason::NodeGone) };
    match record.identity() {
        Identity::Instance(instance) => Ok(instance),
        Identity::NoNode => Err(BlockedReason::NodeGone),
        Identity::NoProviderId => Err(BlockedReason::NoProviderId),
        Identity::NotAnInstance => Err(BlockedReason::NotAnInstance),
        Identity::NotRegistered => Err(BlockedReason::DriverNotRegistered),
        Identity::Mismatch => Err(BlockedReason::IdentityMismatch),
    }
}

/// Decides everything that can be decided before EC2 is called, then makes the VolumeAttachment. What cannot be decided
/// gets none.
fn make(slot: &mut Slot, work: &mut Work<'_>, source: &NewSource, instance: &InstanceId) {
    let now = work.now().monotonic;
    if let AccessCheck::Refused(reason) = work.ctx.desired.access(work.key) {
        return slot.block(BlockedReason::AccessMode(reason.to_string()), now);
    }
    if call_in_the_way(work, instance) {
        return slot.block(BlockedReason::CallInFlight, now);
    }
    let fresh = work.volume.readings.began().is_some_and(|began| now.saturating_since(began) <= READ_MAX_AGE);
    if !fresh && work.ctx.policy.holds(Rule::ReadBeforeActing) {
        work.ctx.want_read(work.key, now);
        return slot.block(BlockedReason::VolumeNotRead, now);
    }
    if let Err(reason) = work.guard() {
        return slot.block(reason, now);
    }
    if let Err(reason) = holders::free_for(work, instance) {
        holders::poll_until_free(work);
        return slot.block(reason, now);
    }
    let Some(cards) = rename::cards_of(slot, work, instance) else { return };
    if let Err(reason) = zones_agree(work, instance) {
        return slot.block(reason, now);
    }
    if let Err(reason) = protected(slot, work, source) {
        return slot.block(reason, now);
    }
    if slot.write.is_some() {
        return;
    }
    let Some(node_uid) = work.node_object().map(|node| node.uid.clone()) else { return };
    let Some(device) = rename::choose_device(slot, work, instance, cards) else { return };
    let recorded = Recorded { instance: instance.clone(), node_uid, device };
    // Marked, it may be mounted on an attachment that is gone.
    let unmounted = work.volume.readings.shows_free() && !work.carries_mark();
    let origin = if unmounted { Origin::MadeFree } else { Origin::MadeOver };
    create(slot, work, source, recorded, origin);
}

/// Sends the create of a VolumeAttachment with everything recorded in it.
pub fn create(slot: &mut Slot, work: &mut Work<'_>, source: &NewSource, recorded: Recorded, origin: Origin) {
    let key = AttachmentKey { volume: work.key.clone(), node: work.node.clone() };
    let new = NewAttachment { key, source: source.clone(), recorded: Some(recorded.clone()) };
    slot.fresh_name = origin == Origin::MadeFree;
    work.write(slot, Role::AttachDetach, WriteKind::Create, KubernetesCall::CreateAttachment(new));
    if slot.write.is_some_and(|write| write.kind == WriteKind::Create) {
        if let Some(id) = work.id {
            let devices = &mut work.ctx.syncer.instances.record(&recorded.instance).devices;
            devices.reserve(id, recorded.device.clone(), slot.card);
        }
        slot.recorded = Some(recorded);
        slot.origin = origin;
        slot.source = Some(source.clone());
    }
}

/// What `make` decides before the create is decided here for a VolumeAttachment that another made: access mode, zone,
/// finalizer.
fn admitted(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId, source: &NewSource) -> bool {
    let access = match work.ctx.desired.access(work.key) {
        AccessCheck::Refused(reason) => Err(BlockedReason::AccessMode(reason.to_string())),
        AccessCheck::Allowed => Ok(()),
    };
    let admitted = access.and_then(|()| zones_agree(work, instance)).and_then(|()| protected(slot, work, source));
    if let Err(reason) = admitted {
        slot.block(reason, work.ctx.now.monotonic);
        return false;
    }
    true
}

/// Volume and node are in one zone; refused before EC2 is called otherwise.
pub fn zones_agree(work: &mut Work<'_>, instance: &InstanceId) -> Result<(), BlockedReason> {
    let Some(volume) = work.volume.readings.last_seen().map(|volume| volume.zone.clone()) else { return Ok(()) };
    let zone = work.ctx.syncer.instances.record(instance).zone.clone();
    let Some(node) = zone.or_else(|| work.node_object().and_then(|node| node.zone.clone())) else { return Ok(()) };
    if volume == node {
        return Ok(());
    }
    Err(BlockedReason::ZoneMismatch { volume: volume.to_string(), node: node.to_string() })
}

/// The PersistentVolume carries the attacher's finalizer, acknowledged; writes it if not.
pub fn protected(slot: &mut Slot, work: &mut Work<'_>, source: &NewSource) -> Result<(), BlockedReason> {
    let NewSource::PersistentVolume(name) = source else { return Ok(()) };
    let finalizer = work.key.driver.attacher_finalizer();
    let Some(volume) = work.ctx.desired.persistent_volume(name) else { return Err(BlockedReason::VolumeNotRead) };
    if volume.finalizers.iter().any(|f| *f == finalizer) {
        return Ok(());
    }
    if volume.deleting {
        return Err(BlockedReason::PersistentVolumeDeleting);
    }
    let mut finalizers = volume.finalizers.clone();
    finalizers.push(finalizer.into());
    let call = KubernetesCall::SetPersistentVolumeFinalizers {
        name: name.clone(),
        uid: volume.uid.clone(),
        resource_version: volume.resource_version.clone(),
        finalizers,
    };
    work.write(slot, Role::Attacher, WriteKind::ProtectVolume, call);
    Err(BlockedReason::Writing)
}

/// Whether EC2 confirms the attachment: this instance, the recorded device, attached, and not an older attachment than
/// the one this process asked for.
fn confirm(slot: &mut Slot, work: &mut Work<'_>) -> Option<Confirmation> {
    let recorded = slot.recorded.as_ref()?;
    let volume = work.volume.readings.volume()?;
    let attachment = volume.attachments.iter().find(|a| a.instance.as_ref() == Some(&recorded.instance))?;
    let same_device = attachment.device.as_ref().is_some_and(|device| device.slot() == recorded.device.slot());
    if !same_device && work.ctx.policy.holds(Rule::ConfirmByDevice) {
        return None;
    }
    if attachment.state != AttachmentState::Attached && work.ctx.policy.holds(Rule::ListOnlyConfirmed) {
        return None;
    }
    if volume.attachments.len() > 1 && !volume.multi_attach_enabled {
        return None;
    }
    // A DetachVolume that may land yet would take it away again (rule 7).
    let leaves = |call: &InFlightCall| call.kind == CallKind::Detach && call.instance == recorded.instance;
    if work.volume.calls.iter().any(leaves) && work.ctx.policy.holds(Rule::SameInstanceWaits) {
        return None;
    }
    // Accepted and nothing sent since: what a read still shows is on its way out.
    let taken_off = work.volume.calls.last().is_some_and(|last| {
        last.kind == CallKind::Detach && last.end == CallEnd::Done && last.instance == recorded.instance
    });
    if taken_off && slot.attach_sent.is_none() && work.ctx.policy.holds(Rule::UnusableAfterDetach) {
        return None;
    }
    match &slot.attach_sent {
        Some(sent) if work.ctx.policy.holds(Rule::ConfirmByAttachTime) => {
            let time = attachment.attach_time?;
            if Some(time) == sent.time_before || time < sent.at.wall - ATTACH_TIME_SLACK {
                return None;
            }
        }
        Some(_) => {}
        // Nothing sent by this process: taken over, on reads that agree; one is enough where the status says so already.
        None => {
            let stated = slot.object.as_ref().is_some_and(|object| object.status.attached);
            if !stated && !work.volume.readings.are_consistent() {
                work.poll_for_consistency();
                return None;
            }
        }
    }
    Some(Confirmation {
        device: attachment.device.clone().unwrap_or_else(|| recorded.device.clone()),
        attach_time: attachment.attach_time,
        at: work.now().monotonic,
    })
}

/// Whether the slot's machine is on its way out.
fn is_ending(slot: &Slot, work: &Work<'_>) -> bool {
    slot.instance().is_some_and(|instance| work.ctx.syncer.states.is_ending(instance))
}

/// AttachVolume, if nothing speaks against it; polls while something is under way.
fn send(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId, source: &NewSource) {
    let now = work.now();
    if call_in_the_way(work, instance) {
        if !work.volume.calls.any_unanswered() {
            work.poll();
        }
        if let Some(at) = work.volume.calls.next_death() {
            work.ctx.wake_volume(work.key, at, "call dead");
        }
        return slot.block(BlockedReason::WaitingForEc2, now.monotonic);
    }
    if work.shown(slot).is_some() {
        if hung_attach::give_up(slot, work) {
            return;
        }
        work.poll();
        return slot.block(stuck::waiting_reason(slot, work), now.monotonic);
    }
    if let Err(reason) = holders::free_for(work, instance) {
        holders::poll_until_free(work);
        return slot.block(reason, now.monotonic);
    }
    let answered_done = slot.attach_sent.as_ref().is_some_and(|sent| sent.end == Some(CallEnd::Done));
    if answered_done && work.ctx.policy.holds(Rule::NoBlindRepeatAttach) && !work.volume.readings.are_consistent() {
        work.poll();
        return slot.block(BlockedReason::WaitingForEc2, now.monotonic);
    }
    let Some(recorded) = slot.recorded.clone() else { return };
    let other_uid = work.node_object().is_none_or(|node| node.uid != recorded.node_uid);
    if other_uid && work.ctx.policy.holds(Rule::AttachNeedsRecordedUid) {
        return slot.block(BlockedReason::OtherNodeObject, now.monotonic);
    }
    if work.is_marked() {
        return slot.block(BlockedReason::InUseUnknown, now.monotonic);
    }
    if is_ending(slot, work) {
        return slot.block(BlockedReason::InstanceTerminated, now.monotonic);
    }
    if answered_done {
        slot.attach_sent = None;
        work.fail(Operation::Attach, Pace::Fast);
    }
    slot.block_by_refusal(CallKind::Attach, now.monotonic);
    if !work.backoff_over(slot, Operation::Attach) {
        return;
    }
    if was_mounted_under_its_name(slot, work) {
        // A call of the earlier leader may yet attach it under the name that is recorded.
        if work.waits_for_inherited_calls(slot) {
            return;
        }
        rename::block_name(slot, work);
        slot.needs_name = true;
    }
    if slot.needs_name {
        return rename::rename(slot, work);
    }
    if !slot.made_here() && !admitted(slot, work, instance, source) {
        return;
    }
    if let Err(reason) = work.guard() {
        error_status::state_error(slot, work, &reason.to_string(), error_status::PERMISSION_DENIED);
        return slot.block(reason, now.monotonic);
    }
    call(slot, work, instance, recorded);
}

/// AttachVolume, when its turn comes.
fn call(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId, recorded: Recorded) {
    let now = work.now();
    let Some(permit) = work.ctx.permit(Role::Attacher) else {
        return slot.block(BlockedReason::NotLeading, now.monotonic);
    };
    if !room::is_there(slot, work, instance) {
        return;
    }
    let target = work.target();
    if !work.ctx.ask(BudgetClass::Attach, target) {
        return slot.block(BlockedReason::Budget, now.monotonic);
    }
    attach_volume(slot, work, instance, recorded.device, permit);
}

/// AttachVolume, cleared and paid for.
fn attach_volume(slot: &mut Slot, work: &mut Work<'_>, instance: &InstanceId, device: DeviceName, permit: Permit) {
    let now = work.now();
    let Some(id) = work.id.cloned() else { return };
    let card = slot.card;
    let call = Ec2Call::AttachVolume { volume: id, instance: instance.clone(), device: device.clone(), card };
    let pending = Pending::Attach { volume: work.key.clone(), node: work.node.clone(), device: device.clone() };
    let command = work.ctx.outbox.push(BudgetClass::Attach, permit, Call::Ec2(call), pending);
    work.volume.calls.open(command, CallKind::Attach, instance.clone(), now);
    let time_before = work.volume.readings.volume().and_then(|volume| {
        volume.attachments.iter().find(|a| a.instance.as_ref() == Some(instance)).and_then(|a| a.attach_time)
    });
    let time_before = time_before.or_else(|| work.volume.attach_times.get(instance).copied());
    // Whatever was sent to detach an earlier attempt is answered or dead by now: it says nothing about this one.
    slot.detach_sent = DetachSent::Nothing;
    slot.detach_effective = false;
    slot.refusal = None;
    slot.attach_sent = Some(AttachSend { at: now, time_before, device, end: None });
    room::asked(slot, work, instance);
    slot.block(BlockedReason::WaitingForEc2, now.monotonic);
}

/// Whether the volume may be mounted under the recorded name from an attachment that is gone: the node lists it and reports
/// it in use, which no volume is that was never attached. It comes back under another name (rule 4).
fn was_mounted_under_its_name(slot: &Slot, work: &Work<'_>) -> bool {
    let in_use = work.node_object().is_some_and(|node| node.volumes_in_use.contains(work.name));
    in_use && work.is_listed() && !slot.fresh_name
}

/// A call to this instance that is neither answered nor dead: an AttachVolume is not repeated, and a DetachVolume may land
/// later and undo a newer attachment.
fn call_in_the_way(work: &Work<'_>, instance: &InstanceId) -> bool {
    let policy = &work.ctx.policy;
    work.volume.calls.iter().any(|call| {
        call.instance == *instance
            && match call.kind {
                CallKind::Attach => policy.holds(Rule::NoBlindRepeatAttach),
                CallKind::Detach => policy.holds(Rule::SameInstanceWaits),
            }
    })
}

/// Keeps what EC2 confirmed reported: the status, then the list.
fn uphold(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    let Some(confirmed) = slot.confirmed.clone() else { return };
    if lost(slot, work) {
        return;
    }
    let stated = slot
        .object
        .as_ref()
        .is_some_and(|object| object.status.attached && object.status.device_path.as_ref() == Some(&confirmed.device));
    if !stated && !initialized::may_be_used(slot, work) {
        return slot.block(BlockedReason::Initializing, now);
    }
    if !stated {
        let change = AttachmentStatusChange::Attached { device_path: confirmed.device };
        return work.write_status(slot, WriteKind::StatusAttached, change);
    }
    if !work.ctx.has_role(Role::AttachDetach) {
        slot.blocked = None;
        return;
    }
    if !keep_listed(slot, work, confirmed.at + LIST_AFTER) {
        slot.block(BlockedReason::Writing, now);
    }
}

/// Wishes the volume listed; once it is, its pods are told, once. Whether it is.
pub fn keep_listed(slot: &mut Slot, work: &mut Work<'_>, not_before: Monotonic) -> bool {
    list(slot, work, not_before);
    let is_listed = work.is_listed();
    if is_listed {
        slot.ever_listed = true;
        slot.unlisted = false;
        slot.blocked = None;
        if !slot.announced {
            slot.announced = true;
            work.ctx.notes.attached(work.ctx.desired.wants(work.key), work.node, work.key);
        }
    }
    is_listed
}

/// Wishes the volume listed; marked where it may be mounted without the kubelet reporting it.
pub fn list(slot: &Slot, work: &mut Work<'_>, not_before: Monotonic) {
    let node_uid = slot.recorded_uid().cloned();
    work.wish(Wish::Listed { instance: slot.instance().cloned(), node_uid, not_before, mark: slot.forced });
}

/// A confirmed attachment that three consistent reads show gone: the status is corrected, and it is attached anew under
/// another device name, whether the node reports it in use or not. While it does, the volume stays listed (rule 4).
pub fn lost(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let gone = match work.volume.readings.current() {
        None => return false,
        Some(Sight::Seen(volume)) => {
            work.shown(slot).is_none() && !(volume.state == VolumeState::InUse && volume.attachments.is_empty())
        }
        Some(Sight::Missing) => work.is_surely_missing(),
    };
    if !gone || is_ending(slot, work) {
        // EC2 takes the volumes off a machine that ends: nobody detached them, and they are not put back.
        return false;
    }
    if !work.volume.readings.prove_silent_detach(&work.ctx.policy) {
        work.poll_silent();
        return false;
    }
    if machine_is_unread(slot, work) {
        return true;
    }
    let in_use = work.node_object().is_some_and(|node| node.volumes_in_use.contains(work.name));
    if in_use && !slot.fresh_name && !work.ctx.has_role(Role::AttachDetach) {
        // Nobody keeps it listed there: what is recorded must tell the next leader that its name is used up.
        rename::rename(slot, work);
        return true;
    }
    // Not in use may be old news: the kubelet can have mounted it since, and its status have come to nobody.
    let is_used_up = !slot.fresh_name;
    if is_used_up {
        rename::block_name(slot, work);
    }
    work.write_status(slot, WriteKind::StatusDetached, AttachmentStatusChange::Detached);
    if slot.write.is_none() {
        // Its turn comes: until then it stays what it was.
        return true;
    }
    slot.confirmed = None;
    slot.attach_sent = None;
    slot.announced = false;
    slot.needs_name = is_used_up;
    work.wish(if in_use { Wish::Keep } else { Wish::Dropped });
    *work.ctx.disagreements.entry(Disagreement::SilentDetach).or_default() += 1;
    let (wants, volumes) = (work.ctx.desired.wants(work.key), work.ctx.desired.persistent_volumes_of(work.key));
    work.ctx.notes.silent_detach(wants, volumes, work.key, work.node, in_use);
    true
}

/// Whether the state of the machine, of which a volume vanished, is still to be read: it may be on its way out. That is not
/// waited for without end.
fn machine_is_unread(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let unread = slot.instance().is_some_and(|instance| work.ctx.syncer.states.is_unread(instance));
    if !unread || work.volume.readings.agrees_for() >= STATE_READ_WITHIN {
        return false;
    }
    work.poll_silent();
    slot.block(BlockedReason::WaitingForEc2, work.ctx.now.monotonic);
    true
}
