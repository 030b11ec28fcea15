//! VolumeAttachments, as upstream and attachd leave them behind.

use serde_json::{Value, json};

use super::super::*;
use super::{read, wall, with};

pub(super) fn i_08() -> Value {
    json!({
        "kind": "VolumeAttachment",
        "metadata": {
            "name": "csi-00ff", "uid": "a-1", "resourceVersion": "11",
            "deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "annotations": { "csi.alpha.kubernetes.io/node-id": "i-0bb21" },
            "finalizers": ["external-attacher/ebs-csi-aws-com"]
        },
        "spec": { "attacher": "ebs.csi.aws.com", "nodeName": "n-gone", "source": { "persistentVolumeName": "pv-gone" } },
        "status": {
            "attached": true, "attachmentMetadata": { "devicePath": "/dev/xvdaa" },
            "detachError": { "message": "csinode not found" }
        }
    })
}

fn attachment_of(value: &Value) -> VolumeAttachment {
    attachment(read(value)).expect("readable")
}

#[test]
fn i_08_an_attachment_being_deleted_with_an_error_is_read_whole() {
    let read = attachment_of(&i_08());
    assert_eq!(
        read,
        VolumeAttachment {
            name: AttachmentName::new("csi-00ff"),
            uid: Uid::new("a-1"),
            resource_version: ResourceVersion::new("11"),
            deleting: Some(wall("2030-01-01T00:00:00Z")),
            finalizers: vec!["external-attacher/ebs-csi-aws-com".into()],
            driver: DriverName::ebs(),
            node: NodeName::new("n-gone"),
            source: AttachmentSource::PersistentVolume(PersistentVolumeName::new("pv-gone")),
            node_id: Some("i-0bb21".into()),
            node_uid: None,
            device: None,
            unmounted: None,
            status: AttachmentStatus {
                attached: true,
                device_path: Some(DeviceName::new("/dev/xvdaa")),
                attach_error: None,
                detach_error: Some(AttachmentError { message: "csinode not found".into(), code: None, time: None }),
            },
        }
    );
    assert!(read.has_attacher_finalizer());
    assert_eq!(read.instance().map(|id| id.to_string()).as_deref(), Some("i-0bb21"));
}

#[test]
fn i_08_variants() {
    let without_annotation = with(i_08(), "/metadata/annotations", Value::Null);
    assert_eq!(attachment_of(&without_annotation).instance(), None);
    let without_finalizer = with(i_08(), "/metadata/finalizers", Value::Null);
    assert!(!attachment_of(&without_finalizer).has_attacher_finalizer());
    let never_attached = with(
        i_08(),
        "/status",
        json!({ "attached": false, "attachError": { "message": "full", "errorCode": 8, "time": "2030-01-01T00:00:00Z" } }),
    );
    assert_eq!(
        attachment_of(&never_attached).status,
        AttachmentStatus {
            attach_error: Some(AttachmentError {
                message: "full".into(),
                code: Some(8),
                time: Some(wall("2030-01-01T00:00:00Z")),
            }),
            ..AttachmentStatus::default()
        }
    );
    assert_eq!(attachment_of(&with(i_08(), "/status", Value::Null)).status, AttachmentStatus::default());
}

#[test]
fn what_attachd_recorded_is_read_back() {
    let annotations = json!({
        "csi.alpha.kubernetes.io/node-id": "i-0bb21", "attachd/node-uid": "n-1", "attachd/device": "/dev/xvdaa",
        "attachd/unmounted": "boot-1", "other": "x"
    });
    let read = attachment_of(&with(i_08(), "/metadata/annotations", annotations));
    assert_eq!(read.node_uid, Some(Uid::new("n-1")));
    assert_eq!(read.device, Some(DeviceName::new("/dev/xvdaa")));
    assert_eq!(read.unmounted, Some(BootId::new("boot-1")));
}

#[test]
fn the_source_of_an_attachment_is_a_volume_or_inline_or_unreadable() {
    let inline = json!({ "inlineVolumeSpec": {
        "accessModes": ["ReadWriteOnce"], "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0aa15" }
    }});
    let cases = [
        (inline, AttachmentSource::Inline { driver: DriverName::ebs(), handle: VolumeHandle::new("vol-0aa15") }),
        (json!({ "inlineVolumeSpec": { "nfs": {} } }), AttachmentSource::Unreadable),
        (json!({ "persistentVolumeName": 1 }), AttachmentSource::Unreadable),
        (json!({}), AttachmentSource::Unreadable),
        (json!("pv"), AttachmentSource::Unreadable),
    ];
    for (source, wanted) in cases {
        assert_eq!(attachment_of(&with(i_08(), "/spec/source", source.clone())).source, wanted, "{source}");
    }
}

#[test]
fn an_attachment_of_which_the_state_cannot_be_read_is_unreadable() {
    for (pointer, to) in [
        ("/metadata/deletionTimestamp", json!("soon")),
        ("/metadata/finalizers", json!([1])),
        ("/metadata/annotations", json!([])),
        ("/metadata/annotations/csi.alpha.kubernetes.io~1node-id", json!(1)),
        ("/metadata/annotations/attachd~1device", json!({})),
        ("/metadata/resourceVersion", json!(11)),
        ("/spec/attacher", json!(1)),
        ("/spec/nodeName", Value::Null),
        ("/spec", json!(1)),
        ("/status", json!("attached")),
        ("/status/attached", json!("false")),
    ] {
        let object: AttachmentObject = read(&with(i_08(), pointer, to.clone()));
        assert_eq!(object.key(), Some(ObjectKey::Attachment(AttachmentName::new("csi-00ff"), Uid::new("a-1"))));
        assert!(object.translate().is_err(), "{pointer} {to}");
    }
}
