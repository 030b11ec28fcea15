//! What must hold of everything that leaves the process, told by those who received it.

use super::world::{News, World};
use super::{Findings, Invariant};

pub(super) fn check(world: &World, found: &mut Findings<'_>) {
    for news in &world.news {
        let News::CallSent { kind, term, at } = news else { continue };
        let held = world.terms.get(term);
        let holds = held.is_some_and(|held| *at >= held.since && held.ended.is_none_or(|ended| *at <= ended));
        found.judge(Invariant::SentUnderLease, holds, || {
            (format!("{kind} in term {}", term.0), format!("sent at {at}, the lease held: {held:?}"))
        });
    }
    found.judge(Invariant::NeverForced, world.counts.forced_detaches == 0, || {
        ("DetachVolume".to_owned(), format!("forced {} times", world.counts.forced_detaches))
    });
}
