//! What EC2 said in one read: volumes with their attachments, instances, instance types.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::device::DeviceName;
use super::ids::{AwsVolumeId, InstanceId, InstanceType, Zone};
use super::time::Wall;

/// One volume as one DescribeVolumes answer showed it. `Volume.Attachments` is the truth about attachments; it may be
/// stale and may go back in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeReading {
    /// The volume.
    pub id: AwsVolumeId,
    /// `State`.
    pub state: VolumeState,
    /// `Attachments`, in no particular order.
    pub attachments: Vec<AttachmentReading>,
    /// `MultiAttachEnabled`: EC2 lets several instances attach it and arbitrates nothing.
    pub multi_attach_enabled: bool,
    /// `AvailabilityZone`.
    pub zone: Zone,
    /// `Tags`: key → value.
    pub tags: BTreeMap<SmolStr, SmolStr>,
}

/// `Volume.State`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// `creating`
    Creating,
    /// `available`: attached nowhere.
    Available,
    /// `in-use`: from the acceptance of AttachVolume until the last attachment is gone.
    InUse,
    /// `deleting`
    Deleting,
    /// `deleted`
    Deleted,
    /// `error`
    Error,
    /// A text this version does not know. Never read as "not attached".
    Unknown(SmolStr),
}

impl VolumeState {
    /// As EC2 writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Creating => "creating",
            Self::Available => "available",
            Self::InUse => "in-use",
            Self::Deleting => "deleting",
            Self::Deleted => "deleted",
            Self::Error => "error",
            Self::Unknown(text) => text,
        }
    }
}

/// One entry of `Volume.Attachments`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentReading {
    /// `InstanceId`; absent for AWS-managed hosts.
    pub instance: Option<InstanceId>,
    /// `Device`; absent for AWS-managed hosts.
    pub device: Option<DeviceName>,
    /// `State`.
    pub state: AttachmentState,
    /// `AttachTime`: EC2's clock, whole seconds.
    pub attach_time: Option<Wall>,
}

/// `Volume.Attachments[].State`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// `attaching`
    Attaching,
    /// `attached`
    Attached,
    /// `detaching`
    Detaching,
    /// `busy`: a detach was asked for while the guest still holds the device.
    Busy,
    /// `detached`: hardly ever shown; normally the entry is gone.
    Detached,
    /// A text this version does not know. Never read as "detached".
    Unknown(SmolStr),
}

impl AttachmentState {
    /// As EC2 writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Attaching => "attaching",
            Self::Attached => "attached",
            Self::Detaching => "detaching",
            Self::Busy => "busy",
            Self::Detached => "detached",
            Self::Unknown(text) => text,
        }
    }
}

/// One instance as one DescribeInstances answer showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReading {
    /// The instance.
    pub id: InstanceId,
    /// `State.Name`.
    pub state: InstanceState,
    /// `InstanceType`.
    pub instance_type: InstanceType,
    /// `Placement.AvailabilityZone`.
    pub zone: Zone,
    /// `BlockDeviceMappings`: a hint for device names only, never evidence of an attachment.
    pub mappings: Vec<BlockDeviceMapping>,
}

/// One entry of `Instance.BlockDeviceMappings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDeviceMapping {
    /// `DeviceName`.
    pub device: DeviceName,
    /// `Ebs.VolumeId`, if it is an EBS volume.
    pub volume: Option<AwsVolumeId>,
    /// `Ebs.EbsCardIndex`.
    pub card: Option<u32>,
}

/// `Instance.State.Name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceState {
    /// `pending`
    Pending,
    /// `running`
    Running,
    /// `shutting-down`
    ShuttingDown,
    /// `terminated`
    Terminated,
    /// `stopping`
    Stopping,
    /// `stopped`
    Stopped,
    /// A text this version does not know.
    Unknown(SmolStr),
}

impl InstanceState {
    /// As EC2 writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Unknown(text) => text,
        }
    }
}

/// What DescribeInstanceTypes said of one type, as far as attaching needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceTypeReading {
    /// The type.
    pub instance_type: InstanceType,
    /// `EbsInfo.MaximumEbsCards`: with two, `EbsCardIndex` must be spread or half the slots are lost.
    pub ebs_cards: u32,
}

/// One instance as one DescribeInstanceStatus answer showed it. The checks run once a minute and fail after some minutes
/// of unreachability: evidence about the machine, not about its kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceStatusReading {
    /// The instance.
    pub id: InstanceId,
    /// `InstanceState.Name`.
    pub state: InstanceState,
    /// `SystemStatus.Status`: the host, its power and its network.
    pub system: CheckStatus,
    /// `InstanceStatus.Status`: whether the guest answers.
    pub instance: CheckStatus,
}

/// The result of one of EC2's status checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckStatus {
    /// `ok`
    Ok,
    /// `impaired`
    Impaired,
    /// `initializing`
    Initializing,
    /// `insufficient-data`
    InsufficientData,
    /// `not-applicable`: the instance is not running.
    NotApplicable,
    /// A text this version does not know. Never read as impaired.
    Unknown(SmolStr),
}

impl CheckStatus {
    /// As EC2 writes it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ok => "ok",
            Self::Impaired => "impaired",
            Self::Initializing => "initializing",
            Self::InsufficientData => "insufficient-data",
            Self::NotApplicable => "not-applicable",
            Self::Unknown(text) => text,
        }
    }
}

/// One volume as one DescribeVolumeStatus answer showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatusReading {
    /// The volume.
    pub id: AwsVolumeId,
    /// Whether the detail `initialization-state` says that blocks are still being loaded from a snapshot.
    pub initializing: bool,
}
