//! What a thing looked like lately, for reads that show the past.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::time::Monotonic;

/// How far back a read may reach; older states are dropped at the next change.
pub(super) const HISTORY_KEPT: Duration = Duration::from_secs(120);
/// States kept of one thing: a volume that changes faster than every other second is read as it was less long ago.
const STATES_KEPT: usize = 64;

/// The states of one thing, oldest first; never empty.
#[derive(Clone, Debug)]
pub(super) struct History<T> {
    states: VecDeque<(Monotonic, T)>,
}

impl<T> History<T> {
    /// Begins with a state, which also stands for all time before.
    pub(super) fn new(at: Monotonic, state: T) -> Self {
        Self { states: [(at, state)].into() }
    }

    /// The state from `at` on.
    pub(super) fn push(&mut self, at: Monotonic, state: T) {
        let horizon = at.saturating_sub(HISTORY_KEPT);
        while self.states.len() >= STATES_KEPT || (self.states.len() > 1 && self.states[1].0 <= horizon) {
            self.states.pop_front();
        }
        self.states.push_back((at, state));
    }

    /// The present state.
    pub(super) fn latest(&self) -> &T {
        &self.states[self.states.len() - 1].1
    }

    /// The state at a time, the oldest known for times before that.
    pub(super) fn at(&self, when: Monotonic) -> &T {
        let later = self.states.iter().rev().take_while(|(at, _)| *at > when).count();
        &self.states[(self.states.len() - later).saturating_sub(1)].1
    }

    /// Whether it changed after `when`.
    pub(super) fn changed_since(&self, when: Monotonic) -> bool {
        self.states.len() > 1 && self.states[self.states.len() - 1].0 > when
    }

    /// How many states are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(secs))
    }

    #[test]
    fn it_answers_for_the_past_and_stays_bounded() {
        let mut history = History::new(at(10), 'a');
        history.push(at(20), 'b');
        history.push(at(30), 'c');
        assert_eq!(
            (*history.at(at(5)), *history.at(at(19)), *history.at(at(20)), *history.at(at(31))),
            ('a', 'a', 'b', 'c')
        );
        assert!(history.changed_since(at(29)) && !history.changed_since(at(30)));
        history.push(at(500), 'd');
        assert_eq!((history.len(), *history.at(at(400)), *history.latest()), (2, 'c', 'd'));
        for second in 0..1000 {
            history.push(at(501) + Duration::from_millis(second), 'e');
        }
        assert_eq!(history.len(), STATES_KEPT);
    }
}
