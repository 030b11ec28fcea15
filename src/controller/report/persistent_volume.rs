//! Where a PersistentVolume can be used: labels of zone and region, and a node affinity if asked for, on those of EBS that
//! say nothing of it.
//!
//! Flow: `reconciler` notices what is lacking when a volume was read; `plan` writes one at a time, when no other write to
//! the API server waits. Nothing depends on these writes: one that fails is dropped, and noticed again with the next read
//! or the next version of the object. Must never change what a PersistentVolume says already, nor write an affinity that
//! would keep the volume from a node that has it: it cannot be undone.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use crate::controller::actual::volume::Volume;
use crate::controller::command::{BudgetClass, Call, KubernetesCall};
use crate::controller::context::Context;
use crate::controller::event::Role;
use crate::controller::outbox::{Pending, Target};
use crate::controller::policy::{Settings, ZoneAffinity, ZoneLabels};
use crate::model::claim::{PersistentVolume, REGION_LABEL, ZONE_LABEL};
use crate::model::ids::{DriverName, NodeName, PersistentVolumeName, VolumeKey, Zone};

/// Notices the PersistentVolumes of a volume in this zone that lack what they should say of it.
pub fn notice(key: &VolumeKey, zone: &Zone, ctx: &mut Context) {
    if ctx.settings.zone_labels == ZoneLabels::LeaveAlone && ctx.settings.zone_affinity == ZoneAffinity::LeaveAlone {
        return;
    }
    let lacking = ctx.desired.persistent_volumes_of(key).filter(|object| lacks(object, zone, &ctx.settings));
    let names: Vec<PersistentVolumeName> = lacking.map(|object| object.name.clone()).collect();
    for name in names {
        ctx.placements.add(name, key.clone(), zone.clone(), ctx.now.monotonic);
    }
}

/// Labels go to one without zone label and affinity. With `zoneAffinity`, an affinity goes also to one whose label says the
/// same zone: it may have been labelled before a node had its label.
fn lacks(object: &PersistentVolume, zone: &Zone, settings: &Settings) -> bool {
    if object.deleting || object.placement.has_affinity {
        return false;
    }
    match &object.placement.zone {
        None => true,
        Some(label) => settings.zone_affinity == ZoneAffinity::Write && label == zone.as_str(),
    }
}

/// Asks for the turn of the next write, if it is due and nothing else waits to be written.
pub fn ask(ctx: &mut Context) {
    let now = ctx.now.monotonic;
    let due = ctx.placements.next_due().is_some_and(|due| due <= now);
    if due && ctx.permit(Role::Attacher).is_some() && !ctx.outbox.waits(BudgetClass::Write) {
        ctx.outbox.ask(BudgetClass::Write, Target::Placement, now);
    }
}

/// Writes the next one that still lacks something. `volumes`: what is known of them.
pub fn place(ctx: &mut Context, volumes: &BTreeMap<VolumeKey, Volume>) {
    while let Some((name, key, zone)) = ctx.placements.pop(ctx.now.monotonic) {
        let Some(object) = ctx.desired.persistent_volume(&name) else { continue };
        if !lacks(object, &zone, &ctx.settings) {
            continue;
        }
        let affinity = may_bind(ctx, &key, volumes.get(&key), &zone).then(|| zone.clone());
        let labels = labels(object, &zone, &ctx.settings);
        if labels.is_empty() && affinity.is_none() {
            continue;
        }
        let Some(permit) = ctx.permit(Role::Attacher) else { return };
        let call = KubernetesCall::PlacePersistentVolume {
            name,
            uid: object.uid.clone(),
            resource_version: object.resource_version.clone(),
            labels,
            affinity,
        };
        ctx.outbox.push(BudgetClass::Write, permit, Call::Kubernetes(call), Pending::Placement(key));
        ctx.placements.began();
        return;
    }
}

fn labels(object: &PersistentVolume, zone: &Zone, settings: &Settings) -> BTreeMap<SmolStr, SmolStr> {
    let mut labels = BTreeMap::new();
    if settings.zone_labels == ZoneLabels::LeaveAlone || object.placement.zone.is_some() {
        return labels;
    }
    labels.insert(ZONE_LABEL.into(), zone.as_str().into());
    if let (None, Some(region)) = (&object.placement.region, &settings.region) {
        labels.insert(REGION_LABEL.into(), region.clone());
    }
    labels
}

/// Whether an affinity to `zone` may be written: every node of EBS carries the zone label, and the label of every node that
/// has the volume or wants it says this zone.
fn may_bind(ctx: &Context, key: &VolumeKey, volume: Option<&Volume>, zone: &Zone) -> bool {
    if ctx.settings.zone_affinity == ZoneAffinity::LeaveAlone {
        return false;
    }
    let of_ebs = |csi: &crate::model::node::CsiNode| csi.drivers.contains_key(&DriverName::ebs());
    let mut nodes =
        ctx.nodes.values().filter(|record| record.csi.as_ref().is_some_and(|(csi, _)| of_ebs(csi))).peekable();
    if nodes.peek().is_none() || nodes.any(|record| record.object.as_ref().is_none_or(|node| node.zone.is_none())) {
        return false;
    }
    let is_there = |node: &NodeName| {
        ctx.nodes
            .get(node)
            .and_then(|record| record.object.as_ref())
            .is_some_and(|node| node.zone.as_ref() == Some(zone))
    };
    let wanting = ctx.desired.wants(key).iter().all(|want| is_there(&want.node));
    let Some(volume) = volume else { return wanting };
    let holding = volume.slots.keys().all(is_there);
    let shown = volume.readings.last_seen().into_iter().flat_map(|seen| &seen.attachments);
    let mut shown = shown.map(|attachment| attachment.instance.as_ref().and_then(|i| ctx.node_of_instance.get(i)));
    wanting && holding && shown.all(|node| node.is_some_and(is_there))
}
