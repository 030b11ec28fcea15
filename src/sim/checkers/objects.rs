//! What must hold of VolumeAttachment objects.

use std::collections::BTreeMap;

use super::memory::Memory;
use super::world::{News, World};
use super::{Findings, Invariant, Scope};
use crate::model::ids::{AttachmentName, InstanceId, NodeName};

pub(super) fn check(memory: &Memory, world: &World, scope: &Scope, found: &mut Findings<'_>) {
    let mut nodes: Vec<&NodeName> =
        scope.attachments.iter().filter_map(|name| Some(&world.attachments.get(name)?.node)).collect();
    nodes.sort();
    nodes.dedup();
    for node in nodes {
        device_paths_differ(memory, world, node, found);
    }
    for news in &world.news {
        if let News::FinalizerGone { object, by } = news
            && by.is_attachd()
        {
            finalizer_outlives_calls(memory, world, &object.name, object.instance().as_ref(), found);
        }
    }
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
