//! The single owner of the [`Controller`]: takes in all that is at hand, plans, starts commands, sleeps.
//!
//! Flow: watches and outcomes come in by channels, commands go to the executor, questions are answered between two
//! plans. Must never wait for anything but its own next wake and its channels, and never do IO.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::executor::{Executor, GIVEN_UP_AFTER};
use super::health::Heartbeat;
use super::metrics::Metrics;
use super::operation_times::OperationTimes;
use crate::controller::event::{Event, EventKind, Guard, GuardChange, Kind, WatchEvent};
use crate::controller::status::Status;
use crate::controller::{Controller, Wake};
use crate::model::outcome::Outcome;
use crate::model::time::Now;

/// The loop turns at least this often, so that a beat that stays away means something.
const LONGEST_NAP: Duration = Duration::from_secs(5);
/// A core that is due at once, again and again, still lets others run.
const SHORTEST_NAP: Duration = Duration::from_millis(1);
/// Beyond the time after which a call is given up, for its task to be scheduled and its outcome to arrive.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(2);

/// A question to the loop, answered between two plans.
#[derive(Debug)]
pub enum Question {
    /// Is everything at hand that decisions need?
    Readiness(oneshot::Sender<Readiness>),
    /// What are the core's figures?
    Status(oneshot::Sender<Status>),
}

/// Whether the process does its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Kinds whose first list is not complete.
    pub missing: Vec<Kind>,
    /// The process is going to end and starts nothing new.
    pub ending: bool,
}

impl Readiness {
    /// Whether everything is at hand.
    pub fn is_ready(&self) -> bool {
        self.missing.is_empty() && !self.ending
    }
}

/// Why the loop ended other than by being told to.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LoopError {
    /// No watch is left that could say anything.
    #[error("every watch has ended")]
    WatchesEnded,
}

/// Where things come in.
#[derive(Debug)]
pub struct Inputs {
    /// From the watches; bounded, so that a large list waits at its source.
    pub watches: mpsc::Receiver<Event>,
    /// From the executor.
    pub outcomes: mpsc::UnboundedReceiver<Outcome>,
    /// From the admin server.
    pub questions: mpsc::Receiver<Question>,
}

/// The loop's state.
pub struct EventLoop {
    controller: Controller,
    clock: Clock,
    inputs: Inputs,
    executor: Executor,
    metrics: Metrics,
    heartbeat: Heartbeat,
    times: OperationTimes,
    listing: Listing,
    ending: bool,
}

/// What woke the loop.
enum Woke {
    Told,
    Timer(Option<Wake>),
    Something,
    WatchesEnded,
}

impl EventLoop {
    /// A loop that has taken in nothing yet.
    pub fn new(
        controller: Controller,
        clock: Clock,
        inputs: Inputs,
        executor: Executor,
        metrics: Metrics,
        heartbeat: Heartbeat,
    ) -> Self {
        let times = OperationTimes::new(metrics.clone());
        let listing = Listing::default();
        Self { controller, clock, inputs, executor, metrics, heartbeat, times, listing, ending: false }
    }

    /// Turns until told to end; then waits for mutating calls in flight, for as long as one can take.
    pub async fn run(mut self, guard: Guard, ending: CancellationToken) -> Result<(), LoopError> {
        self.lead(guard);
        loop {
            self.turn();
            match self.sleep(&ending).await {
                Woke::Told => break,
                Woke::Timer(wake) => {
                    if let Some(wake) = wake {
                        let late_by = self.clock.now().monotonic.saturating_since(wake.at);
                        self.metrics.loop_woke(late_by);
                        tracing::trace!(why = wake.why, ?late_by, "woke");
                    }
                }
                Woke::Something => {}
                Woke::WatchesEnded => return Err(LoopError::WatchesEnded),
            }
        }
        self.wind_down().await;
        Ok(())
    }

    /// Every role is led from the start, by one guard.
    fn lead(&mut self, guard: Guard) {
        for role in self.controller.settings().roles.clone() {
            let now = self.clock.now();
            self.ingest(now, EventKind::Guard(GuardChange { role, guard: Some(guard) }));
        }
    }

    /// One turn: all at hand is taken in before anything is decided, else two halves of one story are acted on one by
    /// one. At hand is what was there when the turn began: a long list cannot keep the loop from planning.
    fn turn(&mut self) {
        let begun = self.clock.now();
        for _ in 0..self.inputs.outcomes.len() {
            let Ok(outcome) = self.inputs.outcomes.try_recv() else { break };
            self.take_in_outcome(begun, outcome);
        }
        for _ in 0..self.inputs.watches.len() {
            let Ok(event) = self.inputs.watches.try_recv() else { break };
            self.take_in_watch(event);
        }
        let now = self.clock.now();
        self.controller.plan(now);
        while let Some(command) = self.controller.poll_command() {
            self.times.command(&command, now.monotonic);
            self.executor.start(command);
        }
        while let Ok(question) = self.inputs.questions.try_recv() {
            self.answer(question);
        }
        self.heartbeat.beat();
        self.metrics.turn_ended(self.clock.now().monotonic.saturating_since(begun.monotonic));
    }

    /// Sleeps until something is at hand or the core is due. What wakes the loop is taken in here.
    async fn sleep(&mut self, ending: &CancellationToken) -> Woke {
        let now = self.clock.now();
        let latest = now.monotonic + LONGEST_NAP;
        let wake = self.controller.next_wake().filter(|wake| wake.at <= latest);
        let until = wake.map_or(latest, |wake| wake.at.max(now.monotonic + SHORTEST_NAP));
        tokio::select! {
            biased;
            () = ending.cancelled() => Woke::Told,
            Some(outcome) = self.inputs.outcomes.recv() => {
                self.take_in_outcome(self.clock.now(), outcome);
                Woke::Something
            }
            event = self.inputs.watches.recv() => match event {
                Some(event) => {
                    self.take_in_watch(event);
                    Woke::Something
                }
                None => Woke::WatchesEnded,
            },
            Some(question) = self.inputs.questions.recv() => {
                self.answer(question);
                Woke::Something
            }
            () = tokio::time::sleep_until(self.clock.instant_of(until)) => Woke::Timer(wake),
        }
    }

    fn take_in_outcome(&mut self, now: Now, outcome: Outcome) {
        self.times.outcome(&outcome);
        self.ingest(now, EventKind::Outcome(outcome));
    }

    fn take_in_watch(&mut self, event: Event) {
        if let EventKind::Watch(watch) = &event.kind {
            self.times.watch(watch, event.at.monotonic);
            if let Some(kind) = self.listing.follow(watch) {
                tracing::info!(resource = super::metrics::resource_of(kind), "first list complete");
                self.metrics.watch_synced(kind, true);
            }
        }
        self.ingest(event.at, event.kind);
    }

    fn ingest(&mut self, at: Now, kind: EventKind) {
        self.metrics.event_taken_in(match &kind {
            EventKind::Watch(_) => "watch",
            EventKind::Outcome(_) => "outcome",
            EventKind::Guard(_) => "guard",
        });
        self.controller.ingest(Event { at, kind });
    }

    fn answer(&self, question: Question) {
        match question {
            Question::Readiness(asker) => {
                let readiness = Readiness { missing: self.listing.missing(), ending: self.ending };
                // Whoever asked may have gone.
                let _ = asker.send(readiness);
            }
            Question::Status(asker) => {
                let _ = asker.send(self.controller.status(self.clock.now()));
            }
        }
    }

    /// Not ready any more, nothing new, and an end when every mutating call has its outcome or cannot get one.
    async fn wind_down(mut self) {
        self.ending = true;
        let in_flight = self.executor.mutating_in_flight();
        tracing::info!(in_flight, "ending: nothing new is started, waiting for mutating calls in flight");
        let deadline = tokio::time::sleep(GIVEN_UP_AFTER + SHUTDOWN_MARGIN);
        tokio::pin!(deadline);
        loop {
            self.heartbeat.beat();
            tokio::select! {
                biased;
                () = self.executor.mutating_ended() => break,
                Some(question) = self.inputs.questions.recv() => self.answer(question),
                () = &mut deadline => {
                    let in_flight = self.executor.mutating_in_flight();
                    tracing::warn!(in_flight, "ending although calls are in flight: the next process counts with them");
                    break;
                }
            }
        }
    }
}

/// Which first lists are complete.
#[derive(Debug, Default)]
struct Listing {
    complete: BTreeSet<Kind>,
}

impl Listing {
    /// The kind whose first list this event completes.
    fn follow(&mut self, event: &WatchEvent) -> Option<Kind> {
        match event {
            WatchEvent::End { kind, .. } => self.complete.insert(*kind).then_some(*kind),
            _ => None,
        }
    }

    fn missing(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| !self.complete.contains(kind)).collect()
    }
}

#[cfg(test)]
mod tests;
