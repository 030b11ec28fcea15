//! What the cluster is told of lists: always a difference against what was acknowledged. Events are told by `notes`.

pub mod node_status;
pub mod persistent_volume;
