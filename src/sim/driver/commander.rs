//! What the driver drives: the core, or in tests a script that does something wrong on purpose.

use crate::controller::command::Command;
use crate::controller::event::Event;
use crate::controller::policy::{Policy, Settings};
use crate::controller::{Controller, Wake};
use crate::model::time::Now;

/// The contract of the core, and all of it.
pub trait Commander {
    /// A new one that knows nothing.
    fn new(settings: &Settings, policy: &Policy) -> Self;
    /// Takes in one event.
    fn ingest(&mut self, event: Event);
    /// Decides.
    fn plan(&mut self, now: Now);
    /// The next command decided.
    fn poll_command(&mut self) -> Option<Command>;
    /// When it wants to plan again.
    fn next_wake(&self) -> Option<Wake>;
}

impl Commander for Controller {
    fn new(settings: &Settings, policy: &Policy) -> Self {
        Self::new(settings.clone(), policy.clone())
    }

    fn ingest(&mut self, event: Event) {
        self.ingest(event);
    }

    fn plan(&mut self, now: Now) {
        self.plan(now);
    }

    fn poll_command(&mut self) -> Option<Command> {
        self.poll_command()
    }

    fn next_wake(&self) -> Option<Wake> {
        self.next_wake()
    }
}
