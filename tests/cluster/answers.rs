//! What the real API server answers to the calls of the core: the table of conflicts, each line asked of it by the
//! adapter that production uses, with attachd's own rights.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Node as NodeObject;
use k8s_openapi::api::storage::v1::VolumeAttachment as AttachmentObject;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use attachd::controller::command::{
    AttachmentStatusChange, EventNote, KubernetesCall, NewAttachment, Recorded, Regarding,
};
use attachd::kubernetes::{KubernetesClient, connect};
use attachd::model::attachment::{AttachmentError, NewAttachmentSource, VolumeAttachment};
use attachd::model::device::DeviceName;
use attachd::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, BootId, DriverName, InstanceId, NodeName, PersistentVolumeName,
    ResourceVersion, Uid, UniqueVolumeName, VolumeKey,
};
use attachd::model::node::{Node, UnknownMarks};
use attachd::model::outcome::{Answer, CallResult, KubernetesRefusal, Refusal};
use attachd::model::time::{Monotonic, Now, Wall};

use crate::apiserver::{User, shared};

/// attachd's adapter, and the test's own hands.
struct Both {
    attachd: KubernetesClient,
    test: Client,
}

impl Both {
    async fn new() -> Self {
        let server = shared();
        let clients = connect(Some(&server.kubeconfig(User::Attachd))).await.expect("attachd's clients");
        let attachd = KubernetesClient::new(clients.calls, Arc::new(now));
        Self { attachd, test: server.client(User::Test).await }
    }

    async fn done(&self, call: KubernetesCall) -> Answer {
        match self.attachd.call(&call).await {
            CallResult::Done(answer) => answer,
            other => panic!("{call:?}: {other:?}"),
        }
    }

    async fn refused(&self, call: KubernetesCall) -> KubernetesRefusal {
        match self.attachd.call(&call).await {
            CallResult::Refused(Refusal::Kubernetes { meaning, .. }) => meaning,
            other => panic!("{call:?}: {other:?}"),
        }
    }

    async fn create_node(&self, name: &str) -> Node {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
        let api = Api::<NodeObject>::all(self.test.clone());
        api.create(&PostParams::default(), &object).await.expect("create a node");
        self.node(name).await.expect("the node")
    }

    async fn delete_node(&self, name: &str) {
        Api::<NodeObject>::all(self.test.clone()).delete(name, &DeleteParams::default()).await.expect("delete a node");
    }

    async fn node(&self, name: &str) -> Option<Node> {
        match self.done(KubernetesCall::GetNode { name: NodeName::new(name) }).await {
            Answer::Node(node) => node.map(|node| *node),
            other => panic!("{other:?}"),
        }
    }

    /// Creates a VolumeAttachment as the core does.
    async fn create(&self, name: &str) -> VolumeAttachment {
        attachment(self.done(KubernetesCall::CreateAttachment(new_attachment(name))).await).expect("as created")
    }

    async fn delete(&self, object: &VolumeAttachment) -> Option<VolumeAttachment> {
        attachment(self.done(delete(object)).await)
    }
}

fn now() -> Now {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock past 1970");
    let millis = i64::try_from(since_epoch.as_millis()).expect("a clock before the year 292 million");
    Now { monotonic: Monotonic::new(since_epoch), wall: Wall::from_millis(millis) }
}

fn attachment(answer: Answer) -> Option<VolumeAttachment> {
    match answer {
        Answer::Attachment(object) => object.map(|object| *object),
        other => panic!("{other:?}"),
    }
}

/// One volume for each node name, so that tests do not meet.
fn key(name: &str) -> AttachmentKey {
    let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>().chars().take(17).collect();
    let volume = AwsVolumeId::parse(&format!("vol-{digits}")).expect("a volume id");
    AttachmentKey { volume: VolumeKey::ebs(&volume), node: NodeName::new(name) }
}

fn recorded() -> Recorded {
    Recorded {
        instance: InstanceId::parse("i-0aa11").expect("an instance id"),
        node_uid: Uid::new("uid-of-the-node"),
        device: DeviceName::new("/dev/xvdaa"),
    }
}

fn new_attachment(name: &str) -> NewAttachment {
    let source = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new(format!("pv-{name}")));
    NewAttachment { key: key(name), source, recorded: Some(recorded()) }
}

fn delete(object: &VolumeAttachment) -> KubernetesCall {
    KubernetesCall::DeleteAttachment {
        name: object.name.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.clone(),
    }
}

fn finalizers(object: &VolumeAttachment, finalizers: &[&str]) -> KubernetesCall {
    KubernetesCall::SetAttachmentFinalizers {
        name: object.name.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.clone(),
        finalizers: finalizers.iter().map(|text| (*text).into()).collect(),
    }
}

fn patch_status(object: &VolumeAttachment, change: AttachmentStatusChange) -> KubernetesCall {
    KubernetesCall::PatchAttachmentStatus { name: object.name.clone(), uid: object.uid.clone(), change }
}

fn list_volume(node: &Node, volume: &UniqueVolumeName, marks: Option<&[(&UniqueVolumeName, &str)]>) -> KubernetesCall {
    KubernetesCall::PatchNodeStatus {
        name: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        volumes_attached: BTreeMap::from([(volume.clone(), "".into())]),
        touch: None,
        marks: marks.map(|marks| marks.iter().map(|(name, boot)| ((*name).clone(), BootId::new(*boot))).collect()),
    }
}

#[tokio::test]
async fn a_node_patch_writes_list_and_mark_at_once() {
    let both = Both::new().await;
    let node = both.create_node("answers-list").await;
    let volume = key("answers-list").volume.unique_name();

    let written = both.done(list_volume(&node, &volume, Some(&[(&volume, "boot-1")]))).await;
    let Answer::Node(Some(written)) = written else { panic!("{written:?}") };
    assert_eq!(written.volumes_attached.keys().collect::<Vec<_>>(), [&volume]);
    let UnknownMarks::Marks(marks) = &written.in_use_unknown else { panic!("{:?}", written.in_use_unknown) };
    assert_eq!(marks.get(&volume), Some(&BootId::new("boot-1")));
    assert_eq!(both.node("answers-list").await.as_ref(), Some(&*written), "the answer is what is stored");
    both.delete_node("answers-list").await;
}

#[tokio::test]
async fn a_node_patch_with_an_old_version_conflicts() {
    let both = Both::new().await;
    let node = both.create_node("answers-old").await;
    let volume = key("answers-old").volume.unique_name();
    both.done(list_volume(&node, &volume, None)).await;

    assert_eq!(both.refused(list_volume(&node, &volume, None)).await, KubernetesRefusal::Conflict);
    both.delete_node("answers-old").await;
}

#[tokio::test]
async fn a_node_patch_for_an_earlier_node_of_the_name_is_invalid_and_changes_nothing() {
    let both = Both::new().await;
    let earlier = both.create_node("answers-again").await;
    both.delete_node("answers-again").await;
    let later = both.create_node("answers-again").await;
    assert_ne!(earlier.uid, later.uid);

    let volume = key("answers-again").volume.unique_name();
    let mut patch = list_volume(&earlier, &volume, None);
    if let KubernetesCall::PatchNodeStatus { resource_version, .. } = &mut patch {
        *resource_version = later.resource_version.clone();
    }
    assert_eq!(both.refused(patch).await, KubernetesRefusal::Invalid);
    assert_eq!(both.node("answers-again").await, Some(later));
    both.delete_node("answers-again").await;
    assert_eq!(both.node("answers-again").await, None, "a live read of what is gone says so");
}

#[tokio::test]
async fn a_create_keeps_what_is_recorded_and_a_second_one_is_told_why_not() {
    let both = Both::new().await;
    let object = both.create("answers-create").await;
    assert_eq!(object.name, AttachmentName::of(&key("answers-create")));
    assert!(object.has_attacher_finalizer());
    assert_eq!(object.instance(), Some(recorded().instance));
    assert_eq!((object.node_uid.clone(), object.device.clone()), (Some(recorded().node_uid), Some(recorded().device)));

    let again = KubernetesCall::CreateAttachment(new_attachment("answers-create"));
    assert_eq!(both.refused(again.clone()).await, KubernetesRefusal::AlreadyExists);
    let terminating = both.delete(&object).await.expect("its finalizer keeps it");
    assert!(terminating.deleting.is_some());
    assert_eq!(both.refused(again).await, KubernetesRefusal::AlreadyExistsTerminating);
    both.done(finalizers(&terminating, &[])).await;
}

#[tokio::test]
async fn a_delete_of_another_object_or_version_conflicts() {
    let both = Both::new().await;
    let object = both.create("answers-delete").await;
    let other = VolumeAttachment { uid: Uid::new("00000000-0000-0000-0000-000000000000"), ..object.clone() };
    let older = VolumeAttachment { resource_version: ResourceVersion::new("1"), ..object.clone() };
    assert_eq!(both.refused(delete(&other)).await, KubernetesRefusal::Conflict);
    assert_eq!(both.refused(delete(&older)).await, KubernetesRefusal::Conflict);

    let terminating = both.delete(&object).await.expect("its finalizer keeps it");
    both.done(finalizers(&terminating, &[])).await;
    assert_eq!(both.refused(delete(&object)).await, KubernetesRefusal::NotFound);
}

#[tokio::test]
async fn the_last_finalizer_ends_a_terminating_object_and_none_can_be_added() {
    let both = Both::new().await;
    let object = both.create("answers-finalizer").await;
    let terminating = both.delete(&object).await.expect("its finalizer keeps it");
    let own = DriverName::ebs().attacher_finalizer();

    let more = finalizers(&terminating, &[&own, "example.com/another"]);
    assert_eq!(both.refused(more).await, KubernetesRefusal::Invalid);
    assert_eq!(both.refused(finalizers(&object, &[])).await, KubernetesRefusal::Conflict, "an older version");

    both.done(finalizers(&terminating, &[])).await;
    let gone = both.done(KubernetesCall::GetAttachment { name: object.name.clone() }).await;
    assert_eq!(attachment(gone), None);
    let late = patch_status(&object, AttachmentStatusChange::Detached);
    assert_eq!(both.refused(late).await, KubernetesRefusal::NotFound);
}

#[tokio::test]
async fn a_status_patch_for_an_earlier_object_of_the_name_is_refused() {
    let both = Both::new().await;
    let earlier = both.create("answers-status").await;
    let terminating = both.delete(&earlier).await.expect("its finalizer keeps it");
    both.done(finalizers(&terminating, &[])).await;
    let later = both.create("answers-status").await;

    let attached = AttachmentStatusChange::Attached { device_path: recorded().device };
    assert_eq!(both.refused(patch_status(&earlier, attached.clone())).await, KubernetesRefusal::Invalid);
    let written = attachment(both.done(patch_status(&later, attached)).await).expect("as written");
    assert!(written.status.attached);
    assert_eq!(written.status.device_path, Some(recorded().device));
    let terminating = both.delete(&written).await.expect("its finalizer keeps it");
    both.done(finalizers(&terminating, &[])).await;
}

#[tokio::test]
async fn an_attach_error_keeps_its_code() {
    let both = Both::new().await;
    let object = both.create("answers-error").await;
    let error = AttachmentError { message: "no slot is left".into(), code: Some(8), time: Some(now().wall) };
    let change = AttachmentStatusChange::AttachError(error);
    let written = attachment(both.done(patch_status(&object, change)).await).expect("as written");
    assert_eq!(written.status.attach_error.and_then(|error| error.code), Some(8));
    let stored: AttachmentObject =
        Api::all(both.test.clone()).get(&object.name.text()).await.expect("read it with other eyes");
    let error = stored.status.and_then(|status| status.attach_error).expect("an attachError");
    assert_eq!((error.message.as_deref(), error.error_code), (Some("no slot is left"), Some(8)));

    let object = attachment(both.done(KubernetesCall::GetAttachment { name: object.name }).await).expect("still there");
    let terminating = both.delete(&object).await.expect("its finalizer keeps it");
    both.done(finalizers(&terminating, &[])).await;
}

#[tokio::test]
async fn a_live_list_shows_the_pods_of_one_node() {
    let both = Both::new().await;
    let pods = KubernetesCall::ListPods { node: NodeName::new("answers-nowhere") };
    assert_eq!(both.done(pods).await, Answer::Pods(Vec::new()));
}

#[tokio::test]
async fn an_event_is_written() {
    let both = Both::new().await;
    let node = both.create_node("answers-event").await;
    let note = EventNote {
        regarding: Regarding::Node(node.name.clone(), node.uid.clone()),
        warning: true,
        reason: "FailedAttachVolume",
        message: "a test".to_owned(),
    };
    assert_eq!(both.done(KubernetesCall::CreateEvent(note)).await, Answer::EventWritten);
    both.delete_node("answers-event").await;
}
