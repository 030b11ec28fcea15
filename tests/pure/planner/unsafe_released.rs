//! Cases UNSAFE: a volume leaves its node only when it is certainly unmounted there.

use attachd::controller::event::Kind;
use attachd::controller::status::Direction;
use attachd::model::outcome::{Answer, CallResult};
use attachd::model::volume::{VolumeReading, VolumeState};

use super::desk::{Desk, Reply, ec2_says, s};
use super::hands::pod_key;
use super::short::{attachment, volume, zone};

#[test]
fn unsafe_01_nothing_in_use_is_detached_from_a_ready_node_however_long_it_takes() {
    let mut desk = Desk::using_v1();
    desk.remove_pod("a");
    desk.run(s(7 * 60));
    desk.expect(&[]);
    desk.in_use("n1", &[]);
    desk.run(s(20));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn unsafe_07_in_use_reappearing_stops_the_detach() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("get-node n1", Reply::Hold);
    desk.run_to("get-node n1", s(5));
    desk.expect(&["list n1 []"]);
    desk.in_use("n1", &["v1"]);
    desk.run(s(1));
    desk.release_honestly("get-node n1");
    desk.run(s(60));
    desk.expect(&["list n1 [v1]"]);
    desk.in_use("n1", &[]);
    desk.run(s(200));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn unsafe_07_in_use_seen_by_the_live_read_alone_stops_the_detach() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.run_to("list n1 []", s(5));
    desk.run(s(0));
    desk.slow_watch(Kind::Node);
    desk.run_to("get-node n1", s(5));
    desk.in_use("n1", &["v1"]);
    desk.run(s(30));
    desk.assert_never("delete v1");
    desk.assert_never("detach v1");
    assert!(desk.lists("n1", "v1"));
}

#[test]
fn unsafe_07_an_unlisting_patch_that_lost_the_race_is_refused_and_not_repeated() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.run_to("list n1 []", s(5));
    // In use again between the decision and the write: the resourceVersion is another.
    desk.in_use("n1", &["v1"]);
    desk.run(s(60));
    desk.expect(&["list n1 []"]);
    assert!(desk.lists("n1", "v1"));
}

#[test]
fn unsafe_09_the_same_instance_waits_until_a_detach_of_unknown_outcome_is_dead() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", Reply::Late(s(40)));
    desk.run_to("detach v1", s(10));
    let sent = desk.now.monotonic;
    desk.take_mutations();
    desk.run(s(12));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("attach v1 i1", s(200));
    assert!(desk.now.monotonic >= sent + s(70), "{}", desk.story());
    assert!(!desk.lists("n1", "v1"));
    desk.run(s(20));
    assert!(desk.is_attached("v1", "i1") && desk.lists("n1", "v1"));
    desk.assert_count("detach v1", 1);
}

#[test]
fn unsafe_10_detaches_of_one_volume_never_overlap_and_change_nothing_later() {
    let mut desk = Desk::using_v1();
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.in_use("n1", &[]);
    desk.answer("detach v1", Reply::Lost);
    desk.answer("detach v1", Reply::Lost);
    desk.run_to("attach v1 i2", s(400));
    let detaches = desk.times("detach v1");
    assert_eq!(detaches.len(), 3, "{}", desk.story());
    assert!(detaches.windows(2).all(|pair| pair[1] >= pair[0] + s(70)), "{detaches:?}");
    desk.run(s(300));
    assert!(desk.is_attached("v1", "i2") && desk.va("v1", "n2").unwrap().status.attached);
    desk.assert_count("detach v1", 3);
}

#[test]
fn unsafe_13_a_finalizer_that_was_stripped_is_put_back_on_sight() {
    let mut desk = Desk::using_v1();
    desk.strip_va("v1", "n1");
    desk.run(s(5));
    desk.expect(&["record v1 n1 xvdaa"]);
    assert!(desk.va("v1", "n1").unwrap().has_attacher_finalizer());
}

#[test]
fn unsafe_13_a_volume_attachment_that_went_without_its_finalizer_is_detached_by_our_own_record() {
    let mut desk = Desk::using_v1();
    desk.strip_va("v1", "n1");
    desk.delete_va("v1", "n1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(60));
    desk.assert_never("detach v1");
    desk.assert_never("attach v1 i2");
    desk.in_use("n1", &[]);
    desk.run_to("attach v1 i2", s(60));
    desk.assert_count("detach v1 i1 xvdaa", 1);
    assert!(desk.is_free("v1"));
}

#[test]
fn unsafe_15_a_failed_pod_holds_nothing() {
    let mut desk = Desk::using_v1();
    let uid = desk.pod_uid("a");
    desk.api.set_pod_terminated(&pod_key("a"), &uid);
    desk.in_use("n1", &[]);
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("attach v1 i2", s(20));
    desk.assert_count("detach v1 i1 xvdaa", 1);
}

#[test]
fn unsafe_16_in_use_that_outlives_a_reboot_stays_loud_until_a_person_acts() {
    let mut desk = Desk::using_v1();
    desk.remove_pod("a");
    desk.boot("n1", "next-boot");
    desk.run(s(3600));
    desk.expect(&[]);
    let status = desk.core.status(desk.now);
    assert_eq!(status.blocked.get(&(Direction::Detach, "InUse")), Some(&1), "{status:?}");
    assert!(status.pending[&Direction::Detach].oldest >= s(3500), "{status:?}");
    desk.taint("n1", true);
    desk.run(s(60));
    desk.expect(&["list n1 [] marked(v1)", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn unsafe_24_one_read_that_shows_it_free_ends_nothing_when_nothing_was_sent() {
    let mut desk = Desk::new();
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1", s(10));
    desk.run(s(0));
    let free = VolumeReading {
        id: volume("v1"),
        state: VolumeState::Available,
        attachments: Vec::new(),
        multi_attach_enabled: false,
        zone: zone(),
        tags: Default::default(),
    };
    let stale = CallResult::Done(Answer::Volumes { volumes: vec![free], next_token: None });
    desk.answer("describe-volumes v1", Reply::Is(stale));
    desk.remove_pod("a");
    desk.run_to("finish v1", s(120));
    assert!(desk.is_free("v1"), "{}", desk.story());
    desk.assert_count("detach v1 i1 xvdaa", 1);
}

#[test]
fn unsafe_25_an_attachment_a_person_made_under_our_volume_attachment_is_not_touched() {
    let mut desk = Desk::new();
    desk.answer("attach v1", ec2_says("IncorrectState", "try later"));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1", s(10));
    desk.attach_by_hand("v1", "i1", "/dev/sdz");
    desk.run(s(120));
    let va = desk.va("v1", "n1").unwrap();
    assert!(!va.status.attached && va.status.device_path.is_none(), "{}", desk.story());
    assert!(!desk.lists("n1", "v1"));
    assert!(desk.count("event FailedAttachVolume") >= 1);
    let text = &desk.sent.iter().find(|sent| sent.text.starts_with("event FailedAttachVolume")).unwrap().text;
    assert!(text.contains("i-01") && text.contains("/dev/sdz"), "{text}");
    desk.remove_pod("a");
    desk.run(s(120));
    desk.assert_never("detach v1");
    assert!(desk.va("v1", "n1").is_none(), "{}", desk.story());
    assert!(desk.is_attached("v1", "i1"));
    desk.detach_by_hand("v1", "i1");
    desk.run(s(5));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_until(s(120), "listed", |desk| desk.lists("n1", "v1"));
}

#[test]
fn unsafe_20_a_volume_attachment_deleted_under_a_mounted_volume_comes_back() {
    let mut desk = Desk::using_v1();
    let uid = desk.va("v1", "n1").unwrap().uid.clone();
    desk.delete_va("v1", "n1");
    desk.run(s(60));
    desk.expect(&["finish v1 n1", "create v1 n1", "attached v1 n1 xvdaa"]);
    let va = desk.va("v1", "n1").unwrap();
    assert_eq!(va.name, attachment("v1", "n1"));
    assert!(va.uid != uid && va.deleting.is_none() && va.status.attached);
    assert!(desk.is_attached("v1", "i1") && desk.lists("n1", "v1"));
}
