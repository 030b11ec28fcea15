//! Instances that EC2 said take no more volumes: who waits for a slot there, what leaves them, and when EC2 is asked again.
//!
//! Flow: `reconciler::room` asks before AttachVolume is sent and tells the answers; reads that show an attachment gone, and
//! a CSINode that reports more than before, let those who wait ask at once. The limit is EC2's: what a machine takes beside
//! volumes (network interfaces, volumes made fast by others) is seen by nobody here, so it is asked again now and then, with
//! one call for all who wait. Must never count volumes to refuse one.

use std::collections::{BTreeMap, BTreeSet};

use super::in_flight::DEAD_AFTER;
use crate::controller::backoff::{Backoff, Pace};
use crate::model::ids::{InstanceId, VolumeKey};
use crate::model::time::Monotonic;

/// Full instances, and who waits for slots.
#[derive(Debug, Default)]
pub struct FullInstances {
    full: BTreeMap<InstanceId, Full>,
    /// 30 s to 5 min between two tries that nothing speaks for.
    backoff: Backoff<InstanceId, ()>,
    /// Attaches that wait for a slot.
    waiting: BTreeMap<InstanceId, BTreeSet<VolumeKey>>,
    /// Attachments that are on their way out, with nothing in the way but EC2 and the budgets.
    leaving: BTreeMap<InstanceId, BTreeSet<VolumeKey>>,
}

/// One full instance.
#[derive(Debug)]
struct Full {
    /// EC2's words.
    said: String,
    /// Slots that became free since, and that nobody took yet.
    free: usize,
    /// A try that nothing spoke for is under way, at most until then.
    trying_until: Option<Monotonic>,
}

/// An instance that EC2 said is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsFull {
    /// EC2's words.
    pub said: String,
    /// When it is asked again.
    pub ask_at: Monotonic,
}

impl FullInstances {
    /// Whether AttachVolume would be in vain, as far as EC2 has told.
    pub fn is_full(&self, instance: &InstanceId, now: Monotonic) -> Option<IsFull> {
        let full = self.full.get(instance)?;
        if full.free > 0 {
            return None;
        }
        let ask_at = self.backoff.ready_at(instance, &()).unwrap_or(now).max(full.trying_until.unwrap_or(now));
        (ask_at > now).then(|| IsFull { said: full.said.clone(), ask_at })
    }

    /// AttachVolume was sent.
    pub fn asked(&mut self, instance: &InstanceId, now: Monotonic) {
        let Some(full) = self.full.get_mut(instance) else { return };
        match full.free.checked_sub(1) {
            Some(left) => full.free = left,
            None => full.trying_until = Some(now + DEAD_AFTER),
        }
    }

    /// EC2 refused AttachVolume: the instance takes no more.
    pub fn refused(&mut self, instance: &InstanceId, said: &str, now: Monotonic) {
        self.full.insert(instance.clone(), Full { said: said.to_owned(), free: 0, trying_until: None });
        // Refusals of calls that were sent together are one.
        if self.backoff.is_ready(instance, &(), now) {
            self.backoff.failed(instance, (), Pace::Slow, now);
        }
    }

    /// EC2 accepted AttachVolume: where nobody knew of a free slot there may be more. Who may ask now.
    pub fn accepted(&mut self, instance: &InstanceId) -> BTreeSet<VolumeKey> {
        let Some(full) = self.full.get_mut(instance) else { return BTreeSet::new() };
        if full.trying_until.take().is_some() {
            full.free += 1;
        }
        let waiting = self.waiting.get(instance).cloned().unwrap_or_default();
        if waiting.is_empty() {
            self.forget(instance);
        }
        waiting
    }

    /// AttachVolume ended without telling anything about slots: whoever comes next may try. Who may ask now.
    pub fn undecided(&mut self, instance: &InstanceId) -> BTreeSet<VolumeKey> {
        let Some(full) = self.full.get_mut(instance) else { return BTreeSet::new() };
        full.trying_until = None;
        full.free += 1;
        self.waiting.get(instance).cloned().unwrap_or_default()
    }

    /// A slot became free. Who may ask now.
    pub fn freed(&mut self, instance: &InstanceId, now: Monotonic) -> BTreeSet<VolumeKey> {
        if let Some(full) = self.full.get_mut(instance) {
            full.free += 1;
            // Once it is taken the instance is full again, and as if it were so for the first time.
            self.backoff.clear(instance);
            self.backoff.failed(instance, (), Pace::Slow, now);
        }
        self.waiting.get(instance).cloned().unwrap_or_default()
    }

    /// The volume waits for a slot. Whether it is the first to.
    pub fn wait(&mut self, instance: &InstanceId, volume: &VolumeKey) -> bool {
        let waiting = self.waiting.entry(instance.clone()).or_default();
        waiting.insert(volume.clone()) && waiting.len() == 1
    }

    /// The volume waits no longer.
    pub fn stop_waiting(&mut self, instance: &InstanceId, volume: &VolumeKey) {
        remove(&mut self.waiting, instance, volume);
    }

    /// Whether the volume waits for a slot.
    pub fn waits(&self, instance: &InstanceId, volume: &VolumeKey) -> bool {
        self.waiting.get(instance).is_some_and(|waiting| waiting.contains(volume))
    }

    /// Whether anybody waits for a slot.
    pub fn is_awaited(&self, instance: &InstanceId) -> bool {
        self.waiting.contains_key(instance)
    }

    /// The volume is on its way out.
    pub fn leaves(&mut self, instance: &InstanceId, volume: &VolumeKey) {
        self.leaving.entry(instance.clone()).or_default().insert(volume.clone());
    }

    /// The volume has left, or stays. Who may look again.
    pub fn left(&mut self, instance: &InstanceId, volume: &VolumeKey) -> BTreeSet<VolumeKey> {
        remove(&mut self.leaving, instance, volume);
        self.waiting.get(instance).cloned().unwrap_or_default()
    }

    /// What is on its way out of the instance.
    pub fn leaving(&self, instance: &InstanceId) -> impl Iterator<Item = &VolumeKey> {
        self.leaving.get(instance).into_iter().flatten()
    }

    /// What EC2 said of the instance counts no longer.
    pub fn forget(&mut self, instance: &InstanceId) {
        self.full.remove(instance);
        self.backoff.clear(instance);
    }
}

fn remove(map: &mut BTreeMap<InstanceId, BTreeSet<VolumeKey>>, instance: &InstanceId, volume: &VolumeKey) {
    let Some(volumes) = map.get_mut(instance) else { return };
    volumes.remove(volume);
    if volumes.is_empty() {
        map.remove(instance);
    }
}
