//! Everything else that acts on the cluster: workloads that want pods, and the control loops of Kubernetes and of the
//! cloud.
//!
//! Flow: the driver tells them what changed and wakes them when they say so; they write to the API server. Must never
//! look at EC2 (but for whether an instance is gone, which the cloud's loop asks) nor at attachd.

mod apps;
mod control_plane;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use apps::{App, AppId, Apps, Replacement};
pub use control_plane::{ControlPlane, ControlPlaneOptions};

use crate::model::claim::{AccessMode, PersistentVolume, PersistentVolumeSource};
use crate::model::ids::{AwsVolumeId, DriverName, PersistentVolumeName, ResourceVersion, Uid, VolumeHandle};

/// A PersistentVolume of the EBS driver as csi-provisioner makes it: ReadWriteOnce, a file system.
pub fn ebs_volume(name: &str, volume: &AwsVolumeId) -> PersistentVolume {
    PersistentVolume {
        name: PersistentVolumeName::new(name),
        uid: Uid::new(""),
        resource_version: ResourceVersion::new(""),
        deleting: false,
        finalizers: Vec::new(),
        claim: None,
        source: PersistentVolumeSource::Csi {
            driver: DriverName::ebs(),
            handle: VolumeHandle::new(volume.as_str()),
            attributes: BTreeMap::new(),
        },
        access_modes: BTreeSet::from([AccessMode::ReadWriteOnce]),
        block: false,
    }
}
