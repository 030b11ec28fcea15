//! Builds the world: nodes, volumes, workloads.

use std::time::Duration;

use super::{Commander, Driver};
use crate::model::ids::{
    AwsVolumeId, ClaimKey, DriverName, InstanceId, InstanceType, NodeName, VolumeHandle, VolumeKey, Zone,
};
use crate::model::node::CsiDriver;
use crate::sim::api_server::{ebs_volume, other_volume};
use crate::sim::kubelet::{Kubelet, Surroundings};
use crate::sim::workload::{AppId, Apps};

/// The zone everything is in unless said otherwise.
const ZONE: &str = "us-east-1a";
/// A driver that is not attachd's.
const OTHER_DRIVER: &str = "csi.example.com";
/// The type of every instance unless said otherwise: 31 volumes beside its root.
const INSTANCE_TYPE: &str = "m7i.large";

impl<C: Commander> Driver<C> {
    pub(super) fn add_csi_driver(&mut self) {
        self.api.put_csi_driver(CsiDriver { name: DriverName::ebs(), attach_required: true });
    }

    /// Adds a node on a running instance, its kubelet starting now.
    pub fn add_node(&mut self, name: &str) -> NodeName {
        let name = NodeName::new(name);
        let instance = self.new_instance();
        self.node_of.insert(instance.clone(), name.clone());
        let mut deeds = Vec::new();
        let at = Surroundings {
            now: self.now,
            api: &mut self.api,
            ec2: &mut self.ec2,
            dice: &mut self.dice.kubelets,
            deeds: &mut deeds,
        };
        let kubelet = Kubelet::new(name.clone(), instance.clone(), Zone::new(ZONE), self.options.kubelet.clone(), at);
        self.kubelets.insert(name.clone(), kubelet);
        self.with_kubelet(&name, Kubelet::wake);
        self.changing.insert(instance);
        self.settle();
        name
    }

    pub(super) fn new_instance(&mut self) -> InstanceId {
        let instance = self.ec2.new_instance_id();
        self.ec2.add_running_instance(self.now, instance.clone(), InstanceType::new(INSTANCE_TYPE), Zone::new(ZONE));
        instance
    }

    /// Adds a volume with its PersistentVolume and claim, and a workload that wants it on `node` after `delay`.
    pub fn add_workload(&mut self, name: &str, node: &NodeName, delay: Duration) -> AwsVolumeId {
        self.add_workload_of(name, node, delay, false)
    }

    /// The same with a volume that EC2 would attach to several instances, used ReadWriteOnce with a file system: nobody
    /// but attachd keeps it on one.
    pub fn add_multi_attach_workload(&mut self, name: &str, node: &NodeName, delay: Duration) -> AwsVolumeId {
        self.add_workload_of(name, node, delay, true)
    }

    /// The same with a volume of another driver, whose attacher is not attachd.
    pub fn add_other_workload(&mut self, name: &str, node: &NodeName, delay: Duration) -> AwsVolumeId {
        let driver = DriverName::new(OTHER_DRIVER);
        self.api.put_csi_driver(CsiDriver { name: driver.clone(), attach_required: true });
        let volume = self.ec2.new_volume_id();
        let key = VolumeKey { driver, handle: VolumeHandle::new(volume.as_str()) };
        let claim = format!("data-{name}");
        let pv = other_volume(&format!("pv-{name}"), &key);
        self.api.create_bound_claim(&ClaimKey::new("default", claim.clone()), pv);
        self.apps.add_of(self.now.monotonic + delay, (name, &claim), &key, &volume, node);
        self.settle();
        volume
    }

    fn add_workload_of(&mut self, name: &str, node: &NodeName, delay: Duration, multi_attach: bool) -> AwsVolumeId {
        let volume = self.ec2.new_volume_id();
        self.ec2.add_available_volume(self.now, volume.clone(), Zone::new(ZONE), multi_attach);
        let claim = format!("data-{name}");
        self.api
            .create_bound_claim(&ClaimKey::new("default", claim.clone()), ebs_volume(&format!("pv-{name}"), &volume));
        self.apps.add(self.now.monotonic + delay, name, &claim, &volume, node);
        self.settle();
        volume
    }

    /// The workload of a volume.
    pub(super) fn app_of(&self, volume: &AwsVolumeId) -> Option<AppId> {
        self.apps.of_volume(volume)
    }

    /// The workloads, to change how they make their pods.
    pub fn apps_mut(&mut self) -> &mut Apps {
        &mut self.apps
    }
}
