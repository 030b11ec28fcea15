//! Pods: when they count as terminated, and what each volume source means.

use serde_json::{Value, json};

use super::super::*;
use super::{read, wall, with};

pub(super) fn pod_json() -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": "db-0", "uid": "p-1", "resourceVersion": "7",
            "creationTimestamp": "2030-01-01T00:00:00Z",
            "managedFields": [{ "anything": { "f:x": {} } }], "labels": { "app": "db" }
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{ "name": "c", "env": [{ "name": "A", "value": "b" }] }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } }]
        },
        "status": {
            "phase": "Running",
            "conditions": [
                { "type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:09Z" },
                { "type": "PodScheduled", "status": "True", "lastTransitionTime": "2030-01-01T00:00:02Z" }
            ],
            "containerStatuses": [{ "name": "c", "state": { "running": { "startedAt": "2030-01-01T00:00:05Z" } } }]
        }
    })
}

fn pod_of(value: &Value) -> Pod {
    pod(read(value)).expect("a readable pod")
}

#[test]
fn a_pod_is_read_whole() {
    assert_eq!(
        pod_of(&pod_json()),
        Pod {
            key: PodKey::new("shop", "db-0"),
            uid: Uid::new("p-1"),
            node: Some(NodeName::new("n1")),
            created: wall("2030-01-01T00:00:00Z"),
            scheduled: Some(wall("2030-01-01T00:00:02Z")),
            deleting: false,
            terminated: false,
            volumes: vec![PodVolume::Claim("data-db-0".into())],
        }
    );
}

#[test]
fn a_pod_counts_as_scheduled_only_by_a_true_condition() {
    let waiting = with(pod_json(), "/status/conditions/1/status", json!("False"));
    assert_eq!(pod_of(&waiting).scheduled, None);
    assert_eq!(pod_of(&with(pod_json(), "/status", Value::Null)).scheduled, None);
    assert_eq!(pod_of(&with(pod_json(), "/spec/nodeName", json!(""))).node, None);
}

/// Upstream's IsPodTerminated, case by case.
#[test]
fn a_pod_is_terminated_as_upstream_says() {
    let running = json!({ "state": { "running": {} } });
    let done = json!({ "state": { "terminated": { "exitCode": 0 } } });
    let waiting = json!({ "state": { "waiting": { "reason": "CrashLoopBackOff" } } });
    let stateless = json!({ "name": "c" });
    // phase, being deleted, init containers, containers, ephemeral containers, terminated
    let cases = [
        ("Running", false, json!([]), json!([done]), json!([]), false),
        ("Failed", false, json!([]), json!([running]), json!([]), true),
        ("Succeeded", false, json!([]), json!([]), json!([]), true),
        ("Running", true, json!([]), json!([running]), json!([]), false),
        ("Running", true, json!([done]), json!([done, waiting]), json!([]), true),
        ("Running", true, json!([running]), json!([done]), json!([]), false),
        ("Running", true, json!([done]), json!([done]), json!([running]), false),
        ("Running", true, json!([done]), json!([done, stateless]), json!([]), false),
        ("Pending", true, Value::Null, Value::Null, Value::Null, true),
        ("Pending", false, Value::Null, Value::Null, Value::Null, false),
        // Not upstream's, which cannot read such a thing: what cannot be read may be running.
        ("Running", true, json!([]), json!([done, 7]), json!([]), false),
        ("Running", true, json!([]), json!("none"), json!([]), false),
        ("Running", true, json!([]), json!([{ "state": { "terminated": true } }]), json!([]), false),
    ];
    for (phase, deleting, init, regular, ephemeral, terminated) in cases {
        let mut value = with(pod_json(), "/status/phase", json!(phase));
        if deleting {
            value = with(value, "/metadata/deletionTimestamp", json!("2030-01-01T01:00:00Z"));
        }
        value = with(value, "/status/initContainerStatuses", init);
        value = with(value, "/status/containerStatuses", regular);
        value = with(value, "/status/ephemeralContainerStatuses", ephemeral);
        let pod = pod_of(&value);
        assert_eq!((pod.deleting, pod.terminated), (deleting, terminated), "{value}");
    }
}

#[test]
fn a_pod_with_an_unreadable_deletion_time_goes_on_wanting() {
    let value = with(pod_json(), "/metadata/deletionTimestamp", json!(true));
    let value = with(value, "/status/containerStatuses", json!([]));
    assert!(!pod_of(&value).terminated);
}

#[test]
fn every_source_of_a_pod_volume_has_its_meaning() {
    let plugin = |name: &str| Some(PodVolume::Untranslated(name.into()));
    let cases = [
        (json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }), Some(PodVolume::Claim("c".into()))),
        // I-11: the claim's name follows from the pod's and the volume's.
        (json!({ "name": "v", "ephemeral": { "volumeClaimTemplate": {} } }), Some(PodVolume::Ephemeral("v".into()))),
        (json!({ "name": "v", "emptyDir": {} }), None),
        (json!({ "name": "v", "configMap": { "name": "c" } }), None),
        (json!({ "name": "v", "nfs": { "server": "s", "path": "/" } }), None),
        // Inline CSI volumes are ephemeral: never attached, whatever the driver.
        (json!({ "name": "v", "csi": { "driver": "ebs.csi.aws.com" } }), None),
        (json!({ "name": "v", "azureDisk": { "diskName": "d" } }), plugin("kubernetes.io/azure-disk")),
        (json!({ "name": "v", "cinder": { "volumeID": "d" } }), plugin("kubernetes.io/cinder")),
        (json!({ "name": "v", "fc": { "lun": 1 } }), plugin("kubernetes.io/fc")),
        (json!({ "name": "v", "flexVolume": { "driver": "d" } }), plugin("kubernetes.io/flexvolume")),
        (json!({ "name": "v", "gcePersistentDisk": { "pdName": "d" } }), plugin("kubernetes.io/gce-pd")),
        (json!({ "name": "v", "iscsi": { "lun": 1 } }), plugin("kubernetes.io/iscsi")),
        (json!({ "name": "v", "photonPersistentDisk": { "pdID": "d" } }), plugin("kubernetes.io/photon-pd")),
        (json!({ "name": "v", "portworxVolume": { "volumeID": "d" } }), plugin("kubernetes.io/portworx-volume")),
        (json!({ "name": "v", "rbd": { "image": "i" } }), plugin("kubernetes.io/rbd")),
        (json!({ "name": "v", "vsphereVolume": { "volumePath": "p" } }), plugin("kubernetes.io/vsphere-volume")),
        // What cannot be read must not read as "wants nothing".
        (json!({ "name": "v", "persistentVolumeClaim": { "claimName": 7 } }), plugin(UNREADABLE_PLUGIN)),
        (json!({ "name": "v", "persistentVolumeClaim": "c" }), plugin(UNREADABLE_PLUGIN)),
        (json!({ "name": 7, "ephemeral": {} }), plugin(UNREADABLE_PLUGIN)),
        (json!({ "name": "v", "awsElasticBlockStore": { "volumeID": ["vol-0aa11"] } }), plugin(UNREADABLE_PLUGIN)),
        (json!({ "name": "v", "azureDisk": "d" }), plugin("kubernetes.io/azure-disk")),
        (json!("v"), plugin(UNREADABLE_PLUGIN)),
        (Value::Null, plugin(UNREADABLE_PLUGIN)),
    ];
    for (source, wanted) in cases {
        let value = with(pod_json(), "/spec/volumes", json!([source]));
        assert_eq!(pod_of(&value).volumes, Vec::from_iter(wanted), "{source}");
    }
    let unreadable_list = with(pod_json(), "/spec/volumes", json!({ "name": "v" }));
    assert_eq!(pod_of(&unreadable_list).volumes, [PodVolume::Untranslated(UNREADABLE_PLUGIN.into())]);
    assert_eq!(pod_of(&with(pod_json(), "/spec/volumes", Value::Null)).volumes, []);
}

#[test]
fn i_10_inline_in_tree_volume_is_kept_untouched() {
    let source = json!({ "volumeID": "aws://us-east-9b/vol-0aa15", "fsType": "ext4", "partition": 1 });
    let value = with(pod_json(), "/spec/volumes", json!([{ "name": "d", "awsElasticBlockStore": source }]));
    assert_eq!(
        pod_of(&value).volumes,
        [PodVolume::InlineEbs(InlineEbs {
            volume_id: "aws://us-east-9b/vol-0aa15".into(),
            fs_type: Some("ext4".into()),
            partition: 1,
            read_only: false,
        })]
    );
    // I-01: an empty id is quoted by whoever parses it, not lost here.
    let value =
        with(pod_json(), "/spec/volumes", json!([{ "name": "d", "awsElasticBlockStore": { "readOnly": true } }]));
    assert_eq!(
        pod_of(&value).volumes,
        [PodVolume::InlineEbs(InlineEbs { volume_id: "".into(), fs_type: None, partition: 0, read_only: true })]
    );
}

#[test]
fn a_pod_whose_node_or_spec_cannot_be_read_is_unreadable_but_has_a_key() {
    for (pointer, unread) in [("/spec", "spec"), ("/spec/nodeName", "spec.nodeName")] {
        let object: PodObject = read(&with(pod_json(), pointer, json!(7)));
        assert_eq!(object.key(), Some(ObjectKey::Pod(PodKey::new("shop", "db-0"), Uid::new("p-1"))));
        assert_eq!(object.translate(), Err(Unread(unread)));
    }
    for pointer in ["/metadata", "/metadata/name", "/metadata/namespace", "/metadata/uid"] {
        let object: PodObject = read(&with(pod_json(), pointer, json!([1])));
        assert_eq!(object.key(), None, "{pointer}");
    }
}
