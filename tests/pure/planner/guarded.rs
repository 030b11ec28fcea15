//! Cases SEC: volumes that must not be touched, policies that refuse, keys that cannot be used.

use attachd::controller::event::Role;
use attachd::controller::policy::{Policy, Settings, VolumeGuard};

use attachd::model::device::device_names;
use attachd::model::ids::InstanceType;
use attachd::model::outcome::{Answer, CallResult};
use attachd::model::volume::{BlockDeviceMapping, InstanceReading, InstanceState};

use super::desk::{Desk, Reply, ec2_says, s};
use super::short::{instance, volume, zone};

fn guarded(volume_guard: VolumeGuard) -> Settings {
    Settings { volume_guard, ..Settings::default() }
}

fn of_cluster(name: &str) -> Settings {
    guarded(VolumeGuard { cluster_name: Some(name.into()), require_tag: None })
}

#[test]
fn sec_01_a_volume_of_another_cluster_is_refused_before_any_call() {
    let mut desk = Desk::with(of_cluster("blue"), Policy::FULL);
    desk.ec2.tag_volume(&volume("v1"), "kubernetes.io/cluster/green", "owned");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(300));
    desk.expect(&[]);
    assert!(desk.waits("v1", "n1").contains("kubernetes.io/cluster/green"), "{}", desk.story());
    assert!(desk.count("event FailedAttachVolume") >= 1, "{}", desk.story());
    // A tag that makes it this cluster's too is seen by itself.
    desk.ec2.tag_volume(&volume("v1"), "kubernetes.io/cluster/blue", "shared");
    desk.run_to("attach v1 i1", s(90));
}

#[test]
fn sec_01_without_the_role_attach_detach_the_refusal_stands_on_the_volume_attachment() {
    let settings = Settings { roles: [Role::Attacher].into(), ..of_cluster("blue") };
    let mut desk = Desk::with(settings, Policy::FULL);
    desk.ec2.tag_volume(&volume("v1"), "kubernetes.io/cluster/green", "owned");
    desk.add_pod("a", "n1", &["v1"]);
    desk.make_va("v1", "n1");
    desk.run(s(300));
    desk.assert_never("attach v1");
    desk.assert_count("attach-error v1 n1 7", 1);
    let error = desk.va("v1", "n1").unwrap().status.attach_error.clone().unwrap();
    assert!(error.message.contains("kubernetes.io/cluster/green"), "{error:?}");
}

#[test]
fn sec_01_a_volume_that_became_another_clusters_is_not_detached() {
    let mut desk = Desk::with(of_cluster("blue"), Policy::FULL);
    desk.use_volume("a", "n1", "v1");
    desk.ec2.tag_volume(&volume("v1"), "kubernetes.io/cluster/green", "owned");
    desk.restart();
    desk.run(s(80));
    desk.end_pod("a", "n1");
    desk.run(s(300));
    desk.assert_never("detach v1");
    desk.assert_count("detach-error v1 n1", 1);
    assert!(desk.count("event VolumeDetachWaits") >= 1, "{}", desk.story());
    desk.ec2.tag_volume(&volume("v1"), "kubernetes.io/cluster/blue", "shared");
    desk.run_to("finish v1 n1", s(120));
    desk.assert_count("detach v1 i1", 1);
}

#[test]
fn sec_01_a_policy_that_goes_by_tags_is_shown_with_what_to_do() {
    let encoded = |n: u8| format!("You are not authorized. Encoded authorization failure message: x{n}y");
    let mut desk = Desk::new();
    for n in 0..3 {
        desk.answer("attach v1", ec2_says("UnauthorizedOperation", &encoded(n)));
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(140));
    // The same refusal is said once, though EC2 words it anew each time.
    desk.assert_count("attach-error v1 n1", 1);
    assert!(desk.count("attach v1") >= 2, "{}", desk.story());
    let times = desk.times("attach v1");
    assert!(times.windows(2).all(|pair| pair[1] >= pair[0] + s(20)), "slowly: {times:?}");
    let error = desk.va("v1", "n1").unwrap().status.attach_error.clone().unwrap();
    assert!(error.message.contains("UnauthorizedOperation") && error.message.contains("tagged"), "{error:?}");
    assert!(!error.message.contains("Encoded"), "{error:?}");
    desk.run(s(600));
    assert!(desk.va("v1", "n1").unwrap().status.attached, "{}", desk.story());
}

#[test]
fn sec_01_a_detach_that_policy_refuses_is_shown_and_tried_again_slowly() {
    let mut desk = Desk::using_v1();
    for _ in 0..2 {
        desk.answer("detach v1", ec2_says("UnauthorizedOperation", "You are not authorized."));
    }
    desk.end_pod("a", "n1");
    desk.run_to("detach-error v1 n1", s(30));
    desk.run(s(1));
    let error = desk.va("v1", "n1").unwrap().status.detach_error.clone().unwrap();
    assert!(error.message.contains("UnauthorizedOperation") && error.message.contains("tagged"), "{error:?}");
    assert!(desk.count("event VolumeDetachWaits") >= 1, "{}", desk.story());
    desk.run(s(10));
    assert!(desk.waits("v1", "n1").contains("UnauthorizedOperation"), "{}", desk.story());
    desk.run_to("finish v1 n1", s(300));
    desk.assert_count("detach-error v1 n1", 1);
    let times = desk.times("detach v1");
    assert!(times.len() == 3 && times.windows(2).all(|pair| pair[1] >= pair[0] + s(20)), "{times:?}");
}

#[test]
fn sec_03_a_key_that_cannot_be_used_is_said_and_costs_no_device_name() {
    let mut desk = Desk::new();
    desk.add_volume("v2");
    for _ in 0..3 {
        desk.answer("attach v1", ec2_says("CustomerKeyHasBeenRevoked", "The key of vol-01 was revoked"));
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(150));
    let error = desk.va("v1", "n1").unwrap().status.attach_error.clone().unwrap();
    assert!(error.message.contains("CustomerKeyHasBeenRevoked"), "{error:?}");
    desk.assert_count("attach-error v1 n1", 1);
    let times = desk.times("attach v1");
    assert!(times.len() >= 2 && times.windows(2).all(|pair| pair[1] >= pair[0] + s(20)), "slowly: {times:?}");
    // Every try takes the same name, and another volume the next one.
    desk.assert_count("attach v1 i1 xvdaa", times.len());
    desk.add_pod("b", "n1", &["v2"]);
    desk.run_to("attach v2 i1 xvdab", s(20));
    desk.run(s(400));
    assert!(desk.va("v1", "n1").unwrap().status.attached, "{}", desk.story());
    assert_eq!(desk.ec2_shows("v1"), ["i1 /dev/xvdaa attached"]);
}

#[test]
fn sec_03_the_name_of_an_attach_that_was_given_up_is_free_again() {
    let mut desk = Desk::new();
    let taken = device_names().skip(1).map(|device| BlockDeviceMapping { device, volume: None, card: None });
    let reading = InstanceReading {
        id: instance("i1"),
        state: InstanceState::Running,
        instance_type: InstanceType::new("m7i.48xlarge"),
        zone: zone(),
        mappings: taken.collect(),
    };
    let answer = Answer::Instances { instances: vec![reading], next_token: None };
    desk.answer("describe-instances i1", Reply::Is(CallResult::Done(answer)));
    desk.answer("attach v1", ec2_says("CustomerKeyHasBeenRevoked", "The key of vol-01 was revoked"));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach-error v1 n1", s(10));
    desk.remove_pod("a");
    desk.run_to("finish v1 n1", s(60));
    desk.add_volume("v2");
    desk.add_pod("b", "n1", &["v2"]);
    desk.run_to("attach v2 i1 xvdaa", s(20));
}

#[test]
fn sec_06_a_volume_without_the_required_tag_is_refused() {
    let allow = |value: Option<&str>| {
        guarded(VolumeGuard { cluster_name: None, require_tag: Some(("attachd".into(), value.map(Into::into))) })
    };
    for (value, wrong, right) in [(None, None, "whatever"), (Some("allow"), Some("deny"), "allow")] {
        let mut desk = Desk::with(allow(value), Policy::FULL);
        if let Some(wrong) = wrong {
            desk.ec2.tag_volume(&volume("v1"), "attachd", wrong);
        }
        desk.add_pod("a", "n1", &["v1"]);
        desk.run(s(120));
        desk.expect(&[]);
        assert!(desk.waits("v1", "n1").contains("volumeGuard.requireTag"), "{}", desk.story());
        assert!(desk.count("event FailedAttachVolume") >= 1, "{}", desk.story());
        desk.ec2.tag_volume(&volume("v1"), "attachd", right);
        desk.run_to("attach v1 i1", s(90));
    }
    // Off by default.
    let mut desk = Desk::new();
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1", s(10));
}
