//! The store behind the desired state: pods with what they wanted when last resolved, and the objects they go through.
//!
//! Flow: [`Store::ingest`] takes watch events and keeps [`Wants`] and the list of problems up to date;
//! [`super::DesiredStateOfWorld`] answers questions from it. Owns which pods are kept (bound, not terminated, with
//! volumes) and which must be asked again after a change. Must never drop what a pod wanted because it cannot be resolved
//! any more (rule 10).

use std::collections::{BTreeMap, BTreeSet};

use super::objects::{DriverRecord, Objects, PersistentVolumeRecord, claim_of};
use super::problems::{PodProblem, ProblemChange};
use super::relist::Relist;
use super::translation::{Unresolved, volume_of_source};
use super::wants::{Want, Wants};
use crate::controller::event::{Kind, Object, ObjectKey, WatchEvent};
use crate::controller::policy::{Policy, Rule};
use crate::model::claim::{Claim, PersistentVolume};
use crate::model::ids::{ClaimKey, DriverName, NodeName, PersistentVolumeName, PodKey, Uid, VolumeKey};
use crate::model::node::CsiDriver;
use crate::model::pod::{Pod, PodVolume};
use crate::model::time::Wall;

/// What was seen, and what follows from it.
#[derive(Debug)]
pub(super) struct Store {
    policy: Policy,
    pub(super) objects: Objects,
    pub(super) pods: BTreeMap<PodKey, PodRecord>,
    /// Pods that could not be read and of which nothing was known: rarely any.
    pub(super) unreadable_pods: BTreeMap<PodKey, UnreadablePod>,
    /// Pods kept in `pods`, by the claims they name.
    pods_by_claim: BTreeMap<ClaimKey, Vec<PodKey>>,
    pub(super) wants: Wants,
    lists: BTreeMap<Kind, Relist>,
    /// Pods with a problem standing.
    pub(super) troubled: BTreeSet<PodKey>,
    pub(super) problems: Vec<PodProblem>,
}

/// The kinds this store is made of.
const KINDS: [Kind; 4] = [Kind::Pod, Kind::Claim, Kind::PersistentVolume, Kind::CsiDriver];

/// A pod that is bound, not terminated, and has volumes that may need attaching. No other pod is kept.
#[derive(Debug)]
pub(super) struct PodRecord {
    pub(super) uid: Uid,
    node: NodeName,
    bound_at: Wall,
    deleting: bool,
    pub(super) slots: Box<[Slot]>,
    /// Every volume it wanted when last resolved, sorted.
    pub(super) wanted: Vec<VolumeKey>,
    seen: u64,
}

/// A pod that is there and could never be read.
#[derive(Debug)]
pub(super) struct UnreadablePod {
    uid: Uid,
    seen: u64,
}

/// One volume of a pod.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) volume: PodVolume,
    /// Whether it was ever resolved, also to "is never attached".
    pub(super) resolved_once: bool,
    /// The problem that was reported.
    pub(super) problem: Option<Box<Unresolved>>,
}

impl PodRecord {
    fn never_resolved(&self) -> bool {
        self.slots.iter().any(|slot| !slot.resolved_once)
    }
}

impl Store {
    /// A store that knows nothing yet.
    pub(super) fn new(policy: Policy) -> Self {
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
    pub(super) fn ingest(&mut self, event: &WatchEvent) {
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
    pub(super) fn has_synced(&self) -> bool {
        self.lists.values().all(Relist::has_synced)
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
            // One that has begun to end goes on ending.
            let deleting = record.deleting || pod.deleting;
            if record.node == *node && record.bound_at == bound_at && record.deleting == deleting {
                return;
            }
            if record.node == *node {
                record.bound_at = bound_at;
                record.deleting = deleting;
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
            deleting: pod.deleting,
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

    /// The pod's bound time became known, or it begins to end: its wants are put anew.
    fn retime_pod(&mut self, key: &PodKey) {
        let Some(record) = self.pods.get(key) else { return };
        for volume in &record.wanted {
            let old = self.wants.of(volume).iter().find(|want| want.uid == record.uid && want.node == record.node);
            if let Some(want) = old.cloned() {
                self.wants.put(volume, Want { bound_at: record.bound_at, deleting: record.deleting, ..want });
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
                deleting: record.deleting,
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
        let before = self.objects.attach_required(&driver.name);
        let record = DriverRecord { attach_required: driver.attach_required, seen: self.mark(Kind::CsiDriver) };
        self.objects.drivers.insert(driver.name.clone(), record);
        self.touch_driver_if_changed(&driver.name, before);
    }

    fn remove_driver(&mut self, name: &DriverName) {
        let before = self.objects.attach_required(name);
        self.objects.drivers.remove(name);
        self.touch_driver_if_changed(name, before);
    }

    fn touch_driver_if_changed(&mut self, name: &DriverName, before: bool) {
        if self.objects.attach_required(name) != before {
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
