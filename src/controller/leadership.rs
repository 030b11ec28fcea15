//! Which roles are led, since when, and until when that is sure.
//!
//! Flow: the loop tells it by guard events; everything that mutates asks it for a [`Permit`] first. Owns no lease: it only
//! reads what the loop says. Must never stretch a guard.

use std::collections::BTreeMap;
use std::time::Duration;

use super::event::{Guard, GuardChange, Role, Term};
use super::policy::{Policy, Rule};
use crate::model::time::Monotonic;

/// How long one attempt of a call may take before the adapter gives it up.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Kept between the last moment a call may be sent and the end of the guard, for clocks and scheduling.
const MARGIN: Duration = Duration::from_secs(2);

/// Leave to mutate in one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// The period of leadership.
    pub term: Term,
    /// Not sent after this; `None` where the guard never ends.
    pub not_after: Option<Monotonic>,
    /// When the guard was got.
    pub since: Monotonic,
}

/// The guards.
#[derive(Debug, Default)]
pub struct Leadership {
    guards: BTreeMap<Role, Guard>,
}

impl Leadership {
    /// Takes what the loop says.
    pub fn change(&mut self, change: GuardChange) {
        match change.guard {
            Some(guard) => self.guards.insert(change.role, guard),
            None => self.guards.remove(&change.role),
        };
    }

    /// When the guard of `role` was got; `None` while it is not held.
    pub fn since(&self, role: Role) -> Option<Monotonic> {
        self.guards.get(&role).map(|guard| guard.since)
    }

    /// Leave to mutate in `role`, if its guard lasts long enough for one attempt (rule 12).
    pub fn permit(&self, role: Role, now: Monotonic, policy: &Policy) -> Option<Permit> {
        let guard = self.guards.get(&role)?;
        if !policy.holds(Rule::GuardedMutations) {
            return Some(Permit { term: guard.term, not_after: None, since: guard.since });
        }
        let not_after = guard.until.map(|until| until.saturating_sub(ATTEMPT_TIMEOUT + MARGIN));
        if not_after.is_some_and(|not_after| now >= not_after) {
            return None;
        }
        Some(Permit { term: guard.term, not_after, since: guard.since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_guard_permits_only_while_one_attempt_fits_into_it() {
        let mut leadership = Leadership::default();
        let policy = Policy::FULL;
        assert_eq!(leadership.permit(Role::Attacher, at(1), &policy), None);
        let guard = Guard { term: Term(3), since: at(5), until: Some(at(40)) };
        leadership.change(GuardChange { role: Role::Attacher, guard: Some(guard) });
        let permit = leadership.permit(Role::Attacher, at(27), &policy).unwrap();
        assert_eq!((permit.term, permit.not_after), (Term(3), Some(at(28))));
        assert_eq!(leadership.permit(Role::Attacher, at(28), &policy), None);
        assert_eq!(leadership.permit(Role::AttachDetach, at(6), &policy), None, "each role has its own guard");
        leadership.change(GuardChange { role: Role::Attacher, guard: None });
        assert_eq!(leadership.permit(Role::Attacher, at(6), &policy), None);
    }
}
