//! Rule 6 up to the delete: the way out of an attachment that is not wanted.
//!
//! Order: a rung of the ladder opens → unlisted by an acknowledged patch → live GET of the Node and live LIST of its pods,
//! both begun after → judged again → VolumeAttachment deleted. What follows is `detach`. Must never go on by the cache
//! alone, and goes back to the start (listing restored) whenever a test fails.

use std::time::Duration;

use super::fencing::{self, Ladder};
use super::work::Work;
use crate::controller::actual::in_use::{Mark, mark};
use crate::controller::actual::nodes::Wish;
use crate::controller::actual::slot::{LeaveStep, Leaving, Rung, Slot, WriteKind};
use crate::controller::backoff::Pace;
use crate::controller::command::KubernetesCall;
use crate::controller::context::Operation;
use crate::controller::desired::LiveWant;
use crate::controller::event::Role;
use crate::controller::policy::Rule;
use crate::controller::reason::BlockedReason;
use crate::controller::syncer::states::Machine;
use crate::model::ids::Uid;
use crate::model::node::Node;
use crate::model::time::Monotonic;

/// A live read older than this is no evidence for a delete any more.
const LIVE_READ_MAX_AGE: Duration = Duration::from_secs(10);
/// A wish that is found within this time after leading began was there before.
const START_WINDOW: Duration = Duration::from_secs(5);
/// A volume that may still be mounted, unknown to its kubelet, is news after this.
const UNKNOWN_IS_NEWS_AFTER: Duration = Duration::from_secs(60);

/// Advances the way out. Returns when the slot was cleared or waits.
pub fn leave(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now();
    let Some(leading_since) = work.ctx.leading_since else {
        return slot.block(BlockedReason::NotLeading, now.monotonic);
    };
    if work.ctx.permit(Role::AttachDetach).is_none() {
        return slot.block(BlockedReason::NotLeading, now.monotonic);
    }
    slot.leaving.get_or_insert_with(|| Leaving {
        since: now,
        found_at_start: now.monotonic.saturating_since(leading_since.monotonic) <= START_WINDOW,
        step: LeaveStep::Wish,
    });
    if work.record().is_some_and(|record| record.is_held(now.monotonic)) {
        if let Some(until) = work.record().and_then(|record| record.held_until) {
            work.ctx.wake_volume(work.key, until, "node held");
        }
        if slot.leaving.as_ref().is_some_and(|leaving| leaving.step != LeaveStep::Wish) {
            abort(slot, work, false);
        }
        return slot.block(BlockedReason::ForeignWrite, now.monotonic);
    }
    let unread = work.id.is_some() && !work.volume.readings.have_begun();
    if unread && work.ctx.policy.holds(Rule::ReadBeforeActing) {
        work.ctx.want_read(work.key, now.monotonic);
        return slot.block(BlockedReason::VolumeNotRead, now.monotonic);
    }
    if work.node_object().is_some_and(|node| !node.managed) {
        return slot.block(BlockedReason::NodeNotManaged, now.monotonic);
    }
    loop {
        let Some(leaving) = &slot.leaving else { return };
        let before = leaving.step.clone();
        match before.clone() {
            LeaveStep::Wish => wish(slot, work),
            LeaveStep::Unlisting { rung, since } => unlist(slot, work, rung, since),
            LeaveStep::Checking { rung, after, uid } => check(slot, work, rung, after, uid.as_ref()),
            LeaveStep::Deleting { judged, .. } if now.monotonic.saturating_since(judged) > LIVE_READ_MAX_AGE => {
                abort(slot, work, false);
            }
            LeaveStep::Deleting { .. } => return delete(slot, work),
        }
        if slot.leaving.as_ref().is_none_or(|leaving| leaving.step == before) {
            return;
        }
    }
}

fn step(slot: &mut Slot, step: LeaveStep) {
    if let Some(leaving) = &mut slot.leaving {
        leaving.step = step;
    }
}

/// Whether the volume is attached, as far as is known: confirmed by EC2 (other drivers: said by the status).
fn is_stated(slot: &Slot, work: &Work<'_>) -> bool {
    let said = || slot.object.as_ref().is_some_and(|object| object.status.attached);
    slot.confirmed.is_some() || (work.id.is_none() && said())
}

/// Climbs the ladder with what the watches say.
fn wish(slot: &mut Slot, work: &mut Work<'_>) {
    let now = work.now().monotonic;
    // One that carries a mark was listed under this Node object before, and left the list by rule 6.
    let unmarked = |node: &Node| mark(node, work.name, &work.ctx.policy) == Mark::None;
    let registered_again = |node: &Node| Some(&node.uid) != slot.recorded_uid() && unmarked(node);
    if is_stated(slot, work) && work.node_of(slot).is_some_and(registered_again) {
        // The Node was registered again under a mounted volume, perhaps: listed at once, and marked (rule 3).
        super::attach::list(slot, work, now);
    }
    if !work.backoff_over(slot, Operation::Leave) {
        return;
    }
    let rung = match rung_by_cache(slot, work) {
        Ok(rung) => rung,
        Err((reason, again)) => {
            if let Some(again) = again {
                work.ctx.wake_volume_in(work.key, again, "unmount timeout");
            }
            if slot.unmounted_word.is_some() {
                work.ctx.wake_volume_in(work.key, Duration::from_secs(10), "word of a person");
            }
            slot.block(reason, now);
            if work.id.is_some() && !work.ctx.desired.wants(work.key).is_empty() {
                // Somebody waits for it, and the attachment may end otherwise. Of a sound machine only a person takes it;
                // that the machine is sound no more is told by its state (rule 18).
                match work.machine(slot) {
                    Machine::Running => work.poll_slowly(),
                    _ => work.poll(),
                }
            }
            return report_wait(slot, work);
        }
    };
    let has_node = work.node_of(slot).is_some();
    if rung == Rung::NeverMounted || !has_node || !work.ctx.policy.holds(Rule::UnlistFirst) {
        let uid = work.node_of(slot).map(|node| node.uid.clone()).filter(|_| rung != Rung::NeverMounted);
        let uid = uid.filter(|_| work.ctx.policy.holds(Rule::UnlistFirst));
        // A Node that comes back on the way must not get the volume on its list again.
        work.unwish();
        return step(slot, LeaveStep::Checking { rung, after: now, uid });
    }
    let empty_mark = rung == Rung::Released && work.word_of_person_counts(slot, work.node_object());
    work.unwish();
    work.wish(Wish::Unlisted { rung, since: now, empty_mark });
    step(slot, LeaveStep::Unlisting { rung, since: now });
    slot.block(BlockedReason::Writing, now);
}

/// Says why the volume stays, where a person may have to act: at once where the force policy withholds, after a while
/// where nothing shows that it is unmounted.
fn report_wait(slot: &Slot, work: &mut Work<'_>) {
    let (Some(blocked), Some(object)) = (&slot.blocked, &slot.object) else { return };
    let now = work.now().monotonic;
    let withheld = blocked.reason == BlockedReason::ForceWithheld;
    let unknown = matches!(
        blocked.reason,
        BlockedReason::InUseUnknown | BlockedReason::OtherNodeObject | BlockedReason::OtherInstance
    );
    let due = blocked.since + UNKNOWN_IS_NEWS_AFTER;
    if withheld || (unknown && now >= due) {
        let why = blocked.reason.to_string();
        work.ctx.notes.detach_waits(work.key, work.node, object, &why, withheld, now);
    } else if unknown {
        work.ctx.wake_volume(work.key, due, "the wait is news");
    }
}

fn rung_by_cache(slot: &Slot, work: &Work<'_>) -> Result<Rung, (BlockedReason, Option<Duration>)> {
    let node = work.node_object();
    fencing::open_rung(slot, node, ladder(slot, work, node), &work.ctx.settings, &work.ctx.policy)
}

/// What the ladder is climbed with, for the Node object that is judged.
fn ladder<'a>(slot: &Slot, work: &'a Work<'_>, node: Option<&Node>) -> Ladder<'a> {
    let record = work.record();
    Ladder {
        name: work.name,
        csi_instance: record.and_then(|record| record.csi_ebs.as_ref()),
        gone: record.and_then(|record| record.gone.as_ref()),
        machine: work.machine(slot),
        shown_free: work.is_shown_free_of_instance(slot),
        unresolved_pod: work.ctx.desired.never_resolved_on(work.node) && work.ctx.desired.wants(work.key).is_empty(),
        unmounted_by_person: work.word_of_person_counts(slot, node),
        leading_since: work.ctx.leading_since.unwrap_or_default(),
        now: work.now(),
    }
}

/// Waits for the patch that unlists the volume; gives up when the rung closes or the Node goes.
fn unlist(slot: &mut Slot, work: &mut Work<'_>, rung: Rung, since: Monotonic) {
    let now = work.now().monotonic;
    let removal = work.record().and_then(|record| record.removed.get(work.name)).cloned();
    if let Some(removal) = removal.filter(|removal| removal.made >= since) {
        slot.unlisted = true;
        slot.forced |= rung.is_forced();
        return step(slot, LeaveStep::Checking { rung, after: removal.at, uid: Some(removal.uid) });
    }
    let under_way = work.record().is_some_and(|record| {
        record.patch.as_ref().is_some_and(|patch| patch.removals.contains(work.name)) || record.refreshing.is_some()
    });
    if under_way {
        return slot.block(BlockedReason::Writing, now);
    }
    match rung_by_cache(slot, work) {
        Ok(open) if open == rung && work.node_of(slot).is_some() => slot.block(BlockedReason::Writing, now),
        _ => abort(slot, work, false),
    }
}

/// Waits for the live reads, and judges them.
fn check(slot: &mut Slot, work: &mut Work<'_>, rung: Rung, after: Monotonic, uid: Option<&Uid>) {
    let now = work.now().monotonic;
    if !work.ctx.policy.holds(Rule::LiveReadBeforeDelete) {
        return step(slot, LeaveStep::Deleting { rung, judged: now });
    }
    let Some((node, pods)) = work.record().and_then(|record| record.live_result(after)) else {
        let node = work.node.clone();
        let record = work.ctx.nodes.entry(node.clone()).or_default();
        record.ask_live(after, work.key);
        work.ctx.dirty_nodes.insert(node);
        return slot.block(BlockedReason::Writing, now);
    };
    // A want counts for this attachment only while the Node names its instance.
    let other_instance = slot.instance().is_some_and(|instance| {
        node.is_some_and(|node| node.provider_id.as_ref().is_some_and(|id| id.instance() != Some(instance)))
    });
    if now.saturating_since(after) > LIVE_READ_MAX_AGE {
        return step(slot, LeaveStep::Checking { rung, after: now, uid: uid.cloned() });
    }
    let terminated = work.machine(slot) == Machine::Terminated;
    let counts = !other_instance && !terminated;
    let wanted = if counts { work.ctx.desired.wants_in(pods, work.key) } else { LiveWant::No };
    let verdict =
        fencing::judge_live(slot, rung, uid, node, ladder(slot, work, node), &work.ctx.settings, &work.ctx.policy);
    let unresolved_matters = rung.is_shut_by_unresolved_pods();
    let passed = verdict.is_ok()
        && match wanted {
            LiveWant::No => true,
            LiveWant::Yes => false,
            LiveWant::Unresolved => !unresolved_matters,
        };
    if passed {
        work.ctx.backoff.clear(&crate::controller::context::BackoffKey::Slot(work.key.clone(), work.node.clone()));
        if let Some(reason) = rung.forced_reason() {
            *work.ctx.forced_detaches.entry(reason).or_default() += 1;
        }
        return step(slot, LeaveStep::Deleting { rung, judged: now });
    }
    if let Err(reason) = verdict {
        slot.block(reason, now);
    }
    abort(slot, work, true);
}

/// Goes back to the wish and restores the listing, with its mark where the volume left the list by (c) or (d).
pub fn abort(slot: &mut Slot, work: &mut Work<'_>, failed: bool) {
    step(slot, LeaveStep::Wish);
    work.unwish();
    if slot.object.is_some() && is_stated(slot, work) && (slot.ever_listed || slot.unlisted) {
        let not_before = work.now().monotonic;
        super::attach::list(slot, work, not_before);
    }
    if failed {
        work.fail(Operation::Leave, Pace::Fast);
    }
    work.ctx.dirty_nodes.insert(work.node.clone());
}

/// The VolumeAttachment goes: deleted, or (a person deleted it already) cleared.
fn delete(slot: &mut Slot, work: &mut Work<'_>) {
    let Some(object) = &slot.object else {
        slot.cleared = true;
        return;
    };
    if object.deleting.is_some() {
        slot.cleared = true;
        return;
    }
    let call = KubernetesCall::DeleteAttachment {
        name: object.name.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.clone(),
    };
    work.write(slot, Role::AttachDetach, WriteKind::Delete, call);
}
