//! attachd's watches on a real API server, with attachd's own rights: consistent streaming lists, then every change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use attachd::controller::event::{Event, EventKind, Kind, Object, ObjectKey, WatchEvent};
use attachd::kubernetes::{connect, watch_all};
use attachd::model::ids::{NodeName, UniqueVolumeName};
use attachd::model::time::Now;

use crate::apiserver::{ApiServer, User};

const IN_USE: &str = "kubernetes.io/csi/ebs.csi.aws.com^vol-0aa11";

/// What a fresh set of watches hears.
struct Heard {
    events: mpsc::Receiver<Event>,
    _tasks: JoinSet<()>,
}

impl Heard {
    async fn begin(server: &ApiServer) -> Self {
        let clients = connect(Some(&server.kubeconfig(User::Attachd))).await.expect("attachd's clients");
        let (sink, events) = mpsc::channel(100);
        let clock: attachd::kubernetes::Clock = Arc::new(Now::default);
        Self { events, _tasks: watch_all(&clients.watches, &sink, &clock) }
    }

    async fn next(&mut self) -> WatchEvent {
        let event = tokio::time::timeout(Duration::from_secs(30), self.events.recv()).await;
        match event.expect("in time").expect("the watches go on").kind {
            EventKind::Watch(event) => event,
            other => panic!("{other:?}"),
        }
    }

    /// Every object of the first lists.
    async fn lists(&mut self) -> Vec<Object> {
        let (mut items, mut ended) = (Vec::new(), BTreeSet::new());
        while ended.len() < Kind::ALL.len() {
            match self.next().await {
                WatchEvent::Begin { generation: 1, .. } => {}
                WatchEvent::Item { generation: 1, object } => items.push(object),
                WatchEvent::End { kind, generation: 1 } => assert!(ended.insert(kind), "{kind:?} ended twice"),
                other => panic!("{other:?}"),
            }
        }
        items
    }

    /// The next change that `wanted` makes something of.
    async fn change<T>(&mut self, wanted: impl Fn(&WatchEvent) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(&self.next().await) {
                return found;
            }
        }
    }
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn node_in(event: &WatchEvent) -> Option<&attachd::model::node::Node> {
    match event {
        WatchEvent::Applied(Object::Node(node)) => Some(node),
        _ => None,
    }
}

async fn change_everything(server: &ApiServer, heard: &mut Heard) {
    let client = server.client(User::Test).await;
    let (post, patch) = (PostParams::default(), PatchParams::default());
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&post, &object(json!({ "metadata": { "name": "n1" } }))).await.expect("create a node");
    let uid = heard.change(|event| node_in(event).map(|node| node.uid.clone())).await;

    let status = Patch::Strategic(json!({ "status": { "volumesInUse": [IN_USE] } }));
    nodes.patch_status("n1", &patch, &status).await.expect("patch the node's status");
    let in_use = [UniqueVolumeName::new(IN_USE)].into();
    heard
        .change(|event| node_in(event).filter(|node| node.volumes_in_use == in_use && node.uid == uid).map(drop))
        .await;

    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let pod = |name: &str, node: Option<&str>| {
        let spec = json!({ "nodeName": node, "containers": [{ "name": "c", "image": "i" }] });
        object(json!({ "metadata": { "name": name }, "spec": spec }))
    };
    pods.create(&post, &pod("waiting", None)).await.expect("create a pod without a node");
    pods.create(&post, &pod("bound", Some("n1"))).await.expect("create a pod");
    // The one without a node came first: it was not told of.
    let name = heard.change(|event| match event {
        WatchEvent::Applied(Object::Pod(pod)) => Some(pod.key.name.clone()),
        _ => None,
    });
    assert_eq!(name.await, "bound");

    let attachments = Api::<VolumeAttachment>::all(client);
    let spec = json!({ "attacher": "d", "nodeName": "n1", "source": { "persistentVolumeName": "pv" } });
    let attachment = object(json!({ "metadata": { "name": "a1" }, "spec": spec }));
    attachments.create(&post, &attachment).await.expect("create a volume attachment");
    heard.change(|event| matches!(event, WatchEvent::Applied(Object::Attachment(_))).then_some(())).await;

    nodes.delete("n1", &DeleteParams::default()).await.expect("delete the node");
    let deleted = WatchEvent::Deleted(ObjectKey::Node(NodeName::new("n1"), uid));
    heard.change(|event| (*event == deleted).then_some(())).await;
}

#[tokio::test]
async fn lists_are_streamed_whole_and_changes_follow() {
    let server = ApiServer::start("watches");
    let mut heard = Heard::begin(&server).await;
    heard.lists().await;
    change_everything(&server, &mut heard).await;
    drop(heard);

    // A later process finds in its lists what is left.
    let mut later = Heard::begin(&server).await;
    let left: Vec<String> = later
        .lists()
        .await
        .iter()
        .filter_map(|object| match object {
            Object::Pod(pod) => Some(pod.key.to_string()),
            Object::Attachment(attachment) => Some(attachment.name.to_string()),
            Object::Unreadable(key) => Some(format!("{key:?}")),
            _ => None,
        })
        .collect();
    assert_eq!(BTreeSet::from_iter(left), ["a1".to_owned(), "default/bound".to_owned()].into());
    drop(later);

    // Streaming lists are watches: nothing was listed the old way.
    let lists =
        server.audit().into_iter().filter(|entry| entry.verb == "list" && entry.user.username == User::Attachd.name());
    assert_eq!(lists.map(|entry| entry.kind()).collect::<Vec<_>>(), Vec::<String>::new());
}
