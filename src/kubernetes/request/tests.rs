//! Every call's request to the letter: method, path, query, kind of patch, body.

use std::collections::BTreeMap;

use super::*;
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentKey, BootId, InstanceId, NodeName, PersistentVolumeName, PodKey, UniqueVolumeName, VolumeKey, Zone,
};

const NOW: Wall = Wall::from_millis(1_893_456_000_250);

/// Method, path with query, content type, body.
fn built(call: &KubernetesCall) -> (String, String, String, Value) {
    let request = build(call, NOW, 3).expect("a request");
    let content_type = request.headers().get("content-type").map(|value| value.to_str().expect("text").to_owned());
    let body =
        if request.body().is_empty() { Value::Null } else { serde_json::from_slice(request.body()).expect("JSON") };
    (request.method().to_string(), request.uri().to_string(), content_type.unwrap_or_default(), body)
}

fn is(call: &KubernetesCall, method: &str, uri: &str, content_type: &str, body: Value) {
    let (got_method, got_uri, got_type, got_body) = built(call);
    assert_eq!((got_method.as_str(), got_uri.as_str(), got_type.as_str()), (method, uri, content_type));
    assert_eq!(got_body, body, "{got_body:#}");
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const VOLUME: &str = "vol-0123456789abcdef0";
/// Upstream's own test vector for the volume on this node.
const NAME: &str = "csi-fe06e9b7f0788d36d037dc072e698d0df29ffac77397761bb77014101d61709d";
const PATH: &str = "/apis/storage.k8s.io/v1/volumeattachments";

fn key() -> AttachmentKey {
    AttachmentKey {
        volume: VolumeKey { handle: VolumeHandle::new(VOLUME), driver: DriverName::ebs() },
        node: NodeName::new("ip-10-0-0-1.ec2.internal"),
    }
}

fn recorded() -> Recorded {
    Recorded {
        instance: InstanceId::parse("i-0bb21").expect("an id"),
        node_uid: Uid::new("n-1"),
        device: DeviceName::new("/dev/xvdaa"),
    }
}

fn created(source: NewAttachmentSource) -> Value {
    let call = KubernetesCall::CreateAttachment(NewAttachment { key: key(), source, recorded: None });
    built(&call).3["spec"]["source"].clone()
}

#[test]
fn an_attachment_is_created_with_all_that_is_recorded() {
    let source = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv-1"));
    let call = KubernetesCall::CreateAttachment(NewAttachment { key: key(), source, recorded: Some(recorded()) });
    let body = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {
            "name": NAME,
            "finalizers": ["external-attacher/ebs-csi-aws-com"],
            "annotations": {
                "csi.alpha.kubernetes.io/node-id": "i-0bb21",
                "attachd/node-uid": "n-1",
                "attachd/device": "/dev/xvdaa"
            }
        },
        "spec": {
            "attacher": "ebs.csi.aws.com",
            "nodeName": "ip-10-0-0-1.ec2.internal",
            "source": { "persistentVolumeName": "pv-1" }
        }
    });
    is(&call, "POST", &format!("{PATH}?&fieldManager=attachd"), JSON, body);
}

#[test]
fn an_attachment_of_another_driver_has_name_and_spec_only() {
    let mut key = key();
    key.volume.driver = DriverName::new("disk.csi.example.org");
    let name = AttachmentName::of(&key);
    let source = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv-2"));
    let call = KubernetesCall::CreateAttachment(NewAttachment { key, source, recorded: None });
    let body = built(&call).3;
    assert_eq!(body["metadata"], json!({ "name": name.text() }));
    assert_eq!(body["spec"]["attacher"], "disk.csi.example.org");
}

/// NAME-04, I-10: the inline source is kept in the VolumeAttachment, translated as upstream does, the name computed from
/// the bare id.
#[test]
fn name_04_an_inline_volume_is_translated_whole() {
    let inline = InlineEbs {
        volume_id: format!("aws://us-east-9b/{VOLUME}").into(),
        fs_type: Some("ext4".into()),
        partition: 1,
        read_only: true,
    };
    assert_eq!(
        created(NewAttachmentSource::Inline(inline)),
        json!({ "inlineVolumeSpec": {
            "accessModes": ["ReadWriteOnce"],
            "csi": {
                "driver": "ebs.csi.aws.com", "volumeHandle": VOLUME, "fsType": "ext4", "readOnly": true,
                "volumeAttributes": { "partition": "1" }
            }
        }})
    );
    let bare = InlineEbs { volume_id: VOLUME.into(), fs_type: None, partition: 0, read_only: false };
    assert_eq!(
        created(NewAttachmentSource::Inline(bare)),
        json!({ "inlineVolumeSpec": {
            "accessModes": ["ReadWriteOnce"],
            "csi": {
                "driver": "ebs.csi.aws.com", "volumeHandle": VOLUME, "volumeAttributes": { "partition": "0" }
            }
        }})
    );
}

#[test]
fn metadata_patches_carry_uid_and_version_and_the_whole_list() {
    let (name, uid, resource_version) = (AttachmentName::new("csi-00ff"), Uid::new("a-1"), ResourceVersion::new("11"));
    let uri = format!("{PATH}/csi-00ff?&fieldManager=attachd");
    let finalizers = vec!["keep.example.org/x".into(), "external-attacher/ebs-csi-aws-com".into()];
    let record = KubernetesCall::RecordAttachment {
        name: name.clone(),
        uid: uid.clone(),
        resource_version: resource_version.clone(),
        finalizers,
        recorded: recorded(),
    };
    let metadata = json!({
        "uid": "a-1", "resourceVersion": "11",
        "finalizers": ["keep.example.org/x", "external-attacher/ebs-csi-aws-com"],
        "annotations": {
            "csi.alpha.kubernetes.io/node-id": "i-0bb21", "attachd/node-uid": "n-1", "attachd/device": "/dev/xvdaa"
        }
    });
    is(&record, "PATCH", &uri, MERGE, json!({ "metadata": metadata }));

    let release = KubernetesCall::SetAttachmentFinalizers { name, uid, resource_version, finalizers: vec![] };
    let metadata = json!({ "uid": "a-1", "resourceVersion": "11", "finalizers": [] });
    is(&release, "PATCH", &uri, MERGE, json!({ "metadata": metadata }));

    let volume = KubernetesCall::SetPersistentVolumeFinalizers {
        name: PersistentVolumeName::new("pv-1"),
        uid: Uid::new("v-1"),
        resource_version: ResourceVersion::new("9"),
        finalizers: vec!["kubernetes.io/pv-protection".into()],
    };
    let metadata = json!({ "uid": "v-1", "resourceVersion": "9", "finalizers": ["kubernetes.io/pv-protection"] });
    let uri = "/api/v1/persistentvolumes/pv-1?&fieldManager=attachd";
    is(&volume, "PATCH", uri, MERGE, json!({ "metadata": metadata }));
}

#[test]
fn statuses_are_patched_with_the_uid() {
    let error = |code| AttachmentError { message: "too many".into(), code, time: None };
    let dated = AttachmentError { time: Some(Wall::from_millis(0)), ..error(None) };
    let now = "2030-01-01T00:00:00Z";
    let cases = [
        (
            AttachmentStatusChange::Attached { device_path: DeviceName::new("/dev/xvdaa") },
            json!({
                "attached": true, "attachmentMetadata": { "devicePath": "/dev/xvdaa" },
                "attachError": null, "detachError": null
            }),
        ),
        (
            AttachmentStatusChange::Detached,
            json!({ "attached": false, "attachmentMetadata": null, "detachError": null }),
        ),
        (
            AttachmentStatusChange::AttachError(error(Some(8))),
            json!({ "attachError": { "message": "too many", "time": now, "errorCode": 8 } }),
        ),
        (
            AttachmentStatusChange::AttachError(error(None)),
            json!({ "attachError": { "message": "too many", "time": now, "errorCode": null } }),
        ),
        (
            AttachmentStatusChange::DetachError(dated),
            json!({ "detachError": { "message": "too many", "time": "1970-01-01T00:00:00Z", "errorCode": null } }),
        ),
    ];
    for (change, status) in cases {
        let name = AttachmentName::new("csi-00ff");
        let call = KubernetesCall::PatchAttachmentStatus { name, uid: Uid::new("a-1"), change };
        let body = json!({ "metadata": { "uid": "a-1" }, "status": status });
        is(&call, "PATCH", &format!("{PATH}/csi-00ff/status?&fieldManager=attachd"), MERGE, body);
    }
}

#[test]
fn a_deletion_carries_both_preconditions() {
    let call = KubernetesCall::DeleteAttachment {
        name: AttachmentName::new("csi-00ff"),
        uid: Uid::new("a-1"),
        resource_version: ResourceVersion::new("11"),
    };
    let body = json!({ "preconditions": { "uid": "a-1", "resourceVersion": "11" } });
    is(&call, "DELETE", &format!("{PATH}/csi-00ff?"), JSON, body);
}

#[test]
fn a_node_status_is_patched_whole_with_its_marks() {
    let volume = |id: &str| UniqueVolumeName::new(format!("kubernetes.io/csi/ebs.csi.aws.com^{id}"));
    let call = |volumes_attached: &[&str], marks, touch: Option<&str>| KubernetesCall::PatchNodeStatus {
        name: NodeName::new("n1"),
        uid: Uid::new("n-1"),
        resource_version: ResourceVersion::new("5"),
        volumes_attached: volumes_attached.iter().map(|id| (volume(id), "".into())).collect(),
        marks,
        touch: touch.map(Into::into),
    };
    let uri = "/api/v1/nodes/n1/status?&fieldManager=attachd";
    let body = |metadata: Value, list: Value| json!({ "metadata": metadata, "status": { "volumesAttached": list } });

    let both = json!([
        { "name": "kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11", "devicePath": "" },
        { "name": "kubernetes.io/csi/ebs.csi.aws.com^vol-0aa12", "devicePath": "" }
    ]);
    let plain = json!({ "uid": "n-1", "resourceVersion": "5" });
    is(&call(&["vol-0aa12", "vol-0aa11"], None, None), "PATCH", uri, STRATEGIC, body(plain, both));

    let marks = BTreeMap::from([(volume("vol-0aa11"), BootId::new("boot-1"))]);
    let text = "{\"kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11\":\"boot-1\"}";
    let marked = json!({ "uid": "n-1", "resourceVersion": "5", "annotations": { "attachd/in-use-unknown": text } });
    is(&call(&[], Some(marks), None), "PATCH", uri, STRATEGIC, body(marked, json!([])));

    let unmarked = json!({
        "uid": "n-1", "resourceVersion": "5",
        "annotations": { "attachd/in-use-unknown": null, "attachd/touched": "7" }
    });
    is(&call(&[], Some(BTreeMap::new()), Some("7")), "PATCH", uri, STRATEGIC, body(unmarked, json!([])));
}

#[test]
fn live_reads_ask_for_no_version() {
    let attachment = KubernetesCall::GetAttachment { name: AttachmentName::new("csi-00ff") };
    is(&attachment, "GET", &format!("{PATH}/csi-00ff"), "", Value::Null);
    let volume = KubernetesCall::GetPersistentVolume { name: PersistentVolumeName::new("pv-1") };
    is(&volume, "GET", "/api/v1/persistentvolumes/pv-1", "", Value::Null);
    let node = KubernetesCall::GetNode { name: NodeName::new("n1") };
    is(&node, "GET", "/api/v1/nodes/n1", "", Value::Null);
    let pods = KubernetesCall::ListPods { node: NodeName::new("ip-10-0-0-1.ec2.internal") };
    let uri = "/api/v1/pods?&fieldSelector=spec.nodeName%3Dip-10-0-0-1.ec2.internal";
    is(&pods, "GET", uri, "", Value::Null);
}

#[test]
fn a_request_for_nothing_cannot_be_built() {
    // An empty name would address the collection.
    for name in ["", "a/b"] {
        let call = KubernetesCall::GetNode { name: NodeName::new(name) };
        assert!(build(&call, NOW, 0).is_err() == name.is_empty(), "{name:?}");
    }
}

fn event(regarding: Regarding, warning: bool) -> (String, Value) {
    let note = EventNote { regarding, warning, reason: "SuccessfulAttachVolume", message: "attached ".to_owned() };
    let (method, uri, content_type, body) = built(&KubernetesCall::CreateEvent(note));
    assert_eq!((method.as_str(), content_type.as_str()), ("POST", JSON));
    (uri, body)
}

#[test]
fn an_event_about_a_pod_is_as_upstream_writes_it() {
    let (uri, body) = event(Regarding::Pod(PodKey::new("shop", "db-0"), Uid::new("p-1")), false);
    assert_eq!(uri, "/api/v1/namespaces/shop/events?&fieldManager=attachd");
    assert_eq!(
        body,
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": "db-0.1a46e83344bbb283", "namespace": "shop" },
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "db-0", "uid": "p-1"
            },
            "type": "Normal",
            "reason": "SuccessfulAttachVolume",
            "message": "attached ",
            "source": { "component": "attachdetach-controller" },
            "reportingComponent": "attachdetach-controller",
            "reportingInstance": "",
            "firstTimestamp": "2030-01-01T00:00:00Z",
            "lastTimestamp": "2030-01-01T00:00:00Z",
            "count": 1
        })
    );
}

#[test]
fn events_about_objects_without_a_namespace_live_in_default() {
    let cases = [
        (Regarding::Node(NodeName::new("n1"), Uid::new("u")), "v1", "Node", "n1"),
        (Regarding::PersistentVolume(PersistentVolumeName::new("pv"), Uid::new("u")), "v1", "PersistentVolume", "pv"),
        (
            Regarding::Attachment(AttachmentName::new("csi-1"), Uid::new("u")),
            "storage.k8s.io/v1",
            "VolumeAttachment",
            "csi-1",
        ),
    ];
    for (regarding, version, kind, name) in cases {
        let (uri, body) = event(regarding, true);
        assert_eq!(uri, "/api/v1/namespaces/default/events?&fieldManager=attachd");
        assert_eq!(body["metadata"]["namespace"], "default");
        let involved = json!({ "apiVersion": version, "kind": kind, "name": name, "uid": "u" });
        assert_eq!(body["involvedObject"], involved);
        assert_eq!(body["type"], "Warning");
    }
}

#[test]
fn names_of_events_differ_and_are_never_too_long() {
    assert_ne!(event_name("db-0", NOW, 1), event_name("db-0", NOW, 2));
    let long = format!("{}-{}", "a".repeat(235), "b".repeat(17));
    let name = event_name(&long, NOW, 0);
    assert!(name.len() <= MAX_NAME, "{}", name.len());
    // A dot may not follow a dash.
    assert!(name.starts_with(&format!("{}.", "a".repeat(235))), "{name}");
}

#[test]
fn a_persistent_volume_is_placed_by_labels_and_by_an_affinity_only_if_one_is_given() {
    let place = |affinity: Option<&str>| KubernetesCall::PlacePersistentVolume {
        name: PersistentVolumeName::new("pv-1"),
        uid: Uid::new("p-1"),
        resource_version: ResourceVersion::new("7"),
        labels: [
            ("topology.kubernetes.io/zone".into(), "us-east-9a".into()),
            ("topology.kubernetes.io/region".into(), "us-east-9".into()),
        ]
        .into(),
        affinity: affinity.map(Zone::new),
    };
    let uri = "/api/v1/persistentvolumes/pv-1?&fieldManager=attachd";
    let metadata = json!({
        "uid": "p-1", "resourceVersion": "7",
        "labels": { "topology.kubernetes.io/zone": "us-east-9a", "topology.kubernetes.io/region": "us-east-9" }
    });
    is(&place(None), "PATCH", uri, MERGE, json!({ "metadata": metadata }));
    let required = json!({ "nodeSelectorTerms": [{ "matchExpressions": [
        { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-9a"] }
    ]}]});
    let spec = json!({ "nodeAffinity": { "required": required } });
    is(&place(Some("us-east-9a")), "PATCH", uri, MERGE, json!({ "metadata": metadata, "spec": spec }));
}
