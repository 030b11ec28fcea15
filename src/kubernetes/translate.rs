//! From slim objects to the model, purely.
//!
//! Flow: `watch` translates what it hears, `write` what it is answered. Owns what an unreadable field means. Must never
//! let an object that cannot be read look as if it wanted nothing, were not in use or not attached (rule 10):
//!
//! | kind | what makes the whole object [`Object::Unreadable`] | what does not |
//! |---|---|---|
//! | Pod | spec, nodeName | an unreadable volume or list of them is [`PodVolume::Untranslated`], so the pod is unresolved; an unreadable phase or container counts as running |
//! | claim | nothing | an unreadable phase or volume name leaves it unbound, so its pods are unresolved; an unreadable owner owns nothing |
//! | PersistentVolume | finalizers (their whole list is written back), deletionTimestamp | an unreadable source is [`PersistentVolumeSource::Untranslated`], an unreadable claimRef none; an unknown access mode is left out, which makes the volume exclusive |
//! | Node | spec, status, conditions, volumesInUse, volumesAttached | an unreadable annotation of marks marks every volume; an unreadable taint fences nothing; an unreadable provider id is an empty one |
//! | CSINode, CSIDriver | the list of drivers; attachRequired | |
//! | VolumeAttachment | finalizers, deletionTimestamp, attacher, nodeName, `attached`, any annotation of ours | an unreadable source is [`AttachmentSource::Unreadable`]; an unreadable error none |
//!
//! An object whose very identity (namespace, name, UID) cannot be read has no key, and no translation at all.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::lenient::{Field, Present, Readable, Unread};
use super::objects::{
    AttachmentObject, AttachmentSourceObject, AttachmentStatusObject, ClaimObject, Condition, ContainerStatus,
    CsiDriverObject, CsiNodeObject, CsiSource, EbsSource, Metadata, NodeObject, PersistentVolumeObject,
    PersistentVolumeSpec, PodObject, PodStatus, VolumeError, VolumeObject,
};
use crate::controller::event::{Kind, Object, ObjectKey};
use crate::model::attachment::{AttachmentError, AttachmentSource, AttachmentStatus, VolumeAttachment};
use crate::model::claim::{AccessMode, Claim, PersistentVolume, PersistentVolumeSource, Placement};
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentName, BootId, ClaimKey, DriverName, NodeName, PersistentVolumeName, PodKey, ProviderId, ResourceVersion,
    Uid, UniqueVolumeName, VolumeHandle, Zone,
};
use crate::model::node::{CsiDriver, CsiNode, Node, OUT_OF_SERVICE_TAINT, Ready, UnknownMarks};
use crate::model::pod::{InlineEbs, Pod, PodVolume};
use crate::model::time::Wall;

/// The plugin name given to a source that is there but cannot be read.
pub const UNREADABLE_PLUGIN: &str = "unreadable";

/// A kind that is watched.
pub trait Watched: Readable + Clone + Send + 'static {
    /// The kind.
    const KIND: Kind;
    /// Its list's path on the API server.
    const PATH: &'static str;
    /// The field selector it is listed and watched with.
    const FIELD_SELECTOR: Option<&'static str> = None;

    /// `metadata`
    fn metadata(&self) -> &Field<Metadata>;

    /// The object's identity, with the UID where the kind has one.
    fn key(&self) -> Option<ObjectKey>;

    /// The model's object.
    fn translate(self) -> Result<Object, Unread>;

    /// `metadata.resourceVersion`
    fn resource_version(&self) -> Option<SmolStr> {
        self.metadata().get()?.resource_version.get().cloned()
    }
}

fn name(metadata: &Field<Metadata>) -> Option<SmolStr> {
    metadata.get()?.name.get().cloned()
}

fn uid(metadata: &Field<Metadata>) -> Option<Uid> {
    metadata.get()?.uid.get().cloned().map(Uid::new)
}

fn namespace_and_name(metadata: &Field<Metadata>) -> Option<(SmolStr, SmolStr)> {
    let metadata = metadata.get()?;
    Some((metadata.namespace.get()?.clone(), metadata.name.get()?.clone()))
}

macro_rules! watched {
    ($object:ident, $kind:ident, $path:literal, $selector:expr, $translate:ident, |$metadata:ident| $key:expr) => {
        impl Watched for $object {
            const KIND: Kind = Kind::$kind;
            const PATH: &'static str = $path;
            const FIELD_SELECTOR: Option<&'static str> = $selector;

            fn metadata(&self) -> &Field<Metadata> {
                &self.metadata
            }

            fn key(&self) -> Option<ObjectKey> {
                let $metadata = &self.metadata;
                $key
            }

            fn translate(self) -> Result<Object, Unread> {
                $translate(self).map(Object::$kind)
            }
        }
    };
}

// Pods without a node want nothing yet; terminated ones are still listed, because they must be seen to end.
watched!(PodObject, Pod, "/api/v1/pods", Some("spec.nodeName!="), pod, |metadata| {
    let (namespace, name) = namespace_and_name(metadata)?;
    Some(ObjectKey::Pod(PodKey::new(namespace, name), uid(metadata)?))
});
watched!(ClaimObject, Claim, "/api/v1/persistentvolumeclaims", None, claim, |metadata| {
    let (namespace, name) = namespace_and_name(metadata)?;
    Some(ObjectKey::Claim(ClaimKey::new(namespace, name), uid(metadata)?))
});
watched!(PersistentVolumeObject, PersistentVolume, "/api/v1/persistentvolumes", None, persistent_volume, |metadata| {
    Some(ObjectKey::PersistentVolume(PersistentVolumeName::new(name(metadata)?), uid(metadata)?))
});
watched!(NodeObject, Node, "/api/v1/nodes", None, node, |metadata| {
    Some(ObjectKey::Node(NodeName::new(name(metadata)?), uid(metadata)?))
});
watched!(CsiNodeObject, CsiNode, "/apis/storage.k8s.io/v1/csinodes", None, csi_node, |metadata| {
    Some(ObjectKey::CsiNode(NodeName::new(name(metadata)?)))
});
watched!(CsiDriverObject, CsiDriver, "/apis/storage.k8s.io/v1/csidrivers", None, csi_driver, |metadata| {
    Some(ObjectKey::CsiDriver(DriverName::new(name(metadata)?)))
});
watched!(AttachmentObject, Attachment, "/apis/storage.k8s.io/v1/volumeattachments", None, attachment, |metadata| Some(
    ObjectKey::Attachment(AttachmentName::new(name(metadata)?), uid(metadata)?)
));

/// The text of a required field, as an identity of the type `T`.
fn text<T>(field: Field<SmolStr>, name: &'static str, make: impl Fn(SmolStr) -> T) -> Result<T, Unread> {
    field.required(name).map(make)
}

/// A Pod.
pub fn pod(object: PodObject) -> Result<Pod, Unread> {
    let metadata = object.metadata.required("metadata")?;
    let spec = object.spec.required("spec")?;
    let node = spec.node_name.optional("spec.nodeName")?.filter(|name| !name.is_empty()).map(NodeName::new);
    let status = object.status.ok().unwrap_or_default();
    // An unreadable deletionTimestamp counts as none: the pod goes on wanting its volumes.
    let deleting = metadata.deletion_timestamp.get().is_some();
    let volumes = match spec.volumes {
        Field::Absent => Vec::new(),
        Field::Unreadable => vec![PodVolume::Untranslated(SmolStr::new_static(UNREADABLE_PLUGIN))],
        Field::Is(volumes) => volumes.into_iter().filter_map(pod_volume).collect(),
    };
    Ok(Pod {
        key: PodKey::new(metadata.namespace.required("metadata.namespace")?, metadata.name.required("metadata.name")?),
        uid: text(metadata.uid, "metadata.uid", Uid::new)?,
        node,
        created: metadata.creation_timestamp.ok().unwrap_or_default(),
        scheduled: scheduled(&status),
        deleting,
        terminated: is_terminated(&status, deleting),
        volumes,
    })
}

/// Upstream's IsPodTerminated: it has failed or succeeded, or is being deleted with no container running.
fn is_terminated(status: &PodStatus, deleting: bool) -> bool {
    let phase = status.phase.get().map(SmolStr::as_str);
    let running = |statuses: &Field<Vec<Field<ContainerStatus>>>| match statuses {
        Field::Absent => false,
        Field::Unreadable => true,
        Field::Is(list) => list.iter().any(|status| !status.get().is_some_and(is_not_running)),
    };
    matches!(phase, Some("Failed" | "Succeeded"))
        || (deleting
            && !running(&status.init_container_statuses)
            && !running(&status.container_statuses)
            && !running(&status.ephemeral_container_statuses))
}

/// A container that is neither terminated nor waiting counts as running, also when it has no state yet.
fn is_not_running(status: &ContainerStatus) -> bool {
    status.state.get().is_some_and(|state| state.terminated.get().is_some() || state.waiting.get().is_some())
}

fn condition<'a>(conditions: &'a Field<Vec<Field<Condition>>>, kind: &str) -> Option<&'a Condition> {
    conditions.get()?.iter().filter_map(Field::get).find(|condition| condition.kind.get().is_some_and(|k| k == kind))
}

fn is_true(condition: &Condition) -> bool {
    condition.status.get().is_some_and(|status| status == "True")
}

fn scheduled(status: &PodStatus) -> Option<Wall> {
    let condition = condition(&status.conditions, "PodScheduled").filter(|condition| is_true(condition))?;
    condition.last_transition_time.get().copied()
}

fn untranslated(plugin: &str) -> PodVolume {
    PodVolume::Untranslated(SmolStr::new(plugin))
}

/// `None`: a source that is never attached (inline CSI ephemeral volumes, emptyDir, configMap, …).
fn pod_volume(volume: Field<VolumeObject>) -> Option<PodVolume> {
    let Field::Is(volume) = volume else { return Some(untranslated(UNREADABLE_PLUGIN)) };
    if volume.persistent_volume_claim.is_there() {
        let claim = volume.persistent_volume_claim.ok().and_then(|claim| claim.claim_name.ok());
        return Some(claim.map_or_else(|| untranslated(UNREADABLE_PLUGIN), PodVolume::Claim));
    }
    if volume.ephemeral.is_there() {
        let name = volume.name.ok();
        return Some(name.map_or_else(|| untranslated(UNREADABLE_PLUGIN), PodVolume::Ephemeral));
    }
    if volume.aws_elastic_block_store.is_there() {
        let source = volume.aws_elastic_block_store.ok().and_then(|source| inline_ebs(source).ok());
        return Some(source.map_or_else(|| untranslated(UNREADABLE_PLUGIN), PodVolume::InlineEbs));
    }
    let plugin = attachable_plugin([
        &volume.azure_disk,
        &volume.cinder,
        &volume.fc,
        &volume.flex_volume,
        &volume.gce_persistent_disk,
        &volume.iscsi,
        &volume.photon_persistent_disk,
        &volume.portworx_volume,
        &volume.rbd,
        &volume.vsphere_volume,
    ])?;
    Some(untranslated(plugin))
}

/// The in-tree plugins that ask for an attachment (or for an entry in `volumesAttached`, as iSCSI and FC do) and that
/// attachd does not translate, in the order in which their fields are given.
const ATTACHABLE_PLUGINS: [&str; 10] = [
    "kubernetes.io/azure-disk",
    "kubernetes.io/cinder",
    "kubernetes.io/fc",
    "kubernetes.io/flexvolume",
    "kubernetes.io/gce-pd",
    "kubernetes.io/iscsi",
    "kubernetes.io/photon-pd",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/rbd",
    "kubernetes.io/vsphere-volume",
];

fn attachable_plugin(sources: [&Field<Present>; 10]) -> Option<&'static str> {
    let position = sources.into_iter().position(Field::is_there)?;
    Some(ATTACHABLE_PLUGINS[position])
}

fn inline_ebs(source: EbsSource) -> Result<InlineEbs, Unread> {
    Ok(InlineEbs {
        volume_id: source.volume_id.optional("volumeID")?.unwrap_or_default(),
        fs_type: source.fs_type.optional("fsType")?.filter(|text| !text.is_empty()),
        partition: source.partition.optional("partition")?.unwrap_or(0),
        read_only: source.read_only.optional("readOnly")?.unwrap_or(false),
    })
}

/// A PersistentVolumeClaim.
pub fn claim(object: ClaimObject) -> Result<Claim, Unread> {
    let metadata = object.metadata.required("metadata")?;
    let bound = object.status.ok().and_then(|status| status.phase.ok()).is_some_and(|phase| phase == "Bound");
    let volume = object.spec.ok().and_then(|spec| spec.volume_name.ok()).filter(|name| !name.is_empty());
    let owners = metadata.owner_references.ok().unwrap_or_default();
    let controller = owners.into_iter().filter_map(Field::ok).find(|owner| owner.controller == Field::Is(true));
    let owner_pod = controller.filter(|owner| owner.kind.get().is_some_and(|kind| kind == "Pod"));
    Ok(Claim {
        key: ClaimKey::new(
            metadata.namespace.required("metadata.namespace")?,
            metadata.name.required("metadata.name")?,
        ),
        uid: text(metadata.uid, "metadata.uid", Uid::new)?,
        bound_to: volume.filter(|_| bound).map(PersistentVolumeName::new),
        owner_pod: owner_pod.and_then(|owner| owner.uid.ok()).map(Uid::new),
    })
}

/// A PersistentVolume.
pub fn persistent_volume(object: PersistentVolumeObject) -> Result<PersistentVolume, Unread> {
    let metadata = object.metadata.required("metadata")?;
    let mut spec = object.spec.required("spec")?;
    let source = persistent_volume_source(&mut spec);
    let claim = spec.claim_ref.ok().and_then(|claim| {
        let key = ClaimKey::new(claim.namespace.ok()?, claim.name.ok()?);
        Some((key, Uid::new(claim.uid.ok().unwrap_or_default())))
    });
    let modes = spec.access_modes.ok().unwrap_or_default();
    let labels = metadata.labels.ok().unwrap_or_default();
    Ok(PersistentVolume {
        name: text(metadata.name, "metadata.name", PersistentVolumeName::new)?,
        uid: text(metadata.uid, "metadata.uid", Uid::new)?,
        resource_version: text(metadata.resource_version, "metadata.resourceVersion", ResourceVersion::new)?,
        deleting: metadata.deletion_timestamp.optional("metadata.deletionTimestamp")?.is_some(),
        finalizers: metadata.finalizers.all("metadata.finalizers")?,
        claim,
        source,
        access_modes: modes.iter().filter_map(Field::get).filter_map(|mode| access_mode(mode)).collect(),
        block: spec.volume_mode.get().is_some_and(|mode| mode == "Block"),
        placement: Placement {
            zone: labels.zone.ok().or_else(|| labels.old_zone.ok()),
            region: labels.region.ok().or_else(|| labels.old_region.ok()),
            has_affinity: spec.node_affinity.is_there(),
        },
    })
}

fn access_mode(text: &str) -> Option<AccessMode> {
    match text {
        "ReadWriteOnce" => Some(AccessMode::ReadWriteOnce),
        "ReadOnlyMany" => Some(AccessMode::ReadOnlyMany),
        "ReadWriteMany" => Some(AccessMode::ReadWriteMany),
        "ReadWriteOncePod" => Some(AccessMode::ReadWriteOncePod),
        _ => None,
    }
}

fn persistent_volume_source(spec: &mut PersistentVolumeSpec) -> PersistentVolumeSource {
    let unreadable = || PersistentVolumeSource::Untranslated(SmolStr::new_static(UNREADABLE_PLUGIN));
    if spec.csi.is_there() {
        let csi = std::mem::take(&mut spec.csi).ok();
        return csi.and_then(|csi| csi_source(csi).ok()).unwrap_or_else(unreadable);
    }
    if spec.aws_elastic_block_store.is_there() {
        let source = std::mem::take(&mut spec.aws_elastic_block_store).ok();
        let volume_id = source.and_then(|source| source.volume_id.ok());
        return volume_id.map_or_else(unreadable, PersistentVolumeSource::InTreeEbs);
    }
    let plugin = attachable_plugin([
        &spec.azure_disk,
        &spec.cinder,
        &spec.fc,
        &spec.flex_volume,
        &spec.gce_persistent_disk,
        &spec.iscsi,
        &spec.photon_persistent_disk,
        &spec.portworx_volume,
        &spec.rbd,
        &spec.vsphere_volume,
    ]);
    plugin.map_or(PersistentVolumeSource::NotAttachable, |plugin| {
        PersistentVolumeSource::Untranslated(SmolStr::new_static(plugin))
    })
}

fn csi_source(csi: CsiSource) -> Result<PersistentVolumeSource, Unread> {
    let attributes = csi.volume_attributes.optional("csi.volumeAttributes")?.unwrap_or_default();
    let attributes: Result<BTreeMap<_, _>, _> =
        attributes.into_iter().map(|(key, value)| Ok((key, value.required("csi.volumeAttributes")?))).collect();
    Ok(PersistentVolumeSource::Csi {
        driver: text(csi.driver, "csi.driver", DriverName::new)?,
        handle: text(csi.volume_handle, "csi.volumeHandle", VolumeHandle::new)?,
        attributes: attributes?,
    })
}

/// A Node.
pub fn node(object: NodeObject) -> Result<Node, Unread> {
    let metadata = object.metadata.required("metadata")?;
    let spec = object.spec.optional("spec")?.unwrap_or_default();
    let status = object.status.optional("status")?.unwrap_or_default();
    let annotations = metadata.annotations.optional("metadata.annotations")?.unwrap_or_default();
    let created = metadata.creation_timestamp.get().copied();
    let ready = ready(status.conditions, created)?;
    let mut volumes_attached = BTreeMap::new();
    for entry in status.volumes_attached.all("status.volumesAttached")? {
        let name = text(entry.name, "status.volumesAttached", UniqueVolumeName::new)?;
        let device_path = entry.device_path.optional("status.volumesAttached")?.unwrap_or_default();
        volumes_attached.insert(name, device_path);
    }
    let in_use = status.volumes_in_use.all("status.volumesInUse")?;
    let taints = spec.taints.ok().unwrap_or_default();
    let zone = metadata.labels.ok().and_then(|labels| labels.zone.ok()).filter(|zone| !zone.is_empty());
    let boot_id = status.node_info.ok().and_then(|info| info.boot_id.ok()).filter(|id| !id.is_empty());
    Ok(Node {
        name: text(metadata.name, "metadata.name", NodeName::new)?,
        uid: text(metadata.uid, "metadata.uid", Uid::new)?,
        resource_version: text(metadata.resource_version, "metadata.resourceVersion", ResourceVersion::new)?,
        managed: annotations.managed.is_there(),
        provider_id: spec.provider_id.ok().and_then(|id| ProviderId::parse(&id)),
        zone: zone.map(Zone::new),
        ready,
        out_of_service: taints
            .iter()
            .filter_map(Field::get)
            .any(|taint| taint.key.get().is_some_and(|key| key == OUT_OF_SERVICE_TAINT)),
        boot_id: boot_id.map(BootId::new),
        volumes_in_use: in_use.into_iter().map(UniqueVolumeName::new).collect(),
        volumes_attached,
        in_use_unknown: match annotations.in_use_unknown {
            Field::Absent => UnknownMarks::default(),
            Field::Unreadable => UnknownMarks::Unreadable(SmolStr::default()),
            Field::Is(text) => UnknownMarks::parse(&text),
        },
    })
}

/// A node without a Ready condition is not ready, since its creation.
fn ready(conditions: Field<Vec<Field<Condition>>>, created: Option<Wall>) -> Result<Ready, Unread> {
    const NAME: &str = "status.conditions";
    for condition in conditions.all(NAME)? {
        if condition.kind.clone().required(NAME)? == "Ready" {
            return Ok(Ready {
                is_true: condition.status.required(NAME)? == "True",
                since: condition.last_transition_time.ok(),
                heartbeat: condition.last_heartbeat_time.ok(),
            });
        }
    }
    Ok(Ready { is_true: false, since: created, heartbeat: None })
}

/// A CSINode.
pub fn csi_node(object: CsiNodeObject) -> Result<CsiNode, Unread> {
    const NAME: &str = "spec.drivers";
    let metadata = object.metadata.required("metadata")?;
    let spec = object.spec.required("spec")?;
    let mut drivers = BTreeMap::new();
    let mut ebs_allocatable = None;
    for driver in spec.drivers.all(NAME)? {
        let name = text(driver.name, NAME, DriverName::new)?;
        if name.is_ebs() {
            let count = driver.allocatable.ok().and_then(|allocatable| allocatable.count.ok());
            ebs_allocatable = count.and_then(|count| u32::try_from(count).ok());
        }
        drivers.insert(name, driver.node_id.required(NAME)?);
    }
    Ok(CsiNode { name: text(metadata.name, "metadata.name", NodeName::new)?, drivers, ebs_allocatable })
}

/// A CSIDriver.
pub fn csi_driver(object: CsiDriverObject) -> Result<CsiDriver, Unread> {
    let metadata = object.metadata.required("metadata")?;
    let spec = object.spec.optional("spec")?.unwrap_or_default();
    Ok(CsiDriver {
        name: text(metadata.name, "metadata.name", DriverName::new)?,
        attach_required: spec.attach_required.optional("spec.attachRequired")?.unwrap_or(true),
    })
}

/// A VolumeAttachment.
pub fn attachment(object: AttachmentObject) -> Result<VolumeAttachment, Unread> {
    let metadata = object.metadata.required("metadata")?;
    let spec = object.spec.required("spec")?;
    let annotations = metadata.annotations.optional("metadata.annotations")?.unwrap_or_default();
    Ok(VolumeAttachment {
        name: text(metadata.name, "metadata.name", AttachmentName::new)?,
        uid: text(metadata.uid, "metadata.uid", Uid::new)?,
        resource_version: text(metadata.resource_version, "metadata.resourceVersion", ResourceVersion::new)?,
        deleting: metadata.deletion_timestamp.optional("metadata.deletionTimestamp")?,
        finalizers: metadata.finalizers.all("metadata.finalizers")?,
        driver: text(spec.attacher, "spec.attacher", DriverName::new)?,
        node: text(spec.node_name, "spec.nodeName", NodeName::new)?,
        source: attachment_source(spec.source.ok().unwrap_or_default()),
        node_id: annotations.node_id.optional("annotation csi.alpha.kubernetes.io/node-id")?,
        node_uid: annotations.node_uid.optional("annotation attachd/node-uid")?.map(Uid::new),
        device: annotations.device.optional("annotation attachd/device")?.map(DeviceName::new),
        unmounted: annotations.unmounted.optional("annotation attachd/unmounted")?.map(BootId::new),
        status: attachment_status(object.status)?,
    })
}

fn attachment_source(source: AttachmentSourceObject) -> AttachmentSource {
    if let Some(name) = source.persistent_volume_name.ok() {
        return AttachmentSource::PersistentVolume(PersistentVolumeName::new(name));
    }
    let csi = source.inline_volume_spec.ok().and_then(|spec| spec.csi.ok()).unwrap_or_default();
    match (csi.driver.ok(), csi.volume_handle.ok()) {
        (Some(driver), Some(handle)) => {
            AttachmentSource::Inline { driver: DriverName::new(driver), handle: VolumeHandle::new(handle) }
        }
        _ => AttachmentSource::Unreadable,
    }
}

fn attachment_status(status: Field<AttachmentStatusObject>) -> Result<AttachmentStatus, Unread> {
    let status = status.optional("status")?.unwrap_or_default();
    let metadata = status.attachment_metadata.ok().unwrap_or_default();
    Ok(AttachmentStatus {
        attached: status.attached.optional("status.attached")?.unwrap_or(false),
        device_path: metadata.device_path.ok().map(DeviceName::new),
        attach_error: status.attach_error.ok().map(attachment_error),
        detach_error: status.detach_error.ok().map(attachment_error),
    })
}

fn attachment_error(error: VolumeError) -> AttachmentError {
    AttachmentError {
        message: error.message.ok().unwrap_or_default(),
        code: error.error_code.ok(),
        time: error.time.ok(),
    }
}

#[cfg(test)]
mod tests;
