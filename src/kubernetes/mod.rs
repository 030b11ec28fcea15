//! The Kubernetes adapter: watches become events, commands become requests, answers become results.
//!
//! ```text
//! API server ─► watch ─► lenient, objects ─► translate ─► controller::event
//! controller::command ─► request ─► write ─► API server ─► answer ─► model::outcome
//! ```
//!
//! Owns the wire: paths, patches, preconditions, time limits. Must never decide: a call is made once, as ordered, and
//! what comes back is reported as it is. Must never retry a write, queue one, or limit their rate.

pub mod answer;
pub mod connect;
pub mod lenient;
pub mod objects;
pub mod request;
pub mod translate;
pub mod watch;
pub mod write;

use std::sync::Arc;

use crate::model::time::Now;

/// Tells the time; the daemon owns the clock.
pub type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

pub use connect::{Clients, KubernetesError, connect};
pub use watch::watch_all;
pub use write::KubernetesClient;
