//! VolumeAttachment objects, and what attachd records in them.

use smol_str::SmolStr;

use super::device::DeviceName;
use super::ids::{
    AttachmentName, BootId, DriverName, InstanceId, NodeName, PersistentVolumeName, ResourceVersion, Uid, VolumeHandle,
};
use super::pod::InlineEbs;
use super::time::Wall;

/// csi-attacher's annotation with the CSI node id, for EBS the instance frozen at attach time.
pub const NODE_ID_ANNOTATION: &str = "csi.alpha.kubernetes.io/node-id";
/// attachd's annotation with the UID of the Node object for which the VolumeAttachment was made.
pub const NODE_UID_ANNOTATION: &str = "attachd/node-uid";
/// attachd's annotation with the device name AttachVolume is (or was) sent with.
pub const DEVICE_ANNOTATION: &str = "attachd/device";
/// A person's word that the volume is not mounted: the boot id at which it was checked (rule 3).
pub const UNMOUNTED_ANNOTATION: &str = "attachd/unmounted";

/// A VolumeAttachment object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAttachment {
    /// `metadata.name`
    pub name: AttachmentName,
    /// `metadata.uid`
    pub uid: Uid,
    /// `metadata.resourceVersion`
    pub resource_version: ResourceVersion,
    /// `metadata.deletionTimestamp`: set means Terminating.
    pub deleting: Option<Wall>,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Vec<SmolStr>,
    /// `spec.attacher`
    pub driver: DriverName,
    /// `spec.nodeName`
    pub node: NodeName,
    /// `spec.source`
    pub source: AttachmentSource,
    /// Annotation [`NODE_ID_ANNOTATION`], as written.
    pub node_id: Option<SmolStr>,
    /// Annotation [`NODE_UID_ANNOTATION`].
    pub node_uid: Option<Uid>,
    /// Annotation [`DEVICE_ANNOTATION`].
    pub device: Option<DeviceName>,
    /// Annotation [`UNMOUNTED_ANNOTATION`].
    pub unmounted: Option<BootId>,
    /// `status`
    pub status: AttachmentStatus,
}

impl VolumeAttachment {
    /// The instance frozen in it, if the annotation names one.
    pub fn instance(&self) -> Option<InstanceId> {
        InstanceId::parse(self.node_id.as_deref()?).ok()
    }

    /// Whether the attacher's finalizer of its driver is on it.
    pub fn has_attacher_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| self.driver.is_attacher_finalizer(finalizer))
    }
}

/// `spec.source` of a VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentSource {
    /// `persistentVolumeName`
    PersistentVolume(PersistentVolumeName),
    /// `inlineVolumeSpec`, read back: driver and handle.
    Inline {
        /// `csi.driver`
        driver: DriverName,
        /// `csi.volumeHandle`
        handle: VolumeHandle,
    },
    /// Neither could be read.
    Unreadable,
}

/// What a new VolumeAttachment is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewAttachmentSource {
    /// `persistentVolumeName`
    PersistentVolume(PersistentVolumeName),
    /// `inlineVolumeSpec`: the full translated PersistentVolumeSpec is made from this.
    Inline(InlineEbs),
}

/// `status` of a VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentStatus {
    /// `attached`
    pub attached: bool,
    /// `attachmentMetadata.devicePath`
    pub device_path: Option<DeviceName>,
    /// `attachError`
    pub attach_error: Option<AttachmentError>,
    /// `detachError`
    pub detach_error: Option<AttachmentError>,
}

/// `attachError` or `detachError`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentError {
    /// `message`
    pub message: SmolStr,
    /// `errorCode`: a gRPC code; 8 (ResourceExhausted) makes the kubelet give the pod back.
    pub code: Option<i32>,
    /// `time`
    pub time: Option<Wall>,
}
