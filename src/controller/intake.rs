//! Watch events of nodes, CSINodes and VolumeAttachments: how the actual state takes them in.
//!
//! Flow: `Controller::ingest` and the outcomes of writes come here. A list is marked and swept in place by generation;
//! absence proves nothing until its End. An older version never replaces a newer one. Must never decide anything.

use std::collections::BTreeMap;

use super::actual::in_flight::DEAD_AFTER;
use super::actual::nodes::{Acknowledged, Gone, NodeRecord};
use super::actual::volume::Volume;
use super::context::Context;
use super::event::{Kind, Object, ObjectKey, Role, WatchEvent};
use super::reconciler::{self, outcome};
use super::report::node_status::HOLD_AFTER_FOREIGN_WRITE;
use super::store::{Indexed, Store};
use super::unresolved::Unresolved;
use crate::model::attachment::{AttachmentSource, VolumeAttachment};
use crate::model::ids::{
    AttachmentKey, AttachmentName, DriverName, InstanceId, NodeName, Uid, UniqueVolumeName, VolumeKey,
};
use crate::model::node::{CsiNode, Node, UnknownMarks};

/// Kinds kept by the actual state.
const KINDS: [Kind; 3] = [Kind::Node, Kind::CsiNode, Kind::Attachment];

/// Takes in a watch event.
pub fn watch(store: &mut Store, event: WatchEvent) {
    match event {
        WatchEvent::Begin { kind, generation } if KINDS.contains(&kind) => {
            store.lists.insert(kind, generation);
        }
        WatchEvent::End { kind, generation } if store.lists.get(&kind) == Some(&generation) => {
            sweep(store, kind, generation);
            store.synced.insert(kind);
            store.ctx.actual_synced = KINDS.iter().all(|kind| store.synced.contains(kind));
            dirty_everything(store);
        }
        WatchEvent::Item { generation, object } => apply(store, object, generation, true),
        WatchEvent::Applied(object) => {
            let kind = kind_of(&object);
            let generation = kind.and_then(|kind| store.lists.get(&kind)).copied().unwrap_or(0);
            apply(store, object, generation, false);
        }
        WatchEvent::Deleted(key) => deleted(store, key),
        WatchEvent::Begin { .. } | WatchEvent::End { .. } => {}
    }
}

fn kind_of(object: &Object) -> Option<Kind> {
    Some(match object {
        Object::Node(_) => Kind::Node,
        Object::CsiNode(_) => Kind::CsiNode,
        Object::Attachment(_) => Kind::Attachment,
        _ => return None,
    })
}

fn apply(store: &mut Store, object: Object, generation: u64, listed: bool) {
    match object {
        Object::Node(node) => {
            let name = node.name.clone();
            apply_node(store, node);
            store.ctx.nodes.entry(name).or_default().generation = generation;
        }
        Object::CsiNode(csi) => apply_csi_node(&mut store.ctx, csi, generation),
        Object::Attachment(attachment) => apply_attachment(store, attachment, generation, listed),
        // Unknown is not empty: what was known of it stays, and it counts as listed.
        Object::Unreadable(ObjectKey::Node(name, _)) => {
            store.ctx.nodes.entry(name).or_default().generation = generation;
        }
        Object::Unreadable(ObjectKey::CsiNode(name)) => {
            if let Some(csi) = &mut store.ctx.nodes.entry(name).or_default().csi {
                csi.1 = generation;
            }
        }
        Object::Unreadable(ObjectKey::Attachment(name, _)) => {
            if let Some(indexed) = store.attachments.get_mut(&name) {
                indexed.generation = generation;
            }
        }
        _ => {}
    }
}

fn deleted(store: &mut Store, key: ObjectKey) {
    match key {
        ObjectKey::Node(name, uid) => {
            let is_it = |record: &NodeRecord| record.object.as_ref().is_some_and(|node| node.uid == uid);
            if store.ctx.nodes.get(&name).is_some_and(is_it) {
                node_gone(&mut store.ctx, &name);
            }
        }
        ObjectKey::CsiNode(name) => csi_gone(&mut store.ctx, &name),
        ObjectKey::Attachment(name, uid) => attachment_gone(store, &name, &uid),
        _ => {}
    }
}

fn sweep(store: &mut Store, kind: Kind, generation: u64) {
    match kind {
        Kind::Node => {
            let gone = store.ctx.nodes.iter().filter(|(_, r)| r.object.is_some() && r.generation < generation);
            for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                node_gone(&mut store.ctx, &name);
            }
        }
        Kind::CsiNode => {
            let gone = store.ctx.nodes.iter().filter(|(_, r)| r.csi.as_ref().is_some_and(|(_, g)| *g < generation));
            for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
                csi_gone(&mut store.ctx, &name);
            }
        }
        Kind::Attachment => {
            let gone = store.attachments.iter().filter(|(_, indexed)| indexed.generation < generation);
            let gone: Vec<_> = gone.map(|(name, indexed)| (name.clone(), indexed.uid.clone())).collect();
            for (name, uid) in gone {
                let key = store.attachments.get(&name).map(|indexed| indexed.key.clone());
                attachment_gone(store, &name, &uid);
                // A list may be older than an answer: what is only absent from it may yet come back.
                if let Some(volume) = key.and_then(|key| store.volumes.get_mut(&key.volume)) {
                    volume.ended.remove(&uid);
                }
            }
            let lost = store.unresolved.extract_if(.., |_, unresolved| unresolved.generation < generation);
            for node in lost.map(|(_, unresolved)| unresolved.object.node).collect::<Vec<_>>() {
                note_listed_only(store, &node);
            }
        }
        _ => {}
    }
}

fn dirty_everything(store: &mut Store) {
    store.ctx.dirty_volumes.extend(store.volumes.keys().cloned());
    store.ctx.dirty_volumes.extend(store.ctx.desired.volumes().cloned());
    store.ctx.dirty_nodes.extend(store.ctx.nodes.keys().cloned());
}

/// Leading begins, every watch has synced, or a guard that ended too soon for what was to be sent is renewed: everything is
/// looked at.
pub fn everything_known(store: &mut Store) {
    dirty_everything(store);
}

/// Leading began: of every VolumeAttachment that is Terminating or not attached, calls of an earlier leader may be under
/// way until W later, also of those that were seen while waiting for the lease (rule 7).
pub fn leading_began(store: &mut Store) {
    let until = store.ctx.lease_start().map(|start| start + DEAD_AFTER);
    for slot in store.volumes.values_mut().flat_map(|volume| volume.slots.values_mut()) {
        slot.inherited_until = until.filter(|_| slot.object.as_ref().is_none_or(reconciler::may_have_calls));
    }
    let now = store.ctx.now.monotonic;
    store.ctx.syncer.lease_got(now);
    everything_known(store);
}

/// Takes in a Node as a watch, a write or a live read shows it.
pub fn apply_node(store: &mut Store, node: Node) {
    let ctx = &mut store.ctx;
    let name = node.name.clone();
    let record = ctx.nodes.entry(name.clone()).or_default();
    let known = record.object.as_ref();
    if known.is_some_and(|known| node.resource_version.is_older_than(&known.resource_version)) {
        return;
    }
    let instance = node.provider_id.as_ref().and_then(|id| id.instance()).cloned();
    if let Some(known) = known.filter(|known| known.uid != node.uid) {
        let was = known.provider_id.as_ref().and_then(|id| id.instance()).cloned();
        let not_ready_since = (!known.ready.is_true).then_some(known.ready.since).flatten();
        record.gone = Some(Gone { at: ctx.now, instance: was, not_ready_since });
        record.acknowledged = None;
        record.removed.clear();
        record.suspect.clear();
    }
    if record.gone.as_ref().is_some_and(|gone| gone.instance == instance) {
        record.gone = None;
    }
    let news = known.map_or(Some(NodeNews::Everything), |known| news_of(known, &node));
    note_foreign_write(ctx, &name, &node);
    let record = ctx.nodes.entry(name.clone()).or_default();
    if let Some(was) = record.object.as_ref().and_then(|known| known.provider_id.as_ref()?.instance().cloned())
        && Some(&was) != instance.as_ref()
    {
        ctx.node_of_instance.remove(&was);
    }
    if let Some(instance) = instance {
        ctx.node_of_instance.insert(instance, name.clone());
    }
    if record.hung_at.as_ref().is_some_and(|hung| hung.is_older_than(&node.resource_version)) {
        // A newer version voids every patch that was made for an older one.
        record.hung_at = None;
    }
    record.object = Some(node);
    if let Some(news) = news {
        node_changed(store, &name, news);
    }
}

/// What changed of a Node that a decision could rest on (the heartbeat alone is nothing).
enum NodeNews {
    /// What is told of these volumes only.
    Volumes(Vec<VolumeKey>),
    /// Something that counts for every volume of the node.
    Everything,
}

fn news_of(known: &Node, node: &Node) -> Option<NodeNews> {
    let same_node = known.uid == node.uid
        && known.managed == node.managed
        && known.provider_id == node.provider_id
        && known.zone == node.zone
        && known.ready.is_true == node.ready.is_true
        && known.ready.since == node.ready.since
        && known.out_of_service == node.out_of_service
        && known.boot_id == node.boot_id;
    let mut names: Vec<&UniqueVolumeName> = match (&known.in_use_unknown, &node.in_use_unknown) {
        _ if !same_node => return Some(NodeNews::Everything),
        (UnknownMarks::Marks(before), UnknownMarks::Marks(now)) => differing(before, now),
        (before, now) if before == now => Vec::new(),
        _ => return Some(NodeNews::Everything),
    };
    names.extend(known.volumes_in_use.symmetric_difference(&node.volumes_in_use));
    names.extend(differing(&known.volumes_attached, &node.volumes_attached));
    let volumes = || names.iter().filter_map(|name| name.volume_key()).cloned().collect();
    (!names.is_empty()).then(|| NodeNews::Volumes(volumes()))
}

/// The names of which two lists do not say the same.
fn differing<'a, T: PartialEq>(
    before: &'a BTreeMap<UniqueVolumeName, T>,
    now: &'a BTreeMap<UniqueVolumeName, T>,
) -> Vec<&'a UniqueVolumeName> {
    if before == now {
        return Vec::new();
    }
    let went = before.iter().filter(|(name, value)| now.get(*name) != Some(*value));
    let came = now.iter().filter(|(name, _)| !before.contains_key(*name));
    went.chain(came).map(|(name, _)| name).collect()
}

/// Rule 12: a list that differs from our last acknowledged one under the same UID was written by another: the node is
/// held, and what changed is marked.
fn note_foreign_write(ctx: &mut Context, name: &NodeName, node: &Node) {
    let now = ctx.now.monotonic;
    let record = ctx.nodes.entry(name.clone()).or_default();
    let Some(acknowledged) = &record.acknowledged else { return };
    if acknowledged.uid != node.uid
        || node.resource_version.is_older_than(&acknowledged.resource_version)
        || node.volumes_attached == acknowledged.list
    {
        return;
    }
    // A patch of ours that is under way, or whose outcome was unknown, explains its own list.
    let ours = record.patch.as_ref().is_some_and(|patch| patch.list == node.volumes_attached);
    let unknown = record.hung_at.is_some();
    let list = node.volumes_attached.clone();
    if !ours && !unknown {
        let changed = acknowledged.list.keys().filter(|known| !list.contains_key(*known));
        let changed: Vec<_> =
            changed.chain(list.keys().filter(|now| !acknowledged.list.contains_key(*now))).cloned().collect();
        record.suspect.extend(changed);
        record.held_until = Some(now + HOLD_AFTER_FOREIGN_WRITE);
        ctx.notes.foreign_write(name, &node.uid, HOLD_AFTER_FOREIGN_WRITE, now);
    }
    record.acknowledged =
        Some(Acknowledged { uid: node.uid.clone(), resource_version: node.resource_version.clone(), list });
}

/// The node's volumes of which something is new are looked at; names it lists of which no VolumeAttachment is known get a
/// slot (rule 9).
fn node_changed(store: &mut Store, name: &NodeName, news: NodeNews) {
    let ctx = &mut store.ctx;
    let Some(record) = ctx.nodes.get(name) else { return };
    ctx.dirty_nodes.insert(name.clone());
    let Some(node) = &record.object else { return };
    let instance = node.provider_id.as_ref().and_then(|id| id.instance());
    match news {
        // A device name that is kept for one volume may be what another waits for.
        NodeNews::Volumes(volumes) if !instance.is_some_and(|id| ctx.syncer.instances.has_blocked_names(id)) => {
            let known = |key: &VolumeKey| record.volumes.contains(key) || !ctx.desired.wants(key).is_empty();
            ctx.dirty_volumes.extend(volumes.into_iter().filter(known));
        }
        NodeNews::Volumes(_) | NodeNews::Everything => {
            ctx.dirty_volumes.extend(record.volumes.iter().cloned());
            ctx.dirty_volumes.extend(ctx.desired.wanted_on(name).cloned());
        }
    }
    note_listed_only(store, name);
}

/// Names that the node lists, and of which no VolumeAttachment is known, get a slot (rule 9).
fn note_listed_only(store: &mut Store, name: &NodeName) {
    let Some(record) = store.ctx.nodes.get(name) else { return };
    let listed = record.object.iter().flat_map(|node| node.volumes_attached.keys());
    let strangers: Vec<VolumeKey> = listed
        .filter_map(|listed| listed.volume_key())
        .filter(|key| !key.driver.is_ebs() || key.aws_volume_id().is_some())
        .filter(|key| !record.volumes.contains(key))
        // Its VolumeAttachment may be one of those whose PersistentVolume is not known (yet).
        .filter(|key| {
            let of = AttachmentKey { volume: (*key).clone(), node: name.clone() };
            store.unresolved.is_empty() || !store.unresolved.contains_key(&AttachmentName::of(&of))
        })
        .cloned()
        .collect();
    for key in strangers {
        let volume = store.volume(&key);
        volume.listed_only.insert(name.clone());
        volume.slots.entry(name.clone()).or_default();
        store.ctx.nodes.entry(name.clone()).or_default().volumes.insert(key);
    }
}

fn node_gone(ctx: &mut Context, name: &NodeName) {
    let now = ctx.now;
    let record = ctx.nodes.entry(name.clone()).or_default();
    let Some(node) = record.object.take() else { return };
    let instance = node.provider_id.as_ref().and_then(|id| id.instance()).cloned();
    if let Some(instance) = &instance {
        ctx.node_of_instance.remove(instance);
    }
    let not_ready_since = (!node.ready.is_true).then_some(node.ready.since).flatten();
    record.gone = Some(Gone { at: now, instance, not_ready_since });
    record.acknowledged = None;
    record.removed.clear();
    record.suspect.clear();
    record.held_until = None;
    ctx.dirty_nodes.insert(name.clone());
    ctx.dirty_volumes.extend(record.volumes.iter().cloned());
    ctx.dirty_volumes.extend(ctx.desired.wanted_on(name).cloned());
}

fn apply_csi_node(ctx: &mut Context, csi: CsiNode, generation: u64) {
    let name = csi.name.clone();
    let record = ctx.nodes.entry(name.clone()).or_default();
    let changed = record.csi.as_ref().is_none_or(|(known, _)| *known != csi);
    let count_before = record.csi.as_ref().map(|(known, _)| known.ebs_allocatable);
    let grew = count_before.is_some_and(|before| csi.ebs_allocatable > before);
    record.csi_ebs = csi.drivers.get(&DriverName::ebs()).and_then(|id| InstanceId::parse(id).ok());
    record.csi = Some((csi, generation));
    if changed {
        ctx.dirty_volumes.extend(record.volumes.iter().cloned());
        ctx.dirty_volumes.extend(ctx.desired.wanted_on(&name).cloned());
    }
    if let Some(instance) = record.csi_ebs.as_ref().filter(|_| grew) {
        // Its node plugin counted again, and sees more room.
        ctx.full.forget(instance);
    }
}

fn csi_gone(ctx: &mut Context, name: &NodeName) {
    let Some(record) = ctx.nodes.get_mut(name) else { return };
    record.csi = None;
    record.csi_ebs = None;
    ctx.dirty_nodes.insert(name.clone());
    ctx.dirty_volumes.extend(record.volumes.iter().cloned());
}

/// Takes in a VolumeAttachment.
fn apply_attachment(store: &mut Store, attachment: VolumeAttachment, generation: u64, listed: bool) {
    let Some(key) = key_of(store, &attachment) else {
        let name = attachment.name.clone();
        let unresolved = match store.unresolved.remove(&name) {
            Some(known) if known.object.uid == attachment.uid => known.seen_again(attachment, generation),
            _ => Unresolved::new(attachment, generation),
        };
        store.unresolved.insert(name, unresolved);
        return;
    };
    store.unresolved.remove(&attachment.name);
    place(store, key, attachment, generation, listed);
}

/// Volumes of VolumeAttachments that could not be told before are tried again (a PersistentVolume may have come).
pub fn resolve_again(store: &mut Store) {
    for (name, unresolved) in std::mem::take(&mut store.unresolved) {
        match key_of(store, &unresolved.object) {
            Some(key) => place(store, key, unresolved.object, unresolved.generation, true),
            None => {
                store.unresolved.insert(name, unresolved);
            }
        }
    }
}

/// Volume and node of a VolumeAttachment: by its source; else by what is known under its name; else by its name, which is
/// a hash of handle, driver and node, recomputed for each volume the node is known to have, and for each that was seen mapped
/// on the instance frozen in it.
fn key_of(store: &Store, attachment: &VolumeAttachment) -> Option<AttachmentKey> {
    if let Some(indexed) = store.attachments.get(&attachment.name) {
        return Some(indexed.key.clone());
    }
    let by_source = match &attachment.source {
        AttachmentSource::PersistentVolume(name) => {
            store.ctx.desired.persistent_volume(name).and_then(|volume| store.ctx.desired.volume_of(volume).ok())
        }
        AttachmentSource::Inline { driver, handle } => {
            Some(VolumeKey { handle: handle.clone(), driver: driver.clone() })
        }
        AttachmentSource::Unreadable => None,
    };
    if let Some(volume) = by_source {
        return Some(AttachmentKey { volume, node: attachment.node.clone() });
    }
    let record = store.ctx.nodes.get(&attachment.node);
    let node = record.and_then(|record| record.object.as_ref());
    let lists = node.into_iter().flat_map(|node| node.volumes_attached.keys().chain(&node.volumes_in_use));
    let known = record.into_iter().flat_map(|record| &record.volumes);
    let instance = attachment.instance();
    let mapped = instance.iter().flat_map(|instance| store.ctx.syncer.instances.mapped_on(instance));
    lists
        .filter_map(|name| name.volume_key())
        .chain(known)
        .cloned()
        .chain(mapped.map(VolumeKey::ebs))
        .map(|volume| AttachmentKey { volume, node: attachment.node.clone() })
        .find(|key| AttachmentName::of(key) == attachment.name)
}

fn place(store: &mut Store, key: AttachmentKey, attachment: VolumeAttachment, generation: u64, listed: bool) {
    let (lease_start, now) = (store.ctx.lease_start(), store.ctx.now);
    let ours = attachment.node_uid.is_some();
    let driver_is_ebs = attachment.driver.is_ebs();
    let indexed = Indexed { key: key.clone(), uid: attachment.uid.clone(), generation };
    let volume = store.volume(&key.volume);
    if volume.ended.contains_key(&attachment.uid) {
        return;
    }
    let slot = volume.slots.entry(key.node.clone()).or_default();
    if let Some(known) = &slot.object
        && known.uid == attachment.uid
        && attachment.resource_version.is_older_than(&known.resource_version)
    {
        // Older than what is known, but listed: it is there.
        store.attachments.insert(attachment.name.clone(), indexed);
        return;
    }
    let is_new = slot.object.as_ref().is_none_or(|known| known.uid != attachment.uid);
    let expected = slot.write.is_some() || slot.unsettled || slot.heal.is_some();
    volume.listed_only.remove(&key.node);
    store.attachments.insert(attachment.name.clone(), indexed);
    let slot = store.volumes.entry(key.volume.clone()).or_default().slots.entry(key.node.clone()).or_default();
    let replaced = slot.object.as_ref().is_some_and(|known| known.uid != attachment.uid);
    // Beside kube-controller-manager one that comes by an event after the first list was made under this lease: no earlier
    // leader can have called anything under it.
    let ordered = !store.ctx.settings.roles.contains(&Role::AttachDetach);
    let made_since = ordered && !listed && store.ctx.actual_synced && attachment.deleting.is_none();
    let inherits_since = lease_start.filter(|_| !made_since);
    reconciler::observe(slot, attachment, inherits_since, now.wall);
    if let (Some(recorded), Some(id)) = (&slot.recorded, key.volume.aws_volume_id()) {
        let devices = &mut store.ctx.syncer.instances.record(&recorded.instance).devices;
        devices.reserve(&id, recorded.device.clone(), None);
    }
    if replaced {
        // What was wished for the one before is not this one's.
        store.ctx.unwish(&key.node, &key.volume.unique_name());
    }
    let record = store.ctx.nodes.entry(key.node.clone()).or_default();
    record.volumes.insert(key.volume);
    let by_another = is_new && !expected && !listed && !ours && driver_is_ebs;
    if by_another && lease_start.is_some() && store.ctx.settings.roles.contains(&Role::AttachDetach) {
        record.held_until = Some(now.monotonic + HOLD_AFTER_FOREIGN_WRITE);
    }
}

fn attachment_gone(store: &mut Store, name: &AttachmentName, uid: &Uid) {
    if store.unresolved.get(name).is_some_and(|unresolved| unresolved.object.uid == *uid)
        && let Some(unresolved) = store.unresolved.remove(name)
    {
        // What its node lists, nothing explains any more.
        note_listed_only(store, &unresolved.object.node);
    }
    let Some(indexed) = store.attachments.get(name).cloned() else { return };
    let key = indexed.key;
    let volume = store.volumes.entry(key.volume.clone()).or_default();
    if indexed.uid == *uid {
        store.attachments.remove(name);
    }
    store.ctx.dirty_volumes.insert(key.volume.clone());
    let current = volume.slots.get(&key.node).and_then(|slot| slot.object.as_ref()).is_some_and(|o| o.uid == *uid);
    if current {
        with_slot(&key, volume, &mut store.ctx, |slot, work| {
            outcome::vanish(slot, work);
        });
    }
}

/// Runs `f` on a slot with everything beside it.
pub fn with_slot(
    key: &AttachmentKey,
    volume: &mut Volume,
    ctx: &mut Context,
    f: impl FnOnce(&mut super::actual::slot::Slot, &mut reconciler::Work<'_>),
) {
    let Some(mut slot) = volume.slots.remove(&key.node) else { return };
    let id = key.volume.aws_volume_id();
    let name = key.volume.unique_name();
    let mut work = reconciler::Work { key: &key.volume, id: id.as_ref(), name: &name, node: &key.node, volume, ctx };
    f(&mut slot, &mut work);
    volume.slots.insert(key.node.clone(), slot);
}
