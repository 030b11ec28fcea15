//! Rule 18: which machines a volume has doubts about.
//!
//! Flow: at the end of every look at a volume, what is in doubt is told to the syncer, which reads the states of those
//! instances until nobody doubts them any more. Must never decide what a state means: `fencing` does.

use std::collections::BTreeSet;
use std::time::Duration;

use super::machine::machine_behind;
use super::{Wanted, sharing};
use crate::controller::actual::readings::attachment_on;
use crate::controller::actual::slot::{DetachSent, Slot};
use crate::controller::actual::volume::Volume;
use crate::controller::context::Context;
use crate::controller::policy::ForceDetach;
use crate::controller::reason::BlockedReason;
use crate::model::ids::{InstanceId, NodeName, VolumeKey};
use crate::model::volume::VolumeReading;

/// A detach takes a few seconds; one that takes longer may have a machine that is not sound.
const DETACH_IS_SLOW_AFTER: Duration = Duration::from_secs(15);

/// Tells the syncer which instances the volume has doubts about now.
pub fn review(key: &VolumeKey, volume: &mut Volume, ctx: &mut Context, wanted: &[Wanted]) {
    let mut doubted = BTreeSet::new();
    let mut checks = false;
    for (node, slot) in &volume.slots {
        if slot.object.is_none() && slot.recorded.is_none() {
            continue;
        }
        let Some(instance) = machine_behind(key, node, slot, ctx) else { continue };
        let slow = ctx.now.monotonic.saturating_since(volume.readings.barrier()) > DETACH_IS_SLOW_AFTER;
        let stuck = slot.detach_sent == DetachSent::Sent && slow;
        let vanished = has_vanished(slot, volume);
        // A volume that is missing is believed gone only while something else is found: its machine and others are asked for.
        let missing = volume.readings.missing_since().is_some();
        if stuck
            || vanished
            || missing
            || !is_sound(node, &instance, ctx)
            || is_wanted_elsewhere(key, node, volume, ctx, wanted)
        {
            doubted.insert(instance);
        }
        checks |= ctx.settings.force_detach == ForceDetach::Impaired && awaits_checks(slot);
    }
    if doubted.is_empty() && volume.doubted.is_empty() {
        return;
    }
    ctx.syncer.states.watch(key, &volume.doubted, &doubted, checks);
    volume.doubted = doubted;
}

/// Whether EC2 shows an attachment gone that nobody ended: a machine that is being terminated looks so as well, before its
/// node does.
fn has_vanished(slot: &Slot, volume: &Volume) -> bool {
    let stated = slot.object.as_ref().is_some_and(|object| object.status.attached);
    let stays = (slot.confirmed.is_some() || stated) && slot.detach_sent == DetachSent::Nothing && !slot.cleared;
    let Some(recorded) = slot.recorded.as_ref().filter(|_| stays) else { return false };
    let gone = |seen: &VolumeReading| attachment_on(seen, &recorded.instance).is_none();
    volume.readings.volume().is_some_and(gone)
}

/// Whether the node is there, is that instance, and is Ready.
fn is_sound(node: &NodeName, instance: &InstanceId, ctx: &Context) -> bool {
    let object = ctx.nodes.get(node).and_then(|record| record.object_of(instance));
    object.is_some_and(|object| object.ready.is_true)
}

fn is_wanted_elsewhere(key: &VolumeKey, node: &NodeName, volume: &Volume, ctx: &Context, wanted: &[Wanted]) -> bool {
    wanted.iter().any(|want| want.node != *node) && !sharing::is_shared_volume(volume, ctx, key)
}

fn awaits_checks(slot: &Slot) -> bool {
    let reason = slot.blocked.as_ref().map(|blocked| &blocked.reason);
    matches!(reason, Some(BlockedReason::ForceWithheld | BlockedReason::MachineUnknown))
}
