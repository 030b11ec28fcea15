//! Calls and what came of them in a few words, for the timeline.

use smol_str::SmolStr;

use super::{Fault, OldLeader};
use crate::controller::command::{AttachmentStatusChange, Call, Ec2Call, KubernetesCall};
use crate::model::ids::{AttachmentName, DriverName};
use crate::model::outcome::{CallResult, Refusal};
use crate::sim::checkers::wanted::volume_behind;
use crate::sim::checkers::world::World;
use crate::sim::ec2::AnswerFault;

/// A call in a few words.
pub(super) fn call(call: &Call, world: &World) -> String {
    match call {
        Call::Ec2(call) => ec2(call),
        Call::Kubernetes(call) => kubernetes(call, world),
    }
}

fn ec2(call: &Ec2Call) -> String {
    match call {
        Ec2Call::AttachVolume { volume, instance, device, .. } => {
            format!("AttachVolume {volume} to {instance} as {device}")
        }
        Ec2Call::DetachVolume { volume, instance, device } => {
            format!("DetachVolume {volume} from {instance} ({device})")
        }
        Ec2Call::DescribeVolumes { volumes, .. } => format!("DescribeVolumes of {}", volumes.len()),
        Ec2Call::DescribeInstances { instances, .. } => format!("DescribeInstances of {}", instances.len()),
        Ec2Call::DescribeInstanceTypes { types } => format!("DescribeInstanceTypes of {}", types.len()),
        Ec2Call::DescribeInstanceStatus { instances, .. } => format!("DescribeInstanceStatus of {}", instances.len()),
        Ec2Call::DescribeVolumeStatus { volumes, .. } => format!("DescribeVolumeStatus of {}", volumes.len()),
    }
}

fn kubernetes(call: &KubernetesCall, world: &World) -> String {
    let object = |name: &AttachmentName| object(world, name);
    match call {
        KubernetesCall::CreateAttachment(new) => format!("create VolumeAttachment of {}", new.key),
        KubernetesCall::RecordAttachment { name, recorded, .. } => {
            format!("{} records {} on {}", object(name), recorded.device, recorded.instance)
        }
        KubernetesCall::PatchAttachmentStatus { name, change, .. } => {
            let what = match change {
                AttachmentStatusChange::Attached { device_path } => format!("attached as {device_path}"),
                AttachmentStatusChange::Detached => "not attached".to_owned(),
                AttachmentStatusChange::AttachError(error) => format!("attachError: {}", error.message),
                AttachmentStatusChange::DetachError(error) => format!("detachError: {}", error.message),
            };
            format!("{}: {what}", object(name))
        }
        KubernetesCall::SetAttachmentFinalizers { name, finalizers, .. } => {
            format!("{}: {}", object(name), finalizer(finalizers))
        }
        KubernetesCall::DeleteAttachment { name, .. } => format!("delete {}", object(name)),
        KubernetesCall::GetAttachment { name } => format!("get {}", object(name)),
        KubernetesCall::SetPersistentVolumeFinalizers { name, finalizers, .. } => {
            format!("PersistentVolume {name}: {}", finalizer(finalizers))
        }
        KubernetesCall::PlacePersistentVolume { name, labels, .. } => {
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("PersistentVolume {name}: {}", labels.join(", "))
        }
        KubernetesCall::GetPersistentVolume { name } => format!("get PersistentVolume {name}"),
        KubernetesCall::PatchNodeStatus { name, volumes_attached, marks, .. } => {
            let volumes =
                volumes_attached.keys().map(|of| of.volume_key().map_or_else(|| of.to_string(), |v| v.to_string()));
            let listed = match volumes_attached.len() {
                0..=4 => list(volumes),
                many => format!("{many} volumes"),
            };
            let marks = marks.as_ref().map(|marks| format!(", marks {}", marks.len())).unwrap_or_default();
            format!("volumesAttached of {name}: {listed}{marks}")
        }
        KubernetesCall::GetNode { name } => format!("get Node {name}"),
        KubernetesCall::ListPods { node } => format!("list pods of {node}"),
        KubernetesCall::CreateEvent(note) => format!("Event {}: {}", note.reason, note.message),
    }
}

/// A VolumeAttachment by what it stands for: its name is a hash.
fn object(world: &World, name: &AttachmentName) -> String {
    let of = world.attachments.get(name).and_then(|object| Some((volume_behind(world, object)?, object)));
    match of {
        Some((volume, object)) => format!("VolumeAttachment of {volume} on {}", object.node),
        None => format!("VolumeAttachment {}…", name.to_string().chars().take(12).collect::<String>()),
    }
}

fn finalizer(finalizers: &[SmolStr]) -> &'static str {
    let ours = DriverName::ebs().attacher_finalizer();
    if finalizers.iter().any(|name| *name == ours) { "finalizer added" } else { "finalizer removed" }
}

fn list(items: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

pub(super) fn result(result: &CallResult) -> String {
    match result {
        CallResult::NotSent => "not sent: the lease would not outlast it".to_owned(),
        CallResult::Done(_) => "done".to_owned(),
        CallResult::Refused(Refusal::Ec2 { code, message, .. }) => format!("refused: {code}: {message}"),
        CallResult::Refused(Refusal::Kubernetes { meaning, message }) => format!("refused: {meaning:?}: {message}"),
        CallResult::Throttled => "throttled".to_owned(),
        CallResult::Uncertain(why) => format!("uncertain: {why}"),
    }
}

/// A fault in a few words.
pub(super) fn fault(fault: &Fault) -> String {
    match fault {
        Fault::DeleteNode(node) => format!("a person deletes Node {node}"),
        Fault::ReplaceNodeObject(node) => format!("Node {node} is deleted, its kubelet restarts and registers again"),
        Fault::ReplaceInstance { node, old_terminated: true } => {
            format!("another instance takes the name {node}, the old one is terminated")
        }
        Fault::ReplaceInstance { node, .. } => format!("another instance takes the name {node}, the old one runs on"),
        Fault::TerminateOldInstances(node) => format!("the instance that was {node} before is terminated"),
        Fault::RestartKubelet(node) => format!("the kubelet of {node} restarts"),
        Fault::StopKubelet(node) => format!("the kubelet of {node} dies"),
        Fault::Partition(node) => format!("{node} cannot reach the API server"),
        Fault::HealPartition(node) => format!("{node} reaches the API server again"),
        Fault::StallKubelet(node, by) => format!("the kubelet of {node} sees its Node {} s late", by.as_secs()),
        Fault::SlowUnmount(node, takes) => format!("unmounts on {node} take {} s", takes.as_secs()),
        Fault::TerminateInstance(node) => format!("the instance of {node} is terminated"),
        Fault::StopInstance(node) => format!("the instance of {node} is stopped"),
        Fault::StartInstance(node) => format!("the instance of {node} is started"),
        Fault::RebootInstance(node) => format!("the instance of {node} reboots"),
        Fault::HangMachine(node) => format!("the kernel of {node} panics: its instance runs on, nothing on it does"),
        Fault::HideInstance(node, by) => {
            format!("EC2 leaves the instance of {node} out of its answers for {} s", by.as_secs())
        }
        Fault::FlickerInstance(node, by) => {
            format!("EC2 leaves the instance of {node} out of half of its answers for {} s", by.as_secs())
        }
        Fault::OtherRegion(by) => format!("attachd talks to another region for {} s: nothing is there", by.as_secs()),
        Fault::Ec2Outage(by) => format!("EC2's API is down for {} s", by.as_secs()),
        Fault::FailPages(per_million, by) => {
            format!("{} % of the pages of DescribeVolumes fail for {} s", f64::from(*per_million) / 1e4, by.as_secs())
        }
        Fault::NextAnswer(action, with) => {
            let wrong = match with {
                AnswerFault::Unreadable => "is a page of HTML",
                AnswerFault::LeavesOneOut => "leaves one entry out",
                AnswerFault::Half => "lacks half of its entries",
            };
            format!("the next answer of {} {wrong}", action.name())
        }
        Fault::Taint(node) => format!("a person taints {node} out-of-service"),
        Fault::RemoveTaint(node) => format!("a person removes the out-of-service taint of {node}"),
        Fault::ChangeLeader(OldLeader::Dies) => "the leader dies, another takes over".to_owned(),
        Fault::ChangeLeader(OldLeader::LivesOn) => {
            "the leader is cut off from its lease, another takes over".to_owned()
        }
        Fault::RestartController => "the leader dies and is started again".to_owned(),
        Fault::NextCall(target, fault) => format!("the next call to {target:?}: {fault:?}"),
        Fault::StaleEc2Reads(window) => format!("EC2 reads are up to {} s stale", window.as_secs()),
        Fault::StallWatch(Some(kind), by) => format!("the watch of {kind:?} stands still for {} s", by.as_secs()),
        Fault::StallWatch(None, by) => format!("every watch stands still for {} s", by.as_secs()),
        Fault::Relist(kind) => format!("the watch of {kind:?} breaks and lists anew"),
        Fault::DeleteAttachment(volume, node) => format!("a person deletes the VolumeAttachment of {volume} on {node}"),
        Fault::StripFinalizers(volume, node) => {
            format!("a person strips the finalizers of the VolumeAttachment of {volume} on {node}")
        }
        Fault::DeleteClaim(volume) => format!("a person deletes the claim of {volume}"),
        Fault::RestoreClaim(volume) => format!("a person makes claim and PersistentVolume of {volume} again"),
        Fault::DeletePersistentVolume(volume) => format!("a person deletes the PersistentVolume of {volume}"),
        Fault::AnnotateUnmounted(volume, node) => format!("a person says that {volume} is not mounted on {node}"),
        Fault::DetachByHand(volume) => format!("a person detaches {volume} by hand"),
        Fault::ForceDetachByHand(volume) => format!("a person detaches {volume} by hand, with Force"),
        Fault::CarryByHand(volume, node) => {
            format!("a person detaches {volume} by hand, with Force, to attach it to {node}")
        }
        Fault::AttachByHand(volume, node) => format!("a person attaches {volume} to {node} by hand"),
        Fault::DeletePod(volume) => format!("the pod of {volume} is deleted"),
        Fault::ForceDeletePod(volume) => format!("the pod of {volume} is force-deleted"),
        Fault::MovePod(volume, node) => format!("the workload of {volume} shall run on {node}"),
        Fault::ScaleWorkload(volume, false) => format!("the workload of {volume} is scaled to zero"),
        Fault::ScaleWorkload(volume, true) => format!("the workload of {volume} is scaled to one"),
        Fault::FailPod(volume) => format!("the pod of {volume} fails"),
        Fault::Drain(node) => format!("{node} is drained"),
        Fault::Uncordon(node) => format!("{node} takes pods again"),
    }
}
