//! Actual state of world: what we believe is attached, how surely, since when, on what evidence.

pub mod full_instances;
pub mod in_flight;
pub mod in_use;
pub mod nodes;
pub mod readings;
pub mod slot;
pub mod volume;
