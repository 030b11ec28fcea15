//! One volume: what EC2 showed of it, the calls under way for it, and its attachments by node.

use std::collections::{BTreeMap, BTreeSet};

use super::in_flight::CallsInFlight;
use super::readings::Readings;
use super::slot::Slot;
use crate::model::ids::{InstanceId, NodeName, Uid};
use crate::model::time::{Monotonic, Wall};

/// One volume.
#[derive(Debug, Default)]
pub struct Volume {
    /// What EC2 showed (EBS only).
    pub readings: Readings,
    /// Mutating calls neither answered nor dead (EBS only).
    pub calls: CallsInFlight,
    /// Its attachments, wanted or found, by node name. Boxed: one is taken out and put back at every look.
    pub slots: BTreeMap<NodeName, Box<Slot>>,
    /// UIDs of VolumeAttachments that this process ended: a late watch event must not bring them back.
    pub ended: BTreeMap<Uid, Monotonic>,
    /// AttachTime of the last attachment confirmed per instance: a later one must show another.
    pub attach_times: BTreeMap<InstanceId, Wall>,
    /// Instances it has doubts about (rule 18).
    pub doubted: BTreeSet<InstanceId>,
    /// EC2 said that its blocks are all loaded from its snapshot; asked only where a PersistentVolume makes it a condition.
    pub initialized: bool,
    /// Nodes that list the volume though no VolumeAttachment of it is known (rule 9).
    pub listed_only: BTreeSet<NodeName>,
    /// Instances with an attachment that nothing here explains, and whether it was reported; `None` is a host that AWS
    /// manages.
    pub foreign: BTreeMap<Option<InstanceId>, Reported>,
}

/// Whether people were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// One read is no news yet.
    NotYet,
    /// They were.
    Yes,
}

impl Volume {
    /// Whether nothing is left to remember.
    pub fn is_forgettable(&self) -> bool {
        self.slots.is_empty()
            && self.calls.is_empty()
            && self.ended.is_empty()
            && self.listed_only.is_empty()
            && self.foreign.is_empty()
    }
}
