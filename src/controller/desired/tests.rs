//! What the tests of the desired state share: objects in their plain form, and a way to feed them.

mod cases;
mod lists;
mod unresolved;

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::DesiredStateOfWorld;
use crate::controller::event::{Object, ObjectKey, WatchEvent};
use crate::controller::policy::Policy;
use crate::model::claim::{AccessMode, Claim, PersistentVolume, PersistentVolumeSource, Placement};
use crate::model::ids::{
    AwsVolumeId, ClaimKey, DriverName, NodeName, PersistentVolumeName, PodKey, ResourceVersion, Uid, VolumeHandle,
    VolumeKey,
};
use crate::model::node::CsiDriver;
use crate::model::pod::{InlineEbs, Pod, PodVolume};
use crate::model::time::Wall;

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
        placement: Placement::default(),
    }
}

fn ebs(name: &str, claim: &str, handle: &str) -> PersistentVolume {
    persistent_volume(name, claim, csi("ebs.csi.aws.com", handle))
}

trait Fed {
    fn pod(&mut self, pod: &Pod);
    fn claim(&mut self, claim: &Claim);
    fn volume(&mut self, volume: &PersistentVolume);
    fn driver(&mut self, name: &str, attach_required: bool);
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
    fn driver(&mut self, name: &str, attach_required: bool) {
        let driver = CsiDriver { name: DriverName::new(name), attach_required };
        self.ingest(&WatchEvent::Applied(Object::CsiDriver(driver)));
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

fn pod_gone(pod: &Pod) -> ObjectKey {
    ObjectKey::Pod(pod.key.clone(), pod.uid.clone())
}

fn claim_gone(claim: &Claim) -> ObjectKey {
    ObjectKey::Claim(claim.key.clone(), claim.uid.clone())
}

fn volume_gone(volume: &PersistentVolume) -> ObjectKey {
    ObjectKey::PersistentVolume(volume.name.clone(), volume.uid.clone())
}
