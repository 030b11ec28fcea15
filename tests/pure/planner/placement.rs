//! Labels of zone and region, and node affinity, on PersistentVolumes that say nothing of where they can be used.

use attachd::controller::event::Role;
use attachd::controller::policy::{Policy, Settings, ZoneAffinity, ZoneLabels};
use attachd::model::claim::{PersistentVolume, Placement};
use attachd::model::ids::Zone;

use super::desk::{Desk, Reply, api_says, persistent_volume, s};
use super::short::{claim_key, pv_name, volume, zone};

/// A PersistentVolume that a person made by hand, behind the volume `v` in zone z1.
fn add_unplaced(desk: &mut Desk, v: &str, placement: Placement) {
    desk.ec2.add_available_volume(desk.now, volume(v), zone(), false);
    desk.api.create_bound_claim(&claim_key(v), PersistentVolume { placement, ..persistent_volume(v) });
}

fn in_region(settings: Settings) -> Desk {
    Desk::with(Settings { region: Some("region-1".into()), ..settings }, Policy::FULL)
}

fn with_affinity() -> Desk {
    in_region(Settings { zone_affinity: ZoneAffinity::Write, ..Settings::default() })
}

fn placement(desk: &Desk, v: &str) -> Placement {
    desk.api.persistent_volume(&pv_name(v)).unwrap().placement.clone()
}

fn labelled() -> Placement {
    Placement { zone: Some("z1".into()), region: Some("region-1".into()), has_affinity: false }
}

#[test]
fn a_volume_without_placement_is_labelled_once_it_was_read_and_after_what_is_urgent() {
    let mut desk = in_region(Settings::default());
    add_unplaced(&mut desk, "v2", Placement::default());
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(60));
    desk.assert_count("place pv-v2 region-1,z1", 1);
    desk.assert_count("place ", 1);
    assert_eq!(placement(&desk, "v2"), labelled());
    let first = |prefix: &str| desk.sent.iter().position(|sent| sent.text.starts_with(prefix)).unwrap();
    assert!(first("protect pv-v2") < first("place pv-v2"), "{}", desk.story());
}

#[test]
fn what_says_its_place_already_is_left_alone() {
    let region = Some("elsewhere".into());
    for own in [
        Placement { zone: Some("z9".into()), ..Placement::default() },
        Placement { has_affinity: true, ..Placement::default() },
    ] {
        let mut desk = in_region(Settings::default());
        add_unplaced(&mut desk, "v2", own);
        desk.add_pod("a", "n1", &["v2"]);
        desk.run(s(60));
        desk.assert_never("place");
    }
    // A region that is there stays, and without a known region none is written.
    let mut desk = in_region(Settings::default());
    add_unplaced(&mut desk, "v2", Placement { region: region.clone(), ..Placement::default() });
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(60));
    assert_eq!(placement(&desk, "v2"), Placement { region, ..labelled() });
    let mut desk = Desk::new();
    add_unplaced(&mut desk, "v2", Placement::default());
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(60));
    assert_eq!(placement(&desk, "v2"), Placement { region: None, ..labelled() });
}

#[test]
fn labels_are_the_work_of_the_role_attacher_and_can_be_switched_off() {
    for settings in [
        Settings { zone_labels: ZoneLabels::LeaveAlone, ..Settings::default() },
        Settings { roles: [Role::AttachDetach].into(), ..Settings::default() },
    ] {
        let mut desk = in_region(settings);
        add_unplaced(&mut desk, "v2", Placement::default());
        desk.add_pod("a", "n1", &["v2"]);
        desk.run(s(60));
        desk.assert_never("place");
    }
}

#[test]
fn a_label_that_was_refused_is_written_later_and_holds_nothing_else_up() {
    let mut desk = in_region(Settings::default());
    for v in ["v2", "v3"] {
        add_unplaced(&mut desk, v, Placement::default());
    }
    desk.answer("place pv-v2", api_says(409, "Conflict", "the object has been modified"));
    desk.add_pod("a", "n1", &["v2", "v3"]);
    desk.run(s(120));
    for v in ["v2", "v3"] {
        assert_eq!(placement(&desk, v), labelled(), "{v}\n{}", desk.story());
        assert!(desk.va(v, "n1").unwrap().status.attached);
    }
    // One whose answer is lost is not written twice.
    let mut desk = in_region(Settings::default());
    add_unplaced(&mut desk, "v2", Placement::default());
    desk.answer("place pv-v2", Reply::LostAnswer);
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(120));
    desk.assert_count("place", 1);
    assert_eq!(placement(&desk, "v2"), labelled());
}

#[test]
fn an_affinity_is_written_only_if_asked_for_and_every_node_carries_the_label() {
    let mut desk = with_affinity();
    add_unplaced(&mut desk, "v2", Placement::default());
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(60));
    desk.assert_count("place pv-v2 region-1,z1 only z1", 1);
    // A node of EBS that shows no label (it is not there yet): labels alone, and the affinity once it is.
    let mut desk = with_affinity();
    desk.csi("n3", "i3");
    add_unplaced(&mut desk, "v2", Placement::default());
    desk.add_pod("a", "n1", &["v2"]);
    desk.run(s(60));
    assert_eq!(placement(&desk, "v2"), labelled(), "{}", desk.story());
    desk.add_node("n3", "i3");
    desk.restart();
    desk.run(s(60));
    assert!(placement(&desk, "v2").has_affinity, "{}", desk.story());
}

#[test]
fn an_affinity_that_disagrees_with_a_node_that_wants_the_volume_is_not_written() {
    let mut desk = with_affinity();
    desk.add_node_in("n4", "i4", Zone::new("z2"));
    add_unplaced(&mut desk, "v2", Placement::default());
    desk.add_pod("a", "n4", &["v2"]);
    desk.run(s(60));
    assert_eq!(placement(&desk, "v2"), labelled(), "{}", desk.story());
}

#[test]
fn a_volume_that_nobody_uses_is_labelled_by_the_sweep() {
    let mut desk = Desk::new();
    add_unplaced(&mut desk, "v2", Placement::default());
    desk.run(s(15 * 60));
    assert_eq!(placement(&desk, "v2").zone.as_deref(), Some("z1"), "{}", desk.story());
}
