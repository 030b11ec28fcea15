use serde_json::{Value, json};

use super::*;

fn read<K: Readable>(value: &Value) -> K {
    serde_json::from_str::<Field<K>>(&value.to_string()).expect("any JSON is read").ok().expect("an object")
}

/// `value` with the member at `pointer` set to `to`, all objects on the way made.
fn with(mut value: Value, pointer: &str, to: Value) -> Value {
    let mut place = &mut value;
    for step in pointer.split('/').skip(1) {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step.replace("~1", "/")],
        };
    }
    *place = to;
    value
}

fn wall(text: &str) -> Wall {
    Wall::read_str(text).expect("a time")
}

fn pod_json() -> Value {
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

fn claim_json() -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": "data-db-0", "uid": "c-1",
            "ownerReferences": [
                { "kind": "StatefulSet", "uid": "s-1" },
                { "kind": "Pod", "uid": "p-1", "controller": true }
            ]
        },
        "spec": { "volumeName": "pv-1" },
        "status": { "phase": "Bound" }
    })
}

#[test]
fn a_claim_is_bound_only_if_phase_and_volume_say_so() {
    let bound_to = |value: Value| claim(read(&value)).expect("readable").bound_to;
    assert_eq!(bound_to(claim_json()), Some(PersistentVolumeName::new("pv-1")));
    for (pointer, to) in [
        ("/status/phase", json!("Pending")),
        ("/status/phase", json!("Lost")),
        ("/status/phase", json!(7)),
        ("/status", Value::Null),
        ("/spec/volumeName", json!("")),
        ("/spec/volumeName", json!(7)),
        ("/spec", json!([])),
    ] {
        assert_eq!(bound_to(with(claim_json(), pointer, to.clone())), None, "{pointer} {to}");
    }
}

#[test]
fn i_11_a_claim_belongs_to_the_pod_that_controls_it() {
    let owner = |value: Value| claim(read(&value)).expect("readable").owner_pod;
    assert_eq!(owner(claim_json()), Some(Uid::new("p-1")));
    for (pointer, to) in [
        ("/metadata/ownerReferences/1/controller", json!(false)),
        ("/metadata/ownerReferences/1/controller", json!("true")),
        ("/metadata/ownerReferences/1/kind", json!("Job")),
        ("/metadata/ownerReferences", json!([])),
        ("/metadata/ownerReferences", json!("p-1")),
    ] {
        assert_eq!(owner(with(claim_json(), pointer, to.clone())), None, "{pointer} {to}");
    }
}

fn pv_json() -> Value {
    json!({
        "metadata": {
            "name": "pv-1", "uid": "v-1", "resourceVersion": "9",
            "finalizers": ["kubernetes.io/pv-protection", "external-attacher/ebs-csi-aws-com"]
        },
        "spec": {
            "capacity": { "storage": "20Gi" }, "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": "shop", "name": "data-db-0", "uid": "c-1" },
            "csi": {
                "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0aa12", "fsType": "xfs",
                "volumeAttributes": { "storage.kubernetes.io/csiProvisionerIdentity": "x" }
            }
        }
    })
}

fn pv_of(value: &Value) -> PersistentVolume {
    persistent_volume(read(value)).expect("readable")
}

#[test]
fn a_persistent_volume_is_read_whole() {
    assert_eq!(
        pv_of(&pv_json()),
        PersistentVolume {
            name: PersistentVolumeName::new("pv-1"),
            uid: Uid::new("v-1"),
            resource_version: ResourceVersion::new("9"),
            deleting: false,
            finalizers: vec!["kubernetes.io/pv-protection".into(), "external-attacher/ebs-csi-aws-com".into()],
            claim: Some((ClaimKey::new("shop", "data-db-0"), Uid::new("c-1"))),
            source: PersistentVolumeSource::Csi {
                driver: DriverName::ebs(),
                handle: VolumeHandle::new("vol-0aa12"),
                attributes: [("storage.kubernetes.io/csiProvisionerIdentity".into(), "x".into())].into(),
            },
            access_modes: [AccessMode::ReadWriteOnce].into(),
            block: false,
        }
    );
}

#[test]
fn i_02_a_static_volume_without_claim_is_read() {
    let value = json!({
        "metadata": { "name": "static", "uid": "v-2", "resourceVersion": "1" },
        "spec": {
            "capacity": { "storage": "20Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
            "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0aa12", "fsType": "xfs" }
        }
    });
    let pv = pv_of(&value);
    assert_eq!((pv.claim, pv.finalizers), (None, vec![]));
    let attributes = BTreeMap::new();
    assert_eq!(
        pv.source,
        PersistentVolumeSource::Csi { driver: DriverName::ebs(), handle: VolumeHandle::new("vol-0aa12"), attributes }
    );
}

#[test]
fn every_source_of_a_persistent_volume_has_its_meaning() {
    let plugin = |name: &str| PersistentVolumeSource::Untranslated(name.into());
    let ebs = json!({ "volumeID": "aws://us-east-9a/vol-0aa11", "fsType": "ext4" });
    let cases = [
        ("awsElasticBlockStore", ebs, PersistentVolumeSource::InTreeEbs("aws://us-east-9a/vol-0aa11".into())),
        ("awsElasticBlockStore", json!({ "volumeID": 7 }), plugin(UNREADABLE_PLUGIN)),
        ("csi", json!({ "driver": "d" }), plugin(UNREADABLE_PLUGIN)),
        ("csi", json!("d"), plugin(UNREADABLE_PLUGIN)),
        ("csi", json!({ "driver": "d", "volumeHandle": "h", "volumeAttributes": 1 }), plugin(UNREADABLE_PLUGIN)),
        ("azureDisk", json!({}), plugin("kubernetes.io/azure-disk")),
        ("gcePersistentDisk", json!({}), plugin("kubernetes.io/gce-pd")),
        ("iscsi", json!({}), plugin("kubernetes.io/iscsi")),
        ("vsphereVolume", json!({}), plugin("kubernetes.io/vsphere-volume")),
        ("nfs", json!({}), PersistentVolumeSource::NotAttachable),
        ("local", json!({ "path": "/mnt" }), PersistentVolumeSource::NotAttachable),
    ];
    for (field, source, wanted) in cases {
        let mut value = with(pv_json(), "/spec/csi", Value::Null);
        value["spec"][field] = source.clone();
        assert_eq!(pv_of(&value).source, wanted, "{field} {source}");
    }
}

#[test]
fn access_modes_that_are_not_known_are_left_out() {
    let value = with(pv_json(), "/spec/accessModes", json!(["ReadWriteMany", "ReadWriteAll", 7, "ReadOnlyMany"]));
    assert_eq!(pv_of(&value).access_modes, [AccessMode::ReadWriteMany, AccessMode::ReadOnlyMany].into());
    assert!(pv_of(&with(pv_json(), "/spec/volumeMode", json!("Block"))).block);
    let in_creation = with(pv_json(), "/spec/claimRef/uid", Value::Null);
    assert_eq!(pv_of(&in_creation).claim, Some((ClaimKey::new("shop", "data-db-0"), Uid::new(""))));
}

#[test]
fn a_volume_whose_finalizers_cannot_be_read_is_unreadable() {
    for finalizers in [json!("f"), json!(["f", 1]), json!([null])] {
        let object: PersistentVolumeObject = read(&with(pv_json(), "/metadata/finalizers", finalizers));
        assert!(object.key().is_some());
        assert_eq!(object.translate(), Err(Unread("metadata.finalizers")));
    }
}

fn node_json() -> Value {
    json!({
        "metadata": {
            "name": "n1", "uid": "n-1", "resourceVersion": "5", "creationTimestamp": "2030-01-01T00:00:00Z",
            "labels": { "topology.kubernetes.io/zone": "us-east-9a", "kubernetes.io/arch": "arm64" },
            "annotations": {
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                "attachd/in-use-unknown": "{\"kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11\":\"boot-0\"}"
            }
        },
        "spec": { "providerID": "aws:///us-east-9a/i-0bb23", "taints": [] },
        "status": {
            "conditions": [
                { "type": "MemoryPressure", "status": "False" },
                {
                    "type": "Ready", "status": "True",
                    "lastTransitionTime": "2030-01-01T00:01:00Z", "lastHeartbeatTime": "2030-01-01T00:05:00Z"
                }
            ],
            "nodeInfo": { "bootID": "boot-1", "machineID": "m" },
            "volumesInUse": ["kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11"],
            "volumesAttached": [
                { "name": "kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11", "devicePath": "" },
                { "name": "kubernetes.io/aws-ebs/aws://us-east-9a/vol-0aa12", "devicePath": "/dev/xvdba" }
            ]
        }
    })
}

fn node_of(value: &Value) -> Node {
    node(read(value)).expect("readable")
}

#[test]
fn a_node_is_read_whole() {
    let volume = UniqueVolumeName::new("kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11");
    assert_eq!(
        node_of(&node_json()),
        Node {
            name: NodeName::new("n1"),
            uid: Uid::new("n-1"),
            resource_version: ResourceVersion::new("5"),
            managed: true,
            provider_id: ProviderId::parse("aws:///us-east-9a/i-0bb23"),
            zone: Some(Zone::new("us-east-9a")),
            ready: Ready {
                is_true: true,
                since: Some(wall("2030-01-01T00:01:00Z")),
                heartbeat: Some(wall("2030-01-01T00:05:00Z")),
            },
            out_of_service: false,
            boot_id: Some(BootId::new("boot-1")),
            volumes_in_use: [volume.clone()].into(),
            volumes_attached: [
                (volume.clone(), "".into()),
                (UniqueVolumeName::new("kubernetes.io/aws-ebs/aws://us-east-9a/vol-0aa12"), "/dev/xvdba".into()),
            ]
            .into(),
            in_use_unknown: UnknownMarks::Marks([(volume, BootId::new("boot-0"))].into()),
        }
    );
}

#[test]
fn a_bare_node_is_not_ready_since_its_creation_and_not_managed() {
    let value = json!({ "metadata": {
        "name": "n1", "uid": "n-1", "resourceVersion": "1", "creationTimestamp": "2030-01-01T00:00:00Z"
    }});
    let node = node_of(&value);
    let since = Some(wall("2030-01-01T00:00:00Z"));
    assert_eq!(node.ready, Ready { is_true: false, since, heartbeat: None });
    assert!(!node.managed && node.provider_id.is_none() && node.boot_id.is_none() && node.zone.is_none());
    assert_eq!(node.in_use_unknown, UnknownMarks::default());
}

#[test]
fn ready_is_true_by_that_word_only() {
    for (status, wanted) in [("True", true), ("False", false), ("Unknown", false), ("true", false)] {
        let value = with(node_json(), "/status/conditions/1/status", json!(status));
        assert_eq!(node_of(&value).ready.is_true, wanted, "{status}");
    }
}

/// Also NAME-09 (Fargate) and NAME-10 (hybrid nodes).
#[test]
fn i_16_provider_ids_name_an_instance_or_not() {
    let cases = [
        ("aws:///us-east-9a/i-0bb23", Some("i-0bb23")),
        ("i-0bb23", Some("i-0bb23")),
        ("aws:///us-east-9a/5c1d9c61-5a1e-4b5f-a0d5-3d1f/fargate-ip-10-0-0-1.ec2.internal", None),
        ("eks-hybrid:///us-east-9/c1/n1", None),
        ("eks:///us-east-9/c1/i-0bb23", None),
        ("aws:///us-west-9-lax-1a/i-0bb24", Some("i-0bb24")),
        ("aws:///us-gov-west-1a/i-0bb25", Some("i-0bb25")),
        ("aws:///cn-north-1a/i-0bb26", Some("i-0bb26")),
    ];
    for (text, instance) in cases {
        let node = node_of(&with(node_json(), "/spec/providerID", json!(text)));
        let provider_id = node.provider_id.expect("not empty");
        assert_eq!(provider_id.instance().map(|id| id.as_str()), instance, "{text}");
    }
    for empty in [json!(""), Value::Null, json!(7)] {
        assert_eq!(node_of(&with(node_json(), "/spec/providerID", empty)).provider_id, None);
    }
}

#[test]
fn i_22_only_the_out_of_service_taint_fences() {
    let cases = [
        (json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" }), true),
        (json!({ "key": "node.kubernetes.io/out-of-service" }), true),
        (json!({ "key": "NodeWithImpairedVolumes", "value": "true", "effect": "NoSchedule" }), false),
        (json!({ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" }), false),
        (json!({ "key": "ToBeDeletedByClusterAutoscaler" }), false),
        (json!("node.kubernetes.io/out-of-service"), false),
    ];
    for (taint, fences) in cases {
        let value = with(node_json(), "/spec/taints", json!([taint]));
        assert_eq!(node_of(&value).out_of_service, fences, "{taint}");
    }
}

#[test]
fn the_managed_annotation_counts_by_its_presence_and_unreadable_marks_mark_everything() {
    let managed = "/metadata/annotations/volumes.kubernetes.io~1controller-managed-attach-detach";
    for value in [json!("true"), json!("false"), json!("")] {
        assert!(node_of(&with(node_json(), managed, value)).managed);
    }
    let value = json!({ "metadata": { "name": "n", "uid": "u", "resourceVersion": "1", "annotations": {} } });
    assert!(!node_of(&value).managed);
    for marks in ["", "[]", "{\"v\":1}", "not json"] {
        let value = with(node_json(), "/metadata/annotations/attachd~1in-use-unknown", json!(marks));
        assert_eq!(node_of(&value).in_use_unknown, UnknownMarks::Unreadable(marks.into()));
    }
}

#[test]
fn a_node_of_which_a_list_cannot_be_read_is_unreadable() {
    for (pointer, to) in [
        ("/status/volumesInUse", json!("v")),
        ("/status/volumesInUse", json!(["v", 1])),
        ("/status/volumesAttached", json!({})),
        ("/status/volumesAttached/0", json!("v")),
        ("/status/volumesAttached/0/name", json!(1)),
        ("/status/conditions", json!(1)),
        ("/status/conditions/1/status", json!(true)),
        ("/status", json!([])),
        ("/metadata/annotations", json!("a")),
    ] {
        let object: NodeObject = read(&with(node_json(), pointer, to.clone()));
        assert_eq!(object.key(), Some(ObjectKey::Node(NodeName::new("n1"), Uid::new("n-1"))));
        assert!(object.translate().is_err(), "{pointer} {to}");
    }
}

#[test]
fn csi_nodes_and_drivers_are_read() {
    let value = json!({ "metadata": { "name": "n1" }, "spec": { "drivers": [
        { "name": "ebs.csi.aws.com", "nodeID": "i-0bb23", "topologyKeys": null, "allocatable": { "count": 25 } },
        { "name": "efs.csi.aws.com", "nodeID": "i-0bb23" }
    ]}});
    let node = csi_node(read(&value)).expect("readable");
    assert_eq!(node.name, NodeName::new("n1"));
    assert_eq!(
        node.drivers,
        [(DriverName::ebs(), "i-0bb23".into()), (DriverName::new("efs.csi.aws.com"), "i-0bb23".into())].into()
    );
    let none = with(value.clone(), "/spec/drivers", Value::Null);
    assert_eq!(csi_node(read(&none)).expect("readable").drivers, BTreeMap::new());
    assert!(csi_node(read(&with(value, "/spec/drivers/0/nodeID", json!(1)))).is_err());

    for (required, wanted) in
        [(json!(false), Ok(false)), (json!(true), Ok(true)), (Value::Null, Ok(true)), (json!("no"), Err(()))]
    {
        let value = json!({ "metadata": { "name": "d" }, "spec": { "attachRequired": required } });
        assert_eq!(csi_driver(read(&value)).map(|driver| driver.attach_required).map_err(|_| ()), wanted);
    }
}

fn i_08() -> Value {
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

/// Whatever stands anywhere in an object, reading it does not fail.
#[test]
fn no_value_at_any_place_fails_an_object() {
    fn pointers(value: &Value, here: &str, all: &mut Vec<String>) {
        all.push(here.to_owned());
        match value {
            Value::Object(map) => {
                for (key, member) in map {
                    pointers(member, &format!("{here}/{}", key.replace('/', "~1")), all);
                }
            }
            Value::Array(list) => {
                for (index, element) in list.iter().enumerate() {
                    pointers(element, &format!("{here}/{index}"), all);
                }
            }
            _ => {}
        }
    }
    fn check<K: Watched>(value: &Value) {
        let mut all = Vec::new();
        pointers(value, "", &mut all);
        for pointer in all {
            for garbage in
                [json!(1), json!(-1.5), json!(true), json!("x"), json!([[]]), json!({ "a": [1] }), Value::Null]
            {
                let value = with(value.clone(), &pointer, garbage);
                let field: Result<Field<K>, _> = serde_json::from_str(&value.to_string());
                let field = field.unwrap_or_else(|error| panic!("{pointer}: {error}"));
                // Also what cannot be translated has a key, unless its identity itself is spoilt.
                if let Field::Is(object) = field
                    && object.key().is_none()
                {
                    assert!(pointer.is_empty() || pointer.starts_with("/metadata"), "{pointer}");
                }
            }
        }
    }
    check::<PodObject>(&pod_json());
    check::<ClaimObject>(&claim_json());
    check::<PersistentVolumeObject>(&pv_json());
    check::<NodeObject>(&node_json());
    check::<AttachmentObject>(&i_08());
}
