//! Why something that is wanted does not happen yet. Every reason is something a person can read: events, metrics and
//! traces show it.

use std::fmt;

use smol_str::SmolStr;

use crate::model::ids::{InstanceId, NodeName};

/// Why an attach or a detach waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockedReason {
    /// The watches have not synced yet.
    WatchesNotSynced,
    /// No guard is held, or it ends too soon.
    NotLeading,
    /// The volume has not been read since the lease was got, or since the last call on it.
    VolumeNotRead,
    /// No Node object of that name.
    NodeGone,
    /// The node's attachments are not handed to the controller.
    NodeNotManaged,
    /// The Node's providerID is still empty.
    NoProviderId,
    /// The node is not an EC2 instance (Fargate, hybrid).
    NotAnInstance,
    /// The CSINode does not list the driver yet.
    DriverNotRegistered,
    /// providerID and CSINode name different instances.
    IdentityMismatch,
    /// EC2 does not show the instance yet.
    InstanceNotVisible,
    /// Volume and node are in different zones.
    ZoneMismatch {
        /// Zone of the volume.
        volume: String,
        /// Zone of the node.
        node: String,
    },
    /// The access modes do not allow it.
    AccessMode(String),
    /// The volume does not exist in EC2.
    VolumeMissing,
    /// The volume is in a state that cannot be attached.
    VolumeState(String),
    /// The PersistentVolume is being deleted.
    PersistentVolumeDeleting,
    /// Another node holds or is given the volume.
    MultiAttach(NodeName),
    /// The volume is attached where none of our VolumeAttachments explains it.
    HeldByUnknownAttachment {
        /// The instance.
        instance: Option<InstanceId>,
        /// The device.
        device: String,
    },
    /// A call on the volume is not answered and not dead yet.
    CallInFlight,
    /// Calls of an earlier leader may still be under way.
    InheritedCalls,
    /// The VolumeAttachment is Terminating.
    Terminating,
    /// The Node object is another than the one recorded in the VolumeAttachment.
    OtherNodeObject,
    /// The volume may still be mounted on the node: marked unknown since its present boot.
    InUseUnknown,
    /// The node reports the volume in use.
    InUse,
    /// The node's instance is not the one frozen in the VolumeAttachment, so its reports say nothing about it.
    OtherInstance,
    /// Waiting for the unmount timeout.
    UnmountTimeout,
    /// The force policy withholds rung (d).
    ForceWithheld,
    /// Rung (d) is due, and EC2 has not told yet whether the machine is sound.
    MachineUnknown,
    /// The instance is shutting down or terminated: nothing is attached to it any more.
    InstanceTerminated,
    /// A pod on the node could not be resolved since start.
    UnresolvedPod,
    /// The node's list was written by another: held.
    ForeignWrite,
    /// No free device name on the instance.
    NoFreeDevice,
    /// The volume guard does not allow it: the sentence says which tag speaks against it.
    VolumeGuard(String),
    /// EC2 refused it.
    Refused(String),
    /// Waiting after a failure.
    Backoff,
    /// Waiting for EC2 to show the effect.
    WaitingForEc2,
    /// The PersistentVolume asks that the volume is initialized before it is used.
    Initializing,
    /// EC2 does not bring an attach or a detach to its end.
    StuckInEc2 {
        /// The attachment's state, as EC2 shows it.
        state: String,
        /// The instance.
        instance: InstanceId,
    },
    /// The instance has no room, and a volume is on its way out of it.
    WaitingForSlot,
    /// Waiting for a budget.
    Budget,
    /// Waiting for the API server to take a write.
    Writing,
    /// A pod of another driver's volume: its attacher has not answered.
    OtherAttacher,
}

impl BlockedReason {
    /// A short name for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::WatchesNotSynced => "WatchesNotSynced",
            Self::NotLeading => "NotLeading",
            Self::VolumeNotRead => "VolumeNotRead",
            Self::NodeGone => "NodeGone",
            Self::NodeNotManaged => "NodeNotManaged",
            Self::NoProviderId => "NoProviderId",
            Self::NotAnInstance => "NotAnInstance",
            Self::DriverNotRegistered => "DriverNotRegistered",
            Self::IdentityMismatch => "IdentityMismatch",
            Self::InstanceNotVisible => "InstanceNotVisible",
            Self::ZoneMismatch { .. } => "ZoneMismatch",
            Self::AccessMode(_) => "AccessMode",
            Self::VolumeMissing => "VolumeMissing",
            Self::VolumeState(_) => "VolumeState",
            Self::PersistentVolumeDeleting => "PersistentVolumeDeleting",
            Self::MultiAttach(_) => "MultiAttach",
            Self::HeldByUnknownAttachment { .. } => "HeldByUnknownAttachment",
            Self::CallInFlight => "CallInFlight",
            Self::InheritedCalls => "InheritedCalls",
            Self::Terminating => "Terminating",
            Self::OtherNodeObject => "OtherNodeObject",
            Self::InUseUnknown => "InUseUnknown",
            Self::InUse => "InUse",
            Self::OtherInstance => "OtherInstance",
            Self::UnmountTimeout => "UnmountTimeout",
            Self::ForceWithheld => "ForceWithheld",
            Self::MachineUnknown => "MachineUnknown",
            Self::InstanceTerminated => "InstanceTerminated",
            Self::UnresolvedPod => "UnresolvedPod",
            Self::ForeignWrite => "ForeignWrite",
            Self::NoFreeDevice => "NoFreeDevice",
            Self::VolumeGuard(_) => "VolumeGuard",
            Self::Refused(_) => "Refused",
            Self::Backoff => "Backoff",
            Self::WaitingForEc2 => "WaitingForEc2",
            Self::Initializing => "Initializing",
            Self::StuckInEc2 { .. } => "StuckInEc2",
            Self::WaitingForSlot => "WaitingForSlot",
            Self::Budget => "Budget",
            Self::Writing => "Writing",
            Self::OtherAttacher => "OtherAttacher",
        }
    }
}

impl fmt::Display for BlockedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZoneMismatch { volume, node } => {
                write!(f, "the volume is in zone {volume}, the node in zone {node}")
            }
            Self::AccessMode(text) | Self::VolumeGuard(text) | Self::Refused(text) => f.write_str(text),
            Self::VolumeState(state) => write!(f, "the volume is {state}"),
            Self::MultiAttach(node) => write!(f, "the volume is held by node {node}"),
            Self::HeldByUnknownAttachment { instance, device } => {
                let instance = instance.as_ref().map_or(SmolStr::new_static("an AWS-managed host"), InstanceId::text);
                write!(f, "the volume is attached to {instance} at {device}, which no VolumeAttachment explains")
            }
            Self::StuckInEc2 { state, instance } => {
                write!(
                    f,
                    "EC2 shows the volume {state} on {instance} for long; stop or terminate the instance to free it"
                )
            }
            other => f.write_str(other.sentence()),
        }
    }
}

impl BlockedReason {
    fn sentence(&self) -> &'static str {
        match self {
            Self::WatchesNotSynced => "the watches have not synced yet",
            Self::NotLeading => "this process does not lead",
            Self::VolumeNotRead => "the volume has not been read yet",
            Self::NodeGone => "there is no such Node",
            Self::NodeNotManaged => "the node does not hand its attachments to the controller",
            Self::NoProviderId => "the Node has no providerID yet",
            Self::NotAnInstance => "the node is not an EC2 instance",
            Self::DriverNotRegistered => "the CSINode does not list the driver yet",
            Self::IdentityMismatch => "providerID and CSINode name different instances",
            Self::InstanceNotVisible => "EC2 does not show the instance",
            Self::VolumeMissing => "the volume does not exist",
            Self::PersistentVolumeDeleting => "the PersistentVolume is being deleted",
            Self::CallInFlight => "a call on the volume is under way",
            Self::InheritedCalls => "calls of an earlier leader may still be under way",
            Self::Terminating => "the VolumeAttachment is being deleted",
            Self::OtherNodeObject => "the Node object is another than the recorded one",
            Self::InUseUnknown => "whether the node still has it mounted is unknown since its present boot",
            Self::InUse => "the node reports the volume in use",
            Self::OtherInstance => "the node is another instance than the volume is attached to",
            Self::UnmountTimeout => "the node is not ready; waiting for the unmount timeout",
            Self::ForceWithheld => {
                "the force policy withholds the detach; stop the instance or taint the node out-of-service"
            }
            Self::MachineUnknown => "the node is given up; EC2 has not told yet whether its machine still runs",
            Self::InstanceTerminated => "the node's instance is shutting down or terminated",
            Self::UnresolvedPod => "a pod on the node cannot be resolved",
            Self::ForeignWrite => "another writer changed the node's list",
            Self::NoFreeDevice => "no free device name on the instance",
            Self::Backoff => "waiting after a failure",
            Self::Initializing => {
                "the volume is attached, but not initialized from its snapshot yet (blockattachuntilinitialized)"
            }
            Self::WaitingForEc2 => "waiting for EC2",
            Self::WaitingForSlot => "the node is full until a volume that leaves it is detached",
            Self::Budget => "waiting for the API budget",
            Self::Writing => "waiting for the API server",
            Self::OtherAttacher => "waiting for the driver's attacher",
            _ => "",
        }
    }
}
