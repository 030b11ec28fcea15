//! The kubelet's model alone, fault by fault, with an attacher played by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use smol_str::SmolStr;

use super::volumes::unique_name;
use super::*;
use crate::controller::command::{AttachmentStatusChange, KubernetesCall, NewAttachment, Recorded};
use crate::controller::event::{Object, Term};
use crate::model::attachment::{NewAttachmentSource, VolumeAttachment};
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, ClaimKey, InstanceType, PersistentVolumeName, VolumeKey,
};
use crate::model::node::Node;
use crate::model::outcome::CallResult;
use crate::model::time::Wall;
use crate::sim::api_server::ebs_volume;
use crate::sim::checkers::world::Actor;
use crate::sim::ec2::Ec2Options;

const US: Actor = Actor::Attachd(Term(1));

struct Bench {
    api: Api,
    ec2: Ec2Model,
    dice: Dice,
    deeds: Vec<Deed>,
    kubelet: Kubelet,
    now: Now,
}

macro_rules! surroundings {
    ($bench:expr) => {
        &mut Surroundings {
            now: $bench.now,
            api: &mut $bench.api,
            ec2: &mut $bench.ec2,
            dice: &mut $bench.dice,
            deeds: &mut $bench.deeds,
        }
    };
}

fn volume() -> AwsVolumeId {
    AwsVolumeId::parse("vol-0a").expect("a volume id")
}

fn instance() -> InstanceId {
    InstanceId::parse("i-0a").expect("an instance id")
}

fn pod_key() -> PodKey {
    PodKey::new("default", "a")
}

impl Bench {
    fn new() -> Self {
        let now = Now { monotonic: Monotonic::ZERO, wall: Wall::from_millis(1_000_000_000) };
        let (mut api, mut dice, mut deeds) = (Api::new(), Dice::new(3, 0), Vec::new());
        let mut ec2 = Ec2Model::new(Ec2Options::default(), 3);
        ec2.add_running_instance(now, instance(), InstanceType::new("m5.large"), Zone::new("z"));
        ec2.add_available_volume(now, volume(), Zone::new("z"), false);
        api.create_bound_claim(&ClaimKey::new("default", "data"), ebs_volume("pv", &volume()));
        let at = Surroundings { now, api: &mut api, ec2: &mut ec2, dice: &mut dice, deeds: &mut deeds };
        let kubelet = Kubelet::new(NodeName::new("n1"), instance(), Zone::new("z"), KubeletOptions::default(), at);
        let mut bench = Self { api, ec2, dice, deeds, kubelet, now };
        bench.run(20);
        bench
    }

    /// Lets that many seconds pass.
    fn run(&mut self, seconds: u64) {
        let end = self.now.monotonic + Duration::from_secs(seconds);
        loop {
            self.carry_changes();
            let next = [self.kubelet.next_due(), self.ec2.next_change()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.plus(next.saturating_since(self.now.monotonic));
            self.ec2.advance(self.now);
            self.kubelet.wake(surroundings!(self));
        }
        self.now = self.now.plus(end.saturating_since(self.now.monotonic));
        self.ec2.advance(self.now);
    }

    fn carry_changes(&mut self) {
        for change in self.api.take_changes() {
            match (change.before, change.after) {
                (_, Some(Object::Node(node))) => self.kubelet.see_node(Some(node), surroundings!(self)),
                (Some(Object::Node(_)), None) => self.kubelet.see_node(None, surroundings!(self)),
                (_, Some(Object::Pod(pod))) => self.kubelet.see_pod(SeenPod::Applied(pod), surroundings!(self)),
                (Some(Object::Pod(pod)), None) => {
                    self.kubelet.see_pod(SeenPod::Gone(pod.key, pod.uid), surroundings!(self));
                }
                _ => {}
            }
        }
    }

    fn node(&self) -> &Node {
        self.api.node(&NodeName::new("n1")).expect("the Node")
    }

    fn in_use(&self) -> bool {
        self.node().volumes_in_use.contains(&unique_name(&VolumeKey::ebs(&volume())))
    }

    fn mounted(&self) -> bool {
        self.kubelet.machine().mounts().contains_key(&VolumeKey::ebs(&volume()))
    }

    fn create_pod(&mut self) -> Uid {
        self.api.create_pod(self.now, &pod_key(), &NodeName::new("n1"), &[SmolStr::new("data")]).expect("made")
    }

    fn call(&mut self, call: KubernetesCall) {
        let result = self.api.call(self.now, US, &call);
        assert!(matches!(result, CallResult::Done(_)), "{result:?}");
    }

    fn list(&mut self, listed: bool) {
        let node = self.node().clone();
        let entry = listed.then(|| (unique_name(&VolumeKey::ebs(&volume())), SmolStr::default()));
        self.call(KubernetesCall::PatchNodeStatus {
            name: node.name,
            uid: node.uid,
            resource_version: node.resource_version,
            volumes_attached: entry.into_iter().collect(),
            marks: None,
            touch: None,
        });
    }

    fn attachment(&self) -> VolumeAttachment {
        let key = AttachmentKey { volume: VolumeKey::ebs(&volume()), node: NodeName::new("n1") };
        self.api.attachment(&AttachmentName::of(&key)).expect("the VolumeAttachment").clone()
    }

    /// Attaches in EC2 and in Kubernetes, all but the list.
    fn attach(&mut self) {
        let device = DeviceName::new("/dev/xvdaa");
        self.ec2.attach_by_hand(self.now, &volume(), &instance(), &device).expect("accepted");
        self.run(5);
        let key = AttachmentKey { volume: VolumeKey::ebs(&volume()), node: NodeName::new("n1") };
        let source = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv"));
        let recorded = Recorded { instance: instance(), node_uid: self.node().uid.clone(), device: device.clone() };
        self.call(KubernetesCall::CreateAttachment(NewAttachment { key, source, recorded: Some(recorded) }));
        let made = self.attachment();
        let change = AttachmentStatusChange::Attached { device_path: device };
        self.call(KubernetesCall::PatchAttachmentStatus { name: made.name, uid: made.uid, change });
    }

    /// A pod that runs on the mounted volume.
    fn running() -> (Self, Uid) {
        let mut bench = Self::new();
        let uid = bench.create_pod();
        bench.run(11);
        bench.attach();
        bench.list(true);
        bench.run(5);
        assert!(bench.mounted() && bench.in_use());
        (bench, uid)
    }
}

#[test]
fn it_registers_once_and_reports_ready() {
    let bench = Bench::new();
    assert!(bench.node().ready.is_true && bench.kubelet.renews_lease());
    assert_eq!(bench.node().boot_id.as_ref(), Some(bench.kubelet.machine().boot()));
}

#[test]
fn in_use_is_reported_at_the_next_tick_before_anything_is_attached() {
    let mut bench = Bench::new();
    bench.create_pod();
    bench.run(1);
    let early = bench.in_use();
    bench.run(10);
    assert!(bench.in_use() && !bench.mounted(), "early: {early}");
}

#[test]
fn every_gate_holds_the_mount_back() {
    let mut bench = Bench::new();
    bench.create_pod();
    bench.run(11);
    bench.attach();
    bench.run(30);
    assert!(!bench.mounted(), "not listed");
    bench.list(true);
    bench.run(3);
    assert!(bench.mounted());
    assert!(bench.deeds.iter().any(|deed| matches!(deed, Deed::PodRunning(..))));
}

#[test]
fn listed_before_it_is_reported_in_use_throws_it_into_back_off() {
    let mut bench = Bench::new();
    bench.attach();
    bench.list(true);
    bench.run(1);
    bench.create_pod();
    bench.run(40);
    assert!(bench.mounted());
    let failures = bench.deeds.iter().filter(|deed| matches!(deed, Deed::Note(what, _) if what.contains("verify")));
    assert!(failures.count() >= 1, "{:?}", bench.deeds);
}

#[test]
fn a_terminating_attachment_is_not_mounted_and_costs_back_off() {
    let mut bench = Bench::new();
    bench.create_pod();
    bench.run(11);
    bench.attach();
    let name = bench.attachment().name;
    bench.api.delete_attachment_by_hand(bench.now, &name);
    bench.list(true);
    bench.run(60);
    assert!(!bench.mounted());
    let tries = bench.deeds.iter().filter(|d| matches!(d, Deed::Note(what, _) if what.contains("mount"))).count();
    assert!((5..=9).contains(&tries), "0.5, 1, 2, 4, 8, 16, 32 s: {tries}");
}

#[test]
fn a_deleted_pod_ends_before_or_after_its_unmount_and_in_use_goes_last() {
    let (mut bench, _) = Bench::running();
    bench.kubelet.set_slow_unmount(Some(Duration::from_secs(60)));
    bench.api.delete_pod(Actor::Platform, &pod_key());
    bench.run(10);
    assert!(bench.api.pod(&pod_key()).is_none(), "gone from the API while still mounted");
    bench.run(20);
    assert!(bench.mounted() && bench.in_use());
    bench.run(45);
    assert!(!bench.mounted() && !bench.in_use());
}

#[test]
fn a_force_deleted_pod_leaves_its_container_behind_for_a_while() {
    let (mut bench, uid) = Bench::running();
    bench.api.remove_pod(Actor::Person, &pod_key(), &uid);
    assert!(bench.kubelet.machine().running_containers() == 1);
    bench.run(20);
    assert!(!bench.mounted() && bench.kubelet.machine().running_containers() == 0);
}

#[test]
fn a_failed_pod_keeps_its_object_and_loses_its_mount() {
    let (mut bench, uid) = Bench::running();
    bench.kubelet.set_slow_unmount(Some(Duration::from_secs(30)));
    assert!(bench.kubelet.fail_pod(&uid, surroundings!(bench)));
    bench.run(10);
    assert!(bench.api.pod(&pod_key()).expect("there").terminated && bench.mounted() && bench.in_use());
    bench.run(40);
    assert!(bench.api.pod(&pod_key()).is_some() && !bench.mounted() && !bench.in_use());
}

#[test]
fn a_restart_keeps_what_is_listed_attachable() {
    let (mut bench, _) = Bench::running();
    bench.kubelet.kill_process(false, surroundings!(bench));
    bench.run(30);
    assert!(bench.mounted() && bench.in_use());
    bench.kubelet.set_slow_unmount(Some(Duration::from_secs(60)));
    bench.api.delete_pod(Actor::Platform, &pod_key());
    bench.run(40);
    assert!(bench.mounted() && bench.in_use());
}

#[test]
fn a_mount_found_unlisted_is_in_use_only_while_wanted_and_dropped_before_the_unmount() {
    let (mut bench, _) = Bench::running();
    bench.kubelet.kill_process(false, surroundings!(bench));
    bench.list(false);
    bench.run(30);
    assert!(bench.mounted() && bench.in_use(), "its pod wants it");
    bench.kubelet.set_slow_unmount(Some(Duration::from_secs(60)));
    bench.api.delete_pod(Actor::Platform, &pod_key());
    bench.run(40);
    assert!(bench.mounted() && !bench.in_use(), "the verdict of reconstruction stays");
}

#[test]
fn a_deleted_node_comes_back_only_with_a_restart_and_empty() {
    let (mut bench, _) = Bench::running();
    let uid = bench.node().uid.clone();
    bench.api.delete_node(Actor::Person, &NodeName::new("n1"));
    bench.run(600);
    assert!(bench.api.node(&NodeName::new("n1")).is_none());
    bench.kubelet.kill_process(false, surroundings!(bench));
    bench.run(6);
    assert!(bench.node().uid != uid && bench.node().volumes_attached.is_empty() && bench.mounted());
}

#[test]
fn a_reboot_takes_mounts_and_boot_id() {
    let (mut bench, _) = Bench::running();
    let boot = bench.node().boot_id.clone();
    bench.kubelet.reboot(surroundings!(bench));
    assert!(!bench.mounted() && bench.deeds.iter().any(|deed| matches!(deed, Deed::MountsLost(_))));
    bench.run(60);
    assert!(bench.node().boot_id != boot && bench.mounted(), "its pod is started again, through every gate");
}

#[test]
fn a_partitioned_kubelet_writes_nothing_and_its_containers_go_on() {
    let (mut bench, _) = Bench::running();
    bench.kubelet.set_partitioned(true, surroundings!(bench));
    bench.api.delete_pod(Actor::Platform, &pod_key());
    bench.run(400);
    assert!(!bench.kubelet.renews_lease() && bench.mounted() && bench.kubelet.machine().running_containers() == 1);
    assert!(bench.api.pod(&pod_key()).expect("Terminating").deleting);
    bench.kubelet.set_partitioned(false, surroundings!(bench));
    bench.run(20);
    assert!(bench.api.pod(&pod_key()).is_none() && !bench.mounted() && !bench.in_use());
}

#[test]
fn a_dead_kubelet_leaves_mounts_and_containers_as_they_are() {
    let (mut bench, _) = Bench::running();
    bench.kubelet.kill_process(true, surroundings!(bench));
    bench.api.delete_pod(Actor::Platform, &pod_key());
    bench.run(900);
    assert!(!bench.kubelet.renews_lease() && bench.kubelet.machine().runs());
    assert!(bench.mounted() && bench.kubelet.machine().running_containers() == 1, "it goes on writing");
    assert!(bench.api.pod(&pod_key()).expect("Terminating").deleting && bench.in_use());
    bench.kubelet.revive(surroundings!(bench));
    bench.run(30);
    assert!(!bench.mounted() && bench.api.pod(&pod_key()).is_none());
}

#[test]
fn a_machine_that_hangs_does_nothing_and_keeps_its_mounts_until_it_is_off() {
    let (mut bench, _) = Bench::running();
    bench.kubelet.hang();
    bench.kubelet.revive(surroundings!(bench));
    bench.api.delete_pod(Actor::Platform, &pod_key());
    bench.run(900);
    assert!(!bench.kubelet.renews_lease() && !bench.kubelet.machine().runs() && bench.mounted() && bench.in_use());
    assert!(bench.ec2.instance(&instance()).expect("there").holds(&volume()), "nobody lets go of the device");
    bench.kubelet.machine_off(surroundings!(bench));
    assert!(!bench.mounted() && bench.kubelet.machine().is_off());
    bench.kubelet.power_on(surroundings!(bench));
    bench.run(60);
    assert!(bench.kubelet.renews_lease() && bench.api.pod(&pod_key()).is_none());
}

#[test]
fn a_stale_informer_makes_it_count_as_reported_what_it_did_not_write() {
    let (mut bench, _) = Bench::running();
    bench.api.delete_pod(Actor::Platform, &pod_key());
    // Its informer stands still while the report of the unmount is already stored, and shows the list as it was.
    bench.kubelet.stall_node_watch(Duration::from_secs(120), bench.now);
    bench.run(25);
    assert!(!bench.mounted() && !bench.in_use());
    bench.create_pod();
    bench.run(15);
    assert!(bench.mounted(), "its own cache says reported");
    assert!(!bench.in_use(), "the API server was never told");
}

#[test]
fn a_stale_patch_lands_on_the_node_of_another_machine() {
    let mut bench = Bench::new();
    bench.api.delete_node(Actor::Person, &NodeName::new("n1"));
    let new = NewNode {
        name: NodeName::new("n1"),
        provider_id: ProviderId::parse("i-0b").expect("an instance"),
        zone: Zone::new("z"),
        boot_id: BootId::new("other"),
    };
    bench.api.register_node(bench.now, &new);
    bench.run(20);
    assert_eq!(bench.node().boot_id.as_ref(), Some(bench.kubelet.machine().boot()), "no UID in a kubelet's patch");
}

#[test]
fn a_device_that_goes_away_during_the_mount_is_not_mounted() {
    let mut bench = Bench::new();
    bench.create_pod();
    bench.run(11);
    bench.attach();
    bench.ec2.detach_by_hand(bench.now, &volume(), &instance()).expect("accepted");
    bench.run(10);
    bench.list(true);
    bench.run(20);
    assert!(!bench.mounted());
    let notes: BTreeMap<_, _> =
        bench.deeds.iter().filter_map(|d| if let Deed::Note(a, b) = d { Some((a, b)) } else { None }).collect();
    assert!(notes.values().any(|why| why.contains("device")), "{notes:?}");
}

#[test]
fn another_machine_takes_the_name_and_the_old_one_keeps_its_mounts() {
    let (mut bench, _) = Bench::running();
    bench.api.delete_node(Actor::Person, &NodeName::new("n1"));
    let other = InstanceId::parse("i-0b").expect("an instance id");
    let old = bench.kubelet.replace_machine(other.clone(), surroundings!(bench));
    bench.run(20);
    assert_eq!(old.mounts().len(), 1);
    assert_eq!(bench.node().provider_id.as_ref().and_then(|id| id.instance()), Some(&other));
    assert!(bench.kubelet.machine().mounts().is_empty());
}
