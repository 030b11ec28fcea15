//! A kubelet's process starts: it registers its Node if there is none, and makes out what it finds mounted.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::volumes::{Stage, VolumeWork, unique_name};
use super::{Kubelet, Process, SeenPod, Surroundings, Timer};
use crate::model::ids::{DriverName, Uid, VolumeKey};
use crate::model::node::CsiNode;
use crate::sim::kubelet::pods::{PodState, PodWork};

impl Kubelet {
    /// The process starts. Without the API server it cannot: it waits for the end of the partition.
    ///
    /// This is the only place where a Node is registered: once per process. What is mounted gets its attachable verdict
    /// from `volumesAttached` of a live read here, once, and keeps it.
    pub(super) fn start(&mut self, at: &mut Surroundings<'_>) {
        if self.partitioned || !self.machine.runs() || self.process.is_some() {
            return;
        }
        let node = at.api.register_node(at.now, &self.new_node());
        let id_for = |driver: &DriverName| {
            let ebs = driver.is_ebs();
            if ebs { self.machine.instance().text() } else { SmolStr::new(self.name.as_str()) }
        };
        let others = at.api.csi_drivers().map(|driver| driver.name.clone());
        let drivers: BTreeMap<DriverName, SmolStr> =
            others.chain([DriverName::ebs()]).map(|driver| (driver.clone(), id_for(&driver))).collect();
        // The node plugin counts every slot but the root's.
        let instance = at.ec2.instance(self.machine.instance());
        let slots = instance.map(|instance| at.ec2.options().limits(instance.instance_type()).attachments);
        let ebs_allocatable = slots.map(|slots| slots.saturating_sub(1));
        at.api.put_csi_node(CsiNode { name: self.name.clone(), drivers, ebs_allocatable });
        let volumes = self
            .machine
            .mounts()
            .keys()
            .map(|volume| {
                let attachable = node.volumes_attached.contains_key(&unique_name(volume));
                (volume.clone(), VolumeWork::new(Stage::Mounted, attachable))
            })
            .collect();
        self.process = Some(Process { node: Some(node), volumes, ..Process::default() });
        self.list_pods(at);
        self.plan_status(at);
    }

    /// After a partition: what its watches missed comes as a list.
    pub(super) fn list_anew(&mut self, at: &mut Surroundings<'_>) {
        let node = at.api.node(&self.name).cloned();
        if let Some(process) = &mut self.process {
            process.node = node;
        }
        self.list_pods(at);
        self.node_changed(at);
    }

    fn list_pods(&mut self, at: &mut Surroundings<'_>) {
        let pods: Vec<_> = at.api.pods_on(&self.name).cloned().collect();
        let listed = |uid: &Uid| pods.iter().any(|pod| pod.uid == *uid);

        // Containers whose pods are gone were found in the runtime: they are stopped like any other.
        let orphans: Vec<(Uid, PodWork)> = self
            .machine
            .containers
            .iter()
            .filter(|(uid, _)| !listed(uid))
            .map(|(uid, container)| {
                let work = PodWork {
                    key: container.key.clone(),
                    volumes: container.volumes.clone(),
                    state: PodState::Running,
                };
                (uid.clone(), work)
            })
            .collect();
        let Some(process) = &mut self.process else { return };
        let gone: Vec<Uid> = process.pods.keys().filter(|uid| !listed(uid)).cloned().collect();
        for (uid, work) in orphans {
            process.pods.entry(uid).or_insert(work);
        }
        let orphaned: Vec<Uid> = process.pods.keys().filter(|uid| !listed(uid)).cloned().collect();
        for uid in gone.iter().chain(&orphaned) {
            self.stop_pod(uid, at);
        }
        let stopped: Vec<Uid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        for pod in pods {
            self.sync_pod(SeenPod::Applied(pod), at);
        }
        // What had stopped while the API could not be told is told now.
        for uid in stopped {
            let state = self.process.as_ref().and_then(|process| process.pods.get(&uid)).map(|pod| pod.state);
            if state == Some(PodState::Stopped) {
                self.set(at.now.monotonic, Timer::RemovePod(uid));
            }
        }
        self.release_unwanted(at);
    }

    /// Mounts that no pod explains are taken down.
    fn release_unwanted(&mut self, at: &mut Surroundings<'_>) {
        let Some(process) = &self.process else { return };
        let volumes: Vec<VolumeKey> = process.volumes.keys().cloned().collect();
        for volume in volumes {
            self.release_volume(&volume, at);
        }
    }
}
