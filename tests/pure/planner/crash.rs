//! Cases CRASH: what a new leader makes of what it finds.

use attachd::model::outcome::CallResult;

use super::desk::{Desk, HOP, Reply, ec2_says, s};
use super::short::pv_name;

#[test]
fn crash_01_pods_deleted_while_nobody_led_lead_to_detaches_from_what_is_there() {
    let mut desk = Desk::new();
    for v in ["v2", "v3"] {
        desk.add_volume(v);
    }
    for (pod, v) in [("a", "v1"), ("b", "v2"), ("c", "v3")] {
        desk.use_volume(pod, "n1", v);
    }
    desk.kill();
    for pod in ["a", "b", "c"] {
        desk.remove_pod(pod);
    }
    desk.in_use("n1", &[]);
    desk.lead();
    desk.list_everything();
    desk.run(s(90));
    for v in ["v1", "v2", "v3"] {
        assert!(desk.is_all_gone(v), "{v}\n{}", desk.story());
    }
    desk.assert_count("detach", 3);
}

#[test]
fn crash_03_leftover_volume_attachments_are_collected_and_wanted_ones_untouched() {
    let mut desk = Desk::new();
    for v in ["v2", "v3", "v4", "v5"] {
        desk.add_volume(v);
    }
    for (pod, v) in [("a", "v1"), ("b", "v2"), ("c", "v3"), ("d", "v4"), ("e", "v5")] {
        desk.use_volume(pod, "n1", v);
    }
    desk.kill();
    for pod in ["a", "b", "c", "d"] {
        desk.remove_pod(pod);
    }
    desk.in_use("n1", &["v5"]);
    desk.delete_claim("v4");
    desk.delete_pv("v4");
    desk.strip_pv("v4");
    assert!(!desk.has_pv("v4"));
    desk.lead();
    desk.list_everything();
    desk.run(s(120));
    for v in ["v1", "v2", "v3", "v4"] {
        assert!(desk.is_all_gone(v), "{v}\n{}", desk.story());
    }
    assert!(desk.is_attached("v5", "i1") && desk.lists("n1", "v5") && desk.va("v5", "n1").unwrap().status.attached);
    assert_eq!(desk.times("delete v5").len() + desk.times("detach v5").len(), 0);
}

#[test]
fn crash_04_a_deletion_timestamp_drives_the_detach_on() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", ec2_says("IncorrectState", "not now"));
    desk.run_to("detach v1", s(10));
    desk.run(s(0));
    desk.restart();
    desk.run_to("detach v1 i1 xvdaa", s(30));
    desk.run(s(100));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

/// A leader sent DetachVolume and died; a pod on the same node wants the volume again.
fn terminating_and_wanted(reply: Reply) -> Desk {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", reply);
    desk.run_to("detach v1", s(10));
    desk.run(s(1));
    desk.kill();
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.lead();
    desk.list_everything();
    desk.take_mutations();
    desk
}

#[test]
fn crash_06_a_terminating_volume_attachment_never_counts_as_attached() {
    let mut desk = terminating_and_wanted(Reply::Late(s(50)));
    desk.run(s(68));
    desk.expect(&[]);
    assert!(!desk.lists("n1", "v1"));
    desk.run(s(60));
    desk.expect(&["finish v1 n1", "create v1 n1", "attach v1 i1 xvdab", "attached v1 n1 xvdab", "list n1 [v1]"]);
}

#[test]
fn crash_06_one_whose_detach_never_lands_is_healed_after_the_wait() {
    let mut desk = terminating_and_wanted(Reply::Lost);
    desk.run(s(68));
    desk.expect(&[]);
    desk.run(s(60));
    let sent = desk.take_mutations();
    assert!(!sent.iter().any(|text| text.starts_with("attach v1") || text.starts_with("detach v1")), "{sent:?}");
    assert!(desk.lists("n1", "v1") && desk.is_attached("v1", "i1"), "{}", desk.story());
    let va = desk.va("v1", "n1").unwrap();
    assert!(va.deleting.is_none() && va.status.attached);
}

#[test]
fn crash_07_a_volume_that_only_the_nodes_list_names_is_led_out_marked_first() {
    let mut desk = Desk::using_v1();
    desk.kill();
    desk.end_pod("a", "n1");
    desk.strip_va("v1", "n1");
    desk.delete_va("v1", "n1");
    assert!(desk.va("v1", "n1").is_none());
    desk.lead();
    desk.list_everything();
    desk.run(s(68));
    desk.expect(&[]);
    desk.run(s(300));
    desk.expect(&["list n1 [v1] marked(v1)", "create v1 n1"]);
    desk.boot("n1", "next-boot");
    desk.run(s(30));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn crash_07_one_that_is_wanted_gets_its_volume_attachment_from_the_pods_volume() {
    let mut desk = Desk::using_v1();
    desk.kill();
    desk.strip_va("v1", "n1");
    desk.delete_va("v1", "n1");
    desk.lead();
    desk.list_everything();
    desk.run(s(300));
    desk.expect(&["list n1 [v1] marked(v1)", "create v1 n1", "attached v1 n1 xvdaa"]);
    assert!(desk.va("v1", "n1").unwrap().status.attached);
    let source = &desk.va("v1", "n1").unwrap().source;
    assert_eq!(*source, attachd::model::attachment::AttachmentSource::PersistentVolume(pv_name("v1")));
}

#[test]
fn crash_09_after_a_detach_that_may_have_worked_the_same_node_waits_until_it_is_dead() {
    let server_error = || Reply::Is(CallResult::Uncertain("500 InternalError".into()));
    for landed in [true, false] {
        let mut desk = Desk::using_v1();
        desk.end_pod("a", "n1");
        desk.answer("detach v1", if landed { Reply::LostAnswer } else { server_error() });
        desk.run_to("detach v1", s(10));
        let sent = desk.now.monotonic;
        desk.add_pod("a2", "n1", &["v1"]);
        desk.in_use("n1", &["v1"]);
        desk.run_to("attach v1 i1", s(300));
        assert!(desk.now.monotonic >= sent + s(70), "{}", desk.story());
        desk.run_until(s(60), "listed", |desk| desk.lists("n1", "v1"));
    }
}

#[test]
fn crash_09_another_node_waits_for_consistent_spaced_reads_that_show_it_free() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", Reply::LostAnswer);
    desk.run_to("detach v1", s(10));
    let sent = desk.now.monotonic;
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("attach v1 i2", s(300));
    // Given up after 10 s; spaced reads begin 30 s after that.
    assert!(desk.now.monotonic >= sent + s(40) && desk.now.monotonic < sent + s(60), "{}", desk.story());
    assert!(desk.is_free("v1"));
}

#[test]
fn crash_12_an_attach_of_unknown_outcome_keeps_the_finalizer_until_it_is_dead() {
    let mut desk = Desk::new();
    desk.answer("attach v1", Reply::Late(s(60)));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1", s(10));
    let sent = desk.now.monotonic;
    desk.run(s(11));
    desk.remove_pod("a");
    desk.run(s(5));
    assert!(desk.va("v1", "n1").unwrap().deleting.is_some(), "{}", desk.story());
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("finish v1", s(300));
    assert!(desk.now.monotonic >= sent + s(60), "{}", desk.story());
    desk.assert_count("detach v1 i1 xvdaa", 1);
    assert!(desk.is_free("v1") || desk.is_attached("v1", "i2"));
    desk.run(s(60));
    assert!(desk.is_attached("v1", "i2") && desk.va("v1", "n1").is_none());
}

#[test]
fn a_volume_lost_under_its_mount_comes_back_under_another_name_after_a_leader_change_too() {
    let mut desk = Desk::using_v1();
    desk.detach_by_hand("v1", "i1");
    desk.restart();
    desk.run_to("detached v1 n1", s(100));
    desk.run(HOP + HOP / 2);
    desk.restart();
    desk.run(s(60));
    desk.assert_count("attach v1 i1 xvdaa", 1);
    desk.run_to("attach v1 i1 xvdab", s(60));
    desk.assert_count("attach v1 i1 xvdaa", 1);
}

#[test]
fn what_a_new_leader_finds_attached_leaves_without_waiting_for_calls_nobody_made() {
    let mut desk = Desk::using_v1();
    desk.restart();
    desk.run(s(5));
    desk.end_pod("a", "n1");
    desk.run(s(12));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

#[test]
fn a_restart_tells_no_pod_again_that_its_volume_is_attached() {
    let mut desk = Desk::using_v1();
    desk.assert_count("event SuccessfulAttachVolume", 1);
    desk.restart();
    desk.run(s(120));
    desk.assert_count("event SuccessfulAttachVolume", 1);
}
