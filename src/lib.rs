//! attachd keeps AWS EBS volumes attached where Kubernetes pods need them, and nowhere else.
//!
//! ```text
//! Kubernetes watches ─► desired ─┐                                      ┌─► EC2 calls ────────┐
//!                                ├─► plan ─► operations ─► commands ────┤                     ├─► outcomes come back as events
//! EC2 bulk polls ─────► actual ──┘  (diff)   (state machines, budget)   └─► Kubernetes writes ┘
//! ```
//!
//! Everything between "events in" and "commands out" is pure; imports run one way:
//! [`model`] ← [`controller`] ← {`kubernetes`, `ec2`, [`sim`]} ← `sandbox` ← `daemon` ← [`cli`] ← main.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod cli;
#[cfg(feature = "daemon")]
pub mod config;
pub mod controller;
#[cfg(feature = "daemon")]
pub mod daemon;
#[cfg(feature = "daemon")]
pub mod ec2;
#[cfg(feature = "daemon")]
pub mod kubernetes;
pub mod model;
#[cfg(feature = "daemon")]
pub mod sandbox;
pub mod sim;
