//! Who gets the next token: requests that wait, by class, with ageing, first come first served within a class.
//!
//! Flow: operations submit what they want to send; `plan` pops what the [`Budget`] pays for and turns it into commands.
//! Owns the order. Must never starve a class: every minute of waiting lifts a request by one class, and while detaches
//! wait, every tenth mutating call is one of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::budget::{BucketKind, Budget};
use super::command::BudgetClass;
use crate::model::time::Monotonic;

/// Waiting this long lifts a request by one class.
const AGEING: Duration = Duration::from_secs(60);
/// Of this many mutating calls one is a detach, while any waits.
const DETACH_EVERY: u32 = 10;

/// Requests that wait for a token. `K` names the request; a key waits at most once.
#[derive(Debug)]
pub struct Queue<K> {
    /// Per class, in the order of arrival.
    waiting: BTreeMap<BudgetClass, BTreeMap<Turn, K>>,
    turns: BTreeMap<K, (BudgetClass, Turn)>,
    submitted: u64,
    /// Mutating calls let through since the last detach.
    since_detach: u32,
}

/// A place in a class: since when, then in what order it was submitted.
type Turn = (Monotonic, u64);

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), turns: BTreeMap::new(), submitted: 0, since_detach: 0 }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a request wait since `since`. One that waits already keeps its place, and moves with it if its class is
    /// another now (a detach that somebody needs *frees*).
    pub fn submit(&mut self, class: BudgetClass, key: K, since: Monotonic) {
        let turn = match self.turns.get(&key) {
            Some((old, _)) if *old == class => return,
            Some((_, turn)) => *turn,
            None => {
                self.submitted += 1;
                (since, self.submitted)
            }
        };
        self.withdraw(&key);
        self.waiting.entry(class).or_default().insert(turn, key.clone());
        self.turns.insert(key, (class, turn));
    }

    /// Takes a request out. Whether it was waiting.
    pub fn withdraw(&mut self, key: &K) -> bool {
        let Some((class, turn)) = self.turns.remove(key) else { return false };
        if let Some(waiting) = self.waiting.get_mut(&class) {
            waiting.remove(&turn);
            if waiting.is_empty() {
                self.waiting.remove(&class);
            }
        }
        true
    }

    /// The class in which a request waits.
    pub fn class_of(&self, key: &K) -> Option<BudgetClass> {
        self.turns.get(key).map(|(class, _)| *class)
    }

    /// How many requests of a class wait.
    pub fn waiting(&self, class: BudgetClass) -> usize {
        self.waiting.get(&class).map_or(0, BTreeMap::len)
    }

    /// Since when the longest waiting request of a class waits.
    pub fn waiting_since(&self, class: BudgetClass) -> Option<Monotonic> {
        let (turn, _) = self.waiting.get(&class)?.first_key_value()?;
        Some(turn.0)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The next request that its bucket pays for now, taken out, its token spent.
    pub fn pop_ready(&mut self, budget: &mut Budget) -> Option<(BudgetClass, K)> {
        BucketKind::ALL.into_iter().find_map(|bucket| self.pop_ready_from(bucket, budget))
    }

    /// As [`Self::pop_ready`], of one bucket only.
    pub fn pop_ready_from(&mut self, bucket: BucketKind, budget: &mut Budget) -> Option<(BudgetClass, K)> {
        let class = self.next_class(bucket)?;
        if !budget.try_take(class) {
            return None;
        }
        match class {
            BudgetClass::Detach => self.since_detach = 0,
            BudgetClass::Frees | BudgetClass::Attach => self.since_detach = self.since_detach.saturating_add(1),
            BudgetClass::Poll
            | BudgetClass::Sweep
            | BudgetClass::Write
            | BudgetClass::LiveRead
            | BudgetClass::Event => {}
        }
        let (_, key) = self.waiting.get(&class)?.first_key_value()?;
        let key = key.clone();
        self.withdraw(&key);
        Some((class, key))
    }

    /// When a token will be there for something that waits; `None` if nothing waits.
    pub fn next_ready(&self, budget: &Budget) -> Option<Monotonic> {
        self.waiting.keys().map(|class| budget.next_free(*class)).min()
    }

    fn next_class(&self, bucket: BucketKind) -> Option<BudgetClass> {
        let detaches_wait = bucket == BucketKind::Mutating && self.waiting.contains_key(&BudgetClass::Detach);
        if detaches_wait && self.since_detach >= DETACH_EVERY - 1 {
            return Some(BudgetClass::Detach);
        }
        let heads = self.waiting.iter().filter(|(class, _)| BucketKind::of(**class) == bucket);
        let first = heads.filter_map(|(class, waiting)| {
            let ((since, order), _) = waiting.first_key_value()?;
            Some((*since + AGEING * rank(*class), *order, *class))
        });
        first.min().map(|(_, _, class)| class)
    }
}

/// How many classes of its bucket come before this one.
fn rank(class: BudgetClass) -> u32 {
    match class {
        BudgetClass::Frees
        | BudgetClass::Poll
        | BudgetClass::Sweep
        | BudgetClass::Write
        | BudgetClass::LiveRead
        | BudgetClass::Event => 0,
        BudgetClass::Attach => 1,
        BudgetClass::Detach => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::policy::Settings;
    use BudgetClass::{Attach, Detach, Frees, LiveRead, Write};

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn budget() -> Budget {
        Budget::new(&Settings::default())
    }

    fn pop(queue: &mut Queue<u32>, budget: &mut Budget) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop_ready(budget)).map(|(_, key)| key).collect()
    }

    #[test]
    fn classes_come_in_order_and_within_a_class_the_first_comes_first() {
        let (mut queue, mut budget) = (Queue::new(), budget());
        for (class, key) in [(Detach, 1), (Attach, 2), (Frees, 3), (Attach, 4), (Frees, 5)] {
            queue.submit(class, key, at(0));
        }
        assert_eq!(pop(&mut queue, &mut budget), [3, 5, 2, 4, 1]);
        assert!(queue.is_empty());
    }

    #[test]
    fn what_waits_longer_comes_first_in_its_class_whenever_it_is_submitted() {
        let (mut queue, mut budget) = (Queue::new(), budget());
        queue.submit(Attach, 1, at(30));
        queue.submit(Attach, 2, at(10));
        budget.advance(at(40));
        assert_eq!(pop(&mut queue, &mut budget), [2, 1]);
    }

    #[test]
    fn a_minute_of_waiting_lifts_a_request_by_one_class() {
        let (mut queue, mut budget) = (Queue::new(), budget());
        queue.submit(Detach, 1, at(0));
        queue.submit(Attach, 2, at(59));
        queue.submit(Attach, 3, at(61));
        queue.submit(Frees, 4, at(119));
        queue.submit(Frees, 5, at(121));
        budget.advance(at(122));
        assert_eq!(pop(&mut queue, &mut budget), [2, 4, 1, 3, 5]);
    }

    #[test]
    fn a_tenth_of_an_endless_stream_of_attaches_is_left_to_detaches() {
        let (mut queue, mut budget) = (Queue::new(), budget());
        let (mut key, mut popped) = (0, Vec::new());
        for second in 0..50 {
            budget.advance(at(second));
            for class in [Attach, Frees, Attach, Frees, Attach, Frees, Detach, Detach] {
                key += 1;
                queue.submit(class, key, at(second));
            }
            popped.extend(std::iter::from_fn(|| queue.pop_ready(&mut budget)).map(|(class, _)| class));
        }
        assert_eq!(popped.len(), 10 + 49 * 5);
        for calls in popped.windows(10) {
            assert!(calls.contains(&Detach), "{calls:?}");
        }
    }

    #[test]
    fn a_detach_that_somebody_needs_keeps_its_place_in_time() {
        let (mut queue, mut budget) = (Queue::new(), budget());
        queue.submit(Detach, 1, at(0));
        queue.submit(Frees, 2, at(1));
        queue.submit(Frees, 1, at(9));
        assert_eq!((queue.class_of(&1), queue.waiting(Detach), queue.waiting(Frees)), (Some(Frees), 0, 2));
        assert_eq!(queue.waiting_since(Frees), Some(at(0)));
        budget.advance(at(9));
        assert_eq!(pop(&mut queue, &mut budget), [1, 2]);
    }

    #[test]
    fn what_is_withdrawn_takes_no_token() {
        let (mut queue, mut budget) = (Queue::new(), budget());
        queue.submit(Attach, 1, at(0));
        assert!(queue.withdraw(&1) && !queue.withdraw(&1));
        assert_eq!(queue.pop_ready(&mut budget), None);
        assert_eq!((budget.level(Attach), queue.next_ready(&budget)), (10.0, None));
    }

    #[test]
    fn an_empty_bucket_holds_back_its_own_classes_only() {
        let (mut queue, mut budget) = (Queue::new(), budget());
        while budget.try_take(Attach) {}
        queue.submit(Attach, 1, at(0));
        queue.submit(Write, 2, at(0));
        queue.submit(LiveRead, 3, at(0));
        assert_eq!(pop(&mut queue, &mut budget), [2, 3]);
        assert_eq!(queue.next_ready(&budget), Some(Monotonic::new(Duration::from_millis(200))));
        budget.advance(at(1));
        assert_eq!(pop(&mut queue, &mut budget), [1]);
    }
}
