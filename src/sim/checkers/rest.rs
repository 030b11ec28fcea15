//! What must hold at a quiet end, with every fault healed: desired = actual = reported, and silence (rule 13).
//!
//! Flow: a driver lets the world come to rest and calls [`check_rest`] once, then waits on and calls [`check_silence`]
//! with the counts of both times. Where the design holds a volume back for safety's sake (a mark of the present boot, a
//! machine nobody can vouch for), the rest does not demand that it moved.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::volume_key_of;
use super::wanted::{Wanted, is_exclusive, is_marked, usable_instance, volume_behind, wanted};
use super::world::{Actor, CallCounts, Ec2Attachment, MountKey, World, instance_of};
use super::{Invariant, Violation};
use crate::model::attachment::VolumeAttachment;
use crate::model::ids::{AttachmentKey, AttachmentName, AwsVolumeId, DriverName, InstanceId, NodeName, VolumeKey};
use crate::model::node::Node;
use crate::model::volume::{AttachmentState, InstanceState};

/// So often a full instance is asked in ten minutes: the five between two tries are shortened by up to a quarter.
const ASKED_IN_SILENCE: u64 = 3;

/// Compares what is wanted with what is there.
pub fn check_rest(world: &World) -> Vec<Violation> {
    let mut rest = Rest::of(world);
    rest.volumes_are_where_they_are_wanted();
    rest.objects_are_exact();
    rest.lists_are_exact();
    rest.finalizers_are_gone();
    rest.violations
}

/// Compares the counts of two times at rest, ten minutes apart: nothing but polls may have been sent in between. Events are
/// no commands here: one that still holds is repeated now and then. A full instance that somebody waits for is asked every
/// five minutes at most, whoever waits: what else takes its slots is not seen (LIMIT-03).
pub fn check_silence(world: &World, before: &CallCounts) -> Vec<Violation> {
    let quiet = |kind: &str| kind.starts_with("Describe") || kind == "CreateEvent";
    let mut violations = Vec::new();
    let asked_of_full = world.counts.asked_of_full - before.asked_of_full;
    if asked_of_full > 0 {
        let full = world.instances.keys().filter(|instance| world.is_full(instance)).count() as u64;
        if asked_of_full > full * ASKED_IN_SILENCE {
            let detail = format!("sent {asked_of_full} times to {full} full instances");
            violations.push(violation(world, Invariant::SilentAtRest, "AttachVolume".to_owned(), detail));
        }
    }
    for (kind, count) in &world.counts.by_kind {
        let in_vain = if *kind == "AttachVolume" { asked_of_full } else { 0 };
        let sent = count - before.of(kind) - in_vain;
        if sent > 0 && !quiet(kind) {
            violations.push(violation(
                world,
                Invariant::SilentAtRest,
                (*kind).to_owned(),
                format!("sent {sent} times"),
            ));
        }
    }
    violations
}

/// In a run without faults EC2 and the API server never have to throttle.
pub fn check_never_throttled(world: &World) -> Vec<Violation> {
    let CallCounts { ec2_throttles, api_throttles, .. } = &world.counts;
    if *ec2_throttles + *api_throttles == 0 {
        return Vec::new();
    }
    let detail = format!("EC2 throttled {ec2_throttles} calls, the API server {api_throttles}");
    vec![violation(world, Invariant::NeverThrottled, "budgets".to_owned(), detail)]
}

/// In a run without faults a node is patched at most once for each volume that came, and once for each that went.
pub fn check_patches(world: &World, moves: &BTreeMap<NodeName, u64>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (node, patches) in &world.counts.node_patches {
        let changes = moves.get(node).copied().unwrap_or(0);
        if *patches > changes {
            let detail = format!("{patches} patches for {changes} changes");
            violations.push(violation(world, Invariant::PatchesAreChanges, node.to_string(), detail));
        }
    }
    violations
}

fn violation(world: &World, invariant: Invariant, about: String, detail: String) -> Violation {
    Violation { invariant, at: world.now.monotonic, about, detail }
}

struct Rest<'a> {
    world: &'a World,
    wanted: Wanted,
    /// Every VolumeAttachment of the EBS driver whose volume is known, by volume.
    objects: BTreeMap<AwsVolumeId, Vec<&'a VolumeAttachment>>,
    violations: Vec<Violation>,
}

impl<'a> Rest<'a> {
    fn of(world: &'a World) -> Self {
        let mut objects: BTreeMap<AwsVolumeId, Vec<&VolumeAttachment>> = BTreeMap::new();
        for object in world.attachments.values().filter(|object| object.driver.is_ebs()) {
            if let Some(volume) = volume_of(world, object) {
                objects.entry(volume).or_default().push(object);
            }
        }
        Self { world, wanted: wanted(world), objects, violations: Vec::new() }
    }

    fn tell(&mut self, invariant: Invariant, about: String, detail: impl Into<String>) {
        self.violations.push(violation(self.world, invariant, about, detail.into()));
    }

    fn volumes_are_where_they_are_wanted(&mut self) {
        let world = self.world;
        for (id, volume) in &world.volumes {
            let nodes = self.wanted_nodes(id);
            let exclusive = is_exclusive(world, id);
            for attachment in &volume.attachments {
                let wanted_here = nodes.iter().any(|node| instance_of(node) == Some(&attachment.instance));
                let about = format!("{id} on {}", attachment.instance);
                if wanted_here {
                    // A person who detaches under a mount gets `busy`, until the mount is gone.
                    let by_hand = attachment.ending_by == Some(Actor::Person);
                    let waits = by_hand || self.waits_for_its_mount(id, attachment);
                    if attachment.state != AttachmentState::Attached && !waits {
                        self.tell(Invariant::WantedIsAttached, about, format!("still {:?}", attachment.state));
                    }
                } else if !self.is_foreign(id, attachment)
                    && !self.is_held(id, &attachment.instance)
                    && !self.is_robbed(id, attachment)
                {
                    self.tell(Invariant::AttachedIsWanted, about, "no pod wants it there");
                }
            }
            let served =
                |node: &&Node| instance_of(node).is_some_and(|instance| world.ec2_attachment(id, instance).is_some());
            let unserved: Vec<&Node> = nodes.iter().copied().filter(|node| !served(node)).collect();
            let blocked = exclusive && !volume.attachments.is_empty();
            for node in unserved.into_iter().filter(|_| !blocked) {
                if self.can_attach(id, node) {
                    let about = format!("{id} on {}", node.name);
                    self.tell(Invariant::WantedIsAttached, about, "not attached, and nothing stands in the way");
                }
                if exclusive {
                    break;
                }
            }
        }
    }

    /// Beside kube-controller-manager an order is carried out on a node that is not Ready, or that reports nothing in use:
    /// where the volume is mounted all the same, EC2 shows it `busy` until its pod goes.
    fn waits_for_its_mount(&self, id: &AwsVolumeId, attachment: &Ec2Attachment) -> bool {
        let Ec2Attachment { instance, generation, state, .. } = attachment;
        let mount = MountKey { volume: id.clone(), instance: instance.clone(), generation: *generation };
        let is_busy = *state == AttachmentState::Busy && self.world.mounts.contains_key(&mount);
        let is_ordered = self.objects_of(id, instance).any(|object| object.deleting.is_some());
        self.world.rules.is_ordered && is_busy && is_ordered
    }

    fn wanted_nodes(&self, id: &AwsVolumeId) -> Vec<&'a Node> {
        let nodes = self.wanted.get(&VolumeKey::ebs(id));
        nodes.into_iter().flatten().filter_map(|name| self.world.nodes.get(name)).collect()
    }

    /// Whether nothing hinders an attach of this volume to this node.
    fn can_attach(&self, id: &AwsVolumeId, node: &Node) -> bool {
        let Some(instance) = usable_instance(self.world, node) else { return false };
        let (Some(volume), Some(machine)) = (self.world.volumes.get(id), self.world.instances.get(instance)) else {
            return false;
        };
        let key = AttachmentKey { volume: VolumeKey::ebs(id), node: node.name.clone() };
        // Lost behind our back, or with its machine: found by the idle sweep and by instance states, not at once.
        let lost = self.world.attachments.get(&AttachmentName::of(&key)).is_some_and(|object| {
            object.status.attached || object.instance().is_some_and(|instance| !self.is_running(&instance))
        });
        let free = !self.world.is_full(instance) && !is_marked(node, &key.volume) && !lost;
        volume.zone == machine.zone && free && !self.is_being_deleted(id)
    }

    /// Whether every PersistentVolume of the volume is being deleted: it takes no finalizer any more, so nothing is
    /// attached for it.
    fn is_being_deleted(&self, id: &AwsVolumeId) -> bool {
        let key = VolumeKey::ebs(id);
        let mut of_volume =
            self.world.persistent_volumes.values().filter(|pv| volume_key_of(pv).as_ref() == Some(&key)).peekable();
        of_volume.peek().is_some() && of_volume.all(|pv| pv.deleting)
    }

    /// An attachment that no VolumeAttachment records, made by hand: reported, never touched.
    fn is_foreign(&self, id: &AwsVolumeId, attachment: &Ec2Attachment) -> bool {
        attachment.made_by == Actor::Person
            && !self
                .objects_of(id, &attachment.instance)
                .any(|object| object.device.as_ref().is_some_and(|device| device.slot() == attachment.device.slot()))
    }

    fn objects_of(&self, id: &AwsVolumeId, instance: &InstanceId) -> impl Iterator<Item = &'a VolumeAttachment> {
        let of_volume = self.objects.get(id).into_iter().flatten().copied();
        of_volume.filter(move |object| object.instance().as_ref() == Some(instance))
    }

    /// Whether the fencing ladder keeps the volume where it is: nobody vouches that it is not mounted there.
    fn is_held(&self, id: &AwsVolumeId, instance: &InstanceId) -> bool {
        let world = self.world;
        let Some(object) = self.objects_of(id, instance).next() else { return false };
        let Some(node) = world.node_of(instance) else { return true };
        let key = VolumeKey::ebs(id);
        let recorded_uid = object.node_uid.as_ref().is_none_or(|uid| *uid == node.uid);
        !node.ready.is_true
            || !recorded_uid
            || is_marked(node, &key)
            || node.volumes_in_use.contains(&key.unique_name())
            || usable_instance(world, node).is_none()
    }

    fn objects_are_exact(&mut self) {
        let objects: Vec<(AwsVolumeId, &VolumeAttachment)> =
            self.objects.iter().flat_map(|(id, objects)| objects.iter().map(|object| (id.clone(), *object))).collect();
        for (id, object) in objects {
            self.object_is_exact(&id, object);
        }
        self.attachments_have_objects();
        self.other_drivers_are_served();
    }

    /// A volume of another driver has an attached VolumeAttachment where it is wanted, and none elsewhere.
    fn other_drivers_are_served(&mut self) {
        let world = self.world;
        let mut served = BTreeSet::new();
        for object in world.attachments.values().filter(|object| !object.driver.is_ebs()) {
            let Some(volume) = volume_behind(world, object) else { continue };
            let node = world.nodes.get(&object.node);
            let wanted_here = node.is_some() && self.wanted.get(&volume).is_some_and(|on| on.contains(&object.node));
            let held = node.is_some_and(|node| {
                !node.ready.is_true || is_marked(node, &volume) || node.volumes_in_use.contains(&volume.unique_name())
            });
            if wanted_here && object.status.attached && object.deleting.is_none() {
                served.insert(volume);
            } else if !wanted_here && !held {
                let about = format!("{volume} on {}", object.node);
                self.tell(Invariant::ObjectsExactAtRest, about, "left over: no pod wants it");
            } else {
                served.insert(volume);
            }
        }
        let unserved: Vec<VolumeKey> =
            self.wanted.keys().filter(|key| !key.driver.is_ebs() && !served.contains(*key)).cloned().collect();
        for volume in unserved {
            self.tell(Invariant::WantedIsAttached, volume.to_string(), "no VolumeAttachment serves it");
        }
    }

    fn object_is_exact(&mut self, id: &AwsVolumeId, object: &VolumeAttachment) {
        let about = format!("{id} on {}", object.node);
        let instance = object.instance();
        let wanted_here = self.wanted_nodes(id).iter().any(|node| node.name == object.node);
        let Some(attachment) = instance.as_ref().and_then(|i| self.world.ec2_attachment(id, i)) else {
            // Who waits keeps what it has; what stands for a machine that ended waits for word of its state.
            let held = instance.as_ref().is_some_and(|i| !self.is_running(i) || self.is_held(id, i));
            if !wanted_here && !held {
                self.tell(Invariant::ObjectsExactAtRest, about, "left over: nothing is attached, no pod wants it");
            }
            return;
        };
        let settled = wanted_here && attachment.state == AttachmentState::Attached;
        if settled && !self.is_foreign(id, attachment) {
            self.object_says_so(object, attachment, about);
        }
    }

    fn is_running(&self, instance: &InstanceId) -> bool {
        self.world.instances.get(instance).is_some_and(|machine| machine.state == InstanceState::Running)
    }

    fn object_says_so(&mut self, object: &VolumeAttachment, attachment: &Ec2Attachment, about: String) {
        if object.deleting.is_some() && self.world.rules.is_ordered && self.is_guarded(object) {
            // Held: a person ordered it. Nobody but a person can take a deletionTimestamp back.
        } else if object.deleting.is_some() {
            self.tell(
                Invariant::ObjectsExactAtRest,
                about,
                "wanted, attached, and its VolumeAttachment is Terminating",
            );
        } else if !object.has_attacher_finalizer() {
            self.tell(Invariant::ObjectsExactAtRest, about, "its VolumeAttachment has no finalizer");
        } else if !object.status.attached {
            self.tell(Invariant::ObjectsExactAtRest, about, "attached, and its VolumeAttachment does not say so");
        } else if object.status.device_path.as_ref() != Some(&attachment.device) {
            let said = object.status.device_path.as_ref().map(ToString::to_string).unwrap_or_default();
            let detail = format!("devicePath says {said:?}, EC2 says {}", attachment.device);
            self.tell(Invariant::ObjectsExactAtRest, about, detail);
        }
    }

    /// Whether attachd's guard keeps the volume of a VolumeAttachment that a person deletes: in use on a Ready node.
    fn is_guarded(&self, object: &VolumeAttachment) -> bool {
        let name = volume_behind(self.world, object).map(|volume| volume.unique_name());
        let node = self.world.nodes.get(&object.node).filter(|node| node.ready.is_true && !node.out_of_service);
        node.zip(name).is_some_and(|(node, name)| node.volumes_in_use.contains(&name))
    }

    /// Whether a person took the VolumeAttachment of an attachment where attachd may make none: nobody leads it out. Or
    /// when no list named the volume any more, and nobody leads since then who saw it go: it is reported (rule 9).
    fn is_robbed(&self, id: &AwsVolumeId, attachment: &Ec2Attachment) -> bool {
        let world = self.world;
        let Some(at) = world.robbed.get(&(id.clone(), attachment.instance.clone())) else { return false };
        let name = VolumeKey::ebs(id).unique_name();
        let is_told = world.node_of(&attachment.instance).is_some_and(|node| node.volumes_attached.contains_key(&name));
        let another_leads = world.terms.values().any(|term| term.since > *at);
        world.rules.is_ordered || (another_leads && !is_told)
    }

    fn attachments_have_objects(&mut self) {
        for (id, volume) in &self.world.volumes {
            for attachment in &volume.attachments {
                let stands = self.objects_of(id, &attachment.instance).next().is_some();
                if !stands && attachment.made_by.is_attachd() && !self.is_robbed(id, attachment) {
                    let about = format!("{id} on {}", attachment.instance);
                    self.tell(Invariant::ObjectsExactAtRest, about, "no VolumeAttachment stands for this attachment");
                }
            }
        }
    }

    fn lists_are_exact(&mut self) {
        let world = self.world;
        for node in world.nodes.values().filter(|node| node.managed && node.ready.is_true) {
            let listed: BTreeSet<VolumeKey> =
                node.volumes_attached.keys().filter_map(|name| name.volume_key().cloned()).collect();
            let due: BTreeSet<VolumeKey> = self.due_on(node);
            for volume in due.difference(&listed) {
                self.tell(Invariant::ListsExactAtRest, format!("{volume} on {}", node.name), "attached, not listed");
            }
            for volume in listed.difference(&due) {
                let held = match (volume.aws_volume_id(), instance_of(node)) {
                    (Some(id), Some(instance)) => self.is_held(&id, instance),
                    _ => false,
                };
                if !held && !node.volumes_in_use.contains(&volume.unique_name()) {
                    let about = format!("{volume} on {}", node.name);
                    self.tell(Invariant::ListsExactAtRest, about, "listed, not attached or not wanted");
                }
            }
        }
    }

    /// What the list of a node must hold: what is attached to its instance under an attached VolumeAttachment that is
    /// not being deleted.
    fn due_on(&self, node: &Node) -> BTreeSet<VolumeKey> {
        let attached = self
            .world
            .attachments
            .values()
            .filter(|object| object.node == node.name && object.status.attached && object.deleting.is_none());
        attached.filter_map(|object| self.due_entry(node, object)).collect()
    }

    fn due_entry(&self, node: &Node, object: &VolumeAttachment) -> Option<VolumeKey> {
        let key = volume_behind(self.world, object)?;
        let Some(id) = key.aws_volume_id() else { return Some(key) };
        let instance = object.instance().filter(|instance| instance_of(node) == Some(instance))?;
        let there = self.world.ec2_attachment(&id, &instance)?;
        (there.state == AttachmentState::Attached).then_some(key)
    }

    fn finalizers_are_gone(&mut self) {
        let finalizer = DriverName::ebs().attacher_finalizer();
        for pv in self.world.persistent_volumes.values().filter(|pv| pv.deleting) {
            let Some(id) = volume_key_of(pv).and_then(|key| key.aws_volume_id()) else { continue };
            let ours = pv.finalizers.iter().any(|name| *name == finalizer);
            if ours && !self.objects.contains_key(&id) {
                self.tell(Invariant::FinalizersGoneAtRest, pv.name.to_string(), "held by our finalizer");
            }
        }
    }
}

fn volume_of(world: &World, object: &VolumeAttachment) -> Option<AwsVolumeId> {
    volume_behind(world, object)?.aws_volume_id()
}
