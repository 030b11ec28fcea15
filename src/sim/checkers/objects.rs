//! What must hold of VolumeAttachment objects.

use std::collections::BTreeMap;

use super::lists::is_attached;
use super::memory::Memory;
use super::wanted::is_marked;
use super::world::{Actor, News, World, instance_of};
use super::{Findings, Invariant, Scope};
use crate::controller::event::Term;
use crate::model::attachment::VolumeAttachment;
use crate::model::ids::{AttachmentName, InstanceId, NodeName, VolumeKey};

pub(super) fn check(memory: &Memory, world: &World, scope: &Scope, found: &mut Findings<'_>) {
    let mut nodes: Vec<&NodeName> =
        scope.attachments.iter().filter_map(|name| Some(&world.attachments.get(name)?.node)).collect();
    nodes.sort();
    nodes.dedup();
    for node in nodes {
        device_paths_differ(memory, world, node, found);
    }
    for name in &memory.newly_stated {
        if let Some(object) = world.attachments.get(name) {
            stated_only_if_attached(memory, world, object, found);
        }
    }
    for news in &world.news {
        match news {
            News::FinalizerGone { object, by } if by.is_attachd() => {
                finalizer_outlives_calls(memory, world, &object.name, object.instance().as_ref(), found);
            }
            News::AttachmentMade { name, by: Actor::Attachd(term) } => {
                made_over_is_marked(memory, world, name, *term, found);
            }
            _ => {}
        }
    }
}

/// Rule 5. What is being deleted may be told late: nobody mounts by it.
fn stated_only_if_attached(memory: &Memory, world: &World, object: &VolumeAttachment, found: &mut Findings<'_>) {
    let Some(seen) = memory.attachments.get(&object.name).filter(|_| object.deleting.is_none()) else { return };
    let (Some(id), Some(instance)) = (seen.volume.as_ref().and_then(VolumeKey::aws_volume_id), object.instance())
    else {
        return;
    };
    let there = world.ec2_attachment(&id, &instance);
    let at_device = there
        .is_none_or(|attachment| object.device.as_ref().is_none_or(|device| device.slot() == attachment.device.slot()));
    let holds = is_attached(memory, world, &id, &instance) && at_device;
    found.judge(Invariant::StatedOnlyIfAttached, holds, || {
        let shown = there.map(|there| format!("{:?} at {}", there.state, there.device));
        (format!("{id} on {}", object.node), format!("EC2 has it {}", shown.as_deref().unwrap_or("not attached there")))
    });
}

/// Rule 9. Who saw the one before go knows its device: that is a heal, and needs no mark.
fn made_over_is_marked(memory: &Memory, world: &World, name: &AttachmentName, term: Term, found: &mut Findings<'_>) {
    let Some(object) = world.attachments.get(name) else { return };
    let Some(key) = memory.attachments.get(name).and_then(|seen| seen.volume.clone()) else { return };
    let (Some(id), Some(instance), Some(device)) = (key.aws_volume_id(), object.instance(), &object.device) else {
        return;
    };
    let Some(node) = world.nodes.get(&object.node).filter(|node| instance_of(node) == Some(&instance)) else { return };
    let over = world.ec2_attachment(&id, &instance).is_some_and(|there| {
        there.device.slot() == device.slot() && there.ending_by.is_none() && there.since < world.now.monotonic
    });
    if !over {
        return;
    }
    let watched = world.watched_since.get(&term).copied().unwrap_or(world.now.monotonic);
    let known = memory.gone.get(&(id.clone(), instance)).is_some_and(|gone| {
        gone.at >= watched && gone.device.as_ref().is_some_and(|before| before.slot() == device.slot())
    });
    found.judge(Invariant::MadeOverIsMarked, known || is_marked(node, &key), || {
        (format!("{id} on {}", object.node), format!("made over the attachment at {device}, unmarked"))
    });
}

/// DEV-10. Judged for each instance: a node's name may have stood for two.
fn device_paths_differ(memory: &Memory, world: &World, node: &NodeName, found: &mut Findings<'_>) {
    let mut taken: BTreeMap<(Option<&InstanceId>, &str), &AttachmentName> = BTreeMap::new();
    for (seen, object) in memory.objects_on(world, node) {
        let Some(path) = object.status.device_path.as_ref().filter(|_| object.status.attached) else { continue };
        let other = taken.insert((seen.instance.as_ref(), path.slot()), &object.name);
        found.judge(Invariant::DevicePathsDiffer, other.is_none(), || {
            let other = other.map(ToString::to_string).unwrap_or_default();
            (format!("{node} {path}"), format!("{} and {other} both say {path}", object.name))
        });
    }
}

fn finalizer_outlives_calls(
    memory: &Memory,
    world: &World,
    name: &AttachmentName,
    instance: Option<&InstanceId>,
    found: &mut Findings<'_>,
) {
    let Some(instance) = instance else { return };
    let volume = memory.attachments.get(name).and_then(|seen| seen.volume.as_ref()?.aws_volume_id());
    let Some(volume) = volume else { return };
    // What a person robs of its object is remembered by the process that sent the call only.
    let robbed = memory.robbed.get(&(volume.clone(), instance.clone()));
    let call = world.calls_in_flight.iter().find(|call| {
        call.volume == volume && call.instance == *instance && robbed.is_none_or(|robbed| call.sent > *robbed)
    });
    found.judge(Invariant::FinalizerOutlivesCalls, call.is_none(), || {
        let detail = call.map(|call| format!("{:?} sent at {} can still land", call.kind, call.sent));
        (format!("{volume} on {instance}"), detail.unwrap_or_default())
    });
}
