//! Everything the core believes, in one place: the shared parts, the volumes, and where each VolumeAttachment belongs.

use std::collections::{BTreeMap, BTreeSet};

use super::actual::volume::Volume;
use super::context::Context;
use super::event::Kind;
use super::unresolved::Unresolved;
use crate::model::ids::{AttachmentKey, AttachmentName, Uid, VolumeKey};

/// What the core believes.
#[derive(Debug)]
pub struct Store {
    /// The shared parts.
    pub ctx: Context,
    /// Volumes by key.
    pub volumes: BTreeMap<VolumeKey, Volume>,
    /// Where each VolumeAttachment belongs.
    pub attachments: BTreeMap<AttachmentName, Indexed>,
    /// VolumeAttachments whose volume cannot be told (its PersistentVolume is not known).
    pub unresolved: BTreeMap<AttachmentName, Unresolved>,
    /// The newest list of each kind kept here.
    pub lists: BTreeMap<Kind, u64>,
    /// Kinds kept here that have synced.
    pub synced: BTreeSet<Kind>,
}

/// A VolumeAttachment's place.
#[derive(Clone, Debug)]
pub struct Indexed {
    /// Volume and node.
    pub key: AttachmentKey,
    /// The object.
    pub uid: Uid,
    /// Generation of the list that last named it.
    pub generation: u64,
}

impl Store {
    /// One that knows nothing yet.
    pub fn new(ctx: Context) -> Self {
        Self {
            ctx,
            volumes: BTreeMap::new(),
            attachments: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            lists: BTreeMap::new(),
            synced: BTreeSet::new(),
        }
    }

    /// The volume's record; it is looked at in the next plan.
    pub fn volume(&mut self, key: &VolumeKey) -> &mut Volume {
        self.ctx.dirty_volumes.insert(key.clone());
        self.volumes.entry(key.clone()).or_default()
    }
}
