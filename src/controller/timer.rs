//! Every deadline of the core and what it is for.
//!
//! Flow: state machines arm timers while they are planned; `plan` fires those that are due, which marks their key dirty.
//! A timer never acts: the state machine looks again and decides by what it then sees. Owns no other state.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::{NodeName, VolumeKey};
use crate::model::time::Monotonic;

/// What is looked at again when a timer fires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimerKey {
    /// The operations of one volume.
    Volume(VolumeKey),
    /// The report of one node.
    Node(NodeName),
}

/// The armed timers, one per key: the earliest wins, for when it fires its key arms the next one.
#[derive(Debug, Default)]
pub struct Timers {
    by_key: BTreeMap<TimerKey, (Monotonic, &'static str)>,
    by_time: BTreeSet<(Monotonic, TimerKey)>,
}

impl Timers {
    /// Looks at `key` again not later than `at`.
    pub fn arm(&mut self, key: TimerKey, at: Monotonic, why: &'static str) {
        if let Some((armed, _)) = self.by_key.get(&key) {
            if *armed <= at {
                return;
            }
            self.by_time.remove(&(*armed, key.clone()));
        }
        self.by_time.insert((at, key.clone()));
        self.by_key.insert(key, (at, why));
    }

    /// Takes one timer that is due.
    pub fn pop_due(&mut self, now: Monotonic) -> Option<TimerKey> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// The earliest timer.
    pub fn next(&self) -> Option<(Monotonic, &'static str)> {
        let (at, key) = self.by_time.first()?;
        self.by_key.get(key).map(|(_, why)| (*at, *why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    #[test]
    fn the_earliest_arming_wins_and_a_key_fires_once() {
        let mut timers = Timers::default();
        let key = TimerKey::Node(NodeName::new("n1"));
        timers.arm(key.clone(), at(9), "late");
        timers.arm(key.clone(), at(5), "early");
        timers.arm(key.clone(), at(7), "ignored");
        assert_eq!(timers.next(), Some((at(5), "early")));
        assert_eq!(timers.pop_due(at(4)), None);
        assert_eq!(timers.pop_due(at(5)), Some(key));
        assert_eq!(timers.pop_due(at(100)), None);
    }
}
