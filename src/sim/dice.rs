//! Seeded chance. Every model has its own stream, so that one more draw in one model does not change the others.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// One stream of chance.
#[derive(Clone, Debug)]
pub struct Dice {
    rng: ChaCha8Rng,
}

impl Dice {
    /// The stream `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self { rng }
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is below 2^-40 for every bound used here.
        if bound == 0 { 0 } else { self.rng.next_u64() % bound }
    }

    /// A duration in `[from, to]`, in whole microseconds.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX - 1);
        from + Duration::from_micros(self.below(span + 1))
    }

    /// True `per_million` times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// One of `items`, if there is any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() {
            return None;
        }
        let index = self.below(items.len() as u64) as usize;
        items.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_stream_repeat_and_streams_differ() {
        let draw = |seed, stream| {
            let mut dice = Dice::new(seed, stream);
            (0..8).map(|_| dice.below(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn between_keeps_its_bounds() {
        let mut dice = Dice::new(7, 0);
        let (from, to) = (Duration::from_millis(5), Duration::from_millis(9));
        for _ in 0..1000 {
            let drawn = dice.between(from, to);
            assert!(drawn >= from && drawn <= to);
        }
    }
}
