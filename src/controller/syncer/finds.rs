//! When EC2 last showed anything of this cluster: what an absence needs for company (rule 17).
//!
//! Flow: every answer in which a volume or an instance was found is noted; who is missing asks whether anything was found
//! between two reads that both lacked it. In the wrong region or account nothing is found, and what is found when that is
//! over says nothing of the reads before. Must never grow with the cluster.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::time::Monotonic;

/// Finds are kept this far apart: closer ones prove the same.
const APART: Duration = Duration::from_secs(1);
/// As many are kept: some minutes, far more than lies between two reads of a volume that is missed.
const KEPT: usize = 256;

/// The last answers in which anything was found: when each began and ended.
#[derive(Debug, Default)]
pub struct Finds {
    kept: VecDeque<(Monotonic, Monotonic)>,
}

impl Finds {
    /// An answer showed a volume or an instance of this cluster.
    pub fn note(&mut self, began: Monotonic, ended: Monotonic) {
        if self.kept.back().is_some_and(|(last, _)| began < *last + APART) {
            return;
        }
        self.kept.push_back((began, ended));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    /// Whether an answer that began at `from` or later, and had ended by `to`, showed anything.
    pub fn any_between(&self, from: Monotonic, to: Monotonic) -> bool {
        self.kept.iter().rev().any(|(began, ended)| *began >= from && *ended <= to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    #[test]
    fn only_what_was_found_between_two_reads_keeps_both_company() {
        let mut finds = Finds::default();
        finds.note(at(10), at(11));
        assert!(finds.any_between(at(9), at(12)) && finds.any_between(at(10), at(11)));
        assert!(!finds.any_between(at(11), at(20)), "found before the first");
        assert!(!finds.any_between(at(5), at(10)), "the second was under way already: it may have been the one fooled");
    }

    #[test]
    fn the_newest_are_kept() {
        let mut finds = Finds::default();
        for second in 0..(2 * KEPT as u64) {
            finds.note(at(second), at(second));
        }
        assert!(finds.any_between(at(2 * KEPT as u64 - 2), at(2 * KEPT as u64)));
        assert_eq!(finds.kept.len(), KEPT);
    }
}
