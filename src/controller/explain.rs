//! Answers for people, as data: what waits, and why; how fresh what is believed of each attachment is.
//!
//! Flow: the loop asks between two plans. Walks everything once a question; must never change anything.

use std::collections::BTreeMap;
use std::time::Duration;

use super::actual::slot::Slot;
use super::store::Store;
use crate::model::ids::{NodeName, VolumeKey};
use crate::model::time::{Monotonic, Now};

/// One thing that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The volume.
    pub volume: VolumeKey,
    /// The node.
    pub node: NodeName,
    /// Attach or detach.
    pub leaving: bool,
    /// Why.
    pub why: String,
    /// Since when.
    pub since: Monotonic,
}

/// Everything that waits, with its reason.
pub(super) fn waiting(store: &Store) -> Vec<Waiting> {
    let slots =
        store.volumes.iter().flat_map(|(key, volume)| volume.slots.iter().map(move |(node, slot)| (key, node, slot)));
    slots
        .filter_map(|(key, node, slot)| {
            let blocked = slot.blocked.as_ref()?;
            let leaving = slot.leaving.is_some() || slot.cleared || slot.is_terminating();
            let (volume, node) = (key.clone(), node.clone());
            Some(Waiting { volume, node, leaving, why: blocked.reason.to_string(), since: blocked.since })
        })
        .collect()
}

/// How fresh what is believed of one node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// The attached EBS volumes of the node, each with how long ago it was read from EC2; one that was not read since the
    /// lease was got counts from there.
    pub volumes: BTreeMap<VolumeKey, Duration>,
}

impl Freshness {
    /// How long ago the volume was read whose last read is the oldest: all of the node is at least as fresh as that.
    pub fn oldest(&self) -> Duration {
        self.volumes.values().max().copied().unwrap_or_default()
    }
}

/// Of each node with an attached EBS volume. Empty without a lease: then nothing is read.
pub(super) fn freshness(store: &Store, now: Now) -> BTreeMap<NodeName, Freshness> {
    let mut nodes: BTreeMap<NodeName, Freshness> = BTreeMap::new();
    for (key, node, age) in reads(store, now) {
        nodes.entry(node.clone()).or_default().volumes.insert(key.clone(), age);
    }
    nodes
}

/// Each attached EBS volume with its node and how long ago it was read; none without a lease.
pub(super) fn reads(store: &Store, now: Now) -> impl Iterator<Item = (&VolumeKey, &NodeName, Duration)> {
    let since = store.ctx.leading_since.map(|since| since.monotonic);
    store.volumes.iter().filter(|(key, _)| key.driver.is_ebs()).flat_map(move |(key, volume)| {
        let read = since.map(|since| volume.readings.last_read().map_or(since, |read| read.max(since)));
        let age = read.map(|read| now.monotonic.saturating_since(read));
        let attached = volume.slots.iter().filter(|(_, slot)| is_attached(slot));
        attached.filter_map(move |(node, _)| Some((key, node, age?)))
    })
}

/// Whether the volume is attached there, by EC2's word or by that of its VolumeAttachment.
pub(super) fn is_attached(slot: &Slot) -> bool {
    slot.confirmed.is_some() || slot.object.as_ref().is_some_and(|object| object.status.attached)
}
