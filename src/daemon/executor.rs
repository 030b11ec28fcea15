//! Carries commands out: each at once, one attempt, and exactly one outcome whatever happens.
//!
//! Flow: the loop hands over each polled command; its outcome goes back to the loop through a channel. Compares
//! `not_after` and the term before it sends (the EC2 adapter compares `not_after` once more, when it has found
//! credentials). Must never queue, retry, limit or delay: that is the core's to decide.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use smol_str::SmolStr;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::call_name::{CallName, class_name, detail_of, result_name, subject_of};
use super::clock::Clock;
use super::metrics::Metrics;
use crate::controller::command::{BudgetClass, Call, Command, CommandId, Ec2Call, KubernetesCall};
use crate::controller::event::Term;
use crate::model::outcome::{CallResult, Outcome};
use crate::model::time::{Monotonic, Now};

/// After it a call is given up, whatever its adapter does. The adapters have limits of their own, which come first: the
/// attempt timeout that the rules count with (10 s), and for EC2 the time to find credentials before it.
pub const GIVEN_UP_AFTER: Duration = Duration::from_secs(13);

/// Sends one call, not after the given point, and classifies the answer. The future is dropped when it is given up.
pub type SendCall<C> = Box<dyn Fn(C, Option<Instant>) -> BoxFuture<'static, CallResult> + Send + Sync>;

/// The two sides that commands go to.
pub struct Backends {
    /// To EC2.
    pub ec2: SendCall<Ec2Call>,
    /// To the API server.
    pub kubernetes: SendCall<KubernetesCall>,
}

/// Starts commands and gives each one its outcome.
pub struct Executor {
    shared: Arc<Shared>,
    give_up_after: Duration,
}

struct Shared {
    backends: Backends,
    clock: Clock,
    metrics: Metrics,
    outcomes: mpsc::UnboundedSender<Outcome>,
    /// The period of leadership that is held now: a mutating command of another is not sent.
    term: AtomicU64,
    /// Mutating calls that have no outcome yet.
    mutating: watch::Sender<usize>,
}

impl Executor {
    /// An executor, and where its outcomes come out.
    pub fn new(
        backends: Backends,
        clock: Clock,
        metrics: Metrics,
        term: Term,
    ) -> (Self, mpsc::UnboundedReceiver<Outcome>) {
        // Unbounded, because a call that has ended must never wait to say so; bounded all the same by the commands in
        // flight, which the core limits.
        let (outcomes, receiver) = mpsc::unbounded_channel();
        let term = AtomicU64::new(term.0);
        let shared = Shared { backends, clock, metrics, outcomes, term, mutating: watch::Sender::new(0) };
        (Self { shared: Arc::new(shared), give_up_after: GIVEN_UP_AFTER }, receiver)
    }

    /// Starts a command at once, on its own task.
    pub fn start(&self, command: Command) {
        let attempt = Attempt::new(Arc::clone(&self.shared), &command);
        tokio::spawn(carry_out(attempt, command, self.give_up_after));
    }

    /// How many mutating calls have no outcome yet.
    pub fn mutating_in_flight(&self) -> usize {
        *self.shared.mutating.borrow()
    }

    /// Waits until every mutating call has its outcome.
    pub async fn mutating_ended(&self) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.shared.mutating.subscribe().wait_for(|count| *count == 0).await;
    }
}

async fn carry_out(mut attempt: Attempt, command: Command, timeout: Duration) {
    let shared = Arc::clone(&attempt.shared);
    attempt.began = shared.clock.now();
    if !shared.may_send(&command, attempt.mutating, attempt.began.monotonic) {
        attempt.finish(CallResult::NotSent);
        return;
    }
    let not_after = command.not_after.map(|not_after| shared.clock.instant_of(not_after));
    let answer = async {
        match command.call {
            Call::Ec2(call) => (shared.backends.ec2)(call, not_after).await,
            Call::Kubernetes(call) => (shared.backends.kubernetes)(call, not_after).await,
        }
    };
    let result = match tokio::time::timeout(timeout, answer).await {
        Ok(result) => result,
        Err(_) => CallResult::Uncertain(SmolStr::new_static("given up without an answer")),
    };
    attempt.finish(result);
}

impl Shared {
    /// The check at the socket. A read of an ended term harms nobody.
    fn may_send(&self, command: &Command, mutating: bool, now: Monotonic) -> bool {
        let in_time = command.not_after.is_none_or(|not_after| now <= not_after);
        let in_term = !mutating || command.term.0 == self.term.load(Ordering::Acquire);
        in_time && in_term
    }
}

/// One command under way. Dropped without an outcome (the call panicked, or its task was cancelled), it says
/// `Uncertain`: so there is exactly one, always.
struct Attempt {
    shared: Arc<Shared>,
    id: CommandId,
    name: CallName,
    subject: String,
    class: BudgetClass,
    mutating: bool,
    began: Now,
    ended: bool,
}

impl Attempt {
    fn new(shared: Arc<Shared>, command: &Command) -> Self {
        let mutating = match &command.call {
            Call::Ec2(call) => call.is_mutating(),
            Call::Kubernetes(call) => call.is_mutating(),
        };
        let name = CallName::of(&command.call);
        if mutating {
            shared.mutating.send_modify(|count| *count += 1);
        }
        shared.metrics.call_began(name);
        let began = shared.clock.now();
        let subject = subject_of(&command.call);
        Self { shared, id: command.id, name, subject, class: command.class, mutating, began, ended: false }
    }

    fn finish(mut self, result: CallResult) {
        self.end(result);
    }

    fn end(&mut self, result: CallResult) {
        self.ended = true;
        let ended = self.shared.clock.now();
        let took = ended.monotonic.saturating_since(self.began.monotonic);
        self.shared.metrics.call_ended(self.name, &result, took);
        self.log(&result, took);
        // Nobody listens any more only when the process ends.
        let _ = self.shared.outcomes.send(Outcome { id: self.id, began: self.began, ended, result });
        if self.mutating {
            self.shared.mutating.send_modify(|count| *count -= 1);
        }
    }

    /// A line for every mutating call, and for every read that failed.
    fn log(&self, result: &CallResult, took: Duration) {
        let (outcome, reason) = result_name(result);
        let (id, call, subject, why) = (self.id.0, self.name, self.subject.as_str(), class_name(self.class));
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let detail = detail_of(result);
        let quiet = !self.mutating || self.class == BudgetClass::Event;
        match result {
            CallResult::Done(_) if quiet => tracing::debug!(id, %call, subject, why, outcome, took_ms),
            CallResult::Done(_) => tracing::info!(id, %call, subject, why, outcome, took_ms),
            CallResult::NotSent | CallResult::Throttled => tracing::warn!(id, %call, subject, why, outcome, took_ms),
            CallResult::Refused(_) => tracing::warn!(id, %call, subject, why, outcome, reason, detail, took_ms),
            CallResult::Uncertain(_) => tracing::warn!(id, %call, subject, why, outcome, detail, took_ms),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.ended {
            let why = if std::thread::panicking() { "the call panicked" } else { "the call was cancelled" };
            self.end(CallResult::Uncertain(SmolStr::new_static(why)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;
    use crate::model::device::DeviceName;
    use crate::model::ids::{AwsVolumeId, InstanceId, NodeName};
    use crate::model::outcome::Answer;

    const TERM: Term = Term(3);

    fn executor(
        ec2: impl Fn(Ec2Call) -> BoxFuture<'static, CallResult> + Send + Sync + 'static,
    ) -> (Executor, mpsc::UnboundedReceiver<Outcome>) {
        let kubernetes = Box::new(|_, _| Box::pin(future::ready(CallResult::Done(Answer::Node(None)))) as BoxFuture<_>);
        let backends = Backends { ec2: Box::new(move |call, _| ec2(call)), kubernetes };
        Executor::new(backends, Clock::start(), Metrics::new(Clock::start()), TERM)
    }

    fn accepted() -> BoxFuture<'static, CallResult> {
        Box::pin(future::ready(CallResult::Done(Answer::Accepted)))
    }

    fn detach(id: u64) -> Command {
        let call = Ec2Call::DetachVolume {
            volume: AwsVolumeId::parse("vol-1").unwrap(),
            instance: InstanceId::parse("i-1").unwrap(),
            device: DeviceName::new("/dev/xvdaa"),
        };
        Command { id: CommandId(id), term: TERM, not_after: None, class: BudgetClass::Detach, call: Call::Ec2(call) }
    }

    /// The outcomes of everything started, after all tasks have ended.
    async fn outcomes(executor: Executor, mut receiver: mpsc::UnboundedReceiver<Outcome>) -> Vec<Outcome> {
        drop(executor);
        let mut outcomes = Vec::new();
        while let Some(outcome) = receiver.recv().await {
            outcomes.push(outcome);
        }
        outcomes
    }

    #[tokio::test]
    async fn an_answer_comes_back_once_with_its_times() {
        let (executor, receiver) = executor(|_| accepted());
        executor.start(detach(7));
        let outcomes = outcomes(executor, receiver).await;
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].id, CommandId(7));
        assert_eq!(outcomes[0].result, CallResult::Done(Answer::Accepted));
        assert!(outcomes[0].began.monotonic <= outcomes[0].ended.monotonic);
    }

    #[tokio::test]
    async fn nothing_is_sent_after_not_after_or_in_another_term() {
        let (executor, receiver) = executor(|_| panic!("sent"));
        let past = Some(Monotonic::ZERO);
        executor.start(Command { not_after: past, ..detach(1) });
        executor.start(Command { term: Term(2), ..detach(2) });
        executor.start(Command { term: Term(4), ..detach(3) });
        let results: Vec<CallResult> = outcomes(executor, receiver).await.into_iter().map(|o| o.result).collect();
        assert_eq!(results, [CallResult::NotSent, CallResult::NotSent, CallResult::NotSent]);
    }

    #[tokio::test]
    async fn a_read_is_sent_in_any_term() {
        let (executor, receiver) = executor(|_| accepted());
        let call = Call::Kubernetes(KubernetesCall::GetNode { name: NodeName::new("n1") });
        executor.start(Command { term: Term(0), call, ..detach(1) });
        assert_eq!(outcomes(executor, receiver).await[0].result, CallResult::Done(Answer::Node(None)));
    }

    #[tokio::test]
    async fn a_panic_is_one_uncertain_outcome() {
        let (executor, receiver) = executor(|_| panic!("a fault of the adapter"));
        executor.start(detach(1));
        let outcomes = outcomes(executor, receiver).await;
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].result, CallResult::Uncertain("the call panicked".into()));
    }

    #[tokio::test]
    async fn an_attempt_without_an_answer_ends_uncertain() {
        let (mut executor, receiver) = executor(|_| Box::pin(future::pending()));
        executor.give_up_after = Duration::from_millis(5);
        executor.start(detach(1));
        let outcomes = outcomes(executor, receiver).await;
        assert_eq!(outcomes.len(), 1);
        assert_eq!(outcomes[0].result, CallResult::Uncertain("given up without an answer".into()));
    }

    #[test]
    fn a_cancelled_task_is_one_uncertain_outcome() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (executor, mut receiver) = executor(|_| Box::pin(future::pending()));
        runtime.block_on(async {
            executor.start(detach(1));
            tokio::task::yield_now().await;
            assert_eq!(executor.mutating_in_flight(), 1);
        });
        drop(runtime);
        assert_eq!(executor.mutating_in_flight(), 0);
        let outcome = receiver.try_recv().unwrap();
        assert_eq!(outcome.result, CallResult::Uncertain("the call was cancelled".into()));
        assert!(receiver.try_recv().is_err(), "exactly one");
    }

    #[tokio::test]
    async fn the_end_of_mutating_calls_can_be_waited_for_and_reads_do_not_hold_it_up() {
        let (release, released) = watch::channel(false);
        let (executor, mut receiver) = executor(move |call| {
            let mut released = released.clone();
            Box::pin(async move {
                if !call.is_mutating() {
                    return future::pending().await;
                }
                let _ = released.wait_for(|released| *released).await;
                CallResult::Done(Answer::Accepted)
            })
        });
        let read = Call::Ec2(Ec2Call::DescribeVolumes { volumes: Vec::new(), next_token: None });
        executor.start(Command { call: read, ..detach(1) });
        executor.start(detach(2));
        assert!(tokio::time::timeout(Duration::from_millis(10), executor.mutating_ended()).await.is_err());
        release.send(true).unwrap();
        executor.mutating_ended().await;
        assert_eq!(receiver.recv().await.unwrap().id, CommandId(2));
    }
}
