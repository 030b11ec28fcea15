//! Everything the core may ask of the outside, fully decided: an adapter only carries it out, at once, one attempt.
//!
//! Flow: [`super::Controller::poll_command`] hands commands out; each comes back as exactly one
//! [`crate::model::outcome::Outcome`]. Must never leave a choice to the adapter.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::event::Term;
use crate::model::attachment::{AttachmentError, NewAttachmentSource};
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, BootId, InstanceId, InstanceType, NodeName, PersistentVolumeName,
    PodKey, ResourceVersion, Uid, UniqueVolumeName, Zone,
};
pub use crate::model::outcome::CommandId;
use crate::model::time::Monotonic;

/// One call, fully decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Its outcome carries this back.
    pub id: CommandId,
    /// The period of leadership it was decided in.
    pub term: Term,
    /// Compared at the socket: after it, nothing is sent and the outcome is NotSent. `None` for reads.
    pub not_after: Option<Monotonic>,
    /// The budget it was paid from.
    pub class: BudgetClass,
    /// The call.
    pub call: Call,
}

/// The budgets and their classes (rule 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetClass {
    /// An EC2 call that frees a wanted volume, or a slot that a blocked attach needs.
    Frees,
    /// AttachVolume.
    Attach,
    /// DetachVolume that nothing waits for.
    Detach,
    /// Describe calls of EC2 that an operation waits for.
    Poll,
    /// Describe calls of sweeps.
    Sweep,
    /// Writes to the API server.
    Write,
    /// Live reads of the API server before an irreversible step.
    LiveRead,
    /// Events, which must never delay a write.
    Event,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// To EC2.
    Ec2(Ec2Call),
    /// To the API server.
    Kubernetes(KubernetesCall),
}

/// One EC2 request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ec2Call {
    /// AttachVolume.
    AttachVolume {
        /// VolumeId
        volume: AwsVolumeId,
        /// InstanceId
        instance: InstanceId,
        /// Device
        device: DeviceName,
        /// EbsCardIndex; `None` for instance types with one card.
        card: Option<u32>,
    },
    /// DetachVolume. Never with Force (G6).
    DetachVolume {
        /// VolumeId
        volume: AwsVolumeId,
        /// InstanceId
        instance: InstanceId,
        /// Device
        device: DeviceName,
    },
    /// DescribeVolumes with filter `volume-id`, one page.
    DescribeVolumes {
        /// At most 200, without repetition.
        volumes: Vec<AwsVolumeId>,
        /// The page; `None` for the first.
        next_token: Option<String>,
    },
    /// DescribeInstances with filter `instance-id`, one page.
    DescribeInstances {
        /// At most 200, without repetition.
        instances: Vec<InstanceId>,
        /// The page; `None` for the first.
        next_token: Option<String>,
    },
    /// DescribeInstanceTypes.
    DescribeInstanceTypes {
        /// At most 100, without repetition.
        types: Vec<InstanceType>,
    },
    /// DescribeInstanceStatus of these ids (there is no filter for them: one that EC2 does not know fails the call), one
    /// page. Instances that are not running are left out of the answer.
    DescribeInstanceStatus {
        /// At most 100, without repetition.
        instances: Vec<InstanceId>,
        /// The page; `None` for the first.
        next_token: Option<String>,
    },
    /// DescribeVolumeStatus of these ids (likewise), one page.
    DescribeVolumeStatus {
        /// At most 100, without repetition.
        volumes: Vec<AwsVolumeId>,
        /// The page; `None` for the first.
        next_token: Option<String>,
    },
}

impl Ec2Call {
    /// Whether the call changes anything in EC2.
    pub fn is_mutating(&self) -> bool {
        matches!(self, Self::AttachVolume { .. } | Self::DetachVolume { .. })
    }
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum KubernetesCall {
    /// POST VolumeAttachment. What is recorded goes into the create.
    CreateAttachment(NewAttachment),
    /// PATCH metadata of a VolumeAttachment: finalizers (the whole list) and what is recorded, with UID and
    /// resourceVersion.
    RecordAttachment {
        /// Name.
        name: AttachmentName,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// The whole list after the write.
        finalizers: Vec<SmolStr>,
        /// What the annotations shall say.
        recorded: Recorded,
    },
    /// PATCH status of a VolumeAttachment, with its UID.
    PatchAttachmentStatus {
        /// Name.
        name: AttachmentName,
        /// Precondition.
        uid: Uid,
        /// What changes.
        change: AttachmentStatusChange,
    },
    /// PATCH metadata of a VolumeAttachment: finalizers only, with UID and resourceVersion. Of a Terminating object,
    /// removing the last one ends it.
    SetAttachmentFinalizers {
        /// Name.
        name: AttachmentName,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// The whole list after the write.
        finalizers: Vec<SmolStr>,
    },
    /// DELETE a VolumeAttachment, with UID and resourceVersion.
    DeleteAttachment {
        /// Name.
        name: AttachmentName,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
    },
    /// Live GET of a VolumeAttachment, to settle a write of unknown outcome.
    GetAttachment {
        /// Name.
        name: AttachmentName,
    },
    /// PATCH metadata of a PersistentVolume: finalizers only, with UID and resourceVersion.
    SetPersistentVolumeFinalizers {
        /// Name.
        name: PersistentVolumeName,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// The whole list after the write.
        finalizers: Vec<SmolStr>,
    },
    /// PATCH of a PersistentVolume with where it can be used: labels, and node affinity if asked for. With UID and
    /// resourceVersion. Node affinity cannot be undone.
    PlacePersistentVolume {
        /// Name.
        name: PersistentVolumeName,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// Labels to be set; others stay.
        labels: BTreeMap<SmolStr, SmolStr>,
        /// `spec.nodeAffinity`: nodes of this zone (label `topology.kubernetes.io/zone`) only; `None` leaves it alone.
        affinity: Option<Zone>,
    },
    /// Live GET of a PersistentVolume, to settle a write of unknown outcome.
    GetPersistentVolume {
        /// Name.
        name: PersistentVolumeName,
    },
    /// Strategic merge PATCH of nodes/status, with UID and resourceVersion: the whole list, and the marks of rule 3 in
    /// the same write.
    PatchNodeStatus {
        /// Name.
        name: NodeName,
        /// Precondition.
        uid: Uid,
        /// Precondition.
        resource_version: ResourceVersion,
        /// The whole `volumesAttached` after the write: name → devicePath.
        volumes_attached: BTreeMap<UniqueVolumeName, SmolStr>,
        /// The whole set of marks after the write; `None` leaves the annotation as it is.
        marks: Option<BTreeMap<UniqueVolumeName, BootId>>,
        /// Value of the annotation [`crate::model::node::TOUCH_ANNOTATION`], set where list and marks stay as they are:
        /// the API server drops a patch that changes nothing without a new resourceVersion, and only a new
        /// resourceVersion voids an older patch that is still under way. `None` leaves the annotation alone.
        touch: Option<SmolStr>,
    },
    /// Live GET (quorum) of a Node.
    GetNode {
        /// Name.
        name: NodeName,
    },
    /// Live LIST (no resourceVersion) of the pods bound to a node.
    ListPods {
        /// The node.
        node: NodeName,
    },
    /// POST an Event.
    CreateEvent(EventNote),
}

impl KubernetesCall {
    /// Whether the call changes anything.
    pub fn is_mutating(&self) -> bool {
        !matches!(
            self,
            Self::GetAttachment { .. }
                | Self::GetPersistentVolume { .. }
                | Self::GetNode { .. }
                | Self::ListPods { .. }
        )
    }
}

/// A VolumeAttachment to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAttachment {
    /// Volume (driver, handle) and node.
    pub key: AttachmentKey,
    /// `spec.source`
    pub source: NewAttachmentSource,
    /// For EBS: finalizer and annotations that go into the create. `None` for other drivers: name and spec only.
    pub recorded: Option<Recorded>,
}

/// What attachd records in a VolumeAttachment of EBS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Annotation `csi.alpha.kubernetes.io/node-id`.
    pub instance: InstanceId,
    /// Annotation `attachd/node-uid`.
    pub node_uid: Uid,
    /// Annotation `attachd/device`.
    pub device: DeviceName,
}

/// A change of a VolumeAttachment's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentStatusChange {
    /// `attached: true`, `attachmentMetadata.devicePath`, no errors.
    Attached {
        /// As EC2 reports it.
        device_path: DeviceName,
    },
    /// `attached: false`, no metadata.
    Detached,
    /// `attachError`; `attached` is left alone.
    AttachError(AttachmentError),
    /// `detachError`; `attached` is left alone.
    DetachError(AttachmentError),
}

/// An Event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// What it is about.
    pub regarding: Regarding,
    /// Normal or Warning.
    pub warning: bool,
    /// `reason`, as upstream spells it where upstream has it.
    pub reason: &'static str,
    /// `message`
    pub message: String,
}

/// What an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regarding {
    /// A pod.
    Pod(PodKey, Uid),
    /// A PersistentVolume.
    PersistentVolume(PersistentVolumeName, Uid),
    /// A VolumeAttachment.
    Attachment(AttachmentName, Uid),
    /// A node.
    Node(NodeName, Uid),
}
