//! VolumeAttachments whose volume cannot be told: their PersistentVolume is gone, and no list names a volume that would
//! give their name (LEAK-04).
//!
//! Flow: `intake` keeps them here and tries them again with every news of a PersistentVolume; `plan` calls [`look`], which
//! has the instance frozen in each read: the volumes mapped there are candidates more. A mapping is a hint only: what makes
//! a candidate the volume is the object's name, which is a hash of handle, driver and node. Must never guess.

use std::collections::BTreeMap;
use std::time::Duration;

use super::context::Context;
use crate::model::attachment::{AttachmentSource, VolumeAttachment};
use crate::model::ids::{AttachmentName, InstanceId};
use crate::model::time::Monotonic;

/// The instance is read again after this, and then after twice as long each time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How often it is doubled: to about an hour.
const DOUBLINGS: u32 = 6;

/// One of them.
#[derive(Debug)]
pub struct Unresolved {
    /// The object.
    pub object: VolumeAttachment,
    /// Generation of the list that last named it.
    pub generation: u64,
    /// How often its instance was read for it.
    looks: u32,
    /// When it is read next; `None`: as soon as may be.
    look_at: Option<Monotonic>,
}

impl Unresolved {
    /// One that was just seen.
    pub fn new(object: VolumeAttachment, generation: u64) -> Self {
        Self { object, generation, looks: 0, look_at: None }
    }

    /// The same object, newer.
    pub fn seen_again(self, object: VolumeAttachment, generation: u64) -> Self {
        Self { object, generation, ..self }
    }
}

/// Has the instances read on which the volumes may be. One that names no instance is told at once.
pub fn look(ctx: &mut Context, all: &mut BTreeMap<AttachmentName, Unresolved>) {
    let now = ctx.now.monotonic;
    for unresolved in all.values_mut() {
        if !unresolved.object.driver.is_ebs() || unresolved.look_at.is_some_and(|at| at > now) {
            continue;
        }
        unresolved.look_at = Some(now + LOOK_AGAIN * 2_u32.pow(unresolved.looks.min(DOUBLINGS)));
        unresolved.looks += 1;
        match unresolved.object.instance() {
            Some(instance) => ctx.syncer.instances.want(&instance, now),
            None => ctx.notes.volume_unknown(&unresolved.object, &why(&unresolved.object), now),
        }
    }
}

/// When the next instance is to be read.
pub fn next_look(all: &BTreeMap<AttachmentName, Unresolved>) -> Option<Monotonic> {
    let of_ebs = all.values().filter(|unresolved| unresolved.object.driver.is_ebs());
    of_ebs.filter_map(|unresolved| unresolved.look_at).min()
}

/// These instances were read, and whatever could be told by that was: a person is told of the rest.
pub fn looked(ctx: &mut Context, all: &BTreeMap<AttachmentName, Unresolved>, instances: &[InstanceId]) {
    let now = ctx.now.monotonic;
    for Unresolved { object, looks, .. } in all.values() {
        let was_looked_for = *looks > 0 && object.instance().is_some_and(|instance| instances.contains(&instance));
        if object.driver.is_ebs() && was_looked_for {
            ctx.notes.volume_unknown(object, &why(object), now);
        }
    }
}

fn why(object: &VolumeAttachment) -> String {
    let source = match &object.source {
        AttachmentSource::PersistentVolume(name) => format!("PersistentVolume {name} is not there"),
        AttachmentSource::Inline { .. } | AttachmentSource::Unreadable => "its source cannot be read".to_owned(),
    };
    match object.instance() {
        Some(instance) => format!("{source}, and no volume on {instance} has its name"),
        None => format!("{source}, and it names no instance"),
    }
}
