//! What must hold in the modelled world whatever the core does: the oracles of the simulator and of the tests on real
//! servers.
//!
//! Flow: a driver (the simulator's, or a test on real servers) keeps a [`world::World`] up to date and shows it after
//! each step. Owns the memory that comparing two looks needs, and nothing else. Must never see a command of the core:
//! what counts is what happened, not what was asked for.

pub mod world;
