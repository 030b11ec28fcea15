//! Carries out commands: to the socket, to the server, and back.

use smol_str::SmolStr;

use super::fault::CallFault;
use super::flight::{self, Course, Flight};
use super::{Actor, Commander, Driver, Due, Trigger};
use crate::controller::command::{Call, Command, Ec2Call, KubernetesCall};
use crate::controller::event::{EventKind, Term};
use crate::model::ids::{AttachmentName, AwsVolumeId, InstanceId};
use crate::model::outcome::{Answer, CallResult, Outcome};
use crate::model::time::Monotonic;
use crate::model::volume::InstanceState;
use crate::sim::checkers::world::{Actor as Writer, AttachmentCallKind, Ec2CallInFlight, Ec2CallKind, MountKey, News};
use crate::sim::ec2::Caller;

/// What checkers are told of a call beside its kind.
fn sent_news(call: &Call, term: Term, sent: Monotonic) -> Option<News> {
    let volume_call = |kind, volume: &AwsVolumeId, instance: &InstanceId| {
        let (volume, instance) = (volume.clone(), instance.clone());
        News::VolumeCallSent(Ec2CallInFlight { volume, instance, kind, term, sent })
    };
    let attachment_call =
        |kind, name: &AttachmentName| News::AttachmentCallSent { kind, name: name.clone(), term, at: sent };
    Some(match call {
        Call::Ec2(Ec2Call::AttachVolume { volume, instance, .. }) => volume_call(Ec2CallKind::Attach, volume, instance),
        Call::Ec2(Ec2Call::DetachVolume { volume, instance, .. }) => volume_call(Ec2CallKind::Detach, volume, instance),
        Call::Kubernetes(KubernetesCall::DeleteAttachment { name, .. }) => {
            attachment_call(AttachmentCallKind::Delete, name)
        }
        Call::Kubernetes(KubernetesCall::SetAttachmentFinalizers { name, .. }) => {
            attachment_call(AttachmentCallKind::Finalizers, name)
        }
        _ => return None,
    })
}

impl<C: Commander> Driver<C> {
    /// A process starts a call at once, as it must.
    pub(super) fn start_call(&mut self, process: u64, command: Command) {
        *self.decided.entry(flight::kind_name(&command.call)).or_default() += 1;
        let placed = self.call_faults.iter().position(|(target, _)| flight::is_target(*target, &command.call));
        let fault = match placed {
            Some(index) => self.call_faults.remove(index).map(|(_, fault)| fault),
            None => flight::draw_fault(&self.options.call_faults, &mut self.dice.calls),
        };
        let (from, to) = self.options.latencies.executor;
        let mut at = self.now.monotonic + self.dice.calls.between(from, to);
        if let Some(CallFault::DelaySend(by)) = fault {
            at = at + by;
        }
        self.last_flight += 1;
        let id = self.last_flight;
        let began = self.now;
        let flight = Flight {
            process,
            command,
            fault,
            began,
            sent: None,
            arrivals: 0,
            answer: None,
            in_time: false,
            answered: false,
        };
        self.flights.insert(id, flight);
        self.schedule_due(at, Due::Send(id));
    }

    /// The call reaches the socket: `not_after` is compared here and nowhere else.
    pub(super) fn send(&mut self, id: u64) {
        let now = self.now.monotonic;
        let Some(flight) = self.flights.get_mut(&id) else { return };
        if flight.command.not_after.is_some_and(|not_after| now > not_after) {
            flight.answer = Some(CallResult::NotSent);
            flight.in_time = true;
            self.answer(id);
            return;
        }
        let call = &flight.command.call;
        let course = Course::draw(now, call, flight.fault, &self.options.latencies, &mut self.dice.calls);
        flight.sent = Some(now);
        flight.arrivals = course.arrivals.len() as u32;
        flight.in_time = course.answered.is_some();
        let (kind, term, mutating) = (flight::kind_name(call), flight.command.term, flight::is_mutating(call));
        let is_event = matches!(call, Call::Kubernetes(KubernetesCall::CreateEvent(_)));
        *self.world.counts.by_kind.entry(kind).or_default() += 1;
        if let Call::Ec2(Ec2Call::AttachVolume { instance, .. }) = call {
            self.world.counts.asked_of_full += u64::from(self.ec2.is_full(instance));
        }
        let told = sent_news(call, term, now);
        if mutating {
            self.world.news.push(News::CallSent { kind, term, at: now });
            self.world.news.extend(told);
        }
        if mutating && !is_event {
            self.last_activity = now;
        }
        self.tell_takeover(id);
        for at in course.arrivals {
            self.schedule_due(at, Due::Arrive(id));
        }
        self.schedule_due(course.answered.unwrap_or(course.given_up), Due::Answer(id));
        self.mirror_flights();
        self.pull_triggers(kind);
    }

    /// Lets follow what was to follow on this call.
    fn pull_triggers(&mut self, kind: &'static str) {
        let count = self.world.counts.of(kind);
        let is_due = |trigger: &Trigger| trigger.kind == kind && trigger.nth == count;
        let (due, rest) = std::mem::take(&mut self.triggers).into_iter().partition(is_due);
        self.triggers = rest;
        for Trigger { after, fault, .. } in due {
            self.schedule(after, fault);
        }
    }

    /// The call reaches its server, which carries it out, whether anybody still waits for the answer or not.
    pub(super) fn arrive(&mut self, id: u64) {
        let Some(flight) = self.flights.get(&id) else { return };
        let (command, fault, process) = (flight.command.clone(), flight.fault, flight.process);
        let result = if fault == Some(CallFault::Throttle) {
            CallResult::Throttled
        } else {
            match &command.call {
                Call::Ec2(call) => self.ec2.call_as(self.now, &Caller::Leader(command.term), call),
                Call::Kubernetes(call) => {
                    if let KubernetesCall::GetNode { name } = call {
                        self.world.news.push(News::NodeRead { node: name.clone() });
                    }
                    let call = super::preconditions::as_policy_has_it(call, &self.options.policy, &self.api);
                    self.api.call(self.now, Writer::Attachd(command.term), &call)
                }
            }
        };
        self.count_answer(&command.call, &result);
        if result == CallResult::Done(Answer::Accepted) {
            self.count_detach_under_a_mount(&command.call);
        }
        if self.options.trace && flight::is_mutating(&command.call) {
            let late = fault.map(|fault| format!(" [{fault:?}]")).unwrap_or_default();
            let what = super::describe::call(&command.call, &self.world);
            let why = match &result {
                CallResult::Done(_) => super::reason::of(&command.call, &self.world),
                result => super::describe::result(result),
            };
            self.note(Actor::Attachd(process), what, why + &late);
        }
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.arrivals = flight.arrivals.saturating_sub(1);
        flight.answer = Some(result);
        if flight.answered && flight.arrivals == 0 {
            self.flights.remove(&id);
        }
        self.mirror_flights();
    }

    fn count_detach_under_a_mount(&mut self, call: &Call) {
        let Call::Ec2(Ec2Call::DetachVolume { volume, instance, .. }) = call else { return };
        let runs = self.world.instances.get(instance).is_some_and(|i| i.state == InstanceState::Running);
        let mount = |generation| MountKey { volume: volume.clone(), instance: instance.clone(), generation };
        let mounted = self.world.mounts.range(mount(0)..=mount(u64::MAX)).next().is_some();
        self.measures.detached_while_mounted += u64::from(runs && mounted);
    }

    fn count_answer(&mut self, call: &Call, result: &CallResult) {
        match (call, result) {
            (Call::Ec2(_), CallResult::Throttled) => self.world.counts.ec2_throttles += 1,
            (Call::Kubernetes(_), CallResult::Throttled) => self.world.counts.api_throttles += 1,
            (Call::Kubernetes(KubernetesCall::PatchNodeStatus { name, .. }), CallResult::Done(_)) => {
                *self.world.counts.node_patches.entry(name.clone()).or_default() += 1;
            }
            (Call::Kubernetes(KubernetesCall::CreateEvent(note)), CallResult::Done(_)) => {
                *self.measures.events.entry(note.reason).or_default() += 1;
            }
            _ => {}
        }
    }

    /// Whether the timeline says what came of a call beside that it landed: a read that fails again and again, only once.
    fn is_worth_a_line(&mut self, result: &CallResult, id: u64) -> bool {
        let Some(flight) = self.flights.get(&id) else { return false };
        let answered = matches!(result, CallResult::Done(_) | CallResult::Refused(_));
        if flight::is_mutating(&flight.command.call) {
            return !answered;
        }
        let kind = flight::kind_name(&flight.command.call);
        if answered {
            self.failing_reads.remove(kind);
            return false;
        }
        self.failing_reads.insert(kind)
    }

    /// The caller has its one outcome: the answer, or that it gave up.
    pub(super) fn answer(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        flight.answered = true;
        let result = match flight.answer.take() {
            Some(answer) if flight.in_time => answer,
            _ => CallResult::Uncertain(SmolStr::new_static("the attempt timed out")),
        };
        let outcome = Outcome { id: flight.command.id, began: flight.began, ended: self.now, result };
        let number = flight.process;
        if self.options.trace && self.is_worth_a_line(&outcome.result, id) {
            let what = self.flights.get(&id).map(|flight| super::describe::call(&flight.command.call, &self.world));
            let came = super::describe::result(&outcome.result);
            self.note(Actor::Attachd(number), what.unwrap_or_default(), came);
        }
        let Some(flight) = self.flights.get(&id) else { return };
        if flight.arrivals == 0 {
            self.flights.remove(&id);
        }
        let now = self.now;
        if let Some(process) = self.process(number) {
            process.ingest(now, EventKind::Outcome(outcome));
        }
    }
}
