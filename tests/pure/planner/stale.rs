//! Cases STALE: the object says attached, and the instance or the node is gone. Rung (b), and rung (d) under `impaired`.

use std::time::Duration;

use attachd::controller::event::Kind;
use attachd::controller::policy::{ForceDetach, Policy, Settings};
use attachd::model::ids::PodKey;
use attachd::model::volume::CheckStatus;
use attachd::sim::ec2::Ec2Fault;

use super::desk::{Desk, Reply, s};
use super::hands::pod_key;
use super::short::{instance, node};

/// A machine ends within 90 s of the order, and what follows takes seconds.
const SOON: Duration = s(15);

fn minutes(minutes: u64) -> Duration {
    s(minutes * 60)
}

/// Terminated, in time; what follows within 10 s may have been sent when this returns.
fn terminate(desk: &mut Desk, i: &str) {
    desk.ec2.terminate(desk.now, &instance(i)).unwrap();
    for _ in 0..100 {
        desk.run(s(1));
        desk.ec2.advance(desk.now);
        if desk.ec2.instance(&instance(i)).unwrap().state().as_str() == "terminated" {
            return;
        }
    }
    panic!("{i} does not end");
}

/// Terminated, and not a mutation before EC2 says that it ended.
fn expect_nothing_while_it_shuts_down(desk: &mut Desk, i: &str) {
    desk.ec2.terminate(desk.now, &instance(i)).unwrap();
    while desk.ec2.instance(&instance(i)).unwrap().state().as_str() == "shutting-down" {
        desk.expect(&[]);
        desk.run(s(1));
        desk.ec2.advance(desk.now);
    }
}

/// The volume is attached there now or within this time.
#[track_caller]
fn attached_within(desk: &mut Desk, attach: &str, within: Duration) {
    desk.run_until(within, attach, |desk| desk.count(attach) > 0);
}

/// The same, while attachd sees nothing of it.
fn terminate_unseen(desk: &mut Desk, i: &str) {
    desk.ec2.terminate(desk.now, &instance(i)).unwrap();
    let later = desk.now.plus(s(100));
    desk.ec2.advance(later);
    desk.now = later;
}

fn stop(desk: &mut Desk, i: &str) {
    desk.ec2.stop(desk.now, &instance(i)).unwrap();
    desk.run(s(45));
    desk.ec2.advance(desk.now);
    assert_eq!(desk.ec2.instance(&instance(i)).unwrap().state().as_str(), "stopped");
}

#[test]
fn stale_01_a_terminated_instance_lets_its_volumes_go_whatever_its_node_says() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    terminate(&mut desk, "i1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("attach v1 i2", s(10));
    desk.run(s(60));
    assert!(desk.va("v1", "n1").is_none() && !desk.lists("n1", "v1"), "{}", desk.story());
    assert!(desk.is_attached("v1", "i2"));
    desk.assert_never("detach v1");
}

#[test]
fn stale_01_the_pod_that_still_stands_on_the_dead_node_holds_nothing() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    // `a` is still there: the node lifecycle and the pod garbage collection take their minutes.
    desk.add_pod("b", "n2", &["v1"]);
    terminate(&mut desk, "i1");
    attached_within(&mut desk, "attach v1 i2", s(9));
    desk.run(s(60));
    assert!(desk.va("v1", "n1").is_none(), "{}", desk.story());
    desk.assert_never("detach v1");
}

#[test]
fn stale_03_twelve_volumes_of_a_node_that_is_gone_are_released_together() {
    let mut desk = Desk::new();
    for number in 2..=12 {
        desk.add_volume(&format!("v{number}"));
    }
    for number in 1..=12 {
        desk.use_volume(&format!("a{number}"), "n1", &format!("v{number}"));
    }
    terminate_unseen(&mut desk, "i1");
    desk.delete_node("n1");
    for number in 1..=12 {
        desk.remove_pod(&format!("a{number}"));
        desk.add_pod(&format!("b{number}"), "n2", &[&format!("v{number}")]);
    }
    desk.run_until(SOON, "moved", |desk| desk.count("attach v") == 24);
    // Nothing was sent to end these attachments: consistent spaced reads do (rule 6).
    desk.run(s(40));
    assert!((1..=12).all(|number| desk.va(&format!("v{number}"), "n1").is_none()), "{}", desk.story());
    desk.assert_never("detach v");
}

#[test]
fn stale_03_an_instance_that_ec2_does_not_show_any_more_is_believed_gone_after_reads_far_apart() {
    let mut desk = Desk::using_v1();
    terminate_unseen(&mut desk, "i1");
    desk.ec2.inject(Ec2Fault::HideInstance(instance("i1")));
    desk.delete_node("n1");
    desk.remove_pod("a");
    desk.run(s(25));
    assert!(desk.va("v1", "n1").is_some_and(|va| va.deleting.is_none()), "absence needs 30 s\n{}", desk.story());
    desk.run(s(30));
    assert!(desk.va("v1", "n1").is_none(), "{}", desk.story());
    desk.assert_never("detach v1");
}

#[test]
fn stale_03_absence_proves_nothing_where_the_volume_still_shows_the_attachment() {
    let mut desk = Desk::using_v1();
    desk.ec2.inject(Ec2Fault::HideInstance(instance("i1")));
    desk.delete_node("n1");
    desk.remove_pod("a");
    desk.run(minutes(5));
    desk.expect(&[]);
}

#[test]
fn stale_04_nothing_moves_while_the_instance_shuts_down() {
    let mut desk = Desk::using_v1();
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(10));
    desk.take_mutations();
    expect_nothing_while_it_shuts_down(&mut desk, "i1");
    attached_within(&mut desk, "attach v1 i2", s(9));
    desk.assert_never("detach v1");
}

#[test]
fn stale_05_the_frozen_instance_ends_a_detach_whose_node_and_csi_node_are_gone() {
    let mut desk = Desk::using_v1();
    terminate_unseen(&mut desk, "i1");
    desk.delete_node("n1");
    assert!(!desk.api.list(Kind::CsiNode).iter().any(|object| format!("{object:?}").contains("\"n1\"")));
    desk.remove_pod("a");
    desk.delete_va("v1", "n1");
    desk.run(SOON);
    assert!(desk.va("v1", "n1").is_none(), "{}", desk.story());
}

#[test]
fn stale_06_a_volume_leaves_a_node_without_a_node_object_once_its_machine_is_stopped() {
    let mut desk = Desk::using_v1();
    stop(&mut desk, "i1");
    desk.delete_node("n1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("attach v1 i2", s(30));
    desk.assert_count("detach v1 i1", 1);
}

#[test]
fn stale_07_an_old_object_without_any_annotation_is_released_when_the_volume_is_attached_to_nothing() {
    let mut desk = Desk::new();
    desk.make_va("v1", "n9");
    desk.delete_va("v1", "n9");
    desk.run(s(60));
    assert!(desk.va("v1", "n9").is_none(), "{}", desk.story());
}

#[test]
fn stale_09_the_name_with_another_machine_behind_it_says_nothing_of_the_first() {
    for ended in [false, true] {
        let mut desk = Desk::using_v1();
        desk.delete_node("n1");
        desk.remove_pod("a");
        desk.add_node("n1", "i5");
        desk.add_pod("a2", "n1", &["v1"]);
        desk.run(s(60));
        desk.assert_never("attach v1 i5");
        assert!(!desk.lists("n1", "v1"));
        if ended {
            terminate(&mut desk, "i1");
            attached_within(&mut desk, "attach v1 i5", SOON);
            desk.run_until(s(60), "listed", |desk| desk.lists("n1", "v1"));
            desk.assert_never("detach v1");
        } else {
            desk.run(minutes(20));
            desk.assert_never("detach v1");
        }
    }
}

#[test]
fn stale_10_a_leaked_object_of_a_machine_long_gone_is_collected_and_never_listed() {
    let mut desk = Desk::using_v1();
    terminate_unseen(&mut desk, "i1");
    desk.ec2.inject(Ec2Fault::HideInstance(instance("i1")));
    desk.ec2.delete_volume(desk.now, &super::short::volume("v1")).unwrap();
    desk.kill();
    desk.remove_pod("a");
    desk.delete_node("n1");
    desk.add_node("n1", "i5");
    desk.lead();
    desk.list_everything();
    desk.run(minutes(3));
    assert!(desk.va("v1", "n1").is_none(), "{}", desk.story());
    assert!(!desk.lists("n1", "v1"));
}

#[test]
fn stale_12_node_and_pod_may_go_in_any_order() {
    for node_first in [true, false] {
        let mut desk = Desk::using_v1();
        terminate_unseen(&mut desk, "i1");
        if node_first {
            desk.delete_node("n1");
            desk.run(s(30));
            desk.remove_pod("a");
        } else {
            desk.remove_pod("a");
            desk.run(s(30));
            desk.delete_node("n1");
        }
        desk.run(SOON);
        assert!(desk.is_all_gone("v1"), "{}", desk.story());
    }
}

#[test]
fn stale_15_an_instance_that_is_not_found_ends_a_detach_once_the_volume_is_free() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.answer("detach v1", super::desk::ec2_says("InvalidInstanceID.NotFound", "The instance ID does not exist"));
    desk.run_to("detach v1", s(10));
    terminate_unseen(&mut desk, "i1");
    desk.run(minutes(2));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
    desk.assert_count("detach v1", 1);
}

#[test]
fn stale_16_an_error_that_was_there_before_stops_nothing() {
    let mut desk = Desk::using_v1();
    desk.delete_va("v1", "n1");
    desk.set_detach_error("v1", "n1", "csinode not found");
    terminate_unseen(&mut desk, "i1");
    desk.delete_node("n1");
    desk.remove_pod("a");
    desk.run(SOON);
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

#[test]
fn stale_18_a_machine_that_left_the_cluster_and_runs_keeps_its_volume() {
    let mut desk = Desk::using_v1();
    desk.delete_node("n1");
    desk.remove_pod("a");
    desk.run(minutes(30));
    desk.expect(&[]);
    assert!(desk.count("event ForceDetachWithheld") >= 1, "{}", desk.story());
    desk.delete_va("v1", "n1");
    desk.run(minutes(30));
    desk.expect(&[]);
    assert!(desk.is_attached("v1", "i1"));
}

#[test]
fn stale_19_a_stopped_machine_is_really_asked_to_give_the_volume_up() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    stop(&mut desk, "i1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("attach v1 i2", s(30));
    desk.expect(&[
        "list n1 []",
        "delete v1 n1",
        "detach v1 i1 xvdaa",
        "finish v1 n1",
        "create v1 n2",
        "attach v1 i2 xvdaa",
    ]);
}

#[test]
fn g1_b_a_stopped_machine_whose_node_is_ready_again_keeps_its_volume() {
    let mut desk = Desk::using_v1();
    desk.ec2.stop(desk.now, &instance("i1")).unwrap();
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(minutes(3));
    desk.assert_never("detach v1");
    desk.assert_never("delete v1");
}

#[test]
fn g1_d_an_impaired_machine_is_given_up_after_the_timeout() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.ec2.set_checks(&instance("i1"), CheckStatus::Impaired);
    desk.run(minutes(6) - s(10));
    desk.expect(&[]);
    desk.run(s(40));
    desk.expect(&["list n1 [] marked(v1)", "delete v1 n1", "detach v1 i1 xvdaa", "finish v1 n1"]);
    desk.assert_never("event ForceDetachWithheld");
}

#[test]
fn g1_d_checks_that_say_nothing_are_no_impairment() {
    for checks in [CheckStatus::Initializing, CheckStatus::InsufficientData, CheckStatus::Unknown("new".into())] {
        let mut desk = Desk::using_v1();
        desk.not_ready("n1");
        desk.remove_pod("a");
        desk.ec2.set_checks(&instance("i1"), checks);
        desk.run(minutes(30));
        desk.expect(&[]);
    }
}

#[test]
fn g1_d_status_checks_are_asked_for_only_where_the_timeout_is_over() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    desk.run(minutes(20));
    desk.remove_pod("a");
    desk.run(minutes(5));
    desk.assert_never("describe-instance-status");
    desk.run(minutes(2));
    assert!(desk.count("describe-instance-status i1") >= 3, "{}", desk.story());
}

#[test]
fn g9_a_pod_that_cannot_be_told_shuts_the_rung_of_a_stopped_machine_and_not_that_of_a_terminated_one() {
    for (ended, moves) in [(false, false), (true, true)] {
        let mut desk = Desk::with(Settings { force_detach: ForceDetach::Always, ..Settings::default() }, Policy::FULL);
        desk.use_volume("a", "n1", "v1");
        desk.kill();
        desk.not_ready("n1");
        desk.remove_pod("a");
        let unknown = PodKey { name: "unknown".into(), ..pod_key("a") };
        desk.api.create_pod(desk.now, &unknown, &node("n1"), &["claim-of-nobody".into()]).unwrap();
        if ended {
            terminate_unseen(&mut desk, "i1");
        } else {
            desk.ec2.stop(desk.now, &instance("i1")).unwrap();
        }
        desk.lead();
        desk.list_everything();
        desk.run(minutes(10));
        assert_eq!(desk.va("v1", "n1").is_none(), moves, "{}", desk.story());
    }
}

#[test]
fn rule_17_many_machines_absent_at_once_are_an_alarm_and_no_proof() {
    let mut desk = Desk::new();
    for number in 3..=20 {
        desk.add_node(&format!("n{number}"), &format!("i{number}"));
    }
    for number in 2..=4 {
        desk.add_volume(&format!("v{number}"));
    }
    for number in 1..=4 {
        desk.use_volume(&format!("a{number}"), &format!("n{number}"), &format!("v{number}"));
    }
    for number in 1..=4 {
        desk.ec2
            .detach_by_hand(desk.now, &super::short::volume(&format!("v{number}")), &instance(&format!("i{number}")))
            .unwrap();
        desk.ec2.inject(Ec2Fault::HideInstance(instance(&format!("i{number}"))));
        desk.delete_node(&format!("n{number}"));
        desk.remove_pod(&format!("a{number}"));
    }
    desk.take_mutations();
    desk.run(minutes(4));
    desk.assert_never("delete v");
    assert!(desk.core.status(desk.now).mass_absence, "{}", desk.story());
}

#[test]
fn rule_18_states_of_machines_in_doubt_are_read_together_every_five_seconds_and_no_others() {
    let mut desk = Desk::using_v1();
    desk.run(minutes(5));
    let quiet = desk.count("describe-instances");
    desk.run(minutes(5));
    desk.assert_count("describe-instances", quiet);
    desk.not_ready("n1");
    desk.run(minutes(1));
    let read = desk.count("describe-instances") - quiet;
    assert!((11..=13).contains(&read), "{read} in a minute\n{}", desk.story());
    desk.ready("n1");
    desk.run(s(10));
    let quiet = desk.count("describe-instances");
    desk.run(minutes(1));
    desk.assert_count("describe-instances", quiet);
}

#[test]
fn volumes_that_ec2_takes_off_a_machine_that_ends_were_detached_by_nobody() {
    let mut desk = Desk::using_v1();
    // Its kubelet is well to the end, and so is the Node.
    terminate_unseen(&mut desk, "i1");
    desk.run(minutes(3));
    desk.assert_never("event VolumeDetachedExternally");
    desk.assert_count("attach v1", 1);
}

#[test]
fn stale_13_a_node_that_reappears_gets_its_list_again_without_another_attach() {
    let mut desk = Desk::new();
    desk.answer("attach v1", Reply::Hold);
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1", s(10));
    desk.delete_node("n1");
    desk.release_honestly("attach v1");
    desk.run(s(20));
    desk.register("n1", "i1");
    desk.csi("n1", "i1");
    desk.run_until(s(60), "listed on the new Node", |desk| desk.lists("n1", "v1"));
    // It may have been mounted under the Node object that is gone: only a boot or a person tells.
    assert!(desk.marks("n1", "v1").is_some(), "{}", desk.story());
    desk.assert_count("attach v1", 1);
}

#[test]
fn stale_21_the_object_goes_soon_after_the_unmount_and_only_that_one() {
    let mut desk = Desk::new();
    desk.add_volume("v2");
    desk.use_volume("a", "n1", "v1");
    desk.use_volume("b", "n1", "v2");
    desk.remove_pod("a");
    desk.in_use("n1", &["v2"]);
    // EC2 takes three seconds to detach.
    desk.run_until(s(6), "gone", |desk| desk.va("v1", "n1").is_none());
    desk.run(s(60));
    assert!(desk.va("v2", "n1").unwrap().status.attached && desk.lists("n1", "v2"));
}

#[test]
fn stale_22_nodes_that_told_of_the_unmount_are_done_at_once_and_the_others_when_they_end() {
    let mut desk = Desk::new();
    for number in 2..=4 {
        desk.add_volume(&format!("v{number}"));
    }
    for number in 3..=4 {
        desk.add_node(&format!("n{number}"), &format!("i{number}"));
    }
    desk.add_node("n9", "i9");
    for number in 1..=4 {
        desk.use_volume(&format!("a{number}"), &format!("n{number}"), &format!("v{number}"));
        desk.remove_pod(&format!("a{number}"));
        desk.add_pod(&format!("b{number}"), "n9", &[&format!("v{number}")]);
    }
    desk.in_use("n1", &[]);
    desk.in_use("n3", &[]);
    desk.run(s(20));
    for (number, moved) in [(1, 1), (2, 0), (3, 1), (4, 0)] {
        desk.assert_count(&format!("attach v{number} i9"), moved);
    }
    for number in [2, 4] {
        desk.not_ready(&format!("n{number}"));
        terminate(&mut desk, &format!("i{number}"));
        attached_within(&mut desk, &format!("attach v{number} i9"), s(9));
        desk.assert_never(&format!("detach v{number}"));
    }
}

#[test]
fn a_node_that_returns_while_its_volume_is_detached_does_not_get_it_listed() {
    let mut desk = Desk::using_v1();
    stop(&mut desk, "i1");
    desk.delete_node("n1");
    desk.remove_pod("a");
    desk.answer("detach v1", Reply::LostAnswer);
    desk.run_to("detach v1 i1", s(30));
    desk.ec2.start(desk.now, &instance("i1")).unwrap();
    desk.register("n1", "i1");
    desk.csi("n1", "i1");
    desk.run(s(5));
    assert!(desk.va("v1", "n1").is_some_and(|va| va.deleting.is_some()), "{}", desk.story());
    desk.run(s(120));
    let detached_at = desk.times("detach v1")[0];
    let listed = desk.sent.iter().find(|sent| sent.text.starts_with("list n1 [v1]") && sent.at >= detached_at);
    assert!(listed.is_none(), "{}", desk.story());
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}

#[test]
fn unsafe_05_an_instance_that_ec2_leaves_out_keeps_the_volume_it_still_shows_there() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.ec2.inject(Ec2Fault::HideInstance(instance("i1")));
    desk.run(minutes(30));
    desk.expect(&[]);
}

#[test]
fn rule_17_where_nothing_is_found_at_all_no_volume_is_gone() {
    let mut desk = Desk::using_v1();
    desk.add_volume("v2");
    desk.use_volume("c", "n2", "v2");
    // The wrong region, for a while: a detach under way and an attachment at rest.
    let hide = |desk: &mut Desk| {
        for number in 1..=2 {
            desk.ec2.inject(Ec2Fault::HideVolume(super::short::volume(&format!("v{number}"))));
            desk.ec2.inject(Ec2Fault::HideInstance(instance(&format!("i{number}"))));
        }
    };
    desk.answer("detach v1", super::desk::ec2_says("InvalidVolume.NotFound", "The volume does not exist"));
    desk.end_pod("a", "n1");
    desk.run_to("detach v1", s(10));
    hide(&mut desk);
    desk.run(minutes(5));
    assert!(desk.va("v1", "n1").is_some() && desk.va("v2", "n2").unwrap().status.attached, "{}", desk.story());
    desk.ec2.heal();
    desk.run(minutes(5));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
    assert!(desk.is_attached("v2", "i2") && desk.count("attach v2") == 1);
}

#[test]
fn rule_17_a_find_between_two_spells_of_the_wrong_region_makes_no_volume_gone() {
    let mut desk = Desk::using_v1();
    let hide = |desk: &mut Desk| {
        desk.ec2.inject(Ec2Fault::HideVolume(super::short::volume("v1")));
        for number in 1..=2 {
            desk.ec2.inject(Ec2Fault::HideInstance(instance(&format!("i{number}"))));
        }
    };
    hide(&mut desk);
    desk.run_to("describe-volumes v1", s(70));
    desk.run(s(1));
    // The right one while the instances are read, and only then.
    desk.ec2.heal();
    desk.ec2.inject(Ec2Fault::HideVolume(super::short::volume("v1")));
    desk.run_to("describe-instances", s(10));
    desk.run(s(1));
    hide(&mut desk);
    desk.run(s(40));
    desk.assert_never("detached v1");
    desk.ec2.heal();
    desk.run(s(120));
    assert!(desk.is_attached("v1", "i1") && desk.va("v1", "n1").unwrap().status.attached, "{}", desk.story());
    desk.assert_count("attach v1", 1);
}

#[test]
fn stale_04_a_node_given_up_long_ago_keeps_its_volume_while_its_machine_shuts_down() {
    let mut desk = Desk::using_v1();
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(minutes(10));
    expect_nothing_while_it_shuts_down(&mut desk, "i1");
    attached_within(&mut desk, "attach v1 i2", s(9));
    desk.assert_never("detach v1");
}

#[test]
fn a_volume_that_an_earlier_attachment_left_on_the_list_leaves_by_the_whole_of_rule_6() {
    let mut desk = Desk::using_v1();
    // A person deletes the object and detaches: in use, the volume stays on the list (rule 4), and is attached anew.
    desk.delete_va("v1", "n1");
    desk.detach_by_hand("v1", "i1");
    desk.run_to("attach v1 i1 xvdab", minutes(3));
    desk.take_mutations();
    desk.end_pod("a", "n1");
    desk.run(minutes(3));
    let unlisted = desk.times("list n1 []").first().copied();
    let deleted = desk.times("delete v1 n1").last().copied();
    assert!(unlisted.is_some() && unlisted <= deleted, "{}", desk.story());
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
}
