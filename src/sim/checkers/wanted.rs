//! What the stored pods want, worked out anew from the API server's truth: the yardstick at rest.
//!
//! Must share no code with the core's desired state of world: a mistake made twice would agree with itself.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::{is_of, volume_key_of};
use super::world::{World, instance_of};
use crate::model::attachment::{AttachmentSource, VolumeAttachment};
use crate::model::claim::AccessMode;
use crate::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, ClaimKey, DriverName, InstanceId, KubernetesVolumeId, NodeName,
    VolumeKey,
};
use crate::model::node::{Node, UnknownMarks};
use crate::model::pod::{Pod, PodVolume};
use crate::model::volume::InstanceState;

/// Volume → the nodes on which a pod wants it.
pub type Wanted = BTreeMap<VolumeKey, BTreeSet<NodeName>>;

/// What every pod that counts wants: bound, not terminated, its node managed.
pub fn wanted(world: &World) -> Wanted {
    let mut wanted = Wanted::new();
    for (pod, node) in pods_that_count(world) {
        for volume in &pod.volumes {
            if let Some(key) = resolve(world, pod, volume) {
                wanted.entry(key).or_default().insert(node.name.clone());
            }
        }
    }
    wanted
}

/// The nodes on which a pod wants this volume: what [`wanted`] says of it, without resolving every other pod.
pub fn nodes_wanting(world: &World, volume: &VolumeKey) -> BTreeSet<NodeName> {
    let sources = world.persistent_volumes.values().filter(|pv| is_of(pv, volume));
    let sources: Vec<_> = sources.map(|pv| &pv.name).collect();
    let claims = world.claims.values().filter(|claim| claim.bound_to.as_ref().is_some_and(|pv| sources.contains(&pv)));
    let claims: Vec<_> = claims.map(|claim| &claim.key).collect();
    let may_be = |pod: &Pod, of: &PodVolume| match of {
        PodVolume::Claim(name) => claims.iter().any(|key| key.name == *name && key.namespace == pod.key.namespace),
        PodVolume::Ephemeral(_) | PodVolume::InlineEbs(_) | PodVolume::Untranslated(_) => true,
    };
    let wants =
        |pod: &Pod| pod.volumes.iter().any(|of| may_be(pod, of) && resolve(world, pod, of).as_ref() == Some(volume));
    let pods = world.pods.values().filter(|pod| wants(pod));
    pods.filter_map(|pod| node_where_it_counts(world, pod)).map(|node| node.name.clone()).collect()
}

fn pods_that_count(world: &World) -> impl Iterator<Item = (&Pod, &Node)> {
    world.pods.values().filter_map(|pod| Some((pod, node_where_it_counts(world, pod)?)))
}

fn node_where_it_counts<'a>(world: &'a World, pod: &Pod) -> Option<&'a Node> {
    let node = pod.node.as_ref().filter(|_| !pod.terminated)?;
    world.nodes.get(node).filter(|node| node.managed)
}

/// The volume behind one volume of a pod, if every object on the way is there.
fn resolve(world: &World, pod: &Pod, volume: &PodVolume) -> Option<VolumeKey> {
    let name = match volume {
        PodVolume::Claim(name) => name.to_string(),
        PodVolume::Ephemeral(name) => format!("{}-{name}", pod.key.name),
        PodVolume::InlineEbs(inline) => {
            let id = KubernetesVolumeId::parse(&inline.volume_id).ok()?;
            return Some(VolumeKey::ebs(id.aws_volume_id()));
        }
        PodVolume::Untranslated(_) => return None,
    };
    let claim = world.claims.get(&ClaimKey::new(pod.key.namespace.clone(), name))?;
    if matches!(volume, PodVolume::Ephemeral(_)) && claim.owner_pod.as_ref() != Some(&pod.uid) {
        return None;
    }
    let pv = world.persistent_volumes.get(claim.bound_to.as_ref()?)?;
    if pv.claim.as_ref().is_some_and(|(_, uid)| *uid != claim.uid) {
        return None;
    }
    volume_key_of(pv)
}

/// The EBS volume of a pod that has one.
pub fn volume_of_pod(world: &World, pod: &Pod) -> Option<AwsVolumeId> {
    pod.volumes.iter().find_map(|volume| resolve(world, pod, volume)?.aws_volume_id())
}

/// The pods that want this volume on this node.
pub fn pods_wanting<'a>(world: &'a World, volume: &'a VolumeKey, node: &'a NodeName) -> impl Iterator<Item = &'a Pod> {
    let here = world.pods.values().filter(move |pod| !pod.terminated && pod.node.as_ref() == Some(node));
    here.filter(move |pod| pod.volumes.iter().any(|of| resolve(world, pod, of).as_ref() == Some(volume)))
}

/// The volume a VolumeAttachment stands for.
pub fn volume_behind(world: &World, object: &VolumeAttachment) -> Option<VolumeKey> {
    match &object.source {
        AttachmentSource::PersistentVolume(name) => {
            world.persistent_volumes.get(name).and_then(volume_key_of).or_else(|| by_name(world, object))
        }
        AttachmentSource::Inline { driver, handle } => {
            Some(VolumeKey { driver: driver.clone(), handle: handle.clone() })
        }
        AttachmentSource::Unreadable => None,
    }
}

/// With its PersistentVolume gone, the name of a VolumeAttachment still tells which volume it was made for.
fn by_name(world: &World, object: &VolumeAttachment) -> Option<VolumeKey> {
    world.volumes.keys().map(VolumeKey::ebs).find(|volume| {
        AttachmentName::of(&AttachmentKey { volume: volume.clone(), node: object.node.clone() }) == object.name
    })
}

/// Whether only one instance may have the volume: EC2 must allow more, and everything that names it must be
/// ReadWriteMany and Block.
pub fn is_exclusive(world: &World, id: &AwsVolumeId) -> bool {
    if world.volumes.get(id).is_none_or(|volume| !volume.multi_attach_enabled) {
        return true;
    }
    let key = VolumeKey::ebs(id);
    let inline = world.pods.values().flat_map(|pod| &pod.volumes).any(|volume| match volume {
        PodVolume::InlineEbs(inline) => {
            KubernetesVolumeId::parse(&inline.volume_id).is_ok_and(|named| named.aws_volume_id() == id)
        }
        PodVolume::Claim(_) | PodVolume::Ephemeral(_) | PodVolume::Untranslated(_) => false,
    });
    inline
        || world
            .persistent_volumes
            .values()
            .filter(|pv| volume_key_of(pv).as_ref() == Some(&key))
            .any(|pv| !pv.block || !pv.access_modes.contains(&AccessMode::ReadWriteMany))
}

/// The instance on which a node could be given volumes now: running, and named alike by the Node and its CSINode.
pub fn usable_instance<'a>(world: &World, node: &'a Node) -> Option<&'a InstanceId> {
    let instance = instance_of(node)?;
    let said = world.csi_nodes.get(&node.name)?.drivers.get(&DriverName::ebs())?;
    let running = world.instances.get(instance).is_some_and(|i| i.state == InstanceState::Running);
    (running && InstanceId::parse(said).as_ref() == Ok(instance)).then_some(instance)
}

/// Whether the volume carries, on that node, the unknown mark of its present boot: it is neither attached to it anew nor
/// released from it until the next boot.
pub fn is_marked(node: &Node, volume: &VolumeKey) -> bool {
    match &node.in_use_unknown {
        UnknownMarks::Unreadable(_) => true,
        UnknownMarks::Marks(marks) => {
            marks.get(&volume.unique_name()).is_some_and(|boot| node.boot_id.as_ref().is_none_or(|now| now == boot))
        }
    }
}
