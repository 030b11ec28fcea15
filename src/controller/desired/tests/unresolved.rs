//! Rule 10 and G9: what cannot be resolved is never taken for "wants nothing".

use super::*;
use crate::controller::desired::{LiveWant, PodProblem, ProblemChange, Unresolved};
use crate::controller::policy::Rule;

fn sabotaged() -> Policy {
    Policy::without([Rule::UnresolvedKeepsWants])
}

/// As [`a_on_n1`], under a policy.
fn a_on_n1_under(policy: Policy) -> DesiredStateOfWorld {
    let mut desired = DesiredStateOfWorld::new(policy);
    desired.volume(&ebs("pv", "c", V1));
    desired.claim(&claim("c", "pv"));
    desired.pod(&pod("a", "n1", [by_claim("c")]));
    desired
}

#[test]
fn g9_what_a_pod_wanted_outlives_claim_and_volume_until_the_pod_is_gone() {
    let mut desired = a_on_n1();
    desired.delete(claim_gone(&claim("c", "pv")));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    desired.delete(volume_gone(&ebs("pv", "c", V1)));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert!(!desired.never_resolved_on(&node("n1")), "it was resolved once");
    desired.delete(pod_gone(&pod("a", "n1", [])));
    assert!(desired.wants(&v1()).is_empty());
    assert_eq!(desired.volumes().count(), 0);
}

#[test]
fn g9_sabotaged_an_unresolved_pod_wants_nothing() {
    let mut desired = a_on_n1_under(sabotaged());
    desired.delete(claim_gone(&claim("c", "pv")));
    assert!(desired.wants(&v1()).is_empty());
    desired.pod(&pod("b", "n1", [by_claim("missing")]));
    assert!(!desired.never_resolved_on(&node("n1")));
    let live = [pod("b", "n1", [by_claim("missing")])];
    assert_eq!(desired.wants_in(&live, &v1()), LiveWant::No);
}

#[test]
fn g9_a_claim_bound_anew_adds_a_want_and_takes_none_away() {
    let mut desired = a_on_n1();
    desired.delete(claim_gone(&claim("c", "pv")));
    let again = Claim { uid: Uid::new("uid-c-again"), ..claim("c", "pv-2") };
    let mut pv2 = ebs("pv-2", "c", "vol-0bb22");
    pv2.claim = Some((claim_key("c"), again.uid.clone()));
    desired.claim(&again);
    desired.volume(&pv2);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert_eq!(desired.wanted(&volume("vol-0bb22")), [on("n1", "a")]);
    assert_eq!(desired.wanted_on(&node("n1")).count(), 2);
    // A pod that is resolved now for the first time wants the new one only.
    desired.pod(&pod("b", "n2", [by_claim("c")]));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert_eq!(desired.wanted(&volume("vol-0bb22")), [on("n1", "a"), on("n2", "b")]);
}

#[test]
fn g9_a_volume_whose_handle_changes_leaves_the_old_one_wanted() {
    let mut desired = a_on_n1();
    desired.volume(&PersistentVolume { uid: Uid::new("uid-pv-again"), ..ebs("pv", "c", "vol-0bb22") });
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert_eq!(desired.wanted(&volume("vol-0bb22")), [on("n1", "a")]);
    assert_eq!(desired.persistent_volumes_of(&v1()).count(), 0);
    desired.volume(&ebs("pv", "c", "not-a-volume"));
    assert_eq!(desired.wanted(&volume("vol-0bb22")), [on("n1", "a")]);
}

#[test]
fn g9_a_pod_never_resolved_counts_on_its_node_until_every_volume_was_resolved() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    desired.volume(&ebs("pv", "c", V1));
    desired.claim(&claim("c", "pv"));
    let a = pod("a", "n1", [by_claim("c"), by_claim("d")]);
    desired.pod(&a);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")], "what is resolved is wanted");
    assert!(desired.never_resolved_on(&node("n1")) && !desired.never_resolved_on(&node("n2")));
    assert_eq!(desired.take_dirty_nodes(), [node("n1")].into());
    desired.volume(&ebs("pv-d", "d", "vol-0dd44"));
    assert!(desired.never_resolved_on(&node("n1")));
    desired.claim(&claim("d", "pv-d"));
    assert!(!desired.never_resolved_on(&node("n1")));
    assert_eq!(desired.take_dirty_nodes(), [node("n1")].into());
    desired.delete(claim_gone(&claim("d", "pv-d")));
    assert!(!desired.never_resolved_on(&node("n1")), "it was resolved since start");
}

#[test]
fn g9_a_pod_never_resolved_counts_no_more_once_it_is_gone() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let (a, b) = (pod("a", "n1", [by_claim("c")]), pod("b", "n1", [by_claim("c")]));
    desired.pod(&a);
    desired.pod(&b);
    desired.pod(&Pod { terminated: true, ..a });
    assert!(desired.never_resolved_on(&node("n1")));
    desired.delete(pod_gone(&b));
    assert!(!desired.never_resolved_on(&node("n1")));
}

#[test]
fn volumes_that_are_never_attached_are_resolved_and_want_nothing() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    desired.volume(&persistent_volume("pv", "c", PersistentVolumeSource::NotAttachable));
    desired.claim(&claim("c", "pv"));
    desired.pod(&pod("a", "n1", [by_claim("c")]));
    assert!(!desired.never_resolved_on(&node("n1")));
    assert_eq!(desired.volumes().count(), 0);
    assert!(desired.take_problems().is_empty());
    assert_eq!(
        desired.volume_of(&persistent_volume("pv", "c", PersistentVolumeSource::NotAttachable)),
        Err(Unresolved::NotAttachable)
    );
}

#[test]
fn what_a_person_must_mend_is_reported_once_and_when_it_clears() {
    let sources = [
        (csi("ebs.csi.aws.com", "vol-XYZ"), "\"vol-XYZ\""),
        (csi("ebs.csi.aws.com", "aws://us-east-9a/vol-0aa11"), "\"aws://us-east-9a/vol-0aa11\""),
        (csi("ebs.csi.aws.com", "local-ebs://sdh"), "\"local-ebs://sdh\""),
        (csi("disk.example.com", "a^b"), "a^b"),
        (csi("disk.example.com", ""), "disk.example.com"),
        (PersistentVolumeSource::Untranslated(SmolStr::new("kubernetes.io/gce-pd")), "kubernetes.io/gce-pd"),
    ];
    for (source, quoted) in sources {
        let mut desired = DesiredStateOfWorld::new(Policy::FULL);
        let bad = persistent_volume("pv", "c", source);
        desired.claim(&claim("c", "pv"));
        desired.pod(&pod("a", "n1", [by_claim("c")]));
        assert!(desired.take_problems().is_empty(), "a volume that is not there yet is no problem");
        desired.volume(&bad);
        let problems = desired.take_problems();
        let [PodProblem { pod: key, node: bound, change: ProblemChange::Appeared(why), .. }] = &problems[..] else {
            panic!("{problems:?}")
        };
        assert_eq!((key.name.as_str(), bound), ("a", &node("n1")));
        assert!(why.to_string().contains(quoted), "{why}");
        assert!(desired.never_resolved_on(&node("n1")));
        desired.volume(&PersistentVolume { deleting: true, ..bad });
        assert!(desired.take_problems().is_empty(), "once per pod and reason");
        desired.volume(&ebs("pv", "c", V1));
        let cleared = desired.take_problems();
        assert!(matches!(&cleared[..], [PodProblem { change: ProblemChange::Cleared(_), .. }]), "{cleared:?}");
        assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    }
}

#[test]
fn a_problem_clears_when_the_pod_goes() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    let a = pod("a", "n1", [PodVolume::Untranslated(SmolStr::new("kubernetes.io/azure-disk"))]);
    desired.pod(&a);
    assert_eq!(desired.take_problems().len(), 1);
    desired.delete(pod_gone(&a));
    assert!(matches!(&desired.take_problems()[..], [PodProblem { change: ProblemChange::Cleared(_), .. }]));
    assert_eq!(desired.standing_problems().count(), 0);
}

#[test]
fn a_live_list_is_judged_by_what_each_uid_wanted() {
    let mut desired = a_on_n1();
    let a = pod("a", "n1", [by_claim("c")]);
    assert_eq!(desired.wants_in(std::slice::from_ref(&a), &v1()), LiveWant::Yes);
    assert_eq!(desired.wants_in(&[], &v1()), LiveWant::No);
    assert_eq!(desired.wants_in(&[Pod { terminated: true, ..a.clone() }], &v1()), LiveWant::No);
    assert_eq!(desired.wants_in(std::slice::from_ref(&a), &volume("vol-0bb22")), LiveWant::No);
    // Its claim is gone: it still wants v1, and is known to want nothing else.
    desired.delete(claim_gone(&claim("c", "pv")));
    assert_eq!(desired.wants_in(std::slice::from_ref(&a), &v1()), LiveWant::Yes);
    assert_eq!(desired.wants_in(std::slice::from_ref(&a), &volume("vol-0bb22")), LiveWant::No);
    // A pod of that name with another UID was never resolved: it may want anything.
    let another = Pod { uid: Uid::new("uid-a-again"), ..a };
    assert_eq!(desired.wants_in(std::slice::from_ref(&another), &v1()), LiveWant::Unresolved);
}

#[test]
fn a_live_list_may_be_newer_than_the_watch() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    desired.volume(&ebs("pv", "c", V1));
    desired.claim(&claim("c", "pv"));
    let new = pod("a", "n1", [by_claim("c")]);
    assert_eq!(desired.wants_in(std::slice::from_ref(&new), &v1()), LiveWant::Yes);
    let unknown = pod("b", "n1", [by_claim("missing")]);
    assert_eq!(desired.wants_in(std::slice::from_ref(&unknown), &v1()), LiveWant::Unresolved);
    assert_eq!(desired.wants_in(&[unknown, new], &v1()), LiveWant::Yes, "a known want wins");
    let plain = pod("d", "n1", []);
    assert_eq!(desired.wants_in(&[plain], &v1()), LiveWant::No);
}

#[test]
fn an_unreadable_pod_keeps_what_it_wanted_or_may_want_anything_anywhere() {
    let mut desired = a_on_n1();
    let unreadable = |name: &str, uid: &str| {
        WatchEvent::Applied(Object::Unreadable(ObjectKey::Pod(PodKey::new("default", name), Uid::new(uid))))
    };
    desired.ingest(&unreadable("a", "uid-a"));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert!(!desired.never_resolved_on(&node("n1")));
    // Another UID: the earlier pod is gone, of the new one nothing is known.
    desired.ingest(&unreadable("a", "uid-a-again"));
    assert!(desired.wants(&v1()).is_empty());
    assert!(desired.never_resolved_on(&node("n1")) && desired.never_resolved_on(&node("n2")));
    desired.pod(&Pod { uid: Uid::new("uid-a-again"), ..pod("a", "n1", [by_claim("c")]) });
    assert!(!desired.never_resolved_on(&node("n1")));
    desired.ingest(&unreadable("b", "uid-b"));
    desired.delete(ObjectKey::Pod(PodKey::new("default", "b"), Uid::new("uid-b")));
    assert!(!desired.never_resolved_on(&node("n1")));
}

#[test]
fn an_unreadable_claim_or_volume_keeps_what_was_known_of_it_but_not_of_an_earlier_one() {
    let mut desired = a_on_n1();
    let unreadable = |key| WatchEvent::Applied(Object::Unreadable(key));
    desired.ingest(&unreadable(claim_gone(&claim("c", "pv"))));
    desired.ingest(&unreadable(volume_gone(&ebs("pv", "c", V1))));
    desired.pod(&pod("b", "n1", [by_claim("c")]));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a"), on("n1", "b")]);
    desired.ingest(&unreadable(ObjectKey::Claim(claim_key("c"), Uid::new("uid-c-again"))));
    desired.pod(&pod("d", "n1", [by_claim("c")]));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a"), on("n1", "b")]);
    assert!(desired.never_resolved_on(&node("n1")));
}
