//! Cases INPUT and ZONE: what cannot be done is said, and costs nothing.

use attachd::model::claim::{AccessMode, PersistentVolume, PersistentVolumeSource};
use attachd::model::ids::{DriverName, VolumeHandle, Zone};

use super::desk::{Desk, persistent_volume, s};
use super::short::{claim_key, volume, zone};

use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};

fn add(desk: &mut Desk, v: &str, modes: &[AccessMode], block: bool, multi_attach: bool, zone: Zone) {
    desk.ec2.add_available_volume(desk.now, volume(v), zone, multi_attach);
    let mut pv = persistent_volume(v);
    pv.access_modes = modes.iter().copied().collect();
    pv.block = block;
    desk.api.create_bound_claim(&claim_key(v), pv);
}

#[test]
fn input_01_a_second_node_waits_with_one_event_and_the_first_is_not_touched() {
    let mut desk = Desk::using_v1();
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(14));
    desk.assert_never("event FailedAttachVolume");
    desk.run(s(60));
    desk.assert_count("event FailedAttachVolume", 1);
    let event = desk.sent.iter().find(|sent| sent.text.starts_with("event FailedAttachVolume")).unwrap();
    assert!(event.text.contains("Multi-Attach error for volume \"pv-v1\" Volume is already used by pod(s) a"));
    assert!(event.text.contains("\"b\""), "{}", event.text);
    desk.expect(&[]);
    assert!(desk.is_attached("v1", "i1"));
}

#[test]
fn input_02_only_a_raw_multi_attach_device_of_many_writers_is_on_two_nodes() {
    for multi_attach in [true, false] {
        for block in [true, false] {
            for mode in [ReadWriteMany, ReadOnlyMany, ReadWriteOnce, ReadWriteOncePod] {
                let mut desk = Desk::new();
                desk.run(s(80));
                add(&mut desk, "v2", &[mode], block, multi_attach, zone());
                desk.add_pod("a", "n1", &["v2"]);
                desk.add_pod("b", "n2", &["v2"]);
                desk.run(s(120));
                let shared = multi_attach && block && mode == ReadWriteMany;
                let refused = mode == ReadOnlyMany || mode == ReadWriteMany && !block;
                let expected = if shared { 2 } else { usize::from(!refused) };
                let attached = desk.ec2_shows("v2").len();
                assert_eq!(attached, expected, "{multi_attach} {block} {mode:?}\n{}", desk.story());
            }
        }
    }
}

#[test]
fn input_02_a_shared_volume_leaves_one_node_and_stays_on_the_other() {
    let mut desk = Desk::new();
    add(&mut desk, "v2", &[ReadWriteMany], true, true, zone());
    desk.use_volume("a", "n1", "v2");
    desk.use_volume("b", "n2", "v2");
    desk.end_pod("a", "n1");
    desk.run(s(120));
    desk.expect(&["list n1 []", "delete v2 n1", "detach v2 i1 xvdaa", "finish v2 n1"]);
    assert!(desk.is_attached("v2", "i2") && desk.lists("n2", "v2"));
}

#[test]
fn input_03_input_04_modes_that_ebs_has_not_are_refused_before_ec2_is_called() {
    for (mode, block) in [(ReadOnlyMany, false), (ReadWriteMany, false)] {
        let mut desk = Desk::new();
        add(&mut desk, "v2", &[mode], block, true, zone());
        desk.add_pod("a", "n1", &["v2"]);
        desk.run(s(240));
        desk.expect(&[]);
        desk.assert_count("event FailedAttachVolume", 1);
        assert!(desk.count("describe-volumes") <= 10, "{}", desk.story());
    }
}

#[test]
fn zone_01_another_zone_is_refused_before_ec2_is_called_with_one_event_naming_both() {
    let mut desk = Desk::new();
    add(&mut desk, "v2", &[ReadWriteOnce], false, false, Zone::new("z2"));
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(240));
    desk.expect(&[]);
    desk.assert_count("event FailedAttachVolume", 1);
    let event = desk.sent.iter().find(|sent| sent.text.starts_with("event FailedAttachVolume")).unwrap();
    assert!(event.text.contains("z1") && event.text.contains("z2"), "{}", event.text);
    assert!(desk.count("describe-volumes") <= 20, "{}", desk.story());
    desk.remove_pod("a");
    desk.add_node_in("n3", "i3", Zone::new("z2"));
    desk.add_pod("a2", "n3", &["v2"]);
    desk.run_to("attach v2 i3", s(20));
}

#[test]
fn zone_04_wrong_tries_leave_no_volume_attachment() {
    let mut desk = Desk::new();
    add(&mut desk, "v2", &[ReadWriteOnce], false, false, Zone::new("z2"));
    for round in 0..5 {
        let (pod, n) = (format!("a{round}"), if round % 2 == 0 { "n1" } else { "n2" });
        desk.add_pod(&pod, n, &["v2"]);
        desk.run(s(10));
        desk.remove_pod(&pod);
        desk.run(s(1));
    }
    desk.run(s(60));
    desk.expect(&[]);
    assert!(desk.is_all_gone("v2"));
}

#[test]
fn i_02_a_static_volume_without_node_affinity_is_attached_where_it_is_asked_for() {
    let mut desk = Desk::new();
    desk.add_pod("a", "n2", &["v1"]);
    desk.run_to("attach v1 i2", s(10));
}

#[test]
fn i_13_the_driver_of_eks_auto_mode_is_another_driver() {
    let mut desk = Desk::new();
    let driver = DriverName::new("ebs.csi.eks.amazonaws.com");
    let handle = VolumeHandle::new("vol-0aa77");
    let source = PersistentVolumeSource::Csi { driver, handle, attributes: Default::default() };
    desk.api.create_bound_claim(&claim_key("v7"), PersistentVolume { source, ..persistent_volume("v7") });
    for (pod, n) in [("a", "n1"), ("b", "n2")] {
        desk.add_pod(pod, n, &["v7"]);
    }
    desk.run(s(20));
    let made = desk.take_mutations();
    assert_eq!(made.len(), 1, "one node gets it, by name and spec only: {made:?}");
    assert!(made[0].starts_with("create") && made[0].ends_with(" n1"), "{made:?}");
}

#[test]
fn i_17_what_a_windows_node_does_with_the_device_is_its_own_business() {
    let mut desk = Desk::new();
    let attributes = [("csi.storage.k8s.io/fstype".into(), "ntfs".into())].into();
    let source =
        PersistentVolumeSource::Csi { driver: DriverName::ebs(), handle: VolumeHandle::new("vol-02"), attributes };
    desk.ec2.add_available_volume(desk.now, volume("v2"), zone(), false);
    desk.api.create_bound_claim(&claim_key("v2"), PersistentVolume { source, ..persistent_volume("v2") });
    desk.add_pod("a", "n1", &["v2"]);
    desk.run_to("attached v2 n1", s(20));
    desk.run(s(1));
    let device = desk.va("v2", "n1").unwrap().status.device_path.clone().unwrap();
    assert_eq!(device.as_str(), "/dev/xvdaa");
}
