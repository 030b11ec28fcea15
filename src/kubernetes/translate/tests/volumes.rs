//! Claims and PersistentVolumes.

use serde_json::{Value, json};

use super::super::*;
use super::{read, with};

pub(super) fn claim_json() -> Value {
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

pub(super) fn pv_json() -> Value {
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
            placement: Placement::default(),
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
