//! PersistentVolumeClaims and PersistentVolumes.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::ids::{ClaimKey, DriverName, PersistentVolumeName, ResourceVersion, Uid, VolumeHandle};

/// A PersistentVolumeClaim object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace and name.
    pub key: ClaimKey,
    /// `metadata.uid`
    pub uid: Uid,
    /// The PersistentVolume, when `status.phase` is Bound and `spec.volumeName` is set.
    pub bound_to: Option<PersistentVolumeName>,
    /// UID of the controlling owner, when that is a Pod (generic ephemeral volumes).
    pub owner_pod: Option<Uid>,
}

/// A PersistentVolume object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolume {
    /// `metadata.name`
    pub name: PersistentVolumeName,
    /// `metadata.uid`
    pub uid: Uid,
    /// `metadata.resourceVersion`
    pub resource_version: ResourceVersion,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Vec<SmolStr>,
    /// `spec.claimRef`: the claim and its UID.
    pub claim: Option<(ClaimKey, Uid)>,
    /// Where the data lives.
    pub source: PersistentVolumeSource,
    /// `spec.accessModes`
    pub access_modes: BTreeSet<AccessMode>,
    /// Whether `spec.volumeMode` is Block.
    pub block: bool,
    /// What it says of where it can be used.
    pub placement: Placement,
}

/// The well-known label of a zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The well-known label of a region.
pub const REGION_LABEL: &str = "topology.kubernetes.io/region";

/// What a PersistentVolume says of where it can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Label `topology.kubernetes.io/zone`, or its predecessor `failure-domain.beta.kubernetes.io/zone`.
    pub zone: Option<SmolStr>,
    /// Label `topology.kubernetes.io/region`, or its predecessor.
    pub region: Option<SmolStr>,
    /// Whether `spec.nodeAffinity` is set.
    pub has_affinity: bool,
}

/// The source of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PersistentVolumeSource {
    /// `spec.csi`
    Csi {
        /// `driver`
        driver: DriverName,
        /// `volumeHandle`, as written.
        handle: VolumeHandle,
        /// `volumeAttributes`
        attributes: BTreeMap<SmolStr, SmolStr>,
    },
    /// `spec.awsElasticBlockStore`: `volumeID`, as spelled.
    InTreeEbs(SmolStr),
    /// A source that needs attaching and that attachd does not translate (its plugin's name).
    Untranslated(SmolStr),
    /// A source that is never attached (NFS, hostPath, local, …).
    NotAttachable,
}

/// `spec.accessModes[]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessMode {
    /// ReadWriteOnce
    ReadWriteOnce,
    /// ReadOnlyMany
    ReadOnlyMany,
    /// ReadWriteMany
    ReadWriteMany,
    /// ReadWriteOncePod
    ReadWriteOncePod,
}
