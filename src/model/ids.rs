//! Identities. Each kind is a type of its own: none compares with, or converts into, another except through a named
//! function that can fail.
//!
//! A volume id is not an instance id, even if the text were the same:
//!
//! ```compile_fail
//! use attachd::model::ids::{AwsVolumeId, InstanceId};
//! let volume = AwsVolumeId::parse("vol-0aa11").unwrap();
//! let instance = InstanceId::parse("i-0aa11").unwrap();
//! assert!(volume != instance);
//! ```
//!
//! A node's name is never taken for an instance id (nodes may be *named* like an instance):
//!
//! ```compile_fail
//! use attachd::model::ids::{InstanceId, NodeName};
//! let instance: InstanceId = NodeName::new("i-0aa11").into();
//! ```
//!
//! A spelling of a volume is not the volume:
//!
//! ```compile_fail
//! use attachd::model::ids::{AwsVolumeId, KubernetesVolumeId};
//! let spelled = KubernetesVolumeId::parse("aws:///vol-0aa11").unwrap();
//! let id = AwsVolumeId::parse("vol-0aa11").unwrap();
//! assert!(spelled == id);
//! ```

use std::fmt;

use sha2::{Digest, Sha256};
use smol_str::SmolStr;

pub use super::attachment_name::AttachmentName;
pub use super::csi::{DriverName, EBS_DRIVER, VolumeHandle};
pub use super::ec2_ids::{AwsVolumeId, IdError, InstanceId};
use super::searched_text::SearchedText;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident($text:ty)) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($text);

        impl $name {
            /// Takes the text as it is: its form was checked where it was written (API server, EC2).
            pub fn new(text: impl Into<SmolStr>) -> Self {
                Self(<$text>::from(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// Name of a Node object. Says nothing about the instance behind it: names are used again.
    NodeName(SearchedText)
);
name_type!(
    /// `metadata.uid` of any object: two objects of one name have different ones.
    Uid(SearchedText)
);
name_type!(
    /// `metadata.resourceVersion`: opaque, compared for equality, sent back as a precondition.
    ResourceVersion(SmolStr)
);
name_type!(
    /// Name of a PersistentVolume.
    PersistentVolumeName(SearchedText)
);
name_type!(
    /// `node.status.nodeInfo.bootID`: another one after each boot of the machine.
    BootId(SmolStr)
);
name_type!(
    /// An availability zone, such as `us-east-1a`.
    Zone(SmolStr)
);
name_type!(
    /// An instance type, such as `m7i.large`.
    InstanceType(SmolStr)
);

impl ResourceVersion {
    /// Whether this version is older than `other`. Kubernetes defines resourceVersions of one kind as ordered decimal
    /// numbers (KEP-5504); where one is not a number, only equality is known and the answer is no.
    pub fn is_older_than(&self, other: &Self) -> bool {
        match (self.0.parse::<u128>(), other.0.parse::<u128>()) {
            (Ok(mine), Ok(theirs)) => mine < theirs,
            _ => false,
        }
    }
}

/// A volume as the desired and the actual state key it: driver and handle. For EBS the handle is always the bare
/// `vol-…` id, whatever spelling the PersistentVolume or the pod used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeKey {
    /// The handle; first, because it tells volumes apart soonest.
    pub handle: VolumeHandle,
    /// The driver.
    pub driver: DriverName,
}

impl VolumeKey {
    /// The EBS volume with this id.
    pub fn ebs(id: &AwsVolumeId) -> Self {
        Self { handle: VolumeHandle::from(id), driver: DriverName::ebs() }
    }

    /// The EBS volume id, if this is an EBS volume.
    pub fn aws_volume_id(&self) -> Option<AwsVolumeId> {
        self.handle.aws_volume_id().filter(|_| self.driver.is_ebs()).cloned()
    }

    /// The name kubelets compare in `volumesAttached` and `volumesInUse`.
    pub fn unique_name(&self) -> UniqueVolumeName {
        if self.has_name_to_read_back() {
            return UniqueVolumeName(VolumeNameForm::Csi(self.clone()));
        }
        UniqueVolumeName(VolumeNameForm::Other(SmolStr::new(format!("{CSI_PREFIX}{}^{}", self.driver, self.handle))))
    }

    /// Whether its name on a list tells driver and handle again. Upstream requires exactly one `^`.
    fn has_name_to_read_back(&self) -> bool {
        self.handle.is_part_of_a_name() && self.driver.is_part_of_a_name()
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.driver.is_ebs() { self.handle.fmt(f) } else { write!(f, "{}^{}", self.driver, self.handle) }
    }
}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const CSI_PREFIX: &str = "kubernetes.io/csi/";

/// The name of a volume in `node.status.volumesAttached` and `volumesInUse`: `kubernetes.io/csi/<driver>^<handle>`.
/// Other forms (legacy in-tree names) are carried, never acted on. Taken apart once, where it is read: the core compares
/// names far more often than it writes one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UniqueVolumeName(VolumeNameForm);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum VolumeNameForm {
    Csi(VolumeKey),
    Other(SmolStr),
}

impl UniqueVolumeName {
    /// Takes a name as a node's status lists it.
    pub fn new(text: impl Into<SmolStr>) -> Self {
        let text = text.into();
        let parts = text.strip_prefix(CSI_PREFIX).and_then(|name| name.split_once('^'));
        let key = parts
            .map(|(driver, handle)| VolumeKey { handle: VolumeHandle::new(handle), driver: DriverName::new(driver) });
        match key.filter(VolumeKey::has_name_to_read_back) {
            Some(key) => Self(VolumeNameForm::Csi(key)),
            None => Self(VolumeNameForm::Other(text)),
        }
    }

    /// The volume behind a CSI name; `None` for every other form.
    pub fn volume_key(&self) -> Option<&VolumeKey> {
        match &self.0 {
            VolumeNameForm::Csi(key) => Some(key),
            VolumeNameForm::Other(_) => None,
        }
    }
}

impl fmt::Display for UniqueVolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            VolumeNameForm::Csi(key) => write!(f, "{CSI_PREFIX}{}^{}", key.driver, key.handle),
            VolumeNameForm::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for UniqueVolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One volume on one node: what a VolumeAttachment stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentKey {
    /// The volume.
    pub volume: VolumeKey,
    /// The node, by the name in `spec.nodeName` of the VolumeAttachment.
    pub node: NodeName,
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.volume, self.node)
    }
}

impl fmt::Debug for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AttachmentName {
    /// The name upstream gives and the kubelet computes for itself: `csi-` and the SHA-256 of handle, driver and node
    /// name, one after the other. Two PersistentVolumes with one handle share it.
    pub fn of(key: &AttachmentKey) -> Self {
        let mut hash = Sha256::new();
        hash.update(key.volume.handle.text());
        hash.update(key.volume.driver.as_str());
        hash.update(key.node.as_str());
        Self::of_digest(hash.finalize().into())
    }
}

/// A pod's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: SmolStr,
    /// Name.
    pub name: SmolStr,
}

/// A claim's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimKey {
    /// Namespace.
    pub namespace: SmolStr,
    /// Name.
    pub name: SmolStr,
}

impl PodKey {
    /// From namespace and name.
    pub fn new(namespace: impl Into<SmolStr>, name: impl Into<SmolStr>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl ClaimKey {
    /// From namespace and name.
    pub fn new(namespace: impl Into<SmolStr>, name: impl Into<SmolStr>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// `awsElasticBlockStore.volumeID` as people and old controllers spelled it: `vol-…`, `aws://zone/vol-…`,
/// `aws:///vol-…`. The zone part names nothing: it may be wrong or `unknown`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVolumeId {
    spelled: SmolStr,
    id: AwsVolumeId,
}

impl KubernetesVolumeId {
    const EXPECTED: &'static str = "a volume id (vol-…, aws://zone/vol-… or aws:///vol-…)";

    /// Parses every spelling that upstream accepts in a specification.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let id = match text.strip_prefix("aws://") {
            Some(rest) => rest.split_once('/').map(|(_zone, id)| id).unwrap_or(""),
            None => text,
        };
        let id = AwsVolumeId::parse(id).map_err(|_| IdError::new(text, Self::EXPECTED))?;
        Ok(Self { spelled: SmolStr::new(text), id })
    }

    /// Parses also `aws:/vol-…`, which path cleaning made of `aws:///vol-…`: accepted where something is read back
    /// (a mount path, a legacy name), never in a specification.
    pub fn parse_read_back(text: &str) -> Result<Self, IdError> {
        match text.strip_prefix("aws:/") {
            Some(id) if !id.starts_with('/') => {
                let id = AwsVolumeId::parse(id).map_err(|_| IdError::new(text, Self::EXPECTED))?;
                Ok(Self { spelled: SmolStr::new(text), id })
            }
            _ => Self::parse(text),
        }
    }

    /// The volume it names.
    pub fn aws_volume_id(&self) -> &AwsVolumeId {
        &self.id
    }

    /// The text as it was spelled.
    pub fn as_spelled(&self) -> &str {
        &self.spelled
    }
}

/// `node.spec.providerID`, taken apart as far as it is EC2's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// An EC2 instance, with the zone if the id carries one.
    Instance {
        /// The instance.
        instance: InstanceId,
        /// Availability, local or wavelength zone.
        zone: Option<Zone>,
    },
    /// Not an EC2 instance: Fargate, a hybrid node, another cloud. Left to others, never an error.
    Other(SmolStr),
}

impl ProviderId {
    /// Takes apart `aws:///zone/i-…` and bare `i-…`; everything else is [`ProviderId::Other`]. `None` when empty: the
    /// cloud controller has not filled it in yet.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        if let Ok(instance) = InstanceId::parse(text) {
            return Some(Self::Instance { instance, zone: None });
        }
        if let Some(path) = text.strip_prefix("aws:///")
            && let Some((zone, id)) = path.split_once('/')
            && let Ok(instance) = InstanceId::parse(id)
        {
            let zone = (!zone.is_empty()).then(|| Zone::new(zone));
            return Some(Self::Instance { instance, zone });
        }
        Some(Self::Other(SmolStr::new(text)))
    }

    /// The instance, if it is one.
    pub fn instance(&self) -> Option<&InstanceId> {
        match self {
            Self::Instance { instance, .. } => Some(instance),
            Self::Other(_) => None,
        }
    }
}
