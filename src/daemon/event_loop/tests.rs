//! The loop with both ends of its channels in hand.

use std::future;

use futures::future::BoxFuture;

use super::*;
use crate::controller::command::{BudgetClass, Call, Command, CommandId, Ec2Call};
use crate::controller::event::Term;
use crate::controller::policy::{Policy, Settings};
use crate::daemon::executor::Backends;
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId};
use crate::model::outcome::{Answer, CallResult};
use crate::model::time::Monotonic;

const GUARD: Guard = Guard { term: Term(1), since: Monotonic::ZERO, until: None };

/// A loop with both ends of its channels, and calls to EC2 that wait for `answer`.
struct Bench {
    event_loop: EventLoop,
    clock: Clock,
    watches: mpsc::Sender<Event>,
    questions: mpsc::Sender<Question>,
    answer: tokio::sync::watch::Sender<bool>,
}

fn bench() -> Bench {
    let clock = Clock::start();
    let metrics = Metrics::new(clock);
    let (answer, answered) = tokio::sync::watch::channel(false);
    let ec2 = move |_, _| {
        let mut answered = answered.clone();
        Box::pin(async move {
            let _ = answered.wait_for(|answered| *answered).await;
            CallResult::Done(Answer::Accepted)
        }) as BoxFuture<'static, CallResult>
    };
    let kubernetes = |_, _| Box::pin(future::pending()) as BoxFuture<'static, CallResult>;
    let backends = Backends { ec2: Box::new(ec2), kubernetes: Box::new(kubernetes) };
    let (executor, outcomes) = Executor::new(backends, clock, metrics.clone(), GUARD.term);
    let (watches, watched) = mpsc::channel(16);
    let (questions, asked) = mpsc::channel(1);
    let inputs = Inputs { watches: watched, outcomes, questions: asked };
    let controller = Controller::new(Settings::default(), Policy::FULL);
    let event_loop = EventLoop::new(controller, clock, inputs, executor, metrics, Heartbeat::new(clock));
    Bench { event_loop, clock, watches, questions, answer }
}

fn detach() -> Command {
    let call = Ec2Call::DetachVolume {
        volume: AwsVolumeId::parse("vol-1").unwrap(),
        instance: InstanceId::parse("i-1").unwrap(),
        device: DeviceName::new("/dev/xvdaa"),
    };
    let (id, term, class) = (CommandId(1), GUARD.term, BudgetClass::Detach);
    Command { id, term, not_after: None, class, call: Call::Ec2(call) }
}

async fn readiness(questions: &mpsc::Sender<Question>) -> Readiness {
    let (asker, answer) = oneshot::channel();
    questions.send(Question::Readiness(asker)).await.unwrap();
    answer.await.unwrap()
}

#[tokio::test]
async fn it_is_ready_once_every_first_list_is_complete() {
    let Bench { event_loop, clock, watches, questions, .. } = bench();
    let ending = CancellationToken::new();
    let running = tokio::spawn(event_loop.run(GUARD, ending.clone()));
    assert_eq!(readiness(&questions).await.missing, Kind::ALL);
    for kind in Kind::ALL {
        for watch in [WatchEvent::Begin { kind, generation: 1 }, WatchEvent::End { kind, generation: 1 }] {
            assert!(!readiness(&questions).await.is_ready());
            watches.send(Event { at: clock.now(), kind: EventKind::Watch(watch) }).await.unwrap();
        }
    }
    while !readiness(&questions).await.is_ready() {
        tokio::task::yield_now().await;
    }
    ending.cancel();
    assert_eq!(running.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn it_ends_when_told_but_not_before_mutating_calls_have_ended() {
    let Bench { event_loop, watches, questions, answer, .. } = bench();
    event_loop.executor.start(detach());
    let ending = CancellationToken::new();
    ending.cancel();
    let running = tokio::spawn(event_loop.run(GUARD, ending));
    // The first turn may answer the first question, before the loop looks whether it was told.
    while !readiness(&questions).await.ending {}
    assert!(!running.is_finished());
    answer.send(true).unwrap();
    assert_eq!(running.await.unwrap(), Ok(()));
    drop(watches);
}

/// Neither EC2 nor its adapter ends the call: it is given up, and the loop ends. This test takes that long.
#[tokio::test]
async fn a_call_that_never_ends_holds_up_the_end_for_thirteen_seconds() {
    let Bench { event_loop, watches, answer, .. } = bench();
    event_loop.executor.start(detach());
    let ending = CancellationToken::new();
    ending.cancel();
    let told = std::time::Instant::now();
    assert_eq!(event_loop.run(GUARD, ending).await, Ok(()));
    let took = told.elapsed();
    assert!((GIVEN_UP_AFTER..GIVEN_UP_AFTER + SHUTDOWN_MARGIN).contains(&took), "{took:?}");
    drop((watches, answer));
}

#[tokio::test]
async fn the_end_of_every_watch_is_an_error() {
    let Bench { event_loop, watches, .. } = bench();
    drop(watches);
    assert_eq!(event_loop.run(GUARD, CancellationToken::new()).await, Err(LoopError::WatchesEnded));
}

#[tokio::test]
async fn each_turn_takes_in_what_was_at_hand_and_beats() {
    let Bench { mut event_loop, clock, watches, .. } = bench();
    for kind in Kind::ALL {
        let end = WatchEvent::End { kind, generation: 1 };
        watches.send(Event { at: clock.now(), kind: EventKind::Watch(end) }).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(event_loop.heartbeat.age() >= Duration::from_millis(20));
    event_loop.turn();
    assert!(event_loop.heartbeat.age() < Duration::from_millis(20));
    assert_eq!(event_loop.listing.missing(), [], "all seven in one turn");
}
