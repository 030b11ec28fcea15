//! One watch of one client: keeps the order of changes, is late, may stand still, and lists anew after a gap.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Api, Change};
use crate::controller::event::{Kind, WatchEvent};
use crate::model::time::Monotonic;

/// A watch of one kind.
#[derive(Clone, Debug)]
pub struct Watch {
    kind: Kind,
    generation: u64,
    queue: VecDeque<(Monotonic, WatchEvent)>,
    still_until: Monotonic,
}

impl Watch {
    /// A watch that has seen nothing: [`Watch::relist`] begins it.
    pub fn new(kind: Kind) -> Self {
        Self { kind, generation: 0, queue: VecDeque::new(), still_until: Monotonic::ZERO }
    }

    /// Takes up a change, to be delivered at `due` or, if that is earlier than one before it, right after that.
    pub fn push(&mut self, due: Monotonic, change: &Change) {
        let event = match (&change.after, change.deleted()) {
            (Some(object), _) => WatchEvent::Applied(object.clone()),
            (None, Some(key)) => WatchEvent::Deleted(key),
            (None, None) => return,
        };
        self.enqueue(due, event);
    }

    /// Breaks the watch and lists anew, consistently, as of now: what was not delivered yet is never seen but in the
    /// list, a deletion only by absence.
    pub fn relist(&mut self, due: Monotonic, api: &Api) {
        self.queue.clear();
        self.generation += 1;
        let generation = self.generation;
        self.enqueue(due, WatchEvent::Begin { kind: self.kind, generation });
        for object in api.list(self.kind) {
            self.enqueue(due, WatchEvent::Item { generation, object });
        }
        self.enqueue(due, WatchEvent::End { kind: self.kind, generation });
    }

    /// Stands still until then.
    pub fn stall(&mut self, now: Monotonic, by: Duration) {
        self.still_until = self.still_until.max(now + by);
    }

    /// Stands still no longer.
    pub fn heal(&mut self) {
        self.still_until = Monotonic::ZERO;
    }

    /// When the next event is due.
    pub fn next_due(&self) -> Option<Monotonic> {
        Some(self.queue.front()?.0.max(self.still_until))
    }

    /// The next event that is due.
    pub fn pop_due(&mut self, now: Monotonic) -> Option<WatchEvent> {
        if self.next_due()? > now {
            return None;
        }
        self.queue.pop_front().map(|(_, event)| event)
    }

    fn enqueue(&mut self, due: Monotonic, event: WatchEvent) {
        let due = self.queue.back().map_or(due, |(last, _)| due.max(*last));
        self.queue.push_back((due, event));
    }
}
