//! Time as the core sees it: a monotonic clock for what we timed, a wall clock for what others wrote.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the process's monotonic clock, counted from its start. Never compared with a time another machine wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// The start of the process (or of the simulation).
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The point `since_start` after the start.
    pub const fn new(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// Time since the start.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// Time since `earlier`, zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The point `by` earlier, or the start.
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

/// Wall-clock time in milliseconds since the Unix epoch, for times that Kubernetes or EC2 wrote (AttachTime has whole
/// seconds only). Clocks of different machines differ: compare with a margin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wall(i64);

impl Wall {
    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Time since `earlier`, zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The same point in whole seconds, rounded down, as EC2 and Kubernetes write times.
    pub const fn truncated_to_seconds(self) -> Self {
        Self(self.0.div_euclid(1000) * 1000)
    }
}

impl Add<Duration> for Wall {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Wall {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// The present, on both clocks. Every event carries one; `plan` is given one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For what we timed ourselves.
    pub monotonic: Monotonic,
    /// For times that others wrote.
    pub wall: Wall,
}

impl Now {
    /// Both clocks advanced by `by`.
    pub fn plus(self, by: Duration) -> Self {
        Self { monotonic: self.monotonic + by, wall: self.wall + by }
    }
}

impl fmt::Display for Monotonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_secs(), self.0.subsec_millis())
    }
}
