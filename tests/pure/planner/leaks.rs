//! Cases LEAK: nothing is left over.

use attachd::controller::event::Kind;

use super::desk::{Desk, Reply, ec2_says, s};
use super::short::instance;

#[test]
fn leak_01_a_volume_that_was_never_attached_frees_its_persistent_volume() {
    let mut desk = Desk::new();
    for _ in 0..20 {
        desk.answer("attach v1", ec2_says("InvalidVolume.ZoneMismatch", "another zone"));
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(120));
    assert!(desk.va("v1", "n1").unwrap().status.attach_error.is_some());
    desk.delete_pv("v1");
    desk.delete_claim("v1");
    desk.remove_pod("a");
    desk.run(s(60));
    assert!(desk.va("v1", "n1").is_none() && !desk.has_pv("v1"), "{}", desk.story());
    desk.assert_never("detach");
    let sent = desk.take_mutations();
    assert_eq!(sent.last().map(String::as_str), Some("unprotect pv-v1"), "{sent:?}");
}

#[test]
fn leak_03_a_volume_that_does_not_exist_leaves_nothing() {
    let mut desk = Desk::new();
    desk.add_claim_without_volume("v9");
    desk.add_pod("a", "n1", &["v9"]);
    desk.run(s(120));
    desk.expect(&[]);
    assert!(desk.count("event FailedAttachVolume") >= 1, "{}", desk.story());
    desk.delete_pv("v9");
    desk.delete_claim("v9");
    desk.remove_pod("a");
    desk.run(s(60));
    assert!(!desk.has_pv("v9") && desk.va("v9", "n1").is_none());
}

#[test]
fn leak_03_errors_that_last_and_errors_that_pass_both_allow_the_end() {
    for code in ["InvalidVolume.NotFound", "IncorrectState"] {
        let mut desk = Desk::new();
        for _ in 0..50 {
            desk.answer("attach v1", ec2_says(code, "no"));
        }
        desk.add_pod("a", "n1", &["v1"]);
        desk.run(s(60));
        desk.remove_pod("a");
        desk.run(s(60));
        assert!(desk.is_all_gone("v1"), "{code}\n{}", desk.story());
    }
}

#[test]
fn leak_04_a_volume_attachment_whose_persistent_volume_is_gone_is_told_by_its_name() {
    let mut desk = Desk::using_v1();
    desk.kill();
    desk.end_pod("a", "n1");
    desk.delete_claim("v1");
    desk.delete_pv("v1");
    desk.strip_pv("v1");
    desk.delete_va("v1", "n1");
    desk.lead();
    desk.list_everything();
    desk.run(s(200));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
    desk.assert_count("detach v1 i1 xvdaa", 1);
}

#[test]
fn leak_04_one_that_no_list_names_is_told_by_the_record_of_this_process() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", Reply::Hold);
    desk.run_to("detach v1", s(20));
    desk.delete_claim("v1");
    desk.delete_pv("v1");
    desk.strip_pv("v1");
    desk.run(s(1));
    desk.release_honestly("detach v1");
    desk.run(s(60));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

/// v1 is attached to i1, nobody wants it, and neither PersistentVolume nor claim nor any list says so; the process is new.
fn forgotten_by_all() -> Desk {
    let mut desk = Desk::using_v1();
    desk.kill();
    desk.remove_pod("a");
    desk.delete_claim("v1");
    desk.delete_pv("v1");
    desk.strip_pv("v1");
    desk.delete_va("v1", "n1");
    // The Node is another object: its lists are empty.
    desk.delete_node("n1");
    desk
}

#[test]
fn leak_04_one_that_no_list_names_is_told_by_the_volumes_on_its_instance() {
    let mut desk = forgotten_by_all();
    // Another volume there has another name, whoever attached it.
    desk.add_volume("v2");
    desk.attach_by_hand("v2", "i1", "/dev/xvdcz");
    desk.lead();
    desk.list_everything();
    desk.run_until(s(60), "told", |desk| !desk.waits("v1", "n1").is_empty());
    // What it is about is known; that it is unmounted is not (there is no Node to say so).
    desk.run(s(60));
    desk.assert_never("detach");
    desk.assert_never("event VolumeUnknown");
    desk.ec2.stop(desk.now, &instance("i1")).unwrap();
    desk.run(s(300));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
    desk.assert_count("detach v1 i1 xvdaa", 1);
    desk.assert_never("detach v2");
}

#[test]
fn leak_04_one_whose_volume_is_not_found_is_told_to_people_and_looked_for_less_and_less_often() {
    let mut desk = forgotten_by_all();
    desk.ec2.terminate(desk.now, &instance("i1")).unwrap();
    desk.run(s(120));
    desk.lead();
    desk.list_everything();
    desk.take_mutations();
    desk.run(s(4 * 3600));
    desk.expect(&[]);
    let said = desk.times("event VolumeUnknown");
    assert!((2..=9).contains(&said.len()), "{}", desk.story());
    assert!(desk.va("v1", "n1").is_some());
    let looked = desk.count("describe-instances i1");
    assert!((5..=12).contains(&looked), "{looked}\n{}", desk.story());
}

#[test]
fn leak_06_one_detach_makes_one_call_and_one_end_whatever_comes_back_of_it() {
    let mut desk = Desk::using_v1();
    desk.slow_watch(Kind::Attachment);
    desk.end_pod("a", "n1");
    desk.run(s(30));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
    desk.catch_up();
    desk.run(s(300));
    desk.expect(&[]);
}

#[test]
fn leak_07_a_pod_that_goes_while_its_attach_fails_takes_the_volume_attachment_along() {
    let mut desk = Desk::new();
    for _ in 0..10 {
        desk.answer("attach v1", Reply::Lost);
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(200));
    desk.take_mutations();
    desk.remove_pod("a");
    desk.run_to("delete v1", s(5));
    desk.run(s(200));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

#[test]
fn leak_09_many_short_pods_leave_nothing() {
    let mut desk = Desk::new();
    for round in 0..3 {
        let volumes: Vec<String> = (0..15).map(|index| format!("v{}", 2 + round * 15 + index)).collect();
        for v in &volumes {
            desk.add_volume(v);
            desk.add_pod(&format!("pod-{v}"), "n1", &[v]);
        }
        desk.run(s(1));
        desk.in_use("n1", &volumes.iter().map(String::as_str).collect::<Vec<_>>());
        desk.run(s(20));
        for v in &volumes {
            assert!(desk.lists("n1", v), "{}", desk.story());
            desk.remove_pod(&format!("pod-{v}"));
            desk.delete_pv(v);
            desk.delete_claim(v);
        }
        desk.in_use("n1", &[]);
        desk.run(s(99));
        for v in &volumes {
            assert!(desk.is_all_gone(v) && !desk.has_pv(v), "{v}\n{}", desk.story());
        }
    }
    desk.assert_count("attach v", 45);
    desk.assert_count("detach v", 45);
    desk.take_mutations();
    desk.run(s(600));
    desk.expect(&[]);
}

#[test]
fn leak_10_a_claim_that_goes_while_its_pod_runs_changes_nothing_until_the_pod_goes() {
    let mut desk = Desk::using_v1();
    desk.delete_claim("v1");
    desk.run(s(300));
    desk.expect(&[]);
    desk.remove_pod("a");
    desk.run(s(60));
    desk.expect(&[]);
    desk.in_use("n1", &[]);
    desk.run(s(30));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

#[test]
fn leak_12_two_persistent_volumes_of_one_volume_keep_it_until_the_last_pod_goes() {
    let mut desk = Desk::new();
    desk.add_second_claim("v2", "v1");
    desk.add_pod("c", "n1", &["v2"]);
    desk.run(s(1));
    desk.in_use("n1", &["v1"]);
    desk.run(s(20));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(5));
    desk.assert_count("create v1 n1", 1);
    desk.remove_pod("c");
    desk.delete_pv("v2");
    desk.delete_claim("v2");
    desk.run(s(120));
    assert!(desk.is_attached("v1", "i1") && desk.lists("n1", "v1") && desk.va("v1", "n1").is_some());
    assert!(desk.has_pv("v2"), "the VolumeAttachment names it");
    desk.end_pod("a", "n1");
    desk.run(s(60));
    assert!(desk.is_all_gone("v1") && !desk.has_pv("v2"), "{}", desk.story());
    desk.assert_count("attach v1", 1);
    desk.assert_count("detach v1", 1);
}
