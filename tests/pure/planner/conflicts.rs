//! The table of refusals (`reconciler/conflict.rs`), line by line: what follows each answer of the API server.

use attachd::controller::event::Kind;
use attachd::model::ids::Uid;

use super::desk::{Desk, Reply, api_says, s};

const EXISTS: &str = "volumeattachments.storage.k8s.io \"csi-1\" already exists";
const TWIN: &str = "object is being deleted: volumeattachments.storage.k8s.io \"csi-1\" already exists";

#[test]
fn anything_forbidden_is_tried_again_slowly_and_delays_only_itself() {
    for code in [403, 400] {
        let mut desk = Desk::new();
        desk.add_volume("v2");
        desk.answer("create v1", api_says(code, "Forbidden", "no"));
        desk.add_pod("a", "n1", &["v1"]);
        desk.add_pod("b", "n1", &["v2"]);
        desk.run_to("attach v2", s(5));
        desk.run(s(100));
        let times = desk.times("create v1");
        assert_eq!(times.len(), 2, "{}", desk.story());
        assert!(times[1] >= times[0] + s(15), "{times:?}");
        desk.assert_never("get v1");
    }
}

#[test]
fn a_create_whose_name_has_a_terminating_twin_waits_for_its_end() {
    let mut desk = Desk::new();
    desk.slow_watch(Kind::Attachment);
    desk.make_va("v1", "n1");
    desk.finalize_va("v1", "n1", "somebody/else");
    desk.delete_va("v1", "n1");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(200));
    assert!(desk.count("get v1 n1") >= 1);
    desk.assert_count("create v1", 1);
    desk.assert_never("attach v1");
    desk.strip_va("v1", "n1");
    desk.catch_up();
    desk.run_to("attach v1 i1", s(300));
    desk.assert_count("create v1", 2);
}

#[test]
fn a_create_that_finds_a_twin_that_has_ended_meanwhile_is_repeated() {
    let mut desk = Desk::new();
    desk.answer("create v1", api_says(409, "AlreadyExists", TWIN));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1", s(20));
    desk.assert_count("get v1 n1", 1);
    desk.assert_count("create v1", 2);
}

#[test]
fn a_create_that_exists_is_read_and_taken_over() {
    let mut desk = Desk::new();
    desk.slow_watch(Kind::Attachment);
    desk.make_va("v1", "n1");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1", s(400));
    desk.assert_count("create v1", 1);
    assert!(desk.count("get v1 n1") >= 1);
    let va = desk.va("v1", "n1").unwrap();
    assert!(va.has_attacher_finalizer() && va.node_id.is_some() && va.node_uid.is_some() && va.device.is_some());
}

#[test]
fn a_create_that_existed_and_is_gone_is_repeated() {
    let mut desk = Desk::new();
    desk.answer("create v1", api_says(409, "AlreadyExists", EXISTS));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1", s(20));
    desk.assert_count("get v1 n1", 1);
    desk.assert_count("create v1", 2);
}

#[test]
fn a_create_that_is_not_valid_or_finds_nothing_is_tried_again_slowly() {
    for (code, reason) in [(422, "Invalid"), (404, "NotFound")] {
        let mut desk = Desk::new();
        desk.answer("create v1", api_says(code, reason, "what it needs is not there"));
        desk.add_pod("a", "n1", &["v1"]);
        desk.run(s(100));
        let times = desk.times("create v1");
        assert_eq!(times.len(), 2, "{}", desk.story());
        assert!(times[1] >= times[0] + s(15), "{times:?}");
    }
}

#[test]
fn a_delete_of_what_is_gone_is_made_sure_of_and_goes_on_by_our_own_record() {
    let mut desk = Desk::using_v1();
    desk.slow_watch(Kind::Attachment);
    desk.end_pod("a", "n1");
    desk.run_to("delete v1", s(10));
    desk.strip_va("v1", "n1");
    desk.delete_va("v1", "n1");
    desk.run(s(60));
    desk.assert_count("delete v1", 1);
    desk.assert_count("get v1 n1", 1);
    desk.assert_count("detach v1 i1 xvdaa", 1);
    assert!(desk.is_all_gone("v1"));
}

#[test]
fn a_delete_of_what_changed_is_decided_anew_on_what_is_there() {
    let mut desk = Desk::using_v1();
    desk.slow_watch(Kind::Attachment);
    desk.end_pod("a", "n1");
    desk.run_to("delete v1", s(10));
    desk.finalize_va("v1", "n1", "somebody/else");
    desk.run_to("detach v1 i1 xvdaa", s(60));
    desk.assert_count("delete v1", 2);
    desk.assert_count("get v1 n1", 1);
}

#[test]
fn a_delete_of_another_object_of_that_name_deletes_nothing() {
    let mut desk = Desk::using_v1();
    desk.slow_watch(Kind::Attachment);
    desk.end_pod("a", "n1");
    desk.run_to("delete v1", s(10));
    let first = desk.va("v1", "n1").unwrap().uid.clone();
    desk.strip_va("v1", "n1");
    desk.delete_va("v1", "n1");
    desk.make_va("v1", "n1");
    desk.run(s(1));
    let second: Uid = desk.va("v1", "n1").unwrap().uid.clone();
    assert!(first != second && desk.va("v1", "n1").unwrap().deleting.is_none(), "{}", desk.story());
    desk.catch_up();
    desk.run(s(1000));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
    desk.assert_count("detach v1 i1", 1);
}

#[test]
fn a_finish_of_what_changed_is_repeated_on_what_is_there() {
    let mut desk = Desk::using_v1();
    desk.slow_watch(Kind::Attachment);
    desk.end_pod("a", "n1");
    desk.run_to("finish v1", s(30));
    desk.annotate_va("v1", "n1");
    desk.run(s(60));
    desk.assert_count("finish v1", 2);
    assert!(desk.is_all_gone("v1"));
}

#[test]
fn a_finish_of_what_is_gone_is_the_end() {
    let mut desk = Desk::using_v1();
    desk.slow_watch(Kind::Attachment);
    desk.end_pod("a", "n1");
    desk.run_to("finish v1", s(30));
    desk.strip_va("v1", "n1");
    desk.run(s(60));
    desk.assert_count("finish v1", 1);
    desk.catch_up();
    desk.run(s(600));
    desk.assert_count("detach v1", 1);
    assert!(desk.is_all_gone("v1"));
}

#[test]
fn a_status_for_another_object_of_that_name_is_read_and_decided_anew() {
    let mut desk = Desk::new();
    desk.slow_watch(Kind::Attachment);
    desk.answer("attached v1", Reply::Hold);
    desk.add_pod("a", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("attached v1", s(10));
    desk.strip_va("v1", "n1");
    desk.delete_va("v1", "n1");
    desk.make_va("v1", "n1");
    desk.release_honestly("attached v1");
    desk.run_until(s(900), "listed", |desk| desk.lists("n1", "v1"));
    assert!(desk.va("v1", "n1").unwrap().status.attached);
    desk.assert_count("attach v1", 1);
    desk.assert_never("detach v1");
}

#[test]
fn a_node_patch_that_conflicts_is_made_again_from_a_live_read() {
    let mut desk = Desk::new();
    desk.answer("list n1 [v1]", Reply::Hold);
    desk.add_pod("a", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("list n1 [v1]", s(20));
    desk.slow_nodes();
    desk.in_use("n1", &[]);
    desk.in_use("n1", &["v1"]);
    desk.release_honestly("list n1 [v1]");
    desk.run_until(s(20), "listed", |desk| desk.lists("n1", "v1"));
    desk.assert_count("get-node n1", 1);
    desk.assert_count("list n1 [v1]", 2);
}

#[test]
fn a_node_patch_for_another_node_object_lists_nothing_on_it_unmarked() {
    let mut desk = Desk::new();
    desk.answer("list n1 [v1]", Reply::Hold);
    desk.add_pod("a", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("list n1 [v1]", s(20));
    desk.slow_nodes();
    desk.delete_node("n1");
    desk.register("n1", "i1");
    desk.csi("n1", "i1");
    desk.release_honestly("list n1 [v1]");
    desk.run(s(30));
    desk.catch_up();
    desk.run_until(s(30), "listed", |desk| desk.lists("n1", "v1"));
    assert!(desk.marks("n1", "v1").is_some(), "{}", desk.story());
}

#[test]
fn a_finalizer_of_a_persistent_volume_that_changed_is_put_on_what_is_there() {
    let mut desk = Desk::new();
    desk.slow_watch(Kind::PersistentVolume);
    desk.annotate_pv("v1");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(5));
    desk.catch_up();
    desk.run_to("attach v1 i1", s(60));
}
