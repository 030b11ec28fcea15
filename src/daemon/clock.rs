//! The one clock of the daemon: whoever needs the present is handed this.
//!
//! Flow: made once at the start; the loop, the executor and the watches stamp with it. Nothing else of the daemon asks
//! the machine for the time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::model::time::{Monotonic, Now, Wall};

/// Tells the present on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic side starts at zero, here and now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The present. The wall side follows the machine's clock, steps included: it is compared with what others wrote.
    pub fn now(&self) -> Now {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        Now { monotonic: Monotonic::new(self.start.elapsed()), wall: Wall::from_millis(millis) }
    }

    /// A point of the monotonic side as the runtime's timers take it.
    pub fn instant_of(&self, at: Monotonic) -> tokio::time::Instant {
        let now = Instant::now();
        // A deadline beyond what the machine can count is as good as a day away.
        let instant = self.start.checked_add(at.since_start());
        instant.unwrap_or(now + std::time::Duration::from_secs(24 * 60 * 60)).into()
    }
}
