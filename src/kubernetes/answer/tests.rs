//! Every kind of answer: accepted, refused, not the API server's, not readable.

use serde_json::{Value, json};

use super::*;
use crate::controller::command::{EventNote, NewAttachment, Regarding};
use crate::model::attachment::NewAttachmentSource;
use crate::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, NodeName, PersistentVolumeName, ResourceVersion, Uid, VolumeKey,
};
use crate::model::outcome::{KubernetesRefusal, Refusal};

fn uid() -> Uid {
    Uid::new("a-1")
}

fn version() -> ResourceVersion {
    ResourceVersion::new("11")
}

fn attachment_name() -> AttachmentName {
    AttachmentName::new("csi-00ff")
}

fn create() -> KubernetesCall {
    let volume = VolumeKey::ebs(&AwsVolumeId::parse("vol-0aa11").expect("an id"));
    KubernetesCall::CreateAttachment(NewAttachment {
        key: AttachmentKey { volume, node: NodeName::new("n1") },
        source: NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv-1")),
        recorded: None,
    })
}

fn delete() -> KubernetesCall {
    KubernetesCall::DeleteAttachment { name: attachment_name(), uid: uid(), resource_version: version() }
}

fn release() -> KubernetesCall {
    KubernetesCall::SetAttachmentFinalizers {
        name: attachment_name(),
        uid: uid(),
        resource_version: version(),
        finalizers: vec![],
    }
}

fn release_volume() -> KubernetesCall {
    KubernetesCall::SetPersistentVolumeFinalizers {
        name: PersistentVolumeName::new("pv-1"),
        uid: uid(),
        resource_version: version(),
        finalizers: vec![],
    }
}

fn patch_node() -> KubernetesCall {
    KubernetesCall::PatchNodeStatus {
        name: NodeName::new("n1"),
        uid: uid(),
        resource_version: version(),
        volumes_attached: [].into(),
        marks: None,
        touch: None,
    }
}

fn get_attachment() -> KubernetesCall {
    KubernetesCall::GetAttachment { name: attachment_name() }
}

fn get_node() -> KubernetesCall {
    KubernetesCall::GetNode { name: NodeName::new("n1") }
}

fn get_volume() -> KubernetesCall {
    KubernetesCall::GetPersistentVolume { name: PersistentVolumeName::new("pv-1") }
}

fn list_pods() -> KubernetesCall {
    KubernetesCall::ListPods { node: NodeName::new("n1") }
}

fn create_event() -> KubernetesCall {
    KubernetesCall::CreateEvent(EventNote {
        regarding: Regarding::Node(NodeName::new("n1"), uid()),
        warning: true,
        reason: "FailedAttachVolume",
        message: String::new(),
    })
}

fn read_json(call: &KubernetesCall, status: u16, body: &Value) -> CallResult {
    read(call, status, body.to_string().as_bytes())
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code
    })
}

fn meaning(call: &KubernetesCall, code: u16, reason: &str, message: &str) -> Option<KubernetesRefusal> {
    match read_json(call, code, &status(code, reason, message)) {
        CallResult::Refused(Refusal::Kubernetes { meaning, message: said }) => {
            assert_eq!(said, message);
            Some(meaning)
        }
        _ => None,
    }
}

fn is_uncertain(result: &CallResult) -> bool {
    matches!(result, CallResult::Uncertain(_))
}

fn stored_attachment(deleting: bool, finalizers: &[&str]) -> Value {
    let mut value = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": "csi-00ff", "uid": "a-1", "resourceVersion": "12", "finalizers": finalizers },
        "spec": { "attacher": "ebs.csi.aws.com", "nodeName": "n1", "source": { "persistentVolumeName": "pv-1" } },
        "status": { "attached": false }
    });
    if deleting {
        value["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    }
    value
}

/// The texts are those of a real API server.
#[test]
fn refusals_are_told_apart() {
    use KubernetesRefusal::*;
    let exists = "volumeattachments.storage.k8s.io \"csi-00ff\" already exists";
    let terminating = "object is being deleted: volumeattachments.storage.k8s.io \"csi-00ff\" already exists";
    let precondition = "Precondition failed: UID in precondition: a-1, UID in object meta: a-2";
    let changed = "Operation cannot be fulfilled on nodes \"n1\": the object has been modified";
    let immutable = "Node \"n1\" is invalid: metadata.uid: Invalid value: \"n-1\": field is immutable";
    let cases = [
        (create(), 409, "AlreadyExists", exists, AlreadyExists),
        (create(), 409, "AlreadyExists", terminating, AlreadyExistsTerminating),
        (delete(), 409, "Conflict", precondition, Conflict),
        (delete(), 404, "NotFound", "not found", NotFound),
        (release(), 404, "NotFound", "not found", NotFound),
        (patch_node(), 409, "Conflict", changed, Conflict),
        (patch_node(), 422, "Invalid", immutable, Invalid),
        (patch_node(), 403, "Forbidden", "nodes \"n1\" is forbidden", Forbidden),
        (get_node(), 401, "Unauthorized", "Unauthorized", Forbidden),
        (create(), 400, "BadRequest", "the object is wrong", Other),
        (create_event(), 404, "NotFound", "namespaces \"shop\" not found", NotFound),
        // Gone is no word about the object.
        (get_node(), 410, "Expired", "too old", NotFound),
    ];
    for (call, code, reason, message, wanted) in cases {
        assert_eq!(meaning(&call, code, reason, message), Some(wanted), "{code} {reason} {message}");
    }
}

#[test]
fn what_did_not_happen_for_sure_is_uncertain_and_what_was_too_much_is_throttled() {
    let timeout = status(504, "Timeout", "request did not complete within the allotted timeout");
    assert!(is_uncertain(&read_json(&create(), 504, &timeout)));
    let internal = status(500, "InternalError", "etcdserver: leader changed");
    assert!(is_uncertain(&read_json(&patch_node(), 500, &internal)));
    let many = status(429, "TooManyRequests", "too many");
    assert_eq!(read_json(&create(), 429, &many), CallResult::Throttled);
    assert_eq!(read(&create(), 429, b"Too many requests, please try again later."), CallResult::Throttled);
}

/// A gateway between us and the API server has pages of its own.
#[test]
fn an_answer_that_is_not_the_api_servers_proves_nothing() {
    for call in [get_node(), get_attachment(), get_volume(), delete(), patch_node()] {
        for body in ["404 page not found", "<html>Not Found</html>", "{}", "", "[]", "{\"message\":\"Not Found\"}"] {
            for code in [302, 401, 403, 404, 409, 502] {
                assert!(is_uncertain(&read(&call, code, body.as_bytes())), "{code} {body}");
            }
        }
    }
}

#[test]
fn a_live_read_that_finds_nothing_is_an_answer() {
    let missing = status(404, "NotFound", "not found");
    assert_eq!(read_json(&get_node(), 404, &missing), CallResult::Done(Answer::Node(None)));
    assert_eq!(read_json(&get_attachment(), 404, &missing), CallResult::Done(Answer::Attachment(None)));
    assert_eq!(read_json(&get_volume(), 404, &missing), CallResult::Done(Answer::PersistentVolume(None)));
}

fn version_of(result: &CallResult) -> Option<&str> {
    match result {
        CallResult::Done(Answer::Attachment(Some(attachment))) => Some(attachment.resource_version.as_str()),
        CallResult::Done(Answer::PersistentVolume(Some(volume))) => Some(volume.resource_version.as_str()),
        CallResult::Done(Answer::Node(Some(node))) => Some(node.resource_version.as_str()),
        _ => None,
    }
}

#[test]
fn writes_answer_with_the_object_as_stored() {
    let plain = stored_attachment(false, &[]);
    assert_eq!(version_of(&read_json(&create(), 201, &plain)), Some("12"));
    assert_eq!(version_of(&read_json(&release(), 200, &plain)), Some("12"));
    assert_eq!(version_of(&read_json(&get_attachment(), 200, &plain)), Some("12"));
    let node = json!({ "kind": "Node", "metadata": { "name": "n1", "uid": "n-1", "resourceVersion": "6" } });
    assert_eq!(version_of(&read_json(&patch_node(), 200, &node)), Some("6"));
    assert_eq!(version_of(&read_json(&get_node(), 200, &node)), Some("6"));
    let volume = json!({ "metadata": { "name": "pv-1", "uid": "v-1", "resourceVersion": "9" }, "spec": {} });
    assert_eq!(version_of(&read_json(&release_volume(), 200, &volume)), Some("9"));
    assert_eq!(read_json(&create_event(), 201, &json!({})), CallResult::Done(Answer::EventWritten));
}

#[test]
fn the_last_finalizer_of_a_terminating_object_ends_it() {
    let gone = CallResult::Done(Answer::Attachment(None));
    assert_eq!(read_json(&release(), 200, &stored_attachment(true, &[])), gone);
    assert_eq!(version_of(&read_json(&release(), 200, &stored_attachment(true, &["other"]))), Some("12"));
    let volume = json!({
        "metadata": {
            "name": "pv-1", "uid": "v-1", "resourceVersion": "9", "deletionTimestamp": "2030-01-01T00:00:00Z"
        },
        "spec": {}
    });
    assert_eq!(read_json(&release_volume(), 200, &volume), CallResult::Done(Answer::PersistentVolume(None)));
}

#[test]
fn a_deletion_answers_with_a_status_or_with_the_terminating_object() {
    let success = json!({ "kind": "Status", "status": "Success", "details": { "name": "csi-00ff", "uid": "a-1" } });
    assert_eq!(read_json(&delete(), 200, &success), CallResult::Done(Answer::Attachment(None)));
    let left = stored_attachment(true, &["external-attacher/ebs-csi-aws-com"]);
    let result = read_json(&delete(), 200, &left);
    let CallResult::Done(Answer::Attachment(Some(attachment))) = &result else { panic!("{result:?}") };
    assert!(attachment.deleting.is_some());
}

fn pod_list(items: Value) -> Value {
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "resourceVersion": "100" }, "items": items })
}

#[test]
fn a_list_of_pods_is_whole_or_uncertain() {
    let pod =
        json!({ "metadata": { "namespace": "shop", "name": "db-0", "uid": "p-1" }, "spec": { "nodeName": "n1" } });
    let read = |items| read_json(&list_pods(), 200, &pod_list(items));
    let CallResult::Done(Answer::Pods(pods)) = read(json!([pod])) else { panic!("one pod") };
    assert_eq!(pods.len(), 1);
    assert_eq!(read(json!([])), CallResult::Done(Answer::Pods(vec![])));
    assert_eq!(read(Value::Null), CallResult::Done(Answer::Pods(vec![])));
    // A pod that cannot be read might want the volume.
    let unreadable = json!({ "metadata": { "namespace": "shop", "name": "db-1", "uid": "p-2" }, "spec": 1 });
    assert!(is_uncertain(&read(json!([pod, unreadable]))));
    assert!(is_uncertain(&read(json!([pod, null]))));
    assert!(is_uncertain(&read(json!("none"))));
    let mut cut = pod_list(json!([pod]));
    cut["metadata"]["continue"] = json!("token");
    assert!(is_uncertain(&read_json(&list_pods(), 200, &cut)));
    for other in [json!({}), json!({ "kind": "Status", "status": "Success" }), json!([]), json!({ "items": [] })] {
        assert!(is_uncertain(&read_json(&list_pods(), 200, &other)), "{other}");
    }
}

#[test]
fn an_accepted_write_with_an_unreadable_answer_is_uncertain() {
    for body in ["", "null", "[]", "{}", "{\"metadata\":{}}", "{\"metadata\":", "ok"] {
        for call in [create(), release(), release_volume(), patch_node(), get_node(), delete()] {
            assert!(is_uncertain(&read(&call, 200, body.as_bytes())), "{body}");
        }
    }
    let mut node = json!({ "metadata": { "name": "n1", "uid": "n-1", "resourceVersion": "6" } });
    node["status"] = json!({ "volumesInUse": "all" });
    assert!(is_uncertain(&read_json(&get_node(), 200, &node)));
}
