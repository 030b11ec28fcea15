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
#[cfg(test)]
mod tests;
mod translation;
mod wants;

use std::collections::{BTreeMap, BTreeSet};

pub use access::AccessCheck;
pub use problems::{PodProblem, ProblemChange};
pub use translation::{Unresolved, volume_of_source, volume_of_spelled_id};
pub use wants::Want;

use super::event::{Kind, Object, ObjectKey, WatchEvent};
use super::policy::{Policy, Rule};
use crate::model::attachment::NewAttachmentSource;
use crate::model::claim::{Claim, PersistentVolume};
use crate::model::ids::{ClaimKey, DriverName, NodeName, PersistentVolumeName, PodKey, Uid, VolumeKey};
use crate::model::node::CsiDriver;
use crate::model::pod::{Pod, PodVolume};
use crate::model::time::Wall;
use objects::{DriverRecord, Objects, PersistentVolumeRecord, claim_of};
use relist::Relist;
use wants::Wants;

/// Which volumes are wanted where, and for whom.
#[derive(Debug)]
pub struct DesiredStateOfWorld {
    policy: Policy,
    objects: Objects,
    pods: BTreeMap<PodKey, PodRecord>,
    /// Pods that could not be read and of which nothing was known: rarely any.
    unreadable_pods: BTreeMap<PodKey, UnreadablePod>,
    /// Pods kept in `pods`, by the claims they name.
    pods_by_claim: BTreeMap<ClaimKey, Vec<PodKey>>,
    wants: Wants,
    lists: BTreeMap<Kind, Relist>,
    /// Pods with a problem standing.
    troubled: BTreeSet<PodKey>,
    problems: Vec<PodProblem>,
}

/// The kinds this store is made of.
const KINDS: [Kind; 4] = [Kind::Pod, Kind::Claim, Kind::PersistentVolume, Kind::CsiDriver];

/// A pod that is bound, not terminated, and has volumes that may need attaching. No other pod is kept.
#[derive(Debug)]
struct PodRecord {
    uid: Uid,
    node: NodeName,
    bound_at: Wall,
    slots: Box<[Slot]>,
    /// Every volume it wanted when last resolved, sorted.
    wanted: Vec<VolumeKey>,
    seen: u64,
}

/// A pod that is there and could never be read.
#[derive(Debug)]
struct UnreadablePod {
    uid: Uid,
    seen: u64,
}

/// One volume of a pod.
#[derive(Debug)]
struct Slot {
    volume: PodVolume,
    /// Whether it was ever resolved, also to "is never attached".
    resolved_once: bool,
    /// The problem that was reported.
    problem: Option<Box<Unresolved>>,
}

impl PodRecord {
    fn never_resolved(&self) -> bool {
        self.slots.iter().any(|slot| !slot.resolved_once)
    }
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
    /// A store that knows nothing yet.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            objects: Objects::default(),
            pods: BTreeMap::new(),
            unreadable_pods: BTreeMap::new(),
            pods_by_claim: BTreeMap::new(),
            wants: Wants::default(),
            lists: KINDS.into_iter().map(|kind| (kind, Relist::default())).collect(),
            troubled: BTreeSet::new(),
            problems: Vec::new(),
        }
    }

    /// Takes in a watch event of pods, claims, PersistentVolumes or CSIDrivers; ignores every other kind.
    pub fn ingest(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Begin { kind, generation } => {
                if let Some(list) = self.lists.get_mut(kind) {
                    list.begin(*generation);
                }
            }
            WatchEvent::Item { generation, object } => {
                let list = kind_of(object).and_then(|kind| self.lists.get(&kind));
                if list.is_some_and(|list| list.accepts(*generation)) {
                    self.apply(object);
                }
            }
            WatchEvent::End { kind, generation } => {
                if self.lists.get_mut(kind).is_some_and(|list| list.end(*generation)) {
                    self.sweep(*kind);
                }
            }
            WatchEvent::Applied(object) => self.apply(object),
            WatchEvent::Deleted(key) => self.delete(key),
        }
    }

    /// Whether a list of each of the four kinds was complete once. Before, absence means nothing.
    pub fn has_synced(&self) -> bool {
        self.lists.values().all(Relist::has_synced)
    }

    /// The volumes of which wants, sources or a PersistentVolume may have changed since last asked.
    pub fn take_dirty(&mut self) -> BTreeSet<VolumeKey> {
        self.wants.take_dirty()
    }

    /// The nodes of which [`Self::never_resolved_on`] may have changed since last asked, except for pods that could never
    /// be read: those are on no node one could name.
    pub fn take_dirty_nodes(&mut self) -> BTreeSet<NodeName> {
        self.wants.take_dirty_nodes()
    }

    /// Who wants the volume, sorted by node, then by the time the pod was bound, then by pod. Nobody, if its driver
    /// needs no attaching.
    pub fn wants(&self, volume: &VolumeKey) -> &[Want] {
        if self.attach_required(&volume.driver) { self.wants.of(volume) } else { &[] }
    }

    /// The volumes wanted by some pod bound to the node, without repetition.
    pub fn wanted_on<'a>(&'a self, node: &NodeName) -> impl Iterator<Item = &'a VolumeKey> + use<'a> {
        self.wants.on(node).filter(|volume| self.attach_required(&volume.driver))
    }

    /// Every volume that a pod wants or a PersistentVolume names: the whole of what may be acted on.
    pub fn volumes(&self) -> impl Iterator<Item = &VolumeKey> {
        self.wants.volumes()
    }

    /// EBS: whether every source that names the volume, and there is one, is ReadWriteMany with volumeMode Block. An
    /// inline source never is, nor one that is gone while a pod still uses the volume through it. Whether EC2 lets
    /// several instances attach it is for the caller to test.
    pub fn shareable(&self, volume: &VolumeKey) -> bool {
        let sources = self.wants.sources(volume);
        let named = |want: &Want| match &want.source {
            NewAttachmentSource::PersistentVolume(name) => sources.binary_search(name).is_ok(),
            NewAttachmentSource::Inline(_) => false,
        };
        !sources.is_empty()
            && self.persistent_volumes_of(volume).all(access::ebs_shareable)
            && self.wants.of(volume).iter().all(named)
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
        for want in self.wants.of(volume) {
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
        self.objects.persistent_volumes.get(name).map(|record| &record.object)
    }

    /// The PersistentVolumes that name the volume, by name.
    pub fn persistent_volumes_of(&self, volume: &VolumeKey) -> impl Iterator<Item = &PersistentVolume> {
        self.wants.sources(volume).iter().filter_map(|name| self.persistent_volume(name))
    }

    /// The volume a PersistentVolume names, or why it names none.
    pub fn volume_of(&self, persistent_volume: &PersistentVolume) -> Result<VolumeKey, Unresolved> {
        volume_of_source(&persistent_volume.source)
    }

    /// Whether volumes of the driver must be attached before use. A missing CSIDriver means that they must.
    pub fn attach_required(&self, driver: &DriverName) -> bool {
        self.objects.attach_required(driver)
    }

    /// Whether some live pod bound to the node has a volume that was never resolved since start (rule 10): rungs (b:
    /// stopped or absent), (c) and (d) stay shut there for volumes that no resolved pod explains. A pod that could never
    /// be read may be bound to any node, and counts on each.
    pub fn never_resolved_on(&self, node: &NodeName) -> bool {
        self.policy.holds(Rule::UnresolvedKeepsWants)
            && (!self.unreadable_pods.is_empty() || self.wants.never_resolved_on(node))
    }

    /// Judges a live LIST of the pods of one node: by what each UID wanted when last resolved, and by what the live pods
    /// say themselves, which may be newer than the watch.
    pub fn wants_in(&self, pods: &[Pod], volume: &VolumeKey) -> LiveWant {
        if !self.attach_required(&volume.driver) {
            return LiveWant::No;
        }
        let mut unresolved = false;
        for pod in pods.iter().filter(|pod| !pod.terminated) {
            let record = self.pods.get(&pod.key).filter(|record| record.uid == pod.uid);
            if record.is_some_and(|record| record.wanted.binary_search(volume).is_ok()) {
                return LiveWant::Yes;
            }
            for own in &pod.volumes {
                match self.objects.resolve(&pod.key, &pod.uid, own) {
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
        std::mem::take(&mut self.problems)
    }

    /// Every problem standing, by pod.
    pub fn standing_problems(&self) -> impl Iterator<Item = (&PodKey, &Unresolved)> {
        self.troubled.iter().flat_map(|key| {
            let slots = self.pods.get(key).into_iter().flat_map(|record| record.slots.iter());
            slots.filter_map(move |slot| Some((key, slot.problem.as_deref()?)))
        })
    }

    fn apply(&mut self, object: &Object) {
        match object {
            Object::Pod(pod) => self.put_pod(pod),
            Object::Claim(claim) => self.put_claim(claim),
            Object::PersistentVolume(volume) => self.put_persistent_volume(volume),
            Object::CsiDriver(driver) => self.put_driver(driver),
            Object::Unreadable(key) => self.keep_unreadable(key),
            Object::Node(_) | Object::CsiNode(_) | Object::Attachment(_) => {}
        }
    }

    /// An object is there but cannot be read: what was known of it stays, what was known of an earlier one of that name
    /// goes. A pod of which nothing was known may want anything anywhere.
    fn keep_unreadable(&mut self, key: &ObjectKey) {
        let mark = self.kind_mark(key);
        match key {
            ObjectKey::Pod(key, uid) => match self.pods.get_mut(key) {
                Some(record) if record.uid == *uid => record.seen = mark,
                _ => {
                    self.remove_pod(key);
                    self.unreadable_pods.insert(key.clone(), UnreadablePod { uid: uid.clone(), seen: mark });
                }
            },
            ObjectKey::Claim(key, uid) => match self.objects.claims.get_mut(key) {
                Some(record) if record.uid == *uid => record.seen = mark,
                _ => self.remove_claim(key),
            },
            ObjectKey::PersistentVolume(name, uid) => match self.objects.persistent_volumes.get_mut(name) {
                Some(record) if record.object.uid == *uid => record.seen = mark,
                _ => self.remove_persistent_volume(name),
            },
            ObjectKey::CsiDriver(name) => {
                if let Some(record) = self.objects.drivers.get_mut(name) {
                    record.seen = mark;
                }
            }
            ObjectKey::Node(..) | ObjectKey::CsiNode(_) | ObjectKey::Attachment(..) => {}
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        match key {
            ObjectKey::Pod(key, uid) => {
                if self.unreadable_pods.get(key).is_some_and(|pod| pod.uid == *uid) {
                    self.unreadable_pods.remove(key);
                }
                if self.pods.get(key).is_some_and(|record| record.uid == *uid) {
                    self.remove_pod(key);
                }
            }
            ObjectKey::Claim(key, uid) => {
                if self.objects.claims.get(key).is_some_and(|record| record.uid == *uid) {
                    self.remove_claim(key);
                }
            }
            ObjectKey::PersistentVolume(name, uid) => {
                let stored = self.objects.persistent_volumes.get(name);
                if stored.is_some_and(|record| record.object.uid == *uid) {
                    self.remove_persistent_volume(name);
                }
            }
            ObjectKey::CsiDriver(name) => self.remove_driver(name),
            ObjectKey::Node(..) | ObjectKey::CsiNode(_) | ObjectKey::Attachment(..) => {}
        }
    }

    /// Drops what a complete list did not name.
    fn sweep(&mut self, kind: Kind) {
        let mark = self.mark(kind);
        match kind {
            Kind::Pod => {
                for key in unseen(&self.pods, |record| record.seen == mark) {
                    self.remove_pod(&key);
                }
                self.unreadable_pods.retain(|_, pod| pod.seen == mark);
            }
            Kind::Claim => {
                for key in unseen(&self.objects.claims, |record| record.seen == mark) {
                    self.remove_claim(&key);
                }
            }
            Kind::PersistentVolume => {
                for name in unseen(&self.objects.persistent_volumes, |record| record.seen == mark) {
                    self.remove_persistent_volume(&name);
                }
            }
            Kind::CsiDriver => {
                for name in unseen(&self.objects.drivers, |record| record.seen == mark) {
                    self.remove_driver(&name);
                }
            }
            Kind::Node | Kind::CsiNode | Kind::Attachment => {}
        }
    }

    fn kind_mark(&self, key: &ObjectKey) -> u64 {
        match key {
            ObjectKey::Pod(..) => self.mark(Kind::Pod),
            ObjectKey::Claim(..) => self.mark(Kind::Claim),
            ObjectKey::PersistentVolume(..) => self.mark(Kind::PersistentVolume),
            ObjectKey::CsiDriver(_) => self.mark(Kind::CsiDriver),
            ObjectKey::Node(..) | ObjectKey::CsiNode(_) | ObjectKey::Attachment(..) => 0,
        }
    }

    fn mark(&self, kind: Kind) -> u64 {
        self.lists.get(&kind).map_or(0, Relist::mark)
    }

    fn put_pod(&mut self, pod: &Pod) {
        let mark = self.mark(Kind::Pod);
        self.unreadable_pods.remove(&pod.key);
        if self.pods.get(&pod.key).is_some_and(|record| record.uid != pod.uid || pod.terminated) {
            // Another UID under the name: the earlier pod is gone, whether its deletion was seen or not.
            self.remove_pod(&pod.key);
        }
        if pod.terminated {
            return;
        }
        let bound_at = pod.scheduled.unwrap_or(pod.created);
        if let Some(record) = self.pods.get_mut(&pod.key) {
            record.seen = mark;
            // A list may be older than the watch was: a pod never gets unbound, and its volumes never change.
            let Some(node) = &pod.node else { return };
            if record.node == *node && record.bound_at == bound_at {
                return;
            }
            if record.node == *node {
                record.bound_at = bound_at;
                self.retime_pod(&pod.key);
                return;
            }
            self.remove_pod(&pod.key);
        }
        let Some(node) = &pod.node else { return };
        if pod.volumes.is_empty() {
            return;
        }
        self.insert_pod(pod, node, bound_at, mark);
    }

    fn insert_pod(&mut self, pod: &Pod, node: &NodeName, bound_at: Wall, mark: u64) {
        let slot = |volume: &PodVolume| Slot { volume: volume.clone(), resolved_once: false, problem: None };
        let record = PodRecord {
            uid: pod.uid.clone(),
            node: self.wants.interned_node(node),
            bound_at,
            slots: pod.volumes.iter().map(slot).collect(),
            wanted: Vec::new(),
            seen: mark,
        };
        for claim in record.slots.iter().filter_map(|slot| claim_of(&pod.key, &slot.volume)) {
            let named_by = self.pods_by_claim.entry(claim).or_default();
            if !named_by.contains(&pod.key) {
                named_by.reserve_exact(1);
                named_by.push(pod.key.clone());
            }
        }
        self.wants.add_never_resolved(&record.node);
        self.pods.insert(pod.key.clone(), record);
        self.resolve_pod(&pod.key);
    }

    fn remove_pod(&mut self, key: &PodKey) {
        let Some(record) = self.pods.remove(key) else { return };
        for claim in record.slots.iter().filter_map(|slot| claim_of(key, &slot.volume)) {
            if let Some(named_by) = self.pods_by_claim.get_mut(&claim) {
                named_by.retain(|other| other != key);
                if named_by.is_empty() {
                    self.pods_by_claim.remove(&claim);
                }
            }
        }
        for volume in &record.wanted {
            self.wants.remove(volume, &record.node, &record.uid);
        }
        if record.never_resolved() {
            self.wants.remove_never_resolved(&record.node);
        }
        self.troubled.remove(key);
        for slot in record.slots {
            if let Some(problem) = slot.problem {
                self.problems.push(PodProblem {
                    pod: key.clone(),
                    uid: record.uid.clone(),
                    node: record.node.clone(),
                    change: ProblemChange::Cleared(*problem),
                });
            }
        }
    }

    /// The pod's bound time became known or changed: its wants are sorted anew.
    fn retime_pod(&mut self, key: &PodKey) {
        let Some(record) = self.pods.get(key) else { return };
        for volume in &record.wanted {
            let old = self.wants.of(volume).iter().find(|want| want.uid == record.uid && want.node == record.node);
            if let Some(want) = old.cloned() {
                self.wants.put(volume, Want { bound_at: record.bound_at, ..want });
            }
        }
    }

    /// Asks again what a pod wants. What it wanted before stays wanted.
    fn resolve_pod(&mut self, key: &PodKey) {
        let Some(record) = self.pods.get_mut(key) else { return };
        let was_never_resolved = record.never_resolved();
        let mut now_wanted = Vec::with_capacity(record.slots.len());
        for slot in &mut record.slots {
            let problem = match self.objects.resolve(key, &record.uid, &slot.volume) {
                Ok(found) => {
                    slot.resolved_once = true;
                    now_wanted.extend(found);
                    None
                }
                Err(unresolved) => unresolved.needs_a_person().then(|| Box::new(unresolved)),
            };
            if problem == slot.problem {
                continue;
            }
            let old = std::mem::replace(&mut slot.problem, problem.clone());
            let cleared = old.map(|old| ProblemChange::Cleared(*old));
            let appeared = problem.map(|new| ProblemChange::Appeared(*new));
            for change in cleared.into_iter().chain(appeared) {
                let (uid, node) = (record.uid.clone(), record.node.clone());
                self.problems.push(PodProblem { pod: key.clone(), uid, node, change });
            }
        }
        if record.slots.iter().any(|slot| slot.problem.is_some()) {
            self.troubled.insert(key.clone());
        } else {
            self.troubled.remove(key);
        }
        if !self.policy.holds(Rule::UnresolvedKeepsWants) {
            let gone = |volume: &VolumeKey| now_wanted.iter().all(|(now, _)| now != volume);
            for volume in record.wanted.extract_if(.., |volume| gone(volume)) {
                self.wants.remove(&volume, &record.node, &record.uid);
            }
        }
        for (volume, source) in now_wanted {
            if let Err(at) = record.wanted.binary_search(&volume) {
                record.wanted.reserve_exact(1);
                record.wanted.insert(at, volume.clone());
            }
            let want = Want {
                node: record.node.clone(),
                pod: key.clone(),
                uid: record.uid.clone(),
                bound_at: record.bound_at,
                source,
            };
            self.wants.put(&volume, want);
        }
        if was_never_resolved && !record.never_resolved() {
            self.wants.remove_never_resolved(&record.node);
        }
    }

    fn resolve_pods_of(&mut self, claim: &ClaimKey) {
        for pod in self.pods_by_claim.get(claim).cloned().unwrap_or_default() {
            self.resolve_pod(&pod);
        }
    }

    fn put_claim(&mut self, claim: &Claim) {
        let mark = self.mark(Kind::Claim);
        if self.objects.put_claim(claim, mark) {
            self.resolve_pods_of(&claim.key);
        }
    }

    fn remove_claim(&mut self, key: &ClaimKey) {
        if self.objects.claims.remove(key).is_some() {
            self.resolve_pods_of(key);
        }
    }

    fn put_persistent_volume(&mut self, object: &PersistentVolume) {
        let seen = self.mark(Kind::PersistentVolume);
        let volume = volume_of_source(&object.source).ok();
        let name = &object.name;
        let mut claims: Vec<ClaimKey> = object.claim.iter().map(|(key, _)| key.clone()).collect();
        if let Some(old) = self.objects.persistent_volumes.get_mut(name) {
            if old.object == *object {
                old.seen = seen;
                return;
            }
            if let Some((key, _)) = &old.object.claim
                && !claims.contains(key)
            {
                claims.push(key.clone());
            }
            if old.volume != volume
                && let Some(old_volume) = &old.volume
            {
                self.wants.remove_source(old_volume, name);
            }
        }
        if let Some(volume) = &volume {
            self.wants.add_source(volume, name);
        }
        let record = PersistentVolumeRecord { object: object.clone(), volume, seen };
        self.objects.persistent_volumes.insert(name.clone(), record);
        for claim in claims {
            self.resolve_pods_of(&claim);
        }
    }

    fn remove_persistent_volume(&mut self, name: &PersistentVolumeName) {
        let Some(record) = self.objects.persistent_volumes.remove(name) else { return };
        if let Some(volume) = &record.volume {
            self.wants.remove_source(volume, name);
        }
        if let Some((claim, _)) = &record.object.claim {
            self.resolve_pods_of(claim);
        }
    }

    fn put_driver(&mut self, driver: &CsiDriver) {
        let before = self.attach_required(&driver.name);
        let record = DriverRecord { attach_required: driver.attach_required, seen: self.mark(Kind::CsiDriver) };
        self.objects.drivers.insert(driver.name.clone(), record);
        self.touch_driver_if_changed(&driver.name, before);
    }

    fn remove_driver(&mut self, name: &DriverName) {
        let before = self.attach_required(name);
        self.objects.drivers.remove(name);
        self.touch_driver_if_changed(name, before);
    }

    fn touch_driver_if_changed(&mut self, name: &DriverName, before: bool) {
        if self.attach_required(name) != before {
            self.wants.touch_driver(name);
        }
    }
}

/// The kind of an object, if this store keeps it.
fn kind_of(object: &Object) -> Option<Kind> {
    match object {
        Object::Pod(_) | Object::Unreadable(ObjectKey::Pod(..)) => Some(Kind::Pod),
        Object::Claim(_) | Object::Unreadable(ObjectKey::Claim(..)) => Some(Kind::Claim),
        Object::PersistentVolume(_) | Object::Unreadable(ObjectKey::PersistentVolume(..)) => {
            Some(Kind::PersistentVolume)
        }
        Object::CsiDriver(_) | Object::Unreadable(ObjectKey::CsiDriver(_)) => Some(Kind::CsiDriver),
        Object::Node(_) | Object::CsiNode(_) | Object::Attachment(_) | Object::Unreadable(_) => None,
    }
}

fn unseen<K: Clone, V>(records: &BTreeMap<K, V>, seen: impl Fn(&V) -> bool) -> Vec<K> {
    records.iter().filter(|(_, record)| !seen(record)).map(|(key, _)| key.clone()).collect()
}
