//! The reconciler: what differs between desired and actual for one volume, and the next step of each of its operations.
//!
//! Flow: `plan` calls [`reconcile`] for every dirty volume. It looks at what pods want, what VolumeAttachments are there,
//! what EC2 showed and what is under way, and advances each slot as far as it goes. It decides nothing about lists beyond
//! wishes (`report::node_status` does). Must never act on a volume before every watch has synced and the guard is held.

mod adopt;
mod attach;
mod conflict;
mod detach;

mod doubt;
mod error_status;
mod fencing;
mod foreign;
mod heal;
mod holders;
mod hung_attach;
mod initialized;
mod leave;
mod machine;
mod ordered;
mod other_driver;
pub mod outcome;
mod protection;
mod rename;
mod room;
mod sharing;
mod stuck;
mod work;

pub use adopt::{may_have_calls, observe};
pub use room::freed;
pub use sharing::is_shared_volume;
pub use work::Work;

use std::time::Duration;

use super::actual::in_use::{Mark, mark};
use super::actual::slot::{DetachSent, LeaveStep, Slot};
use super::actual::volume::Volume;
use super::context::{BackoffKey, Context};
use super::event::Role;
use super::policy::{Policy, Rule, UnknownAttachments};
use super::reason::BlockedReason;
use super::report::persistent_volume;
use crate::model::attachment::NewAttachmentSource;
use crate::model::ids::{AwsVolumeId, NodeName, VolumeKey};
use crate::model::time::Wall;
use crate::model::volume::AttachmentState;

/// A multi-attach wait that ends sooner is no news.
const MULTI_ATTACH_NEWS_AFTER: Duration = Duration::from_secs(15);
/// One with nothing in the way but EC2 and the budgets is none before this: a storm of moves at EC2's rate takes minutes.
const COMING_OFF_IS_NEWS_AFTER: Duration = Duration::from_secs(300);

/// One node that wants the volume.
#[derive(Clone, Debug)]
pub struct Wanted {
    node: NodeName,
    bound_at: Wall,
    source: NewAttachmentSource,
}

/// Advances every operation of one volume as far as it goes.
pub fn reconcile(key: &VolumeKey, volume: &mut Volume, ctx: &mut Context) {
    if !ctx.is_synced() {
        return;
    }
    let id = key.aws_volume_id();
    if id.is_none() {
        // Also while another leads: the Node may be registered again before this process does.
        other_driver::record_nodes(volume, ctx);
    }
    if ctx.leading_since.is_none() {
        return;
    }
    let name = key.unique_name();
    expire(key, volume, ctx);
    let wanted = wanted_nodes(key, volume, ctx);
    for want in &wanted {
        open_slot(key, volume, ctx, &want.node);
    }
    let turn = whose_turn(volume, ctx, &wanted, id.as_ref());
    let mut nodes: Vec<NodeName> = volume.slots.keys().cloned().collect();
    // The one whose turn it is comes last: what frees the volume goes before.
    nodes.sort_by_key(|node| turn.as_ref() == Some(node));
    for node in nodes {
        let Some(mut slot) = volume.slots.remove(&node) else { continue };
        let mut work = Work { key, id: id.as_ref(), name: &name, node: &node, volume: &mut *volume, ctx: &mut *ctx };
        let want = wanted.iter().find(|want| want.node == node);
        stuck::watch(&mut slot, &mut work);
        advance(&mut slot, &mut work, want, turn.as_ref());
        room::review(key, &mut slot, want.is_some(), ctx);
        let keep = slot.object.is_some()
            || slot.recorded.is_some()
            || slot.write.is_some()
            || slot.unsettled
            || want.is_some()
            || volume.listed_only.contains(&node);
        if keep {
            volume.slots.insert(node, slot);
        } else {
            forget_slot(key, node, ctx);
        }
    }
    doubt::review(key, volume, ctx, &wanted);
    if id.is_some() {
        lead_out_foreign(key, volume, ctx);
        foreign::report(key, volume, ctx);
        protection::release(key, volume, ctx);
        if let Some(zone) = volume.readings.last_seen().map(|seen| seen.zone.clone()) {
            persistent_volume::notice(key, &zone, ctx);
        }
    }
}

/// Calls that died end now; the reads before the guard prove nothing.
fn expire(key: &VolumeKey, volume: &mut Volume, ctx: &mut Context) {
    if let Some(start) = ctx.lease_start() {
        volume.readings.lease_got(start, &ctx.policy);
    }
    let now = ctx.now.monotonic;
    volume.ended.retain(|_, at| now.saturating_since(*at) < work::ENDS_REMEMBERED);
    for slot in volume.slots.values_mut() {
        // Calls of an earlier leader count as ended then: reads from before prove nothing about them.
        if let Some(until) = slot.inherited_until.filter(|until| *until <= now) {
            slot.inherited_until = None;
            if slot.confirmed.is_none() || slot.is_terminating() {
                volume.readings.invalidate(until, &ctx.policy);
            }
        }
    }
    while let Some(ended) = volume.calls.expire(ctx.now.monotonic) {
        volume.readings.invalidate(ended.at, &ctx.policy);
    }
    if let Some(at) = volume.calls.next_death() {
        ctx.wake_volume(key, at, "call dead");
    }
}

fn open_slot(key: &VolumeKey, volume: &mut Volume, ctx: &mut Context, node: &NodeName) {
    if !volume.slots.contains_key(node) {
        volume.slots.insert(node.clone(), Box::default());
        ctx.nodes.entry(node.clone()).or_default().volumes.insert(key.clone());
    }
}

/// The nodes on which a pod wants the volume and whose want counts: managed (or not there: then nothing is known against
/// it), its instance not known terminated, and attach required by the driver. Sorted by node.
fn wanted_nodes(key: &VolumeKey, volume: &Volume, ctx: &Context) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    let required = ctx.desired.attach_required(&key.driver);
    for want in ctx.desired.wants(key) {
        let managed = ctx.nodes.get(&want.node).and_then(|record| record.object.as_ref()).is_none_or(|n| n.managed);
        let slot = volume.slots.get(&want.node).map(Box::as_ref);
        let known = slot.is_some_and(|slot| slot.object.is_some());
        let dead = machine::instance_of(&want.node, slot, ctx)
            .is_some_and(|instance| ctx.syncer.states.is_terminated(instance));
        if !managed || (!required && !known) || dead {
            continue;
        }
        match wanted.last_mut().filter(|last| last.node == want.node) {
            Some(last) => last.bound_at = last.bound_at.min(want.bound_at),
            None => {
                let (node, source) = (want.node.clone(), want.source.clone());
                wanted.push(Wanted { node, bound_at: want.bound_at, source });
            }
        }
    }
    if !ctx.has_role(Role::AttachDetach) && key.driver.is_ebs() {
        // There a VolumeAttachment is the order, whatever pods want.
        for (node, slot) in volume.slots.iter().filter(|(_, slot)| slot.is_live()) {
            let Some(source) = ordered::source(slot) else { continue };
            if let Err(at) = wanted.binary_search_by(|want| want.node.cmp(node)) {
                wanted.insert(at, Wanted { node: node.clone(), bound_at: Wall::from_millis(i64::MAX), source });
            }
        }
    }
    wanted
}

/// Rule 1: of the nodes that want an exclusive volume, the one that holds or is attaching it, then the one whose pod was
/// bound first, then by name. `None`: shared, everyone's turn.
fn whose_turn(volume: &Volume, ctx: &Context, wanted: &[Wanted], id: Option<&AwsVolumeId>) -> Option<NodeName> {
    let holds = |node: &NodeName| {
        let Some(slot) = volume.slots.get(node) else { return false };
        match slot.instance() {
            Some(instance) => {
                slot.confirmed.is_some()
                    || (volume.calls.any_to(instance) && ctx.policy.holds(Rule::NoSwitchAfterSend))
                    || slot.attach_sent.is_some() && ctx.policy.holds(Rule::NoSwitchAfterSend)
                    || volume
                        .readings
                        .volume()
                        .is_some_and(|v| v.attachments.iter().any(|a| a.instance.as_ref() == Some(instance)))
            }
            None => id.is_none() && slot.object.is_some(),
        }
    };
    let first = || wanted.iter().min_by(|one, other| (one.bound_at, &one.node).cmp(&(other.bound_at, &other.node)));
    wanted.iter().find(|want| holds(&want.node)).or_else(first).map(|want| want.node.clone())
}

/// Advances one slot.
fn advance(slot: &mut Slot, work: &mut Work<'_>, wanted: Option<&Wanted>, turn: Option<&NodeName>) {
    if slot.write.is_some() {
        return;
    }
    if slot.unsettled {
        return outcome::settle(slot, work);
    }
    if error_status::write_error(slot, work) {
        return;
    }
    let Some(_) = work.id else { return advance_other(slot, work, wanted, turn) };
    adopt::disown(slot, work);
    if !work.ctx.has_role(Role::AttachDetach) && (ordered::collected(slot, work) || ordered::refused(slot, work)) {
        return;
    }
    // Nothing is done under a VolumeAttachment before it says what was done (G4).
    if !adopt::complete(slot, work) {
        return;
    }
    if slot.write.is_some() {
        return;
    }
    if slot.object.is_none() && slot.recorded.is_some() && (slot.vanished || slot.cleared || slot.heal.is_some()) {
        return heal::remake(slot, work);
    }
    if slot.object.is_none() && work.volume.listed_only.contains(work.node) {
        return adopt::listed_only(slot, work);
    }
    if work.node_object().is_some_and(|node| node.volumes_in_use.contains(work.name)) {
        slot.void_word();
    }
    let wanted = wanted.filter(|_| wants_this_attachment(slot, work));
    if wanted.is_none() && confirm_unwanted(slot, work) {
        return;
    }
    if slot.is_terminating() {
        return advance_terminating(slot, work, wanted.is_some());
    }
    if outdated(slot, work) {
        if slot.cleared {
            detach::finish(slot, work);
        }
        return;
    }
    let Some(wanted) = wanted else {
        if slot.object.is_some() {
            leave::leave(slot, work);
            if slot.cleared {
                detach::finish(slot, work);
            }
        }
        return;
    };
    advance_wanted(slot, work, wanted, turn);
}

/// Takes note of what EC2 shows of an attachment that nobody wants: it may have come about, or gone. Whether its loss is
/// being dealt with.
fn confirm_unwanted(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let unconfirmed = slot.object.is_some() && slot.confirmed.is_none();
    if unconfirmed && slot.detach_sent == DetachSent::Nothing && !slot.cleared {
        attach::take_confirmation(slot, work);
    }
    let stays = slot.is_live() && slot.detach_sent == DetachSent::Nothing && !slot.cleared && !slot.is_on_its_way_out();
    if stays && slot.confirmed.is_some() && attach::lost(slot, work) {
        return true;
    }
    let ended = slot.confirmed.is_some() && work.shown(slot).is_none();
    let shown = work.volume.readings.volume().is_some() || work.is_surely_missing();
    if ended && shown && work.volume.readings.prove_silent_detach(&work.ctx.policy) {
        slot.confirmed = None;
    }
    false
}

/// Advances a slot that is wanted, its VolumeAttachment not Terminating.
fn advance_wanted(slot: &mut Slot, work: &mut Work<'_>, wanted: &Wanted, turn: Option<&NodeName>) {
    heal::stay(slot, work);
    if !work.ctx.has_role(Role::AttachDetach) && slot.object.is_none() {
        return;
    }
    let their_turn = holders::is_shared(work) || turn == Some(work.node);
    if !their_turn && slot.confirmed.is_none() && work.ctx.policy.holds(Rule::OneHolder) {
        return wait_for_turn(slot, work, turn);
    }
    if work.record().is_some_and(|record| record.is_held(work.ctx.now.monotonic)) && slot.confirmed.is_none() {
        if let Some(until) = work.record().and_then(|record| record.held_until) {
            work.ctx.wake_volume(work.key, until, "node held");
        }
        return slot.block(BlockedReason::ForeignWrite, work.ctx.now.monotonic);
    }
    let source = wanted.source.clone();
    attach::attach(slot, work, &source);
    report_wait(slot, work);
}

/// Nothing is left of the volume on the node.
fn forget_slot(key: &VolumeKey, node: NodeName, ctx: &mut Context) {
    ctx.backoff.clear(&BackoffKey::Slot(key.clone(), node.clone()));
    let Some(record) = ctx.nodes.get_mut(&node) else { return };
    record.volumes.remove(key);
    if record.is_forgettable() {
        ctx.dirty_nodes.insert(node);
    }
}

/// A want counts for a VolumeAttachment only while its Node object names its instance, or there is no such Node.
fn wants_this_attachment(slot: &Slot, work: &Work<'_>) -> bool {
    match (slot.instance(), work.node_object()) {
        (Some(instance), Some(node)) if slot.object.is_some() => {
            node.provider_id.as_ref().is_none_or(|id| id.instance() == Some(instance))
        }
        _ => true,
    }
}

/// A Terminating VolumeAttachment: healed where it is wanted, else led out; finished when EC2 confirms it free.
fn advance_terminating(slot: &mut Slot, work: &mut Work<'_>, wanted: bool) {
    if !work.ctx.has_role(Role::AttachDetach) {
        return ordered::detach(slot, work);
    }
    let unusable = slot.detach_sent == DetachSent::Sent && work.ctx.policy.holds(Rule::UnusableAfterDetach);
    if slot.cleared && (!wanted || unusable) {
        return detach::finish(slot, work);
    }
    if wanted {
        return heal::terminating(slot, work);
    }
    if work.is_confirmed_free(slot) {
        return detach::end(slot, work);
    }
    if slot.detach_sent == DetachSent::Sent {
        return detach::finish(slot, work);
    }
    // Whether it is free decides more than the ladder: it is read beside climbing.
    work.poll_for_consistency();
    leave::leave(slot, work);
    if slot.cleared {
        detach::finish(slot, work);
    }
}

/// Rule 5, last sentences: one that is not attached, whose recorded Node UID is no longer its Node's, goes and is made
/// anew, once EC2 confirms the volume free and nothing is under way; marked first, unless it was never attached.
fn outdated(slot: &mut Slot, work: &mut Work<'_>) -> bool {
    let Some(object) = &slot.object else { return false };
    let (Some(recorded), Some(node)) = (&slot.recorded, work.node_object()) else { return false };
    if slot.cleared || recorded.node_uid == node.uid || object.status.attached || slot.confirmed.is_some() {
        return false;
    }
    if !work.ctx.policy.holds(Rule::AttachNeedsRecordedUid) {
        return false;
    }
    if work.shown(slot).is_some() {
        return false;
    }
    let now = work.now().monotonic;
    slot.block(BlockedReason::OtherNodeObject, now);
    if !work.volume.readings.are_spaced() || !work.is_confirmed_free(slot) {
        work.poll_for_consistency();
        return true;
    }
    if work.has_call(slot.instance()) || work.inherited_wait(slot).is_some() {
        if let Some(at) = work.volume.calls.next_death().or(work.inherited_wait(slot)) {
            work.ctx.wake_volume(work.key, at, "call dead");
        }
        return true;
    }
    // A mark of an earlier boot was set on this very Node object: what was mounted since was mounted under its eyes.
    let unmarked = work.node_of(slot).is_some_and(|node| mark(node, work.name, &Policy::FULL) == Mark::None);
    // What this process did not see from its create on may have been mounted (rule 3).
    if !slot.cannot_be_mounted() && unmarked && work.ctx.has_role(Role::AttachDetach) {
        work.wish(super::actual::nodes::Wish::Marked);
        return true;
    }
    if work.ctx.has_role(Role::AttachDetach) {
        outcome::delete_outdated(slot, work);
    } else {
        // The order stands: it is for the Node that is there now.
        ordered::record_again(slot, work);
    }
    true
}

/// Another node holds the volume or comes first.
fn wait_for_turn(slot: &mut Slot, work: &mut Work<'_>, turn: Option<&NodeName>) {
    let now = work.now().monotonic;
    let Some(holder) = turn else { return };
    slot.block(BlockedReason::MultiAttach(holder.clone()), now);
    report_wait(slot, work);
}

/// Whether the volume leaves that node with nothing in the way but EC2 and the budgets: nobody has to hear of that.
fn is_coming_off(holder: &Slot) -> bool {
    holder.cleared || holder.leaving.as_ref().is_some_and(|leaving| leaving.step != LeaveStep::Wish)
}

/// Tells the pods why they wait, once the wait is news.
fn report_wait(slot: &Slot, work: &mut Work<'_>) {
    let Some(blocked) = slot.blocked.clone() else { return };
    let now = work.now().monotonic;
    let wants = work.ctx.desired.wants(work.key);
    match &blocked.reason {
        BlockedReason::MultiAttach(holder) => {
            let due = blocked.since + MULTI_ATTACH_NEWS_AFTER;
            let slow = blocked.since + COMING_OFF_IS_NEWS_AFTER;
            if now >= due && now < slow && work.volume.slots.get(holder).is_some_and(|holder| is_coming_off(holder)) {
                work.ctx.wake_volume(work.key, (now + MULTI_ATTACH_NEWS_AFTER).min(slow), "multi-attach is news");
            } else if now >= due {
                work.ctx.notes.multi_attach(wants, work.node, work.key, now);
            } else {
                work.ctx.wake_volume(work.key, due, "multi-attach is news");
            }
        }
        // One read may be old, or show what our own call just made.
        BlockedReason::HeldByUnknownAttachment { .. } if !work.volume.readings.are_consistent() => {}
        BlockedReason::ZoneMismatch { .. }
        | BlockedReason::AccessMode(_)
        | BlockedReason::IdentityMismatch
        | BlockedReason::NotAnInstance
        | BlockedReason::VolumeMissing
        | BlockedReason::PersistentVolumeDeleting
        | BlockedReason::NoFreeDevice
        | BlockedReason::VolumeGuard(_)
        | BlockedReason::HeldByUnknownAttachment { .. } => {
            let text = blocked.reason.to_string();
            work.ctx.notes.attach_failed(wants, work.node, work.key, &text, now);
        }
        _ => {}
    }
}

fn advance_other(slot: &mut Slot, work: &mut Work<'_>, wanted: Option<&Wanted>, turn: Option<&NodeName>) {
    if !work.ctx.has_role(Role::AttachDetach) {
        return;
    }
    let Some(wanted) = wanted.filter(|_| !slot.is_terminating()) else {
        if slot.object.is_some() {
            other_driver::detach(slot, work);
        } else if work.volume.listed_only.contains(work.node) {
            other_driver::listed_only(slot, work);
        }
        return;
    };
    heal::stay(slot, work);
    let shared = work.ctx.desired.multi_attach_allowed(work.key);
    if !shared && turn != Some(work.node) {
        return wait_for_turn(slot, work, turn);
    }
    let held = work.volume.slots.iter().find(|(_, other)| other.object.is_some()).map(|(node, _)| node.clone());
    if let Some(holder) = held.filter(|_| !shared && slot.object.is_none()) {
        slot.block(BlockedReason::MultiAttach(holder), work.ctx.now.monotonic);
        return report_wait(slot, work);
    }
    let source = wanted.source.clone();
    other_driver::attach(slot, work, &source);
}

/// `unknownAttachments: detach`: an attachment that is not ours, on an instance that is a node here, gets a slot and is
/// led out by the whole of rule 6; never one on an instance that is no node of this cluster.
fn lead_out_foreign(key: &VolumeKey, volume: &mut Volume, ctx: &mut Context) {
    if ctx.settings.unknown_attachments != UnknownAttachments::Detach || !volume.readings.are_consistent() {
        return;
    }
    let Some(seen) = volume.readings.volume() else { return };
    let strangers: Vec<NodeName> = seen
        .attachments
        .iter()
        .filter(|attachment| attachment.device.is_some() && attachment.state != AttachmentState::Detached)
        .filter(|attachment| holders::node_of(volume, attachment).is_none())
        .filter_map(|attachment| ctx.node_of_instance.get(attachment.instance.as_ref()?).cloned())
        .filter(|node| volume.slots.get(node).is_none_or(|slot| slot.object.is_none() && slot.recorded.is_none()))
        .collect();
    for node in strangers {
        if volume.listed_only.insert(node.clone()) {
            open_slot(key, volume, ctx, &node);
            ctx.dirty_volumes.insert(key.clone());
        }
    }
}
