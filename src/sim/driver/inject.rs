//! Lets faults happen.

use std::time::Duration;

use super::{Actor, CallFault, CallTarget, Commander, Driver, Fault};
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, ClaimKey, InstanceId, NodeName, PodKey, Uid, VolumeKey,
};
use crate::sim::api_server::other_volume;
use crate::sim::checkers::world::Actor as Writer;
use crate::sim::ec2::{Ec2Fault, Staleness};
use crate::sim::kubelet::{Kubelet, Machine};
use crate::sim::workload::App;

/// The name under which people attach by hand. It is none of the first that attachd takes.
const DEVICE_BY_HAND: &str = "/dev/xvdf";
/// How long a person who carries a volume elsewhere waits for its detach: longer than EC2 ever takes.
const CARRIED_AFTER: Duration = Duration::from_secs(6);

impl<C: Commander> Driver<C> {
    /// Lets a fault happen, now, between two steps.
    pub fn inject(&mut self, fault: Fault) {
        self.renew_leases(self.now.monotonic);
        if self.options.trace {
            // What any healthy cluster sees every day is no fault.
            let who = match fault {
                Fault::MovePod(..) | Fault::ScaleWorkload(..) | Fault::Drain(_) | Fault::Uncordon(_) => Actor::Person,
                _ => Actor::Fault,
            };
            self.note(who, super::describe::fault(&fault), "");
        }
        self.last_activity = self.now.monotonic;
        let fault = match self.inject_into_node(fault) {
            None => return self.settle(),
            Some(fault) => fault,
        };
        let fault = match self.inject_by_person(fault) {
            None => return self.settle(),
            Some(fault) => fault,
        };
        match fault {
            Fault::ChangeLeader(old) => self.change_leader(old),
            Fault::RestartController => self.restart_controller(),
            Fault::NextCall(target, fault) => self.call_faults.push_back((target, fault)),
            Fault::StaleEc2Reads(window) => {
                self.ec2_fault_for(window, Ec2Fault::StaleReads(Staleness { window, percent: 50 }));
                // What is read in the window may be acted on a while later.
                self.world.stale_reads_until = Some(self.now.monotonic + window * 2);
            }
            Fault::OtherRegion(by) => self.ec2_fault_for(by, Ec2Fault::OtherRegion),
            Fault::Ec2Outage(by) => self.ec2_fault_for(by, Ec2Fault::Outage),
            Fault::FailPages(per_million, by) => {
                self.throttled_by_chance = true;
                self.ec2_fault_for(by, Ec2Fault::FailPages { per_million });
            }
            Fault::NextAnswer(action, with) => self.ec2.inject(Ec2Fault::SpoilAnswers { action, with, count: 1 }),
            Fault::StallWatch(kind, by) => {
                let now = self.now.monotonic;
                for process in &mut self.processes {
                    match kind {
                        Some(kind) => process.watch(kind).into_iter().for_each(|watch| watch.stall(now, by)),
                        None => process.watches().for_each(|watch| watch.stall(now, by)),
                    }
                }
            }
            Fault::Relist(kind) => {
                let (from, to) = self.options.latencies.watch;
                for process in &mut self.processes {
                    let due = self.now.monotonic + self.dice.watches.between(from, to);
                    if let Some(watch) = process.watch(kind) {
                        watch.relist(due, &self.api);
                    }
                }
            }
            _ => {}
        }
        self.settle();
    }

    /// Faults of nodes, kubelets and instances; hands back any other.
    fn inject_into_node(&mut self, fault: Fault) -> Option<Fault> {
        match fault {
            Fault::DeleteNode(node) => {
                self.api.delete_node(Writer::Person, &node);
            }
            Fault::ReplaceNodeObject(node) => {
                self.api.delete_node(Writer::Person, &node);
                self.with_kubelet(&node, |kubelet, at| kubelet.kill_process(false, at));
            }
            Fault::ReplaceInstance { node, old_terminated } => self.replace_instance(&node, old_terminated),
            Fault::TerminateOldInstances(node) => self.terminate_old_instances(|of| *of == node),
            Fault::RestartKubelet(node) => {
                self.with_kubelet(&node, |kubelet, at| kubelet.kill_process(false, at));
            }
            Fault::StopKubelet(node) => {
                self.with_kubelet(&node, |kubelet, at| kubelet.kill_process(true, at));
            }
            Fault::Partition(node) => {
                self.with_kubelet(&node, |kubelet, at| kubelet.set_partitioned(true, at));
            }
            Fault::HealPartition(node) => {
                self.with_kubelet(&node, |kubelet, at| kubelet.set_partitioned(false, at));
            }
            Fault::StallKubelet(node, by) => {
                self.with_kubelet(&node, |kubelet, at| kubelet.stall_node_watch(by, at.now));
            }
            Fault::SlowUnmount(node, takes) => {
                self.with_kubelet(&node, |kubelet, _| kubelet.set_slow_unmount(Some(takes)));
            }
            Fault::TerminateInstance(node) => self.terminate_instance_of(&node),
            Fault::StopInstance(node) => {
                let instance = self.instance_of(&node)?;
                if self.ec2.stop(self.now, &instance).is_ok() {
                    self.changing.insert(instance);
                    self.with_kubelet(&node, |kubelet, _| kubelet.shut_down());
                }
            }
            Fault::StartInstance(node) => self.start_instance_of(&node),
            Fault::RebootInstance(node) => self.reboot_instance_of(&node),
            Fault::HangMachine(node) => {
                let instance = self.instance_of(&node)?;
                if self.machine(&node).is_some_and(Machine::runs) {
                    self.ec2.guest_hangs(self.now, &instance);
                    self.with_kubelet(&node, |kubelet, _| kubelet.hang());
                }
            }
            Fault::HideInstance(node, by) => {
                let instance = self.instance_of(&node)?;
                self.ec2_fault_for(by, Ec2Fault::HideInstance(instance));
            }
            Fault::FlickerInstance(node, by) => {
                let instance = self.instance_of(&node)?;
                self.ec2_fault_for(by, Ec2Fault::FlickerInstance(instance));
            }
            other => return Some(other),
        }
        None
    }

    /// What people do to the cluster and to EC2; hands back any other fault.
    fn inject_by_person(&mut self, fault: Fault) -> Option<Fault> {
        match fault {
            Fault::Taint(node) => {
                self.api.set_taint(Writer::Person, &node, true);
            }
            Fault::RemoveTaint(node) => {
                self.api.set_taint(Writer::Person, &node, false);
            }
            Fault::DeleteAttachment(volume, node) => {
                let name = self.attachment_name(&volume, &node);
                self.api.delete_attachment_by_hand(self.now, &name);
            }
            Fault::StripFinalizers(volume, node) => {
                let name = self.attachment_name(&volume, &node);
                self.api.strip_finalizers_by_hand(&name);
            }
            Fault::AnnotateUnmounted(volume, node) => {
                let key = self.key_of(&volume);
                let machine = self.machine(&node).filter(|machine| !machine.mounts().contains_key(&key))?;
                let boot = machine.boot().clone();
                let name = self.attachment_name(&volume, &node);
                self.api.annotate_unmounted_by_hand(&name, &boot);
            }
            Fault::DeletePersistentVolume(volume) => {
                let claim = self.claim_of(&volume)?;
                let name = self.api.claim(&claim).and_then(|claim| claim.bound_to.clone())?;
                self.api.delete_persistent_volume(Writer::Person, &name);
            }
            Fault::DeleteClaim(volume) => {
                let claim = self.claim_of(&volume)?;
                self.api.delete_claim(Writer::Person, &claim);
            }
            Fault::RestoreClaim(volume) => self.restore_storage(&volume),
            Fault::DetachByHand(volume) => {
                for instance in self.holders(&volume) {
                    // Refused where it is not attached yet: then nothing happened.
                    let _ = self.ec2.detach_by_hand(self.now, &volume, &instance);
                }
            }
            Fault::ForceDetachByHand(volume) => self.force_detach(&volume),
            Fault::CarryByHand(volume, node) => {
                self.force_detach(&volume);
                self.schedule(CARRIED_AFTER, Fault::AttachByHand(volume, node));
            }
            Fault::AttachByHand(volume, node) => {
                let instance = self.instance_of(&node)?;
                // Refused where the volume is in use: then nothing happened.
                let _ = self.ec2.attach_by_hand(self.now, &volume, &instance, &DeviceName::new(DEVICE_BY_HAND));
            }
            other => return self.inject_into_workload(other),
        }
        None
    }

    /// What people do with workloads and nodes; the fault is given back if it is none of that.
    fn inject_into_workload(&mut self, fault: Fault) -> Option<Fault> {
        match fault {
            Fault::DeletePod(volume) => {
                let (key, _) = self.pod_of(&volume)?;
                self.api.delete_pod(Writer::Person, &key);
            }
            Fault::ForceDeletePod(volume) => {
                let (key, uid) = self.pod_of(&volume)?;
                self.api.remove_pod(Writer::Person, &key, &uid);
            }
            Fault::MovePod(volume, node) => {
                let id = self.app_of(&volume)?;
                self.apps.move_to(id, &node, &mut self.api);
            }
            Fault::ScaleWorkload(volume, wanted) => {
                let id = self.app_of(&volume)?;
                self.apps.set_wanted(self.now, id, wanted, &mut self.api);
            }
            Fault::FailPod(volume) => {
                let (key, uid) = self.pod_of(&volume)?;
                let node = self.api.pod(&key).and_then(|pod| pod.node.clone())?;
                self.with_kubelet(&node, |kubelet, at| kubelet.fail_pod(&uid, at));
            }
            Fault::Drain(node) => self.drain(&node),
            Fault::Uncordon(node) => self.apps.set_cordoned(&node, false),
            other => return Some(other),
        }
        None
    }

    pub(super) fn attachment_name(&self, volume: &AwsVolumeId, node: &NodeName) -> AttachmentName {
        AttachmentName::of(&AttachmentKey { volume: self.key_of(volume), node: node.clone() })
    }

    /// The volume of a workload, of whichever driver it is.
    pub(super) fn key_of(&self, volume: &AwsVolumeId) -> VolumeKey {
        let key = self.app_of(volume).and_then(|id| self.apps.get(id)).map(App::key);
        key.unwrap_or_else(|| VolumeKey::ebs(volume))
    }

    /// What a person makes again of a claim and its PersistentVolume.
    pub(super) fn restore_storage(&mut self, volume: &AwsVolumeId) {
        let Some(app) = self.app_of(volume).and_then(|id| self.apps.get(id)) else { return };
        let pv = other_volume(&super::setup::persistent_volume_name(&app.name), &app.key());
        let (claim, name) = (ClaimKey::new("default", app.claim.clone()), pv.name.clone());
        self.api.remake_persistent_volume(Writer::Person, &claim, pv);
        self.api.restore_claim(Writer::Person, &name);
    }

    fn claim_of(&self, volume: &AwsVolumeId) -> Option<ClaimKey> {
        let app = self.apps.get(self.app_of(volume)?)?;
        Some(ClaimKey::new("default", app.claim.clone()))
    }

    fn drain(&mut self, node: &NodeName) {
        self.apps.set_cordoned(node, true);
        let keys: Vec<PodKey> = self.api.pods_on(node).map(|pod| pod.key.clone()).collect();
        for key in keys {
            self.api.delete_pod(Writer::Person, &key);
        }
    }

    fn holders(&self, volume: &AwsVolumeId) -> Vec<InstanceId> {
        let attachments = self.ec2.volume(volume).map(|volume| volume.attachments()).unwrap_or_default();
        attachments.iter().map(|attachment| attachment.instance.clone()).collect()
    }

    fn force_detach(&mut self, volume: &AwsVolumeId) {
        for instance in self.holders(volume) {
            let _ = self.ec2.force_detach_by_hand(self.now, volume, &instance);
        }
    }

    /// A fault of EC2 for a while.
    fn ec2_fault_for(&mut self, by: Duration, fault: Ec2Fault) {
        self.ec2.inject(fault.clone());
        self.schedule_due(self.now.monotonic + by, super::Due::Ec2FaultEnds(fault));
    }

    pub(super) fn instance_of(&self, node: &NodeName) -> Option<InstanceId> {
        self.machine(node).map(|machine| machine.instance().clone())
    }

    fn pod_of(&self, volume: &AwsVolumeId) -> Option<(PodKey, Uid)> {
        self.apps.get(self.app_of(volume)?)?.pod.clone()
    }

    pub(super) fn terminate_instance_of(&mut self, node: &NodeName) {
        let Some(instance) = self.instance_of(node) else { return };
        if self.ec2.terminate(self.now, &instance).is_ok() {
            self.changing.insert(instance);
            self.with_kubelet(node, |kubelet, _| kubelet.shut_down());
        }
    }

    pub(super) fn start_instance_of(&mut self, node: &NodeName) {
        let Some(instance) = self.instance_of(node) else { return };
        if self.ec2.start(self.now, &instance).is_ok() {
            self.changing.insert(instance);
        }
    }

    pub(super) fn reboot_instance_of(&mut self, node: &NodeName) {
        let Some(instance) = self.instance_of(node) else { return };
        if self.machine(node).is_some_and(|machine| machine.runs() || machine.hangs())
            && self.ec2.reboot(self.now, &instance).is_ok()
        {
            self.with_kubelet(node, Kubelet::reboot);
            self.boot_changed(node);
        }
    }

    /// Instances that lost a name to another, and run on, are terminated.
    pub(super) fn terminate_old_instances(&mut self, of: impl Fn(&NodeName) -> bool) {
        let had_it = |id: &&InstanceId| self.node_of.get(*id).is_some_and(&of);
        let old: Vec<InstanceId> = self.orphans.keys().filter(had_it).cloned().collect();
        for instance in old {
            if self.ec2.terminate(self.now, &instance).is_ok() {
                self.changing.insert(instance);
            }
        }
    }

    /// Another instance takes the name.
    pub(super) fn replace_instance(&mut self, node: &NodeName, old_terminated: bool) {
        let Some(old_instance) = self.instance_of(node) else { return };
        self.api.delete_node(Writer::Person, node);
        let instance = self.new_instance();
        self.node_of.insert(instance.clone(), node.clone());
        let Some(old) = self.with_kubelet(node, |kubelet, at| kubelet.replace_machine(instance.clone(), at)) else {
            return;
        };
        self.orphans.insert(old_instance.clone(), old);
        if old_terminated && self.ec2.terminate(self.now, &old_instance).is_ok() {
            self.changing.insert(old_instance);
        }
        self.changing.insert(instance);
    }

    fn boot_changed(&mut self, node: &NodeName) {
        let Some((instance, boot)) = self.machine(node).map(|m| (m.instance().clone(), m.boot().clone())) else {
            return;
        };
        if let Some(entry) = self.world.instances.get_mut(&instance) {
            entry.boot = boot;
        }
        self.world.touched.nodes.insert(node.clone());
    }

    /// Something will happen to the next call of that kind.
    pub fn fault_next_call(&mut self, target: CallTarget, fault: CallFault) {
        self.inject(Fault::NextCall(target, fault));
    }
}
