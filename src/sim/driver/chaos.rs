//! Faults by chance, for worlds too large to place them one by one: when one happens. `draw` says which.

mod draw;
#[cfg(test)]
mod tests;

pub use draw::{KINDS, KINDS_AT_LARGE};

use std::time::Duration;

use super::{Commander, Driver, Due, Fault};

/// How often chance strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChaosOptions {
    /// Between two faults of a node or a volume, of the whole world.
    pub every: (Duration, Duration),
    /// Between two faults of attachd, its calls or its watches.
    pub at_large_every: (Duration, Duration),
    /// Between two moves of a pod of the whole world (`None`: workloads stay where they are).
    pub move_every: Option<(Duration, Duration)>,
}

impl<C: Commander> Driver<C> {
    /// From now on chance draws faults.
    pub fn begin_chaos(&mut self, options: ChaosOptions) {
        self.begin_chaos_after(Duration::ZERO, options);
    }

    /// After a while chance begins to draw faults.
    pub fn begin_chaos_after(&mut self, after: Duration, options: ChaosOptions) {
        self.chaos = Some(options);
        let at = self.now.monotonic + after;
        self.schedule_due(at, Due::Chaos);
        self.schedule_due(at, Due::ChaosAtLarge);
        if options.move_every.is_some() {
            self.schedule_due(at, Due::Move);
        }
    }

    /// Moves the pod of one workload to another node.
    pub(super) fn draw_move(&mut self) {
        let Some((from, to)) = self.chaos.and_then(|chaos| chaos.move_every) else { return };
        let next = self.now.monotonic + self.dice.chaos.between(from, to);
        self.schedule_due(next, Due::Move);
        if let (Some(volume), Some(node)) = (self.some_volume(), self.some_node()) {
            self.inject(Fault::MovePod(volume, node));
        }
    }

    /// Lets one fault of attachd's surroundings happen, and plans the next.
    pub(super) fn draw_chaos_at_large(&mut self) {
        let Some(chaos) = self.chaos else { return };
        let (from, to) = chaos.at_large_every;
        let next = self.now.monotonic + self.dice.chaos.between(from, to);
        self.schedule_due(next, Due::ChaosAtLarge);
        let fault = self.draw_fault_at_large();
        self.inject(fault);
    }

    /// Lets one fault of chance happen, and plans the next.
    pub(super) fn draw_chaos(&mut self) {
        let Some(chaos) = self.chaos else { return };
        let next = self.now.monotonic + self.dice.chaos.between(chaos.every.0, chaos.every.1);
        self.schedule_due(next, Due::Chaos);
        let (Some(volume), Some(node)) = (self.some_volume(), self.some_node()) else { return };
        for (after, fault) in self.draw_faults(volume, node) {
            if after.is_zero() {
                self.inject(fault);
            } else {
                self.schedule(after, fault);
            }
        }
    }
}
