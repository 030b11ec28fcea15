//! One attachd process: its core, its watches, its leadership.

use std::collections::BTreeSet;

use crate::controller::event::{Event, EventKind, Guard, GuardChange, Kind, Role, Term};
use crate::model::time::{Monotonic, Now};
use crate::sim::api_server::{Api, Change, Watch, kind_of_object};
use crate::sim::dice::Dice;

use super::commander::Commander;
use super::options::Latencies;

/// A process, until it dies.
#[derive(Debug)]
pub(super) struct Process<C> {
    pub(super) number: u64,
    pub(super) core: C,
    watches: Vec<Watch>,
    pub(super) term: Option<Term>,
    pub(super) since: Monotonic,
    /// Until when its lease surely is its own; `None` with a term: without end.
    pub(super) guard_until: Option<Monotonic>,
    /// Whether it still renews its lease.
    pub(super) renews: bool,
    pub(super) wake: Option<Monotonic>,
    /// Something was ingested since the last plan.
    pub(super) dirty: bool,
}

impl<C: Commander> Process<C> {
    /// A process that begins to list everything.
    pub(super) fn start(number: u64, core: C, now: Now, api: &Api, lat: &Latencies, dice: &mut Dice) -> Self {
        let mut watches: Vec<Watch> = Kind::ALL.into_iter().map(Watch::new).collect();
        for watch in &mut watches {
            watch.relist(now.monotonic + dice.between(lat.watch.0, lat.watch.1), api);
        }
        Self {
            number,
            core,
            watches,
            term: None,
            since: now.monotonic,
            guard_until: None,
            renews: true,
            wake: None,
            dirty: false,
        }
    }

    pub(super) fn watch(&mut self, kind: Kind) -> Option<&mut Watch> {
        let index = Kind::ALL.iter().position(|of| *of == kind)?;
        self.watches.get_mut(index)
    }

    pub(super) fn watches(&mut self) -> impl Iterator<Item = &mut Watch> {
        self.watches.iter_mut()
    }

    /// A change of the store goes to the watch of its kind.
    pub(super) fn see(&mut self, due: Monotonic, change: &Change) {
        let Some(object) = change.after.as_ref().or(change.before.as_ref()) else { return };
        let kind = kind_of_object(object);
        if let Some(watch) = self.watch(kind) {
            watch.push(due, change);
        }
    }

    /// When one of its watches delivers next.
    pub(super) fn next_delivery(&self) -> Option<Monotonic> {
        self.watches.iter().filter_map(Watch::next_due).min()
    }

    /// Takes in everything its watches deliver by now.
    pub(super) fn deliver(&mut self, now: Now) {
        for watch in &mut self.watches {
            while let Some(event) = watch.pop_due(now.monotonic) {
                self.core.ingest(Event { at: now, kind: EventKind::Watch(event) });
                self.dirty = true;
            }
        }
    }

    pub(super) fn ingest(&mut self, now: Now, kind: EventKind) {
        self.core.ingest(Event { at: now, kind });
        self.dirty = true;
    }

    /// Tells the core how it stands with the lease of every role.
    pub(super) fn tell_guard(&mut self, now: Now, roles: &BTreeSet<Role>) {
        let guard = self.term.map(|term| Guard { term, since: self.since, until: self.guard_until });
        for role in roles {
            self.ingest(now, EventKind::Guard(GuardChange { role: *role, guard }));
        }
    }
}
