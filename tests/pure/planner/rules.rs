//! Clauses of the rules that no case from the field shows alone.

use attachd::controller::event::Kind;
use attachd::model::outcome::{Answer, CallResult};
use attachd::model::volume::{AttachmentReading, AttachmentState, VolumeReading, VolumeState};

use super::desk::{Desk, Reply, s};
use super::hands::pod_key;
use super::short::{claim_key, instance, node, volume, zone};

#[test]
fn g9_a_pod_whose_claim_cannot_be_told_any_more_wants_what_it_wanted() {
    let mut desk = Desk::using_v1();
    desk.delete_claim("v1");
    desk.in_use("n1", &[]);
    desk.run(s(300));
    desk.expect(&[]);
    desk.remove_pod("a");
    desk.run(s(30));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn rule_1_once_an_attach_was_sent_an_earlier_bound_pod_elsewhere_does_not_get_the_volume() {
    let mut desk = Desk::new();
    let earlier = desk.now;
    desk.run(s(60));
    desk.answer("attach v1 i1", Reply::Lost);
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1", s(10));
    desk.api.create_pod(earlier, &pod_key("b"), &node("n2"), &[claim_key("v1").name]).unwrap();
    desk.run(s(200));
    desk.assert_never("attach v1 i2");
    desk.assert_count("attach v1 i1", 2);
    assert!(desk.is_attached("v1", "i1"));
}

#[test]
fn rule_5_an_attachment_from_before_the_send_confirms_nothing() {
    let mut desk = Desk::using_v1();
    let attached_before = desk.now.wall.truncated_to_seconds();
    desk.end_pod("a", "n1");
    desk.run(s(120));
    assert!(desk.is_all_gone("v1"));
    // The next process knows of no name that was used: it takes the same one.
    desk.restart();
    desk.run(s(1));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("attach v1 i1 xvdaa", s(20));
    let attachment = AttachmentReading {
        instance: Some(instance("i1")),
        device: Some(attachd::model::device::DeviceName::new("/dev/xvdaa")),
        state: AttachmentState::Attached,
        attach_time: Some(attached_before),
    };
    let stale = VolumeReading {
        id: volume("v1"),
        state: VolumeState::InUse,
        attachments: vec![attachment],
        multi_attach_enabled: false,
        zone: zone(),
        tags: Default::default(),
    };
    let answer = Answer::Volumes { volumes: vec![stale], next_token: None };
    desk.answer("describe-volumes", Reply::Is(CallResult::Done(answer)));
    desk.run_to("attached v1", s(20));
    assert!(desk.is_attached("v1", "i1"), "{}", desk.story());
}

#[test]
fn rule_5_a_volume_attachment_for_a_node_object_that_is_gone_is_replaced_before_anything_is_attached() {
    let mut desk = Desk::new();
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("create v1 n1", s(10));
    let first = desk.node("n1").uid.clone();
    desk.delete_node("n1");
    desk.add_node("n1", "i1");
    desk.run_to("attach v1 i1", s(200));
    let second = desk.node("n1").uid.clone();
    assert!(first != second);
    assert_eq!(desk.va("v1", "n1").unwrap().node_uid, Some(second), "{}", desk.story());
    desk.assert_count("create v1", 2);
    desk.assert_never("detach");
}

#[test]
fn rule_4_a_volume_lost_while_in_use_stays_listed_and_comes_back_under_another_name() {
    let mut desk = Desk::using_v1();
    desk.detach_by_hand("v1", "i1");
    // Long before a sweep: the next leader reads the volume.
    desk.run(s(5));
    desk.restart();
    for _ in 0..120 {
        desk.run(s(1));
        assert!(desk.lists("n1", "v1"), "{}", desk.story());
    }
    assert_eq!(desk.ec2_shows("v1"), ["i1 /dev/xvdab attached"], "{}", desk.story());
    assert_eq!(desk.va("v1", "n1").unwrap().status.device_path.as_ref().unwrap().as_str(), "/dev/xvdab");
}

#[test]
fn rule_4_a_volume_lost_while_the_node_watch_stands_still_comes_back_under_another_name() {
    let mut desk = Desk::new();
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("list n1 [v1]", s(30));
    desk.run(s(1));
    // The kubelet reports it in use and mounts it; this process hears nothing of that.
    desk.slow_watch(Kind::Node);
    desk.in_use("n1", &["v1"]);
    desk.detach_by_hand("v1", "i1");
    desk.run_to("detached v1 n1", s(80));
    desk.run(s(30));
    desk.assert_count("attach v1 i1 xvdaa", 1);
    desk.catch_up();
    desk.run(s(60));
    desk.assert_count("attach v1 i1 xvdaa", 1);
    assert_eq!(desk.ec2_shows("v1"), ["i1 /dev/xvdab attached"], "{}", desk.story());
    assert!(desk.lists("n1", "v1"), "{}", desk.story());
}

#[test]
fn rule_5_a_mark_of_an_earlier_boot_does_not_hold_up_what_has_to_be_made_anew() {
    let mut desk = Desk::using_v1();
    desk.delete_node("n1");
    desk.add_node("n1", "i1");
    desk.run(s(5));
    assert_eq!(desk.marks("n1", "v1").as_deref(), Some("boot-of-i1"), "listed under another UID");
    desk.boot("n1", "the-next-boot");
    desk.in_use("n1", &["v1"]);
    desk.detach_by_hand("v1", "i1");
    desk.run(s(10));
    // Long before a sweep: the next leader reads the volume.
    desk.restart();
    desk.run(s(300));
    assert!(desk.is_attached("v1", "i1"), "{}", desk.story());
    let present = desk.node("n1").uid.clone();
    assert_eq!(desk.va("v1", "n1").unwrap().node_uid, Some(present));
    assert!(desk.va("v1", "n1").unwrap().status.attached && desk.lists("n1", "v1"));
}

#[test]
fn rule_16_stale_reads_that_agree_soon_after_a_call_are_no_silent_detach() {
    let mut desk = Desk::using_v1();
    let before = VolumeReading {
        id: volume("v1"),
        state: VolumeState::Available,
        attachments: Vec::new(),
        multi_attach_enabled: false,
        zone: zone(),
        tags: Default::default(),
    };
    desk.restart();
    for _ in 0..3 {
        let answer = Answer::Volumes { volumes: vec![before.clone()], next_token: None };
        desk.answer("describe-volumes v1", Reply::Is(CallResult::Done(answer)));
    }
    for _ in 0..120 {
        desk.run(s(1));
        assert!(desk.va("v1", "n1").unwrap().status.attached, "{}", desk.story());
    }
    desk.assert_count("attach v1", 1);
    assert_eq!(desk.va("v1", "n1").unwrap().device.as_ref().unwrap().as_str(), "/dev/xvdaa");
}

#[test]
fn rule_3_what_left_the_list_of_a_node_object_is_not_listed_there_again_by_the_next_leader() {
    let mut desk = Desk::using_v1();
    // Another Node object of the same boot: nothing but the mark says that the volume may be mounted there.
    desk.delete_node("n1");
    desk.register("n1", "i1");
    desk.csi("n1", "i1");
    desk.run_until(s(60), "listed and marked", |desk| desk.lists("n1", "v1") && desk.marks("n1", "v1").is_some());
    desk.remove_pod("a");
    desk.run(s(60));
    desk.taint("n1", true);
    desk.answer_all("get-node n1", Reply::Hold);
    desk.run_to("list n1 []", s(10));
    desk.run_until(s(1), "unlisted", |desk| !desk.lists("n1", "v1"));
    // The leader dies before it looks again, and the person changes his mind.
    desk.kill();
    desk.forget_answers();
    desk.taint("n1", false);
    desk.lead();
    desk.list_everything();
    let before = desk.count("list n1 [v1]");
    desk.run(s(600));
    desk.assert_count("list n1 [v1]", before);
    assert!(desk.marks("n1", "v1").is_some() && desk.is_attached("v1", "i1"), "{}", desk.story());
    desk.boot("n1", "another boot");
    desk.run(s(60));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

#[test]
fn rule_9_what_a_node_lists_is_ours_where_its_volume_attachment_went_before_its_volume_could_be_told() {
    let mut desk = Desk::using_v1();
    desk.kill();
    desk.delete_va("v1", "n1");
    desk.deliver();
    // VolumeAttachments are listed first: nothing tells yet which volume this one is of.
    desk.list(Kind::Attachment);
    desk.list(Kind::Node);
    desk.strip_va("v1", "n1");
    desk.deliver();
    assert!(desk.va("v1", "n1").is_none());
    for kind in Kind::ALL.into_iter().filter(|kind| ![Kind::Attachment, Kind::Node].contains(kind)) {
        desk.list(kind);
    }
    desk.lead();
    desk.take_mutations();
    desk.run(s(200));
    desk.assert_never("event ForeignAttachment");
    desk.assert_count("attach v1", 1);
    assert!(desk.va("v1", "n1").is_some() && desk.lists("n1", "v1"), "{}", desk.story());
}

#[test]
fn rule_4_what_no_kubelet_reports_is_listed_after_a_while_whatever_else_its_node_lists_meanwhile() {
    let mut desk = Desk::using_v1();
    desk.answer("attached v2 n1", Reply::Hold);
    for v in ["v2", "v3", "v4"] {
        desk.add_volume(v);
        desk.add_pod(v, "n1", &[v]);
    }
    let stated = |desk: &Desk, v| desk.va(v, "n1").is_some_and(|va| va.status.attached);
    desk.run_until(s(30), "two are attached", |desk| stated(desk, "v3") && stated(desk, "v4"));
    // The first change of a quiet list goes at once, the next waits for two seconds.
    desk.in_use("n1", &["v1", "v3"]);
    desk.run_until(s(2), "v3 listed", |desk| desk.lists("n1", "v3"));
    desk.in_use("n1", &["v1", "v3", "v4"]);
    desk.run(s(1));
    // Only now v2, which is not reported: the claim of its pod may be gone. Its time comes after that change.
    desk.release_honestly("attached v2 n1");
    desk.run_until(s(5), "v4 listed", |desk| desk.lists("n1", "v4"));
    assert!(!desk.lists("n1", "v2"), "{}", desk.story());
    desk.run(s(60));
    assert!(desk.lists("n1", "v2"), "{}", desk.story());
}
