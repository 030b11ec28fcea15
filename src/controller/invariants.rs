//! What must hold of the core's own state after every step, one sentence each. Tests and the simulator run them; a broken
//! one is a bug in the core, whatever the world did.

use super::actual::in_flight::CallKind;
use super::actual::nodes::Wish;
use super::policy::Rule;
use super::reconciler::is_shared_volume;
use super::store::Store;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The sentence.
    pub invariant: &'static str,
    /// Where.
    pub place: String,
}

/// Every invariant over everything.
pub(super) fn check(store: &Store) -> Vec<Broken> {
    let mut broken = Vec::new();
    invariant_exclusive_volume_has_attach_calls_to_one_instance(store, &mut broken);
    invariant_listed_wish_has_confirmed_attachment(store, &mut broken);
    invariant_attached_devices_of_an_instance_differ(store, &mut broken);
    invariant_node_knows_its_slots(store, &mut broken);
    invariant_unlisted_wish_has_leaving_slot(store, &mut broken);
    broken
}

/// Rule 1: calls that may attach an exclusive volume go to one instance.
fn invariant_exclusive_volume_has_attach_calls_to_one_instance(store: &Store, broken: &mut Vec<Broken>) {
    if !store.ctx.policy.holds(Rule::OneHolder) {
        return;
    }
    for (key, volume) in &store.volumes {
        let mut instances = volume.calls.iter().filter(|call| call.kind == CallKind::Attach).map(|call| &call.instance);
        let Some(first) = instances.next() else { continue };
        if instances.any(|other| other != first) && !is_shared_volume(volume, &store.ctx, key) {
            broken.push(Broken {
                invariant: "calls that may attach an exclusive volume go to one instance",
                place: key.to_string(),
            });
        }
    }
}

/// Rule 4: a volume is wished listed only while its attachment is confirmed and its VolumeAttachment is there.
fn invariant_listed_wish_has_confirmed_attachment(store: &Store, broken: &mut Vec<Broken>) {
    for (node, record) in &store.ctx.nodes {
        for (name, wish) in &record.wishes {
            let Some(key) = name.volume_key() else { continue };
            if !matches!(wish, Wish::Listed { .. }) {
                continue;
            }
            let slot = store.volumes.get(key).and_then(|volume| volume.slots.get(node));
            let holds = slot.is_some_and(|slot| {
                slot.confirmed.is_some() || slot.object.as_ref().is_some_and(|object| object.status.attached)
            });
            if !holds {
                broken.push(Broken {
                    invariant: "a volume is wished listed only while its attachment is confirmed",
                    place: format!("{key} on {node}"),
                });
            }
        }
    }
}

/// Two confirmed attachments of one instance have different devices (DEV-10).
fn invariant_attached_devices_of_an_instance_differ(store: &Store, broken: &mut Vec<Broken>) {
    let mut seen = std::collections::BTreeSet::new();
    for (key, volume) in &store.volumes {
        for slot in volume.slots.values() {
            let (Some(confirmed), Some(instance)) = (&slot.confirmed, slot.instance()) else { continue };
            if !seen.insert((instance.clone(), confirmed.device.slot().to_owned())) {
                broken.push(Broken {
                    invariant: "two confirmed attachments of one instance have different devices",
                    place: format!("{key} on {instance}"),
                });
            }
        }
    }
}

/// Every slot is known to its node's record, so that an event of the node reaches it.
fn invariant_node_knows_its_slots(store: &Store, broken: &mut Vec<Broken>) {
    for (key, volume) in &store.volumes {
        for node in volume.slots.keys() {
            if store.ctx.nodes.get(node).is_none_or(|record| !record.volumes.contains(key)) {
                broken.push(Broken {
                    invariant: "every slot is known to its node's record",
                    place: format!("{key} on {node}"),
                });
            }
        }
    }
}

/// A removal from a list is wished only for an attachment on its way out.
fn invariant_unlisted_wish_has_leaving_slot(store: &Store, broken: &mut Vec<Broken>) {
    for (node, record) in &store.ctx.nodes {
        for (name, wish) in &record.wishes {
            let (Wish::Unlisted { .. }, Some(key)) = (wish, name.volume_key()) else { continue };
            let slot = store.volumes.get(key).and_then(|volume| volume.slots.get(node));
            if slot.is_none_or(|slot| slot.leaving.is_none() && !slot.cleared && slot.object.is_some()) {
                broken.push(Broken {
                    invariant: "a removal from a list is wished only for an attachment on its way out",
                    place: format!("{key} on {node}"),
                });
            }
        }
    }
}
