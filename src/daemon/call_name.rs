//! What a call is called in metrics, and what it is about in a log line.
//!
//! Flow: the executor names each command once, before it runs. Metric labels come from here alone and are a closed set;
//! volumes and nodes appear in log lines only.

use crate::controller::command::{BudgetClass, Call, Ec2Call, KubernetesCall, Regarding};
use crate::model::outcome::{CallResult, Ec2Refusal, KubernetesRefusal, Refusal};

/// The name of a call, of a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallName {
    /// A request to EC2.
    Ec2 {
        /// As EC2 names it.
        action: &'static str,
    },
    /// A request to the API server.
    Kubernetes {
        /// As Kubernetes' audit log names it.
        verb: &'static str,
        /// The resource, with its subresource.
        resource: &'static str,
    },
}

impl CallName {
    /// The name of this call.
    pub fn of(call: &Call) -> Self {
        match call {
            Call::Ec2(call) => Self::Ec2 { action: ec2_action(call) },
            Call::Kubernetes(call) => {
                let (verb, resource) = kubernetes_request(call);
                Self::Kubernetes { verb, resource }
            }
        }
    }
}

impl std::fmt::Display for CallName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ec2 { action } => f.write_str(action),
            Self::Kubernetes { verb, resource } => write!(f, "{verb} {resource}"),
        }
    }
}

fn ec2_action(call: &Ec2Call) -> &'static str {
    match call {
        Ec2Call::AttachVolume { .. } => "AttachVolume",
        Ec2Call::DetachVolume { .. } => "DetachVolume",
        Ec2Call::DescribeVolumes { .. } => "DescribeVolumes",
        Ec2Call::DescribeInstances { .. } => "DescribeInstances",
        Ec2Call::DescribeInstanceTypes { .. } => "DescribeInstanceTypes",
        Ec2Call::DescribeInstanceStatus { .. } => "DescribeInstanceStatus",
        Ec2Call::DescribeVolumeStatus { .. } => "DescribeVolumeStatus",
    }
}

fn kubernetes_request(call: &KubernetesCall) -> (&'static str, &'static str) {
    match call {
        KubernetesCall::CreateAttachment(_) => ("create", "volumeattachments"),
        KubernetesCall::RecordAttachment { .. } | KubernetesCall::SetAttachmentFinalizers { .. } => {
            ("patch", "volumeattachments")
        }
        KubernetesCall::PatchAttachmentStatus { .. } => ("patch", "volumeattachments/status"),
        KubernetesCall::DeleteAttachment { .. } => ("delete", "volumeattachments"),
        KubernetesCall::GetAttachment { .. } => ("get", "volumeattachments"),
        KubernetesCall::SetPersistentVolumeFinalizers { .. } | KubernetesCall::PlacePersistentVolume { .. } => {
            ("patch", "persistentvolumes")
        }
        KubernetesCall::GetPersistentVolume { .. } => ("get", "persistentvolumes"),
        KubernetesCall::PatchNodeStatus { .. } => ("patch", "nodes/status"),
        KubernetesCall::GetNode { .. } => ("get", "nodes"),
        KubernetesCall::ListPods { .. } => ("list", "pods"),
        KubernetesCall::CreateEvent(_) => ("create", "events"),
    }
}

/// What the call is about, for a log line.
pub fn subject_of(call: &Call) -> String {
    match call {
        Call::Ec2(call) => ec2_subject(call),
        Call::Kubernetes(call) => kubernetes_subject(call),
    }
}

fn ec2_subject(call: &Ec2Call) -> String {
    match call {
        Ec2Call::AttachVolume { volume, instance, device, card } => match card {
            Some(card) => format!("{volume} to {instance} as {device}, card {card}"),
            None => format!("{volume} to {instance} as {device}"),
        },
        Ec2Call::DetachVolume { volume, instance, device } => format!("{volume} from {instance}, was {device}"),
        Ec2Call::DescribeVolumes { volumes, next_token } | Ec2Call::DescribeVolumeStatus { volumes, next_token } => {
            counted(volumes.len(), "volumes", next_token.is_some())
        }
        Ec2Call::DescribeInstances { instances, next_token }
        | Ec2Call::DescribeInstanceStatus { instances, next_token } => {
            counted(instances.len(), "instances", next_token.is_some())
        }
        Ec2Call::DescribeInstanceTypes { types } => counted(types.len(), "instance types", false),
    }
}

fn counted(count: usize, what: &str, later_page: bool) -> String {
    let page = if later_page { ", later page" } else { "" };
    format!("{count} {what}{page}")
}

fn kubernetes_subject(call: &KubernetesCall) -> String {
    match call {
        KubernetesCall::CreateAttachment(new) => new.key.to_string(),
        KubernetesCall::RecordAttachment { name, recorded, .. } => {
            format!("{name}: record {} for {}", recorded.device, recorded.instance)
        }
        KubernetesCall::PatchAttachmentStatus { name, change, .. } => {
            use crate::controller::command::AttachmentStatusChange as Change;
            match change {
                Change::Attached { device_path } => format!("{name}: attached as {device_path}"),
                Change::Detached => format!("{name}: not attached"),
                Change::AttachError(error) => format!("{name}: attach error: {}", error.message),
                Change::DetachError(error) => format!("{name}: detach error: {}", error.message),
            }
        }
        KubernetesCall::SetAttachmentFinalizers { name, finalizers, .. } => {
            format!("{name}: finalizers [{}]", finalizers.join(", "))
        }
        KubernetesCall::DeleteAttachment { name, .. } | KubernetesCall::GetAttachment { name } => name.to_string(),
        KubernetesCall::SetPersistentVolumeFinalizers { name, finalizers, .. } => {
            format!("{name}: finalizers [{}]", finalizers.join(", "))
        }
        KubernetesCall::PlacePersistentVolume { name, labels, .. } => {
            let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("{name}: {}", labels.join(", "))
        }
        KubernetesCall::GetPersistentVolume { name } => name.to_string(),
        KubernetesCall::PatchNodeStatus { name, volumes_attached, .. } => {
            format!("{name}: {} volumes attached", volumes_attached.len())
        }
        KubernetesCall::GetNode { name } => name.to_string(),
        KubernetesCall::ListPods { node } => format!("on {node}"),
        KubernetesCall::CreateEvent(note) => {
            let regarding = match &note.regarding {
                Regarding::Pod(pod, _) => format!("pod {pod}"),
                Regarding::PersistentVolume(name, _) => format!("persistent volume {name}"),
                Regarding::Attachment(name, _) => format!("volume attachment {name}"),
                Regarding::Node(name, _) => format!("node {name}"),
            };
            format!("{} about {regarding}", note.reason)
        }
    }
}

/// Why a command was decided, as far as its budget class tells: for a log line.
pub fn class_name(class: BudgetClass) -> &'static str {
    match class {
        BudgetClass::Frees => "frees",
        BudgetClass::Attach => "attach",
        BudgetClass::Detach => "detach",
        BudgetClass::Poll => "poll",
        BudgetClass::Sweep => "sweep",
        BudgetClass::Write => "write",
        BudgetClass::LiveRead => "live-read",
        BudgetClass::Event => "event",
    }
}

/// What came of a call: the result, and for a refusal its meaning (else empty).
pub fn result_name(result: &CallResult) -> (&'static str, &'static str) {
    match result {
        CallResult::NotSent => ("not_sent", ""),
        CallResult::Done(_) => ("done", ""),
        CallResult::Throttled => ("throttled", ""),
        CallResult::Uncertain(_) => ("uncertain", ""),
        CallResult::Refused(Refusal::Ec2 { meaning, .. }) => ("refused", ec2_refusal(*meaning)),
        CallResult::Refused(Refusal::Kubernetes { meaning, .. }) => ("refused", kubernetes_refusal(*meaning)),
    }
}

fn ec2_refusal(meaning: Ec2Refusal) -> &'static str {
    match meaning {
        Ec2Refusal::VolumeInUse => "VolumeInUse",
        Ec2Refusal::IncorrectState => "IncorrectState",
        Ec2Refusal::DeviceInUse => "DeviceInUse",
        Ec2Refusal::AttachmentLimit => "AttachmentLimit",
        Ec2Refusal::VolumeNotFound => "VolumeNotFound",
        Ec2Refusal::InstanceNotFound => "InstanceNotFound",
        Ec2Refusal::AttachmentNotFound => "AttachmentNotFound",
        Ec2Refusal::ZoneMismatch => "ZoneMismatch",
        Ec2Refusal::ModificationUnderWay => "ModificationUnderWay",
        Ec2Refusal::Unauthorized => "Unauthorized",
        Ec2Refusal::KeyUnusable => "KeyUnusable",
        Ec2Refusal::NotPossible => "NotPossible",
    }
}

fn kubernetes_refusal(meaning: KubernetesRefusal) -> &'static str {
    match meaning {
        KubernetesRefusal::AlreadyExists => "AlreadyExists",
        KubernetesRefusal::AlreadyExistsTerminating => "AlreadyExistsTerminating",
        KubernetesRefusal::Conflict => "Conflict",
        KubernetesRefusal::NotFound => "NotFound",
        KubernetesRefusal::Invalid => "Invalid",
        KubernetesRefusal::Forbidden => "Forbidden",
        KubernetesRefusal::Other => "Other",
    }
}

/// What a refusal or an uncertain end said, for a log line.
pub fn detail_of(result: &CallResult) -> &str {
    match result {
        CallResult::NotSent | CallResult::Done(_) | CallResult::Throttled => "",
        CallResult::Uncertain(why) => why,
        CallResult::Refused(Refusal::Ec2 { message, .. } | Refusal::Kubernetes { message, .. }) => message,
    }
}
