//! The model alone: what a real kube-apiserver answered in the same place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smol_str::SmolStr;

use super::*;
use crate::controller::command::{AttachmentStatusChange, KubernetesCall, NewAttachment, Recorded};
use crate::controller::event::{Term, WatchEvent};
use crate::model::attachment::NewAttachmentSource;
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentKey, AwsVolumeId, BootId, InstanceId, ProviderId, UniqueVolumeName, VolumeKey, Zone,
};
use crate::model::node::UnknownMarks;
use crate::model::outcome::{Answer, CallResult, KubernetesRefusal, Refusal};
use crate::model::time::{Monotonic, Now, Wall};

const US: Actor = Actor::Attachd(Term(1));

fn now() -> Now {
    Now { monotonic: Monotonic::new(Duration::from_secs(1)), wall: Wall::from_millis(1_000_000) }
}

fn new_node(instance: &str) -> NewNode {
    NewNode {
        name: NodeName::new("n1"),
        provider_id: ProviderId::parse(instance).expect("an instance"),
        zone: Zone::new("z"),
        boot_id: BootId::new("boot-1"),
    }
}

fn key() -> AttachmentKey {
    let volume = VolumeKey::ebs(&AwsVolumeId::parse("vol-0a").expect("a volume id"));
    AttachmentKey { volume, node: NodeName::new("n1") }
}

fn create() -> KubernetesCall {
    KubernetesCall::CreateAttachment(NewAttachment {
        key: key(),
        source: NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv")),
        recorded: Some(Recorded {
            instance: InstanceId::parse("i-0a").expect("an instance id"),
            node_uid: Uid::new("u"),
            device: DeviceName::new("/dev/xvdaa"),
        }),
    })
}

fn meaning(result: CallResult) -> KubernetesRefusal {
    match result {
        CallResult::Refused(Refusal::Kubernetes { meaning, .. }) => meaning,
        other => panic!("not refused: {other:?}"),
    }
}

fn attachment(result: CallResult) -> Option<VolumeAttachment> {
    match result {
        CallResult::Done(Answer::Attachment(object)) => object.map(|boxed| *boxed),
        other => panic!("no attachment: {other:?}"),
    }
}

fn node(result: CallResult) -> Node {
    match result {
        CallResult::Done(Answer::Node(Some(node))) => *node,
        other => panic!("no node: {other:?}"),
    }
}

fn patch_node(of: &Node, list: &[&str], touch: Option<&str>) -> KubernetesCall {
    KubernetesCall::PatchNodeStatus {
        name: of.name.clone(),
        uid: of.uid.clone(),
        resource_version: of.resource_version.clone(),
        volumes_attached: list.iter().map(|name| (UniqueVolumeName::new(*name), SmolStr::default())).collect(),
        marks: None,
        touch: touch.map(SmolStr::new),
    }
}

#[test]
fn a_create_keeps_what_is_recorded_and_meets_its_twin() {
    let mut api = Api::new();
    let made = attachment(api.call(now(), US, &create())).expect("made");
    assert!(made.has_attacher_finalizer() && made.instance().is_some() && !made.status.attached);
    assert_eq!(meaning(api.call(now(), US, &create())), KubernetesRefusal::AlreadyExists);
    assert!(api.delete_attachment_by_hand(now(), &made.name));
    assert_eq!(meaning(api.call(now(), US, &create())), KubernetesRefusal::AlreadyExistsTerminating);
}

#[test]
fn a_status_patch_reaches_a_terminating_object_but_never_another_or_none() {
    let mut api = Api::new();
    let made = attachment(api.call(now(), US, &create())).expect("made");
    let attached = |uid: &Uid| KubernetesCall::PatchAttachmentStatus {
        name: made.name.clone(),
        uid: uid.clone(),
        change: AttachmentStatusChange::Attached { device_path: DeviceName::new("/dev/xvdaa") },
    };
    api.delete_attachment_by_hand(now(), &made.name);
    assert!(attachment(api.call(now(), US, &attached(&made.uid))).expect("there").status.attached);
    assert_eq!(meaning(api.call(now(), US, &attached(&Uid::new("other")))), KubernetesRefusal::Invalid);
    api.strip_finalizers_by_hand(&made.name);
    assert_eq!(meaning(api.call(now(), US, &attached(&made.uid))), KubernetesRefusal::NotFound);
}

#[test]
fn a_delete_holds_to_its_preconditions_and_waits_for_finalizers() {
    let mut api = Api::new();
    let made = attachment(api.call(now(), US, &create())).expect("made");
    let delete = |uid: &str, version: &str| KubernetesCall::DeleteAttachment {
        name: made.name.clone(),
        uid: Uid::new(uid),
        resource_version: ResourceVersion::new(version),
    };
    let (uid, version) = (made.uid.as_str(), made.resource_version.as_str());
    assert_eq!(meaning(api.call(now(), US, &delete("other", version))), KubernetesRefusal::Conflict);
    assert_eq!(meaning(api.call(now(), US, &delete(uid, "0"))), KubernetesRefusal::Conflict);
    let terminating = attachment(api.call(now(), US, &delete(uid, version))).expect("still there");
    assert!(terminating.deleting.is_some());

    let set = |finalizers: Vec<SmolStr>, version: &ResourceVersion| KubernetesCall::SetAttachmentFinalizers {
        name: made.name.clone(),
        uid: made.uid.clone(),
        resource_version: version.clone(),
        finalizers,
    };
    let more = vec![terminating.finalizers[0].clone(), SmolStr::new("another/one")];
    let refused = api.call(now(), US, &set(more, &terminating.resource_version));
    assert_eq!(meaning(refused), KubernetesRefusal::Invalid, "nothing is added to a Terminating object");
    assert_eq!(meaning(api.call(now(), US, &set(vec![], &made.resource_version))), KubernetesRefusal::Conflict);
    assert_eq!(attachment(api.call(now(), US, &set(vec![], &terminating.resource_version))), None);
    assert!(api.attachment(&made.name).is_none());
}

#[test]
fn a_node_patch_of_an_earlier_object_never_lands() {
    let mut api = Api::new();
    let first = api.register_node(now(), &new_node("i-0a"));
    api.delete_node(Actor::Person, &first.name);
    let second = api.register_node(now(), &new_node("i-0a"));
    assert_eq!(meaning(api.call(now(), US, &patch_node(&first, &["v"], None))), KubernetesRefusal::Conflict);
    let mixed = Node { uid: first.uid.clone(), ..second.clone() };
    assert_eq!(meaning(api.call(now(), US, &patch_node(&mixed, &["v"], None))), KubernetesRefusal::Invalid);
    assert!(api.node(&second.name).expect("there").volumes_attached.is_empty());
    api.delete_node(Actor::Person, &first.name);
    assert_eq!(meaning(api.call(now(), US, &patch_node(&second, &["v"], None))), KubernetesRefusal::NotFound);
}

#[test]
fn a_patch_that_changes_nothing_voids_no_other_but_a_touch_does() {
    let mut api = Api::new();
    let before = api.register_node(now(), &new_node("i-0a"));
    let same = node(api.call(now(), US, &patch_node(&before, &[], None)));
    assert_eq!(same.resource_version, before.resource_version, "no write, no new version");
    let touched = node(api.call(now(), US, &patch_node(&before, &[], Some("1"))));
    assert_ne!(touched.resource_version, before.resource_version);
    assert_eq!(meaning(api.call(now(), US, &patch_node(&before, &["late"], None))), KubernetesRefusal::Conflict);
    let again = node(api.call(now(), US, &patch_node(&touched, &[], Some("1"))));
    assert_eq!(again.resource_version, touched.resource_version, "the same touch is no change");
}

#[test]
fn marks_go_with_the_list_and_die_with_the_node() {
    let mut api = Api::new();
    let first = api.register_node(now(), &new_node("i-0a"));
    let mut call = patch_node(&first, &["v"], None);
    if let KubernetesCall::PatchNodeStatus { marks, .. } = &mut call {
        *marks = Some(BTreeMap::from([(UniqueVolumeName::new("v"), BootId::new("boot-1"))]));
    }
    let marked = node(api.call(now(), US, &call));
    assert!(matches!(&marked.in_use_unknown, UnknownMarks::Marks(marks) if marks.len() == 1));
    api.delete_node(Actor::Person, &first.name);
    let second = api.register_node(now(), &new_node("i-0a"));
    assert_eq!(second.in_use_unknown, UnknownMarks::default());
    assert!(second.volumes_attached.is_empty() && second.volumes_in_use.is_empty());
}

#[test]
fn a_kubelets_patch_lands_on_whatever_node_has_the_name() {
    let mut api = Api::new();
    let first = api.register_node(now(), &new_node("i-0a"));
    api.delete_node(Actor::Person, &first.name);
    let status =
        KubeletStatus { volumes_in_use: Some(BTreeSet::from([UniqueVolumeName::new("v")])), ..Default::default() };
    assert_eq!(api.patch_by_kubelet(now(), &first.name, &status), Err(NodeGone));
    let second = api.register_node(now(), &new_node("i-0b"));
    let patched = api.patch_by_kubelet(now(), &second.name, &status).expect("there");
    assert_eq!((patched.uid, patched.volumes_in_use.len()), (second.uid, 1));
}

#[test]
fn a_watch_keeps_order_stands_still_and_hides_deletions_behind_a_list() {
    let at = |seconds| Monotonic::new(Duration::from_secs(seconds));
    let mut api = Api::new();
    let mut watch = Watch::new(Kind::Node);
    watch.relist(at(1), &api);
    assert_eq!(watch.pop_due(at(0)), None);
    assert_eq!(watch.pop_due(at(1)), Some(WatchEvent::Begin { kind: Kind::Node, generation: 1 }));
    assert_eq!(watch.pop_due(at(1)), Some(WatchEvent::End { kind: Kind::Node, generation: 1 }));

    let made = api.register_node(now(), &new_node("i-0a"));
    api.delete_node(Actor::Person, &made.name);
    let changes = api.take_changes();
    watch.push(at(9), &changes[0]);
    watch.push(at(3), &changes[1]);
    assert_eq!(watch.next_due(), Some(at(9)), "the second is never before the first");
    watch.stall(at(5), Duration::from_secs(15));
    assert_eq!(watch.pop_due(at(19)), None);
    assert!(matches!(watch.pop_due(at(20)), Some(WatchEvent::Applied(_))));

    watch.relist(at(21), &api);
    let rest: Vec<_> = std::iter::from_fn(|| watch.pop_due(at(30))).collect();
    assert!(matches!(rest.as_slice(), [WatchEvent::Begin { generation: 2, .. }, WatchEvent::End { .. }]), "{rest:?}");
}

#[test]
fn a_protected_volume_outlives_its_deletion_until_its_claim_goes() {
    let mut api = Api::new();
    let volume = ebs_volume("pv", &AwsVolumeId::parse("vol-0a").expect("an id"));
    let claim = ClaimKey::new("default", "data");
    api.create_bound_claim(&claim, volume);
    assert!(api.delete_persistent_volume(Actor::Person, &PersistentVolumeName::new("pv")));
    assert!(api.persistent_volume(&PersistentVolumeName::new("pv")).expect("held").deleting);
    api.delete_claim(Actor::Person, &claim);
    assert!(api.persistent_volume(&PersistentVolumeName::new("pv")).is_none());
}

#[test]
fn a_claim_that_people_make_again_is_bound_to_its_volume_under_another_uid() {
    let mut api = Api::new();
    let (claim, pv) = (ClaimKey::new("ns", "data"), PersistentVolumeName::new("pv"));
    api.create_bound_claim(&claim, ebs_volume("pv", &AwsVolumeId::parse("vol-0a").expect("a volume id")));
    let first = api.claim(&claim).expect("there").uid.clone();
    assert!(!api.restore_claim(Actor::Person, &pv), "it is there");
    assert!(api.delete_claim(Actor::Person, &claim));
    let named = api.persistent_volume(&pv).and_then(|pv| pv.claim.clone());
    assert_eq!(named, Some((claim.clone(), first.clone())), "Released, it still names who had it");
    api.take_changes();
    assert!(api.restore_claim(Actor::Person, &pv));
    let second = api.claim(&claim).expect("there").uid.clone();
    assert_ne!(first, second);
    assert_eq!(api.persistent_volume(&pv).and_then(|pv| pv.claim.clone()), Some((claim, second)));
    assert_eq!(api.take_changes().len(), 2, "watches see both");
}
