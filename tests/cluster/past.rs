//! What an earlier attachd has left behind: volumes that have long been attached, each object as it is then, every pod
//! running.

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use attachd::controller::command::{AttachmentStatusChange, KubernetesCall, NewAttachment, Recorded};
use attachd::kubernetes::{Clock, KubernetesClient, connect};
use attachd::model::attachment::NewAttachmentSource;
use attachd::model::device::{DeviceName, device_names};
use attachd::model::ids::{AttachmentKey, AwsVolumeId, PersistentVolumeName, Uid, VolumeKey};
use attachd::model::outcome::{Answer, CallResult};
use attachd::model::time::Now;

use crate::apiserver::{ApiServer, User};
use crate::ec2::Ec2;
use crate::fixture::{AT_ONCE, persistent_volume_name};
use crate::kubelet::Machine;

/// Where the past is written.
pub(crate) struct Past<'a> {
    pub(crate) server: &'a ApiServer,
    pub(crate) client: &'a Client,
    pub(crate) ec2: &'a Ec2,
    pub(crate) machines: &'a [Machine],
}

impl Past<'_> {
    /// Attaches the volumes, the one of number `n` to the machine of number `n`, counted round.
    pub(crate) async fn attach(&self, volumes: &[AwsVolumeId]) {
        let clients = connect(Some(&self.server.kubeconfig(User::Test))).await.expect("a client");
        let clock: Clock = Arc::new(Now::default);
        let writer = KubernetesClient::new(clients.calls, clock);
        let each = stream::iter(0..self.machines.len()).map(|place| {
            let here = (place..volumes.len()).step_by(self.machines.len()).map(|n| (n, &volumes[n])).collect();
            self.attach_to(&writer, &self.machines[place], here)
        });
        each.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }

    async fn attach_to(&self, writer: &KubernetesClient, machine: &Machine, volumes: Vec<(usize, &AwsVolumeId)>) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(machine.node.as_str()).await.expect("the node");
        let node_uid = Uid::new(node.metadata.uid.expect("a UID"));
        let mut names = Vec::new();
        for ((n, volume), device) in volumes.into_iter().zip(device_names()) {
            self.ec2.add_attached(&machine.instance, volume, &device);
            let recorded = Recorded { instance: machine.instance.clone(), node_uid: node_uid.clone(), device };
            create_attachment(writer, machine, n, volume, recorded).await;
            names.push(VolumeKey::ebs(volume).unique_name().to_string());
        }
        let listed: Vec<_> = names.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
        let patch = Patch::Strategic(json!({"status": {"volumesAttached": listed, "volumesInUse": names}}));
        let patched = nodes.patch_status(machine.node.as_str(), &PatchParams::default(), &patch).await;
        patched.unwrap_or_else(|error| panic!("list the volumes of {}: {error}", machine.node));
    }
}

/// The VolumeAttachment of volume `n`, attached.
async fn create_attachment(
    writer: &KubernetesClient,
    machine: &Machine,
    n: usize,
    volume: &AwsVolumeId,
    recorded: Recorded,
) {
    let device_path: DeviceName = recorded.device.clone();
    let new = NewAttachment {
        key: AttachmentKey { volume: VolumeKey::ebs(volume), node: machine.node.clone() },
        source: NewAttachmentSource::PersistentVolume(PersistentVolumeName::new(persistent_volume_name(n))),
        recorded: Some(recorded),
    };
    let made = match writer.call(&KubernetesCall::CreateAttachment(new)).await {
        CallResult::Done(Answer::Attachment(Some(made))) => made,
        other => panic!("create the VolumeAttachment of {volume}: {other:?}"),
    };
    let change = AttachmentStatusChange::Attached { device_path };
    let call = KubernetesCall::PatchAttachmentStatus { name: made.name, uid: made.uid, change };
    let stated = writer.call(&call).await;
    assert!(matches!(stated, CallResult::Done(_)), "{call:?}: {stated:?}");
}
