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
pub mod telemetry;
