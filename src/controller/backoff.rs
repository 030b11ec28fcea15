//! When a failed operation may be tried again: per key and operation, so that a failing object delays only itself.
//!
//! Flow: operations report failure and success; `plan` asks before it tries again. Owns attempts and delays. Must never
//! draw a random number (the spread comes from a hash of the key and the attempt) and never be reset by our own status
//! writes: only success, or another operation or target, resets it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::model::time::Monotonic;

/// How soon it makes sense to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// Comes right by itself: 1 s, doubling to 2 min.
    Fast,
    /// A person must act, or much time must pass (no permission, limit, wrong zone): 30 s, doubling to 5 min.
    Slow,
}

impl Pace {
    fn first(self) -> Duration {
        match self {
            Self::Fast => Duration::from_secs(1),
            Self::Slow => Duration::from_secs(30),
        }
    }

    fn cap(self) -> Duration {
        match self {
            Self::Fast => Duration::from_secs(2 * 60),
            Self::Slow => Duration::from_secs(5 * 60),
        }
    }
}

/// Delays by key. `O` is the operation with its target: another value is another operation, and starts anew.
#[derive(Debug)]
pub struct Backoff<K, O> {
    failing: BTreeMap<K, Failing<O>>,
}

#[derive(Debug)]
struct Failing<O> {
    operation: O,
    attempts: u32,
    pace: Pace,
    delay: Duration,
    ready_at: Monotonic,
}

impl<K, O> Default for Backoff<K, O> {
    fn default() -> Self {
        Self { failing: BTreeMap::new() }
    }
}

impl<K: Ord + Clone + Hash, O: PartialEq> Backoff<K, O> {
    /// Nothing failed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The operation failed at `now`. When it may be tried again.
    pub fn failed(&mut self, key: &K, operation: O, pace: Pace, now: Monotonic) -> Monotonic {
        let earlier = self.failing.remove(key).filter(|failing| failing.operation == operation);
        let attempts = earlier.as_ref().map_or(0, |failing| failing.attempts).saturating_add(1);
        let same_pace = earlier.filter(|failing| failing.pace == pace);
        // Gaps never shrink while it fails in the same way, wherever the spread falls (SCALE-09).
        let floor = same_pace.map_or(Duration::ZERO, |failing| failing.delay);
        let delay = spread(key, attempts, pace).max(floor);
        let ready_at = now + delay;
        self.failing.insert(key.clone(), Failing { operation, attempts, pace, delay, ready_at });
        ready_at
    }

    /// When the operation may be tried (again); `None` if it did not fail: at once.
    pub fn ready_at(&self, key: &K, operation: &O) -> Option<Monotonic> {
        self.failing.get(key).filter(|failing| failing.operation == *operation).map(|failing| failing.ready_at)
    }

    /// Whether the operation may be tried at `now`.
    pub fn is_ready(&self, key: &K, operation: &O, now: Monotonic) -> bool {
        self.ready_at(key, operation).is_none_or(|ready_at| ready_at <= now)
    }

    /// How often the operation failed since it last succeeded.
    pub fn attempts(&self, key: &K, operation: &O) -> u32 {
        self.failing.get(key).filter(|failing| failing.operation == *operation).map_or(0, |failing| failing.attempts)
    }

    /// The operation succeeded, or nobody wants it any more: the next failure is a first one.
    pub fn clear(&mut self, key: &K) {
        self.failing.remove(key);
    }

    /// How many keys are failing.
    pub fn len(&self) -> usize {
        self.failing.len()
    }

    /// Whether nothing is failing.
    pub fn is_empty(&self) -> bool {
        self.failing.is_empty()
    }
}

/// The delay after the given attempt, the first being 1: doubled each time up to the cap, then shortened by up to a
/// quarter so that objects that failed together do not come back together.
fn spread(key: &impl Hash, attempt: u32, pace: Pace) -> Duration {
    let doublings = (attempt - 1).min(16);
    let full = (pace.first() * (1 << doublings)).min(pace.cap());
    let mut hash = Fnv::default();
    key.hash(&mut hash);
    attempt.hash(&mut hash);
    full - full.mul_f64((hash.finish() % 1_024) as f64 / 4_096.0)
}

/// FNV-1a with a final mix: the same on every machine and in every release, as a repeatable run needs.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 33)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails again each time it is ready; the gaps in milliseconds.
    fn gaps(key: &str, pace: Pace, count: usize) -> Vec<u128> {
        let mut backoff = Backoff::new();
        let mut now = Monotonic::ZERO;
        let mut gaps = Vec::new();
        for _ in 0..count {
            let ready_at = backoff.failed(&key, "attach", pace, now);
            gaps.push(ready_at.saturating_since(now).as_millis());
            now = ready_at;
        }
        gaps
    }

    #[test]
    fn scale_09_gaps_grow_monotonically_to_the_cap() {
        for key in 0..200 {
            for (pace, first, cap) in [(Pace::Fast, 1_000, 120_000), (Pace::Slow, 30_000, 300_000)] {
                let gaps = gaps(&key.to_string(), pace, 30);
                assert!(gaps.is_sorted(), "{gaps:?}");
                assert!((first * 3 / 4..=first).contains(&gaps[0]), "{gaps:?}");
                assert!((cap * 3 / 4..=cap).contains(&gaps[29]), "{gaps:?}");
                assert!(gaps[1] > gaps[0] && gaps[3] > gaps[2], "{gaps:?}");
            }
        }
    }

    #[test]
    fn objects_that_failed_together_do_not_come_back_together_but_repeatably() {
        let third: Vec<u128> = (0..50).map(|key| gaps(&key.to_string(), Pace::Fast, 3)[2]).collect();
        let again: Vec<u128> = (0..50).map(|key| gaps(&key.to_string(), Pace::Fast, 3)[2]).collect();
        assert_eq!(third, again);
        let mut distinct = third.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 35, "{distinct:?}");
        assert!(distinct[0] < 3_300 && distinct[distinct.len() - 1] > 3_700, "{distinct:?}");
    }

    #[test]
    fn another_operation_or_target_starts_anew() {
        let mut backoff = Backoff::new();
        for _ in 0..6 {
            backoff.failed(&"v1", ("attach", "i-1"), Pace::Fast, Monotonic::ZERO);
        }
        assert!(!backoff.is_ready(&"v1", &("attach", "i-1"), Monotonic::new(Duration::from_secs(20))));
        assert!(backoff.is_ready(&"v1", &("attach", "i-2"), Monotonic::ZERO));
        assert!(backoff.is_ready(&"v1", &("detach", "i-1"), Monotonic::ZERO));
        let ready_at = backoff.failed(&"v1", ("detach", "i-1"), Pace::Fast, Monotonic::ZERO);
        assert!(ready_at <= Monotonic::new(Duration::from_secs(1)));
        assert_eq!(backoff.attempts(&"v1", &("detach", "i-1")), 1);
        assert_eq!(backoff.attempts(&"v1", &("attach", "i-1")), 0);
    }

    #[test]
    fn one_failing_key_delays_no_other_and_success_clears_it() {
        let mut backoff = Backoff::new();
        backoff.failed(&"v1", "attach", Pace::Slow, Monotonic::ZERO);
        assert!(backoff.is_ready(&"v2", &"attach", Monotonic::ZERO));
        assert!(!backoff.is_ready(&"v1", &"attach", Monotonic::ZERO));
        backoff.clear(&"v1");
        assert!(backoff.is_ready(&"v1", &"attach", Monotonic::ZERO) && backoff.is_empty());
    }

    #[test]
    fn another_reason_of_the_same_operation_goes_on_counting() {
        let mut backoff = Backoff::new();
        for _ in 0..4 {
            backoff.failed(&"v1", "attach", Pace::Fast, Monotonic::ZERO);
        }
        let slow = backoff.failed(&"v1", "attach", Pace::Slow, Monotonic::ZERO);
        assert!(slow >= Monotonic::new(Duration::from_secs(200)), "{slow}");
        let fast = backoff.failed(&"v1", "attach", Pace::Fast, Monotonic::ZERO);
        assert!(fast <= Monotonic::new(Duration::from_secs(32)), "{fast}");
        assert_eq!(backoff.attempts(&"v1", &"attach"), 6);
    }
}
