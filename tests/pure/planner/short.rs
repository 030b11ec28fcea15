//! Short names, and commands written in short.

use std::collections::BTreeMap;

use attachd::controller::command::{AttachmentStatusChange, Call, Ec2Call, KubernetesCall};
use attachd::model::device::DeviceName;
use attachd::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, ClaimKey, InstanceId, NodeName, PersistentVolumeName, UniqueVolumeName,
    VolumeKey, Zone,
};

/// How many volumes and nodes have short names.
const NAMED: usize = 60;

/// `v1` → vol-01.
pub fn volume(v: &str) -> AwsVolumeId {
    AwsVolumeId::parse(&format!("vol-0{}", v.strip_prefix('v').unwrap())).unwrap()
}

/// `i1` → i-01.
pub fn instance(i: &str) -> InstanceId {
    InstanceId::parse(&format!("i-0{}", i.strip_prefix('i').unwrap())).unwrap()
}

/// `n1`, as it is.
pub fn node(n: &str) -> NodeName {
    NodeName::new(n)
}

/// Every machine and volume is there.
pub fn zone() -> Zone {
    Zone::new("z1")
}

/// The volume's key.
pub fn key(v: &str) -> VolumeKey {
    VolumeKey::ebs(&volume(v))
}

/// Its name on a node's lists.
pub fn listed(v: &str) -> UniqueVolumeName {
    key(v).unique_name()
}

/// Its PersistentVolume.
pub fn pv_name(v: &str) -> PersistentVolumeName {
    PersistentVolumeName::new(format!("pv-{v}"))
}

/// Its claim.
pub fn claim_key(v: &str) -> ClaimKey {
    ClaimKey::new("ns", format!("claim-{v}"))
}

/// The name of the VolumeAttachment.
pub fn attachment(v: &str, n: &str) -> AttachmentName {
    AttachmentName::of(&AttachmentKey { volume: key(v), node: node(n) })
}

fn pair(name: &AttachmentName) -> String {
    for v in 1..=NAMED {
        for n in 1..=4 {
            let (v, n) = (format!("v{v}"), format!("n{n}"));
            if attachment(&v, &n) == *name {
                return format!("{v} {n}");
            }
        }
    }
    name.to_string()
}

fn vol(id: &AwsVolumeId) -> String {
    id.text().replacen("vol-0", "v", 1)
}

fn inst(id: &InstanceId) -> String {
    id.text().replacen("i-0", "i", 1)
}

fn device(device: &DeviceName) -> &str {
    device.as_str().trim_start_matches("/dev/")
}

fn on_list(name: &UniqueVolumeName) -> String {
    match name.volume_key().and_then(|key| key.aws_volume_id()) {
        Some(id) => vol(&id),
        None => name.to_string(),
    }
}

fn ebs(call: &Ec2Call) -> String {
    match call {
        Ec2Call::AttachVolume { volume, instance, device: name, card } => {
            let card = card.map(|card| format!(" card{card}")).unwrap_or_default();
            format!("attach {} {} {}{card}", vol(volume), inst(instance), device(name))
        }
        Ec2Call::DetachVolume { volume, instance, device: name } => {
            format!("detach {} {} {}", vol(volume), inst(instance), device(name))
        }
        Ec2Call::DescribeVolumes { volumes, .. } => {
            format!("describe-volumes {}", volumes.iter().map(vol).collect::<Vec<_>>().join(","))
        }
        Ec2Call::DescribeInstances { instances, .. } => {
            format!("describe-instances {}", instances.iter().map(inst).collect::<Vec<_>>().join(","))
        }
        Ec2Call::DescribeInstanceTypes { .. } => "describe-types".to_owned(),
        Ec2Call::DescribeInstanceStatus { instances, .. } => {
            format!("describe-instance-status {}", instances.iter().map(inst).collect::<Vec<_>>().join(","))
        }
        Ec2Call::DescribeVolumeStatus { volumes, .. } => {
            format!("describe-volume-status {}", volumes.iter().map(vol).collect::<Vec<_>>().join(","))
        }
    }
}

/// A command in short.
pub fn short(call: &Call) -> String {
    let call = match call {
        Call::Ec2(call) => return ebs(call),
        Call::Kubernetes(call) => call,
    };
    match call {
        KubernetesCall::CreateAttachment(new) => {
            let id = new.key.volume.aws_volume_id();
            let what = id.map_or_else(|| new.key.volume.to_string(), |id| vol(&id));
            format!("create {what} {}", new.key.node)
        }
        KubernetesCall::RecordAttachment { name, recorded, .. } => {
            format!("record {} {}", pair(name), device(&recorded.device))
        }
        KubernetesCall::PatchAttachmentStatus { name, change, .. } => match change {
            AttachmentStatusChange::Attached { device_path } => {
                format!("attached {} {}", pair(name), device(device_path))
            }
            AttachmentStatusChange::Detached => format!("detached {}", pair(name)),
            AttachmentStatusChange::AttachError(error) => {
                format!("attach-error {} {}", pair(name), error.code.unwrap_or_default())
            }
            AttachmentStatusChange::DetachError(_) => format!("detach-error {}", pair(name)),
        },
        KubernetesCall::SetAttachmentFinalizers { name, .. } => format!("finish {}", pair(name)),
        KubernetesCall::DeleteAttachment { name, .. } => format!("delete {}", pair(name)),
        KubernetesCall::GetAttachment { name } => format!("get {}", pair(name)),
        KubernetesCall::SetPersistentVolumeFinalizers { name, finalizers, .. } => {
            let ours = finalizers.iter().any(|finalizer| finalizer.starts_with("external-attacher/"));
            format!("{} {name}", if ours { "protect" } else { "unprotect" })
        }
        KubernetesCall::PlacePersistentVolume { name, labels, affinity, .. } => {
            let affinity = affinity.as_ref().map(|zone| format!(" only {zone}")).unwrap_or_default();
            format!("place {name} {}{affinity}", labels.values().map(|v| v.as_str()).collect::<Vec<_>>().join(","))
        }
        KubernetesCall::GetPersistentVolume { name } => format!("get-pv {name}"),
        KubernetesCall::PatchNodeStatus { name, volumes_attached, marks, touch, .. } => {
            let list: Vec<String> = volumes_attached.keys().map(on_list).collect();
            let marked =
                |marks: &BTreeMap<UniqueVolumeName, _>| marks.keys().map(on_list).collect::<Vec<_>>().join(",");
            let marks = marks.as_ref().map(|marks| format!(" marked({})", marked(marks))).unwrap_or_default();
            let touch = if touch.is_some() { " touched" } else { "" };
            format!("list {name} [{}]{marks}{touch}", list.join(","))
        }
        KubernetesCall::GetNode { name } => format!("get-node {name}"),
        KubernetesCall::ListPods { node } => format!("list-pods {node}"),
        KubernetesCall::CreateEvent(note) => format!("event {} {:?} {}", note.reason, note.regarding, note.message),
    }
}
