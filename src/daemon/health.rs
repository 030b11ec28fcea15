//! What the loop shows of itself without being asked: that it still turns.
//!
//! Flow: the loop beats once a turn; /livez compares the last beat with the present. A question could not do this: a
//! loop that is stuck answers none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::clock::Clock;

/// The last turn of the loop, shared with the admin server.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    clock: Clock,
    /// Milliseconds on the monotonic side.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// The loop turns from now on.
    pub fn new(clock: Clock) -> Self {
        let heartbeat = Self { clock, last: Arc::default() };
        heartbeat.beat();
        heartbeat
    }

    /// A turn was made.
    pub fn beat(&self) {
        self.last.store(self.millis(), Ordering::Relaxed);
    }

    /// Time since the last turn.
    pub fn age(&self) -> Duration {
        Duration::from_millis(self.millis().saturating_sub(self.last.load(Ordering::Relaxed)))
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.clock.now().monotonic.since_start().as_millis()).unwrap_or(u64::MAX)
    }
}
