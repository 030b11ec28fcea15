//! Keeps the checkers' world like the models: only the entries that a step changed are renewed, and named.

use super::{Commander, Driver, Due};
use crate::controller::event::Object;
use crate::model::attachment::VolumeAttachment;
use crate::model::claim::{PersistentVolume, PersistentVolumeSource};
use crate::model::ids::{AwsVolumeId, BootId, InstanceId, KubernetesVolumeId, NodeName, VolumeKey};
use crate::model::volume::{CheckStatus, InstanceState};
use crate::sim::api_server::Change;
use crate::sim::checkers::wanted::volume_behind;
use crate::sim::checkers::world::{
    Actor, Ec2Attachment, Ec2CallInFlight, Ec2CallKind, Ec2Instance, Ec2Volume, Mount, MountKey, News,
};
use crate::sim::ec2::{Attachment, Caller, EndCause, EndedAttachment};
use crate::sim::kubelet::Kubelet;

impl<C: Commander> Driver<C> {
    /// What EC2 did since the last time: volumes, ended attachments, instances.
    pub(super) fn mirror_ec2(&mut self) {
        for id in self.ec2.take_touched() {
            self.last_activity = self.now.monotonic;
            if let Some(volume) = self.ec2.volume(&id) {
                let entry = Ec2Volume {
                    multi_attach_enabled: volume.multi_attach(),
                    zone: volume.zone().clone(),
                    attachments: volume.attachments().iter().map(attachment).collect(),
                };
                self.world.volumes.insert(id.clone(), entry);
            } else {
                self.world.volumes.remove(&id);
            }
            self.world.touched.volumes.insert(id);
        }
        for ended in self.ec2.take_ended() {
            let EndedAttachment { volume, attachment: last, cause, .. } = ended;
            let by = match cause {
                EndCause::Detached { by } => actor(&by),
                EndCause::InstanceTerminated | EndCause::Dropped => Actor::Platform,
            };
            self.note(super::Actor::Ec2, format!("{volume} is detached from {}", last.instance), String::new());
            if !by.is_attachd() {
                self.attachment_lost(&volume, &last.instance);
            }
            self.world.news.push(News::AttachmentEnded { volume, attachment: attachment(&last), by });
        }
        for id in self.ec2.take_checked() {
            let check = self.ec2.instance(&id).map(|instance| instance.instance_check().clone());
            if let (Some(check), Some(entry)) = (check, self.world.instances.get_mut(&id)) {
                entry.impaired = check == CheckStatus::Impaired;
                self.world.touched.nodes.extend(self.node_of.get(&id).cloned());
                self.note(
                    super::Actor::Ec2,
                    format!("the status check of {id} says {}", check.as_str()),
                    String::new(),
                );
            }
        }
        let changing: Vec<InstanceId> = self.changing.iter().cloned().collect();
        for id in changing {
            self.mirror_instance(&id);
        }
    }

    fn attachment_lost(&mut self, volume: &AwsVolumeId, instance: &InstanceId) {
        let Some(node) = self.node_of.get(instance) else { return };
        let name = self.attachment_name(volume, node);
        let says_so = |object: &VolumeAttachment| {
            object.status.attached && object.deleting.is_none() && object.instance().as_ref() == Some(instance)
        };
        if self.api.attachment(&name).is_some_and(says_so) {
            self.measures.lost(self.now.monotonic, name);
        }
    }

    /// An instance's state, and what follows for its machine.
    pub(super) fn mirror_instance(&mut self, id: &InstanceId) {
        let Some(instance) = self.ec2.instance(id) else {
            // EC2 shows it no longer.
            self.world.instances.remove(id);
            self.changing.remove(id);
            return;
        };
        let (state, zone, is_off) = (instance.state().clone(), instance.zone().clone(), instance.is_off());
        let limit = self.ec2.options().limits(instance.instance_type()).attachments as usize;
        if matches!(state, InstanceState::Running | InstanceState::Stopped | InstanceState::Terminated) {
            self.changing.remove(id);
        }
        if state == InstanceState::Terminated {
            // Some day EC2 shows it no longer.
            let later = self.now.monotonic + self.options.ec2.terminated_visible;
            self.schedule_due(later, Due::LookAgain(id.clone()));
        }
        let before = self.world.instances.get(id).map(|entry| entry.state.clone());
        let node = self.node_of.get(id).filter(|name| self.machine_is(name, id)).cloned();
        if is_off {
            // A guest that shuts down is off before its instance is `terminated`.
            self.orphan_off(id);
            if let Some(name) = &node
                && self.kubelets.get(name).is_some_and(|kubelet| !kubelet.machine().is_off())
            {
                self.with_kubelet(name, Kubelet::machine_off);
            }
        }
        if before.as_ref() == Some(&state) {
            return;
        }
        self.note(super::Actor::Ec2, format!("{id} is {}", state_name(&state)), String::new());
        if matches!(state, InstanceState::Stopped | InstanceState::Terminated) {
            self.plane.instance_gone(self.now);
        }
        if let (Some(name), InstanceState::Running, Some(InstanceState::Pending)) = (&node, &state, &before) {
            self.with_kubelet(name, Kubelet::power_on);
        }
        if let Some(name) = &node {
            self.world.touched.nodes.insert(name.clone());
        }
        let boot = match node.as_ref().and_then(|name| self.kubelets.get(name)) {
            Some(kubelet) => kubelet.machine().boot().clone(),
            None => self.world.instances.get(id).map_or_else(|| BootId::new(""), |entry| entry.boot.clone()),
        };
        // The root volume takes one slot.
        let impaired = self.world.instances.get(id).is_some_and(|entry| entry.impaired);
        let entry = Ec2Instance { state, zone, boot, impaired, volume_limit: limit.saturating_sub(1) };
        self.world.instances.insert(id.clone(), entry);
    }

    fn machine_is(&self, node: &NodeName, id: &InstanceId) -> bool {
        self.kubelets.get(node).is_some_and(|kubelet| kubelet.machine().instance() == id)
    }

    /// A machine without a name any more is off.
    pub(super) fn orphan_off(&mut self, id: &InstanceId) {
        let Some(mut machine) = self.orphans.remove(id) else { return };
        for volume in machine.lose_everything() {
            let Some(volume) = volume.aws_volume_id() else {
                self.world.other_mounts.remove(&(volume, id.clone()));
                continue;
            };
            self.world.mounts.retain(|key, _| !(key.instance == *id && key.volume == volume));
            self.world.touched.volumes.insert(volume);
        }
    }

    /// What the kernel of a node's machine has mounted of one volume.
    pub(super) fn mirror_mount(&mut self, node: &NodeName, mounted: &VolumeKey) {
        let Some(machine) = self.kubelets.get(node).map(Kubelet::machine) else { return };
        let instance = machine.instance();
        let Some(volume) = mounted.aws_volume_id() else {
            let entry = (mounted.clone(), instance.clone());
            if machine.mounts().contains_key(mounted) {
                self.world.other_mounts.insert(entry);
            } else {
                self.world.other_mounts.remove(&entry);
            }
            self.last_activity = self.now.monotonic;
            return;
        };
        let key = |generation| MountKey { volume: volume.clone(), instance: instance.clone(), generation };
        let stale: Vec<MountKey> =
            self.world.mounts.range(key(0)..=key(u64::MAX)).map(|(key, _)| key.clone()).collect();
        for key in stale {
            self.world.mounts.remove(&key);
        }
        if let Some(mount) = machine.mounts().get(mounted) {
            let entry = Mount { boot: machine.boot().clone(), device: mount.device.clone(), pods: mount.pods.clone() };
            self.world.mounts.insert(key(mount.generation), entry);
        }
        if let Some(entry) = self.world.instances.get_mut(instance) {
            entry.boot = machine.boot().clone();
        }
        self.world.touched.volumes.insert(volume);
        self.last_activity = self.now.monotonic;
    }

    /// One change of the API server.
    pub(super) fn mirror_change(&mut self, change: Change) {
        let Change { by, before, after } = change;
        match (before, after) {
            (before, Some(Object::Node(node))) => {
                let written = matches!(&before, Some(Object::Node(before))
                    if before.volumes_attached != node.volumes_attached || before.in_use_unknown != node.in_use_unknown);
                if written {
                    self.world.news.push(News::ListWritten { node: node.name.clone(), by });
                }
                self.world.touched.nodes.insert(node.name.clone());
                self.world.nodes.insert(node.name.clone(), node);
            }
            (Some(Object::Node(node)), None) => {
                self.world.nodes.remove(&node.name);
                self.world.touched.nodes.insert(node.name);
            }
            (_, Some(Object::CsiNode(node))) => {
                self.world.touched.nodes.insert(node.name.clone());
                self.world.csi_nodes.insert(node.name.clone(), node);
            }
            (Some(Object::CsiNode(node)), None) => {
                self.world.csi_nodes.remove(&node.name);
                self.world.touched.nodes.insert(node.name);
            }
            (before, Some(Object::Attachment(object))) => {
                self.attachment_news(by, before, Some(&object));
                self.world.touched.attachments.insert(object.name.clone());
                self.world.attachments.insert(object.name.clone(), object);
            }
            (Some(Object::Attachment(object)), None) => {
                self.world.attachments.remove(&object.name);
                self.world.touched.attachments.insert(object.name.clone());
                self.attachment_news(by, Some(Object::Attachment(object)), None);
            }
            (_, Some(Object::Pod(pod))) => {
                self.world.pods.insert(pod.key.clone(), pod);
            }
            (Some(Object::Pod(pod)), None) => {
                self.world.pods.remove(&pod.key);
            }
            (_, Some(Object::Claim(claim))) => {
                self.world.claims.insert(claim.key.clone(), claim);
            }
            (Some(Object::Claim(claim)), None) => {
                self.world.claims.remove(&claim.key);
                self.world.news.push(News::ClaimGone { claim: claim.key });
            }
            (_, Some(Object::PersistentVolume(volume))) => {
                self.world.touched.volumes.extend(volume_of(&volume));
                self.world.persistent_volumes.insert(volume.name.clone(), volume);
            }
            (Some(Object::PersistentVolume(volume)), None) => {
                self.world.touched.volumes.extend(volume_of(&volume));
                self.world.persistent_volumes.remove(&volume.name);
            }
            _ => {}
        }
    }

    fn attachment_news(&mut self, by: Actor, before: Option<Object>, after: Option<&VolumeAttachment>) {
        let Some(Object::Attachment(before)) = before else {
            self.world.news.extend(after.map(|after| News::AttachmentMade { name: after.name.clone(), by }));
            return;
        };
        if before.deleting.is_none() && after.is_none_or(|after| after.deleting.is_some()) {
            self.world.news.push(News::DeletionOrdered { name: before.name.clone(), by });
        }
        if before.has_attacher_finalizer() && !after.is_some_and(VolumeAttachment::has_attacher_finalizer) {
            let volume = volume_behind(&self.world, &before).and_then(|volume| volume.aws_volume_id());
            if let (Actor::Person, Some(volume), Some(instance)) = (by, volume, before.instance()) {
                self.world.robbed.insert((volume, instance), self.world.now.monotonic);
            }
            self.world.news.push(News::FinalizerGone { object: Box::new(before), by });
        }
    }

    /// Mutating EC2 calls whose fate is open.
    pub(super) fn mirror_flights(&mut self) {
        let open = self.flights.values().filter(|flight| flight.arrivals > 0);
        self.world.calls_in_flight = open
            .filter_map(|flight| {
                use crate::controller::command::{Call, Ec2Call};
                let (volume, instance, kind) = match &flight.command.call {
                    Call::Ec2(Ec2Call::AttachVolume { volume, instance, .. }) => {
                        (volume, instance, Ec2CallKind::Attach)
                    }
                    Call::Ec2(Ec2Call::DetachVolume { volume, instance, .. }) => {
                        (volume, instance, Ec2CallKind::Detach)
                    }
                    _ => return None,
                };
                let (volume, instance, sent) = (volume.clone(), instance.clone(), flight.sent?);
                Some(Ec2CallInFlight { volume, instance, kind, term: flight.command.term, sent })
            })
            .collect();
    }
}

fn volume_of(volume: &PersistentVolume) -> Option<AwsVolumeId> {
    match &volume.source {
        PersistentVolumeSource::Csi { handle, .. } => AwsVolumeId::parse(&handle.text()).ok(),
        PersistentVolumeSource::InTreeEbs(id) => {
            KubernetesVolumeId::parse(id).ok().map(|id| id.aws_volume_id().clone())
        }
        _ => None,
    }
}

fn actor(caller: &Caller) -> Actor {
    match caller {
        Caller::Leader(term) => Actor::Attachd(*term),
        Caller::Person | Caller::Unnamed => Actor::Person,
    }
}

fn attachment(of: &Attachment) -> Ec2Attachment {
    Ec2Attachment {
        instance: of.instance.clone(),
        device: of.device.clone(),
        state: of.state.clone(),
        generation: of.generation,
        since: of.requested,
        made_by: actor(&of.by),
        ending_by: of.detach_by.as_ref().map(actor),
    }
}

fn state_name(state: &InstanceState) -> &str {
    match state {
        InstanceState::Pending => "pending",
        InstanceState::Running => "running",
        InstanceState::ShuttingDown => "shutting-down",
        InstanceState::Terminated => "terminated",
        InstanceState::Stopping => "stopping",
        InstanceState::Stopped => "stopped",
        InstanceState::Unknown(text) => text,
    }
}
