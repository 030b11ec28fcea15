//! Processes and leases: who leads, until when, and what becomes of the one before.

use super::process::Process;
use super::{Actor, Commander, Driver, Due, OldLeader};
use crate::controller::event::Term;
use crate::model::time::Monotonic;
use crate::sim::checkers::world::TermHeld;
use std::time::Duration;

/// How long a process takes to be there again after it died.
const START_TAKES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));
/// How long a process that lost its lease takes to end.
const END_TAKES: Duration = Duration::from_secs(20);

impl<C: Commander> Driver<C> {
    /// A process starts, lists everything, and takes the lease when it is free.
    pub(super) fn start_process(&mut self) {
        self.last_process += 1;
        let number = self.last_process;
        let core = C::new(&self.options.settings, &self.options.policy);
        let lat = self.options.latencies;
        let process = Process::start(number, core, self.now, &self.api, &lat, &mut self.dice.watches);
        self.processes.push(process);
        let at = self.lease_until.max(self.now.monotonic);
        self.schedule_due(at, Due::Takeover(number));
        self.note(Actor::Attachd(number), "process starts", "");
    }

    /// The lease is free: the process leads.
    pub(super) fn take_over(&mut self, number: u64) {
        if self.lease_until > self.now.monotonic {
            self.schedule_due(self.lease_until, Due::Takeover(number));
            return;
        }
        let (now, lease) = (self.now, self.options.lease);
        let roles = self.options.settings.roles.clone();
        let lease_until = self.lease_until;
        let term = Term(self.last_term + 1);
        let Some(process) = self.process(number) else { return };
        process.term = Some(term);
        // Until now it holds when the process started.
        let watched_since = std::mem::replace(&mut process.since, now.monotonic);
        process.guard_until = lease.map(|lease| now.monotonic + lease.duration);
        process.tell_guard(now, &roles);
        let until = process.guard_until;
        if self.last_term > 0 {
            self.begin_takeover();
        }
        self.last_term = term.0;
        for held in self.world.terms.values_mut() {
            held.ended.get_or_insert(lease_until);
        }
        self.world.watched_since.insert(term, watched_since);
        self.world.terms.insert(term, TermHeld { since: now.monotonic, ended: None });
        if let Some(until) = until {
            self.lease_until = until;
        }
        self.note(Actor::Attachd(number), format!("leads (term {})", term.0), "");
    }

    /// Lets every process that still can renew its lease whenever that is due until then. Nothing but the process looks at
    /// a renewal, so none is a step of its own; the core is told of each at its own time, so that it never sees a guard run
    /// short that did not.
    pub(super) fn renew_leases(&mut self, by: Monotonic) {
        let Some(lease) = self.options.lease else { return };
        let now = self.now;
        for process in self.processes.iter_mut().filter(|process| process.renews) {
            while let Some(until) = process.guard_until.map(|until| until + lease.renew_every)
                && by + lease.duration >= until
            {
                process.guard_until = Some(until);
                self.lease_until = until;
                let renewed = until.saturating_sub(lease.duration);
                process.tell_guard(now.plus(renewed.saturating_since(now.monotonic)), &self.options.settings.roles);
            }
        }
    }

    /// The guard of a process that is cut off has ended: it is told, and ends, but not before a moment: what hangs before
    /// the socket then is still there.
    pub(super) fn end_guard(&mut self, number: u64) {
        let (now, roles) = (self.now, self.options.settings.roles.clone());
        let Some(process) = self.process(number) else { return };
        process.term = None;
        process.tell_guard(now, &roles);
        self.plan();
        self.schedule_due(now.monotonic + END_TAKES, Due::Exit(number));
    }

    /// A process that lost its lease is gone.
    pub(super) fn exit(&mut self, number: u64) {
        self.kill(number, "it lost its lease");
    }

    /// The leader changes.
    pub(super) fn change_leader(&mut self, old: OldLeader) {
        let numbers: Vec<u64> = self.processes.iter().map(|process| process.number).collect();
        for number in numbers {
            let guard = self.process(number).and_then(|process| process.term.and(process.guard_until));
            match (old, guard) {
                (OldLeader::LivesOn, Some(until)) => {
                    let Some(process) = self.process(number) else { continue };
                    if std::mem::take(&mut process.renews) {
                        self.schedule_due(until, Due::GuardEnds(number));
                        self.note(Actor::Fault, format!("attachd-{number} is cut off from its lease"), "");
                    }
                }
                _ => self.kill(number, "the process died"),
            }
        }
        self.start_process();
    }

    /// The leading process dies and is started again.
    pub(super) fn restart_controller(&mut self) {
        let numbers: Vec<u64> = self.processes.iter().map(|process| process.number).collect();
        for number in numbers {
            self.kill(number, "the process died");
        }
        let takes = self.dice.calls.between(START_TAKES.0, START_TAKES.1);
        let at: Monotonic = self.now.monotonic + takes;
        self.schedule_due(at, Due::StartProcess);
    }

    /// A process is gone. What it has sent still lands; what has not reached the socket never will.
    fn kill(&mut self, number: u64, why: &str) {
        self.processes.retain(|process| process.number != number);
        let lost: Vec<u64> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.process == number && flight.sent.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.flights.remove(&id);
        }
        self.note(Actor::Attachd(number), "process ends", why);
    }
}
