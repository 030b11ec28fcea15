//! The nouns every layer shares: identities, and what Kubernetes and EC2 last said about one object.
//!
//! Flow: adapters (or the simulator's models) translate the outside into these types once; the controller reads them and
//! nothing else. Owns parsing and comparison of identities. Must never do IO, read a clock, or know a Kubernetes or AWS
//! client type.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod attachment;
mod attachment_name;
pub mod claim;
mod csi;
pub mod device;
mod ec2_ids;
mod hex_digits;
pub mod ids;
pub mod node;
pub mod outcome;
pub mod pod;
mod searched_text;
pub mod time;
pub mod volume;
