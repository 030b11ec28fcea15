//! Cases from the field, named by their ids, and what follows from single events.

use super::*;
use crate::controller::desired::{AccessCheck, ProblemChange, Unresolved};
use crate::model::attachment::NewAttachmentSource;
use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};

fn with_modes(name: &str, modes: &[AccessMode], block: bool) -> PersistentVolume {
    PersistentVolume { access_modes: modes.iter().copied().collect(), block, ..ebs(name, name, V1) }
}

fn refusal(desired: &DesiredStateOfWorld) -> String {
    match desired.access(&v1()) {
        AccessCheck::Refused(reason) => reason,
        AccessCheck::Allowed => panic!("allowed"),
    }
}

#[test]
fn i_01_every_spelling_of_an_in_tree_id_is_the_bare_volume_and_the_rest_is_refused_with_the_text() {
    for spelled in [V1, "aws://us-east-9a/vol-0aa11", "aws:///vol-0aa11", "aws://unknown/vol-0aa11"] {
        let mut desired = DesiredStateOfWorld::new(Policy::FULL);
        desired.pod(&pod("a", "n1", [PodVolume::InlineEbs(inline(spelled))]));
        assert_eq!(desired.wanted(&v1()), [on("n1", "a")], "{spelled}");
        assert!(desired.take_problems().is_empty());
    }
    // `aws:/` is what path cleaning leaves: accepted where a path is read back, never in a specification.
    for spelled in ["aws:/vol-0aa11", "", "VOL-0AA11", "vol-xyz", "vol-0aa11 ", "aws://us-east-9a/vol-0aa11/"] {
        let mut desired = DesiredStateOfWorld::new(Policy::FULL);
        desired.pod(&pod("a", "n1", [PodVolume::InlineEbs(inline(spelled))]));
        assert_eq!(desired.volumes().count(), 0, "{spelled}");
        let problems = desired.take_problems();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        let ProblemChange::Appeared(why) = &problem.change else { panic!("{problem:?}") };
        assert!(why.to_string().contains(&format!("{spelled:?}")), "{why}");
        assert!(desired.never_resolved_on(&node("n1")));
    }
}

#[test]
fn i_02_static_csi_volume_without_node_affinity_is_wanted_where_the_pod_is() {
    let desired = a_on_n1();
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert_eq!(desired.wanted_on(&node("n1")).collect::<Vec<_>>(), [&v1()]);
    assert_eq!(desired.wanted_on(&node("n2")).count(), 0);
    let source = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv"));
    assert_eq!(desired.wants(&v1())[0].source, source);
    assert!(!desired.never_resolved_on(&node("n1")));
}

#[test]
fn i_10_inline_volume_keeps_its_specification_untouched() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let specified = inline("aws://us-east-9b/vol-0aa15");
    desired.pod(&pod("a", "n1", [PodVolume::InlineEbs(specified.clone())]));
    let wants = desired.wants(&volume("vol-0aa15"));
    assert_eq!(wants.len(), 1);
    assert_eq!(wants[0].source, NewAttachmentSource::Inline(specified));
    assert_eq!(desired.access(&volume("vol-0aa15")), AccessCheck::Allowed);
    assert!(!desired.shareable(&volume("vol-0aa15")));
}

#[test]
fn i_11_generic_ephemeral_volume_uses_its_own_claim_and_no_foreign_one() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let foreign = claim("a-scratch", "pv");
    desired.claim(&foreign);
    desired.volume(&ebs("pv", "a-scratch", V1));
    desired.pod(&pod("a", "n1", [PodVolume::Ephemeral(SmolStr::new("scratch"))]));
    assert!(desired.wants(&v1()).is_empty());
    let foreign_claim = Unresolved::ForeignClaim(claim_key("a-scratch"));
    let changes = |problems: Vec<crate::controller::desired::PodProblem>| {
        problems.into_iter().map(|problem| problem.change).collect::<Vec<_>>()
    };
    assert_eq!(changes(desired.take_problems()), [ProblemChange::Appeared(foreign_claim.clone())]);
    assert_eq!(desired.standing_problems().map(|(_, why)| why).collect::<Vec<_>>(), [&foreign_claim]);

    let of_another_pod = Claim { owner_pod: Some(Uid::new("uid-b")), ..foreign.clone() };
    desired.claim(&of_another_pod);
    assert!(desired.wants(&v1()).is_empty());
    assert!(desired.take_problems().is_empty(), "the same problem is reported once");

    desired.claim(&Claim { owner_pod: Some(Uid::new("uid-a")), ..foreign });
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert_eq!(changes(desired.take_problems()), [ProblemChange::Cleared(foreign_claim)]);
    assert_eq!(desired.standing_problems().count(), 0);
}

#[test]
fn name_01_volumes_in_every_spelling_are_one_volume() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    for (number, spelled) in [V1, "aws://us-east-9a/vol-0aa11", "aws://wrong-zone/vol-0aa11"].into_iter().enumerate() {
        let (pv, c) = (format!("pv-{number}"), format!("c-{number}"));
        desired.volume(&persistent_volume(&pv, &c, PersistentVolumeSource::InTreeEbs(SmolStr::new(spelled))));
        desired.claim(&claim(&c, &pv));
        desired.pod(&pod(&format!("p-{number}"), "n1", [by_claim(&c)]));
    }
    assert_eq!(desired.volumes().collect::<Vec<_>>(), [&v1()]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "p-0"), on("n1", "p-1"), on("n1", "p-2")]);
    assert_eq!(desired.wanted_on(&node("n1")).count(), 1);
    assert_eq!(desired.persistent_volumes_of(&v1()).count(), 3);
}

#[test]
fn name_03_migrated_and_csi_volumes_have_one_unique_name() {
    let desired = DesiredStateOfWorld::new(Policy::FULL);
    let csi_volume = desired.volume_of(&ebs("pv", "c", V1)).unwrap();
    for spelled in [V1, "aws://us-east-9a/vol-0aa11"] {
        let source = PersistentVolumeSource::InTreeEbs(SmolStr::new(spelled));
        let migrated = desired.volume_of(&persistent_volume("pv", "c", source)).unwrap();
        assert_eq!(migrated, csi_volume);
        assert_eq!(migrated.unique_name().to_string(), "kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11");
    }
}

#[test]
fn input_02_only_a_raw_device_is_shared_and_only_writers_on_one_node_attach_otherwise() {
    let matrix: [(&[AccessMode], bool, bool, bool); 12] = [
        // modes, Block, may be attached, may be shared
        (&[ReadWriteMany], true, true, true),
        (&[ReadWriteMany], false, false, false),
        (&[ReadWriteMany, ReadWriteOnce], true, true, true),
        (&[ReadOnlyMany], true, false, false),
        (&[ReadOnlyMany], false, false, false),
        (&[ReadOnlyMany, ReadWriteOnce], false, false, false),
        (&[ReadWriteOnce], true, true, false),
        (&[ReadWriteOnce], false, true, false),
        (&[ReadWriteOncePod], true, true, false),
        (&[ReadWriteOncePod], false, true, false),
        (&[ReadWriteOncePod, ReadWriteMany], true, false, true),
        (&[], true, false, false),
    ];
    for (modes, block, attachable, shareable) in matrix {
        let mut desired = DesiredStateOfWorld::new(Policy::FULL);
        desired.volume(&with_modes("pv", modes, block));
        assert_eq!(desired.access(&v1()) == AccessCheck::Allowed, attachable, "{modes:?} Block={block}");
        assert_eq!(desired.shareable(&v1()), shareable, "{modes:?} Block={block}");
    }
}

#[test]
fn input_02_every_source_must_allow_sharing() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    assert!(!desired.shareable(&v1()), "without a source nothing is known");
    desired.volume(&with_modes("pv-1", &[ReadWriteMany], true));
    assert!(desired.shareable(&v1()));
    desired.volume(&with_modes("pv-2", &[ReadWriteOnce], false));
    assert!(!desired.shareable(&v1()));
    desired.delete(volume_gone(&with_modes("pv-2", &[], false)));
    assert!(desired.shareable(&v1()));
    desired.pod(&pod("a", "n1", [PodVolume::InlineEbs(inline(V1))]));
    assert!(!desired.shareable(&v1()), "an inline source is ReadWriteOnce");
}

#[test]
fn input_02_a_source_that_is_gone_while_used_allows_no_sharing() {
    let mut desired = a_on_n1();
    desired.volume(&with_modes("pv-2", &[ReadWriteMany], true));
    desired.delete(volume_gone(&ebs("pv", "c", V1)));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert!(!desired.shareable(&v1()));
}

#[test]
fn input_03_read_only_many_is_refused_with_the_reason() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    desired.volume(&with_modes("pv", &[ReadOnlyMany], false));
    assert_eq!(
        refusal(&desired),
        "access modes [ReadOnlyMany] of PersistentVolume pv: EBS does not support ReadOnlyMany"
    );
}

#[test]
fn input_04_a_shared_file_system_is_refused_and_never_shared() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    desired.volume(&with_modes("pv", &[ReadWriteMany], false));
    assert!(refusal(&desired).contains("volumeMode must be Block"), "{}", refusal(&desired));
    assert!(!desired.shareable(&v1()));
}

#[test]
fn a_refused_source_stops_its_own_pods_only() {
    let mut desired = a_on_n1();
    desired.volume(&with_modes("rox", &[ReadOnlyMany], false));
    desired.claim(&claim("rox", "rox"));
    desired.pod(&pod("b", "n2", [by_claim("rox")]));
    assert_eq!(desired.access(&v1()), AccessCheck::Allowed);
    let allowed = |pod: &str| {
        let want = desired.wants(&v1()).iter().find(|want| want.pod.name == pod).unwrap();
        desired.access_of(&want.source) == AccessCheck::Allowed
    };
    assert!(allowed("a") && !allowed("b"));
}

#[test]
fn zone_03_nothing_is_wanted_but_what_the_bound_volume_says() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    // A static PersistentVolume meant for the claim, which was left without volumeName and is bound to another.
    desired.volume(&ebs("static", "c", V1));
    desired.claim(&Claim { bound_to: None, ..claim("c", "") });
    desired.pod(&pod("a", "n1", [by_claim("c")]));
    assert!(desired.wants(&v1()).is_empty());
    desired.volume(&ebs("dynamic", "c", "vol-0bb22"));
    desired.claim(&claim("c", "dynamic"));
    assert!(desired.wants(&v1()).is_empty());
    assert_eq!(desired.wanted(&volume("vol-0bb22")), [on("n1", "a")]);
}

#[test]
fn a_claim_and_its_volume_must_name_each_other_by_uid() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let mut of_an_earlier_claim = ebs("pv", "c", V1);
    of_an_earlier_claim.claim = Some((claim_key("c"), Uid::new("uid-earlier")));
    desired.volume(&of_an_earlier_claim);
    desired.claim(&claim("c", "pv"));
    desired.pod(&pod("a", "n1", [by_claim("c")]));
    assert!(desired.wants(&v1()).is_empty());
    desired.volume(&ebs("pv", "other", V1));
    assert!(desired.wants(&v1()).is_empty());
    desired.volume(&ebs("pv", "c", V1));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
}

#[test]
fn leak_12_two_volumes_with_one_handle_are_one_until_the_last_pod_goes() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let (pv1, pv2) = (ebs("pv-1", "c-1", V1), ebs("pv-2", "c-2", V1));
    let (a, c) = (pod("a", "n1", [by_claim("c-1")]), pod("c", "n1", [by_claim("c-2")]));
    for (pv, claim_name, pod) in [(&pv1, "c-1", &a), (&pv2, "c-2", &c)] {
        desired.volume(pv);
        desired.claim(&claim(claim_name, pv.name.as_str()));
        desired.pod(pod);
    }
    assert_eq!(desired.wanted(&v1()), [on("n1", "a"), on("n1", "c")]);
    assert_eq!(desired.wanted_on(&node("n1")).count(), 1);
    desired.delete(pod_gone(&c));
    desired.delete(volume_gone(&pv2));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert_eq!(desired.wanted_on(&node("n1")).count(), 1);
    desired.delete(pod_gone(&a));
    assert!(desired.wants(&v1()).is_empty());
    assert_eq!(desired.wanted_on(&node("n1")).count(), 0);
    desired.delete(volume_gone(&pv1));
    assert_eq!(desired.volumes().count(), 0);
}

#[test]
fn unsafe_15_a_terminated_pod_wants_nothing() {
    let mut desired = a_on_n1();
    desired.take_dirty();
    let deleting = Pod { deleting: true, ..pod("a", "n1", [by_claim("c")]) };
    desired.pod(&deleting);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")], "deleting with a container running still wants");
    desired.pod(&Pod { terminated: true, ..deleting });
    assert!(desired.wants(&v1()).is_empty());
    assert_eq!(desired.take_dirty(), [v1()].into());
}

#[test]
fn wants_are_sorted_by_node_then_bound_time_then_pod() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    desired.volume(&ebs("pv", "c", V1));
    desired.claim(&claim("c", "pv"));
    let bound = |name: &str, on: &str, seconds: i64| Pod {
        scheduled: Some(Wall::from_millis(seconds * 1_000)),
        ..pod(name, on, [by_claim("c")])
    };
    for pod in [bound("d", "n2", 5), bound("b", "n1", 9), bound("c", "n1", 3), bound("a", "n1", 9)] {
        desired.pod(&pod);
    }
    let sorted = [on("n1", "c"), on("n1", "a"), on("n1", "b"), on("n2", "d")];
    assert_eq!(desired.wanted(&v1()), sorted);
    // The condition comes after the binding: creation stands in for it, then it is sorted anew.
    desired.pod(&pod("e", "n1", [by_claim("c")]));
    assert_eq!(desired.wanted(&v1())[0], on("n1", "e"));
    desired.pod(&bound("e", "n1", 20));
    assert_eq!(desired.wanted(&v1())[3], on("n1", "e"));
    assert_eq!(desired.wants(&v1()).len(), 5);
}

#[test]
fn a_pod_of_the_same_name_is_another_want_and_an_old_deletion_does_not_touch_it() {
    let mut desired = a_on_n1();
    let old = pod("a", "n1", [by_claim("c")]);
    let new = Pod { uid: Uid::new("uid-a-again"), ..pod("a", "n2", [by_claim("c")]) };
    desired.pod(&new);
    assert_eq!(desired.wanted(&v1()), [on("n2", "a")]);
    desired.delete(pod_gone(&old));
    assert_eq!(desired.wanted(&v1()), [on("n2", "a")]);
    let third = Pod { uid: Uid::new("uid-a-third"), ..new.clone() };
    desired.pod(&third);
    assert_eq!(desired.wants(&v1())[0].uid, third.uid, "also on the same node");
    desired.delete(pod_gone(&new));
    assert_eq!(desired.wants(&v1()).len(), 1);
    desired.delete(pod_gone(&third));
    assert!(desired.wants(&v1()).is_empty());
}

#[test]
fn a_deletion_of_an_earlier_claim_or_volume_is_ignored() {
    let mut desired = a_on_n1();
    desired.delete(ObjectKey::Claim(claim_key("c"), Uid::new("uid-earlier")));
    desired.delete(ObjectKey::PersistentVolume(PersistentVolumeName::new("pv"), Uid::new("uid-earlier")));
    assert!(desired.persistent_volume(&PersistentVolumeName::new("pv")).is_some());
    desired.pod(&pod("b", "n1", [by_claim("c")]));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a"), on("n1", "b")]);
}

#[test]
fn an_unbound_pod_wants_nothing_and_a_bound_one_never_gets_unbound() {
    let mut desired = a_on_n1();
    let pending = Pod { node: None, ..pod("b", "n1", [by_claim("c")]) };
    desired.pod(&pending);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    // An older state from a list.
    desired.pod(&Pod { node: None, ..pod("a", "n1", [by_claim("c")]) });
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
}

#[test]
fn a_pod_may_come_before_its_claim_and_the_claim_before_its_volume() {
    let (a, c, pv) = (pod("a", "n1", [by_claim("c")]), claim("c", "pv"), ebs("pv", "c", V1));
    for order in ["pcv", "pvc", "cpv", "cvp", "vpc", "vcp"] {
        let mut desired = DesiredStateOfWorld::new(Policy::FULL);
        for step in order.chars() {
            match step {
                'p' => desired.pod(&a),
                'c' => desired.claim(&c),
                _ => desired.volume(&pv),
            }
        }
        assert_eq!(desired.wanted(&v1()), [on("n1", "a")], "{order}");
        assert!(desired.take_dirty().contains(&v1()));
        assert!(!desired.never_resolved_on(&node("n1")));
    }
}

#[test]
fn only_what_changed_is_dirty() {
    let mut desired = a_on_n1();
    desired.volume(&ebs("pv-2", "c-2", "vol-0bb22"));
    desired.claim(&claim("c-2", "pv-2"));
    assert_eq!(desired.take_dirty(), [v1(), volume("vol-0bb22")].into());
    desired.pod(&pod("a", "n1", [by_claim("c")]));
    desired.claim(&claim("c", "pv"));
    desired.volume(&ebs("pv", "c", V1));
    assert!(desired.take_dirty().is_empty(), "nothing changed");
    desired.pod(&pod("b", "n2", [by_claim("c-2")]));
    assert_eq!(desired.take_dirty(), [volume("vol-0bb22")].into());
    desired.volume(&PersistentVolume { deleting: true, ..ebs("pv", "c", V1) });
    assert_eq!(desired.take_dirty(), [v1()].into());
    desired.volume(&PersistentVolume { deleting: true, ..ebs("pv", "c", "vol-0bb22") });
    assert_eq!(desired.take_dirty(), [v1(), volume("vol-0bb22")].into());
}

#[test]
fn other_drivers_are_keyed_by_driver_and_handle_and_shared_by_upstreams_test() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let other = PersistentVolume {
        access_modes: BTreeSet::from([ReadWriteOnce]),
        ..persistent_volume("pv", "c", csi("disk.example.com", V1))
    };
    let key = desired.volume_of(&other).unwrap();
    assert_ne!(key, v1());
    let with = |modes: &[AccessMode]| {
        let mut desired = DesiredStateOfWorld::new(Policy::FULL);
        desired.volume(&PersistentVolume { access_modes: modes.iter().copied().collect(), ..other.clone() });
        desired.multi_attach_allowed(&key)
    };
    assert!(!with(&[ReadWriteOnce]) && !with(&[ReadWriteOncePod]));
    assert!(with(&[ReadWriteMany]) && with(&[ReadOnlyMany]) && with(&[ReadWriteOnce, ReadOnlyMany]) && with(&[]));
    desired.volume(&other);
    desired.volume(&PersistentVolume {
        access_modes: BTreeSet::from([ReadWriteMany]),
        ..persistent_volume("pv-2", "c-2", csi("disk.example.com", V1))
    });
    assert!(!desired.multi_attach_allowed(&key), "each PersistentVolume must allow it");
}

#[test]
fn a_missing_csi_driver_means_that_attaching_is_required() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let key = VolumeKey { handle: VolumeHandle::new("h"), driver: DriverName::new("nfs.example.com") };
    let a = pod("a", "n1", [by_claim("c")]);
    desired.volume(&persistent_volume("pv", "c", csi("nfs.example.com", "h")));
    desired.claim(&claim("c", "pv"));
    desired.pod(&a);
    assert!(desired.attach_required(&key.driver));
    assert_eq!(desired.wanted(&key), [on("n1", "a")]);
    desired.take_dirty();
    desired.driver("nfs.example.com", false);
    assert!(desired.wanted(&key).is_empty() && desired.wanted_on(&node("n1")).count() == 0);
    assert_eq!(desired.take_dirty(), [key.clone()].into());
    desired.driver("nfs.example.com", false);
    desired.driver("disk.example.com", false);
    assert!(desired.take_dirty().is_empty());
    desired.delete(ObjectKey::CsiDriver(DriverName::new("nfs.example.com")));
    assert_eq!(desired.wanted(&key), [on("n1", "a")]);
    assert_eq!(desired.take_dirty(), [key].into());
}
