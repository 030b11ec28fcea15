//! What kubelets, control loops, workloads and people do to the API server.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::{Api, PV_PROTECTION};
use crate::controller::command::NewAttachment;
use crate::controller::event::Object;
use crate::model::attachment::{NewAttachmentSource, VolumeAttachment};
use crate::model::claim::{AccessMode, Claim, PersistentVolume, PersistentVolumeSource, Placement};
use crate::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, BootId, ClaimKey, NodeName, PersistentVolumeName, PodKey, ProviderId,
    ResourceVersion, Uid, UniqueVolumeName, VolumeKey, Zone,
};
use crate::model::node::{CsiDriver, CsiNode, Node, Ready, UnknownMarks};
use crate::model::pod::{Pod, PodVolume};
use crate::model::time::Now;
use crate::sim::checkers::world::Actor;

/// What a kubelet registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Name of the node.
    pub name: NodeName,
    /// The instance it runs on.
    pub provider_id: ProviderId,
    /// Its zone.
    pub zone: Zone,
    /// The boot that runs.
    pub boot_id: BootId,
}

/// What a kubelet writes into its Node's status; fields that are `None` are not in the patch. It carries neither UID
/// nor resourceVersion: it lands on whatever Node has the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletStatus {
    /// `volumesInUse`, the whole list.
    pub volumes_in_use: Option<BTreeSet<UniqueVolumeName>>,
    /// `nodeInfo.bootID`
    pub boot_id: Option<BootId>,
    /// Ready=True, with a new heartbeat.
    pub ready: bool,
}

/// There is no Node of that name: a kubelet does not register it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeGone;

/// A PersistentVolume of the EBS driver as csi-provisioner makes it: ReadWriteOnce, a file system.
pub fn ebs_volume(name: &str, volume: &AwsVolumeId) -> PersistentVolume {
    other_volume(name, &VolumeKey::ebs(volume))
}

/// The same of any driver.
pub fn other_volume(name: &str, volume: &VolumeKey) -> PersistentVolume {
    PersistentVolume {
        name: PersistentVolumeName::new(name),
        uid: Uid::new(""),
        resource_version: ResourceVersion::new(""),
        deleting: false,
        finalizers: Vec::new(),
        claim: None,
        source: PersistentVolumeSource::Csi {
            driver: volume.driver.clone(),
            handle: volume.handle.clone(),
            attributes: BTreeMap::new(),
        },
        access_modes: BTreeSet::from([AccessMode::ReadWriteOnce]),
        block: false,
        placement: Placement { zone: None, region: None, has_affinity: true },
    }
}

impl Api {
    /// A kubelet registers: creates the Node, or takes the one that is there. A Node that is there keeps its spec, so
    /// also its providerID.
    pub fn register_node(&mut self, now: Now, new: &NewNode) -> Node {
        if let Some(node) = self.nodes.get(&new.name) {
            return node.clone();
        }
        let node = Node {
            name: new.name.clone(),
            uid: self.next_uid("node"),
            resource_version: ResourceVersion::new(""),
            managed: true,
            provider_id: Some(new.provider_id.clone()),
            zone: Some(new.zone.clone()),
            ready: Ready { is_true: false, since: Some(now.wall.truncated_to_seconds()), heartbeat: Some(now.wall) },
            out_of_service: false,
            boot_id: Some(new.boot_id.clone()),
            volumes_in_use: BTreeSet::new(),
            volumes_attached: BTreeMap::new(),
            in_use_unknown: UnknownMarks::default(),
        };
        self.touched.remove(&new.name);
        self.store_node(Actor::Platform, node)
    }

    /// A kubelet patches its Node's status.
    pub fn patch_by_kubelet(&mut self, now: Now, name: &NodeName, status: &KubeletStatus) -> Result<Node, NodeGone> {
        let mut node = self.nodes.get(name).ok_or(NodeGone)?.clone();
        if let Some(in_use) = &status.volumes_in_use {
            node.volumes_in_use.clone_from(in_use);
        }
        if let Some(boot) = &status.boot_id {
            node.boot_id = Some(boot.clone());
        }
        if status.ready {
            let since = if node.ready.is_true { node.ready.since } else { Some(now.wall.truncated_to_seconds()) };
            node.ready = Ready { is_true: true, since, heartbeat: Some(now.wall.truncated_to_seconds()) };
        }
        Ok(self.store_node(Actor::Platform, node))
    }

    /// The node life cycle controller sets Ready=Unknown. False if there is nothing to set.
    pub fn set_not_ready(&mut self, now: Now, name: &NodeName) -> bool {
        let Some(mut node) = self.nodes.get(name).cloned() else { return false };
        if !node.ready.is_true {
            return false;
        }
        node.ready.is_true = false;
        node.ready.since = Some(now.wall.truncated_to_seconds());
        self.store_node(Actor::Platform, node);
        true
    }

    /// Sets or removes the out-of-service taint. False if there is no such Node or nothing to do.
    pub fn set_taint(&mut self, by: Actor, name: &NodeName, tainted: bool) -> bool {
        let Some(mut node) = self.nodes.get(name).cloned() else { return false };
        if node.out_of_service == tainted {
            return false;
        }
        node.out_of_service = tainted;
        self.store_node(by, node);
        true
    }

    /// Deletes a Node. False if there is none.
    pub fn delete_node(&mut self, by: Actor, name: &NodeName) -> bool {
        let Some(node) = self.nodes.remove(name) else { return false };
        self.touched.remove(name);
        self.log(by, Some(Object::Node(node)), None);
        // The CSINode is owned by the Node: garbage collection takes it along.
        if let Some(csi_node) = self.csi_nodes.remove(name) {
            self.log(Actor::Platform, Some(Object::CsiNode(csi_node)), None);
        }
        true
    }

    /// Writes a CSINode.
    pub fn put_csi_node(&mut self, csi_node: CsiNode) {
        if self.csi_nodes.get(&csi_node.name) != Some(&csi_node) {
            let before = self.csi_nodes.insert(csi_node.name.clone(), csi_node.clone());
            self.log(Actor::Platform, before.map(Object::CsiNode), Some(Object::CsiNode(csi_node)));
        }
    }

    /// Writes a CSIDriver.
    pub fn put_csi_driver(&mut self, driver: CsiDriver) {
        let before = self.csi_drivers.insert(driver.name.clone(), driver.clone());
        self.log(Actor::Platform, before.map(Object::CsiDriver), Some(Object::CsiDriver(driver)));
    }

    /// Creates a claim bound to a PersistentVolume, both new.
    pub fn create_bound_claim(&mut self, key: &ClaimKey, mut volume: PersistentVolume) {
        let claim =
            Claim { key: key.clone(), uid: self.next_uid("pvc"), bound_to: Some(volume.name.clone()), owner_pod: None };
        volume.uid = self.next_uid("pv");
        volume.claim = Some((key.clone(), claim.uid.clone()));
        volume.finalizers = vec![SmolStr::new_static(PV_PROTECTION)];
        self.store_persistent_volume(Actor::Platform, volume);
        self.claims.insert(key.clone(), claim.clone());
        self.log(Actor::Platform, None, Some(Object::Claim(claim)));
    }

    /// Deletes a claim; its PersistentVolume is then no longer protected.
    pub fn delete_claim(&mut self, by: Actor, key: &ClaimKey) -> bool {
        let Some(claim) = self.claims.remove(key) else { return false };
        let bound_to = claim.bound_to.clone();
        self.log(by, Some(Object::Claim(claim)), None);
        if let Some(mut volume) = bound_to.and_then(|name| self.persistent_volumes.get(&name).cloned()) {
            volume.finalizers.retain(|finalizer| finalizer != PV_PROTECTION);
            self.store_persistent_volume(Actor::Platform, volume);
        }
        true
    }

    /// Makes a claim again for a PersistentVolume whose claim is gone, and binds the two, as people put it right. False if
    /// it is there, or the PersistentVolume is not.
    pub fn restore_claim(&mut self, by: Actor, volume: &PersistentVolumeName) -> bool {
        let Some(mut volume) = self.persistent_volumes.get(volume).cloned() else { return false };
        let Some((key, _)) = volume.claim.clone().filter(|(key, _)| !self.claims.contains_key(key)) else {
            return false;
        };
        let claim =
            Claim { key: key.clone(), uid: self.next_uid("pvc"), bound_to: Some(volume.name.clone()), owner_pod: None };
        volume.claim = Some((key.clone(), claim.uid.clone()));
        self.claims.insert(key, claim.clone());
        self.log(by, None, Some(Object::Claim(claim)));
        self.store_persistent_volume(by, volume);
        true
    }

    /// A person makes a PersistentVolume for a claim again: one that is being deleted has its finalizers stripped first.
    /// False if there is one that stays.
    pub fn remake_persistent_volume(&mut self, by: Actor, key: &ClaimKey, mut volume: PersistentVolume) -> bool {
        if let Some(mut old) = self.persistent_volumes.get(&volume.name).cloned() {
            if !old.deleting {
                return false;
            }
            old.finalizers.clear();
            self.store_persistent_volume(by, old);
        }
        let claim = self.claims.get(key).map(|claim| claim.uid.clone());
        volume.uid = self.next_uid("pv");
        volume.claim = Some((key.clone(), claim.unwrap_or_else(|| Uid::new(""))));
        volume.finalizers = vec![SmolStr::new_static(PV_PROTECTION)];
        self.store_persistent_volume(by, volume);
        true
    }

    /// Every PersistentVolume.
    pub fn persistent_volumes(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.persistent_volumes.values()
    }

    /// Deletes a PersistentVolume: Terminating while a finalizer is on it.
    pub fn delete_persistent_volume(&mut self, by: Actor, name: &PersistentVolumeName) -> bool {
        let Some(mut volume) = self.persistent_volumes.get(name).cloned() else { return false };
        if volume.deleting {
            return false;
        }
        volume.deleting = true;
        self.store_persistent_volume(by, volume);
        true
    }

    /// Creates a pod bound to a node. `None` if one of that name is there.
    pub fn create_pod(&mut self, now: Now, key: &PodKey, node: &NodeName, claims: &[SmolStr]) -> Option<Uid> {
        if self.pods.contains_key(key) {
            return None;
        }
        let uid = self.next_uid("pod");
        let pod = Pod {
            key: key.clone(),
            uid: uid.clone(),
            node: Some(node.clone()),
            created: now.wall.truncated_to_seconds(),
            scheduled: Some(now.wall.truncated_to_seconds()),
            deleting: false,
            terminated: false,
            volumes: claims.iter().cloned().map(PodVolume::Claim).collect(),
        };
        self.store_pod(Actor::Platform, pod);
        Some(uid)
    }

    /// Deletes a pod with grace: it stays until its kubelet (or somebody's force) ends it.
    pub fn delete_pod(&mut self, by: Actor, key: &PodKey) -> bool {
        let Some(mut pod) = self.pods.get(key).cloned() else { return false };
        if pod.deleting {
            return false;
        }
        pod.deleting = true;
        self.store_pod(by, pod);
        true
    }

    /// Writes that no container of the pod runs any more (or that it failed).
    pub fn set_pod_terminated(&mut self, key: &PodKey, uid: &Uid) {
        if let Some(mut pod) = self.pods.get(key).filter(|pod| pod.uid == *uid).cloned() {
            pod.terminated = true;
            self.store_pod(Actor::Platform, pod);
        }
    }

    /// Deletes a pod with grace 0: it is gone at once. The UID is a precondition.
    pub fn remove_pod(&mut self, by: Actor, key: &PodKey, uid: &Uid) -> bool {
        if self.pods.get(key).is_none_or(|pod| pod.uid != *uid) {
            return false;
        }
        let Some(pod) = self.pods.remove(key) else { return false };
        if let Some(node) = &pod.node
            && let Some(keys) = self.pods_by_node.get_mut(node)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.pods_by_node.remove(node);
            }
        }
        self.log(by, Some(Object::Pod(pod)), None);
        true
    }

    /// Somebody deletes a VolumeAttachment, without preconditions. False if there is none, or it is being deleted.
    pub fn order_deletion(&mut self, now: Now, by: Actor, name: &AttachmentName) -> bool {
        self.edit_attachment(by, name, |object| {
            object.deleting.get_or_insert(now.wall.truncated_to_seconds());
        })
    }

    /// A person deletes a VolumeAttachment, without preconditions.
    pub fn delete_attachment_by_hand(&mut self, now: Now, name: &AttachmentName) -> bool {
        self.order_deletion(now, Actor::Person, name)
    }

    /// kube-controller-manager makes a VolumeAttachment: name and spec only. False if there is one.
    pub fn create_attachment_by_kubernetes(&mut self, key: &AttachmentKey, source: &PersistentVolumeName) -> bool {
        let source = NewAttachmentSource::PersistentVolume(source.clone());
        let new = NewAttachment { key: key.clone(), source, recorded: None };
        self.create_attachment(Actor::Platform, &new).is_ok()
    }

    /// Somebody writes the whole `volumesAttached` of a Node. False if there is none, or it says so already.
    pub fn set_volumes_attached(
        &mut self,
        by: Actor,
        name: &NodeName,
        list: BTreeMap<UniqueVolumeName, SmolStr>,
    ) -> bool {
        let Some(mut node) = self.nodes.get(name).filter(|node| node.volumes_attached != list).cloned() else {
            return false;
        };
        node.volumes_attached = list;
        self.store_node(by, node);
        true
    }

    /// The attacher of another driver adds its finalizer.
    pub fn add_attacher_finalizer(&mut self, name: &AttachmentName) -> bool {
        self.edit_attachment(Actor::Platform, name, |object| {
            let finalizer = object.driver.attacher_finalizer().into();
            if !object.finalizers.contains(&finalizer) {
                object.finalizers.push(finalizer);
            }
        })
    }

    /// The attacher of another driver says that the volume is attached.
    pub fn set_attached_by_attacher(&mut self, name: &AttachmentName) -> bool {
        self.edit_attachment(Actor::Platform, name, |object| object.status.attached = true)
    }

    /// The attacher of another driver takes its finalizer off: the volume is detached.
    pub fn remove_attacher_finalizer(&mut self, name: &AttachmentName) -> bool {
        self.edit_attachment(Actor::Platform, name, |object| {
            let finalizer = object.driver.attacher_finalizer();
            object.finalizers.retain(|of| *of != finalizer);
        })
    }

    /// A person strips every finalizer of a VolumeAttachment.
    pub fn strip_finalizers_by_hand(&mut self, name: &AttachmentName) -> bool {
        self.edit_attachment(Actor::Person, name, |object| object.finalizers.clear())
    }

    /// A person annotates a VolumeAttachment `attachd/unmounted`.
    pub fn annotate_unmounted_by_hand(&mut self, name: &AttachmentName, boot: &BootId) -> bool {
        self.edit_attachment(Actor::Person, name, |object| object.unmounted = Some(boot.clone()))
    }

    fn edit_attachment(&mut self, by: Actor, name: &AttachmentName, edit: impl FnOnce(&mut VolumeAttachment)) -> bool {
        let Some(mut object) = self.attachments.get(name).cloned() else { return false };
        edit(&mut object);
        let changed = self.attachments.get(name) != Some(&object);
        if changed {
            self.store_attachment(by, object);
        }
        changed
    }
}
