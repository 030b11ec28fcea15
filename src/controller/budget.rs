//! Token buckets: how many calls may go out, by class, and the rates they shrink to when the other side throttles.
//!
//! Flow: `plan(now)` sets the clock by [`Budget::advance`]; [`super::queue::Queue`] takes tokens for what waits. Owns the
//! levels. Must never hand out more than the other side's own bucket would: a bucket starts with few tokens (an earlier
//! process may have spent the rest), a throttle answer empties it and halves its rate, and no change of rate makes
//! tokens.
//!
//! The buckets are `governor`'s, on a time cell. It starts full, cannot tell its level and cannot change its rate, so
//! the level is kept beside it, and another rate is a new limiter drained to that level.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::command::BudgetClass;
use super::policy::{Bucket as BucketSize, Settings};
use crate::model::time::Monotonic;

/// Tokens in a bucket after start, at most: what an earlier process left of EC2's own bucket is not known.
const TOKENS_AT_START: u32 = 10;
/// Events have a bucket of their own, so that they never delay a write.
const EVENTS: BucketSize = BucketSize { burst: 25, per_second: 5.0 };
/// The share of the configured rate below which throttle answers do not push it.
const LEAST_SHARE: f64 = 1.0 / 16.0;
/// What success adds to the share of the configured rate, once per [`BETWEEN_STEPS`].
const SHARE_STEP: f64 = 0.05;
/// So many such steps at most after a while without an answer.
const STEPS_AT_ONCE: u64 = 5;
/// Answers of one burst are one piece of news: the rate changes once in this time.
const BETWEEN_STEPS: Duration = Duration::from_secs(2);
/// The time cell starts late, so that a limiter can be made that began a moment ago.
const CELL_OFFSET: Duration = Duration::from_secs(24 * 3600);

/// A bucket that several classes may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BucketKind {
    /// AttachVolume, DetachVolume (and whatever else changes EC2).
    Mutating,
    /// Describe calls that operations wait for.
    Poll,
    /// Describe calls of sweeps.
    Sweep,
    /// Writes to and live reads of the API server.
    Api,
    /// Events.
    Event,
}

impl BucketKind {
    /// Every bucket.
    pub const ALL: [Self; 5] = [Self::Mutating, Self::Poll, Self::Sweep, Self::Api, Self::Event];

    /// The bucket a class is paid from.
    pub fn of(class: BudgetClass) -> Self {
        match class {
            BudgetClass::Frees | BudgetClass::Attach | BudgetClass::Detach => Self::Mutating,
            BudgetClass::Poll => Self::Poll,
            BudgetClass::Sweep => Self::Sweep,
            BudgetClass::Write | BudgetClass::LiveRead => Self::Api,
            BudgetClass::Event => Self::Event,
        }
    }
}

/// All buckets.
#[derive(Debug)]
pub struct Budget {
    cell: TimeCell,
    buckets: [Bucket; 5],
}

impl Budget {
    /// Buckets of the sizes in the settings, each with 10 tokens or as many as it holds.
    pub fn new(settings: &Settings) -> Self {
        let cell = TimeCell::default();
        cell.set(CELL_OFFSET);
        let bucket = |size| Bucket::new(size, &cell);
        let sizes = [settings.ec2_mutating, settings.ec2_describe, settings.ec2_sweep, settings.api_writes, EVENTS];
        let buckets = sizes.map(bucket);
        Self { buckets, cell }
    }

    /// Sets the clock. Time that goes back is ignored.
    pub fn advance(&mut self, now: Monotonic) {
        let at = CELL_OFFSET + now.since_start();
        if Nanos::from(at).as_u64() > self.cell.get() {
            self.cell.set(at);
        }
    }

    /// Takes a token of the class's bucket, if there is one. Who comes first among those that wait is decided by
    /// [`super::queue::Queue`].
    pub fn try_take(&mut self, class: BudgetClass) -> bool {
        let now = self.cell.get();
        self.bucket_mut(class).try_take(now)
    }

    /// When a token of the class's bucket will be there: in the past or now, if there is one.
    pub fn next_free(&self, class: BudgetClass) -> Monotonic {
        let at = Duration::from_nanos(self.bucket(class).next_free());
        Monotonic::new(at.saturating_sub(CELL_OFFSET))
    }

    /// Whether a token of the class's bucket is there.
    pub fn has_token(&self, class: BudgetClass) -> bool {
        self.bucket(class).next_free() <= self.cell.get()
    }

    /// A call of the class was throttled: the bucket is empty whatever we counted, others draw on it too. Halves the
    /// rate, once for all answers of a burst. To EC2, polls and sweeps are one kind of call: a throttled poll slows
    /// sweeps as well, for somebody waits for polls.
    pub fn throttled(&mut self, class: BudgetClass) {
        let cell = self.cell.clone();
        self.bucket_mut(class).throttled(&cell);
        if class == BudgetClass::Poll {
            self.bucket_mut(BudgetClass::Sweep).throttled(&cell);
        }
    }

    /// What throttles left of the configured rate of the class, at most 1.
    pub fn share(&self, class: BudgetClass) -> f64 {
        self.bucket(class).share
    }

    /// A call of the class was not throttled: the rate grows back a step, not above what is configured.
    pub fn succeeded(&mut self, class: BudgetClass) {
        let cell = self.cell.clone();
        self.bucket_mut(class).succeeded(&cell);
    }

    /// Tokens in the class's bucket now, with fractions.
    pub fn level(&self, class: BudgetClass) -> f64 {
        self.bucket(class).level(self.cell.get())
    }

    /// Tokens that come back per second now.
    pub fn rate(&self, class: BudgetClass) -> f64 {
        1e9 / self.bucket(class).period as f64
    }

    fn bucket(&self, class: BudgetClass) -> &Bucket {
        &self.buckets[BucketKind::of(class) as usize]
    }

    fn bucket_mut(&mut self, class: BudgetClass) -> &mut Bucket {
        &mut self.buckets[BucketKind::of(class) as usize]
    }
}

/// The clock of the limiters: nanoseconds since [`CELL_OFFSET`] before the start of the process.
#[derive(Clone, Debug, Default)]
struct TimeCell(Arc<AtomicU64>);

impl TimeCell {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, at: Duration) {
        self.set_nanos(Nanos::from(at).as_u64());
    }

    fn set_nanos(&self, nanos: u64) {
        self.0.store(nanos, Ordering::Relaxed);
    }
}

impl Clock for TimeCell {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.get())
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, TimeCell, NoOpMiddleware<Nanos>>;

/// One bucket. Times are nanoseconds of the cell.
#[derive(Debug)]
struct Bucket {
    size: BucketSize,
    limiter: Limiter,
    /// Nanoseconds for one token.
    period: u64,
    /// When the bucket will be full again: the limiter's own state, which it does not tell.
    full_at: u64,
    /// The present share of the configured rate.
    share: f64,
    changed_at: Option<u64>,
}

impl Bucket {
    fn new(size: BucketSize, cell: &TimeCell) -> Self {
        let size = BucketSize { burst: size.burst.max(1), per_second: size.per_second.max(0.001) };
        let period = period(size.per_second);
        let missing = u64::from(size.burst.saturating_sub(TOKENS_AT_START)) * period;
        let full_at = cell.get() + missing;
        Self {
            size,
            limiter: drained(size.burst, period, missing, cell),
            period,
            full_at,
            share: 1.0,
            changed_at: None,
        }
    }

    fn try_take(&mut self, now: u64) -> bool {
        let taken = self.limiter.check().is_ok();
        debug_assert_eq!(taken, self.next_free() <= now, "the level kept is the limiter's own");
        if taken {
            self.full_at = self.full_at.max(now) + self.period;
        }
        taken
    }

    fn next_free(&self) -> u64 {
        self.full_at.saturating_sub(u64::from(self.size.burst - 1) * self.period)
    }

    fn level(&self, now: u64) -> f64 {
        f64::from(self.size.burst) - self.full_at.saturating_sub(now) as f64 / self.period as f64
    }

    fn throttled(&mut self, cell: &TimeCell) {
        if self.may_step(cell.get()) {
            self.share = (self.share / 2.0).max(LEAST_SHARE);
            self.changed_at = Some(cell.get());
        }
        self.period = period(self.size.per_second * self.share);
        self.rebuild(u64::from(self.size.burst) * self.period, cell);
    }

    fn succeeded(&mut self, cell: &TimeCell) {
        if self.share >= 1.0 || !self.may_step(cell.get()) {
            return;
        }
        // Calls that come seldom, as those of a small sweep do, need not take hours to grow it back.
        let since = self.changed_at.map_or(0, |at| cell.get().saturating_sub(at));
        let steps = (since / Nanos::from(BETWEEN_STEPS).as_u64()).clamp(1, STEPS_AT_ONCE);
        self.share = (self.share + SHARE_STEP * steps as f64).min(1.0);
        self.changed_at = Some(cell.get());
        let old_period = u128::from(self.period);
        self.period = period(self.size.per_second * self.share);
        let missing = u128::from(self.full_at.saturating_sub(cell.get()));
        // Rounded up: never a token more than before.
        let missing = (missing * u128::from(self.period)).div_ceil(old_period);
        let all = u128::from(self.size.burst) * u128::from(self.period);
        self.rebuild(u64::try_from(missing.min(all)).unwrap_or(u64::MAX), cell);
    }

    fn may_step(&self, now: u64) -> bool {
        self.changed_at.is_none_or(|at| now.saturating_sub(at) >= Nanos::from(BETWEEN_STEPS).as_u64())
    }

    fn rebuild(&mut self, missing: u64, cell: &TimeCell) {
        self.limiter = drained(self.size.burst, self.period, missing, cell);
        self.full_at = cell.get() + missing;
    }
}

/// Nanoseconds for one token, rounded up.
fn period(per_second: f64) -> u64 {
    (1e9 / per_second).ceil() as u64
}

/// A limiter that will be full in `missing` nanoseconds, at most `burst` periods. Tokens are taken in whole numbers, so
/// it is made as if a fraction of a period ago.
fn drained(burst: u32, period: u64, missing: u64, cell: &TimeCell) -> Limiter {
    let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
    let quota = Quota::with_period(Duration::from_nanos(period.max(1)))
        .map_or(Quota::per_second(burst), |quota| quota.allow_burst(burst));
    let now = cell.get();
    let tokens = missing.div_ceil(period);
    cell.set_nanos(now - (tokens * period - missing).min(now));
    let limiter = Limiter::direct_with_clock(quota, cell.clone());
    if let Some(tokens) = u32::try_from(tokens).ok().and_then(NonZeroU32::new) {
        let taken = limiter.check_n(tokens);
        debug_assert!(matches!(taken, Ok(Ok(_))), "a full bucket holds {tokens}");
    }
    cell.set_nanos(now);
    limiter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic::new(Duration::from_millis(millis))
    }

    fn budget() -> Budget {
        Budget::new(&Settings::default())
    }

    fn drain(budget: &mut Budget, class: BudgetClass) -> u32 {
        let mut taken = 0;
        while budget.try_take(class) {
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_bucket_starts_with_ten_tokens_or_its_burst() {
        let mut budget = budget();
        assert_eq!(budget.level(BudgetClass::Attach), 10.0);
        assert_eq!(drain(&mut budget, BudgetClass::Attach), 10);
        assert_eq!(drain(&mut budget, BudgetClass::Poll), 4, "the describe bucket holds four");
        assert_eq!(drain(&mut budget, BudgetClass::Write), 10);
        assert_eq!(drain(&mut budget, BudgetClass::Event), 10);
    }

    #[test]
    fn a_bucket_left_alone_fills_to_its_burst_and_not_above() {
        let mut budget = budget();
        budget.advance(at(8_000));
        assert_eq!(budget.level(BudgetClass::Detach), 48.0);
        budget.advance(at(3_600_000));
        assert_eq!(budget.level(BudgetClass::Detach), 48.0);
        assert_eq!(drain(&mut budget, BudgetClass::Detach), 48);
    }

    #[test]
    fn classes_of_one_bucket_share_it_and_other_buckets_do_not() {
        let mut budget = budget();
        assert_eq!(drain(&mut budget, BudgetClass::Frees), 10);
        assert!(!budget.try_take(BudgetClass::Attach) && !budget.try_take(BudgetClass::Detach));
        assert!(budget.try_take(BudgetClass::Poll));
        assert_eq!(drain(&mut budget, BudgetClass::Event), 10);
        assert!(budget.try_take(BudgetClass::Write) && budget.try_take(BudgetClass::LiveRead));
    }

    #[test]
    fn a_thousand_takes_end_exactly_when_the_rate_allows() {
        let mut budget = budget();
        let (mut taken, mut last) = (0, Monotonic::ZERO);
        while taken < 1_000 {
            while taken < 1_000 && budget.try_take(BudgetClass::Attach) {
                taken += 1;
            }
            last = budget.next_free(BudgetClass::Attach).max(last);
            budget.advance(last);
        }
        // The token after the thousandth comes a period later.
        assert_eq!(last, at((1_000 - 10) * 200 + 200));
    }

    #[test]
    fn next_free_is_when_a_take_succeeds_and_not_a_nanosecond_earlier() {
        let mut budget = budget();
        drain(&mut budget, BudgetClass::Attach);
        let free = budget.next_free(BudgetClass::Attach);
        assert_eq!(free, at(200));
        budget.advance(Monotonic::new(free.since_start() - Duration::from_nanos(1)));
        assert!(!budget.has_token(BudgetClass::Attach) && !budget.try_take(BudgetClass::Attach));
        budget.advance(free);
        assert!(budget.has_token(BudgetClass::Attach) && budget.try_take(BudgetClass::Attach));
    }

    #[test]
    fn time_that_goes_back_makes_no_tokens() {
        let mut budget = budget();
        budget.advance(at(10_000));
        drain(&mut budget, BudgetClass::Attach);
        budget.advance(at(0));
        budget.advance(at(10_000));
        assert!(!budget.try_take(BudgetClass::Attach));
    }

    #[test]
    fn a_throttle_empties_the_bucket_and_halves_the_rate_once_per_burst() {
        let mut budget = budget();
        budget.advance(at(8_000));
        for _ in 0..10 {
            budget.throttled(BudgetClass::Attach);
        }
        assert_eq!(budget.level(BudgetClass::Attach), 0.0);
        assert_eq!(budget.rate(BudgetClass::Attach), 2.5);
        assert_eq!(budget.next_free(BudgetClass::Attach), at(8_400));
        assert_eq!(budget.rate(BudgetClass::Poll), 2.0, "another bucket is not touched");
    }

    #[test]
    fn the_rate_has_a_floor_and_grows_back_to_what_is_configured() {
        let mut budget = budget();
        let mut now = 0;
        for _ in 0..20 {
            budget.throttled(BudgetClass::Attach);
            now += 2_000;
            budget.advance(at(now));
        }
        assert_eq!(budget.rate(BudgetClass::Attach), 5.0 / 16.0);
        let mut before = budget.rate(BudgetClass::Attach);
        for _ in 0..19 {
            budget.succeeded(BudgetClass::Attach);
            budget.succeeded(BudgetClass::Attach);
            let rate = budget.rate(BudgetClass::Attach);
            assert!(rate > before && rate <= 5.0, "{rate} after {before}");
            before = rate;
            now += 2_000;
            budget.advance(at(now));
        }
        assert_eq!(before, 5.0);
    }

    #[test]
    fn a_change_of_rate_keeps_the_level_with_its_fraction() {
        let mut budget = budget();
        budget.throttled(BudgetClass::Attach);
        budget.advance(at(3_000));
        let before = budget.level(BudgetClass::Attach);
        assert_eq!(before, 7.5);
        budget.succeeded(BudgetClass::Attach);
        let after = budget.level(BudgetClass::Attach);
        assert!(after <= before && before - after < 1e-6, "{before} became {after}");
        assert_eq!(drain(&mut budget, BudgetClass::Attach), 7);
    }

    /// Whatever answers come when, a bucket of EC2's size that starts as empty as ours never runs dry under our calls.
    #[test]
    fn changes_of_rate_never_exceed_the_other_sides_bucket() {
        for seed in 0..200_u64 {
            let mut budget = budget();
            let (mut theirs, mut now) = (10.0_f64, 0_u64);
            let mut state = seed;
            for _ in 0..2_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let draw = state >> 33;
                let step = draw % 700;
                now += step;
                theirs = (theirs + step as f64 * 0.005).min(50.0);
                budget.advance(at(now));
                for _ in 0..draw % 4 {
                    if budget.try_take(BudgetClass::Frees) {
                        theirs -= 1.0;
                    }
                }
                match draw % 13 {
                    0 => budget.throttled(BudgetClass::Frees),
                    1..=9 => budget.succeeded(BudgetClass::Frees),
                    _ => {}
                }
                assert!(theirs > -1e-6, "seed {seed}: {theirs} tokens left at {now} ms");
            }
        }
    }
}
