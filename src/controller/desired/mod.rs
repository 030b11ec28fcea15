//! Desired state of world: pods → claims → PersistentVolumes → which volume is wanted on which node, for whom.
//!
//! Flow: [`DesiredStateOfWorld::ingest`] takes watch events; the reconciler asks [`DesiredStateOfWorld::wants`] of the
//! volumes that [`DesiredStateOfWorld::take_dirty`] names. Owns the store of pods, claims, PersistentVolumes and
//! CSIDrivers. Must never take "cannot be resolved" for "wants nothing": what a pod's UID wanted when last resolved
//! stays wanted until that UID is gone (rule 10, G9). Whether a node is managed, and whether its instance lives, is not
//! known here: the caller tests both.
//!
//! Work is proportional to what an event changes: each event looks up the pods it concerns, never all of them. Only the
//! end of a list and a change of a CSIDriver walk over a whole kind.

mod access;
mod objects;
mod problems;
mod relist;
mod store;
#[cfg(test)]
mod tests;
mod translation;
mod wants;

use std::collections::BTreeSet;

pub use access::AccessCheck;
pub use problems::{PodProblem, ProblemChange};
use store::Store;
pub use translation::{Unresolved, volume_of_source, volume_of_spelled_id};
pub use wants::Want;

use super::event::WatchEvent;
use super::policy::{Policy, Rule};
use crate::model::attachment::NewAttachmentSource;
use crate::model::claim::PersistentVolume;
use crate::model::ids::{DriverName, NodeName, PersistentVolumeName, PodKey, VolumeKey};
use crate::model::pod::Pod;

/// Which volumes are wanted where, and for whom.
#[derive(Debug)]
pub struct DesiredStateOfWorld {
    policy: Policy,
    store: Store,
}

/// What a live LIST of a node's pods says about one volume (rule 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveWant {
    /// No pod of the list wants it.
    No,
    /// A pod of the list wants it.
    Yes,
    /// No pod is known to want it, but of one it cannot be known.
    Unresolved,
}

impl DesiredStateOfWorld {
    /// A state that knows nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self { store: Store::new(policy.clone()), policy }
    }

    /// Takes in a watch event of pods, claims, PersistentVolumes or CSIDrivers; ignores every other kind.
    pub fn ingest(&mut self, event: &WatchEvent) {
        self.store.ingest(event);
    }

    /// Whether a list of each of the four kinds was complete once. Before, absence means nothing.
    pub fn has_synced(&self) -> bool {
        self.store.has_synced()
    }

    /// The volumes of which wants, sources or a PersistentVolume may have changed since last asked.
    pub fn take_dirty(&mut self) -> BTreeSet<VolumeKey> {
        self.store.wants.take_dirty()
    }

    /// The nodes of which [`Self::never_resolved_on`] changed since last asked, except for pods that could never
    /// be read: those are on no node one could name.
    pub fn take_dirty_nodes(&mut self) -> BTreeSet<NodeName> {
        self.store.wants.take_dirty_nodes()
    }

    /// Who wants the volume, sorted by node, then by the time the pod was bound, then by pod. Nobody, if its driver
    /// needs no attaching.
    pub fn wants(&self, volume: &VolumeKey) -> &[Want] {
        if self.attach_required(&volume.driver) { self.store.wants.of(volume) } else { &[] }
    }

    /// The volumes wanted by some pod bound to the node, without repetition.
    pub fn wanted_on<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a VolumeKey> + use<'a> {
        self.store.wants.on(node).filter(|volume| self.attach_required(&volume.driver))
    }

    /// Every volume that a pod wants or a PersistentVolume names: the whole of what may be acted on.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeKey> {
        self.store.wants.volumes()
    }

    /// EBS: whether every source that names the volume, and there is one, is ReadWriteMany with volumeMode Block. An
    /// inline source never is, nor one that is gone while a pod still uses the volume through it. Whether EC2 lets
    /// several instances attach it is for the caller to test.
    pub fn shareable(&self, volume: &VolumeKey) -> bool {
        let sources = self.store.wants.sources(volume);
        let named = |want: &Want| match &want.source {
            NewAttachmentSource::PersistentVolume(name) => sources.binary_search(name).is_ok(),
            NewAttachmentSource::Inline(_) => false,
        };
        !sources.is_empty()
            && self.persistent_volumes_of(volume).all(access::ebs_shareable)
            && self.store.wants.of(volume).iter().all(named)
    }

    /// Other drivers: upstream's test of the access modes. Where several PersistentVolumes name one volume, each must
    /// allow it; where none does, nothing is known and the driver's attacher decides, as upstream leaves it.
    pub fn multi_attach_allowed(&self, volume: &VolumeKey) -> bool {
        self.persistent_volumes_of(volume).all(access::multi_attach_allowed)
    }

    /// EBS: whether the volume may be attached at all, by the access modes of the sources pods want it through (all its
    /// sources while nobody wants it). One allowed source is enough: a wrong PersistentVolume stops only its own pods
    /// ([`Self::access_of`]), not those of another that names the same volume.
    pub fn access(&self, volume: &VolumeKey) -> AccessCheck {
        let mut refused = None;
        for want in self.store.wants.of(volume) {
            match self.access_of(&want.source) {
                AccessCheck::Allowed => return AccessCheck::Allowed,
                refusal => refused = refused.or(Some(refusal)),
            }
        }
        if refused.is_none() {
            for persistent_volume in self.persistent_volumes_of(volume) {
                match access::ebs_access(persistent_volume) {
                    AccessCheck::Allowed => return AccessCheck::Allowed,
                    refusal => refused = refused.or(Some(refusal)),
                }
            }
        }
        refused.unwrap_or(AccessCheck::Allowed)
    }

    /// EBS: whether a VolumeAttachment made from this source may be attached, by its access modes. An inline source is
    /// ReadWriteOnce; a PersistentVolume that is gone refuses nothing (the pod's own resolution says that it is gone).
    pub fn access_of(&self, source: &NewAttachmentSource) -> AccessCheck {
        match source {
            NewAttachmentSource::Inline(_) => AccessCheck::Allowed,
            NewAttachmentSource::PersistentVolume(name) => {
                self.persistent_volume(name).map_or(AccessCheck::Allowed, access::ebs_access)
            }
        }
    }

    /// A PersistentVolume as last seen.
    pub fn persistent_volume(&self, name: &PersistentVolumeName) -> Option<&PersistentVolume> {
        self.store.objects.persistent_volumes.get(name).map(|record| &record.object)
    }

    /// The PersistentVolumes that name the volume, by name.
    pub fn persistent_volumes_of(&self, volume: &VolumeKey) -> impl Iterator<Item = &PersistentVolume> {
        self.store.wants.sources(volume).iter().filter_map(|name| self.persistent_volume(name))
    }

    /// The volume a PersistentVolume names, or why it names none.
    pub fn volume_of(&self, persistent_volume: &PersistentVolume) -> Result<VolumeKey, Unresolved> {
        volume_of_source(&persistent_volume.source)
    }

    /// Whether volumes of the driver must be attached before use. A missing CSIDriver means that they must.
    pub fn attach_required(&self, driver: &DriverName) -> bool {
        self.store.objects.attach_required(driver)
    }

    /// Whether some live pod bound to the node has a volume that was never resolved since start (rule 10): rungs (b:
    /// stopped or absent), (c) and (d) stay shut there for volumes that no resolved pod explains. A pod that could never
    /// be read may be bound to any node, and counts on each.
    pub fn never_resolved_on(&self, node: &NodeName) -> bool {
        self.policy.holds(Rule::UnresolvedKeepsWants)
            && (!self.store.unreadable_pods.is_empty() || self.store.wants.never_resolved_on(node))
    }

    /// Judges a live LIST of the pods of one node: by what each UID wanted when last resolved, and by what the live pods
    /// say themselves, which may be newer than the watch.
    pub fn wants_in(&self, pods: &[Pod], volume: &VolumeKey) -> LiveWant {
        if !self.attach_required(&volume.driver) {
            return LiveWant::No;
        }
        let mut unresolved = false;
        for pod in pods.iter().filter(|pod| !pod.terminated) {
            let record = self.store.pods.get(&pod.key).filter(|record| record.uid == pod.uid);
            if record.is_some_and(|record| record.wanted.binary_search(volume).is_ok()) {
                return LiveWant::Yes;
            }
            for own in &pod.volumes {
                match self.store.objects.resolve(&pod.key, &pod.uid, own) {
                    Ok(Some((found, _))) if found == *volume => return LiveWant::Yes,
                    Ok(_) => {}
                    Err(_) => {
                        let known = record.is_some_and(|record| {
                            record.slots.iter().any(|slot| slot.resolved_once && slot.volume == *own)
                        });
                        unresolved |= !known;
                    }
                }
            }
        }
        if unresolved && self.policy.holds(Rule::UnresolvedKeepsWants) { LiveWant::Unresolved } else { LiveWant::No }
    }

    /// What a person must mend, and what was mended, since last asked: once per pod, volume and reason.
    pub fn take_problems(&mut self) -> Vec<PodProblem> {
        std::mem::take(&mut self.store.problems)
    }

    /// Every problem standing, by pod.
    pub fn standing_problems(&self) -> impl Iterator<Item = (&PodKey, &Unresolved)> {
        self.store.troubled.iter().flat_map(|key| {
            let slots = self.store.pods.get(key).into_iter().flat_map(|record| record.slots.iter());
            slots.filter_map(move |slot| Some((key, slot.problem.as_deref()?)))
        })
    }
}
