//! One run: a driver watched by the checkers. First its script, with whatever faults are put in; then everything is
//! healed and must come to rest; then nothing more may be sent.
//!
//! Flow: scenarios and placements make a [`Run`] and step it; the command line and the tests read its [`Report`]. Must
//! never decide what a fault does or what is right.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checkers::rest::{check_never_throttled, check_rest, check_silence};
use super::checkers::world::{CallCounts, Ec2CallKind, News, World};
use super::checkers::{Checker, Invariant, Violation};
use super::driver::{CallFault, CallFaultRates, Driver, Fault, Measures, TraceEntry};
use crate::model::time::Monotonic;

/// The world is at rest when nothing but polls was sent for this long: longer than every back-off, every wait for calls
/// in flight, and the five minutes a node is held after a foreign write.
const QUIET: Duration = Duration::from_secs(15 * 60);
/// What has not come to rest after this long never will: it is longer than all waits of the design in a row.
const PATIENCE: Duration = Duration::from_secs(3 * 60 * 60);
/// How long silence is listened to.
const SILENCE: Duration = Duration::from_secs(10 * 60);

/// A run under way.
#[derive(Debug)]
pub struct Run {
    driver: Driver,
    checker: Checker,
    violations: Vec<Violation>,
    eventful: bool,
    detached: u64,
    script_ends_by: Monotonic,
    /// Whether no fault of this run throttles: then nobody ever should.
    budgets_hold: bool,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Steps taken.
    pub steps: u64,
    /// Virtual time that passed.
    pub simulated: Duration,
    /// Waits and moves.
    pub measures: Measures,
    /// Attachments that attachd ended.
    pub detached: u64,
    /// Calls by kind.
    pub counts: CallCounts,
    /// How often each invariant was judged.
    pub checked: BTreeMap<Invariant, u64>,
    /// What was found broken, in order.
    pub violations: Vec<Violation>,
}

impl Run {
    /// A run that has not begun. Its script is over when the world is calm, and not later than after `script`.
    pub fn new(driver: Driver, script: Duration) -> Self {
        let script_ends_by = driver.now().monotonic + script;
        let budgets_hold = driver.options().call_faults == CallFaultRates::default();
        Self {
            driver,
            checker: Checker::new(),
            violations: Vec::new(),
            eventful: false,
            detached: 0,
            script_ends_by,
            budgets_hold,
        }
    }

    /// One step, and a look at what it did. `false`: nothing is left to be done, ever.
    pub fn step(&mut self) -> bool {
        let more = self.driver.step();
        self.look();
        more
    }

    /// Puts a fault in, now.
    pub fn inject(&mut self, fault: Fault) {
        if matches!(fault, Fault::NextCall(_, CallFault::Throttle)) {
            self.budgets_hold = false;
        }
        self.driver.inject(fault);
        self.look();
    }

    /// Ends every lasting fault.
    pub fn heal(&mut self) {
        self.driver.heal_all();
        self.look();
    }

    fn look(&mut self) {
        let world = self.driver.world();
        let ended_by_us = |news: &&News| matches!(news, News::AttachmentEnded { by, .. } if by.is_attachd());
        self.detached += world.news.iter().filter(ended_by_us).count() as u64;
        self.eventful = !world.touched.is_empty() || !world.news.is_empty();
        self.violations.extend(self.checker.look(self.driver.world()));
        self.driver.forget_news();
    }

    /// Whether an invariant is broken already.
    pub fn is_broken(&self) -> bool {
        !self.violations.is_empty()
    }

    /// Whether the script is over and what it set going has calmed down, with whatever faults still last.
    pub fn is_calm(&self) -> bool {
        self.driver.is_quiet() || self.world().now.monotonic >= self.script_ends_by
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.driver.steps()
    }

    /// Whether the last step changed the world.
    pub fn last_step_was_eventful(&self) -> bool {
        self.eventful
    }

    /// The broken invariants so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Calls by kind as the core commanded them.
    pub fn calls_decided(&self) -> &BTreeMap<&'static str, u64> {
        self.driver.calls_decided()
    }

    /// The world as it is.
    pub fn world(&self) -> &World {
        self.driver.world()
    }

    /// What was done since the last call.
    pub fn take_trace(&mut self) -> Vec<TraceEntry> {
        self.driver.take_trace()
    }

    /// The whole run: the script, then rest. `watch` sees the run before the first step and after each. Ends early on the
    /// first broken invariant.
    pub fn play(&mut self, mut watch: impl FnMut(&mut Self)) {
        watch(self);
        while !self.is_broken() && !self.is_calm() && self.step() {
            watch(self);
        }
        if !self.is_broken() {
            self.come_to_rest(watch);
        }
    }

    /// After the last fault: heals, lets the world come to rest, compares, and listens for silence. `watch` sees the run
    /// after each step. Ends early on the first broken invariant: what follows from it says nothing new.
    pub fn come_to_rest(&mut self, mut watch: impl FnMut(&mut Self)) {
        self.heal();
        watch(self);
        if !self.wait_for_quiet(&mut watch) || self.is_broken() {
            return;
        }
        self.violations.extend(check_rest(self.world()));
        let before = self.world().counts.clone();
        let until = self.world().now.monotonic + SILENCE;
        while self.world().now.monotonic < until && !self.is_broken() && self.step() {
            watch(self);
        }
        self.violations.extend(check_silence(self.world(), &before));
        if self.budgets_hold && !self.driver.was_throttled_by_chance() {
            self.violations.extend(check_never_throttled(self.world()));
        }
    }

    /// Steps until nothing but polls was sent for [`QUIET`]; tells it as a broken invariant if that never comes.
    fn wait_for_quiet(&mut self, watch: &mut impl FnMut(&mut Self)) -> bool {
        let start = self.world().now.monotonic;
        let (mut sent, mut since) = (self.world().counts.mutations_but_in_vain(), start);
        loop {
            let more = self.step();
            watch(self);
            let now = self.world().now.monotonic;
            let sent_now = self.world().counts.mutations_but_in_vain();
            if sent_now != sent || self.is_waited_for() {
                (sent, since) = (sent_now, now);
            }
            if self.is_broken() {
                return false;
            }
            if !more || now.saturating_since(since) >= QUIET {
                return true;
            }
            if now.saturating_since(start) >= PATIENCE {
                self.violations.push(restless(self.world(), now));
                return false;
            }
        }
    }

    /// Whether a call is under way that may yet change something: one that asks a full instance does not.
    fn is_waited_for(&self) -> bool {
        let world = self.world();
        world.calls_in_flight.iter().any(|call| call.kind != Ec2CallKind::Attach || !world.is_full(&call.instance))
    }

    /// Ends the run.
    pub fn into_report(self) -> Report {
        let world = self.driver.world();
        Report {
            steps: self.driver.steps(),
            simulated: world.now.monotonic.since_start(),
            measures: self.driver.measures().clone(),
            detached: self.detached,
            counts: world.counts.clone(),
            checked: self.checker.checked().clone(),
            violations: self.violations,
        }
    }
}

fn restless(world: &World, at: Monotonic) -> Violation {
    let often: Vec<String> = world.counts.by_kind.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let detail = format!("still sending {} hours after the last fault was healed", PATIENCE.as_secs() / 3600);
    Violation { invariant: Invariant::SilentAtRest, at, about: often.join(", "), detail }
}
