//! EC2's refusals, by the code and the text it writes.

use smol_str::{SmolStr, format_smolstr};

use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId};
use crate::model::outcome::{CallResult, classify_ec2};

/// Why a request got no good answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ec2Error {
    /// An error answer.
    #[error("{code}: {message}")]
    Code {
        /// As on the wire.
        code: SmolStr,
        /// As on the wire.
        message: SmolStr,
    },
    /// No answer came (a fault); the request may have been carried out.
    #[error("no answer")]
    NoAnswer,
    /// Something answered that is no answer of EC2's (a fault: a proxy's HTML page, half an XML document); the request may
    /// have been carried out.
    #[error("an answer that cannot be read")]
    Unreadable,
}

impl Ec2Error {
    /// An error answer.
    pub fn new(code: &str, message: impl Into<SmolStr>) -> Self {
        Self::Code { code: SmolStr::new(code), message: message.into() }
    }

    /// What a client makes of it.
    pub fn to_result(&self) -> CallResult {
        match self {
            Self::Code { code, message } => classify_ec2(code, message),
            Self::NoAnswer => CallResult::Uncertain(SmolStr::new_static("no answer before the timeout")),
            Self::Unreadable => CallResult::Uncertain(SmolStr::new_static("HTTP 500 with a page of HTML")),
        }
    }

    pub(super) fn throttled() -> Self {
        Self::new("RequestLimitExceeded", "Request limit exceeded.")
    }

    pub(super) fn volume_not_found(volume: &AwsVolumeId) -> Self {
        Self::new("InvalidVolume.NotFound", format_smolstr!("The volume '{volume}' does not exist."))
    }

    pub(super) fn instance_not_found(instance: &InstanceId) -> Self {
        Self::new("InvalidInstanceID.NotFound", format_smolstr!("The instance ID '{instance}' does not exist"))
    }

    pub(super) fn volume_in_use(volume: &AwsVolumeId) -> Self {
        Self::new("VolumeInUse", format_smolstr!("{volume} is already attached to an instance"))
    }

    pub(super) fn volume_state(volume: &AwsVolumeId, state: &str) -> Self {
        Self::new("IncorrectState", format_smolstr!("Volume '{volume}' is in the '{state}' state."))
    }

    pub(super) fn instance_state(instance: &InstanceId) -> Self {
        Self::new("IncorrectState", format_smolstr!("Instance '{instance}' is not 'running' or 'stopped'."))
    }

    pub(super) fn not_attached(volume: &AwsVolumeId, instance: &InstanceId) -> Self {
        Self::new(
            "InvalidAttachment.NotFound",
            format_smolstr!("The volume '{volume}' is not attached to instance '{instance}'."),
        )
    }

    pub(super) fn device_taken(device: &DeviceName) -> Self {
        Self::new(
            "InvalidParameterValue",
            format_smolstr!("Invalid value '{device}' for unixDevice. Attachment point {device} is already in use"),
        )
    }

    pub(super) fn device_invalid(device: &DeviceName) -> Self {
        Self::new(
            "InvalidParameterValue",
            format_smolstr!(
                "Value ({device}) for parameter device is invalid. {device} is not a valid EBS device name."
            ),
        )
    }

    pub(super) fn other_zone(volume: &AwsVolumeId, instance: &InstanceId) -> Self {
        Self::new(
            "InvalidVolume.ZoneMismatch",
            format_smolstr!("The volume '{volume}' is not in the same availability zone as instance '{instance}'"),
        )
    }

    pub(super) fn instance_full(instance: &InstanceId, limit: u32) -> Self {
        Self::new(
            "AttachmentLimitExceeded",
            format_smolstr!("Instance '{instance}' has reached its limit of {limit} attachments."),
        )
    }
}
