//! /livez, /readyz and /metrics over HTTP.
//!
//! Flow: a question goes to the loop and is answered between two plans; the heartbeat and the metrics are shared. Must
//! never touch the core.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::event_loop::Question;
use super::health::Heartbeat;
use super::metrics::{CONTENT_TYPE, Metrics, resource_of};

/// A loop that has not turned for so long is stuck: it turns every few seconds at rest.
const STUCK: Duration = Duration::from_secs(30);
/// How long a question may wait for a turn to end.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What the handlers share.
#[derive(Clone, Debug)]
pub struct Admin {
    /// To the loop.
    pub questions: mpsc::Sender<Question>,
    /// Of the loop.
    pub heartbeat: Heartbeat,
    /// Of everything.
    pub metrics: Metrics,
}

/// Why a question has no answer.
enum Unanswered {
    /// The loop has ended.
    Ended,
    /// The loop is busy, or stuck.
    Late,
}

impl Admin {
    /// Serves until told to end.
    pub async fn serve(self, listener: TcpListener, ending: CancellationToken) -> std::io::Result<()> {
        axum::serve(listener, self.router()).with_graceful_shutdown(ending.cancelled_owned()).await
    }

    /// Puts a question to the loop.
    async fn ask<A>(&self, question: impl FnOnce(oneshot::Sender<A>) -> Question) -> Result<A, Unanswered> {
        let (asker, answer) = oneshot::channel();
        let asked = async {
            self.questions.send(question(asker)).await.map_err(|_| Unanswered::Ended)?;
            answer.await.map_err(|_| Unanswered::Ended)
        };
        tokio::time::timeout(ANSWER_WITHIN, asked).await.unwrap_or(Err(Unanswered::Late))
    }

    fn router(self) -> Router {
        Router::new()
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

async fn livez(State(admin): State<Admin>) -> (StatusCode, String) {
    let age = admin.heartbeat.age();
    if age <= STUCK {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("the event loop has not turned for {} s\n", age.as_secs()))
    }
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    let unavailable = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why);
    match admin.ask(Question::Readiness).await {
        Ok(readiness) if readiness.is_ready() => (StatusCode::OK, "ok\n".to_owned()),
        Ok(readiness) if readiness.ending => unavailable("ending\n".to_owned()),
        Ok(readiness) => {
            let missing: Vec<&str> = readiness.missing.into_iter().map(resource_of).collect();
            unavailable(format!("not listed yet: {}\n", missing.join(", ")))
        }
        Err(Unanswered::Ended) => unavailable("ended\n".to_owned()),
        Err(Unanswered::Late) => unavailable("the event loop does not answer\n".to_owned()),
    }
}

/// Scraped even when the loop does not answer: then most of all.
async fn metrics(State(admin): State<Admin>) -> Response {
    admin.metrics.show_status(admin.ask(Question::Status).await.ok());
    match admin.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::controller::event::Kind;
    use crate::controller::status::Status;
    use crate::daemon::clock::Clock;
    use crate::daemon::event_loop::Readiness;

    /// An admin whose questions are answered so; `None`: by nobody, the loop has ended.
    fn admin(readiness: Option<Readiness>) -> Admin {
        let (questions, mut asked) = mpsc::channel(1);
        if let Some(readiness) = readiness {
            tokio::spawn(async move {
                while let Some(question) = asked.recv().await {
                    match question {
                        Question::Readiness(asker) => asker.send(readiness.clone()).unwrap(),
                        Question::Status(asker) => {
                            asker.send(Status { unresolved_pods: 7, ..Status::default() }).unwrap();
                        }
                    }
                }
            });
        }
        let clock = Clock::start();
        Admin { questions, heartbeat: Heartbeat::new(clock), metrics: Metrics::new(clock) }
    }

    async fn get(admin: Admin, path: &str) -> (StatusCode, Option<String>, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = admin.router().oneshot(request).await.unwrap();
        let content_type = response.headers().get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned());
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, content_type, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readyz_names_what_is_missing() {
        let missing = Readiness { missing: vec![Kind::Pod, Kind::Attachment], ending: false };
        let (status, _, body) = get(admin(Some(missing)), "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "not listed yet: pods, volumeattachments\n");
    }

    #[tokio::test]
    async fn readyz_is_ok_when_all_is_there_and_not_while_ending() {
        let ready = Readiness { missing: Vec::new(), ending: false };
        assert_eq!(get(admin(Some(ready.clone())), "/readyz").await.0, StatusCode::OK);
        let ending = Readiness { ending: true, ..ready };
        assert_eq!(get(admin(Some(ending)), "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(get(admin(None), "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn livez_follows_the_heartbeat_and_needs_no_answer() {
        assert_eq!(get(admin(None), "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_show_the_figures_of_the_core_or_none_without_an_answer() {
        let ready = Readiness { missing: Vec::new(), ending: false };
        assert!(get(admin(Some(ready)), "/metrics").await.2.contains("\nattachd_unresolved_pods 7.0\n"));
        assert!(!get(admin(None), "/metrics").await.2.contains("attachd_unresolved_pods"));
    }

    #[tokio::test]
    async fn metrics_are_in_the_text_format() {
        let (status, content_type, body) = get(admin(None), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(content_type.as_deref(), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(body.contains("\nattachd_watch_synced{kind=\"pods\"} 0\n"), "{body}");
    }
}
