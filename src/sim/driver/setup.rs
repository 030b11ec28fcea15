//! Builds the world: nodes, volumes, workloads.

use std::collections::BTreeMap;
use std::time::Duration;

use smol_str::SmolStr;

use super::{Commander, Driver};
use crate::controller::command::{AttachmentStatusChange, KubernetesCall, NewAttachment, Recorded};
use crate::controller::event::Term;
use crate::model::attachment::NewAttachmentSource;
use crate::model::device::device_names;
use crate::model::ids::{
    AttachmentKey, AwsVolumeId, ClaimKey, DriverName, InstanceId, InstanceType, NodeName, PersistentVolumeName,
    VolumeHandle, VolumeKey, Zone,
};
use crate::model::node::CsiDriver;
use crate::model::outcome::{Answer, CallResult};
use crate::sim::api_server::{KubeletStatus, ebs_volume, other_volume};
use crate::sim::checkers::world::Actor;
use crate::sim::ec2::Caller;
use crate::sim::kubelet::{Kubelet, Surroundings};
use crate::sim::workload::{AppId, Apps};

/// The zone everything is in unless said otherwise.
const ZONE: &str = "us-east-1a";
/// A driver that is not attachd's.
const OTHER_DRIVER: &str = "csi.example.com";
/// The type of every instance unless said otherwise: 31 volumes beside its root.
const INSTANCE_TYPE: &str = "m7i.large";
/// The term of the attachd that was there before a world begins.
const EARLIER: Term = Term(0);

/// The PersistentVolume of a workload of that name.
pub(super) fn persistent_volume_name(workload: &str) -> String {
    format!("pv-{workload}")
}

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
        let key = VolumeKey { driver, handle: VolumeHandle::new(volume.text()) };
        let claim = claim_of(name);
        let pv = other_volume(&persistent_volume_name(name), &key);
        self.api.create_bound_claim(&ClaimKey::new("default", claim.clone()), pv);
        self.apps.add_of(self.now.monotonic + delay, (name, &claim), &key, &volume, node);
        self.settle();
        volume
    }

    /// Workloads that have run on `node` for long, one for each name: an earlier attachd attached their volumes, wrote
    /// every object and ended. Returns the volumes, in order. Not more than the node takes.
    ///
    /// # Panics
    ///
    /// If the node is not there, or does not take so many.
    pub fn add_attached_workloads(&mut self, node: &NodeName, names: &[String]) -> Vec<AwsVolumeId> {
        let ready = KubeletStatus { ready: true, ..KubeletStatus::default() };
        let object = self.api.patch_by_kubelet(self.now, node, &ready).expect("the node is there");
        let instance = object.provider_id.as_ref().and_then(|id| id.instance()).expect("on an instance").clone();
        let mut listed = BTreeMap::new();
        let mut volumes = Vec::new();
        for (name, device) in names.iter().zip(device_names()) {
            let volume = self.new_volume_of(name, false);
            let by = Caller::Leader(EARLIER);
            self.ec2.add_attached(self.now, &by, &volume, &instance, &device).expect("the instance takes it");
            self.attach_in_api(
                name,
                &volume,
                node,
                Recorded { instance: instance.clone(), node_uid: object.uid.clone(), device },
            );
            listed.insert(VolumeKey::ebs(&volume).unique_name(), SmolStr::default());
            self.apps.add(self.now.monotonic, name, &claim_of(name), &volume, node);
            self.measures.begins_on(volume.clone(), node.clone());
            volumes.push(volume);
        }
        let patch = KubernetesCall::PatchNodeStatus {
            name: node.clone(),
            uid: object.uid,
            resource_version: object.resource_version,
            volumes_attached: listed,
            marks: None,
            touch: None,
        };
        self.api.call(self.now, Actor::Attachd(EARLIER), &patch);
        self.apps.wake(self.now, &mut self.api, &mut self.dice.workload);
        self.settle();
        volumes
    }

    /// The objects of an attachment as attachd leaves them when it is done.
    fn attach_in_api(&mut self, name: &str, volume: &AwsVolumeId, node: &NodeName, recorded: Recorded) {
        let by = Actor::Attachd(EARLIER);
        let device_path = recorded.device.clone();
        let pv = PersistentVolumeName::new(persistent_volume_name(name));
        if let Some(object) = self.api.persistent_volume(&pv) {
            let mut finalizers = object.finalizers.clone();
            finalizers.push(SmolStr::new(DriverName::ebs().attacher_finalizer()));
            let (uid, resource_version) = (object.uid.clone(), object.resource_version.clone());
            let name = pv.clone();
            let call = KubernetesCall::SetPersistentVolumeFinalizers { name, uid, resource_version, finalizers };
            self.api.call(self.now, by, &call);
        }
        let key = AttachmentKey { volume: VolumeKey::ebs(volume), node: node.clone() };
        let source = NewAttachmentSource::PersistentVolume(pv);
        let new = NewAttachment { key, source, recorded: Some(recorded) };
        let made = self.api.call(self.now, by, &KubernetesCall::CreateAttachment(new));
        if let CallResult::Done(Answer::Attachment(Some(object))) = made {
            let change = AttachmentStatusChange::Attached { device_path };
            let call = KubernetesCall::PatchAttachmentStatus { name: object.name, uid: object.uid, change };
            self.api.call(self.now, by, &call);
        }
    }

    /// A volume with its PersistentVolume and claim that nobody uses.
    pub fn add_loose_volume(&mut self, name: &str) -> AwsVolumeId {
        let volume = self.new_volume_of(name, false);
        self.settle();
        volume
    }

    fn new_volume_of(&mut self, name: &str, multi_attach: bool) -> AwsVolumeId {
        let volume = self.ec2.new_volume_id();
        self.ec2.add_available_volume(self.now, volume.clone(), Zone::new(ZONE), multi_attach);
        let pv = ebs_volume(&persistent_volume_name(name), &volume);
        self.api.create_bound_claim(&ClaimKey::new("default", claim_of(name)), pv);
        volume
    }

    fn add_workload_of(&mut self, name: &str, node: &NodeName, delay: Duration, multi_attach: bool) -> AwsVolumeId {
        let volume = self.new_volume_of(name, multi_attach);
        self.apps.add(self.now.monotonic + delay, name, &claim_of(name), &volume, node);
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

/// The claim of the workload of that name.
fn claim_of(name: &str) -> String {
    format!("data-{name}")
}
