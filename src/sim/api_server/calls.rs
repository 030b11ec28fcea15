//! attachd's calls, answered as kube-apiserver v1.36 answers them; the refusals go through the same table as the real
//! ones ([`classify_kubernetes`]).

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::Api;
use crate::controller::command::{AttachmentStatusChange, KubernetesCall, NewAttachment, Recorded};
use crate::model::attachment::{AttachmentSource, AttachmentStatus, NewAttachmentSource, VolumeAttachment};
use crate::model::claim::{REGION_LABEL, ZONE_LABEL};
use crate::model::ids::{AttachmentName, NodeName, PersistentVolumeName, ResourceVersion, Uid};
use crate::model::node::UnknownMarks;
use crate::model::outcome::{Answer, CallResult, classify_kubernetes};
use crate::model::time::Now;
use crate::sim::checkers::world::Actor;

fn refuse(code: u16, reason: &str, message: String) -> CallResult {
    classify_kubernetes(code, reason, &message)
}

fn not_found(resource: &str, name: &str) -> CallResult {
    refuse(404, "NotFound", format!("{resource} \"{name}\" not found"))
}

fn conflict(resource: &str, name: &str) -> CallResult {
    refuse(
        409,
        "Conflict",
        format!(
            "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; please apply your \
             changes to the latest version and try again"
        ),
    )
}

fn immutable_uid(kind: &str, name: &str, wanted: &Uid) -> CallResult {
    let message =
        format!("{kind} \"{name}\" is invalid: metadata.uid: Invalid value: \"{wanted}\": field is immutable");
    refuse(422, "Invalid", message)
}

/// A patch names UID and resourceVersion: the version is compared first, also with that of another object of the name.
fn check_patch(
    (resource, kind, name): (&str, &str, &str),
    (stored_uid, stored_version): (&Uid, &ResourceVersion),
    (uid, version): (&Uid, Option<&ResourceVersion>),
) -> Result<(), CallResult> {
    if version.is_some_and(|version| version != stored_version) {
        return Err(conflict(resource, name));
    }
    if uid != stored_uid {
        return Err(immutable_uid(kind, name, uid));
    }
    Ok(())
}

/// Of a Terminating object finalizers can only be taken away.
fn check_finalizers(
    kind: &str,
    name: &str,
    deleting: bool,
    old: &[SmolStr],
    new: &[SmolStr],
) -> Result<(), CallResult> {
    if deleting && let Some(added) = new.iter().find(|f| !old.contains(f)) {
        let message = format!(
            "{kind} \"{name}\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object \
             is being deleted, found new finalizers []string{{\"{added}\"}}"
        );
        return Err(refuse(422, "Invalid", message));
    }
    Ok(())
}

impl Api {
    /// Carries out one call of attachd, all of it, now.
    pub fn call(&mut self, now: Now, by: Actor, call: &KubernetesCall) -> CallResult {
        self.try_call(now, by, call).unwrap_or_else(|refused| refused)
    }

    fn try_call(&mut self, now: Now, by: Actor, call: &KubernetesCall) -> Result<CallResult, CallResult> {
        let answer = match call {
            KubernetesCall::CreateAttachment(new) => self.create_attachment(by, new)?,
            KubernetesCall::RecordAttachment { name, uid, resource_version, finalizers, recorded } => {
                let mut object = self.attachment_to_patch(name, uid, Some(resource_version))?;
                check_finalizers(VA, &name.text(), object.deleting.is_some(), &object.finalizers, finalizers)?;
                object.finalizers.clone_from(finalizers);
                record(&mut object, recorded);
                Answer::Attachment(self.store_attachment(by, object).map(Box::new))
            }
            KubernetesCall::PatchAttachmentStatus { name, uid, change } => {
                let mut object = self.attachment_to_patch(name, uid, None)?;
                change_status(&mut object.status, change);
                Answer::Attachment(self.store_attachment(by, object).map(Box::new))
            }
            KubernetesCall::SetAttachmentFinalizers { name, uid, resource_version, finalizers } => {
                let mut object = self.attachment_to_patch(name, uid, Some(resource_version))?;
                check_finalizers(VA, &name.text(), object.deleting.is_some(), &object.finalizers, finalizers)?;
                object.finalizers.clone_from(finalizers);
                Answer::Attachment(self.store_attachment(by, object).map(Box::new))
            }
            KubernetesCall::DeleteAttachment { name, uid, resource_version } => {
                self.delete_attachment(now, by, name, uid, resource_version)?
            }
            KubernetesCall::GetAttachment { name } => {
                Answer::Attachment(self.attachments.get(name).cloned().map(Box::new))
            }
            KubernetesCall::SetPersistentVolumeFinalizers { name, uid, resource_version, finalizers } => {
                self.set_pv_finalizers(by, name, (uid, resource_version), finalizers)?
            }
            KubernetesCall::PlacePersistentVolume { name, uid, resource_version, labels, affinity } => {
                self.place_pv(by, name, (uid, resource_version), labels, affinity.is_some())?
            }
            KubernetesCall::GetPersistentVolume { name } => {
                Answer::PersistentVolume(self.persistent_volumes.get(name).cloned().map(Box::new))
            }
            KubernetesCall::PatchNodeStatus { name, .. } => self.patch_node_status(by, name, call)?,
            KubernetesCall::GetNode { name } => Answer::Node(self.nodes.get(name).cloned().map(Box::new)),
            KubernetesCall::ListPods { node } => Answer::Pods(self.pods_on(node).cloned().collect()),
            KubernetesCall::CreateEvent(_) => Answer::EventWritten,
        };
        Ok(CallResult::Done(answer))
    }

    pub(super) fn create_attachment(&mut self, by: Actor, new: &NewAttachment) -> Result<Answer, CallResult> {
        let name = AttachmentName::of(&new.key);
        if let Some(stored) = self.attachments.get(&name) {
            let state = if stored.deleting.is_some() { "object is being deleted: " } else { "" };
            let message = format!("{state}volumeattachments.storage.k8s.io \"{name}\" already exists");
            return Err(refuse(409, "AlreadyExists", message));
        }
        let source = match &new.source {
            NewAttachmentSource::PersistentVolume(name) => AttachmentSource::PersistentVolume(name.clone()),
            NewAttachmentSource::Inline(_) => AttachmentSource::Inline {
                driver: new.key.volume.driver.clone(),
                handle: new.key.volume.handle.clone(),
            },
        };
        let mut object = VolumeAttachment {
            name,
            uid: self.next_uid("va"),
            resource_version: ResourceVersion::new(""),
            deleting: None,
            finalizers: Vec::new(),
            driver: new.key.volume.driver.clone(),
            node: new.key.node.clone(),
            source,
            node_id: None,
            node_uid: None,
            device: None,
            unmounted: None,
            // A create drops status, whatever was sent.
            status: AttachmentStatus::default(),
        };
        if let Some(recorded) = &new.recorded {
            object.finalizers.push(SmolStr::new(new.key.volume.driver.attacher_finalizer()));
            record(&mut object, recorded);
        }
        Ok(Answer::Attachment(self.store_attachment(by, object).map(Box::new)))
    }

    fn delete_attachment(
        &mut self,
        now: Now,
        by: Actor,
        name: &AttachmentName,
        uid: &Uid,
        version: &ResourceVersion,
    ) -> Result<Answer, CallResult> {
        let stored = self.attachments.get(name).ok_or_else(|| not_found(VAS, &name.text()))?;
        let differs = if stored.uid != *uid {
            Some(format!("the UID in the precondition ({uid}) does not match the UID in record ({})", stored.uid))
        } else if stored.resource_version != *version {
            let record = &stored.resource_version;
            Some(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({record})"
            ))
        } else {
            None
        };
        if let Some(what) = differs {
            let message = format!("Operation cannot be fulfilled on {VAS} \"{name}\": Precondition failed: {what}");
            return Err(refuse(409, "Conflict", message));
        }
        let mut object = stored.clone();
        object.deleting.get_or_insert(now.wall.truncated_to_seconds());
        Ok(Answer::Attachment(self.store_attachment(by, object).map(Box::new)))
    }

    fn attachment_to_patch(
        &self,
        name: &AttachmentName,
        uid: &Uid,
        version: Option<&ResourceVersion>,
    ) -> Result<VolumeAttachment, CallResult> {
        let stored = self.attachments.get(name).ok_or_else(|| not_found(VAS, &name.text()))?;
        check_patch((VAS, VA, &name.text()), (&stored.uid, &stored.resource_version), (uid, version))?;
        Ok(stored.clone())
    }

    fn set_pv_finalizers(
        &mut self,
        by: Actor,
        name: &PersistentVolumeName,
        (uid, version): (&Uid, &ResourceVersion),
        finalizers: &[SmolStr],
    ) -> Result<Answer, CallResult> {
        let stored = self.persistent_volumes.get(name).ok_or_else(|| not_found("persistentvolumes", name.as_str()))?;
        check_patch(
            ("persistentvolumes", "PersistentVolume", name.as_str()),
            (&stored.uid, &stored.resource_version),
            (uid, Some(version)),
        )?;
        check_finalizers("PersistentVolume", name.as_str(), stored.deleting, &stored.finalizers, finalizers)?;
        let mut object = stored.clone();
        object.finalizers = finalizers.to_vec();
        Ok(Answer::PersistentVolume(self.store_persistent_volume(by, object).map(Box::new)))
    }

    /// Labels, and a node affinity that only one without any takes (it is immutable).
    fn place_pv(
        &mut self,
        by: Actor,
        name: &PersistentVolumeName,
        (uid, version): (&Uid, &ResourceVersion),
        labels: &BTreeMap<SmolStr, SmolStr>,
        with_affinity: bool,
    ) -> Result<Answer, CallResult> {
        let stored = self.persistent_volumes.get(name).ok_or_else(|| not_found("persistentvolumes", name.as_str()))?;
        check_patch(
            ("persistentvolumes", "PersistentVolume", name.as_str()),
            (&stored.uid, &stored.resource_version),
            (uid, Some(version)),
        )?;
        if with_affinity && stored.placement.has_affinity {
            let message = format!("PersistentVolume \"{name}\" is invalid: spec.nodeAffinity: field is immutable");
            return Err(refuse(422, "Invalid", message));
        }
        let mut object = stored.clone();
        object.placement.has_affinity |= with_affinity;
        object.placement.zone = labels.get(ZONE_LABEL).cloned().or(object.placement.zone);
        object.placement.region = labels.get(REGION_LABEL).cloned().or(object.placement.region);
        Ok(Answer::PersistentVolume(self.store_persistent_volume(by, object).map(Box::new)))
    }

    fn patch_node_status(&mut self, by: Actor, name: &NodeName, call: &KubernetesCall) -> Result<Answer, CallResult> {
        let KubernetesCall::PatchNodeStatus { uid, resource_version, volumes_attached, marks, touch, .. } = call else {
            return Err(refuse(400, "BadRequest", "not a patch of nodes/status".to_owned()));
        };
        let stored = self.nodes.get(name).ok_or_else(|| not_found("nodes", name.as_str()))?;
        check_patch(
            ("nodes", "Node", name.as_str()),
            (&stored.uid, &stored.resource_version),
            (uid, Some(resource_version)),
        )?;
        let mut node = stored.clone();
        node.volumes_attached.clone_from(volumes_attached);
        if let Some(marks) = marks {
            node.in_use_unknown = UnknownMarks::Marks(marks.clone());
        }
        if let Some(value) = touch
            && self.touched.insert(name.clone(), value.clone()).as_ref() != Some(value)
        {
            // The annotation is no field of the model: an empty version makes the store write it all the same.
            node.resource_version = ResourceVersion::new("");
        }
        Ok(Answer::Node(Some(Box::new(self.store_node(by, node)))))
    }
}

const VA: &str = "VolumeAttachment.storage.k8s.io";
const VAS: &str = "volumeattachments.storage.k8s.io";

fn record(object: &mut VolumeAttachment, recorded: &Recorded) {
    object.node_id = Some(recorded.instance.text());
    object.node_uid = Some(recorded.node_uid.clone());
    object.device = Some(recorded.device.clone());
}

fn change_status(status: &mut AttachmentStatus, change: &AttachmentStatusChange) {
    match change {
        AttachmentStatusChange::Attached { device_path } => {
            *status = AttachmentStatus { attached: true, device_path: Some(device_path.clone()), ..Default::default() };
        }
        AttachmentStatusChange::Detached => {
            status.attached = false;
            status.device_path = None;
        }
        AttachmentStatusChange::AttachError(error) => status.attach_error = Some(error.clone()),
        AttachmentStatusChange::DetachError(error) => status.detach_error = Some(error.clone()),
    }
}
