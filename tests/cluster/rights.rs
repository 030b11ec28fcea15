//! attachd's rights in a cluster are those of `config/deploy/rbac.yaml`, no more.

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::apiserver::{User, count_by_kind, shared};

fn is_forbidden<T>(answer: kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test]
async fn attachd_reads_what_it_decides_from_and_no_secret() {
    let client = shared().client(User::Attachd).await;
    let all = ListParams::default();
    Api::<Pod>::all(client.clone()).list(&all).await.expect("pods");
    Api::<PersistentVolumeClaim>::all(client.clone()).list(&all).await.expect("claims");
    Api::<Node>::all(client.clone()).list(&all).await.expect("nodes");
    Api::<VolumeAttachment>::all(client.clone()).list(&all).await.expect("volume attachments");
    assert!(is_forbidden(Api::<Secret>::all(client).list(&all).await));
}

#[tokio::test]
async fn attachd_writes_the_status_of_a_node_and_nothing_else_of_it() {
    let server = shared();
    let node = json!({"metadata": {"name": "rights-n1"}});
    let test = Api::<Node>::all(server.client(User::Test).await);
    test.create(&Default::default(), &serde_json::from_value(node).expect("a node")).await.expect("create a node");

    let attachd = Api::<Node>::all(server.client(User::Attachd).await);
    let patch = |body| (PatchParams::default(), Patch::Strategic(body));
    let (params, body) =
        patch(json!({"status": {"volumesAttached": [{"name": "kubernetes.io/csi/d^v", "devicePath": ""}]}}));
    let node = attachd.patch_status("rights-n1", &params, &body).await.expect("patch nodes/status");
    assert_eq!(node.status.and_then(|status| status.volumes_attached).map_or(0, |list| list.len()), 1);

    let (params, body) = patch(json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(is_forbidden(attachd.patch("rights-n1", &params, &body).await));
    assert!(is_forbidden(attachd.delete("rights-n1", &Default::default()).await));
    let log = server.audit();
    let mine = log.iter().filter(|entry| entry.is_write_of(User::Attachd) && entry.names("rights-n1"));
    let counted: Vec<_> = count_by_kind(mine).into_iter().map(|((kind, code), count)| (kind, code, count)).collect();
    let wanted = [("delete nodes", 403, 1), ("patch nodes", 403, 1), ("patch nodes/status", 200, 1)];
    assert_eq!(counted, wanted.map(|(kind, code, count)| (kind.to_owned(), code, count)));
    test.delete("rights-n1", &Default::default()).await.expect("delete the node");
}
