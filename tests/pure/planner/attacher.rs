//! The role attacher alone: a VolumeAttachment is the order, its deletion is the order back, and pods decide nothing.

use attachd::controller::event::Role;
use attachd::controller::policy::{Policy, Settings};
use attachd::model::claim::AccessMode;
use attachd::model::ids::{BootId, ProviderId, Zone};
use attachd::sim::api_server::NewNode;
use attachd::sim::checkers::world::Actor;
use attachd::sim::ec2::Ec2Fault;

use super::desk::{Desk, persistent_volume, s};
use super::hands::pod_key;
use super::short::{claim_key, instance, node, volume, zone};

/// kube-controller-manager makes and deletes the VolumeAttachments here.
fn attacher_alone() -> Desk {
    Desk::with(Settings { roles: [Role::Attacher].into(), ..Settings::default() }, Policy::FULL)
}

/// A volume in use by a pod, by the order of kube-controller-manager.
fn ordered() -> Desk {
    let mut desk = attacher_alone();
    desk.add_pod("a", "n1", &["v1"]);
    desk.make_va("v1", "n1");
    desk.run_to("attached v1 n1", s(60));
    desk.in_use("n1", &["v1"]);
    desk.run(s(10));
    desk.take_mutations();
    desk
}

#[test]
fn an_order_is_carried_out_whether_a_pod_is_known_or_not() {
    let mut desk = attacher_alone();
    desk.make_va("v1", "n1");
    desk.run_to("attached v1 n1", s(60));
    assert!(desk.is_attached("v1", "i1"));
    desk.assert_never("list n1");
}

#[test]
fn a_deletion_under_a_mounted_volume_is_held_until_the_node_lets_go() {
    let mut desk = ordered();
    desk.delete_va("v1", "n1");
    desk.run(s(600));
    desk.expect(&[]);
    assert!(desk.count("event VolumeAttachmentHeld") >= 1, "{}", desk.story());
    desk.in_use("n1", &[]);
    desk.run(s(60));
    desk.expect(&["detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn a_deletion_on_a_node_that_is_not_ready_or_fenced_is_carried_out() {
    let mut desk = ordered();
    desk.not_ready("n1");
    desk.delete_va("v1", "n1");
    desk.run(s(60));
    desk.expect(&["detach v1 i1 xvdaa", "finish v1 n1"]);
    let mut desk = ordered();
    desk.taint("n1", true);
    desk.delete_va("v1", "n1");
    desk.run(s(60));
    desk.expect(&["detach v1 i1 xvdaa", "finish v1 n1"]);
}

#[test]
fn a_deletion_is_never_healed_even_if_a_pod_wants_the_volume() {
    let mut desk = ordered();
    desk.in_use("n1", &[]);
    desk.delete_va("v1", "n1");
    desk.run(s(200));
    desk.expect(&["detach v1 i1 xvdaa", "finish v1 n1"]);
    assert!(desk.va("v1", "n1").is_none() && desk.is_free("v1"));
}

#[test]
fn zone_01_input_03_what_cannot_be_done_is_written_into_the_volume_attachment() {
    for (modes, z) in [([AccessMode::ReadWriteOnce], Zone::new("z2")), ([AccessMode::ReadOnlyMany], zone())] {
        let mut desk = attacher_alone();
        desk.ec2.add_available_volume(desk.now, volume("v2"), z, false);
        let mut pv = persistent_volume("v2");
        pv.access_modes = modes.into();
        desk.api.create_bound_claim(&claim_key("v2"), pv);
        desk.add_pod("a", "n1", &["v2"]);
        desk.make_va("v2", "n1");
        desk.run(s(240));
        desk.assert_count("attach-error v2 n1 3", 1);
        desk.assert_never("attach v2");
        desk.delete_va("v2", "n1");
        desk.run(s(60));
        assert!(desk.va("v2", "n1").is_none(), "{}", desk.story());
    }
}

#[test]
fn name_09_an_order_for_a_node_that_is_no_instance_gets_an_error() {
    let mut desk = attacher_alone();
    let provider_id =
        ProviderId::parse("aws:///us-east-9a/0f1e/fargate-ip-10-0-0-1.us-east-9.compute.internal").unwrap();
    let new = NewNode { name: node("n3"), provider_id, zone: zone(), boot_id: BootId::new("boot") };
    desk.api.register_node(desk.now, &new);
    desk.ready("n3");
    desk.add_pod("a", "n3", &["v1"]);
    desk.make_va("v1", "n3");
    desk.run(s(120));
    desk.assert_count("attach-error v1 n3 3", 1);
    desk.assert_never("attach v1");
}

#[test]
fn the_order_for_a_terminated_instance_is_collected_once_no_pod_binds_it_there() {
    let mut desk = ordered();
    desk.not_ready("n1");
    desk.ec2.terminate(desk.now, &instance("i1")).unwrap();
    desk.run(s(120));
    desk.expect(&[]);
    // The pod ends, though nobody confirms its end: kube-controller-manager alone would wait six minutes from here.
    assert!(desk.api.delete_pod(Actor::Platform, &pod_key("a")));
    desk.run(s(15));
    desk.expect(&["delete v1 n1", "finish v1 n1"]);
    desk.assert_never("detach v1");
    desk.make_va("v1", "n2");
    desk.run_to("attached v1 n2", s(60));
}

#[test]
fn the_order_for_a_machine_that_runs_or_is_stopped_is_not_collected() {
    let mut desk = ordered();
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.run(s(120));
    desk.ec2.stop(desk.now, &instance("i1")).unwrap();
    desk.run(s(600));
    desk.expect(&[]);
}

#[test]
fn the_order_for_a_terminated_instance_stands_while_the_volume_is_attached_anywhere() {
    let mut desk = ordered();
    desk.not_ready("n1");
    desk.remove_pod("a");
    desk.ec2.inject(Ec2Fault::ShowManagedAttachment(volume("v1")));
    desk.ec2.terminate(desk.now, &instance("i1")).unwrap();
    desk.run(s(300));
    desk.expect(&[]);
}

#[test]
fn an_order_given_since_the_lease_began_waits_for_no_earlier_leader() {
    let mut desk = attacher_alone();
    desk.make_va("v1", "n1");
    desk.run_to("attached v1 n1", s(20));
    desk.delete_va("v1", "n1");
    desk.run(s(12));
    assert!(desk.va("v1", "n1").is_none(), "{}", desk.story());
}

#[test]
fn an_order_whose_node_was_registered_again_is_recorded_for_the_new_one() {
    let mut desk = attacher_alone();
    desk.answer("attach v1", super::desk::ec2_says("IncorrectState", "not now"));
    desk.make_va("v1", "n1");
    desk.run_to("attach v1 i1", s(20));
    desk.delete_node("n1");
    desk.register("n1", "i1");
    desk.csi("n1", "i1");
    desk.run(s(150));
    assert!(desk.is_attached("v1", "i1"), "{}", desk.story());
    assert_eq!(desk.va("v1", "n1").unwrap().node_uid.as_ref(), Some(&desk.node("n1").uid));
}

#[test]
fn rule_4_the_next_leader_does_not_give_the_name_of_what_was_lost_under_a_mount_again() {
    let mut desk = ordered();
    desk.detach_by_hand("v1", "i1");
    desk.run_to("detached v1 n1", s(80));
    // Nobody lists it here: what is recorded is all that the next leader knows of the name.
    desk.restart();
    desk.run(s(180));
    desk.assert_count("attach v1 i1 xvdaa", 1);
    assert_eq!(desk.ec2_shows("v1"), ["i1 /dev/xvdab attached"], "{}", desk.story());
}
