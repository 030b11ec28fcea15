//! That the real API server takes every body the adapter writes, and stores what was meant.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

use attachd::controller::command::{
    AttachmentStatusChange, EventNote, KubernetesCall, NewAttachment, Recorded, Regarding,
};
use attachd::kubernetes::{Clock, KubernetesClient, connect};
use attachd::model::attachment::{AttachmentError, NewAttachmentSource, VolumeAttachment as Stored};
use attachd::model::device::DeviceName;
use attachd::model::ids::{
    AttachmentKey, AttachmentName, AwsVolumeId, BootId, InstanceId, NodeName, PersistentVolumeName, PodKey,
    ResourceVersion, Uid, UniqueVolumeName, VolumeKey,
};
use attachd::model::node::UnknownMarks;
use attachd::model::outcome::{Answer, CallResult};
use attachd::model::pod::InlineEbs;
use attachd::model::time::{Now, Wall};

use crate::apiserver::{User, shared};

async fn clients() -> (KubernetesClient, Client) {
    let clients = connect(Some(&shared().kubeconfig(User::Attachd))).await.expect("attachd's clients");
    let clock: Clock = Arc::new(|| Now { wall: Wall::from_millis(1_893_456_000_000), ..Now::default() });
    (KubernetesClient::new(clients.calls, clock), shared().client(User::Test).await)
}

async fn done(client: &KubernetesClient, call: KubernetesCall) -> Answer {
    match client.call(&call).await {
        CallResult::Done(answer) => answer,
        other => panic!("{call:?}: {other:?}"),
    }
}

fn attachment(answer: Answer) -> Stored {
    let Answer::Attachment(Some(attachment)) = answer else { panic!("{answer:?}") };
    *attachment
}

fn new_inline(node: &str) -> NewAttachment {
    let volume = AwsVolumeId::parse("vol-0aa15").expect("an id");
    let inline = InlineEbs {
        volume_id: "aws://us-east-9b/vol-0aa15".into(),
        fs_type: Some("ext4".into()),
        partition: 1,
        read_only: true,
    };
    let recorded = Recorded {
        instance: InstanceId::parse("i-0bb21").expect("an id"),
        node_uid: Uid::new("n-1"),
        device: DeviceName::new("/dev/xvdaa"),
    };
    NewAttachment {
        key: AttachmentKey { volume: VolumeKey::ebs(&volume), node: NodeName::new(node) },
        source: NewAttachmentSource::Inline(inline),
        recorded: Some(recorded),
    }
}

#[tokio::test]
async fn name_04_an_inline_volume_is_stored_as_upstream_translates_it() {
    let (attachd, test) = clients().await;
    let created = attachment(done(&attachd, KubernetesCall::CreateAttachment(new_inline("calls-inline"))).await);
    let stored = Api::<VolumeAttachment>::all(test).get(&created.name.text()).await.expect("the attachment");
    let stored = serde_json::to_value(stored.spec.source).expect("JSON");
    let csi = json!({
        "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0aa15", "fsType": "ext4", "readOnly": true,
        "volumeAttributes": { "partition": "1" }
    });
    assert_eq!(stored["inlineVolumeSpec"]["csi"], csi);
    assert_eq!(stored["inlineVolumeSpec"]["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(stored["persistentVolumeName"], Value::Null);
}

#[tokio::test]
async fn a_status_goes_from_error_to_attached_to_detached() {
    let (attachd, _) = clients().await;
    let created = attachment(done(&attachd, KubernetesCall::CreateAttachment(new_inline("calls-status"))).await);
    let patch = |change| {
        let (name, uid) = (created.name.clone(), created.uid.clone());
        done(&attachd, KubernetesCall::PatchAttachmentStatus { name, uid, change })
    };
    let error = |code| AttachmentError { message: "no".into(), code, time: None };

    let status = attachment(patch(AttachmentStatusChange::AttachError(error(Some(8)))).await).status;
    let time = Some(Wall::from_millis(1_893_456_000_000));
    assert_eq!((status.attached, status.attach_error), (false, Some(AttachmentError { time, ..error(Some(8)) })));
    // The code of the earlier error is gone with it.
    let status = attachment(patch(AttachmentStatusChange::AttachError(error(None))).await).status;
    assert_eq!(status.attach_error, Some(AttachmentError { time, ..error(None) }));

    let device_path = DeviceName::new("/dev/xvdaa");
    let attached = AttachmentStatusChange::Attached { device_path: device_path.clone() };
    let status = attachment(patch(attached).await).status;
    assert_eq!((status.attached, status.device_path, status.attach_error), (true, Some(device_path), None));

    let status = attachment(patch(AttachmentStatusChange::DetachError(error(None))).await).status;
    assert!(status.attached && status.detach_error.is_some(), "{status:?}");
    let status = attachment(patch(AttachmentStatusChange::Detached).await).status;
    assert_eq!(status, Default::default());
}

#[tokio::test]
async fn finalizers_are_replaced_whole_and_the_recorded_ones_change() {
    let (attachd, test) = clients().await;
    let created = attachment(done(&attachd, KubernetesCall::CreateAttachment(new_inline("calls-record"))).await);
    let mut recorded = new_inline("calls-record").recorded.expect("recorded");
    recorded.device = DeviceName::new("/dev/xvdab");
    let record = KubernetesCall::RecordAttachment {
        name: created.name.clone(),
        uid: created.uid.clone(),
        resource_version: created.resource_version.clone(),
        finalizers: vec!["example.org/keep".into()],
        recorded,
    };
    let changed = attachment(done(&attachd, record).await);
    assert_eq!(
        (changed.device, changed.finalizers),
        (Some(DeviceName::new("/dev/xvdab")), vec!["example.org/keep".into()])
    );
    let release = KubernetesCall::SetAttachmentFinalizers {
        name: created.name.clone(),
        uid: created.uid.clone(),
        resource_version: changed.resource_version,
        finalizers: vec![],
    };
    assert_eq!(attachment(done(&attachd, release).await).finalizers, Vec::<smol_str::SmolStr>::new());

    let volume = json!({
        "metadata": { "name": "calls-pv" },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-0aa16" }
        }
    });
    let volume = serde_json::from_value(volume).expect("a volume");
    let volume = Api::<PersistentVolume>::all(test).create(&PostParams::default(), &volume).await.expect("create it");
    let metadata = volume.metadata;
    let set = KubernetesCall::SetPersistentVolumeFinalizers {
        name: PersistentVolumeName::new("calls-pv"),
        uid: Uid::new(metadata.uid.expect("a UID")),
        resource_version: ResourceVersion::new(metadata.resource_version.expect("a version")),
        finalizers: vec!["external-attacher/ebs-csi-aws-com".into()],
    };
    let Answer::PersistentVolume(Some(volume)) = done(&attachd, set).await else { panic!("the volume as stored") };
    assert_eq!(volume.finalizers, ["external-attacher/ebs-csi-aws-com"]);
}

#[tokio::test]
async fn an_empty_list_no_marks_and_a_touch_are_stored_as_such() {
    let (attachd, test) = clients().await;
    let node = serde_json::from_value(json!({ "metadata": { "name": "calls-n1" } })).expect("a node");
    Api::<Node>::all(test).create(&PostParams::default(), &node).await.expect("create a node");
    let get = KubernetesCall::GetNode { name: NodeName::new("calls-n1") };
    let Answer::Node(Some(mut node)) = done(&attachd, get).await else { panic!("the node") };

    let volume = UniqueVolumeName::new("kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11");
    let marks = BTreeMap::from([(volume.clone(), BootId::new("boot-1"))]);
    let listed = BTreeMap::from([(volume, "".into())]);
    // List and mark; touch alone; nothing left.
    let steps = [
        (listed.clone(), Some(marks.clone()), None, marks.clone()),
        (listed, None, Some("1"), marks),
        (BTreeMap::new(), Some(BTreeMap::new()), None, BTreeMap::new()),
    ];
    for (volumes_attached, marks, touch, marks_after) in steps {
        let before = node.resource_version.clone();
        let patch = KubernetesCall::PatchNodeStatus {
            name: node.name.clone(),
            uid: node.uid.clone(),
            resource_version: before.clone(),
            volumes_attached: volumes_attached.clone(),
            marks,
            touch: touch.map(Into::into),
        };
        let Answer::Node(Some(after)) = done(&attachd, patch).await else { panic!("the node as stored") };
        assert_eq!(after.volumes_attached, volumes_attached);
        assert_eq!(after.in_use_unknown, UnknownMarks::Marks(marks_after));
        assert!(before.is_older_than(&after.resource_version));
        node = after;
    }
}

#[tokio::test]
async fn events_are_taken_about_every_kind_of_object() {
    let (attachd, test) = clients().await;
    let uid = Uid::new("calls-events");
    let regarding = [
        (Regarding::Pod(PodKey::new("default", "calls-pod"), uid.clone()), "default"),
        (Regarding::Node(NodeName::new("calls-node"), uid.clone()), "default"),
        (Regarding::PersistentVolume(PersistentVolumeName::new("calls-pv"), uid.clone()), "default"),
        (Regarding::Attachment(AttachmentName::new("csi-calls"), uid.clone()), "default"),
        (Regarding::Pod(PodKey::new("kube-system", "calls-pod"), uid.clone()), "kube-system"),
    ];
    for (regarding, namespace) in regarding {
        let message = format!("Multi-Attach error for volume \"pv\" {regarding:?}");
        let note = EventNote { regarding, warning: true, reason: "FailedAttachVolume", message: message.clone() };
        assert_eq!(done(&attachd, KubernetesCall::CreateEvent(note)).await, Answer::EventWritten);
        let events = Api::<Event>::namespaced(test.clone(), namespace);
        let stored =
            events.list(&ListParams::default().fields("involvedObject.uid=calls-events")).await.expect("events");
        let event = stored.items.iter().find(|event| event.message.as_ref() == Some(&message)).expect("the event");
        assert_eq!(
            event.source.as_ref().and_then(|source| source.component.as_deref()),
            Some("attachdetach-controller")
        );
        assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("FailedAttachVolume")));
    }
}
