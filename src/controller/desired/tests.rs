//! Cases of the desired state, named by their ids.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::*;
use crate::model::claim::{AccessMode, PersistentVolumeSource};
use crate::model::ids::{AwsVolumeId, ResourceVersion, VolumeHandle};
use crate::model::pod::InlineEbs;

const V1: &str = "vol-0aa11";

fn v1() -> VolumeKey {
    volume(V1)
}

fn volume(id: &str) -> VolumeKey {
    VolumeKey::ebs(&AwsVolumeId::parse(id).unwrap())
}

fn node(name: &str) -> NodeName {
    NodeName::new(name)
}

fn claim_key(name: &str) -> ClaimKey {
    ClaimKey::new("default", name)
}

fn pod(name: &str, on: &str, volumes: impl Into<Vec<PodVolume>>) -> Pod {
    Pod {
        key: PodKey::new("default", name),
        uid: Uid::new(format!("uid-{name}")),
        node: Some(node(on)),
        created: Wall::from_millis(1_000),
        scheduled: None,
        deleting: false,
        terminated: false,
        volumes: volumes.into(),
    }
}

fn by_claim(name: &str) -> PodVolume {
    PodVolume::Claim(SmolStr::new(name))
}

fn inline(volume_id: &str) -> InlineEbs {
    InlineEbs {
        volume_id: SmolStr::new(volume_id),
        fs_type: Some(SmolStr::new("ext4")),
        partition: 1,
        read_only: false,
    }
}

/// A bound claim; its UID is `uid-<name>`.
fn claim(name: &str, bound_to: &str) -> Claim {
    Claim {
        key: claim_key(name),
        uid: Uid::new(format!("uid-{name}")),
        bound_to: Some(PersistentVolumeName::new(bound_to)),
        owner_pod: None,
    }
}

fn csi(driver: &str, handle: &str) -> PersistentVolumeSource {
    PersistentVolumeSource::Csi {
        driver: DriverName::new(driver),
        handle: VolumeHandle::new(handle),
        attributes: BTreeMap::new(),
    }
}

/// A ReadWriteOnce file system bound to the claim.
fn persistent_volume(name: &str, claim: &str, source: PersistentVolumeSource) -> PersistentVolume {
    PersistentVolume {
        name: PersistentVolumeName::new(name),
        uid: Uid::new(format!("uid-{name}")),
        resource_version: ResourceVersion::new("1"),
        deleting: false,
        finalizers: Vec::new(),
        claim: Some((claim_key(claim), Uid::new(format!("uid-{claim}")))),
        source,
        access_modes: BTreeSet::from([AccessMode::ReadWriteOnce]),
        block: false,
    }
}

fn ebs(name: &str, claim: &str, handle: &str) -> PersistentVolume {
    persistent_volume(name, claim, csi("ebs.csi.aws.com", handle))
}

trait Fed {
    fn pod(&mut self, pod: &Pod);
    fn claim(&mut self, claim: &Claim);
    fn volume(&mut self, volume: &PersistentVolume);
    fn delete(&mut self, key: ObjectKey);
    fn wanted(&self, volume: &VolumeKey) -> Vec<(String, String)>;
}

impl Fed for DesiredStateOfWorld {
    fn pod(&mut self, pod: &Pod) {
        self.ingest(&WatchEvent::Applied(Object::Pod(pod.clone())));
    }
    fn claim(&mut self, claim: &Claim) {
        self.ingest(&WatchEvent::Applied(Object::Claim(claim.clone())));
    }
    fn volume(&mut self, volume: &PersistentVolume) {
        self.ingest(&WatchEvent::Applied(Object::PersistentVolume(volume.clone())));
    }
    fn delete(&mut self, key: ObjectKey) {
        self.ingest(&WatchEvent::Deleted(key));
    }
    /// Node and pod of every want.
    fn wanted(&self, volume: &VolumeKey) -> Vec<(String, String)> {
        self.wants(volume).iter().map(|want| (want.node.to_string(), want.pod.name.to_string())).collect()
    }
}

fn on(node: &str, pod: &str) -> (String, String) {
    (node.to_owned(), pod.to_owned())
}

/// Pod A on n1 uses claim c, bound to PersistentVolume pv, which is v1.
fn a_on_n1() -> DesiredStateOfWorld {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    desired.volume(&ebs("pv", "c", V1));
    desired.claim(&claim("c", "pv"));
    desired.pod(&pod("a", "n1", [by_claim("c")]));
    desired
}

#[test]
fn i_02_static_csi_volume_without_node_affinity_is_wanted_where_the_pod_is() {
    let desired = a_on_n1();
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert_eq!(desired.wanted_on(&node("n1")).collect::<Vec<_>>(), [&v1()]);
    let source = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv"));
    assert_eq!(desired.wants(&v1())[0].source, source);
}
