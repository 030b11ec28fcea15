//! What is to be asked for, from when on, and what is being asked for already.
//!
//! Flow: whoever needs an answer says so ([`Due::want`]); [`Due::take`] gives what fits into the next call; once that is
//! over, [`Due::answered`]. Owns the times. Must never ask for one thing in two calls at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::time::Monotonic;

/// Times at which things are to be asked for.
#[derive(Debug)]
pub struct Due<K> {
    at: BTreeMap<K, Monotonic>,
    by_time: BTreeSet<(Monotonic, K)>,
    asked: BTreeSet<K>,
}

impl<K> Default for Due<K> {
    fn default() -> Self {
        Self { at: BTreeMap::new(), by_time: BTreeSet::new(), asked: BTreeSet::new() }
    }
}

impl<K: Clone + Ord> Due<K> {
    /// It is to be asked for not before `at`, also if it is being asked for now; an earlier wish stands. Whether this one
    /// is new.
    pub fn want(&mut self, key: &K, at: Monotonic) -> bool {
        if self.at.get(key).is_some_and(|due| *due <= at) {
            return false;
        }
        self.forget(key);
        self.by_time.insert((at, key.clone()));
        self.at.insert(key.clone(), at);
        true
    }

    /// Whether it is wanted or being asked for.
    pub fn has(&self, key: &K) -> bool {
        self.at.contains_key(key) || self.asked.contains(key)
    }

    /// Nobody wants it any more.
    pub fn forget(&mut self, key: &K) {
        if let Some(at) = self.at.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
    }

    /// A call that began then showed it, whoever asked: whoever wanted it since before has what they wanted.
    pub fn shown(&mut self, key: &K, began: Monotonic) {
        if self.at.get(key).is_some_and(|at| *at <= began) {
            self.forget(key);
        }
    }

    /// When the next call may be made.
    pub fn next(&self) -> Option<Monotonic> {
        self.by_time.iter().find(|(_, key)| !self.asked.contains(key)).map(|(at, _)| *at)
    }

    /// What the next call asks for, in order: the longest due, and others due within `ride_along`; nothing while nothing
    /// is due. One that `is_alone` gets a call of its own.
    pub fn take(
        &mut self,
        now: Monotonic,
        ride_along: Duration,
        at_most: usize,
        is_alone: impl Fn(&K) -> bool,
    ) -> Vec<K> {
        let open = || self.by_time.iter().filter(|(_, key)| !self.asked.contains(key));
        let Some(first) = open().next().filter(|(at, _)| *at <= now) else { return Vec::new() };
        let mut taken: Vec<K> = if is_alone(&first.1) {
            vec![first.1.clone()]
        } else {
            let soon = open().take_while(|(at, _)| *at <= now + ride_along).filter(|(_, key)| !is_alone(key));
            soon.take(at_most).map(|(_, key)| key.clone()).collect()
        };
        for key in &taken {
            self.forget(key);
            self.asked.insert(key.clone());
        }
        taken.sort();
        taken
    }

    /// The call that asked for it is over. Whether there was one.
    pub fn answered(&mut self, key: &K) -> bool {
        self.asked.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn take(due: &mut Due<u32>, seconds: u64) -> Vec<u32> {
        due.take(at(seconds), Duration::from_secs(2), 3, |key| *key >= 100)
    }

    #[test]
    fn the_earliest_wish_stands_and_what_is_under_way_waits_for_its_answer() {
        let mut due = Due::default();
        assert!(due.want(&1, at(9)) && due.want(&1, at(5)) && !due.want(&1, at(7)));
        assert_eq!((due.next(), take(&mut due, 4)), (Some(at(5)), vec![]));
        assert_eq!(take(&mut due, 5), [1]);
        assert!(due.want(&1, at(6)));
        assert_eq!((due.next(), take(&mut due, 9)), (None, vec![]));
        assert!(due.answered(&1) && !due.answered(&1));
        assert_eq!(take(&mut due, 9), [1]);
    }

    #[test]
    fn others_ride_along_up_to_a_full_call_but_not_with_one_that_goes_alone() {
        let mut due = Due::default();
        for (key, seconds) in [(4, 1), (3, 3), (2, 4), (100, 0), (1, 3), (5, 3)] {
            due.want(&key, at(seconds));
        }
        let calls: Vec<_> = std::iter::from_fn(|| Some(take(&mut due, 1)).filter(|call| !call.is_empty())).collect();
        assert_eq!(calls, [vec![100], vec![1, 3, 4]]);
        assert_eq!(take(&mut due, 3), [2, 5]);
    }

    #[test]
    fn a_wish_is_fulfilled_by_a_call_that_began_since() {
        let mut due = Due::default();
        due.want(&1, at(5));
        due.shown(&1, at(4));
        assert!(due.has(&1));
        due.shown(&1, at(5));
        assert!(!due.has(&1) && due.next().is_none());
    }
}
