//! From what a specification says to the volume it means: CSI handles, in-tree `awsElasticBlockStore` in every spelling.
//!
//! Flow: [`super::objects`] asks for every PersistentVolume and inline source. Owns the reasons why something names no
//! volume. Must never guess: what is not exactly a volume id is an error that quotes the text.

use smol_str::SmolStr;

use crate::model::claim::PersistentVolumeSource;
use crate::model::ids::{
    AwsVolumeId, ClaimKey, DriverName, IdError, KubernetesVolumeId, PersistentVolumeName, VolumeHandle, VolumeKey,
};

/// Handles of the EBS driver that name a device of the instance itself, not a volume that can be attached.
const NODE_LOCAL_PREFIX: &str = "local-ebs://";

/// Why a pod's volume, or a PersistentVolume, names no volume that can be attached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The source is never attached (NFS, hostPath, local, …): nothing is wanted, and nothing is wrong.
    #[error("the volume is of a kind that is never attached")]
    NotAttachable,
    /// The id or handle is not an EBS volume id.
    #[error("{0}")]
    BadVolumeId(IdError),
    /// A node-local handle of the EBS driver.
    #[error("volume handle {0:?} names a device of the node itself: attachd does not attach node-local volumes")]
    NodeLocal(SmolStr),
    /// A CSI handle that cannot stand in a unique volume name: empty, or with a `^`.
    #[error("{handle:?} of driver {driver} is not a volume handle that a node can list")]
    BadHandle {
        /// The driver.
        driver: DriverName,
        /// The handle as written.
        handle: VolumeHandle,
    },
    /// An in-tree source of another cloud.
    #[error("in-tree volume source {0} is not translated to CSI by attachd")]
    Untranslated(SmolStr),
    /// The claim is not (yet) there.
    #[error("claim {0} does not exist")]
    ClaimMissing(ClaimKey),
    /// The claim is not (yet) bound.
    #[error("claim {0} is not bound")]
    ClaimUnbound(ClaimKey),
    /// The claim of a generic ephemeral volume belongs to somebody else.
    #[error("claim {0} is not owned by the pod and is not used for its ephemeral volume")]
    ForeignClaim(ClaimKey),
    /// The claim's PersistentVolume is not (yet) there.
    #[error("PersistentVolume {0} does not exist")]
    PersistentVolumeMissing(PersistentVolumeName),
    /// The PersistentVolume is bound to another claim, or to an earlier claim of that name.
    #[error("PersistentVolume {volume} is not bound to claim {claim}")]
    BoundElsewhere {
        /// The claim that names the PersistentVolume.
        claim: ClaimKey,
        /// The PersistentVolume that does not name it back.
        volume: PersistentVolumeName,
    },
}

impl Unresolved {
    /// Whether a person must mend it. What is not, comes right by itself as the watches catch up or the claim is bound.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::BadVolumeId(_)
            | Self::NodeLocal(_)
            | Self::BadHandle { .. }
            | Self::Untranslated(_)
            | Self::ForeignClaim(_) => true,
            Self::NotAttachable
            | Self::ClaimMissing(_)
            | Self::ClaimUnbound(_)
            | Self::PersistentVolumeMissing(_)
            | Self::BoundElsewhere { .. } => false,
        }
    }
}

/// The volume that a PersistentVolume's source means.
///
/// A CSI handle of the EBS driver is taken as it is: the kubelet hashes the handle as written into the name of the
/// VolumeAttachment, so another spelling would be another name. In-tree ids are translated by the kubelet too, and so
/// are normalised here: two spellings are one volume.
pub fn volume_of_source(source: &PersistentVolumeSource) -> Result<VolumeKey, Unresolved> {
    match source {
        PersistentVolumeSource::Csi { driver, handle, .. } if driver.is_ebs() => {
            if handle.text().starts_with(NODE_LOCAL_PREFIX) {
                return Err(Unresolved::NodeLocal(handle.text()));
            }
            AwsVolumeId::parse(&handle.text()).map(|id| VolumeKey::ebs(&id)).map_err(Unresolved::BadVolumeId)
        }
        PersistentVolumeSource::Csi { driver, handle, .. } => {
            let volume = VolumeKey { handle: handle.clone(), driver: driver.clone() };
            // A node lists `<driver>^<handle>`: what cannot be read back from there cannot be unlisted safely.
            match volume.unique_name().volume_key() {
                Some(same) if *same == volume => Ok(volume),
                _ => Err(Unresolved::BadHandle { driver: driver.clone(), handle: handle.clone() }),
            }
        }
        PersistentVolumeSource::InTreeEbs(spelled) => volume_of_spelled_id(spelled),
        PersistentVolumeSource::Untranslated(plugin) => Err(Unresolved::Untranslated(plugin.clone())),
        PersistentVolumeSource::NotAttachable => Err(Unresolved::NotAttachable),
    }
}

/// The EBS volume that `awsElasticBlockStore.volumeID` means, in a PersistentVolume or inline in a pod.
pub fn volume_of_spelled_id(spelled: &str) -> Result<VolumeKey, Unresolved> {
    KubernetesVolumeId::parse(spelled).map(|id| VolumeKey::ebs(id.aws_volume_id())).map_err(Unresolved::BadVolumeId)
}
