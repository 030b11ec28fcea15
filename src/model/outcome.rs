//! How a command ended, and the pure table from what the other side answered to what that means.
//!
//! Adapters classify by this table only; the controller decides by the result only.

use smol_str::SmolStr;

use super::attachment::VolumeAttachment;
use super::claim::PersistentVolume;
use super::node::Node;
use super::pod::Pod;
use super::time::Now;
use super::volume::{InstanceReading, InstanceStatusReading, InstanceTypeReading, VolumeReading, VolumeStatusReading};

/// Identifies one command of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// The one outcome that every command gets, also after a panic or a cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The command.
    pub id: CommandId,
    /// When the attempt was started (not before the command was polled).
    pub began: Now,
    /// When the answer was there, or was given up.
    pub ended: Now,
    /// What came of it.
    pub result: CallResult,
}

/// What came of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// Nothing was sent (`not_after` had passed, or the request could not be built): it has no effect, ever.
    NotSent,
    /// Accepted, with the answer.
    Done(Answer),
    /// Definitely refused: it has no effect.
    Refused(Refusal),
    /// Refused for rate: it has no effect; the budget shrinks.
    Throttled,
    /// Timeout, broken connection, server error, unreadable answer, panic: it may have had, or may yet have, its effect.
    Uncertain(SmolStr),
}

/// The body of an accepted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// AttachVolume or DetachVolume was accepted; the effect follows.
    Accepted,
    /// One page of DescribeVolumes.
    Volumes {
        /// The volumes that could be read. An entry that could not is left out: absence proves nothing.
        volumes: Vec<VolumeReading>,
        /// Set: another page follows.
        next_token: Option<String>,
    },
    /// One page of DescribeInstances.
    Instances {
        /// The instances that could be read.
        instances: Vec<InstanceReading>,
        /// Set: another page follows.
        next_token: Option<String>,
    },
    /// DescribeInstanceTypes.
    InstanceTypes(Vec<InstanceTypeReading>),
    /// One page of DescribeInstanceStatus.
    InstanceStatuses {
        /// The instances that could be read.
        statuses: Vec<InstanceStatusReading>,
        /// Set: another page follows.
        next_token: Option<String>,
    },
    /// One page of DescribeVolumeStatus.
    VolumeStatuses {
        /// The volumes that could be read.
        statuses: Vec<VolumeStatusReading>,
        /// Set: another page follows.
        next_token: Option<String>,
    },
    /// A Node as stored: after a write, or by a live read (`None`: NotFound).
    Node(Option<Box<Node>>),
    /// The pods bound to the node of a live LIST (no resourceVersion: a consistent read).
    Pods(Vec<Pod>),
    /// A VolumeAttachment as stored: after a write, or by a live read. `None`: it is not, or no longer, there.
    Attachment(Option<Box<VolumeAttachment>>),
    /// A PersistentVolume as stored; `None`: it is not, or no longer, there.
    PersistentVolume(Option<Box<PersistentVolume>>),
    /// An Event was written.
    EventWritten,
}

/// Why a call was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// By EC2.
    Ec2 {
        /// What the code means to us.
        meaning: Ec2Refusal,
        /// The code on the wire, without `Client.` or `Server.`.
        code: SmolStr,
        /// EC2's message.
        message: SmolStr,
    },
    /// By the API server.
    Kubernetes {
        /// What status and reason mean to us.
        meaning: KubernetesRefusal,
        /// The server's message.
        message: SmolStr,
    },
}

/// What a refusal of EC2 means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ec2Refusal {
    /// The volume is attached somewhere (VolumeInUse): read it.
    VolumeInUse,
    /// Volume or instance is in a state that does not allow it (IncorrectState, IncorrectInstanceState): read it.
    IncorrectState,
    /// The device name is taken on the instance (InvalidParameterValue, "already in use"): take the next name.
    DeviceInUse,
    /// The instance takes no more volumes (AttachmentLimitExceeded).
    AttachmentLimit,
    /// The volume does not exist, here and now (InvalidVolume.NotFound).
    VolumeNotFound,
    /// The instance does not exist, here and now (InvalidInstanceID.NotFound).
    InstanceNotFound,
    /// The volume is not attached to that instance (InvalidAttachment.NotFound): read it.
    AttachmentNotFound,
    /// Volume and instance are in different zones.
    ZoneMismatch,
    /// A modification is under way (OperationNotPermitted, "modification state"): wait.
    ModificationUnderWay,
    /// Credentials or policy (UnauthorizedOperation, AuthFailure, …): retried slowly, policies change.
    Unauthorized,
    /// The KMS key cannot be used (CustomerKeyHasBeenRevoked, …): retried slowly, grants change.
    KeyUnusable,
    /// The request itself is wrong or not possible for this volume or instance: retried slowly.
    NotPossible,
}

/// The meaning of an EC2 error code: the pure table of the fact sheet. Throttles have no effect; server errors and codes
/// that are not known are uncertain, never "refused".
pub fn classify_ec2(code: &str, message: &str) -> CallResult {
    let code = code.strip_prefix("Client.").or_else(|| code.strip_prefix("Server.")).unwrap_or(code);
    let meaning = match code {
        "RequestLimitExceeded"
        | "EC2ThrottledException"
        | "Throttling"
        | "ThrottlingException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "BandwidthLimitExceeded"
        | "SlowDown" => {
            return CallResult::Throttled;
        }
        "VolumeInUse" => Ec2Refusal::VolumeInUse,
        "IncorrectState" | "IncorrectInstanceState" => Ec2Refusal::IncorrectState,
        "InvalidParameterValue" if message.contains("already in use") => Ec2Refusal::DeviceInUse,
        "AttachmentLimitExceeded" => Ec2Refusal::AttachmentLimit,
        "InvalidVolume.NotFound" => Ec2Refusal::VolumeNotFound,
        "InvalidInstanceID.NotFound" => Ec2Refusal::InstanceNotFound,
        "InvalidAttachment.NotFound" => Ec2Refusal::AttachmentNotFound,
        "InvalidVolume.ZoneMismatch" | "InvalidVolumeID.ZoneMismatch" => Ec2Refusal::ZoneMismatch,
        "OperationNotPermitted" if message.to_ascii_lowercase().contains("modification state") => {
            Ec2Refusal::ModificationUnderWay
        }
        "UnauthorizedOperation"
        | "AuthFailure"
        | "InvalidClientTokenId"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "RequestExpired"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "InvalidSecurity.RequestHasExpired"
        | "SignatureDoesNotMatch"
        | "OptInRequired"
        | "Blocked"
        | "PendingVerification"
        | "AccountDisabled" => Ec2Refusal::Unauthorized,
        "CustomerKeyHasBeenRevoked" | "InvalidKmsKey.NotFound" | "EncryptedVolumesNotSupported" => {
            Ec2Refusal::KeyUnusable
        }
        "InvalidParameterValue"
        | "InvalidParameter"
        | "InvalidParameterCombination"
        | "InvalidParameterDependency"
        | "UnknownParameter"
        | "ValidationError"
        | "MissingParameter"
        | "InvalidVolumeID.Malformed"
        | "InvalidInstanceID.Malformed"
        | "InvalidBlockDeviceMapping"
        | "UnsupportedOperation"
        | "UnsupportedOperationException"
        | "OperationNotPermitted"
        | "FilterLimitExceeded"
        | "InvalidPaginationToken"
        | "InvalidInstanceType"
        | "InvalidAction"
        | "DryRunOperation" => Ec2Refusal::NotPossible,
        _ => return CallResult::Uncertain(SmolStr::new(format!("{code}: {message}"))),
    };
    CallResult::Refused(Refusal::Ec2 { meaning, code: SmolStr::new(code), message: SmolStr::new(message) })
}

/// What a refusal of the API server means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KubernetesRefusal {
    /// 409 AlreadyExists on a create.
    AlreadyExists,
    /// 409 AlreadyExists on a create, the existing object being deleted.
    AlreadyExistsTerminating,
    /// 409 Conflict: a precondition (UID or resourceVersion) does not hold.
    Conflict,
    /// 404: the object (or, on a create, what it needs) is not there.
    NotFound,
    /// 422: for a patch with a UID it means that the object is another one now.
    Invalid,
    /// 401, 403: RBAC or admission.
    Forbidden,
    /// Any other 4xx.
    Other,
}

/// The meaning of an API server's status: code, `reason` and message. 429 is a throttle, 5xx is uncertain for a write.
pub fn classify_kubernetes(code: u16, reason: &str, message: &str) -> CallResult {
    let meaning = match (code, reason) {
        (409, "AlreadyExists") if message.contains("object is being deleted") => {
            KubernetesRefusal::AlreadyExistsTerminating
        }
        (409, "AlreadyExists") => KubernetesRefusal::AlreadyExists,
        (409, _) => KubernetesRefusal::Conflict,
        (404 | 410, _) => KubernetesRefusal::NotFound,
        (422, _) => KubernetesRefusal::Invalid,
        (401 | 403, _) => KubernetesRefusal::Forbidden,
        (429, _) => return CallResult::Throttled,
        (400..=499, _) => KubernetesRefusal::Other,
        _ => return CallResult::Uncertain(SmolStr::new(format!("{code} {reason}: {message}"))),
    };
    CallResult::Refused(Refusal::Kubernetes { meaning, message: SmolStr::new(message) })
}
