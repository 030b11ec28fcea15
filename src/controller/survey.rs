//! The core's figures, counted when asked for.
//!
//! Flow: [`super::Controller::status`] between two plans. Walks over every volume, which a scrape now and then can pay
//! for and a plan could not. Must change nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::actual::slot::Slot;
use super::actual::volume::Reported;
use super::budget::BucketKind;
use super::command::BudgetClass;
use super::explain;
use super::status::{BudgetLevel, Direction, Pending, Status, VolumeCounts};
use super::store::Store;
use crate::model::ids::{DriverName, NodeName, VolumeKey};
use crate::model::time::{Now, Wall};

/// The figures as of now.
pub fn survey(store: &Store, now: Now) -> Status {
    let ctx = &store.ctx;
    let mut status = Status {
        leading: ctx.leading_since.is_some(),
        budgets: BucketKind::ALL.into_iter().map(|kind| (kind, level(store, kind))).collect(),
        // Shown at zero too: a line that comes and goes is one no alert can rely on.
        volumes: [(DriverName::ebs(), VolumeCounts::default())].into(),
        forced_detaches: ctx.forced_detaches.clone(),
        disagreements: ctx.disagreements.clone(),
        sweep_duration: ctx.syncer.last_sweep(),
        mass_absence: ctx.syncer.is_mass_absence(now.monotonic),
        unresolved_pods: ctx.desired.standing_problems().count() as u64,
        ..Status::default()
    };
    for key in ctx.desired.volumes() {
        let slots = store.volumes.get(key).map(|volume| &volume.slots);
        for (node, bound_at) in wanting_nodes(store, key) {
            status.volumes.entry(key.driver.clone()).or_default().desired += 1;
            let slot = slots.and_then(|slots| slots.get(node));
            if !slot.is_some_and(|slot| says_attached(slot)) {
                wait(&mut status, Direction::Attach, now.wall.saturating_since(bound_at), slot.map(Box::as_ref));
            }
        }
    }
    for (key, volume) in &store.volumes {
        let wanting = wanting_nodes(store, key);
        status.foreign_attachments +=
            volume.foreign.values().filter(|reported| **reported == Reported::Yes).count() as u64;
        for (node, slot) in &volume.slots {
            if explain::is_attached(slot) {
                status.volumes.entry(key.driver.clone()).or_default().actual += 1;
            }
            if slot.object.is_some() && !wanting.contains_key(node) {
                wait(&mut status, Direction::Detach, wished_for(slot, now), Some(slot));
            }
        }
    }
    count_reads(store, now, &mut status);
    status
}

/// How long ago what is attached was read, by volume and by node.
fn count_reads(store: &Store, now: Now, status: &mut Status) {
    let mut nodes: BTreeMap<&NodeName, Duration> = BTreeMap::new();
    for (_, node, age) in explain::reads(store, now) {
        status.sweep_age = status.sweep_age.max(Some(age));
        status.read_ages.volumes.count(age);
        let oldest = nodes.entry(node).or_default();
        *oldest = age.max(*oldest);
    }
    nodes.into_values().for_each(|oldest| status.read_ages.nodes.count(oldest));
}

/// The nodes that want the volume, each with the time its first pod was bound.
fn wanting_nodes<'a>(store: &'a Store, key: &VolumeKey) -> BTreeMap<&'a NodeName, Wall> {
    let mut nodes: BTreeMap<&NodeName, Wall> = BTreeMap::new();
    if store.ctx.desired.attach_required(&key.driver) {
        for want in store.ctx.desired.wants(key) {
            let first = nodes.entry(&want.node).or_insert(want.bound_at);
            *first = want.bound_at.min(*first);
        }
    }
    nodes
}

fn says_attached(slot: &Slot) -> bool {
    slot.object.as_ref().is_some_and(|object| object.status.attached)
}

/// How long the detach has been wished for: by this process, or by whoever deleted the object.
fn wished_for(slot: &Slot, now: Now) -> Duration {
    let here = slot.leaving.as_ref().map(|leaving| now.monotonic.saturating_since(leaving.since.monotonic));
    let deleted = slot.object.as_ref().and_then(|object| object.deleting).map(|at| now.wall.saturating_since(at));
    here.max(deleted).unwrap_or_default()
}

fn wait(status: &mut Status, direction: Direction, age: Duration, slot: Option<&Slot>) {
    let pending = status.pending.entry(direction).or_insert(Pending { count: 0, oldest: Duration::ZERO });
    pending.count += 1;
    pending.oldest = pending.oldest.max(age);
    if let Some(blocked) = slot.and_then(|slot| slot.blocked.as_ref()) {
        *status.blocked.entry((direction, blocked.reason.label())).or_default() += 1;
    }
}

fn level(store: &Store, kind: BucketKind) -> BudgetLevel {
    let class = match kind {
        BucketKind::Mutating => BudgetClass::Attach,
        BucketKind::Poll => BudgetClass::Poll,
        BucketKind::Sweep => BudgetClass::Sweep,
        BucketKind::Api => BudgetClass::Write,
        BucketKind::Event => BudgetClass::Event,
    };
    let budget = &store.ctx.outbox.budget;
    BudgetLevel { tokens: budget.level(class), per_second: budget.rate(class) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Controller;
    use crate::controller::event::{Event, EventKind, Object, WatchEvent};
    use crate::controller::policy::{Policy, Settings};
    use crate::controller::status::ForcedReason;
    use crate::model::attachment::{AttachmentSource, AttachmentStatus, VolumeAttachment};
    use crate::model::ids::{AttachmentKey, AttachmentName, AwsVolumeId, PodKey, ResourceVersion, Uid};
    use crate::model::pod::{InlineEbs, Pod, PodVolume};
    use crate::model::time::Monotonic;

    fn now(seconds: u64) -> Now {
        let monotonic = Monotonic::new(Duration::from_secs(seconds));
        Now { monotonic, wall: Wall::from_millis(1_000_000) + Duration::from_secs(seconds) }
    }

    fn say(controller: &mut Controller, at: Now, object: Object) {
        controller.ingest(Event { at, kind: EventKind::Watch(WatchEvent::Applied(object)) });
    }

    fn pod(name: &str, node: &str, created: Wall) -> Object {
        let volume_id = "vol-1".into();
        let inline = InlineEbs { volume_id, fs_type: None, partition: 0, read_only: false };
        Object::Pod(Pod {
            key: PodKey::new("default", name),
            uid: Uid::new(name),
            node: Some(NodeName::new(node)),
            created,
            scheduled: None,
            deleting: false,
            terminated: false,
            volumes: vec![PodVolume::InlineEbs(inline)],
        })
    }

    fn attachment(node: &str, attached: bool, deleting: Option<Wall>) -> Object {
        let volume = VolumeKey::ebs(&AwsVolumeId::parse("vol-1").unwrap());
        let (driver, handle) = (volume.driver.clone(), volume.handle.clone());
        Object::Attachment(VolumeAttachment {
            name: AttachmentName::of(&AttachmentKey { volume, node: NodeName::new(node) }),
            uid: Uid::new(format!("of-{node}")),
            resource_version: ResourceVersion::new("1"),
            deleting,
            finalizers: vec![DriverName::ebs().attacher_finalizer().into()],
            driver: driver.clone(),
            node: NodeName::new(node),
            source: AttachmentSource::Inline { driver, handle },
            node_id: Some("i-1".into()),
            node_uid: None,
            device: None,
            unmounted: None,
            status: AttachmentStatus { attached, ..AttachmentStatus::default() },
        })
    }

    #[test]
    fn what_is_wanted_and_what_is_attached_are_counted_per_node() {
        let mut controller = Controller::new(Settings::default(), Policy::FULL);
        // Two pods of one node want the volume once; the node of the third has it.
        say(&mut controller, now(0), pod("a", "n1", now(10).wall));
        say(&mut controller, now(0), pod("b", "n1", now(20).wall));
        say(&mut controller, now(0), pod("c", "n2", now(30).wall));
        say(&mut controller, now(0), attachment("n2", true, None));
        say(&mut controller, now(0), attachment("n3", true, Some(now(45).wall)));
        let status = controller.status(now(60));
        assert_eq!(status.volumes, [(DriverName::ebs(), VolumeCounts { desired: 2, actual: 2 })].into());
        let pending = |count, seconds| Pending { count, oldest: Duration::from_secs(seconds) };
        assert_eq!(
            status.pending,
            [(Direction::Attach, pending(1, 50)), (Direction::Detach, pending(1, 15))].into(),
            "n1 since its first pod was bound, n3 since it was deleted"
        );
    }

    #[test]
    fn a_fresh_core_shows_its_buckets_and_nothing_else() {
        let status = Controller::new(Settings::default(), Policy::FULL).status(now(0));
        assert_eq!(status.budgets.len(), BucketKind::ALL.len());
        let mutating = status.budgets[&BucketKind::Mutating];
        assert!((mutating.tokens - 10.0).abs() < 0.01 && (mutating.per_second - 5.0).abs() < 0.01, "{mutating:?}");
        let volumes = [(DriverName::ebs(), VolumeCounts::default())].into();
        assert_eq!(status, Status { budgets: status.budgets.clone(), volumes, ..Status::default() });
    }

    #[test]
    fn reasons_and_forced_detaches_are_told_apart() {
        let mut controller = Controller::new(Settings::default(), Policy::FULL);
        say(&mut controller, now(0), attachment("n3", true, None));
        let ctx = &mut controller.store.ctx;
        ctx.forced_detaches.insert(ForcedReason::OutOfService, 3);
        for volume in controller.store.volumes.values_mut() {
            for slot in volume.slots.values_mut() {
                slot.block(crate::controller::reason::BlockedReason::InUse, now(0).monotonic);
            }
        }
        let status = controller.status(now(1));
        assert_eq!(status.blocked, [((Direction::Detach, "InUse"), 1)].into());
        assert_eq!(status.forced_detaches, [(ForcedReason::OutOfService, 3)].into());
    }
}
