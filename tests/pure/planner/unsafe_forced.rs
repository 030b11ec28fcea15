//! Cases UNSAFE: rungs (c) and (d), nodes that come back, and calls that land late.

use std::time::Duration;

use attachd::controller::event::Kind;
use attachd::controller::policy::{ForceDetach, Policy, Settings};
use attachd::model::device::device_names;
use attachd::model::ids::{AwsVolumeId, BootId};
use attachd::sim::checkers::world::Actor;

use super::desk::{Desk, Reply, s};
use super::short::{attachment, instance, node, volume, zone};

const FORCED: [&str; 4] = ["list n1 [] marked(v1)", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"];

fn with(force_detach: ForceDetach, unmount_timeout: Duration) -> Desk {
    Desk::with(Settings { force_detach, unmount_timeout, ..Settings::default() }, Policy::FULL)
}

fn minutes(minutes: u64) -> Duration {
    s(minutes * 60)
}

#[test]
fn unsafe_03_a_device_name_forced_off_is_not_used_again_while_it_may_be_mounted() {
    let mut desk = with(ForceDetach::Always, minutes(6));
    desk.use_volume("a", "n1", "v1");
    // Every other name is taken: what is left is the name of v1.
    let mut taken = std::collections::BTreeSet::from(["aa".to_owned(), "a".to_owned()]);
    for (index, name) in device_names().filter(|name| taken.insert(name.slot().to_owned())).enumerate() {
        let other = AwsVolumeId::parse(&format!("vol-0f{index:03}")).unwrap();
        desk.ec2.add_available_volume(desk.now, other.clone(), zone(), false);
        desk.ec2.attach_by_hand(desk.now, &other, &instance("i1"), &name).unwrap();
    }
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.run(minutes(7));
    desk.expect(&FORCED);
    desk.in_use("n1", &[]);
    desk.add_volume("v2");
    desk.add_pod("c", "n1", &["v2"]);
    desk.run(minutes(20));
    desk.assert_never("attach v2 i1 xvdaa");
    desk.boot("n1", "next-boot");
    desk.run_to("attach v2 i1 xvdaa", minutes(20));
}

#[test]
fn unsafe_04_never_means_never_until_a_person_fences_the_node() {
    let mut desk = with(ForceDetach::Never, minutes(6));
    desk.use_volume("a", "n1", "v1");
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.run(minutes(60));
    desk.expect(&[]);
    desk.taint("n1", true);
    desk.run(s(30));
    desk.expect(&FORCED);
}

#[test]
fn unsafe_05_a_machine_that_may_still_write_keeps_its_volume_and_people_are_told() {
    let mut desk = with(ForceDetach::Impaired, minutes(6));
    desk.use_volume("a", "n1", "v1");
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(minutes(6) - s(10));
    desk.expect(&[]);
    desk.assert_never("event ForceDetachWithheld");
    desk.run(s(20));
    desk.assert_count("event ForceDetachWithheld", 1);
    let event = desk.sent.iter().find(|sent| sent.text.starts_with("event ForceDetachWithheld")).unwrap();
    assert!(event.text.contains("terminate it or taint the node"), "{}", event.text);
    desk.run(minutes(30));
    desk.expect(&[]);
}

#[test]
fn unsafe_05_always_detaches_plainly_and_busy_keeps_the_other_node_waiting() {
    let mut desk = with(ForceDetach::Always, minutes(6));
    desk.use_volume("a", "n1", "v1");
    desk.ec2.set_guest_holds(desk.now, &instance("i1"), &volume("v1"), true);
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(minutes(6) - s(10));
    desk.expect(&[]);
    desk.run(minutes(30));
    desk.expect(&FORCED[..3]);
    assert_eq!(desk.ec2_shows("v1"), ["i1 /dev/xvdaa busy"]);
}

#[test]
fn unsafe_06_busy_for_half_an_hour_is_waited_out_and_termination_ends_it() {
    let mut desk = with(ForceDetach::Always, minutes(6));
    desk.use_volume("a", "n1", "v1");
    desk.ec2.set_guest_holds(desk.now, &instance("i1"), &volume("v1"), true);
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(minutes(40));
    desk.assert_count("detach v1", 1);
    desk.assert_never("attach v1 i2");
    desk.ec2.terminate(desk.now, &instance("i1")).unwrap();
    desk.run_to("attach v1 i2", minutes(4));
    desk.assert_count("detach v1", 1);
}

#[test]
fn unsafe_12_the_timeout_counts_from_the_wish_on_a_node_that_is_not_ready() {
    let mut desk = with(ForceDetach::Always, s(60));
    desk.use_volume("a", "n1", "v1");
    desk.not_ready("n1");
    desk.run(s(60));
    desk.remove_pod("a");
    desk.run(s(59));
    desk.expect(&[]);
    desk.run(s(3));
    desk.assert_count("detach v1 i1", 1);
}

#[test]
fn unsafe_12_a_node_that_turns_ready_stops_the_timeout() {
    let mut desk = with(ForceDetach::Always, s(60));
    desk.use_volume("a", "n1", "v1");
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.run(s(55));
    desk.ready("n1");
    desk.run(minutes(10));
    desk.expect(&[]);
    desk.not_ready("n1");
    desk.run(s(58));
    desk.expect(&[]);
    desk.run(s(10));
    desk.assert_count("detach v1 i1", 1);
}

#[test]
fn unsafe_12_a_leader_change_does_not_start_the_timeout_again() {
    let mut desk = with(ForceDetach::Always, s(60));
    desk.use_volume("a", "n1", "v1");
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.run(s(40));
    desk.restart();
    desk.run(s(15));
    desk.assert_never("detach v1");
    desk.run(s(10));
    desk.assert_count("detach v1 i1", 1);
}

/// A pod uses v1; its Node is deleted and the pod goes; the kubelet restarts, registers anew, and knows of no volume.
fn registered_anew() -> Desk {
    let mut desk = Desk::using_v1();
    desk.delete_node("n1");
    desk.remove_pod("a");
    desk.run(s(20));
    desk.expect(&[]);
    desk.add_node("n1", "i1");
    desk.run(s(10));
    desk.expect(&["list n1 [v1] marked(v1)"]);
    assert_eq!(desk.marks("n1", "v1").as_deref(), Some("boot-of-i1"));
    desk.run(minutes(30));
    desk.expect(&[]);
    assert!(desk.count("event VolumeDetachWaits") >= 1, "{}", desk.story());
    desk
}

#[test]
fn unsafe_18_absence_from_a_new_node_object_is_no_evidence_until_the_machine_boots() {
    let mut desk = registered_anew();
    // That it is seen in use and leaves again proves nothing.
    desk.in_use("n1", &["v1"]);
    desk.run(s(20));
    desk.in_use("n1", &[]);
    desk.run(minutes(10));
    desk.expect(&[]);
    desk.boot("n1", "next-boot");
    desk.run(s(30));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn unsafe_18_a_persons_word_counts_with_a_kubelet_status_written_after_it() {
    let mut desk = registered_anew();
    desk.api.annotate_unmounted_by_hand(&attachment("v1", "n1"), &BootId::new("boot-of-i1"));
    desk.run(s(60));
    desk.expect(&[]);
    desk.ready("n1");
    desk.run(s(60));
    desk.expect(&["list n1 [] marked(v1)", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
    assert_eq!(desk.marks("n1", "v1").as_deref(), Some(""));
}

#[test]
fn unsafe_18_a_persons_word_for_another_boot_is_none() {
    let mut desk = registered_anew();
    desk.api.annotate_unmounted_by_hand(&attachment("v1", "n1"), &BootId::new("an-earlier-boot"));
    desk.run(s(30));
    desk.ready("n1");
    desk.run(minutes(10));
    desk.expect(&[]);
}

#[test]
fn unsafe_18_the_taint_opens_it_too() {
    let mut desk = registered_anew();
    desk.taint("n1", true);
    desk.run(s(30));
    desk.expect(&["list n1 []", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
}

/// A leader sends DetachVolume, which lands 30 s later, and dies.
fn detach_of_a_dead_leader() -> Desk {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", Reply::Late(s(30)));
    desk.run_to("detach v1", s(10));
    desk.run(s(1));
    desk
}

#[test]
fn unsafe_19_the_same_instance_waits_for_the_calls_of_an_earlier_leader() {
    let mut desk = detach_of_a_dead_leader();
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.restart();
    let start = desk.now.monotonic;
    desk.run_to("attach v1 i1", s(300));
    assert!(desk.now.monotonic >= start + s(70), "{}", desk.story());
    desk.run_until(s(60), "listed", |desk| desk.lists("n1", "v1"));
    assert!(desk.is_attached("v1", "i1"));
}

#[test]
fn unsafe_19_another_instance_gets_it_as_soon_as_it_is_certainly_free() {
    let mut desk = detach_of_a_dead_leader();
    desk.add_pod("b", "n2", &["v1"]);
    desk.restart();
    let start = desk.now.monotonic;
    desk.run_to("attach v1 i2", s(300));
    assert!(desk.now.monotonic < start + s(70), "{}", desk.story());
    desk.run(s(120));
    assert!(desk.is_attached("v1", "i2") && desk.va("v1", "n1").is_none());
}

#[test]
fn unsafe_19_a_person_who_strips_the_finalizer_does_not_end_the_calls() {
    let mut desk = detach_of_a_dead_leader();
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.restart();
    let start = desk.now.monotonic;
    desk.run(s(2));
    desk.strip_va("v1", "n1");
    desk.run_to("attach v1 i1", s(300));
    assert!(desk.now.monotonic >= start + s(70), "{}", desk.story());
}

#[test]
fn unsafe_21_a_multi_attach_volume_behind_a_read_write_once_volume_is_exclusive() {
    let mut desk = with(ForceDetach::Always, minutes(6));
    desk.add_multi_attach_volume("v2");
    desk.run(s(80));
    desk.use_volume("a", "n1", "v2");
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v2"]);
    desk.run(minutes(6) - s(5));
    desk.expect(&[]);
    desk.answer("detach v2", Reply::Late(s(30)));
    desk.run_to("detach v2", s(20));
    let sent = desk.now.monotonic;
    desk.run_to("attach v2 i2", s(300));
    assert!(desk.now.monotonic >= sent + s(70), "{}", desk.story());
    assert!(desk.is_free("v2"));
}

#[test]
fn unsafe_22_a_node_that_came_back_is_seen_by_the_live_read_before_the_detach() {
    let mut desk = with(ForceDetach::Always, minutes(6));
    desk.use_volume("a", "n1", "v1");
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.run_to("list n1 [] marked(v1)", minutes(7));
    desk.run(s(0));
    desk.slow_watch(Kind::Node);
    desk.run_to("get-node n1", s(5));
    desk.ready("n1");
    desk.run(minutes(10));
    desk.assert_never("delete v1");
    desk.assert_never("detach v1");
    assert!(desk.lists("n1", "v1") && desk.marks("n1", "v1").is_some(), "{}", desk.story());
}

#[test]
fn unsafe_22_a_taint_that_is_gone_is_seen_by_the_live_read_before_the_detach() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.taint("n1", true);
    desk.run_to("list n1 [] marked(v1)", s(10));
    desk.run(s(0));
    desk.slow_watch(Kind::Node);
    desk.run_to("get-node n1", s(5));
    desk.taint("n1", false);
    desk.run(minutes(2));
    desk.assert_never("detach v1");
    assert!(desk.lists("n1", "v1") && desk.marks("n1", "v1").is_some(), "{}", desk.story());
}

#[test]
fn unsafe_23_a_listing_that_hangs_is_voided_before_anything_else_is_decided() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("list-pods n1", Reply::Hold);
    desk.run_to("list-pods n1", s(5));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.answer("list n1 [v1]", Reply::Late(s(25)));
    desk.release_honestly("list-pods n1");
    desk.run_to("list n1 [v1]", s(30));
    desk.take_mutations();
    desk.remove_pod("a2");
    desk.run(s(9));
    desk.expect(&[]);
    desk.run(s(120));
    desk.expect(&["list n1 [] touched", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
    assert!(desk.is_all_gone("v1"));
}

#[test]
fn i_22_of_all_taints_only_out_of_service_opens_the_ladder() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.run(s(60));
    desk.expect(&[]);
    assert!(desk.api.set_taint(Actor::Person, &node("n1"), true));
    desk.run(s(30));
    desk.expect(&FORCED);
}
