//! Answers for people, as data: what waits, and why.
//!
//! Flow: the loop asks between two plans. Walks everything once a question; must never change anything.

use super::store::Store;
use crate::model::ids::{NodeName, VolumeKey};
use crate::model::time::Monotonic;

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
