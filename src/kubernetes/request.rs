//! From one call to the one HTTP request that makes it, purely.
//!
//! Flow: `write` sends what this builds. Owns paths, patch types and bodies. Must never leave a precondition out: every
//! patch carries the UID, and whatever replaces a whole list also the resourceVersion (rule 12).

use http::Request;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request as Resource;
use kube::core::request::Error;
use serde_json::{Map, Value, json};
use smol_str::SmolStr;

use super::objects;
use super::translate::Watched;
use crate::controller::command::{
    AttachmentStatusChange, EventNote, KubernetesCall, NewAttachment, Recorded, Regarding,
};
use crate::model::attachment::{
    AttachmentError, DEVICE_ANNOTATION, NODE_ID_ANNOTATION, NODE_UID_ANNOTATION, NewAttachmentSource,
};
use crate::model::claim::ZONE_LABEL;
use crate::model::ids::{AttachmentName, DriverName, ResourceVersion, Uid, VolumeHandle};
use crate::model::node::{IN_USE_UNKNOWN_ANNOTATION, TOUCH_ANNOTATION, UnknownMarks};
use crate::model::pod::InlineEbs;
use crate::model::time::Wall;

/// The name under which the API server records which fields attachd wrote.
const FIELD_MANAGER: &str = "attachd";
/// Upstream's event source: dashboards and people filter by it.
const EVENT_COMPONENT: &str = "attachdetach-controller";
/// Longest object name the API server takes.
const MAX_NAME: usize = 253;

const ATTACHMENTS: &str = <objects::AttachmentObject as Watched>::PATH;
const PERSISTENT_VOLUMES: &str = <objects::PersistentVolumeObject as Watched>::PATH;
const NODES: &str = <objects::NodeObject as Watched>::PATH;
const PODS: &str = <objects::PodObject as Watched>::PATH;

/// Builds the request. `now` dates errors and events that carry no time of their own; `serial` makes the names of events
/// of one millisecond differ.
pub fn build(call: &KubernetesCall, now: Wall, serial: u64) -> Result<Request<Vec<u8>>, Error> {
    let attachments = Resource::new(ATTACHMENTS);
    match call {
        KubernetesCall::CreateAttachment(new) => attachments.create(&post(), body(&new_attachment(new))?),
        KubernetesCall::RecordAttachment { name, uid, resource_version, finalizers, recorded } => {
            let mut metadata = finalizers_patch(uid, resource_version, finalizers);
            metadata["annotations"] = recorded_annotations(recorded);
            merge(&attachments, &name.text(), json!({ "metadata": metadata }))
        }
        KubernetesCall::PatchAttachmentStatus { name, uid, change } => {
            let body = json!({ "metadata": { "uid": uid.as_str() }, "status": attachment_status(change, now) });
            attachments.patch_subresource("status", &name.text(), &patch(), &Patch::Merge(body))
        }
        KubernetesCall::SetAttachmentFinalizers { name, uid, resource_version, finalizers } => {
            let metadata = finalizers_patch(uid, resource_version, finalizers);
            merge(&attachments, &name.text(), json!({ "metadata": metadata }))
        }
        KubernetesCall::DeleteAttachment { name, uid, resource_version } => {
            attachments.delete(&name.text(), &delete(uid, resource_version))
        }
        KubernetesCall::GetAttachment { name } => attachments.get(&name.text(), &GetParams::default()),
        KubernetesCall::SetPersistentVolumeFinalizers { name, uid, resource_version, finalizers } => {
            let metadata = finalizers_patch(uid, resource_version, finalizers);
            merge(&Resource::new(PERSISTENT_VOLUMES), name.as_str(), json!({ "metadata": metadata }))
        }
        KubernetesCall::PlacePersistentVolume { name, uid, resource_version, labels, affinity } => {
            let labels: Map<String, Value> =
                labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
            let mut body = json!({ "metadata": {
                "uid": uid.as_str(), "resourceVersion": resource_version.as_str(), "labels": labels
            } });
            if let Some(zone) = affinity {
                let expression = json!({ "key": ZONE_LABEL, "operator": "In", "values": [zone.as_str()] });
                body["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] =
                    json!([{ "matchExpressions": [expression] }]);
            }
            merge(&Resource::new(PERSISTENT_VOLUMES), name.as_str(), body)
        }
        KubernetesCall::GetPersistentVolume { name } => {
            Resource::new(PERSISTENT_VOLUMES).get(name.as_str(), &GetParams::default())
        }
        KubernetesCall::PatchNodeStatus { name, uid, resource_version, volumes_attached, marks, touch } => {
            let list: Vec<Value> = volumes_attached
                .iter()
                .map(|(volume, device_path)| json!({ "name": volume.to_string(), "devicePath": device_path.as_str() }))
                .collect();
            let mut metadata = json!({ "uid": uid.as_str(), "resourceVersion": resource_version.as_str() });
            if let Some(marks) = marks {
                // No marks: null takes the annotation away.
                metadata["annotations"][IN_USE_UNKNOWN_ANNOTATION] = json!(UnknownMarks::to_annotation(marks));
            }
            if let Some(touch) = touch {
                metadata["annotations"][TOUCH_ANNOTATION] = json!(touch.as_str());
            }
            // The list is atomic: a strategic merge replaces it whole, as the kubelet's own patches do.
            let body = json!({ "metadata": metadata, "status": { "volumesAttached": list } });
            Resource::new(NODES).patch_subresource("status", name.as_str(), &patch(), &Patch::Strategic(body))
        }
        KubernetesCall::GetNode { name } => Resource::new(NODES).get(name.as_str(), &GetParams::default()),
        KubernetesCall::ListPods { node } => {
            // No resourceVersion and no limit: one consistent read.
            Resource::new(PODS).list(&ListParams::default().fields(&format!("spec.nodeName={node}")))
        }
        KubernetesCall::CreateEvent(note) => create_event(note, now, serial),
    }
}

fn post() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

fn patch() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn body(value: &Value) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(Error::SerializeBody)
}

fn merge(resource: &Resource, name: &str, body: Value) -> Result<Request<Vec<u8>>, Error> {
    resource.patch(name, &patch(), &Patch::Merge(body))
}

fn delete(uid: &Uid, resource_version: &ResourceVersion) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.as_str().to_owned()),
            resource_version: Some(resource_version.as_str().to_owned()),
        }),
        ..DeleteParams::default()
    }
}

fn finalizers_patch(uid: &Uid, resource_version: &ResourceVersion, finalizers: &[SmolStr]) -> Value {
    let finalizers: Vec<&str> = finalizers.iter().map(|finalizer| finalizer.as_str()).collect();
    json!({ "uid": uid.as_str(), "resourceVersion": resource_version.as_str(), "finalizers": finalizers })
}

fn recorded_annotations(recorded: &Recorded) -> Value {
    json!({
        NODE_ID_ANNOTATION: recorded.instance.text(),
        NODE_UID_ANNOTATION: recorded.node_uid.as_str(),
        DEVICE_ANNOTATION: recorded.device.as_str(),
    })
}

/// The VolumeAttachment as upstream makes it, with what attachd records in the same write.
fn new_attachment(new: &NewAttachment) -> Value {
    let volume = &new.key.volume;
    let mut metadata = json!({ "name": AttachmentName::of(&new.key).text() });
    if let Some(recorded) = &new.recorded {
        metadata["finalizers"] = json!([volume.driver.attacher_finalizer()]);
        metadata["annotations"] = recorded_annotations(recorded);
    }
    let source = match &new.source {
        NewAttachmentSource::PersistentVolume(name) => json!({ "persistentVolumeName": name.as_str() }),
        NewAttachmentSource::Inline(inline) => {
            json!({ "inlineVolumeSpec": inline_volume_spec(&volume.driver, &volume.handle, inline) })
        }
    };
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": metadata,
        "spec": { "attacher": volume.driver.as_str(), "nodeName": new.key.node.as_str(), "source": source },
    })
}

/// An inline volume as upstream's csi-translation-lib translates it: the whole PersistentVolumeSpec, because there is no
/// PersistentVolume from which anyone could read it again.
fn inline_volume_spec(driver: &DriverName, handle: &VolumeHandle, inline: &InlineEbs) -> Value {
    let mut csi = Map::new();
    csi.insert("driver".into(), json!(driver.as_str()));
    csi.insert("volumeHandle".into(), json!(handle.text()));
    if inline.read_only {
        csi.insert("readOnly".into(), json!(true));
    }
    if let Some(fs_type) = &inline.fs_type {
        csi.insert("fsType".into(), json!(fs_type.as_str()));
    }
    csi.insert("volumeAttributes".into(), json!({ "partition": inline.partition.to_string() }));
    json!({ "accessModes": ["ReadWriteOnce"], "csi": csi })
}

/// The merge patch of a status; what is `null` is taken away.
fn attachment_status(change: &AttachmentStatusChange, now: Wall) -> Value {
    match change {
        AttachmentStatusChange::Attached { device_path } => json!({
            "attached": true,
            "attachmentMetadata": { "devicePath": device_path.as_str() },
            "attachError": null,
            "detachError": null,
        }),
        AttachmentStatusChange::Detached => {
            json!({ "attached": false, "attachmentMetadata": null, "detachError": null })
        }
        AttachmentStatusChange::AttachError(error) => json!({ "attachError": attachment_error(error, now) }),
        AttachmentStatusChange::DetachError(error) => json!({ "detachError": attachment_error(error, now) }),
    }
}

/// Always with a code, if only `null`: a merge would keep the code of an earlier error.
fn attachment_error(error: &AttachmentError, now: Wall) -> Value {
    json!({
        "message": error.message.as_str(),
        "time": rfc3339(error.time.unwrap_or(now)),
        "errorCode": error.code,
    })
}

/// A time as Kubernetes writes it, in whole seconds.
fn rfc3339(time: Wall) -> String {
    let seconds = time.truncated_to_seconds().as_millis() / 1000;
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

fn create_event(note: &EventNote, now: Wall, serial: u64) -> Result<Request<Vec<u8>>, Error> {
    let (api_version, kind, namespace, name, uid) = match &note.regarding {
        Regarding::Pod(key, uid) => ("v1", "Pod", Some(key.namespace.as_str()), key.name.to_string(), uid),
        Regarding::PersistentVolume(name, uid) => ("v1", "PersistentVolume", None, name.to_string(), uid),
        Regarding::Attachment(name, uid) => ("storage.k8s.io/v1", "VolumeAttachment", None, name.to_string(), uid),
        Regarding::Node(name, uid) => ("v1", "Node", None, name.to_string(), uid),
    };
    let mut involved = json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid.as_str() });
    if let Some(namespace) = namespace {
        involved["namespace"] = json!(namespace);
    }
    // Events about objects that have no namespace live in `default`.
    let namespace = namespace.unwrap_or("default");
    let time = rfc3339(now);
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": event_name(&name, now, serial), "namespace": namespace },
        "involvedObject": involved,
        "type": if note.warning { "Warning" } else { "Normal" },
        "reason": note.reason,
        "message": note.message,
        "source": { "component": EVENT_COMPONENT },
        "reportingComponent": EVENT_COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    });
    Resource::new(format!("/api/v1/namespaces/{namespace}/events")).create(&post(), body(&event)?)
}

/// `<object>.<nanoseconds in hexadecimal>`, as client-go names events; the last six decimal digits are the serial number.
fn event_name(object: &str, now: Wall, serial: u64) -> String {
    let nanos = u64::try_from(now.as_millis()).unwrap_or(0) * 1_000_000 + serial % 1_000_000;
    let suffix = format!(".{nanos:x}");
    let mut end = object.len().min(MAX_NAME - suffix.len());
    while !object.is_char_boundary(end) {
        end -= 1;
    }
    let stem = object[..end].trim_end_matches(['-', '.']);
    format!("{stem}{suffix}")
}

#[cfg(test)]
mod tests;
