//! Faults put exhaustively at every step of small worlds, alone and in pairs; and the search for the losses that each
//! rule of the core prevents.
//!
//! Flow: [`placement`] walks the [`catalogue`] over the steps of a world's fault-free run; each placement is a
//! [`Specification`] that can be run again alone. Owns where faults go. Must never lower what is placed to get green.

pub mod catalogue;
pub mod pairs;
pub mod placement;
pub mod sabotage;
mod specification;

pub use specification::{Placed, Specification, SpecificationError};
