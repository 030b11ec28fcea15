//! One call, one request, one attempt, one result.
//!
//! Flow: the executor calls [`KubernetesClient::call`] for each Kubernetes command; `request` builds, `answer` reads.
//! Owns the time limit of an attempt. Must never retry, queue, or limit: the core owns budgets and order.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;

use super::{Clock, answer, request};
use crate::controller::command::KubernetesCall;
use crate::model::outcome::CallResult;

/// The time limit of an attempt: the core counts on it (a call is dead 60 s after it; `not_after` leaves it room).
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the calls that commands ask for.
pub struct KubernetesClient {
    client: Client,
    clock: Clock,
    events: AtomicU64,
    attempt_timeout: Duration,
}

impl KubernetesClient {
    /// A client must be one that does not retry: [`super::Clients::calls`].
    pub fn new(client: Client, clock: Clock) -> Self {
        Self { client, clock, events: AtomicU64::new(0), attempt_timeout: ATTEMPT_TIMEOUT }
    }

    /// Makes the call, exactly once. Takes at most [`ATTEMPT_TIMEOUT`]. Dropping the future leaves the outcome unknown.
    pub async fn call(&self, call: &KubernetesCall) -> CallResult {
        let now = (self.clock)().wall;
        let serial = self.events.fetch_add(1, Ordering::Relaxed);
        let request = match request::build(call, now, serial) {
            Ok(request) => request,
            Err(error) => {
                tracing::error!(?call, %error, "a request cannot be built");
                return CallResult::NotSent;
            }
        };
        match tokio::time::timeout(self.attempt_timeout, self.attempt(request)).await {
            Ok(Ok((status, body))) => answer::read(call, status, &body),
            Ok(Err(error)) if is_refused_connection(&error) => CallResult::NotSent,
            Ok(Err(error)) => answer::uncertain(Chain(&error)),
            Err(_) => answer::uncertain(format_args!("no answer within {:?}", self.attempt_timeout)),
        }
    }

    /// Not by kube's typed requests: they log whole bodies they cannot decode, and lose the status of an answer that is
    /// not the API server's.
    async fn attempt(&self, request: Request<Vec<u8>>) -> Result<(u16, Vec<u8>), kube::Error> {
        let response = self.client.send(request.map(Body::from)).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect_bytes().await?;
        Ok((status, body.to_vec()))
    }
}

/// Nothing listened: nothing was sent. Only connect(2) answers ECONNREFUSED; a reset may come after the request.
fn is_refused_connection(error: &kube::Error) -> bool {
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

/// An error with its causes in one line: that of a connection says nothing without them.
struct Chain<'a>(&'a dyn Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
