//! The workloads and loops alone.

mod attach_detach;

use super::*;
use crate::model::ids::AwsVolumeId;
use crate::model::ids::{BootId, ClaimKey, InstanceId, NodeName, PodKey, ProviderId, Zone};
use crate::model::time::{Monotonic, Now, Wall};
use crate::sim::api_server::{Api, KubeletStatus, NewNode, ebs_volume};
use crate::sim::checkers::world::Actor;
use crate::sim::dice::Dice;
use std::time::Duration;

fn at(seconds: u64) -> Now {
    let since = Duration::from_secs(seconds);
    Now { monotonic: Monotonic::new(since), wall: Wall::from_millis(0) + since }
}

fn node(api: &mut Api, name: &str, instance: &str) -> NodeName {
    let new = NewNode {
        name: NodeName::new(name),
        provider_id: ProviderId::parse(instance).expect("an instance"),
        zone: Zone::new("z"),
        boot_id: BootId::new("b"),
    };
    let name = api.register_node(at(0), &new).name;
    let ready = KubeletStatus { ready: true, ..Default::default() };
    api.patch_by_kubelet(at(0), &name, &ready).expect("there");
    name
}

fn world() -> (Api, Apps, Dice, NodeName, NodeName, AppId) {
    let mut api = Api::new();
    let (n1, n2) = (node(&mut api, "n1", "i-01"), node(&mut api, "n2", "i-02"));
    let volume = AwsVolumeId::parse("vol-0a").expect("an id");
    api.create_bound_claim(&ClaimKey::new("default", "data-a"), ebs_volume("pv-a", &volume));
    let mut apps = Apps::default();
    let id = apps.add(Monotonic::ZERO, "a", "data-a", &volume, &n1);
    let mut dice = Dice::new(1, 0);
    apps.wake(at(1), &mut api, &mut dice);
    (api, apps, dice, n1, n2, id)
}

fn tell(api: &mut Api, apps: &mut Apps, dice: &mut Dice, now: Now) {
    use crate::controller::event::Object;
    for change in api.take_changes() {
        match (&change.before, &change.after) {
            (_, Some(Object::Pod(pod))) => apps.pod_changed(now, pod, false, api, dice),
            (Some(Object::Pod(pod)), None) => apps.pod_changed(now, pod, true, api, dice),
            _ => {}
        }
    }
}

#[test]
fn a_moved_pod_is_made_again_when_it_is_gone_and_not_before() {
    let (mut api, mut apps, mut dice, _n1, n2, id) = world();
    let (key, uid) = apps.get(id).and_then(|app| app.pod.clone()).expect("made");
    assert!(apps.move_to(id, &n2, &mut api));
    tell(&mut api, &mut apps, &mut dice, at(2));
    apps.wake(at(60), &mut api, &mut dice);
    assert!(api.pod(&key).expect("still there").deleting);
    api.remove_pod(Actor::Platform, &key, &uid);
    tell(&mut api, &mut apps, &mut dice, at(61));
    apps.wake(at(62), &mut api, &mut dice);
    let again = api.pod(&key).expect("made again");
    assert_eq!((again.node.as_ref(), again.uid == uid), (Some(&n2), false));
}

#[test]
fn a_rolling_update_makes_the_next_pod_beside_the_last() {
    let (mut api, mut apps, mut dice, _n1, n2, id) = world();
    apps.set_replacement(Replacement::AtOnce);
    apps.move_to(id, &n2, &mut api);
    tell(&mut api, &mut apps, &mut dice, at(2));
    apps.wake(at(3), &mut api, &mut dice);
    assert_eq!((api.pods_on(&NodeName::new("n1")).count(), api.pods_on(&n2).count()), (1, 1));
}

#[test]
fn a_lost_lease_makes_not_ready_after_fifty_seconds_and_evicts_later() {
    let (mut api, _apps, _dice, n1, _n2, _id) = world();
    let mut plane = ControlPlane::new(ControlPlaneOptions::default());
    plane.lease_changed(at(10), &n1, false);
    plane.wake(at(59), &mut api, |_| false);
    assert!(api.node(&n1).expect("there").ready.is_true);
    plane.wake(at(60), &mut api, |_| false);
    assert!(!api.node(&n1).expect("there").ready.is_true);
    assert!(!api.pod(&PodKey::new("default", "a")).expect("there").deleting);
    plane.wake(at(360), &mut api, |_| false);
    assert!(api.pod(&PodKey::new("default", "a")).expect("there").deleting);
}

#[test]
fn a_lease_renewed_in_time_changes_nothing_and_starts_the_count_anew() {
    let (mut api, _apps, _dice, n1, _n2, _id) = world();
    let mut plane = ControlPlane::new(ControlPlaneOptions::default());
    plane.lease_changed(at(10), &n1, false);
    plane.lease_changed(at(40), &n1, true);
    plane.lease_changed(at(41), &n1, false);
    plane.wake(at(60), &mut api, |_| false);
    assert!(api.node(&n1).expect("there").ready.is_true, "counted from the second loss");
    plane.wake(at(91), &mut api, |_| false);
    assert!(!api.node(&n1).expect("there").ready.is_true);
}

#[test]
fn pods_of_a_missing_node_are_collected_and_a_taint_fences_only_a_node_not_ready() {
    let (mut api, _apps, _dice, n1, _n2, _id) = world();
    let mut plane = ControlPlane::new(ControlPlaneOptions::default());
    api.set_taint(Actor::Person, &n1, true);
    plane.tainted(at(5), &n1, &mut api);
    plane.wake(at(20), &mut api, |_| false);
    assert!(api.pod(&PodKey::new("default", "a")).expect("Ready: its kubelet ends it").deleting);
    api.set_not_ready(at(30), &n1);
    plane.wake(at(40), &mut api, |_| false);
    assert!(api.pod(&PodKey::new("default", "a")).is_none());

    let (mut api, _apps, _dice, n1, _n2, _id) = world();
    let mut plane = ControlPlane::new(ControlPlaneOptions::default());
    api.delete_node(Actor::Person, &n1);
    plane.node_gone(at(5));
    plane.wake(at(19), &mut api, |_| false);
    assert!(api.pod(&PodKey::new("default", "a")).is_some());
    plane.wake(at(20), &mut api, |_| false);
    assert!(api.pod(&PodKey::new("default", "a")).is_none());
}

#[test]
fn a_node_goes_with_its_instance_once_it_is_not_ready() {
    let (mut api, _apps, _dice, n1, n2, _id) = world();
    let mut plane = ControlPlane::new(ControlPlaneOptions::default());
    let gone = |instance: &InstanceId| instance.text() == "i-01";
    plane.instance_gone(at(1));
    plane.wake(at(10), &mut api, gone);
    assert!(api.node(&n1).is_some(), "Ready nodes are not asked about");
    api.set_not_ready(at(11), &n1);
    plane.wake(at(15), &mut api, gone);
    assert!(api.node(&n1).is_none() && api.node(&n2).is_some());
}

#[test]
fn the_attacher_of_another_driver_attaches_and_detaches_after_a_second_and_one_node_at_a_time() {
    use crate::model::ids::{AttachmentKey, AttachmentName, DriverName, PersistentVolumeName, VolumeHandle, VolumeKey};
    let mut api = Api::new();
    let volume = VolumeKey { driver: DriverName::new("csi.example.com"), handle: VolumeHandle::new("x") };
    let ebs = VolumeKey::ebs(&AwsVolumeId::parse("vol-0a").expect("an id"));
    let mut attacher = OtherAttacher::new();
    let make = |api: &mut Api, volume: &VolumeKey, node: &str| {
        let key = AttachmentKey { volume: volume.clone(), node: NodeName::new(node) };
        let pv = PersistentVolumeName::new(format!("pv-{}", volume.handle));
        assert!(api.create_attachment_by_kubernetes(&key, &pv));
        AttachmentName::of(&key)
    };
    let mut run = |api: &mut Api, from: u64, to: u64| {
        for second in from..=to {
            for change in api.take_changes() {
                attacher.see(at(second), &change);
            }
            attacher.wake(at(second), api);
        }
    };
    let attached = |api: &Api, name: &AttachmentName| api.attachment(name).is_some_and(|object| object.status.attached);
    let one = make(&mut api, &volume, "n1");
    run(&mut api, 1, 1);
    assert!(!attached(&api, &one));
    run(&mut api, 2, 3);
    let (two, not_its) = (make(&mut api, &volume, "n2"), make(&mut api, &ebs, "n1"));
    run(&mut api, 4, 10);
    assert_eq!([&one, &two, &not_its].map(|name| attached(&api, name)), [true, false, false]);
    assert!(api.delete_attachment_by_hand(at(10), &one));
    run(&mut api, 11, 11);
    assert!(api.attachment(&one).is_some(), "its finalizer holds it");
    run(&mut api, 12, 15);
    assert_eq!((api.attachment(&one).is_none(), attached(&api, &two)), (true, true));
}
