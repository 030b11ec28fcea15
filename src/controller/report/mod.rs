//! What the cluster is told: node lists and events. Always a difference against what was acknowledged.

pub mod event_text;
pub mod node_status;
pub mod notes;
