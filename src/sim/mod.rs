//! The world in virtual time: strict models of EC2, the API server, kubelets and people around the very same
//! [`crate::controller::Controller`] that runs in production.
//!
//! Flow: a [`scenarios`] entry sets up a world; the [`driver`] owns the virtual clock and moves everything, one step at
//! a time; `checkers` look at plain snapshots of the models; `faults` places faults between steps. Owns every fault
//! the real things have. Must never read a clock, sleep, or draw from anything but its seed: same seed, same run, byte
//! for byte. Reaches the core by `ingest`, `plan`, `poll_command` and `next_wake`, and nothing else.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod api_server;
pub mod checkers;
pub mod dice;
pub mod driver;
pub mod ec2;
pub mod faults;
pub mod kubelet;
pub mod run;
pub mod scenarios;
pub mod workload;
