//! Who wants which volume on which node, indexed both ways, and which volumes changed since last asked.
//!
//! Flow: [`super::DesiredStateOfWorld`] puts wants in and takes them out; the reconciler reads. Owns the order of wants.
//! Must never be walked as a whole when an event comes in.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::attachment::NewAttachmentSource;
use crate::model::ids::{DriverName, NodeName, PersistentVolumeName, PodKey, Uid, VolumeKey};
use crate::model::time::Wall;

/// One pod that wants a volume on the node it is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The node the pod is bound to.
    pub node: NodeName,
    /// The pod.
    pub pod: PodKey,
    /// Its UID: another pod of that name is another want.
    pub uid: Uid,
    /// Whether the pod has a deletionTimestamp: it ends, but wants the volume until it has ended.
    pub deleting: bool,
    /// When it was bound: the transition of PodScheduled, else its creation. Orders pods that want one volume (rule 1).
    pub bound_at: Wall,
    /// What a VolumeAttachment for it is made from.
    pub source: NewAttachmentSource,
}

impl Want {
    fn order(&self) -> (&NodeName, Wall, &PodKey) {
        (&self.node, self.bound_at, &self.pod)
    }
}

/// What is known of one volume.
#[derive(Debug, Default)]
struct VolumeRecord {
    /// Sorted by node, then by bound time, then by pod.
    wants: Vec<Want>,
    /// The PersistentVolumes that name it, sorted.
    sources: Vec<PersistentVolumeName>,
}

/// What is known of one node.
#[derive(Debug, Default)]
struct NodeRecord {
    /// Volumes wanted there, and by how many pods.
    wanted: BTreeMap<VolumeKey, u32>,
    /// Pods bound there of which some volume was never resolved.
    never_resolved: u32,
}

impl NodeRecord {
    fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.never_resolved == 0
    }
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Wants {
    volumes: BTreeMap<VolumeKey, VolumeRecord>,
    nodes: BTreeMap<NodeName, NodeRecord>,
    dirty: BTreeSet<VolumeKey>,
    dirty_nodes: BTreeSet<NodeName>,
}

impl Wants {
    /// The node's name as it is kept already, so that many pods share one allocation.
    pub(super) fn interned_node(&self, node: &NodeName) -> NodeName {
        self.nodes.get_key_value(node).map_or_else(|| node.clone(), |(kept, _)| kept.clone())
    }

    /// Adds a want, or replaces what the same pod wanted of the volume on that node.
    pub(super) fn put(&mut self, volume: &VolumeKey, want: Want) {
        let record = self.volumes.entry(volume.clone()).or_default();
        if let Some(at) = position(&record.wants, &want.node, &want.uid) {
            if record.wants[at] == want {
                return;
            }
            record.wants.remove(at);
        } else {
            let node = self.nodes.entry(want.node.clone()).or_default();
            *node.wanted.entry(volume.clone()).or_default() += 1;
        }
        let at = record.wants.partition_point(|other| other.order() < want.order());
        if record.wants.capacity() == record.wants.len() && record.wants.len() < 4 {
            // Nearly every volume is wanted by one pod.
            record.wants.reserve_exact(1);
        }
        record.wants.insert(at, want);
        self.dirty.insert(volume.clone());
    }

    /// Takes out what a pod wants of a volume.
    pub(super) fn remove(&mut self, volume: &VolumeKey, node: &NodeName, uid: &Uid) {
        let Some(record) = self.volumes.get_mut(volume) else { return };
        let Some(at) = position(&record.wants, node, uid) else { return };
        record.wants.remove(at);
        self.drop_if_empty(volume);
        if let Some(record) = self.nodes.get_mut(node) {
            if let Some(count) = record.wanted.get_mut(volume) {
                *count -= 1;
                if *count == 0 {
                    record.wanted.remove(volume);
                }
            }
            if record.is_empty() {
                self.nodes.remove(node);
            }
        }
        self.dirty.insert(volume.clone());
    }

    /// A pod of which some volume was never resolved is bound to the node.
    pub(super) fn add_never_resolved(&mut self, node: &NodeName) {
        let record = self.nodes.entry(node.clone()).or_default();
        record.never_resolved += 1;
        if record.never_resolved == 1 {
            self.turn_over(node);
        }
    }

    /// That pod is resolved, or gone.
    pub(super) fn remove_never_resolved(&mut self, node: &NodeName) {
        let Some(record) = self.nodes.get_mut(node).filter(|record| record.never_resolved > 0) else { return };
        record.never_resolved -= 1;
        let was_last = record.never_resolved == 0;
        if record.is_empty() {
            self.nodes.remove(node);
        }
        if was_last {
            self.turn_over(node);
        }
    }

    /// The answer of [`Self::never_resolved_on`] is another; twice between two questions is none.
    fn turn_over(&mut self, node: &NodeName) {
        if !self.dirty_nodes.remove(node) {
            self.dirty_nodes.insert(node.clone());
        }
    }

    /// Whether a pod of which some volume was never resolved is bound to the node.
    pub(super) fn never_resolved_on(&self, node: &NodeName) -> bool {
        self.nodes.get(node).is_some_and(|record| record.never_resolved > 0)
    }

    /// A PersistentVolume names the volume.
    pub(super) fn add_source(&mut self, volume: &VolumeKey, name: &PersistentVolumeName) {
        let sources = &mut self.volumes.entry(volume.clone()).or_default().sources;
        if let Err(at) = sources.binary_search(name) {
            sources.reserve_exact(1);
            sources.insert(at, name.clone());
        }
        self.dirty.insert(volume.clone());
    }

    /// A PersistentVolume names the volume no longer.
    pub(super) fn remove_source(&mut self, volume: &VolumeKey, name: &PersistentVolumeName) {
        if let Some(record) = self.volumes.get_mut(volume)
            && let Ok(at) = record.sources.binary_search(name)
        {
            record.sources.remove(at);
            self.drop_if_empty(volume);
        }
        self.dirty.insert(volume.clone());
    }

    /// Touches every volume of a driver: only when its CSIDriver changes.
    pub(super) fn touch_driver(&mut self, driver: &DriverName) {
        self.dirty.extend(self.volumes.keys().filter(|volume| volume.driver == *driver).cloned());
    }

    /// The volumes touched since last asked.
    pub(super) fn take_dirty(&mut self) -> BTreeSet<VolumeKey> {
        std::mem::take(&mut self.dirty)
    }

    /// The nodes of which [`Self::never_resolved_on`] changed since last asked.
    pub(super) fn take_dirty_nodes(&mut self) -> BTreeSet<NodeName> {
        std::mem::take(&mut self.dirty_nodes)
    }

    /// Who wants the volume.
    pub(super) fn of(&self, volume: &VolumeKey) -> &[Want] {
        self.volumes.get(volume).map_or(&[], |record| &record.wants)
    }

    /// The PersistentVolumes that name the volume.
    pub(super) fn sources(&self, volume: &VolumeKey) -> &[PersistentVolumeName] {
        self.volumes.get(volume).map_or(&[], |record| &record.sources)
    }

    /// The volumes wanted on a node.
    pub(super) fn on<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a VolumeKey> + use<'a> {
        self.nodes.get(node).into_iter().flat_map(|record| record.wanted.keys())
    }

    /// Every volume that somebody wants or a PersistentVolume names.
    pub(super) fn volumes(&self) -> impl Iterator<Item = &VolumeKey> {
        self.volumes.keys()
    }

    fn drop_if_empty(&mut self, volume: &VolumeKey) {
        if self.volumes.get(volume).is_some_and(|record| record.wants.is_empty() && record.sources.is_empty()) {
            self.volumes.remove(volume);
        }
    }
}

/// Where the want of a pod is: among those of its node, which are few.
fn position(wants: &[Want], node: &NodeName, uid: &Uid) -> Option<usize> {
    let first = wants.partition_point(|want| want.node < *node);
    let on_node = wants[first..].iter().take_while(|want| want.node == *node);
    on_node.enumerate().find(|(_, want)| want.uid == *uid).map(|(at, _)| first + at)
}
