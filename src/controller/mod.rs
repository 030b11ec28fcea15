//! The core: a pure state machine between events in and commands out.
//!
//! Flow: the driver (daemon or simulator) calls `ingest(event)`* → `plan(now)` → `poll_command()`* → `next_wake()`, and
//! nothing else. Owns everything attachd believes and every decision it makes. Must never do IO, read a clock, run a
//! task, take a lock, draw a random number or iterate an unordered map.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod backoff;
pub mod budget;
pub mod command;
pub mod desired;
pub mod devices;
pub mod event;
pub mod event_text;
pub mod policy;
pub mod queue;

use crate::model::time::{Monotonic, Now};
use command::Command;
use event::Event;
use policy::{Policy, Settings};

/// The core. One owner, no locks; the same type runs in the daemon and in the simulator.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    policy: Policy,
}

/// When the core wants to be planned again, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Not later than this.
    pub at: Monotonic,
    /// What is due then, for people reading a trace.
    pub why: &'static str,
}

impl Controller {
    /// A core that knows nothing yet.
    pub fn new(settings: Settings, policy: Policy) -> Self {
        Self { settings, policy }
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes in one event. Decides nothing: all events at hand are taken in first.
    pub fn ingest(&mut self, event: Event) {
        let _ = (&self.policy, event);
    }

    /// Decides what follows from everything taken in so far.
    pub fn plan(&mut self, now: Now) {
        let _ = now;
    }

    /// The next command decided; the driver starts it at once.
    pub fn poll_command(&mut self) -> Option<Command> {
        None
    }

    /// When `plan` is due again if nothing happens before.
    pub fn next_wake(&self) -> Option<Wake> {
        None
    }
}
