//! PersistentVolumes that are to be told where they can be used, and when the next one may be.
//!
//! Flow: `report::persistent_volume` fills and empties it; outcomes of its writes pause it. Must never hold up another write.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::model::ids::{PersistentVolumeName, VolumeKey, Zone};
use crate::model::outcome::CallResult;
use crate::model::time::Monotonic;

/// Such writes under way at once: few, so that one that is urgent finds the way free.
const UNDER_WAY_MAX: usize = 4;
/// After a failure all of them pause, twice as long each time in a row: what the API server refuses for one (no right) it
/// refuses for all.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// One waits this long after it was noticed: an attach under way writes the same object, and must not meet a conflict.
const SETTLE: Duration = Duration::from_secs(10);

/// PersistentVolumes to be placed.
#[derive(Debug, Default)]
pub struct Placements {
    /// By name: the volume, and its zone as EC2 shows it.
    waiting: BTreeMap<PersistentVolumeName, (VolumeKey, Zone)>,
    /// The same names in the order in which their time comes.
    order: VecDeque<(Monotonic, PersistentVolumeName)>,
    under_way: usize,
    failures: u32,
    not_before: Monotonic,
}

impl Placements {
    /// Lets one wait; one that waits already keeps its time.
    pub fn add(&mut self, name: PersistentVolumeName, volume: VolumeKey, zone: Zone, now: Monotonic) {
        if self.waiting.insert(name.clone(), (volume, zone)).is_none() {
            self.order.push_back((now + SETTLE, name));
        }
    }

    /// When the next may be written; `None`: none waits, or enough are under way.
    pub fn next_due(&self) -> Option<Monotonic> {
        let (ready, _) = self.order.front().filter(|_| self.under_way < UNDER_WAY_MAX)?;
        Some(self.not_before.max(*ready))
    }

    /// Takes the next one that is due.
    pub fn pop(&mut self, now: Monotonic) -> Option<(PersistentVolumeName, VolumeKey, Zone)> {
        if self.order.front()?.0 > now {
            return None;
        }
        let (_, name) = self.order.pop_front()?;
        let (volume, zone) = self.waiting.remove(&name)?;
        Some((name, volume, zone))
    }

    /// A write was sent.
    pub fn began(&mut self) {
        self.under_way += 1;
    }

    /// One write ended.
    pub fn ended(&mut self, result: &CallResult, now: Monotonic) {
        self.under_way = self.under_way.saturating_sub(1);
        if matches!(result, CallResult::Done(_)) {
            self.failures = 0;
            return;
        }
        let pause = PAUSE_FIRST * (1 << self.failures.min(9));
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause.min(PAUSE_MAX);
    }
}
