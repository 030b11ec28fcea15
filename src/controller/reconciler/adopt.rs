//! Rules 9 and 11: what is found and was not made by this process.
//!
//! Flow: a VolumeAttachment without our records gets them at first sight; a volume that a node lists though no
//! VolumeAttachment is left of it gets one, marked first; foreign attachments are led out only where people set so. Must
//! never confirm or detach an attachment at a device that is recorded nowhere.

use super::attach;
use super::heal;
use super::rename;
use super::work::Work;
use crate::controller::actual::in_flight::DEAD_AFTER;
use crate::controller::actual::nodes::{Identity, Wish};
use crate::controller::actual::readings::{Sight, attachment_on};
use crate::controller::actual::slot::{Origin, Slot, Word};
use crate::controller::command::Recorded;
use crate::controller::policy::Rule;
use crate::controller::reason::BlockedReason;
use crate::controller::syncer::instances::Readiness;
use crate::controller::syncer::states::Machine;
use crate::model::attachment::VolumeAttachment;
use crate::model::device::DeviceName;
use crate::model::ids::{InstanceId, Uid};
use crate::model::time::{Monotonic, Wall};

/// Takes in a VolumeAttachment as a watch or a write shows it. `lease_start`: for one that this process did not make, and
/// that is Terminating or not attached, calls of an earlier leader count as under way until W after it (rule 7); `None`
/// where there can be none.
pub fn observe(slot: &mut Slot, object: VolumeAttachment, lease_start: Option<Monotonic>, wall: Wall) {
    let is_known = slot.object.as_ref().is_some_and(|known| known.uid == object.uid);
    let device = object.device.clone().or_else(|| object.status.device_path.clone());
    let records = match (object.instance(), object.node_uid.clone(), device) {
        (Some(instance), Some(node_uid), Some(device)) => Some(Recorded { instance, node_uid, device }),
        _ => None,
    };
    // What this process was about to record, or had recorded before the object vanished, tells its own creates.
    let made_here = slot.object.is_none() && slot.recorded.is_some() && slot.recorded == records;
    if !is_known && !made_here {
        let confirmed = slot.confirmed.take().filter(|_| slot.recorded.is_some() && slot.recorded == records);
        let earlier = slot.recorded.take().filter(|earlier| {
            // One that another writer made with the name only: what this process recorded before it tells what is
            // attached under it (rule 9).
            let other = object.instance().is_some_and(|instance| instance != earlier.instance);
            object.driver.is_ebs() && records.is_none() && !other && !slot.finish_asked
        });
        slot.forget_object();
        // Its pods were told when it was attached: a restart is no news to them.
        slot.announced = object.status.attached;
        slot.confirmed = confirmed;
        slot.ever_attached = earlier.is_some();
        slot.recorded = earlier;
        slot.inherited_until = lease_start.filter(|_| may_have_calls(&object)).map(|start| start + DEAD_AFTER);
    }
    slot.vanished = false;
    slot.ever_attached |= object.status.attached;
    if let Some(records) = records {
        let renamed = slot.recorded.as_ref().is_some_and(|before| before.device != records.device);
        if renamed && slot.needs_name {
            (slot.fresh_name, slot.needs_name) = (true, false);
        }
        slot.recorded = Some(records);
    }
    match (&object.unmounted, &slot.unmounted_word) {
        (Some(boot), Some(word)) if boot.as_str() == word.boot.as_str() => {}
        // One that was there at first sight may be older than the mount: it does not count until it is said again.
        (Some(boot), _) => {
            slot.unmounted_word = Some(Word { boot: boot.as_str().into(), seen: wall, counts: is_known });
        }
        (None, _) => slot.unmounted_word = None,
    }
    slot.object = Some(object);
}

/// Whether an earlier leader may have left calls under way under a VolumeAttachment that is found: one that stands and is
/// attached was confirmed, and nothing was asked of EC2 since.
pub fn may_have_calls(object: &VolumeAttachment) -> bool {
    object.deleting.is_some() || !object.status.attached
}

/// What was recorded for an earlier VolumeAttachment says nothing of one that another writer made since, with the name only,
/// for another instance under the node's name: unless the volume may still be where the earlier one had it.
pub fn disown(slot: &mut Slot, work: &mut Work<'_>) {
    let (Some(object), Some(recorded)) = (&slot.object, &slot.recorded) else { return };
    if object.deleting.is_some() || object.instance().is_some() {
        return;
    }
    let other = attach::identity(work).is_ok_and(|instance| instance != recorded.instance);
    if other && (work.machine(slot) == Machine::Terminated || work.is_shown_free_of_instance(slot)) {
        slot.recorded = None;
        slot.confirmed = None;
        slot.ever_attached = false;
    }
}

/// What the records of a found VolumeAttachment lack is filled in: the instance and the Node UID at first sight, the
/// device its status names. Returns whether it is complete.
pub fn complete(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let Some(object) = &slot.object else { return true };
    let recorded_there = object.node_id.is_some() && object.node_uid.is_some() && object.device.is_some();
    if recorded_there && (object.has_attacher_finalizer() || object.deleting.is_some()) {
        return true;
    }
    let object = object.clone();
    if slot.recorded.is_none()
        && let Some(recorded) = fill_in(slot, work, &object)
    {
        slot.recorded = Some(recorded);
    }
    if object.deleting.is_some() || work.record().is_some_and(|record| record.is_held(work.now().monotonic)) {
        return true;
    }
    let Some(recorded) = slot.recorded.clone() else { return false };
    if recorded.node_uid.as_str().is_empty() {
        return true;
    }
    let mut finalizers = object.finalizers.clone();
    if !object.has_attacher_finalizer() {
        finalizers.push(object.driver.attacher_finalizer().into());
    }
    rename::record(slot, work, VolumeAttachment { finalizers, ..object }, recorded);
    false
}

fn fill_in(slot: &mut Slot, work: &mut Work<'_>, object: &VolumeAttachment) -> Option<Recorded> {
    let now = work.now().monotonic;
    let node = work.node_object().map(|node| node.uid.clone());
    let instance = object.instance().or_else(|| match work.record().map(|record| record.identity()) {
        Some(Identity::Instance(instance)) => Some(instance),
        _ => None,
    })?;
    // Where there is no Node to take the UID of, one that never matches: absence on a later Node is then no evidence.
    let node_uid = object.node_uid.clone().or(node).unwrap_or_else(|| Uid::new(""));
    if let Some(device) = object.device.clone().or_else(|| object.status.device_path.clone()) {
        return Some(Recorded { instance, node_uid, device });
    }
    if object.deleting.is_some() {
        return None;
    }
    let cards = match work.ctx.syncer.instances.ready(&instance, now) {
        Readiness::Ready(cards) => cards,
        Readiness::Asked => {
            slot.block(BlockedReason::InstanceNotVisible, now);
            return None;
        }
        Readiness::NotVisible(again) => {
            work.ctx.wake_volume(work.key, again, "instance not visible");
            return None;
        }
    };
    let device = rename::choose_device(slot, work, &instance, cards)?;
    slot.fresh_name = true;
    Some(Recorded { instance, node_uid, device })
}

/// A node lists the volume though no VolumeAttachment is left of it (or people set that foreign attachments are led out):
/// if consistent reads show it attached there, one is made over it, the mark acknowledged before.
pub fn listed_only(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    let Some(Identity::Instance(instance)) = work.record().map(|record| record.identity()) else {
        if work.node_object().is_none() {
            work.volume.listed_only.remove(work.node);
            work.ctx.dirty_volumes.insert(work.key.clone());
        }
        return slot.block(BlockedReason::NodeGone, now);
    };
    if let Some(until) = work.record().and_then(|record| record.held_until) {
        work.ctx.wake_volume(work.key, until.max(now), "node held");
    }
    if work.has_call(Some(&instance)) || work.record().is_some_and(|record| record.is_held(now)) {
        return slot.block(BlockedReason::CallInFlight, now);
    }
    if let Some(until) = work.inherited_by_process() {
        work.ctx.wake_volume(work.key, until, "inherited calls dead");
        return slot.block(BlockedReason::InheritedCalls, now);
    }
    if !work.volume.readings.are_consistent() {
        work.poll_for_consistency();
        return slot.block(BlockedReason::VolumeNotRead, now);
    }
    match attached_device(work, &instance) {
        Some(device) => make_over(slot, work, instance, device),
        None if work.volume.readings.missing_since().is_some() && !work.is_surely_missing() => {
            work.poll_for_consistency();
            slot.block(BlockedReason::VolumeNotRead, now);
        }
        None => {
            let in_use = work.node_object().is_some_and(|node| node.volumes_in_use.contains(work.name));
            let wanted = work.ctx.desired.wants(work.key).iter().any(|want| want.node == *work.node);
            if in_use && wanted {
                // It went while the node reports it in use: it stays listed, and is attached anew (rule 4).
                work.wish(Wish::Keep);
                work.volume.listed_only.remove(work.node);
                work.ctx.dirty_volumes.insert(work.key.clone());
                return;
            }
            if in_use {
                work.ctx.wake_volume_in(work.key, std::time::Duration::from_secs(10), "listed, gone and in use");
                return slot.block(BlockedReason::InUse, now);
            }
            if work.is_listed() {
                return work.wish(Wish::Dropped);
            }
            work.unwish();
            work.volume.listed_only.remove(work.node);
            work.ctx.dirty_volumes.insert(work.key.clone());
        }
    }
}

fn attached_device(work: &Work<'_>, instance: &InstanceId) -> Option<DeviceName> {
    match work.volume.readings.current()? {
        Sight::Seen(volume) => attachment_on(volume, instance)?.device.clone(),
        Sight::Missing => None,
    }
}

fn make_over(slot: &mut Slot, work: &mut Work<'_>, instance: InstanceId, device: DeviceName) {
    let now = work.now().monotonic;
    if !work.carries_mark() && work.ctx.policy.holds(Rule::MarkBeforeAdopt) {
        work.wish(Wish::Marked);
        return slot.block(BlockedReason::Writing, now);
    }
    let Some(node_uid) = work.node_object().map(|node| node.uid.clone()) else { return };
    let Some(source) = heal::source_of(slot, work) else {
        work.ctx.wake_volume_in(work.key, std::time::Duration::from_secs(60), "no source");
        return slot.block(
            BlockedReason::HeldByUnknownAttachment { instance: Some(instance), device: device.to_string() },
            now,
        );
    };
    let recorded = Recorded { instance, node_uid, device };
    attach::create(slot, work, &source, recorded, Origin::MadeOver);
}
