//! Cases DEV: which device, and what is said of it; and EBS cards of instances that have two (rule 10).

use std::collections::BTreeSet;

use attachd::controller::event::Kind;
use attachd::model::device::{DeviceName, device_names};
use attachd::model::ids::InstanceType;
use attachd::model::outcome::{Answer, CallResult};
use attachd::model::volume::{
    AttachmentReading, AttachmentState, BlockDeviceMapping, InstanceReading, InstanceState, VolumeReading, VolumeState,
};

use super::desk::{Desk, Reply, ec2_says, s};
use super::short::{instance, volume, zone};

/// The device the VolumeAttachment publishes.
fn published(desk: &Desk, v: &str, n: &str) -> Option<String> {
    let status = &desk.va(v, n)?.status;
    assert_eq!(status.attached, status.device_path.is_some());
    status.device_path.as_ref().map(|device| device.to_string())
}

/// The device EC2 reports for the one attachment.
fn in_ec2(desk: &mut Desk, v: &str) -> String {
    desk.ec2_shows(v)[0].split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn dev_01_what_is_published_is_what_ec2_reports_of_this_attach() {
    let mut desk = Desk::new();
    for (pod, n, i) in [("a", "n1", "i1"), ("b", "n2", "i2"), ("c", "n1", "i1")] {
        desk.use_volume(pod, n, "v1");
        assert!(desk.is_attached("v1", i));
        assert_eq!(published(&desk, "v1", n), Some(in_ec2(&mut desk, "v1")));
        desk.remove_pod(pod);
        desk.in_use(n, &[]);
        desk.run(s(60));
    }
    // Names rotate: the way back is under another one.
    assert_eq!(desk.count("attach v1 i1 xvdaa") + desk.count("attach v1 i1 xvdab"), 2);
    desk.assert_count("attach v1 i1 xvdab", 1);
}

#[test]
fn dev_01_an_attachment_at_another_device_than_asked_for_is_not_confirmed() {
    let mut desk = Desk::new();
    let elsewhere = VolumeReading {
        id: volume("v1"),
        state: VolumeState::InUse,
        attachments: vec![AttachmentReading {
            instance: Some(instance("i1")),
            device: Some(DeviceName::new("/dev/xvdzz")),
            state: AttachmentState::Attached,
            attach_time: Some(desk.now.plus(s(2)).wall.truncated_to_seconds()),
        }],
        multi_attach_enabled: false,
        zone: zone(),
        tags: Default::default(),
    };
    desk.add_pod("a", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("attach v1", s(10));
    for _ in 0..20 {
        let answer = Answer::Volumes { volumes: vec![elsewhere.clone()], next_token: None };
        desk.answer("describe-volumes v1", Reply::Is(CallResult::Done(answer)));
    }
    desk.run(s(12));
    desk.assert_never("attached v1");
    desk.assert_never("list n1");
}

#[test]
fn dev_03_a_volume_attachment_says_attached_only_while_ec2_does() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", Reply::Late(s(65)));
    desk.run_to("detach v1", s(10));
    desk.run(s(11));
    desk.strip_va("v1", "n1");
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    for _ in 0..300 {
        desk.run(s(1));
        let says = desk.va("v1", "n1").is_some_and(|va| va.deleting.is_none() && va.status.attached);
        assert!(!says || desk.is_attached("v1", "i1"), "{}", desk.story());
        assert!(!desk.lists("n1", "v1") || desk.is_attached("v1", "i1"), "{}", desk.story());
    }
    assert!(desk.lists("n1", "v1") && desk.is_attached("v1", "i1"), "{}", desk.story());
}

#[test]
fn dev_04_swapping_two_volumes_fast_publishes_for_each_what_ec2_reports_for_it() {
    let mut desk = Desk::new();
    desk.add_volume("v2");
    desk.use_volume("a", "n1", "v1");
    desk.use_volume("b", "n1", "v2");
    desk.remove_pod("a");
    desk.end_pod("b", "n1");
    desk.run(s(5));
    desk.add_pod("a2", "n1", &["v2"]);
    desk.add_pod("b2", "n1", &["v1"]);
    desk.in_use("n1", &["v1", "v2"]);
    desk.run(s(60));
    for v in ["v1", "v2"] {
        assert!(desk.lists("n1", v), "{}", desk.story());
        assert_eq!(published(&desk, v, "n1"), Some(in_ec2(&mut desk, v)), "{}", desk.story());
    }
}

#[test]
fn dev_05_i_20_a_name_taken_in_another_spelling_is_taken() {
    let mut desk = Desk::new();
    let mappings = ["/dev/sda1", "/dev/sdb", "sdaa", "xvdab"].map(|name| BlockDeviceMapping {
        device: DeviceName::new(name),
        volume: None,
        card: None,
    });
    let reading = InstanceReading {
        id: instance("i1"),
        state: InstanceState::Running,
        instance_type: InstanceType::new("m7i.48xlarge"),
        zone: zone(),
        mappings: mappings.into(),
    };
    let answer = Answer::Instances { instances: vec![reading], next_token: None };
    desk.answer("describe-instances i1", Reply::Is(CallResult::Done(answer)));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1 xvdac", s(10));
}

#[test]
fn dev_06_two_attaches_at_once_get_two_names() {
    let mut desk = Desk::new();
    desk.add_volume("v2");
    desk.add_pod("a", "n1", &["v1"]);
    desk.add_pod("b", "n1", &["v2"]);
    desk.run(s(10));
    let names: BTreeSet<_> =
        desk.sent.iter().filter(|s| s.text.starts_with("attach v")).map(|s| &s.text[13..]).collect();
    assert_eq!(names.len(), 2, "{}", desk.story());
}

#[test]
fn dev_06_a_name_in_use_is_recorded_anew_before_the_next_is_tried() {
    let mut desk = Desk::new();
    desk.answer("attach v1", ec2_says("InvalidParameterValue", "Invalid value '/dev/xvdaa': it is already in use"));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1 xvdab", s(20));
    desk.expect(&["protect pv-v1", "create v1 n1", "attach v1 i1 xvdaa", "record v1 n1 xvdab", "attach v1 i1 xvdab"]);
}

#[test]
fn dev_07_names_of_others_are_skipped_and_an_end_of_names_is_said() {
    let mut desk = Desk::new();
    let names: Vec<DeviceName> = device_names().collect();
    desk.ec2.set_hidden_names(&instance("i1"), names[..2].iter().cloned().collect());
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1 xvdac", s(30));
    let mut desk = Desk::new();
    desk.ec2.set_hidden_names(&instance("i1"), names.into_iter().collect());
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(20));
    assert!(desk.count("attach v1") <= 10, "{}", desk.story());
    desk.run(s(600));
    assert!(desk.count("event FailedAttachVolume") >= 1, "{}", desk.story());
    assert!(desk.waits("v1", "n1").contains("device"), "{}", desk.waits("v1", "n1"));
}

#[test]
fn dev_09_the_root_is_never_offered() {
    let mut desk = Desk::new();
    let volumes: Vec<String> = (2..=50).map(|v| format!("v{v}")).collect();
    for v in &volumes {
        desk.add_volume(v);
        desk.add_pod(&format!("pod-{v}"), "n1", &[v]);
    }
    desk.run(s(120));
    let attached = desk.sent.iter().filter(|sent| sent.text.starts_with("attach v"));
    let names: BTreeSet<String> = attached.map(|s| s.text.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 49);
    assert!(!names.contains("xvda") && !names.contains("sda") && !names.contains("sda1"));
}

#[test]
fn dev_10_a_name_recorded_in_a_volume_attachment_is_taken_also_after_a_restart() {
    let mut desk = Desk::using_v1();
    desk.detach_by_hand("v1", "i1");
    desk.run(s(4));
    desk.restart();
    desk.add_volume("v2");
    desk.add_pod("c", "n1", &["v2"]);
    desk.in_use("n1", &["v1", "v2"]);
    desk.run(s(60));
    assert_ne!(published(&desk, "v1", "n1"), published(&desk, "v2", "n1"), "{}", desk.story());
    desk.assert_never("attach v2 i1 xvdaa");
}

#[test]
fn dev_10_a_name_that_may_be_mounted_under_is_given_to_nobody_while_the_node_watch_stands_still() {
    let mut desk = Desk::new();
    // Two names are left on the instance.
    let taken = device_names().skip(2).map(|device| BlockDeviceMapping { device, volume: None, card: None });
    let taken: Vec<_> = taken.collect();
    let full = |i: &str| InstanceReading {
        id: instance(i),
        state: InstanceState::Running,
        instance_type: InstanceType::new("m7i.48xlarge"),
        zone: zone(),
        mappings: taken.clone(),
    };
    let answer = Answer::Instances { instances: vec![full("i1"), full("i2")], next_token: None };
    desk.answer_all("describe-instances", Reply::Is(CallResult::Done(answer)));
    desk.add_volume("v2");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("list n1 [v1]", s(30));
    desk.run(s(1));
    desk.slow_watch(Kind::Node);
    desk.in_use("n1", &["v1"]);
    desk.detach_by_hand("v1", "i1");
    desk.run_to("attach v1 i1 xvdab", s(90));
    desk.add_pod("c", "n1", &["v2"]);
    desk.run(s(60));
    desk.assert_never("attach v2 i1");
    assert!(desk.waits("v2", "n1").contains("device"), "{}", desk.waits("v2", "n1"));
}

/// A desk with a node n3 on i3, whose type has two EBS cards, and as many volumes.
fn with_two_cards() -> Desk {
    let mut desk = Desk::new();
    desk.ec2.add_running_instance(desk.now, instance("i3"), InstanceType::new("c8gn.48xlarge"), zone());
    desk.add_node("n3", "i3");
    desk.add_volume("v2");
    desk
}

/// How often AttachVolume to i3 named this card.
fn on_card(desk: &Desk, card: &str) -> usize {
    let attaches = desk.sent.iter().filter(|sent| sent.text.starts_with("attach v"));
    attaches.filter(|sent| sent.text.contains(" i3 ") && sent.text.ends_with(card)).count()
}

#[test]
fn rule_10_a_type_whose_read_failed_is_asked_for_again_before_a_card_is_chosen() {
    for failed in [CallResult::Throttled, CallResult::NotSent, CallResult::Uncertain("cut off".into())] {
        let mut desk = with_two_cards();
        desk.answer("describe-types", Reply::Is(failed));
        desk.add_pod("a", "n3", &["v1"]);
        desk.add_pod("b", "n3", &["v2"]);
        desk.run(s(8));
        assert_eq!((on_card(&desk, " card0"), on_card(&desk, " card1")), (1, 1), "{}", desk.story());
        desk.assert_count("describe-types", 2);
    }
}

#[test]
fn rule_10_without_the_right_to_read_types_attaches_go_on_and_cards_count_once_it_is_granted() {
    let mut desk = with_two_cards();
    desk.answer_all("describe-types", ec2_says("UnauthorizedOperation", "You are not authorized"));
    desk.use_volume("a", "n3", "v1");
    assert!(desk.is_attached("v1", "i3"), "{}", desk.story());
    assert_eq!(on_card(&desk, " card0") + on_card(&desk, " card1"), 0);
    desk.run(s(600));
    assert!(desk.count("describe-types") <= 2, "{}", desk.story());
    desk.forget_answers();
    desk.use_volume("b", "n3", "v2");
    desk.add_volume("v3");
    desk.run(s(10));
    desk.use_volume("c", "n3", "v3");
    // The root volume and v1 stand on the first card.
    assert_eq!((on_card(&desk, " card0"), on_card(&desk, " card1")), (0, 2), "{}", desk.story());
}
