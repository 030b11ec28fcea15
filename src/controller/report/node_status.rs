//! `node.status.volumesAttached` with the unknown marks of rule 3: one patch per node under way, with the whole list.
//!
//! Flow: slots put wishes into the node's record; [`report`] makes the patch that fulfils every wish that can be, with the
//! UID and resourceVersion of the Node object it was made from; its acknowledgement answers every wish that was in it. Live
//! reads for removals and refreshes after conflicts are asked for here too, once for all volumes of the node. Must never
//! drop a name it does not own.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smol_str::SmolStr;

use crate::controller::actual::in_use::{Mark, mark};
use crate::controller::actual::nodes::{Acknowledged, NodeRecord, Patch, Removal, Wish};
use crate::controller::actual::slot::Rung;
use crate::controller::backoff::Pace;
use crate::controller::command::{BudgetClass, Call, KubernetesCall};
use crate::controller::context::{BackoffKey, Context, Operation};
use crate::controller::event::Role;
use crate::controller::outbox::{Pending, Target};
use crate::controller::policy::{Policy, Rule};
use crate::controller::timer::TimerKey;
use crate::model::ids::{BootId, NodeName, UniqueVolumeName, VolumeKey};
use crate::model::node::{Node, UnknownMarks};
use crate::model::outcome::{Answer, CallResult, Outcome};
use crate::model::time::Monotonic;

/// The first change of a quiet node's list goes at once; further ones go together this long after the last patch.
const TOGETHER_AFTER: Duration = Duration::from_secs(2);
/// A list that another writer changed is left alone until this long passed without such a write (rule 12).
pub const HOLD_AFTER_FOREIGN_WRITE: Duration = Duration::from_secs(5 * 60);
/// Live reads older than this are dropped.
const LIVE_READS_KEPT: Duration = Duration::from_secs(10);

/// What a patch would carry.
struct Composition {
    list: BTreeMap<UniqueVolumeName, SmolStr>,
    marks: Option<BTreeMap<UniqueVolumeName, BootId>>,
    removals: BTreeSet<UniqueVolumeName>,
    /// Whether it says anything else than the Node object; if not, it only voids older patches.
    changes: bool,
}

/// Makes the next patch and the live reads of a node, as far as they are due.
pub fn report(name: &NodeName, ctx: &mut Context) {
    if ctx.leading_since.is_none() || !ctx.is_synced() {
        return;
    }
    live_reads(name, ctx);
    refresh(name, ctx);
    let now = ctx.now.monotonic;
    let Some(record) = ctx.nodes.get(name) else { return };
    if record.patch.is_some() || record.refresh || record.refreshing.is_some() {
        return;
    }
    if let Some(until) = record.held_until.filter(|until| now < *until) {
        return ctx.timers.arm(TimerKey::Node(name.clone()), until, "node held");
    }
    let Some(node) = &record.object else { return };
    if let Some(at) = next_listing(node, record, now) {
        ctx.timers.arm(TimerKey::Node(name.clone()), at, "list before in use");
    }
    let Some(composition) = compose(node, record, now, &ctx.policy) else { return };
    if let Some(at) = record.last_patch.map(|last| last + TOGETHER_AFTER).filter(|at| now < *at) {
        return ctx.timers.arm(TimerKey::Node(name.clone()), at, "changes of a list go together");
    }
    if let Some(at) = ctx.backoff.ready_at(&BackoffKey::Node(name.clone()), &Operation::NodePatch)
        && at > now
    {
        return ctx.timers.arm(TimerKey::Node(name.clone()), at, "backoff over");
    }
    send(name, ctx, composition);
}

fn send(name: &NodeName, ctx: &mut Context, composition: Composition) {
    let Some(permit) = ctx.permit(Role::AttachDetach) else { return };
    if !ctx.ask(BudgetClass::Write, Target::Node(name.clone())) {
        return;
    }
    let now = ctx.now.monotonic;
    let Some(record) = ctx.nodes.get_mut(name) else { return };
    let Some(node) = &record.object else { return };
    let touch = (!composition.changes).then(|| SmolStr::new(format!("{}-{now}", permit.term.0)));
    let (uid, resource_version) = (node.uid.clone(), node.resource_version.clone());
    let call = KubernetesCall::PatchNodeStatus {
        name: name.clone(),
        uid: uid.clone(),
        resource_version: resource_version.clone(),
        volumes_attached: composition.list.clone(),
        marks: composition.marks.clone(),
        touch,
    };
    let id = ctx.outbox.push(BudgetClass::Write, permit, Call::Kubernetes(call), Pending::NodePatch(name.clone()));
    record.last_patch = Some(now);
    record.patch = Some(Patch {
        id,
        uid,
        resource_version,
        list: composition.list,
        marks: composition.marks,
        removals: composition.removals,
        made: now,
    });
}

/// When the next volume is listed that the node does not report in use. Asked at every look: an earlier timer of the node
/// takes the place of a later one.
fn next_listing(node: &Node, record: &NodeRecord, now: Monotonic) -> Option<Monotonic> {
    let waiting = record.wishes.iter().filter_map(|(name, wish)| match wish {
        Wish::Listed { not_before, .. } if *not_before > now => Some((name, *not_before)),
        _ => None,
    });
    let unlisted =
        waiting.filter(|(name, _)| !node.volumes_in_use.contains(*name) && !node.volumes_attached.contains_key(*name));
    unlisted.map(|(_, at)| at).min()
}

/// The list and the marks that fulfil every wish that can be fulfilled by this Node object; `None` if there is nothing to
/// write.
fn compose(node: &Node, record: &NodeRecord, now: Monotonic, policy: &Policy) -> Option<Composition> {
    // Nearly every look finds nothing to change: the list is copied when something is.
    let mut list = Cow::Borrowed(&node.volumes_attached);
    let mut marks = readable_marks(node, record);
    let mut removals = BTreeSet::new();
    let boot = node.boot_id.clone();
    for (name, wish) in &record.wishes {
        let in_use = node.volumes_in_use.contains(name);
        match wish {
            Wish::Listed { instance, node_uid, not_before, mark: forced } => {
                let node_instance = node.provider_id.as_ref().and_then(|id| id.instance());
                if instance.is_some() && instance.as_ref() != node_instance {
                    continue;
                }
                let other_object = node_uid.as_ref() != Some(&node.uid);
                let must_mark = (other_object || *forced)
                    && mark(node, name, &Policy::FULL) == Mark::None
                    && policy.holds(Rule::MarkOnRelist);
                if must_mark {
                    let Some(boot) = &boot else { continue };
                    set(&mut marks, name, boot);
                }
                if in_use || other_object || now >= *not_before {
                    add(&mut list, name, SmolStr::default());
                }
            }
            Wish::Unlisted { rung, since, empty_mark } => {
                let acknowledged = record.removed.get(name).is_some_and(|removal| removal.made >= *since);
                let shut = *rung == Rung::Released && in_use && policy.holds(Rule::InUseBlocksDetach);
                if acknowledged || shut {
                    continue;
                }
                if rung.is_forced() && policy.holds(Rule::MarkOnRelist) {
                    let Some(boot) = &boot else { continue };
                    set(&mut marks, name, boot);
                }
                if *empty_mark && marks.contains_key(name) {
                    set(&mut marks, name, &BootId::new(""));
                }
                remove(&mut list, name);
                removals.insert(name.clone());
            }
            Wish::Dropped if !in_use => {
                remove(&mut list, name);
            }
            Wish::Marked => {
                // One of an earlier boot says nothing of this one.
                if let (Some(boot), Mark::None | Mark::OtherBoot) = (&boot, mark(node, name, &Policy::FULL)) {
                    set(&mut marks, name, boot);
                }
            }
            Wish::Dropped | Wish::Keep => {}
        }
    }
    if let Some(boot) = &boot
        && policy.holds(Rule::MarkOnRelist)
    {
        for name in &record.suspect {
            add(&mut marks, name, boot.clone());
        }
    }
    let unreadable = matches!(node.in_use_unknown, UnknownMarks::Unreadable(_));
    let marks_change = unreadable || matches!(marks, Cow::Owned(_));
    let changes = marks_change || matches!(list, Cow::Owned(_));
    (changes || !removals.is_empty()).then(|| Composition {
        list: list.into_owned(),
        marks: marks_change.then(|| marks.into_owned()),
        removals,
        changes,
    })
}

/// What a node says of volumes by name, copied at the first change.
type Draft<'a, T> = Cow<'a, BTreeMap<UniqueVolumeName, T>>;

fn add<T: Clone>(draft: &mut Draft<'_, T>, name: &UniqueVolumeName, value: T) {
    if !draft.contains_key(name) {
        draft.to_mut().insert(name.clone(), value);
    }
}

fn set<T: Clone + PartialEq>(draft: &mut Draft<'_, T>, name: &UniqueVolumeName, value: &T) {
    if draft.get(name) != Some(value) {
        draft.to_mut().insert(name.clone(), value.clone());
    }
}

fn remove<T: Clone>(draft: &mut Draft<'_, T>, name: &UniqueVolumeName) {
    if draft.contains_key(name) {
        draft.to_mut().remove(name);
    }
}

/// The marks that stand. An annotation that cannot be read marks every volume the node may have.
fn readable_marks<'a>(node: &'a Node, record: &NodeRecord) -> Draft<'a, BootId> {
    match &node.in_use_unknown {
        UnknownMarks::Marks(marks) => Cow::Borrowed(marks),
        UnknownMarks::Unreadable(_) => {
            let Some(boot) = &node.boot_id else { return Cow::Owned(BTreeMap::new()) };
            let names = node.volumes_attached.keys().chain(record.wishes.keys()).chain(&node.volumes_in_use);
            Cow::Owned(names.map(|name| (name.clone(), boot.clone())).collect())
        }
    }
}

/// The node's volumes for which the acknowledgement of a patch is news beside what the Node object says: those it removed,
/// and those it lists first.
fn acknowledged_news(record: &NodeRecord, patch: &Patch) -> Vec<VolumeKey> {
    let known = record.acknowledged.as_ref().map(|known| &known.list);
    let listed_first = patch.list.keys().filter(|name| known.is_none_or(|known| !known.contains_key(*name)));
    let names = listed_first.chain(&patch.removals).filter_map(|name| name.volume_key());
    names.filter(|volume| record.volumes.contains(*volume)).cloned().collect()
}

/// The patch ended (or may not have). Returns whether the node's volumes are to be looked at.
pub fn patch_ended(name: &NodeName, ctx: &mut Context, outcome: &Outcome) -> Option<Node> {
    let now = outcome.ended.monotonic;
    let record = ctx.nodes.entry(name.clone()).or_default();
    let patch = record.patch.take()?;
    ctx.dirty_nodes.insert(name.clone());
    match &outcome.result {
        CallResult::Done(Answer::Node(Some(node))) => {
            ctx.backoff.clear(&BackoffKey::Node(name.clone()));
            record.hung_at = None;
            record.suspect.retain(|name| patch.marks.as_ref().is_some_and(|marks| !marks.contains_key(name)));
            let news = acknowledged_news(record, &patch);
            ctx.dirty_volumes.extend(news);
            record.acknowledged = Some(Acknowledged {
                uid: patch.uid.clone(),
                resource_version: node.resource_version.clone(),
                list: patch.list,
            });
            for removed in patch.removals {
                let removal = Removal { uid: patch.uid.clone(), made: patch.made, at: now };
                record.removed.insert(removed, removal);
            }
            return Some((**node).clone());
        }
        CallResult::NotSent => {}
        CallResult::Throttled => {
            ctx.backoff.failed(&BackoffKey::Node(name.clone()), Operation::NodePatch, Pace::Fast, now);
        }
        CallResult::Uncertain(_) => {
            record.hung_at = Some(patch.resource_version);
            record.refresh = true;
        }
        CallResult::Done(_) | CallResult::Refused(_) => {
            record.refresh = true;
            ctx.backoff.failed(&BackoffKey::Node(name.clone()), Operation::NodePatch, Pace::Fast, now);
        }
    }
    None
}

/// A live GET after a conflict or a patch of unknown outcome.
fn refresh(name: &NodeName, ctx: &mut Context) {
    let now = ctx.now.monotonic;
    let Some(record) = ctx.nodes.get(name) else { return };
    if !record.refresh || record.refreshing.is_some() {
        return;
    }
    if let Some(at) = record.retry_at.filter(|at| now < *at) {
        return ctx.timers.arm(TimerKey::Node(name.clone()), at, "read again");
    }
    if !ctx.ask(BudgetClass::LiveRead, Target::LiveReads(name.clone())) {
        return;
    }
    let call = Call::Kubernetes(KubernetesCall::GetNode { name: name.clone() });
    let id = ctx.outbox.push_read(BudgetClass::LiveRead, ctx.term(), call, Pending::NodeRefresh(name.clone()));
    if let Some(record) = ctx.nodes.get_mut(name) {
        record.refreshing = Some(id);
    }
}

/// The live GET of a refresh ended.
pub fn refresh_ended(name: &NodeName, ctx: &mut Context, outcome: Outcome) -> Option<Node> {
    let record = ctx.nodes.entry(name.clone()).or_default();
    record.refreshing = None;
    ctx.dirty_nodes.insert(name.clone());
    ctx.dirty_volumes.extend(record.volumes.iter().cloned());
    match outcome.result {
        CallResult::Done(Answer::Node(node)) => {
            record.refresh = false;
            node.map(|node| *node)
        }
        _ => {
            record.retry_at = Some(outcome.ended.monotonic + Duration::from_secs(1));
            None
        }
    }
}

/// The live GET and LIST that removals wait for, once for all volumes of the node.
fn live_reads(name: &NodeName, ctx: &mut Context) {
    let now = ctx.now.monotonic;
    let Some(record) = ctx.nodes.get_mut(name) else { return };
    let Some(live) = &record.live else { return };
    let after = live.after;
    let old = |began: Option<Monotonic>| began.is_none_or(|began| began < after);
    let get = live.get.is_none() && old(live.node.as_ref().map(|(began, _)| *began));
    let list = live.list.is_none() && old(live.pods.as_ref().map(|(began, _)| *began));
    if !get && !list {
        if now.saturating_since(after) > LIVE_READS_KEPT && live.get.is_none() && live.list.is_none() {
            record.live = None;
        }
        return;
    }
    if let Some(at) = record.retry_at.filter(|at| now < *at) {
        return ctx.timers.arm(TimerKey::Node(name.clone()), at, "read again");
    }
    if !ctx.ask(BudgetClass::LiveRead, Target::LiveReads(name.clone())) {
        return;
    }
    let term = ctx.term();
    let get = get.then(|| {
        let call = Call::Kubernetes(KubernetesCall::GetNode { name: name.clone() });
        ctx.outbox.push_read(BudgetClass::LiveRead, term, call, Pending::LiveNode(name.clone()))
    });
    let list = list.then(|| {
        let call = Call::Kubernetes(KubernetesCall::ListPods { node: name.clone() });
        ctx.outbox.push_read(BudgetClass::LiveRead, term, call, Pending::LivePods(name.clone()))
    });
    if let Some(live) = ctx.nodes.get_mut(name).and_then(|record| record.live.as_mut()) {
        live.get = get.or(live.get);
        live.list = list.or(live.list);
    }
}

/// A live read of a removal ended. It is evidence for the removals that wait for it.
pub fn live_ended(name: &NodeName, ctx: &mut Context, outcome: Outcome) -> Option<Node> {
    let record = ctx.nodes.entry(name.clone()).or_default();
    ctx.dirty_nodes.insert(name.clone());
    let began = outcome.began.monotonic;
    let live = record.live.as_mut()?;
    ctx.dirty_volumes.append(&mut live.asked_by);
    if live.get == Some(outcome.id) {
        live.get = None;
    }
    if live.list == Some(outcome.id) {
        live.list = None;
    }
    match outcome.result {
        CallResult::Done(Answer::Node(node)) => {
            live.node = Some((began, node.clone()));
            node.map(|node| *node)
        }
        CallResult::Done(Answer::Pods(pods)) => {
            live.pods = Some((began, pods));
            None
        }
        _ => {
            record.retry_at = Some(outcome.ended.monotonic + Duration::from_secs(1));
            None
        }
    }
}
