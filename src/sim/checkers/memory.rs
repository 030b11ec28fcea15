//! What the checkers remember between two looks: the last state of what can only be judged by its change, fences that
//! were up a moment ago, and whom to blame for what is gone.
//!
//! Owns no opinion: the checkers decide. Must stay small: one entry for each node, VolumeAttachment and volume.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Scope;
use super::sends::{Pardon, Sends};
use super::world::{Actor, Ec2Attachment, Ec2CallKind, MountKey, News, World, instance_of};
use crate::controller::policy::ForceDetach;
use crate::model::attachment::{AttachmentSource, VolumeAttachment};
use crate::model::claim::{PersistentVolume, PersistentVolumeSource};
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentName, AwsVolumeId, DriverName, InstanceId, KubernetesVolumeId, NodeName, PersistentVolumeName, Uid,
    UniqueVolumeName, VolumeKey,
};
use crate::model::node::Node;
use crate::model::time::{Monotonic, Wall};
use crate::model::volume::InstanceState;

/// How long a fence excuses after it fell: a decision on a live read (10 s), and a delete that lands late (W = 70 s).
const FENCE_EXCUSES: Duration = Duration::from_secs(80);

/// What is remembered of a Node.
#[derive(Clone, Debug)]
pub(super) struct SeenNode {
    pub(super) uid: Uid,
    pub(super) instance: Option<InstanceId>,
    pub(super) listed: BTreeSet<UniqueVolumeName>,
    /// When this very object was first seen.
    pub(super) since: Monotonic,
    tainted: bool,
    /// Whether the force policy lets the machine's volumes go after the timeout.
    may_be_forced: bool,
    not_ready_since: Option<Wall>,
}

/// What is remembered of a VolumeAttachment.
#[derive(Clone, Debug)]
pub(super) struct SeenAttachment {
    pub(super) volume: Option<VolumeKey>,
    pub(super) node: NodeName,
    pub(super) instance: Option<InstanceId>,
    pub(super) device: Option<DeviceName>,
    uid: Uid,
    /// When this very object was made; `None`: before the first look.
    pub(super) made: Option<Monotonic>,
    says_attached: bool,
}

/// What is remembered of a VolumeAttachment that is gone.
#[derive(Clone, Debug)]
pub(super) struct GoneAttachment {
    pub(super) device: Option<DeviceName>,
    pub(super) at: Monotonic,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) nodes: BTreeMap<NodeName, SeenNode>,
    pub(super) attachments: BTreeMap<AttachmentName, SeenAttachment>,
    by_instance: BTreeMap<InstanceId, BTreeSet<AttachmentName>>,
    by_node: BTreeMap<NodeName, BTreeSet<AttachmentName>>,
    node_of: BTreeMap<InstanceId, NodeName>,
    handles: BTreeMap<PersistentVolumeName, VolumeKey>,
    fence_fell: BTreeMap<InstanceId, Monotonic>,
    /// Since when no Node names the instance, or the one that did was not Ready.
    no_node_since: BTreeMap<InstanceId, Wall>,
    /// Volumes of which others than attachd ordered the detach from an instance.
    ordered: BTreeSet<(AwsVolumeId, InstanceId)>,
    /// When the Node of an instance was last seen not Ready, tainted, gone, or without its volumes in use.
    was_silent: BTreeMap<InstanceId, Monotonic>,
    /// By volume and generation.
    pub(super) pardons: BTreeMap<(AwsVolumeId, u64), Pardon>,
    /// The highest generation seen of each volume.
    pub(super) generations: BTreeMap<AwsVolumeId, u64>,
    /// Attachments whose ending by attachd was judged already.
    pub(super) endings: BTreeSet<(AwsVolumeId, u64)>,
    /// Attachments that ended otherwise than by attachd, last time.
    pub(super) lost: BTreeMap<(AwsVolumeId, InstanceId), Monotonic>,
    /// VolumeAttachments whose finalizer a person took, by volume and instance, last time.
    pub(super) robbed: BTreeMap<(AwsVolumeId, InstanceId), Monotonic>,
    /// VolumeAttachments whose status came to say attached, in this look.
    pub(super) newly_stated: Vec<AttachmentName>,
    /// The last VolumeAttachment that went, by volume and instance.
    pub(super) gone: BTreeMap<(AwsVolumeId, InstanceId), GoneAttachment>,
    /// Attachments whose end attachd ordered with no fence up.
    pub(super) unfenced: BTreeSet<(AwsVolumeId, u64)>,
    /// What is remembered of sends.
    pub(super) sends: Sends,
    /// Entries of a Node's list that another than attachd wrote last.
    pub(super) listed_by_others: BTreeSet<(NodeName, UniqueVolumeName)>,
    /// DetachVolume in flight at the last look: the earliest send.
    pub(super) detaches_in_flight: BTreeMap<(AwsVolumeId, InstanceId), Monotonic>,
}

impl Memory {
    /// Takes in objects and fences, before anything of this look is judged.
    pub(super) fn see_objects(&mut self, world: &World, scope: &Scope) {
        self.newly_stated.clear();
        for name in &scope.attachments {
            match world.attachments.get(name) {
                Some(object) => self.see_attachment(world, object),
                // Kept until `remember`: what ended in this look may still need it.
                None => continue,
            }
        }
        for name in &scope.nodes {
            self.see_fence(world, name);
        }
        for news in &world.news {
            match news {
                News::FinalizerGone { object, by: Actor::Person } => {
                    if let (Some(volume), Some(instance)) = (self.ebs_volume_of(world, object), object.instance()) {
                        self.robbed.insert((volume, instance), world.now.monotonic);
                    }
                }
                News::FinalizerGone { object, by } if by.is_attachd() => self.see_end_after_loss(world, object, *by),
                News::AttachmentEnded { volume, attachment, by } if !by.is_attachd() => {
                    self.lost.insert((volume.clone(), attachment.instance.clone()), world.now.monotonic);
                }
                News::ListWritten { node, by } => self.see_list(world, node, *by),
                News::DeletionOrdered { name, by } if !by.is_attachd() => {
                    let seen = self.attachments.get(name);
                    let volume = seen.and_then(|seen| seen.volume.as_ref()?.aws_volume_id());
                    if let (Some(volume), Some(instance)) = (volume, seen.and_then(|seen| seen.instance.clone())) {
                        self.ordered.insert((volume, instance));
                    }
                }
                News::NodeRead { node } => self.see_node_read(world, node),
                News::AttachmentCallSent { kind, name, at, .. } => {
                    let fence = self.fence_by_live_read(world, name);
                    self.sends.attachment_call(name, *kind, *at, fence);
                }
                News::ClaimGone { claim } => self.sends.claim_gone(claim, world.now.monotonic),
                _ => {}
            }
        }
    }

    fn see_attachment(&mut self, world: &World, object: &VolumeAttachment) {
        let volume = self.volume_of(world, object);
        let instance = object.instance();
        let before = self.attachments.get(&object.name);
        if let Some(old) = before.and_then(|seen| seen.instance.clone())
            && Some(&old) != instance.as_ref()
        {
            remove_from(&mut self.by_instance, &old, &object.name);
        }
        if let (Some(instance), None) = (&instance, object.deleting)
            && let Some(volume) = volume.as_ref().and_then(VolumeKey::aws_volume_id)
        {
            self.ordered.remove(&(volume, instance.clone()));
        }
        if before.is_none_or(|seen| seen.instance != instance || seen.node != object.node) {
            if let Some(instance) = &instance {
                self.by_instance.entry(instance.clone()).or_default().insert(object.name.clone());
            }
            self.by_node.entry(object.node.clone()).or_default().insert(object.name.clone());
        }
        let before = before.filter(|seen| seen.uid == object.uid);
        let made = match before {
            Some(seen) => seen.made,
            None => world.news.iter().find_map(|news| match news {
                News::AttachmentMade { name, .. } if *name == object.name => Some(world.now.monotonic),
                _ => None,
            }),
        };
        let says_attached = object.status.attached;
        if says_attached && before.is_some_and(|seen| !seen.says_attached) {
            self.newly_stated.push(object.name.clone());
        }
        let (uid, node, device) = (object.uid.clone(), object.node.clone(), object.device.clone());
        let seen = SeenAttachment { volume, node, instance, device, uid, made, says_attached };
        self.attachments.insert(object.name.clone(), seen);
    }

    fn see_node_read(&mut self, world: &World, name: &NodeName) {
        let node = world.nodes.get(name);
        // What the read shows is the taint and Ready; what EC2 says of the machine was read some time before.
        let fenced = node.is_some_and(|node| {
            let given_up = || instance_of(node).is_some_and(|instance| self.fence(world, instance).is_some());
            node.out_of_service || (!node.ready.is_true && given_up())
        });
        self.sends.node_read(name, node.and_then(instance_of).cloned(), fenced);
    }

    /// The fence that stood, for the instance of a VolumeAttachment, when its Node was last read live by attachd.
    fn fence_by_live_read(&self, world: &World, name: &AttachmentName) -> Option<Pardon> {
        let seen = self.attachments.get(name)?;
        let instance = seen.instance.as_ref()?;
        match self.sends.read_shows_fence(&seen.node, instance) {
            Some(fenced) => fenced.then_some(Pardon::Fenced),
            None if self.sends.read_shows_no_node(&seen.node, instance) => {
                let since = self.no_node_since.get(instance)?;
                let waited = world.now.wall.saturating_since(*since);
                (timed_out(world, waited) && may_be_forced(world, instance)).then_some(Pardon::FencedNodeGone)
            }
            None => None,
        }
    }

    fn see_fence(&mut self, world: &World, name: &NodeName) {
        let now = world.now.monotonic;
        let node = world.nodes.get(name);
        if let Some(before) = self.nodes.get(name).cloned()
            && let Some(instance) = before.instance.clone()
        {
            let same = node.filter(|node| instance_of(node) == Some(&instance));
            let had_timed_out =
                before.not_ready_since.is_some_and(|since| timed_out(world, world.now.wall.saturating_since(since)))
                    && before.may_be_forced;
            let fence_was_up = before.tainted || had_timed_out;
            let fence_is_up = same.is_some_and(|node| node.out_of_service || not_ready_too_long(world, node));
            if fence_was_up && !fence_is_up {
                self.fence_fell.insert(instance.clone(), now);
            }
            if same.is_none() && self.node_of.get(&instance) == Some(name) {
                self.node_of.remove(&instance);
                self.no_node_since.insert(instance, before.not_ready_since.unwrap_or(world.now.wall));
            }
        }
        if let Some(instance) = node.and_then(instance_of) {
            if let Some(since) = self.no_node_since.remove(instance)
                && timed_out(world, world.now.wall.saturating_since(since))
                && may_be_forced(world, instance)
            {
                self.fence_fell.insert(instance.clone(), now);
            }
            self.node_of.insert(instance.clone(), name.clone());
        }
        let silent =
            node.is_none_or(|node| !node.ready.is_true || node.out_of_service || node.volumes_in_use.is_empty());
        if let Some(instance) = self.nodes.get(name).and_then(|before| before.instance.clone())
            && silent
        {
            self.was_silent.insert(instance, now);
        }
    }

    fn see_list(&mut self, world: &World, name: &NodeName, by: Actor) {
        let Some(node) = world.nodes.get(name) else { return };
        let before = self.nodes.get(name).filter(|seen| seen.uid == node.uid);
        for volume in node.volumes_attached.keys() {
            let gained = before.is_none_or(|seen| !seen.listed.contains(volume));
            let entry = (name.clone(), volume.clone());
            if by.is_attachd() {
                self.listed_by_others.remove(&entry);
            } else if gained {
                self.listed_by_others.insert(entry);
            }
        }
    }

    /// Takes in the rest, after everything of this look was judged.
    pub(super) fn remember(&mut self, world: &World, scope: &Scope) {
        for name in &scope.nodes {
            let Some(node) = world.nodes.get(name) else {
                self.nodes.remove(name);
                continue;
            };
            let before = self.nodes.get(name).filter(|seen| seen.uid == node.uid);
            let seen = SeenNode {
                uid: node.uid.clone(),
                since: before.map_or(world.now.monotonic, |seen| seen.since),
                instance: instance_of(node).cloned(),
                listed: node.volumes_attached.keys().cloned().collect(),
                tainted: node.out_of_service,
                may_be_forced: instance_of(node).is_some_and(|instance| may_be_forced(world, instance)),
                not_ready_since: if node.ready.is_true { None } else { node.ready.since },
            };
            self.nodes.insert(name.clone(), seen);
        }
        for name in &scope.attachments {
            if !world.attachments.contains_key(name)
                && let Some(gone) = self.attachments.remove(name)
            {
                remove_from(&mut self.by_node, &gone.node, name);
                if let Some(instance) = &gone.instance {
                    remove_from(&mut self.by_instance, instance, name);
                    if let Some(volume) = gone.volume.as_ref().and_then(VolumeKey::aws_volume_id) {
                        let left = GoneAttachment { device: gone.device.clone(), at: world.now.monotonic };
                        self.gone.insert((volume, instance.clone()), left);
                    }
                }
            }
        }
        for id in &scope.volumes {
            let newest = world.volumes.get(id).and_then(|v| v.attachments.iter().map(|a| a.generation).max());
            if let Some(newest) = newest {
                let known = self.generations.entry(id.clone()).or_default();
                *known = (*known).max(newest);
            }
        }
        self.detaches_in_flight.clear();
        for call in world.calls_in_flight.iter().filter(|call| call.kind == Ec2CallKind::Detach) {
            let key = (call.volume.clone(), call.instance.clone());
            let earliest = self.detaches_in_flight.entry(key).or_insert(call.sent);
            *earliest = (*earliest).min(call.sent);
        }
    }

    /// Whether a person or the configured timeout fences the instance now, or did until a moment ago.
    pub(super) fn fence(&self, world: &World, instance: &InstanceId) -> Option<Pardon> {
        let now = world.now.monotonic;
        if let Some(node) = self.node(world, instance) {
            let up = node.out_of_service || not_ready_too_long(world, node);
            let fell = self.fence_fell.get(instance);
            let fell_just_now = fell.is_some_and(|at| now.saturating_since(*at) <= FENCE_EXCUSES);
            return (up || fell_just_now).then_some(Pardon::Fenced);
        }
        if self.fence_fell.get(instance).is_some_and(|at| now.saturating_since(*at) <= FENCE_EXCUSES) {
            return Some(Pardon::Fenced);
        }
        let since = self.no_node_since.get(instance)?;
        let forced = timed_out(world, world.now.wall.saturating_since(*since)) && may_be_forced(world, instance);
        forced.then_some(Pardon::FencedNodeGone)
    }

    /// Pardons the end of an attachment that others ordered, unless attachd's guard should have held it.
    pub(super) fn pardon_order(&mut self, world: &World, volume: &AwsVolumeId, attachment: &Ec2Attachment) {
        let key = (volume.clone(), attachment.instance.clone());
        let ordered = self.ordered.contains(&key);
        let name = VolumeKey::ebs(volume).unique_name();
        let guarded = self.node(world, &attachment.instance).is_some_and(|node| {
            let was_silent = self.was_silent.get(&attachment.instance);
            let fell_just_now = was_silent.is_some_and(|at| world.now.monotonic.saturating_since(*at) <= FENCE_EXCUSES);
            node.ready.is_true && !node.out_of_service && node.volumes_in_use.contains(&name) && !fell_just_now
        });
        if ordered && !guarded {
            self.pardons.insert((volume.clone(), attachment.generation), Pardon::NameKnownTo(attachment.ending_by));
            self.pardon_mounts(world, &key, Some(&attachment.device), attachment.ending_by);
        }
    }

    /// Pardons what becomes of the volume's mounts on an instance. Who ends the last attachment, or its VolumeAttachment,
    /// knows the name at which that was; those of what was lost before were told by no object any more.
    fn pardon_mounts(
        &mut self,
        world: &World,
        (volume, instance): &(AwsVolumeId, InstanceId),
        device: Option<&DeviceName>,
        by: Option<Actor>,
    ) {
        let from = MountKey { volume: volume.clone(), instance: instance.clone(), generation: 0 };
        let to = MountKey { generation: u64::MAX, ..from.clone() };
        for (key, mount) in world.mounts.range(from..=to) {
            let is_told = device.is_some_and(|device| device.slot() == mount.device.slot());
            self.pardons.insert((volume.clone(), key.generation), Pardon::NameKnownTo(by.filter(|_| is_told)));
        }
    }

    /// A VolumeAttachment that a person deleted ends while its volume, lost to somebody else, is mounted there still: only
    /// who ends it knows the device name that is used up.
    fn see_end_after_loss(&mut self, world: &World, object: &VolumeAttachment, by: Actor) {
        let (Some(volume), Some(instance)) = (self.ebs_volume_of(world, object), object.instance()) else { return };
        let key = (volume, instance);
        if self.ordered.contains(&key) && world.ec2_attachment(&key.0, &key.1).is_none() {
            self.pardon_mounts(world, &key, object.device.as_ref(), Some(by));
        }
    }

    /// The Node that names the instance.
    pub(super) fn node<'a>(&self, world: &'a World, instance: &InstanceId) -> Option<&'a Node> {
        world.nodes.get(self.node_of.get(instance)?).filter(|node| instance_of(node) == Some(instance))
    }

    /// The VolumeAttachments that name this volume and instance, as stored now.
    pub(super) fn objects_of<'a>(
        &'a self,
        world: &'a World,
        volume: &'a AwsVolumeId,
        instance: &InstanceId,
    ) -> impl Iterator<Item = &'a VolumeAttachment> {
        let key = VolumeKey::ebs(volume);
        self.by_instance.get(instance).into_iter().flatten().filter_map(move |name| {
            let seen = self.attachments.get(name)?;
            if seen.volume.as_ref() == Some(&key) { world.attachments.get(name) } else { None }
        })
    }

    /// Whether a VolumeAttachment names, or named until this look, this volume, instance and device.
    pub(super) fn recorded(&self, volume: &AwsVolumeId, instance: &InstanceId, device: &DeviceName) -> bool {
        let key = VolumeKey::ebs(volume);
        self.by_instance.get(instance).into_iter().flatten().any(|name| {
            self.attachments.get(name).is_some_and(|seen| {
                seen.volume.as_ref() == Some(&key)
                    && seen.device.as_ref().is_some_and(|recorded| recorded.slot() == device.slot())
            })
        })
    }

    /// The VolumeAttachments of a node, as stored now.
    pub(super) fn objects_on<'a>(
        &'a self,
        world: &'a World,
        node: &NodeName,
    ) -> impl Iterator<Item = (&'a SeenAttachment, &'a VolumeAttachment)> {
        self.by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|name| Some((self.attachments.get(name)?, world.attachments.get(name)?)))
    }

    /// The volume a VolumeAttachment stands for; remembered when its PersistentVolume is gone.
    fn volume_of(&mut self, world: &World, object: &VolumeAttachment) -> Option<VolumeKey> {
        match &object.source {
            AttachmentSource::PersistentVolume(name) => {
                let known = self.handles.get(name);
                let Some(key) = world.persistent_volumes.get(name).and_then(volume_key_of) else {
                    return known.cloned();
                };
                if known != Some(&key) {
                    self.handles.insert(name.clone(), key.clone());
                }
                Some(key)
            }
            AttachmentSource::Inline { driver, handle } => {
                Some(VolumeKey { driver: driver.clone(), handle: handle.clone() })
            }
            AttachmentSource::Unreadable => None,
        }
    }

    /// The EBS volume a VolumeAttachment stands for.
    pub(super) fn ebs_volume_of(&mut self, world: &World, object: &VolumeAttachment) -> Option<AwsVolumeId> {
        self.volume_of(world, object)?.aws_volume_id()
    }
}

/// The volume a PersistentVolume stands for, in-tree EBS translated.
pub(super) fn volume_key_of(pv: &PersistentVolume) -> Option<VolumeKey> {
    match &pv.source {
        PersistentVolumeSource::Csi { driver, handle, .. } => {
            Some(VolumeKey { driver: driver.clone(), handle: handle.clone() })
        }
        PersistentVolumeSource::InTreeEbs(spelled) => {
            let id = KubernetesVolumeId::parse(spelled).ok()?;
            Some(VolumeKey { handle: VolumeKey::ebs(id.aws_volume_id()).handle, driver: DriverName::ebs() })
        }
        PersistentVolumeSource::Untranslated(_) | PersistentVolumeSource::NotAttachable => None,
    }
}

/// Whether a PersistentVolume stands for the volume: [`volume_key_of`], without making a key.
pub(super) fn is_of(pv: &PersistentVolume, volume: &VolumeKey) -> bool {
    match &pv.source {
        PersistentVolumeSource::Csi { driver, handle, .. } => *handle == volume.handle && *driver == volume.driver,
        _ => volume_key_of(pv).as_ref() == Some(volume),
    }
}

/// Whether nothing can run on the instance any more.
pub(super) fn is_dead(world: &World, instance: &InstanceId) -> bool {
    world.instances.get(instance).is_none_or(|i| matches!(i.state, InstanceState::Terminated | InstanceState::Stopped))
}

fn timed_out(world: &World, waited: Duration) -> bool {
    waited >= world.rules.unmount_timeout
}

/// Whether the force policy lets the volumes of a machine go once the timeout is over.
fn may_be_forced(world: &World, instance: &InstanceId) -> bool {
    match world.rules.force_detach {
        ForceDetach::Always => true,
        ForceDetach::Never => false,
        ForceDetach::Impaired => {
            world.instances.get(instance).is_none_or(|i| i.state != InstanceState::Running || i.impaired)
        }
    }
}

fn not_ready_too_long(world: &World, node: &Node) -> bool {
    let since = node.ready.since.unwrap_or_default();
    let may_be_forced = instance_of(node).is_some_and(|instance| may_be_forced(world, instance));
    !node.ready.is_true && may_be_forced && timed_out(world, world.now.wall.saturating_since(since))
}

fn remove_from<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = index.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            index.remove(key);
        }
    }
}
