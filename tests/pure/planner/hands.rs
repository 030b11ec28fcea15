//! What the world outside does at the desk: workloads, kubelets, people, EC2.

use std::collections::BTreeSet;

use attachd::controller::command::{AttachmentStatusChange, KubernetesCall, NewAttachment};
use attachd::controller::event::Kind;
use attachd::model::attachment::{AttachmentError, NewAttachmentSource, VolumeAttachment};
use attachd::model::claim::{PersistentVolume, PersistentVolumeSource};
use attachd::model::ids::{AttachmentKey, BootId, DriverName, InstanceType, PodKey, ProviderId, Uid, Zone};
use attachd::model::node::{CsiNode, Node};
use attachd::model::outcome::CallResult;
use attachd::model::volume::AttachmentState;
use attachd::sim::api_server::{KubeletStatus, NewNode};
use attachd::sim::checkers::world::Actor;

use smol_str::SmolStr;

use super::desk::{Desk, persistent_volume, s};
use super::short::{attachment, claim_key, instance, key, listed, node, pv_name, volume, zone};

pub fn pod_key(name: &str) -> PodKey {
    PodKey::new("ns", name)
}

impl Desk {
    /// A running instance, its Node (Ready) and its CSINode.
    pub fn add_node(&mut self, n: &str, i: &str) {
        self.add_node_in(n, i, zone());
    }

    /// The same, in another zone.
    pub fn add_node_in(&mut self, n: &str, i: &str, zone: Zone) {
        if self.ec2.instance(&instance(i)).is_none() {
            self.ec2.add_running_instance(self.now, instance(i), InstanceType::new("m7i.48xlarge"), zone.clone());
        }
        self.register_in(n, i, zone);
        self.csi(n, i);
    }

    /// The kubelet of `i` registers the Node `n` and is Ready.
    pub fn register(&mut self, n: &str, i: &str) {
        self.register_in(n, i, zone());
    }

    fn register_in(&mut self, n: &str, i: &str, zone: Zone) {
        let provider_id = ProviderId::parse(&format!("aws:///{zone}/{}", instance(i))).unwrap();
        let boot_id = BootId::new(format!("boot-of-{i}"));
        self.api.register_node(self.now, &NewNode { name: node(n), provider_id, zone, boot_id });
        self.ready(n);
    }

    /// The node plugin registers with the kubelet.
    pub fn csi(&mut self, n: &str, i: &str) {
        let drivers = [(DriverName::ebs(), instance(i).text())].into();
        self.api.put_csi_node(CsiNode { name: node(n), drivers, ebs_allocatable: None });
    }

    /// The node plugin counts so many slots for volumes.
    pub fn count_slots(&mut self, n: &str, i: &str, count: u32) {
        let drivers = [(DriverName::ebs(), instance(i).text())].into();
        self.api.put_csi_node(CsiNode { name: node(n), drivers, ebs_allocatable: Some(count) });
    }

    /// A free volume with a PersistentVolume and a claim.
    pub fn add_volume(&mut self, v: &str) {
        self.ec2.add_available_volume(self.now, volume(v), zone(), false);
        self.api.create_bound_claim(&claim_key(v), persistent_volume(v));
    }

    /// The same, with MultiAttachEnabled, behind a PersistentVolume that is ReadWriteOnce all the same.
    pub fn add_multi_attach_volume(&mut self, v: &str) {
        self.ec2.add_available_volume(self.now, volume(v), zone(), true);
        self.api.create_bound_claim(&claim_key(v), persistent_volume(v));
    }

    /// A PersistentVolume and a claim of a volume that EC2 does not have.
    pub fn add_claim_without_volume(&mut self, v: &str) {
        self.api.create_bound_claim(&claim_key(v), persistent_volume(v));
    }

    /// A PersistentVolume and a claim, named after `name`, of the volume `v`.
    pub fn add_second_claim(&mut self, name: &str, v: &str) {
        let pv = PersistentVolume { name: pv_name(name), ..persistent_volume(v) };
        self.api.create_bound_claim(&claim_key(name), pv);
    }

    /// A PersistentVolume and a claim, named after `name`, with an in-tree source.
    pub fn add_in_tree_claim(&mut self, name: &str, spelled: &str) {
        let source = PersistentVolumeSource::InTreeEbs(spelled.into());
        self.api.create_bound_claim(&claim_key(name), PersistentVolume { source, ..persistent_volume(name) });
    }

    /// A pod bound to a node.
    pub fn add_pod(&mut self, name: &str, n: &str, volumes: &[&str]) {
        let claims: Vec<_> = volumes.iter().map(|v| claim_key(v).name).collect();
        self.api.create_pod(self.now, &pod_key(name), &node(n), &claims).unwrap();
    }

    /// A pod is deleted with grace 0.
    pub fn remove_pod(&mut self, name: &str) {
        let uid = self.pod_uid(name);
        assert!(self.api.remove_pod(Actor::Platform, &pod_key(name), &uid));
    }

    pub fn pod_uid(&self, name: &str) -> Uid {
        self.api.pod(&pod_key(name)).unwrap().uid.clone()
    }

    /// The last pod of the node ends: it is removed, and nothing is in use there any more.
    pub fn end_pod(&mut self, name: &str, n: &str) {
        self.remove_pod(name);
        self.in_use(n, &[]);
    }

    /// The kubelet writes its status: exactly these volumes are in use.
    pub fn in_use(&mut self, n: &str, volumes: &[&str]) {
        let volumes_in_use: BTreeSet<_> = volumes.iter().map(|v| listed(v)).collect();
        let status = KubeletStatus { volumes_in_use: Some(volumes_in_use), boot_id: None, ready: true };
        self.api.patch_by_kubelet(self.now, &node(n), &status).unwrap();
    }

    pub fn ready(&mut self, n: &str) {
        let status = KubeletStatus { ready: true, ..KubeletStatus::default() };
        self.api.patch_by_kubelet(self.now, &node(n), &status).unwrap();
    }

    pub fn boot(&mut self, n: &str, boot: &str) {
        let boot_id = Some(BootId::new(boot));
        let status = KubeletStatus { volumes_in_use: None, boot_id, ready: true };
        self.api.patch_by_kubelet(self.now, &node(n), &status).unwrap();
    }

    pub fn not_ready(&mut self, n: &str) {
        assert!(self.api.set_not_ready(self.now, &node(n)));
    }

    pub fn taint(&mut self, n: &str, tainted: bool) {
        assert!(self.api.set_taint(Actor::Person, &node(n), tainted));
    }

    pub fn delete_node(&mut self, n: &str) {
        assert!(self.api.delete_node(Actor::Person, &node(n)));
    }

    /// A pod on the node uses the volume: attached, listed, in use. Everything sent for that is taken.
    pub fn use_volume(&mut self, pod: &str, n: &str, v: &str) {
        self.add_pod(pod, n, &[v]);
        self.run(s(1));
        let mut in_use: Vec<String> = self.in_use_on(n);
        in_use.push(v.to_owned());
        self.in_use(n, &in_use.iter().map(String::as_str).collect::<Vec<_>>());
        self.run_until(s(30), "listed", |desk| desk.lists(n, v));
        self.run(s(3));
        self.take_mutations();
    }

    fn in_use_on(&self, n: &str) -> Vec<String> {
        let names = self.node(n).volumes_in_use.iter();
        names.map(|name| format!("v{}", name.to_string().rsplit("vol-0").next().unwrap())).collect()
    }

    pub fn node(&self, n: &str) -> &Node {
        self.api.node(&node(n)).unwrap()
    }

    /// Whether volumesAttached holds the volume.
    pub fn lists(&self, n: &str, v: &str) -> bool {
        self.api.node(&node(n)).is_some_and(|node| node.volumes_attached.contains_key(&listed(v)))
    }

    /// Whether the node carries an unknown mark for the volume.
    pub fn marks(&self, n: &str, v: &str) -> Option<String> {
        match &self.node(n).in_use_unknown {
            attachd::model::node::UnknownMarks::Marks(marks) => marks.get(&listed(v)).map(|boot| boot.to_string()),
            attachd::model::node::UnknownMarks::Unreadable(text) => Some(text.to_string()),
        }
    }

    /// The VolumeAttachment.
    pub fn va(&self, v: &str, n: &str) -> Option<&VolumeAttachment> {
        self.api.attachment(&attachment(v, n))
    }

    /// `kubectl delete volumeattachment`.
    pub fn delete_va(&mut self, v: &str, n: &str) {
        assert!(self.api.delete_attachment_by_hand(self.now, &attachment(v, n)));
    }

    pub fn strip_va(&mut self, v: &str, n: &str) {
        assert!(self.api.strip_finalizers_by_hand(&attachment(v, n)));
    }

    /// Another writer makes the VolumeAttachment: name and spec only, as kube-controller-manager does.
    pub fn make_va(&mut self, v: &str, n: &str) {
        let key = AttachmentKey { volume: key(v), node: node(n) };
        let source = NewAttachmentSource::PersistentVolume(pv_name(v));
        self.write(&KubernetesCall::CreateAttachment(NewAttachment { key, source, recorded: None }));
    }

    /// Another writer adds a finalizer to the VolumeAttachment.
    pub fn finalize_va(&mut self, v: &str, n: &str, finalizer: &str) {
        let va = self.va(v, n).unwrap().clone();
        let finalizers = va.finalizers.iter().cloned().chain([finalizer.into()]).collect();
        let (name, uid, resource_version) = (va.name, va.uid, va.resource_version);
        self.write(&KubernetesCall::SetAttachmentFinalizers { name, uid, resource_version, finalizers });
    }

    /// Another writer changes something of the VolumeAttachment that says nothing to the core.
    pub fn annotate_va(&mut self, v: &str, n: &str) {
        assert!(self.api.annotate_unmounted_by_hand(&attachment(v, n), &BootId::new("of-no-machine")));
    }

    /// Another writer left an error of an earlier detach.
    pub fn set_detach_error(&mut self, v: &str, n: &str, message: &str) {
        let (name, uid) = (attachment(v, n), self.va(v, n).unwrap().uid.clone());
        let error = AttachmentError { message: message.into(), code: None, time: None };
        let change = AttachmentStatusChange::DetachError(error);
        self.write(&KubernetesCall::PatchAttachmentStatus { name, uid, change });
    }

    fn set_pv_finalizers(&mut self, v: &str, finalizers: Vec<SmolStr>) {
        let pv = self.api.persistent_volume(&pv_name(v)).unwrap().clone();
        let (name, uid, resource_version) = (pv.name, pv.uid, pv.resource_version);
        self.write(&KubernetesCall::SetPersistentVolumeFinalizers { name, uid, resource_version, finalizers });
    }

    /// A person strips every finalizer of the PersistentVolume.
    pub fn strip_pv(&mut self, v: &str) {
        self.set_pv_finalizers(v, Vec::new());
    }

    /// Another writer changes the PersistentVolume.
    pub fn annotate_pv(&mut self, v: &str) {
        let pv = self.api.persistent_volume(&pv_name(v)).unwrap();
        let finalizers = pv.finalizers.iter().cloned().chain(["somebody/else".into()]).collect();
        self.set_pv_finalizers(v, finalizers);
    }

    fn write(&mut self, call: &KubernetesCall) {
        let result = self.api.call(self.now, Actor::Person, call);
        assert!(matches!(result, CallResult::Done(_)), "{result:?}");
    }

    /// A person attaches at the console.
    pub fn attach_by_hand(&mut self, v: &str, i: &str, device: &str) {
        let device = attachd::model::device::DeviceName::new(device);
        self.ec2.attach_by_hand(self.now, &volume(v), &instance(i), &device).unwrap();
    }

    /// A person detaches at the console.
    pub fn detach_by_hand(&mut self, v: &str, i: &str) {
        self.ec2.detach_by_hand(self.now, &volume(v), &instance(i)).unwrap();
    }

    /// Where EC2 has the volume: `i1 /dev/xvdaa attached`.
    pub fn ec2_shows(&mut self, v: &str) -> Vec<String> {
        self.ec2.advance(self.now);
        let attachments = self.ec2.volume(&volume(v)).unwrap().attachments().iter();
        attachments
            .map(|a| {
                let instance = a.instance.text().replacen("i-0", "i", 1);
                format!("{instance} {} {}", a.device, a.state.as_str())
            })
            .collect()
    }

    pub fn is_attached(&mut self, v: &str, i: &str) -> bool {
        self.ec2.advance(self.now);
        let attachment = self.ec2.volume(&volume(v)).unwrap().attachment(&instance(i));
        attachment.is_some_and(|a| a.state == AttachmentState::Attached)
    }

    /// Whether EC2 has it attached nowhere.
    pub fn is_free(&mut self, v: &str) -> bool {
        self.ec2_shows(v).is_empty()
    }

    /// Whether everything of the volume is gone: VolumeAttachments, lists, attachments.
    pub fn is_all_gone(&mut self, v: &str) -> bool {
        let free = self.is_free(v);
        let named = (1..=4).any(|n| self.va(v, &format!("n{n}")).is_some() || self.lists(&format!("n{n}"), v));
        free && !named
    }

    pub fn delete_claim(&mut self, v: &str) {
        assert!(self.api.delete_claim(Actor::Person, &claim_key(v)));
    }

    pub fn delete_pv(&mut self, v: &str) {
        assert!(self.api.delete_persistent_volume(Actor::Person, &pv_name(v)));
    }

    pub fn has_pv(&self, v: &str) -> bool {
        self.api.persistent_volume(&pv_name(v)).is_some()
    }

    /// Both watches of what a node is.
    pub fn slow_nodes(&mut self) {
        self.slow_watch(Kind::Node);
        self.slow_watch(Kind::CsiNode);
    }
}
