//! Each checker catches a scripted wrongdoer and lets the right-doer pass: worlds made by hand, no core involved.

mod at_rest;
mod calls;
mod while_it_runs;

use std::collections::BTreeMap;
use std::time::Duration;

use attachd::controller::event::Term;
use attachd::controller::policy::ForceDetach;
use attachd::model::attachment::{AttachmentSource, AttachmentStatus, VolumeAttachment};
use attachd::model::claim::{AccessMode, Claim, PersistentVolume, PersistentVolumeSource, Placement};
use attachd::model::device::DeviceName;
use attachd::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, BootId, ClaimKey, DriverName, InstanceId, NodeName,
    PersistentVolumeName, PodKey, ProviderId, ResourceVersion, Uid, UniqueVolumeName, VolumeHandle, VolumeKey, Zone,
};
use attachd::model::node::{CsiNode, Node, Ready, UnknownMarks};
use attachd::model::pod::{Pod, PodVolume};
use attachd::model::time::{Monotonic, Wall};
use attachd::model::volume::{AttachmentState, InstanceState};
use attachd::sim::checkers::rest::{check_never_throttled, check_patches, check_rest, check_silence};
use attachd::sim::checkers::world::{
    Actor, Ec2Attachment, Ec2CallInFlight, Ec2CallKind, Ec2Instance, Ec2Volume, Mount, MountKey, News, TermHeld,
    Touched, World,
};
use attachd::sim::checkers::{Checker, Invariant};

const US: Actor = Actor::Attachd(Term(1));

fn v1() -> AwsVolumeId {
    AwsVolumeId::parse("vol-01").unwrap()
}
fn v2() -> AwsVolumeId {
    AwsVolumeId::parse("vol-02").unwrap()
}
fn i1() -> InstanceId {
    InstanceId::parse("i-01").unwrap()
}
fn i2() -> InstanceId {
    InstanceId::parse("i-02").unwrap()
}
fn n1() -> NodeName {
    NodeName::new("n1")
}
fn n2() -> NodeName {
    NodeName::new("n2")
}
fn device() -> DeviceName {
    DeviceName::new("/dev/xvdaa")
}
fn listed(volume: &AwsVolumeId) -> UniqueVolumeName {
    VolumeKey::ebs(volume).unique_name()
}
fn name_of(volume: &AwsVolumeId, node: &NodeName) -> AttachmentName {
    AttachmentName::of(&AttachmentKey { volume: VolumeKey::ebs(volume), node: node.clone() })
}

/// A world at rest: `vol-01` wanted by a pod on n1, attached to i-01, listed, in use and mounted; `vol-02` free.
struct Scene {
    world: World,
    checker: Checker,
}

impl Scene {
    fn at_rest() -> Self {
        let mut world = World::default();
        world.now = world.now.plus(Duration::from_secs(1000));
        world.terms.insert(Term(1), TermHeld { since: Monotonic::ZERO, ended: None });
        for (node, instance) in [(n1(), i1()), (n2(), i2())] {
            add_machine(&mut world, &node, &instance);
        }
        for volume in [v1(), v2()] {
            add_volume(&mut world, &volume);
        }
        attach(&mut world, &v1(), &n1(), &i1(), 1);
        add_pod(&mut world, &v1(), &n1());
        let node = world.nodes.get_mut(&n1()).unwrap();
        node.volumes_attached.insert(listed(&v1()), "".into());
        node.volumes_in_use.insert(listed(&v1()));
        mount(&mut world, &v1(), &i1(), 1);
        let mut scene = Self { world, checker: Checker::new() };
        assert_eq!(scene.step(|_| ()), [], "the first look");
        assert_eq!(check_rest(&scene.world), []);
        scene
    }

    /// One step of the script, a second later: the invariants found broken by it.
    fn step(&mut self, change: impl FnOnce(&mut World)) -> Vec<Invariant> {
        self.step_after(Duration::from_secs(1), change)
    }

    fn step_after(&mut self, by: Duration, change: impl FnOnce(&mut World)) -> Vec<Invariant> {
        self.world.now = self.world.now.plus(by);
        self.world.touched = Touched::everything();
        change(&mut self.world);
        let found = self.checker.look(&self.world);
        self.world.forget_news();
        found.into_iter().map(|violation| violation.invariant).collect()
    }

    fn at_rest_broken(&self) -> Vec<Invariant> {
        check_rest(&self.world).into_iter().map(|violation| violation.invariant).collect()
    }

    /// The right order of a detach: the pod goes, the mount goes, in use goes, the list, then the object is deleted.
    fn release(&mut self) {
        let steps: [fn(&mut World); 4] = [
            |w| w.pods.clear(),
            |w| w.mounts.clear(),
            |w| {
                w.nodes.get_mut(&n1()).unwrap().volumes_in_use.clear();
            },
            |w| unlist(w, US),
        ];
        for step in steps {
            assert_eq!(self.step(step), []);
        }
        assert_eq!(self.step(|w| order_deletion(w, US)), []);
    }
}

fn add_machine(world: &mut World, node: &NodeName, instance: &InstanceId) {
    let boot = BootId::new(format!("boot-{instance}"));
    world.nodes.insert(
        node.clone(),
        Node {
            name: node.clone(),
            uid: Uid::new(format!("uid-{node}")),
            resource_version: ResourceVersion::new("1"),
            managed: true,
            provider_id: ProviderId::parse(&instance.text()),
            zone: Some(Zone::new("z")),
            ready: Ready { is_true: true, since: Some(Wall::from_millis(0)), heartbeat: None },
            out_of_service: false,
            boot_id: Some(boot.clone()),
            volumes_in_use: Default::default(),
            volumes_attached: Default::default(),
            in_use_unknown: UnknownMarks::default(),
        },
    );
    let drivers = BTreeMap::from([(DriverName::ebs(), instance.text())]);
    world.csi_nodes.insert(node.clone(), CsiNode { name: node.clone(), drivers, ebs_allocatable: None });
    let (state, zone) = (InstanceState::Running, Zone::new("z"));
    let machine = Ec2Instance { state, zone, boot, impaired: false, volume_limit: 25 };
    world.instances.insert(instance.clone(), machine);
}

fn add_volume(world: &mut World, id: &AwsVolumeId) {
    let volume = Ec2Volume { multi_attach_enabled: false, zone: Zone::new("z"), attachments: Vec::new() };
    world.volumes.insert(id.clone(), volume);
    let claim = ClaimKey::new("default", id.text());
    let uid = Uid::new(format!("claim-{id}"));
    let pv = PersistentVolumeName::new(id.text());
    world.persistent_volumes.insert(
        pv.clone(),
        PersistentVolume {
            name: pv.clone(),
            uid: Uid::new(format!("pv-{id}")),
            resource_version: ResourceVersion::new("1"),
            deleting: false,
            finalizers: vec![DriverName::ebs().attacher_finalizer().into()],
            claim: Some((claim.clone(), uid.clone())),
            source: PersistentVolumeSource::Csi {
                driver: DriverName::ebs(),
                handle: VolumeHandle::new(id.text()),
                attributes: BTreeMap::new(),
            },
            access_modes: [AccessMode::ReadWriteOnce].into(),
            block: false,
            placement: Placement::default(),
        },
    );
    world.claims.insert(claim.clone(), Claim { key: claim, uid, bound_to: Some(pv), owner_pod: None });
}

fn add_pod(world: &mut World, volume: &AwsVolumeId, node: &NodeName) {
    let key = PodKey::new("default", format!("pod-{volume}-{node}"));
    let pod = Pod {
        key: key.clone(),
        uid: Uid::new(format!("uid-{key}")),
        node: Some(node.clone()),
        created: Wall::from_millis(0),
        scheduled: None,
        deleting: false,
        terminated: false,
        volumes: vec![PodVolume::Claim(volume.text())],
    };
    world.pods.insert(key, pod);
}

/// An attachment in EC2 as attachd makes it, with the VolumeAttachment that stands for it.
fn attach(world: &mut World, volume: &AwsVolumeId, node: &NodeName, instance: &InstanceId, generation: u64) {
    let name = name_of(volume, node);
    let object = VolumeAttachment {
        name: name.clone(),
        uid: Uid::new(format!("va-{volume}-{node}-{generation}")),
        resource_version: ResourceVersion::new("1"),
        deleting: None,
        finalizers: vec![DriverName::ebs().attacher_finalizer().into()],
        driver: DriverName::ebs(),
        node: node.clone(),
        source: AttachmentSource::PersistentVolume(PersistentVolumeName::new(volume.text())),
        node_id: Some(instance.text()),
        node_uid: Some(Uid::new(format!("uid-{node}"))),
        device: Some(device()),
        unmounted: None,
        status: AttachmentStatus { attached: true, device_path: Some(device()), ..Default::default() },
    };
    world.attachments.insert(name, object);
    attach_bare(world, volume, instance, generation, US);
}

fn attach_bare(world: &mut World, volume: &AwsVolumeId, instance: &InstanceId, generation: u64, made_by: Actor) {
    let attachment = Ec2Attachment {
        instance: instance.clone(),
        device: device(),
        state: AttachmentState::Attached,
        generation,
        since: world.now.monotonic,
        made_by,
        ending_by: None,
    };
    world.volumes.get_mut(volume).unwrap().attachments.push(attachment);
}

fn mount(world: &mut World, volume: &AwsVolumeId, instance: &InstanceId, generation: u64) {
    let key = MountKey { volume: volume.clone(), instance: instance.clone(), generation };
    let boot = world.instances[instance].boot.clone();
    world.mounts.insert(key, Mount { boot, device: device(), pods: Default::default() });
}

fn unlist(world: &mut World, by: Actor) {
    world.nodes.get_mut(&n1()).unwrap().volumes_attached.clear();
    world.news.push(News::ListWritten { node: n1(), by });
}

fn list(world: &mut World, volume: &AwsVolumeId, by: Actor) {
    world.nodes.get_mut(&n1()).unwrap().volumes_attached.insert(listed(volume), "".into());
    world.news.push(News::ListWritten { node: n1(), by });
}

fn order_deletion(world: &mut World, by: Actor) {
    let now = world.now.wall;
    world.attachments.get_mut(&name_of(&v1(), &n1())).unwrap().deleting = Some(now);
    world.news.push(News::DeletionOrdered { name: name_of(&v1(), &n1()), by });
}

fn begin_detach(world: &mut World, by: Actor) {
    let attachment = &mut world.volumes.get_mut(&v1()).unwrap().attachments[0];
    attachment.state = AttachmentState::Detaching;
    attachment.ending_by = Some(by);
}

fn end_attachment(world: &mut World, by: Actor) {
    let attachment = world.volumes.get_mut(&v1()).unwrap().attachments.remove(0);
    world.news.push(News::AttachmentEnded { volume: v1(), attachment, by });
}

fn remove_object(world: &mut World, by: Actor) {
    let object = world.attachments.remove(&name_of(&v1(), &n1())).unwrap();
    world.news.push(News::FinalizerGone { object: Box::new(object), by });
}
