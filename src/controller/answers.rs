//! Outcomes of commands: each goes to the part of the core that asked.
//!
//! Flow: `Controller::ingest` looks up what the command was for; budgets learn from throttles first. Must never drop an
//! outcome of a mutating call.

use std::collections::BTreeSet;

use super::actual::readings::{Absorbed, Sight, attachment_on};
use super::backoff::Pace;
use super::context::{BackoffKey, Operation};
use super::event::{Object, WatchEvent};
use super::intake::{apply_node, resolve_again, with_slot};
use super::outbox::Pending;
use super::reason::BlockedReason;
use super::reconciler::{self, outcome as slot_outcome};
use super::report::{node_status, persistent_volume};
use super::store::Store;
use super::syncer::Sighting;
use super::syncer::batch::{AskedBy, End, Read};
use super::{unresolved, volume_guard};
use crate::model::ids::{AttachmentKey, InstanceId, VolumeKey};
use crate::model::outcome::{Answer, CallResult, Outcome};
use crate::model::volume::{AttachmentReading, AttachmentState, InstanceReading, VolumeStatusReading};

/// Takes in the outcome of a command.
pub fn absorb(store: &mut Store, outcome: Outcome) {
    let Some((class, pending)) = store.ctx.outbox.settle(outcome.id) else { return };
    match &outcome.result {
        CallResult::Throttled => store.ctx.outbox.budget.throttled(class),
        CallResult::Done(_) => store.ctx.outbox.budget.succeeded(class),
        _ => {}
    }
    match pending {
        Pending::Attach { volume, node, .. } => on_slot(store, volume, node, |slot, work| {
            slot_outcome::attach_ended(slot, work, &outcome);
        }),
        Pending::Detach { volume, node } => on_slot(store, volume, node, |slot, work| {
            slot_outcome::detach_ended(slot, work, &outcome);
        }),
        Pending::Write { volume, node, kind } => on_slot(store, volume, node, |slot, work| {
            slot_outcome::write_ended(slot, work, kind, outcome);
        }),
        Pending::PersistentVolume { volume, .. } => persistent_volume_written(store, volume, outcome),
        Pending::Placement(volume) => placed(store, volume, outcome),
        Pending::NodePatch(name) => {
            if let Some(node) = node_status::patch_ended(&name, &mut store.ctx, &outcome) {
                apply_node(store, node);
            }
        }
        Pending::NodeRefresh(name) => {
            if let Some(node) = node_status::refresh_ended(&name, &mut store.ctx, outcome) {
                apply_node(store, node);
            }
        }
        Pending::LiveNode(name) | Pending::LivePods(name) => {
            if let Some(node) = node_status::live_ended(&name, &mut store.ctx, outcome) {
                apply_node(store, node);
            }
        }
        Pending::Read(read) => read_ended(store, read, outcome),
        Pending::Event => {}
    }
}

fn read_ended(store: &mut Store, read: Read, outcome: Outcome) {
    let syncer = &mut store.ctx.syncer;
    match read {
        Read::Volumes(batch, by) => {
            let Some(end) = syncer.take_page(batch, outcome, |batch| Read::Volumes(batch, by)) else { return };
            for sighting in syncer.absorb_volumes(end, by) {
                absorb_sighting(store, sighting);
            }
        }
        Read::States(batch) => {
            let Some(end) = syncer.take_page(batch, outcome, Read::States) else { return };
            let news = syncer.absorb_states(end, store.ctx.node_of_instance.len());
            look_at(store, news);
        }
        Read::Checks(batch) => {
            let Some(end) = syncer.take_page(batch, outcome, Read::Checks) else { return };
            let news = syncer.states.absorb_checks(end);
            look_at(store, news);
        }
        Read::Devices(batch) => {
            let Some(end) = syncer.take_page(batch, outcome, Read::Devices) else { return };
            devices(store, end);
        }
        Read::Types(batch) => {
            let Some(end) = syncer.take_page(batch, outcome, Read::Types) else { return };
            let instances = syncer.instances.of_types(&end.asked);
            syncer.instances.absorb_types(end);
            dirty_waiting(store, &instances);
        }
        Read::VolumeStatuses(batch) => {
            let Some(end) = syncer.take_page(batch, outcome, Read::VolumeStatuses) else { return };
            volume_statuses(store, end);
        }
    }
}

fn on_slot(
    store: &mut Store,
    volume: VolumeKey,
    node: crate::model::ids::NodeName,
    f: impl FnOnce(&mut super::actual::slot::Slot, &mut reconciler::Work<'_>),
) {
    store.ctx.dirty_volumes.insert(volume.clone());
    let record = store.volumes.entry(volume.clone()).or_default();
    record.slots.entry(node.clone()).or_default();
    let key = AttachmentKey { volume, node };
    with_slot(&key, record, &mut store.ctx, f);
    // A create told the object's place before the watch does.
    let object = record.slots.get(&key.node).and_then(|slot| slot.object.as_ref());
    if let Some(object) = object
        && store.attachments.get(&object.name).is_none_or(|indexed| indexed.uid != object.uid)
    {
        let generation = store.lists.get(&super::event::Kind::Attachment).copied().unwrap_or(0);
        let indexed = super::store::Indexed { key, uid: object.uid.clone(), generation };
        store.attachments.insert(object.name.clone(), indexed);
    }
}

fn persistent_volume_written(store: &mut Store, volume: VolumeKey, outcome: Outcome) {
    store.ctx.persistent_volume_writes.remove(&volume);
    store.ctx.dirty_volumes.insert(volume.clone());
    match outcome.result {
        CallResult::Done(Answer::PersistentVolume(object)) => {
            store.ctx.backoff.clear(&BackoffKey::PersistentVolume(volume));
            let Some(object) = object else { return };
            store.ctx.desired.ingest(&WatchEvent::Applied(Object::PersistentVolume(*object)));
        }
        CallResult::Done(_) => {}
        _ => {
            let key = BackoffKey::PersistentVolume(volume.clone());
            let at = store.ctx.backoff.failed(&key, Operation::PersistentVolume, Pace::Fast, outcome.ended.monotonic);
            store.ctx.wake_volume(&volume, at, "backoff over");
        }
    }
}

/// A failed one is noticed again with the next read of the volume.
fn placed(store: &mut Store, volume: VolumeKey, outcome: Outcome) {
    store.ctx.placements.ended(&outcome.result, outcome.ended.monotonic);
    store.ctx.dirty_volumes.insert(volume);
    if let CallResult::Done(Answer::PersistentVolume(Some(object))) = outcome.result {
        store.ctx.desired.ingest(&WatchEvent::Applied(Object::PersistentVolume(*object)));
    }
}

/// What the instances' states say besides is not wasted.
fn devices(store: &mut Store, end: End<InstanceReading>) {
    for reading in end.shown.iter().flatten() {
        let news = store.ctx.syncer.states.notice(&reading.id, &reading.state, end.began);
        look_at(store, news);
    }
    let asked = end.asked.clone();
    store.ctx.syncer.instances.absorb(end);
    if !store.unresolved.is_empty() {
        resolve_again(store);
        unresolved::looked(&mut store.ctx, &store.unresolved, &asked);
    }
    dirty_waiting(store, &asked);
}

/// What is initialized stays so. Nobody is asked for again whose attachment does not wait for it any more.
fn volume_statuses(store: &mut Store, end: End<VolumeStatusReading>) {
    let asked = end.asked.clone();
    for key in store.ctx.syncer.volume_statuses.absorb(end).iter().map(VolumeKey::ebs) {
        if let Some(volume) = store.volumes.get_mut(&key) {
            volume.initialized = true;
            store.ctx.dirty_volumes.insert(key);
        }
    }
    for id in asked {
        let slots = store.volumes.get(&VolumeKey::ebs(&id)).into_iter().flat_map(|volume| volume.slots.values());
        let mut reasons = slots.filter_map(|slot| slot.blocked.as_ref()).map(|blocked| &blocked.reason);
        if !reasons.any(|reason| *reason == BlockedReason::Initializing) {
            store.ctx.syncer.volume_statuses.forget(&id);
        }
    }
}

/// Device tables learn from what a read shows, and the volume is looked at; neither, when a sweep shows what is known
/// already and nobody waits for it.
fn absorb_sighting(store: &mut Store, sighting: Sighting) {
    let Sighting { id, mut sight, began, by } = sighting;
    if let Sight::Seen(volume) = &mut sight {
        volume_guard::keep_needed(&mut volume.tags, &store.ctx.settings.volume_guard);
    }
    let id = &id;
    let key = VolumeKey::ebs(id);
    if !store.volumes.contains_key(&key) {
        // Nothing is kept of a volume that nobody wants and that is attached nowhere.
        let is_attached = matches!(&sight, Sight::Seen(volume) if !volume.attachments.is_empty());
        if !is_attached || !store.ctx.syncer.has_place(id) {
            if let Sight::Seen(volume) = &sight {
                persistent_volume::notice(&key, &volume.zone, &mut store.ctx);
            }
            return;
        }
    }
    let volume = store.volumes.entry(key.clone()).or_default();
    // Most reads show what the last one showed: then nothing is gone.
    let before = volume.readings.last_seen().map(|seen| &seen.attachments);
    let before = before.filter(|before| *before != attachments_of(&sight)).cloned().unwrap_or_default();
    let last = volume.readings.began();
    let absorbed = volume.readings.absorb(sight, began, &store.ctx.policy);
    if let Some(last) = last.filter(|_| absorbed == Absorbed::Agrees && volume.readings.missing_since().is_some())
        && store.ctx.syncer.has_found_any_between(last, began)
    {
        volume.readings.miss_in_company();
    }
    if by != AskedBy::Operation && absorbed != Absorbed::IsNews {
        return;
    }
    store.ctx.dirty_volumes.insert(key);
    let seen = volume.readings.last_seen();
    let instances = &mut store.ctx.syncer.instances;
    for attachment in seen.into_iter().flat_map(|seen| &seen.attachments) {
        if let (Some(instance), Some(device)) = (&attachment.instance, &attachment.device)
            && attachment.state != AttachmentState::Detached
        {
            instances.record(instance).devices.attachment_seen(id, device);
        }
    }
    let mut freed = Vec::new();
    for instance in before.into_iter().filter_map(|attachment| attachment.instance) {
        if seen.and_then(|volume| attachment_on(volume, &instance)).is_none() {
            let devices = &mut instances.record(&instance).devices;
            devices.attachment_gone(id);
            freed.push(instance.clone());
            // A VolumeAttachment that still records the name keeps it, or two of one node would share a device path.
            let objects = volume.slots.values().filter(|slot| slot.object.is_some());
            let mut records = objects.filter_map(|slot| slot.recorded.as_ref());
            if let Some(recorded) = records.find(|recorded| recorded.instance == instance) {
                devices.reserve(id, recorded.device.clone(), None);
            }
        }
    }
    for instance in &freed {
        reconciler::freed(instance, &mut store.ctx);
    }
}

fn attachments_of(sight: &Sight) -> &[AttachmentReading] {
    match sight {
        Sight::Seen(volume) => &volume.attachments,
        Sight::Missing => &[],
    }
}

/// Something is new about a machine on which these volumes are: they are looked at, and so is whatever else is on the
/// machine's node; what EC2 showed of them may be old now.
fn look_at(store: &mut Store, news: BTreeSet<VolumeKey>) {
    let ctx = &mut store.ctx;
    let now = ctx.now.monotonic;
    for key in &news {
        ctx.want_read(key, now);
        let nodes = store.volumes.get(key).into_iter().flat_map(|volume| volume.slots.iter());
        for (node, slot) in nodes {
            if slot.instance().is_some_and(|instance| ctx.syncer.states.is_terminated(instance)) {
                ctx.dirty_volumes
                    .extend(ctx.nodes.get(node).into_iter().flat_map(|record| record.volumes.iter()).cloned());
                ctx.dirty_volumes.extend(ctx.desired.wanted_on(node).cloned());
            }
        }
    }
    ctx.dirty_volumes.extend(news);
}

/// Attaches that wait for these instances are looked at.
fn dirty_waiting(store: &mut Store, instances: &[InstanceId]) {
    let ctx = &mut store.ctx;
    let nodes = instances.iter().filter_map(|instance| ctx.node_of_instance.get(instance));
    let volumes = nodes.filter_map(|node| ctx.nodes.get(node)).flat_map(|record| &record.volumes);
    ctx.dirty_volumes.extend(volumes.cloned());
}
