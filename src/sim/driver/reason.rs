//! Why a call is right, in a few words, for the timeline: told from the world, not from the core.

use crate::controller::command::{AttachmentStatusChange, Call, Ec2Call, KubernetesCall};
use crate::model::ids::{AttachmentName, DriverName, InstanceId, NodeName, UniqueVolumeName, VolumeKey};
use crate::sim::checkers::wanted::{nodes_wanting, pods_wanting, volume_behind};
use crate::sim::checkers::world::{World, instance_of};

/// Why the call was made, as the world stands before it.
pub(super) fn of(call: &Call, world: &World) -> String {
    match call {
        Call::Ec2(Ec2Call::AttachVolume { volume, instance, .. }) => {
            need(world, &VolumeKey::ebs(volume), world.node_of(instance).map(|node| &node.name))
        }
        Call::Ec2(Ec2Call::DetachVolume { volume, instance, .. }) => {
            no_need(world, &VolumeKey::ebs(volume), world.node_of(instance).map(|node| &node.name))
        }
        Call::Ec2(_) => String::new(),
        Call::Kubernetes(call) => kubernetes(call, world),
    }
}

fn kubernetes(call: &KubernetesCall, world: &World) -> String {
    match call {
        KubernetesCall::CreateAttachment(new) => need(world, &new.key.volume, Some(&new.key.node)),
        KubernetesCall::RecordAttachment { .. } => "written before it is asked of EC2".to_owned(),
        KubernetesCall::PatchAttachmentStatus { change: AttachmentStatusChange::Attached { .. }, .. } => {
            "EC2 shows it attached there".to_owned()
        }
        KubernetesCall::DeleteAttachment { name, .. } => {
            let stands_for = stands_for(world, name);
            stands_for.map(|(volume, node, _)| no_need(world, &volume, Some(&node))).unwrap_or_default()
        }
        KubernetesCall::SetAttachmentFinalizers { name, .. } => finished(world, name),
        KubernetesCall::SetPersistentVolumeFinalizers { finalizers, .. } => {
            let ours = DriverName::ebs().attacher_finalizer();
            let kept = finalizers.iter().any(|name| *name == ours);
            if kept { "it must not go while it is attached" } else { "attached nowhere any more" }.to_owned()
        }
        KubernetesCall::PlacePersistentVolume { .. } => "people see where it can be used".to_owned(),
        KubernetesCall::PatchNodeStatus { name, volumes_attached, .. } => {
            let listed = world.nodes.get(name).map(|node| &node.volumes_attached);
            let is_new = |of: &&UniqueVolumeName| listed.is_none_or(|listed| !listed.contains_key(*of));
            let gained = volumes_attached.keys().any(|of| is_new(&of));
            let lost = listed.is_some_and(|listed| listed.keys().any(|of| !volumes_attached.contains_key(of)));
            match (gained, lost) {
                (true, true) => "what came may be mounted, what is released no more",
                (true, false) => "the kubelet may mount it",
                (false, true) => "the kubelet mounts it no more",
                (false, false) => "older patches are void",
            }
            .to_owned()
        }
        _ => String::new(),
    }
}

fn need(world: &World, volume: &VolumeKey, node: Option<&NodeName>) -> String {
    let pod = node.and_then(|node| pods_wanting(world, volume, node).next());
    pod.map(|pod| format!("pod {} wants it there", pod.key)).unwrap_or_default()
}

fn no_need(world: &World, volume: &VolumeKey, node: Option<&NodeName>) -> String {
    match nodes_wanting(world, volume).iter().find(|wanting| Some(*wanting) != node) {
        Some(wanting) => format!("unused here, wanted on {wanting}"),
        None => "no pod wants it there".to_owned(),
    }
}

/// The last step of a detach; or of a heal, while the volume stays attached.
fn finished(world: &World, name: &AttachmentName) -> String {
    let Some((volume, _, instance)) = stands_for(world, name) else { return String::new() };
    let attached = volume
        .aws_volume_id()
        .zip(instance)
        .is_some_and(|(volume, instance)| world.ec2_attachment(&volume, &instance).is_some());
    if attached { "still wanted and attached: made anew" } else { "EC2 shows it detached" }.to_owned()
}

fn stands_for(world: &World, name: &AttachmentName) -> Option<(VolumeKey, NodeName, Option<InstanceId>)> {
    let object = world.attachments.get(name)?;
    let instance = object.instance().or_else(|| world.nodes.get(&object.node).and_then(instance_of).cloned());
    Some((volume_behind(world, object)?, object.node.clone(), instance))
}
