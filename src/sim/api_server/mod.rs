//! The API server: objects with UIDs and resourceVersions, finalizers, preconditions, and answers exactly as a real
//! kube-apiserver gives them.
//!
//! Flow: the driver carries attachd's calls here ([`Api::call`]); kubelets, control loops and people use the methods of
//! `actors`; every change is logged and the driver carries it to whoever watches. Live reads are linearizable: they see
//! every write before them. Must never know of time other than `now`, nor deliver anything itself.

mod actors;
mod calls;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use crate::controller::event::{Kind, Object, ObjectKey};
use crate::model::attachment::VolumeAttachment;
use crate::model::claim::{Claim, PersistentVolume};
use crate::model::ids::{
    AttachmentName, ClaimKey, DriverName, NodeName, PersistentVolumeName, PodKey, ResourceVersion, Uid,
};
use crate::model::node::{CsiDriver, CsiNode, Node};
use crate::model::pod::Pod;
use crate::sim::checkers::world::Actor;

pub use actors::{KubeletStatus, NewNode, NodeGone, ebs_volume, other_volume};
pub use watch::Watch;

/// The finalizer a PersistentVolume carries while a claim is bound to it.
pub const PV_PROTECTION: &str = "kubernetes.io/pv-protection";

/// The API server and its store.
#[derive(Clone, Debug, Default)]
pub struct Api {
    nodes: BTreeMap<NodeName, Node>,
    /// Value of the annotation with which attachd touches a Node: no field of the model.
    touched: BTreeMap<NodeName, SmolStr>,
    csi_nodes: BTreeMap<NodeName, CsiNode>,
    csi_drivers: BTreeMap<DriverName, CsiDriver>,
    pods: BTreeMap<PodKey, Pod>,
    pods_by_node: BTreeMap<NodeName, BTreeSet<PodKey>>,
    claims: BTreeMap<ClaimKey, Claim>,
    persistent_volumes: BTreeMap<PersistentVolumeName, PersistentVolume>,
    attachments: BTreeMap<AttachmentName, VolumeAttachment>,
    last_version: u64,
    last_uid: u64,
    changes: Vec<Change>,
}

/// One change of the store, in the order of the writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Who wrote.
    pub by: Actor,
    /// As it was; `None`: it is new.
    pub before: Option<Object>,
    /// As it is; `None`: it is gone.
    pub after: Option<Object>,
}

impl Change {
    /// The key of the object that is gone, if one is.
    pub fn deleted(&self) -> Option<ObjectKey> {
        match (&self.before, &self.after) {
            (Some(before), None) => Some(key_of(before)),
            _ => None,
        }
    }
}

/// The key under which a watch reports the deletion of an object.
pub fn key_of(object: &Object) -> ObjectKey {
    match object {
        Object::Pod(pod) => ObjectKey::Pod(pod.key.clone(), pod.uid.clone()),
        Object::Claim(claim) => ObjectKey::Claim(claim.key.clone(), claim.uid.clone()),
        Object::PersistentVolume(pv) => ObjectKey::PersistentVolume(pv.name.clone(), pv.uid.clone()),
        Object::Node(node) => ObjectKey::Node(node.name.clone(), node.uid.clone()),
        Object::CsiNode(node) => ObjectKey::CsiNode(node.name.clone()),
        Object::CsiDriver(driver) => ObjectKey::CsiDriver(driver.name.clone()),
        Object::Attachment(attachment) => ObjectKey::Attachment(attachment.name.clone(), attachment.uid.clone()),
        Object::Unreadable(key) => key.clone(),
    }
}

/// The kind a watch of which reports this key.
pub fn kind_of(key: &ObjectKey) -> Kind {
    match key {
        ObjectKey::Pod(..) => Kind::Pod,
        ObjectKey::Claim(..) => Kind::Claim,
        ObjectKey::PersistentVolume(..) => Kind::PersistentVolume,
        ObjectKey::Node(..) => Kind::Node,
        ObjectKey::CsiNode(..) => Kind::CsiNode,
        ObjectKey::CsiDriver(..) => Kind::CsiDriver,
        ObjectKey::Attachment(..) => Kind::Attachment,
    }
}

/// The kind of an object.
pub fn kind_of_object(object: &Object) -> Kind {
    match object {
        Object::Pod(_) => Kind::Pod,
        Object::Claim(_) => Kind::Claim,
        Object::PersistentVolume(_) => Kind::PersistentVolume,
        Object::Node(_) => Kind::Node,
        Object::CsiNode(_) => Kind::CsiNode,
        Object::CsiDriver(_) => Kind::CsiDriver,
        Object::Attachment(_) => Kind::Attachment,
        Object::Unreadable(key) => kind_of(key),
    }
}

impl Api {
    /// An empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// What changed since this was last asked, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The Node of that name.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Every Node.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// Every CSIDriver.
    pub fn csi_drivers(&self) -> impl Iterator<Item = &CsiDriver> {
        self.csi_drivers.values()
    }

    /// The VolumeAttachment of that name.
    pub fn attachment(&self, name: &AttachmentName) -> Option<&VolumeAttachment> {
        self.attachments.get(name)
    }

    /// Every VolumeAttachment.
    pub fn attachments(&self) -> impl Iterator<Item = &VolumeAttachment> {
        self.attachments.values()
    }

    /// The pod of that name.
    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key)
    }

    /// The pods bound to a node, by name.
    pub fn pods_on(&self, node: &NodeName) -> impl Iterator<Item = &Pod> {
        self.pods_by_node.get(node).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// Names of nodes that pods are bound to, whether the Node exists or not.
    pub fn nodes_with_pods(&self) -> impl Iterator<Item = &NodeName> {
        self.pods_by_node.keys()
    }

    /// The claim of that name.
    pub fn claim(&self, key: &ClaimKey) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// The PersistentVolume of that name.
    pub fn persistent_volume(&self, name: &PersistentVolumeName) -> Option<&PersistentVolume> {
        self.persistent_volumes.get(name)
    }

    /// Every object of a kind, as a consistent list.
    pub fn list(&self, kind: Kind) -> Vec<Object> {
        match kind {
            Kind::Pod => self.pods.values().cloned().map(Object::Pod).collect(),
            Kind::Claim => self.claims.values().cloned().map(Object::Claim).collect(),
            Kind::PersistentVolume => self.persistent_volumes.values().cloned().map(Object::PersistentVolume).collect(),
            Kind::Node => self.nodes.values().cloned().map(Object::Node).collect(),
            Kind::CsiNode => self.csi_nodes.values().cloned().map(Object::CsiNode).collect(),
            Kind::CsiDriver => self.csi_drivers.values().cloned().map(Object::CsiDriver).collect(),
            Kind::Attachment => self.attachments.values().cloned().map(Object::Attachment).collect(),
        }
    }

    fn next_version(&mut self) -> ResourceVersion {
        self.last_version += 1;
        ResourceVersion::new(smol_str::format_smolstr!("{}", self.last_version))
    }

    fn next_uid(&mut self, kind: &str) -> Uid {
        self.last_uid += 1;
        Uid::new(smol_str::format_smolstr!("{kind}-uid-{}", self.last_uid))
    }

    fn log(&mut self, by: Actor, before: Option<Object>, after: Option<Object>) {
        self.changes.push(Change { by, before, after });
    }

    /// Stores a Node. A write that changes nothing is none: no new resourceVersion, no watch event.
    fn store_node(&mut self, by: Actor, mut node: Node) -> Node {
        let touched = node.resource_version.as_str().is_empty();
        if !touched && self.nodes.get(&node.name).is_some_and(|stored| *stored == node) {
            return node;
        }
        node.resource_version = self.next_version();
        let before = self.nodes.insert(node.name.clone(), node.clone());
        self.log(by, before.map(Object::Node), Some(Object::Node(node.clone())));
        node
    }

    /// Stores a VolumeAttachment, or ends it when it is Terminating and no finalizer is left.
    fn store_attachment(&mut self, by: Actor, mut object: VolumeAttachment) -> Option<VolumeAttachment> {
        let stored = self.attachments.get(&object.name);
        if object.deleting.is_some() && object.finalizers.is_empty() {
            let before = self.attachments.remove(&object.name);
            self.log(by, before.map(Object::Attachment), None);
            return None;
        }
        if stored.is_some_and(|stored| *stored == object) {
            return Some(object);
        }
        object.resource_version = self.next_version();
        let before = self.attachments.insert(object.name.clone(), object.clone());
        self.log(by, before.map(Object::Attachment), Some(Object::Attachment(object.clone())));
        Some(object)
    }

    /// Stores a PersistentVolume, or ends it when it is Terminating and no finalizer is left.
    fn store_persistent_volume(&mut self, by: Actor, mut object: PersistentVolume) -> Option<PersistentVolume> {
        if object.deleting && object.finalizers.is_empty() {
            let before = self.persistent_volumes.remove(&object.name);
            self.log(by, before.map(Object::PersistentVolume), None);
            return None;
        }
        if self.persistent_volumes.get(&object.name).is_some_and(|stored| *stored == object) {
            return Some(object);
        }
        object.resource_version = self.next_version();
        let before = self.persistent_volumes.insert(object.name.clone(), object.clone());
        self.log(by, before.map(Object::PersistentVolume), Some(Object::PersistentVolume(object.clone())));
        Some(object)
    }

    fn store_pod(&mut self, by: Actor, pod: Pod) {
        if self.pods.get(&pod.key).is_some_and(|stored| *stored == pod) {
            return;
        }
        if let Some(node) = &pod.node {
            self.pods_by_node.entry(node.clone()).or_default().insert(pod.key.clone());
        }
        let before = self.pods.insert(pod.key.clone(), pod.clone());
        self.log(by, before.map(Object::Pod), Some(Object::Pod(pod)));
    }
}
