//! `blockattachuntilinitialized`: a volume that nobody may use before its blocks are loaded from the snapshot.

use attachd::model::claim::{PersistentVolume, PersistentVolumeSource};
use attachd::model::ids::{DriverName, VolumeHandle};

use super::desk::{Desk, ec2_says, persistent_volume, s};
use super::short::{claim_key, volume, zone};

/// A volume that EC2 is loading, behind a PersistentVolume with the attribute.
fn add_loading(desk: &mut Desk, v: &str, value: &str) {
    desk.ec2.add_available_volume(desk.now, volume(v), zone(), false);
    desk.ec2.set_initializing(&volume(v), true);
    let source = PersistentVolumeSource::Csi {
        driver: DriverName::ebs(),
        handle: VolumeHandle::new(volume(v).text()),
        attributes: [("blockattachuntilinitialized".into(), value.into())].into(),
    };
    desk.api.create_bound_claim(&claim_key(v), PersistentVolume { source, ..persistent_volume(v) });
}

#[test]
fn a_volume_is_given_to_nobody_before_it_is_initialized() {
    let mut desk = Desk::new();
    add_loading(&mut desk, "v2", "true");
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(600));
    assert!(desk.is_attached("v2", "i1"));
    desk.expect(&["protect pv-v2", "create v2 n1", "attach v2 i1 xvdaa"]);
    assert!(desk.waits("v2", "n1").contains("initialized"), "{}", desk.story());
    let asked = desk.count("describe-volume-status v2");
    assert!((20..=45).contains(&asked), "{asked}");
    desk.ec2.set_initializing(&volume("v2"), false);
    desk.run_to("attached v2 n1", s(20));
    desk.run_to("list n1 [v2]", s(30));
    desk.run(s(120));
    assert!(desk.count("describe-volume-status") <= asked + 2, "{}", desk.story());
}

#[test]
fn without_the_attribute_the_status_is_not_asked_for() {
    let mut desk = Desk::new();
    add_loading(&mut desk, "v2", "false");
    desk.add_pod("a", "n1", &["v1", "v2"]);
    desk.run(s(60));
    for v in ["v1", "v2"] {
        assert!(desk.va(v, "n1").unwrap().status.attached, "{v}");
    }
    desk.assert_never("describe-volume-status");
}

#[test]
fn a_volume_that_is_let_go_while_it_loads_is_not_asked_for_any_more() {
    let mut desk = Desk::new();
    add_loading(&mut desk, "v2", "true");
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(100));
    desk.remove_pod("a");
    desk.run(s(100));
    assert!(desk.is_all_gone("v2"), "{}", desk.story());
    let asked = desk.count("describe-volume-status");
    desk.run(s(300));
    desk.assert_count("describe-volume-status", asked);
}

#[test]
fn many_are_asked_for_in_one_call_and_one_that_ec2_does_not_know_fails_nobody_else() {
    let mut desk = Desk::new();
    for v in ["v2", "v3", "v4", "v5"] {
        add_loading(&mut desk, v, "true");
    }
    desk.add_pod("a", "n1", &["v2", "v3", "v4", "v5"]);
    desk.run(s(60));
    assert!(desk.count("describe-volume-status v2,v3,v4,v5") >= 1, "{}", desk.story());
    // The whole batch fails, then the half, then the one alone.
    desk.answer("describe-volume-status v2,v3,v4,v5", ec2_says("InvalidVolume.NotFound", "vol-03 does not exist"));
    desk.answer("describe-volume-status v2,v3", ec2_says("InvalidVolume.NotFound", "vol-03 does not exist"));
    desk.answer("describe-volume-status v3", ec2_says("InvalidVolume.NotFound", "vol-03 does not exist"));
    for v in ["v2", "v3", "v4", "v5"] {
        desk.ec2.set_initializing(&volume(v), false);
    }
    desk.run(s(25));
    for v in ["v2", "v4", "v5"] {
        assert!(desk.va(v, "n1").unwrap().status.attached, "{v}\n{}", desk.story());
    }
    assert!(!desk.va("v3", "n1").unwrap().status.attached);
    desk.run_to("attached v3 n1", s(90));
}
