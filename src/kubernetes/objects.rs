//! Slim types for the objects attachd watches: only the fields it uses are decoded, the rest is skipped unallocated.
//!
//! Flow: `watch` and `write` decode JSON into these, `translate` makes the model's types of them. Owns the wire names of
//! the fields. Must never hold a field that can fail to decode (every one is a [`Field`]), and must never be written back
//! (none is `Serialize`): a write of a slim object would wipe what it does not know.

use std::collections::BTreeMap;

use serde::Deserialize;
use smol_str::SmolStr;

use super::lenient::{Field, List, Present, readable_structs};
use crate::model::time::Wall;

/// `metadata`, the same for every kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// `name`
    pub name: Field<SmolStr>,
    /// `namespace`
    pub namespace: Field<SmolStr>,
    /// `uid`
    pub uid: Field<SmolStr>,
    /// `resourceVersion`
    pub resource_version: Field<SmolStr>,
    /// `creationTimestamp`
    pub creation_timestamp: Field<Wall>,
    /// `deletionTimestamp`
    pub deletion_timestamp: Field<Wall>,
    /// `annotations`
    pub annotations: Field<Annotations>,
    /// `labels`
    pub labels: Field<Labels>,
    /// `finalizers`
    pub finalizers: List<SmolStr>,
    /// `ownerReferences`
    pub owner_references: List<OwnerReference>,
}

/// The annotations that mean something here, of whatever kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Annotations {
    /// Of a Node: it is managed.
    #[serde(rename = "volumes.kubernetes.io/controller-managed-attach-detach")]
    pub managed: Field<SmolStr>,
    /// Of a Node: the unknown marks.
    #[serde(rename = "attachd/in-use-unknown")]
    pub in_use_unknown: Field<SmolStr>,
    /// Of a VolumeAttachment: the CSI node id.
    #[serde(rename = "csi.alpha.kubernetes.io/node-id")]
    pub node_id: Field<SmolStr>,
    /// Of a VolumeAttachment: the UID of its Node.
    #[serde(rename = "attachd/node-uid")]
    pub node_uid: Field<SmolStr>,
    /// Of a VolumeAttachment: the device name.
    #[serde(rename = "attachd/device")]
    pub device: Field<SmolStr>,
    /// Of a VolumeAttachment: a person's word that the volume is not mounted.
    #[serde(rename = "attachd/unmounted")]
    pub unmounted: Field<SmolStr>,
}

/// The labels that mean something here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// Of a Node or a PersistentVolume.
    #[serde(rename = "topology.kubernetes.io/zone")]
    pub zone: Field<SmolStr>,
    /// Of a PersistentVolume.
    #[serde(rename = "topology.kubernetes.io/region")]
    pub region: Field<SmolStr>,
    /// Of a PersistentVolume made before Kubernetes 1.17.
    #[serde(rename = "failure-domain.beta.kubernetes.io/zone")]
    pub old_zone: Field<SmolStr>,
    /// Likewise.
    #[serde(rename = "failure-domain.beta.kubernetes.io/region")]
    pub old_region: Field<SmolStr>,
}

/// `metadata.ownerReferences[]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OwnerReference {
    /// `kind`
    pub kind: Field<SmolStr>,
    /// `uid`
    pub uid: Field<SmolStr>,
    /// `controller`
    pub controller: Field<bool>,
}

/// Pod
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    /// `metadata`
    pub metadata: Field<Metadata>,
    /// `spec`
    pub spec: Field<PodSpec>,
    /// `status`
    pub status: Field<PodStatus>,
}

/// `spec` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// `nodeName`
    pub node_name: Field<SmolStr>,
    /// `volumes`
    pub volumes: List<VolumeObject>,
}

/// `spec.volumes[]` of a Pod: the sources that attaching may concern.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeObject {
    /// `name`
    pub name: Field<SmolStr>,
    /// `persistentVolumeClaim`
    pub persistent_volume_claim: Field<ClaimSource>,
    /// `ephemeral`
    pub ephemeral: Field<Present>,
    /// `awsElasticBlockStore`
    pub aws_elastic_block_store: Field<EbsSource>,
    /// `azureDisk`
    pub azure_disk: Field<Present>,
    /// `cinder`
    pub cinder: Field<Present>,
    /// `fc`
    pub fc: Field<Present>,
    /// `flexVolume`
    pub flex_volume: Field<Present>,
    /// `gcePersistentDisk`
    pub gce_persistent_disk: Field<Present>,
    /// `iscsi`
    pub iscsi: Field<Present>,
    /// `photonPersistentDisk`
    pub photon_persistent_disk: Field<Present>,
    /// `portworxVolume`
    pub portworx_volume: Field<Present>,
    /// `rbd`
    pub rbd: Field<Present>,
    /// `vsphereVolume`
    pub vsphere_volume: Field<Present>,
}

/// `persistentVolumeClaim` of a pod's volume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSource {
    /// `claimName`
    pub claim_name: Field<SmolStr>,
}

/// `awsElasticBlockStore` of a pod's volume or of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EbsSource {
    /// `volumeID`
    #[serde(rename = "volumeID")]
    pub volume_id: Field<SmolStr>,
    /// `fsType`
    pub fs_type: Field<SmolStr>,
    /// `partition`
    pub partition: Field<i32>,
    /// `readOnly`
    pub read_only: Field<bool>,
}

/// `status` of a Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `phase`
    pub phase: Field<SmolStr>,
    /// `conditions`
    pub conditions: List<Condition>,
    /// `initContainerStatuses`
    pub init_container_statuses: List<ContainerStatus>,
    /// `containerStatuses`
    pub container_statuses: List<ContainerStatus>,
    /// `ephemeralContainerStatuses`
    pub ephemeral_container_statuses: List<ContainerStatus>,
}

/// A condition of a pod or a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// `type`
    #[serde(rename = "type")]
    pub kind: Field<SmolStr>,
    /// `status`
    pub status: Field<SmolStr>,
    /// `lastTransitionTime`
    pub last_transition_time: Field<Wall>,
    /// `lastHeartbeatTime`
    pub last_heartbeat_time: Field<Wall>,
}

/// A container's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    /// `state`
    pub state: Field<ContainerState>,
}

/// A container's state, as far as it says "not running".
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// `terminated`
    pub terminated: Field<Present>,
    /// `waiting`
    pub waiting: Field<Present>,
}

/// PersistentVolumeClaim
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimObject {
    /// `metadata`
    pub metadata: Field<Metadata>,
    /// `spec`
    pub spec: Field<ClaimSpec>,
    /// `status`
    pub status: Field<ClaimStatus>,
}

/// `spec` of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimSpec {
    /// `volumeName`
    pub volume_name: Field<SmolStr>,
}

/// `status` of a claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    /// `phase`
    pub phase: Field<SmolStr>,
}

/// PersistentVolume
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeObject {
    /// `metadata`
    pub metadata: Field<Metadata>,
    /// `spec`
    pub spec: Field<PersistentVolumeSpec>,
}

/// `spec` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PersistentVolumeSpec {
    /// `accessModes`
    pub access_modes: List<SmolStr>,
    /// `volumeMode`
    pub volume_mode: Field<SmolStr>,
    /// `claimRef`
    pub claim_ref: Field<ClaimReference>,
    /// `nodeAffinity`
    pub node_affinity: Field<Present>,
    /// `csi`
    pub csi: Field<CsiSource>,
    /// `awsElasticBlockStore`
    pub aws_elastic_block_store: Field<EbsSource>,
    /// `azureDisk`
    pub azure_disk: Field<Present>,
    /// `cinder`
    pub cinder: Field<Present>,
    /// `fc`
    pub fc: Field<Present>,
    /// `flexVolume`
    pub flex_volume: Field<Present>,
    /// `gcePersistentDisk`
    pub gce_persistent_disk: Field<Present>,
    /// `iscsi`
    pub iscsi: Field<Present>,
    /// `photonPersistentDisk`
    pub photon_persistent_disk: Field<Present>,
    /// `portworxVolume`
    pub portworx_volume: Field<Present>,
    /// `rbd`
    pub rbd: Field<Present>,
    /// `vsphereVolume`
    pub vsphere_volume: Field<Present>,
}

/// `spec.claimRef` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    /// `namespace`
    pub namespace: Field<SmolStr>,
    /// `name`
    pub name: Field<SmolStr>,
    /// `uid`
    pub uid: Field<SmolStr>,
}

/// `csi` of a PersistentVolume.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiSource {
    /// `driver`
    pub driver: Field<SmolStr>,
    /// `volumeHandle`
    pub volume_handle: Field<SmolStr>,
    /// `volumeAttributes`
    pub volume_attributes: Field<BTreeMap<SmolStr, Field<SmolStr>>>,
}

/// Node
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    /// `metadata`
    pub metadata: Field<Metadata>,
    /// `spec`
    pub spec: Field<NodeSpec>,
    /// `status`
    pub status: Field<NodeStatus>,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// `providerID`
    #[serde(rename = "providerID")]
    pub provider_id: Field<SmolStr>,
    /// `taints`
    pub taints: List<Taint>,
}

/// `spec.taints[]` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// `key`
    pub key: Field<SmolStr>,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    /// `conditions`
    pub conditions: List<Condition>,
    /// `nodeInfo`
    pub node_info: Field<NodeInfo>,
    /// `volumesInUse`
    pub volumes_in_use: List<SmolStr>,
    /// `volumesAttached`
    pub volumes_attached: List<AttachedVolume>,
}

/// `status.nodeInfo` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// `bootID`
    #[serde(rename = "bootID")]
    pub boot_id: Field<SmolStr>,
}

/// `status.volumesAttached[]` of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachedVolume {
    /// `name`
    pub name: Field<SmolStr>,
    /// `devicePath`
    pub device_path: Field<SmolStr>,
}

/// CSINode
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeObject {
    /// `metadata`
    pub metadata: Field<Metadata>,
    /// `spec`
    pub spec: Field<CsiNodeSpec>,
}

/// `spec` of a CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    /// `drivers`
    pub drivers: List<CsiNodeDriver>,
}

/// `spec.drivers[]` of a CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    /// `name`
    pub name: Field<SmolStr>,
    /// `nodeID`
    #[serde(rename = "nodeID")]
    pub node_id: Field<SmolStr>,
    /// `allocatable`
    pub allocatable: Field<VolumeNodeResources>,
}

/// `allocatable` of a driver of a CSINode.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeNodeResources {
    /// `count`
    pub count: Field<i32>,
}

/// CSIDriver
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiDriverObject {
    /// `metadata`
    pub metadata: Field<Metadata>,
    /// `spec`
    pub spec: Field<CsiDriverSpec>,
}

/// `spec` of a CSIDriver.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CsiDriverSpec {
    /// `attachRequired`
    pub attach_required: Field<bool>,
}

/// VolumeAttachment
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AttachmentObject {
    /// `metadata`
    pub metadata: Field<Metadata>,
    /// `spec`
    pub spec: Field<AttachmentSpec>,
    /// `status`
    pub status: Field<AttachmentStatusObject>,
}

/// `spec` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentSpec {
    /// `attacher`
    pub attacher: Field<SmolStr>,
    /// `nodeName`
    pub node_name: Field<SmolStr>,
    /// `source`
    pub source: Field<AttachmentSourceObject>,
}

/// `spec.source` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentSourceObject {
    /// `persistentVolumeName`
    pub persistent_volume_name: Field<SmolStr>,
    /// `inlineVolumeSpec`
    pub inline_volume_spec: Field<InlineVolumeSpec>,
}

/// `spec.source.inlineVolumeSpec` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct InlineVolumeSpec {
    /// `csi`
    pub csi: Field<CsiSource>,
}

/// `status` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentStatusObject {
    /// `attached`
    pub attached: Field<bool>,
    /// `attachmentMetadata`
    pub attachment_metadata: Field<AttachmentMetadata>,
    /// `attachError`
    pub attach_error: Field<VolumeError>,
    /// `detachError`
    pub detach_error: Field<VolumeError>,
}

/// `status.attachmentMetadata` of a VolumeAttachment of EBS.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttachmentMetadata {
    /// `devicePath`
    pub device_path: Field<SmolStr>,
}

/// `attachError` and `detachError` of a VolumeAttachment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeError {
    /// `message`
    pub message: Field<SmolStr>,
    /// `errorCode`
    pub error_code: Field<i32>,
    /// `time`
    pub time: Field<Wall>,
}

/// A list of objects, or one page of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, bound = "T: super::lenient::Readable")]
pub struct ObjectList<T> {
    /// `kind`
    pub kind: Field<SmolStr>,
    /// `metadata`
    pub metadata: Field<ListMetadata>,
    /// `items`
    pub items: List<T>,
}

impl<T> Default for ObjectList<T> {
    fn default() -> Self {
        Self { kind: Field::Absent, metadata: Field::Absent, items: Field::Absent }
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMetadata {
    /// `resourceVersion`
    pub resource_version: Field<SmolStr>,
    /// `continue`: another page follows.
    #[serde(rename = "continue")]
    pub continue_token: Field<SmolStr>,
}

/// The API server's `Status`, which answers refusals and some deletions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatusObject {
    /// `kind`
    pub kind: Field<SmolStr>,
    /// `message`
    pub message: Field<SmolStr>,
    /// `reason`
    pub reason: Field<SmolStr>,
}

readable_structs! {
    Metadata, Annotations, Labels, OwnerReference, PodObject, PodSpec, VolumeObject, ClaimSource, EbsSource,
    PodStatus, Condition, ContainerStatus, ContainerState, ClaimObject, ClaimSpec, ClaimStatus,
    PersistentVolumeObject, PersistentVolumeSpec, ClaimReference, CsiSource, NodeObject, NodeSpec, Taint,
    NodeStatus, NodeInfo, AttachedVolume, CsiNodeObject, CsiNodeSpec, CsiNodeDriver, VolumeNodeResources,
    CsiDriverObject, CsiDriverSpec, AttachmentObject, AttachmentSpec, AttachmentSourceObject, InlineVolumeSpec,
    AttachmentStatusObject, AttachmentMetadata, VolumeError, ListMetadata, StatusObject,
}
