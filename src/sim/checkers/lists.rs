//! What must hold of `node.status.volumesAttached` when attachd changes it.

use super::memory::{Memory, is_dead};
use super::world::{News, World, instance_of};
use super::{Findings, Invariant, Scope};
use crate::model::ids::{AwsVolumeId, InstanceId, UniqueVolumeName, VolumeKey};
use crate::model::node::Node;
use crate::model::volume::AttachmentState;

pub(super) fn check(memory: &Memory, world: &World, scope: &Scope, found: &mut Findings<'_>) {
    for name in &scope.nodes {
        let Some(node) = world.nodes.get(name) else { continue };
        let written_by_us = world
            .news
            .iter()
            .any(|news| matches!(news, News::ListWritten { node, by } if node == name && by.is_attachd()));
        if written_by_us {
            judge_change(memory, world, node, found);
        }
    }
}

fn judge_change(memory: &Memory, world: &World, node: &Node, found: &mut Findings<'_>) {
    let before = memory.nodes.get(&node.name).filter(|seen| seen.uid == node.uid);
    let was_listed = |name: &UniqueVolumeName| before.is_some_and(|seen| seen.listed.contains(name));
    for name in node.volumes_attached.keys().filter(|name| !was_listed(name)) {
        if let Some(volume) = name.volume_key() {
            judge_listing(memory, world, node, volume, found);
        }
    }
    for name in before.into_iter().flat_map(|seen| &seen.listed) {
        if !node.volumes_attached.contains_key(name) {
            judge_unlisting(memory, world, node, name, found);
        }
    }
}

fn judge_listing(memory: &Memory, world: &World, node: &Node, volume: &VolumeKey, found: &mut Findings<'_>) {
    let object = memory.objects_on(world, &node.name).find(|(seen, _)| seen.volume.as_ref() == Some(volume));
    let Some(id) = volume.aws_volume_id() else {
        let attached = object.is_some_and(|(_, object)| object.status.attached);
        found.judge(Invariant::ListedOnlyIfAttached, attached, || {
            (format!("{volume} on {}", node.name), "its VolumeAttachment is not attached".to_owned())
        });
        return;
    };
    let instance = instance_of(node);
    let attached = instance.is_some_and(|instance| is_attached(memory, world, &id, instance));
    let robbed = instance.is_some_and(|i| memory.robbed.contains_key(&(id.clone(), i.clone())));
    let stands = object.is_some() || robbed;
    found.judge(Invariant::ListedOnlyIfAttached, attached && stands, || {
        let why = if attached { "no VolumeAttachment stands for it" } else { "EC2 has it not attached there" };
        (format!("{id} on {}", node.name), why.to_owned())
    });
}

/// Attached there, or lost there to somebody else: what a person or the platform took cannot be known at once.
pub(super) fn is_attached(memory: &Memory, world: &World, id: &AwsVolumeId, instance: &InstanceId) -> bool {
    let shown = world.ec2_attachment(id, instance);
    shown.is_some_and(|a| a.state != AttachmentState::Attaching && a.ending_by.is_none_or(|by| !by.is_attachd()))
        || memory.lost.contains_key(&(id.clone(), instance.clone()))
}

fn judge_unlisting(memory: &Memory, world: &World, node: &Node, name: &UniqueVolumeName, found: &mut Findings<'_>) {
    let excused = match instance_of(node) {
        Some(instance) => is_dead(world, instance) || memory.fence(world, instance).is_some(),
        None => true,
    };
    let in_use = node.ready.is_true && node.volumes_in_use.contains(name);
    found.judge(Invariant::InUseStaysListed, !in_use || excused, || {
        (format!("{} on {}", name, node.name), "it was unlisted while reported in use".to_owned())
    });
}
