//! Ends every fault: what a liveness phase begins with.

use super::{Actor, CallFaultRates, Commander, Driver, Due, Fault};
use crate::model::ids::{AwsVolumeId, InstanceId, NodeName};
use crate::model::volume::InstanceState;
use crate::sim::checkers::world::Actor as Writer;
use crate::sim::ec2::Caller;
use crate::sim::kubelet::{Kubelet, Machine};

impl<C: Commander> Driver<C> {
    /// Ends every fault that lasts, and lets people put right what only people can: a dead node is replaced, a lost
    /// Node registered again, a taint removed, an attachment made by hand taken back.
    pub fn heal_all(&mut self) {
        self.note(Actor::Simulation, "from here on nothing fails: the world comes to rest", "");
        self.last_activity = self.now.monotonic;
        let had_chaos = self.chaos.take().is_some();
        self.call_faults.clear();
        self.options.call_faults = CallFaultRates::default();
        self.queue.retain(|_, due| !matches!(due, Due::Fault(_) | Due::Chaos | Due::ChaosAtLarge | Due::Move));
        self.remarks.clear();
        self.queue.retain(|_, due| !matches!(due, Due::Ec2FaultEnds(_)));
        self.ec2.heal();
        self.world.stale_reads_until = None;
        self.triggers.clear();
        if had_chaos {
            self.restore_volumes();
            // What it forgot of a volume that went behind its back, only a restart of it brings back.
            if let Some(controller) = &mut self.attach_detach {
                controller.restart(self.now, &self.api);
            }
        }
        self.restore_claims();
        for process in &mut self.processes {
            process.watches().for_each(|watch| watch.heal());
        }
        self.take_back_attachments_by_hand();
        self.terminate_old_instances(|_| true);
        let nodes: Vec<NodeName> = self.kubelets.keys().cloned().collect();
        for node in nodes {
            self.heal_node(&node);
        }
        self.settle();
    }

    /// PersistentVolumes that people deleted under a workload: they make them again. In a small world they stay as they
    /// are: what a deletion leaves behind is what is looked at there.
    fn restore_volumes(&mut self) {
        let volumes: Vec<AwsVolumeId> = self.apps.iter().map(|(_, app)| app.volume.clone()).collect();
        for volume in volumes {
            self.restore_storage(&volume);
        }
    }

    /// Claims that people deleted under a pod: they make them again and bind them.
    fn restore_claims(&mut self) {
        let names: Vec<_> = self.api.persistent_volumes().map(|volume| volume.name.clone()).collect();
        for name in names {
            self.api.restore_claim(Writer::Person, &name);
        }
    }

    fn heal_node(&mut self, node: &NodeName) {
        self.apps.set_cordoned(node, false);
        self.api.set_taint(Writer::Person, node, false);
        self.with_kubelet(node, |kubelet, at| {
            kubelet.set_slow_unmount(None);
            kubelet.set_partitioned(false, at);
        });
        let state = self.instance_of(node).and_then(|instance| self.ec2.instance(&instance).map(|i| i.state().clone()));
        match state {
            None | Some(InstanceState::Terminated | InstanceState::ShuttingDown) => self.replace_instance(node, true),
            Some(InstanceState::Stopped) => self.start_instance_of(node),
            Some(InstanceState::Running) if self.machine(node).is_some_and(Machine::hangs) => {
                self.reboot_instance_of(node)
            }
            // It can be started only when it has stopped: the next attempt comes by itself.
            Some(InstanceState::Stopping) => {
                let fault = Fault::StartInstance(node.clone());
                self.schedule(std::time::Duration::from_secs(60), fault);
            }
            _ => {}
        }
        let registered = self.api.node(node).is_some();
        self.with_kubelet(node, |kubelet: &mut Kubelet, at| {
            if !registered && kubelet.machine().runs() {
                kubelet.kill_process(false, at);
            } else {
                kubelet.revive(at);
            }
        });
    }

    /// Attachments people made that no VolumeAttachment records would stand in the way for ever: people take them back.
    fn take_back_attachments_by_hand(&mut self) {
        let by_hand: Vec<(AwsVolumeId, InstanceId)> = self
            .ec2
            .volumes()
            .flat_map(|volume| volume.attachments().iter().map(move |attachment| (volume.id(), attachment)))
            .filter(|(id, attachment)| {
                attachment.by == Caller::Person
                    && !self.api.attachments().any(|object| {
                        object.instance().as_ref() == Some(&attachment.instance)
                            && object.device.as_ref() == Some(&attachment.device)
                            && self.apps.of_volume(id).is_some()
                    })
            })
            .map(|(id, attachment)| (id.clone(), attachment.instance.clone()))
            .collect();
        for (volume, instance) in by_hand {
            // Refused while it is still attaching: it stays then, and is reported as foreign.
            let _ = self.ec2.detach_by_hand(self.now, &volume, &instance);
        }
    }
}
