//! The virtual clock and everything that hangs on it: delivers events, carries out commands, injects faults.

mod fault;
mod trace;

pub use fault::{CallFault, CallTarget, Fault, OldLeader};
pub use trace::{Actor, TraceEntry};
