//! The simulator: the real [`crate::controller::Controller`] against strict models of EC2, the API server, kubelets and
//! people, in virtual time.
//!
//! Flow: models → events → the core → commands → models; the checkers look at the models, never at the commands. Must
//! never read a clock or draw from any randomness but the seeded one: the same seed is the same run, byte for byte.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod checkers;
