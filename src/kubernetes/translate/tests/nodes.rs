//! Nodes, CSINodes and CSIDrivers.

use serde_json::{Value, json};

use super::super::*;
use super::{read, wall, with};

pub(super) fn node_json() -> Value {
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
        assert_eq!(provider_id.instance().map(|id| id.text()).as_deref(), instance, "{text}");
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
    assert_eq!(node.ebs_allocatable, Some(25));
    for (count, allocatable) in [(json!(-1), None), (json!("25"), None), (json!(0), Some(0)), (Value::Null, None)] {
        let value = with(value.clone(), "/spec/drivers/0/allocatable/count", count);
        assert_eq!(csi_node(read(&value)).expect("readable").ebs_allocatable, allocatable);
    }
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
