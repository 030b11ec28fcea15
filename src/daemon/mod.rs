//! The daemon: the core against a real API server and real EC2.
//!
//! ```text
//! watches ──► event_loop (owns the Controller) ──► executor ──► EC2, API server
//!                 ▲   ▲                               │
//!    admin ───────┘   └────────── outcomes ───────────┘
//! ```
//!
//! Owns tasks, channels, the clock and the end of the process. Must never decide anything about a volume.

pub mod admin;
pub mod call_name;
pub mod clock;
pub mod event_loop;
pub mod executor;
pub mod health;
pub mod metrics;
pub mod operation_times;
mod process_metrics;
mod status_metrics;
pub mod telemetry;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use smol_str::SmolStr;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, role_name};
use crate::controller::Controller;
use crate::controller::event::{Guard, Term};
use crate::controller::policy::{Policy, Settings};
use crate::ec2::Ec2Client;
use crate::kubernetes::{self, KubernetesClient};
use crate::model::time::Monotonic;
use admin::Admin;
use clock::Clock;
use event_loop::{EventLoop, Inputs, LoopError};
use executor::{Backends, Executor};
use health::Heartbeat;
use metrics::Metrics;

/// Watch events that wait for the loop: enough to keep it busy through a large list, few enough to hold no second copy
/// of the cluster. Beyond it the watches wait.
const EVENTS_AHEAD: usize = 4096;
/// Scrapes and probes that wait for the loop.
const QUESTIONS_AHEAD: usize = 16;
/// For answers under way when the process ends.
const ADMIN_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Leadership that starts with the process and never ends. There is no lease yet: one process runs, and whoever deploys
/// it sees to that.
const GUARD: Guard = Guard { term: Term(1), since: Monotonic::ZERO, until: None };

/// Runs until `ending` is cancelled and mutating calls in flight have ended. An error: something could not be had at
/// the start, or a part of the process has broken, which no part may outlive.
pub async fn run(config: Config, ending: CancellationToken) -> anyhow::Result<()> {
    let clock = Clock::start();
    let metrics = Metrics::new(clock);
    let heartbeat = Heartbeat::new(clock);
    let listener = TcpListener::bind(config.listen).await.with_context(|| format!("listen on {}", config.listen))?;
    let ec2 = Ec2Client::connect(config.ec2.endpoint.clone(), config.ec2.region.clone()).await.context("EC2")?;
    let clients = kubernetes::connect(config.kubeconfig.as_deref()).await.context("Kubernetes")?;
    let roles: Vec<&str> = config.settings.roles.iter().map(|role| role_name(*role)).collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        roles = roles.join(", "),
        force_detach = ?config.settings.force_detach,
        unmount_timeout = %humantime::format_duration(config.settings.unmount_timeout),
        listen = %config.listen,
        "starting"
    );

    let tell_time: kubernetes::Clock = Arc::new(move || clock.now());
    let (events, watched) = mpsc::channel(EVENTS_AHEAD);
    let mut watches = kubernetes::watch_all(&clients.watches, &events, &tell_time);
    // The watches hold the only senders: when the last one is gone, the loop knows.
    drop(events);
    let settings = Settings { region: ec2.region().map(SmolStr::new), ..config.settings };
    let backends = backends(ec2, KubernetesClient::new(clients.calls, tell_time));
    let (executor, outcomes) = Executor::new(backends, clock, metrics.clone(), GUARD.term);
    let (questions, asked) = mpsc::channel(QUESTIONS_AHEAD);
    let inputs = Inputs { watches: watched, outcomes, questions: asked };
    let controller = Controller::new(settings, Policy::FULL);
    let event_loop = EventLoop::new(controller, clock, inputs, executor, metrics.clone(), heartbeat.clone());

    let admin_ending = CancellationToken::new();
    let admin = Admin { questions, heartbeat, metrics };
    let mut admin = tokio::spawn(admin.serve(listener, admin_ending.clone()));
    let mut core = tokio::spawn(event_loop.run(GUARD, ending));
    tokio::select! {
        ended = &mut core => core_ended(ended)?,
        Some(ended) = watches.join_next() => bail!("a watch ended: {ended:?}"),
        ended = &mut admin => bail!("the admin server ended: {ended:?}"),
    }
    admin_ending.cancel();
    // A client that holds its connection does not hold up the end.
    let _ = tokio::time::timeout(ADMIN_ENDS_WITHIN, admin).await;
    tracing::info!("ended");
    Ok(())
}

/// A panic in the core is a broken invariant: the process ends, and the next one rebuilds the state.
fn core_ended(ended: Result<Result<(), LoopError>, JoinError>) -> anyhow::Result<()> {
    match ended {
        Ok(result) => Ok(result?),
        Err(error) if error.is_panic() => bail!("the core panicked; see the message before"),
        Err(error) => bail!("the event loop was cancelled: {error}"),
    }
}

fn backends(ec2: Ec2Client, kubernetes: KubernetesClient) -> Backends {
    let kubernetes = Arc::new(kubernetes);
    Backends {
        ec2: Box::new(move |call, not_after| {
            let ec2 = ec2.clone();
            Box::pin(async move { ec2.call_until(&call, not_after).await })
        }),
        // Nothing comes between the executor's check and the socket here but a connection, for which the attempt
        // timeout counts already.
        kubernetes: Box::new(move |call, _not_after| {
            let kubernetes = Arc::clone(&kubernetes);
            Box::pin(async move { kubernetes.call(&call).await })
        }),
    }
}
