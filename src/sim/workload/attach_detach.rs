//! kube-controller-manager's attach/detach controller, for runs in which attachd has the role `attacher` alone.
//!
//! The real one (v1.36) as far as an attacher can tell: its loop of 100 ms, the 6 minutes after which it forces a detach,
//! the out-of-service taint, back-off per volume, polling of the VolumeAttachment, and the sync of every minute that
//! believes what VolumeAttachments say. Its caches are fresh here. Must never look at EC2: it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smol_str::SmolStr;

use crate::controller::event::{Kind, Object};
use crate::model::attachment::AttachmentSource;
use crate::model::claim::{AccessMode, PersistentVolumeSource};
use crate::model::ids::{
    AttachmentKey, AttachmentName, ClaimKey, NodeName, PersistentVolumeName, UniqueVolumeName, VolumeKey,
};
use crate::model::pod::PodVolume;
use crate::model::time::{Monotonic, Now};
use crate::sim::api_server::{Api, Change};
use crate::sim::checkers::world::Actor;

/// Between two passes of the reconciler.
const LOOP: Duration = Duration::from_millis(100);
/// After this the detach of a volume in use is forced, if the node is not Ready. Not a flag.
const FORCED_AFTER: Duration = Duration::from_secs(6 * 60);
/// `--attach-detach-reconcile-sync-period`
const SYNC_PERIOD: Duration = Duration::from_secs(60);
/// How long an operation waits for the attacher.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(120);
/// The first look at the VolumeAttachment, and the longest wait between two looks; each wait is 5 % longer.
const POLL: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(7));
/// Delay after a failed operation: the first, and the longest; each is twice the one before.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));

/// Its actual state of one volume on one node.
#[derive(Clone, Debug)]
struct Entry {
    /// Attached, or only uncertain.
    confirmed: bool,
    /// Whether it belongs into `volumesAttached`.
    reported: bool,
    detach_requested: Option<Monotonic>,
    /// Taken for in use until the next update of the Node.
    assumed_in_use: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationKind {
    Attach,
    Detach,
}

#[derive(Clone, Debug)]
struct Operation {
    kind: OperationKind,
    node: NodeName,
    give_up_at: Monotonic,
    poll_at: Monotonic,
    poll: Duration,
}

#[derive(Clone, Debug)]
struct Backoff {
    kind: OperationKind,
    delay: Duration,
    until: Monotonic,
}

/// What a pod wants, as the controller resolves it.
#[derive(Clone, Debug)]
struct Wish {
    persistent_volume: PersistentVolumeName,
    nodes: BTreeSet<NodeName>,
    exclusive: bool,
}

/// The controller.
#[derive(Clone, Debug, Default)]
pub struct AttachDetachController {
    actual: BTreeMap<(VolumeKey, NodeName), Entry>,
    in_use: BTreeMap<NodeName, BTreeSet<UniqueVolumeName>>,
    managed: BTreeSet<NodeName>,
    operations: BTreeMap<VolumeKey, Operation>,
    backoffs: BTreeMap<VolumeKey, Backoff>,
    reconcile_at: Option<Monotonic>,
    sync_at: Option<Monotonic>,
}

impl AttachDetachController {
    /// A controller that knows nothing and has nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something changed in the API server.
    pub fn see(&mut self, now: Now, change: &Change) {
        match (&change.before, &change.after) {
            (_, Some(Object::Node(node))) => {
                if node.managed {
                    self.managed.insert(node.name.clone());
                }
                self.in_use.insert(node.name.clone(), node.volumes_in_use.clone());
                let of_node = self.actual.iter_mut().filter(|((_, on), _)| *on == node.name);
                of_node.for_each(|(_, entry)| entry.assumed_in_use = false);
            }
            // What a Node that is gone showed last in use stays in use.
            (Some(Object::Node(_)), None) => {}
            (_, Some(Object::Pod(_) | Object::Claim(_) | Object::PersistentVolume(_)))
            | (Some(Object::Pod(_)), None) => {}
            _ => return,
        }
        self.look_at(now.monotonic + LOOP);
    }

    /// It is started again: it knows what VolumeAttachments say, and looks at each of them.
    pub fn restart(&mut self, now: Now, api: &Api) {
        self.operations.clear();
        self.backoffs.clear();
        self.actual.clear();
        for object in api.attachments() {
            let AttachmentSource::PersistentVolume(name) = &object.source else { continue };
            let source = api.persistent_volume(name).map(|volume| &volume.source);
            let Some(PersistentVolumeSource::Csi { driver, handle, .. }) = source else { continue };
            let key = VolumeKey { driver: driver.clone(), handle: handle.clone() };
            let attached = object.status.attached;
            let entry =
                Entry { confirmed: attached, reported: attached, detach_requested: None, assumed_in_use: false };
            self.actual.insert((key, object.node.clone()), entry);
        }
        self.sync_at = Some(now.monotonic + SYNC_PERIOD);
        self.look_at(now.monotonic);
    }

    /// When it has something to do.
    pub fn next_due(&self) -> Option<Monotonic> {
        let polls = self.operations.values().map(|operation| operation.poll_at);
        polls.chain(self.reconcile_at).chain(self.sync_at).min()
    }

    /// Whether an operation is under way or waits to be tried again.
    pub fn is_busy(&self, now: Monotonic) -> bool {
        !self.operations.is_empty() || self.backoffs.values().any(|backoff| backoff.until > now)
    }

    /// Does what is due; returns what it did, for the timeline.
    pub fn wake(&mut self, now: Now, api: &mut Api) -> Vec<String> {
        let mut done = Vec::new();
        self.poll_operations(now, api, &mut done);
        if self.sync_at.is_some_and(|at| at <= now.monotonic) {
            self.sync(now, api);
        }
        if self.reconcile_at.take_if(|at| *at <= now.monotonic).is_some() {
            let wishes = self.wishes(api);
            self.detach_pass(now, &wishes, api, &mut done);
            self.attach_pass(now, &wishes, api, &mut done);
            self.write_lists(api, &mut done);
        }
        done
    }

    fn look_at(&mut self, at: Monotonic) {
        self.reconcile_at = Some(self.reconcile_at.map_or(at, |planned| planned.min(at)));
    }

    fn wishes(&self, api: &Api) -> BTreeMap<VolumeKey, Wish> {
        let mut wishes: BTreeMap<VolumeKey, Wish> = BTreeMap::new();
        for object in api.list(Kind::Pod) {
            let Object::Pod(pod) = object else { continue };
            let Some(node) = pod.node.filter(|node| self.managed.contains(node) && !pod.terminated) else { continue };
            for volume in &pod.volumes {
                let PodVolume::Claim(claim) = volume else { continue };
                let claim = api.claim(&ClaimKey::new(pod.key.namespace.clone(), claim.clone()));
                let Some(pv) = claim.and_then(|claim| api.persistent_volume(claim.bound_to.as_ref()?)) else {
                    continue;
                };
                let PersistentVolumeSource::Csi { driver, handle, .. } = &pv.source else { continue };
                let key = VolumeKey { driver: driver.clone(), handle: handle.clone() };
                let many = [AccessMode::ReadWriteMany, AccessMode::ReadOnlyMany];
                let exclusive = !pv.access_modes.is_empty() && !many.iter().any(|mode| pv.access_modes.contains(mode));
                let wish = Wish { persistent_volume: pv.name.clone(), nodes: BTreeSet::new(), exclusive };
                wishes.entry(key).or_insert(wish).nodes.insert(node.clone());
            }
        }
        wishes
    }

    /// Whether the operation may not be started now; asks to be woken when it may.
    fn must_wait(&mut self, volume: &VolumeKey, kind: OperationKind, now: Now) -> bool {
        if self.operations.contains_key(volume) {
            return true;
        }
        let Some(backoff) = self.backoffs.get(volume).filter(|backoff| backoff.kind == kind) else { return false };
        let until = backoff.until;
        if until > now.monotonic {
            self.look_at(until);
        }
        until > now.monotonic
    }

    fn detach_pass(&mut self, now: Now, wishes: &BTreeMap<VolumeKey, Wish>, api: &mut Api, done: &mut Vec<String>) {
        let unwanted =
            |(volume, node): &&(VolumeKey, NodeName)| wishes.get(volume).is_none_or(|wish| !wish.nodes.contains(node));
        let keys: Vec<(VolumeKey, NodeName)> = self.actual.keys().filter(unwanted).cloned().collect();
        for (volume, node) in keys {
            if self.must_wait(&volume, OperationKind::Detach, now) {
                continue;
            }
            let name = volume.unique_name();
            let reported = self.in_use.get(&node).is_none_or(|in_use| in_use.contains(&name));
            let Some(entry) = self.actual.get_mut(&(volume.clone(), node.clone())) else { continue };
            let requested = *entry.detach_requested.get_or_insert(now.monotonic);
            let expired = now.monotonic.saturating_since(requested) >= FORCED_AFTER;
            let object = api.node(&node);
            let healthy = object.is_some_and(|node| node.ready.is_true);
            let fenced = object.is_some_and(|node| node.out_of_service);
            let in_use = reported || entry.assumed_in_use;
            if in_use && !fenced && (healthy || !expired) {
                if !expired {
                    self.look_at(requested + FORCED_AFTER);
                }
                continue;
            }
            entry.reported = false;
            self.write_lists(api, done);
            let verified =
                expired || fenced || !api.node(&node).is_some_and(|node| node.volumes_in_use.contains(&name));
            if verified {
                self.detach(now, volume, node, api, done);
            } else {
                self.fail(now, &volume, &node, OperationKind::Detach);
            }
        }
    }

    fn detach(&mut self, now: Now, volume: VolumeKey, node: NodeName, api: &mut Api, done: &mut Vec<String>) {
        let name = AttachmentName::of(&AttachmentKey { volume: volume.clone(), node: node.clone() });
        if api.order_deletion(now, Actor::Platform, &name) {
            done.push(format!("delete VolumeAttachment of {volume} on {node}"));
        }
        self.start(now, volume, node, OperationKind::Detach);
    }

    fn attach_pass(&mut self, now: Now, wishes: &BTreeMap<VolumeKey, Wish>, api: &mut Api, done: &mut Vec<String>) {
        for (volume, wish) in wishes {
            for node in &wish.nodes {
                if let Some(entry) = self.actual.get_mut(&(volume.clone(), node.clone()))
                    && entry.confirmed
                {
                    entry.detach_requested = None;
                    continue;
                }
                let elsewhere =
                    self.actual.iter().any(|((of, on), entry)| of == volume && on != node && entry.confirmed);
                if self.must_wait(volume, OperationKind::Attach, now) || (wish.exclusive && elsewhere) {
                    continue;
                }
                let key = AttachmentKey { volume: volume.clone(), node: node.clone() };
                if api.create_attachment_by_kubernetes(&key, &wish.persistent_volume) {
                    done.push(format!("create VolumeAttachment of {volume} on {node}"));
                }
                self.start(now, volume.clone(), node.clone(), OperationKind::Attach);
            }
        }
    }

    fn start(&mut self, now: Now, volume: VolumeKey, node: NodeName, kind: OperationKind) {
        let (at, poll) = (now.monotonic, POLL.0);
        let operation = Operation { kind, node, give_up_at: at + OPERATION_TIMEOUT, poll_at: at + poll, poll };
        self.operations.insert(volume, operation);
    }

    fn poll_operations(&mut self, now: Now, api: &Api, done: &mut Vec<String>) {
        let due: Vec<VolumeKey> = self
            .operations
            .iter()
            .filter(|(_, o)| o.poll_at <= now.monotonic)
            .map(|(volume, _)| volume.clone())
            .collect();
        for volume in due {
            let Some(operation) = self.operations.get_mut(&volume) else { continue };
            let (kind, node) = (operation.kind, operation.node.clone());
            let name = AttachmentName::of(&AttachmentKey { volume: volume.clone(), node: node.clone() });
            let object = api.attachment(&name);
            let ended = match (kind, object) {
                (OperationKind::Attach, Some(object)) if object.status.attached => Some(true),
                (OperationKind::Attach, Some(object)) => {
                    (object.deleting.is_some() || object.status.attach_error.is_some()).then_some(false)
                }
                (OperationKind::Attach, None) => None,
                (OperationKind::Detach, None) => Some(true),
                (OperationKind::Detach, Some(object)) => object.status.detach_error.is_some().then_some(false),
            };
            match ended.or((now.monotonic >= operation.give_up_at).then_some(false)) {
                None => {
                    operation.poll = operation.poll.mul_f64(1.05).min(POLL.1);
                    operation.poll_at = now.monotonic + operation.poll;
                }
                Some(succeeded) => {
                    self.operations.remove(&volume);
                    if succeeded {
                        self.succeed(volume, node, kind, done)
                    } else {
                        self.fail(now, &volume, &node, kind)
                    }
                    self.look_at(now.monotonic);
                }
            }
            self.sync_at.get_or_insert(now.monotonic + SYNC_PERIOD);
        }
    }

    fn succeed(&mut self, volume: VolumeKey, node: NodeName, kind: OperationKind, done: &mut Vec<String>) {
        self.backoffs.remove(&volume);
        match kind {
            OperationKind::Attach => {
                done.push(format!("{volume} is attached to {node}"));
                let assumed_in_use = !self.actual.contains_key(&(volume.clone(), node.clone()));
                let entry = Entry { confirmed: true, reported: true, detach_requested: None, assumed_in_use };
                self.actual.insert((volume, node), entry);
            }
            OperationKind::Detach => {
                done.push(format!("{volume} is detached from {node}"));
                self.actual.remove(&(volume, node));
            }
        }
    }

    /// A failed operation leaves the entry uncertain, and is tried again after a delay.
    fn fail(&mut self, now: Now, volume: &VolumeKey, node: &NodeName, kind: OperationKind) {
        let entry = self.actual.entry((volume.clone(), node.clone())).or_insert(Entry {
            confirmed: false,
            reported: false,
            detach_requested: None,
            assumed_in_use: true,
        });
        entry.confirmed = false;
        let before = self.backoffs.get(volume).filter(|backoff| backoff.kind == kind);
        let delay = before.map_or(BACKOFF.0, |backoff| (backoff.delay * 2).min(BACKOFF.1));
        let until = now.monotonic + delay;
        self.backoffs.insert(volume.clone(), Backoff { kind, delay, until });
        self.look_at(until);
    }

    /// What no VolumeAttachment says to be attached is forgotten; the next pass attaches it again, if it is wanted.
    fn sync(&mut self, now: Now, api: &Api) {
        self.actual.retain(|(volume, node), entry| {
            let name = AttachmentName::of(&AttachmentKey { volume: volume.clone(), node: node.clone() });
            !entry.confirmed || api.attachment(&name).is_some_and(|object| object.status.attached)
        });
        self.sync_at = (!self.actual.is_empty()).then_some(now.monotonic + SYNC_PERIOD);
        self.look_at(now.monotonic);
    }

    /// Every Node whose list is another than what is to be reported gets the whole list.
    fn write_lists(&mut self, api: &mut Api, done: &mut Vec<String>) {
        let nodes: Vec<NodeName> = api.nodes().map(|node| node.name.clone()).collect();
        for node in nodes {
            let of_node = self.actual.iter().filter(|((_, on), entry)| *on == node && entry.reported);
            let list: BTreeMap<UniqueVolumeName, SmolStr> =
                of_node.map(|((volume, _), _)| (volume.unique_name(), SmolStr::default())).collect();
            if api.set_volumes_attached(Actor::Platform, &node, list) {
                done.push(format!("volumesAttached of {node}"));
            }
        }
    }
}
