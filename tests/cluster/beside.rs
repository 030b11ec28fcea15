//! attachd with the role attacher beside a real kube-controller-manager, whose VolumeAttachments are its orders.
//!
//! kube-controller-manager with csi-attacher and the driver takes six minutes to move a volume off a terminated instance
//! (it waits for a Node that is gone to unmount). attachd deletes the VolumeAttachment once EC2 shows the instance
//! terminated and the volume free; kube-controller-manager's next look at the VolumeAttachments, once a minute, does the
//! rest. `failover` says how to measure it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use kube::api::{Api, DeleteParams};

use attachd::model::ids::{AttachmentKey, AttachmentName, VolumeKey};
use attachd::model::volume::InstanceState;
use attachd::sim::ec2::Ec2Action;

use crate::apiserver::User;
use crate::controller_manager;
use crate::ec2::Pace;
use crate::failover::{events, size, until, wait_until_mounted};
use crate::figures::Figures;
use crate::fixture::{Cluster, NAMESPACE, Size};
use crate::kubelet::Leases;
use crate::moves::{calls, is_exact, pace};
use crate::world::look;

const ROLE: &str = "roles: [attacher]\n";
const PATIENCE: Duration = Duration::from_secs(180);
/// The minute of kube-controller-manager's look, and what reading EC2 takes.
const LIMIT: Duration = Duration::from_secs(75);
/// A process that has just started takes every VolumeAttachment for one with an earlier leader's calls under way (70 s)
/// and reads for another 30 s. One that has run for a while is what is measured.
const STARTED_LONG_AGO: Duration = Duration::from_secs(100);

/// How often kube-controller-manager compares: at EC2's own pace its default.
fn sync_period(pace: Pace) -> Duration {
    Duration::from_secs(if pace == Pace::Real { 60 } else { 5 })
}

/// Terminated instances, a move and a VolumeAttachment deleted by hand, all beside one another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_move_beside_kube_controller_manager() {
    let pace = pace();
    let lost = if pace == Pace::Real { 20 } else { 1 };
    let (moved, guarded) = (lost, lost + 1);
    let (worker, spare) = (lost, lost + 1);
    let mut cluster =
        Cluster::start("beside", Size { leases: Leases::Renewed, ..size(lost + 2, lost + 2, pace) }).await;
    let mut manager = controller_manager::start(&cluster.server, sync_period(pace));
    cluster.start_attachd_with(ROLE).await;
    let mut pods: Vec<_> = (0..lost).map(|n| (format!("pod-{n:02}-a"), n, n)).collect();
    pods.push(("moved-a".to_owned(), moved, worker));
    pods.push(("guarded-a".to_owned(), guarded, worker));
    let places = pods.iter().map(|(_, n, node)| (*n, *node)).collect();
    cluster.create_pods(pods).await;
    wait_until_mounted(&mut cluster, places).await;
    if pace == Pace::Real {
        tokio::time::sleep(STARTED_LONG_AGO).await;
    }

    let lose = join_all((0..lost).map(|n| lose_machine(&cluster, n, spare)));
    let (took, (), ()) = tokio::join!(
        lose,
        move_volume(&cluster, moved, "moved-a", "moved-b", spare),
        delete_attachment_in_use(&cluster, guarded, worker)
    );
    let what =
        format!("beside kube-controller-manager, {pace:?}: from terminated, and the new pod bound, to AttachVolume");
    let figures = Figures::tell(&what, took);
    assert!(figures.max() <= LIMIT, "limit {LIMIT:?}");

    manager.assert_running();
    let wanted: Vec<_> = (0..lost).map(|n| (n, spare)).chain([(moved, spare)]).collect();
    wait_until_mounted(&mut cluster, wanted.clone()).await;
    let at = |(n, node): &(usize, usize)| (cluster.volumes[*n].clone(), cluster.machines[*node].instance.clone());
    let wanted: BTreeSet<_> = wanted.iter().map(at).collect();
    cluster.wait_until(PATIENCE, async |cluster: &Cluster| is_exact(&look(cluster).await, &wanted)).await;
    assert_eq!(cluster.kubelets().faults(), Vec::<String>::new());
    // Each attached once, and anew where it moved; a terminated instance has let go by itself.
    assert_eq!(calls(&cluster.ec2, Ec2Action::AttachVolume), 2 * lost as u64 + 3);
    assert_eq!(calls(&cluster.ec2, Ec2Action::DetachVolume), 2);
    let written = cluster.server.audit();
    let in_lists = |entry: &&crate::apiserver::AuditEntry| {
        entry.is_write_of(User::Attachd)
            && matches!(entry.kind().as_str(), "patch nodes/status" | "create volumeattachments")
    };
    assert_eq!(written.iter().find(in_lists).map(|entry| entry.kind()), None, "written by the other one alone");
    cluster.stop_attachd().await;
}

/// From the machine's end and its successor pod to the AttachVolume on the spare node.
async fn lose_machine(cluster: &Cluster, n: usize, spare: usize) -> Duration {
    // Three times the number of machines make more than the minute of the other one's look.
    tokio::time::sleep(Duration::from_millis(3_100) * n as u32).await;
    let machine = &cluster.machines[n];
    cluster.kubelets().power_off(machine).await;
    cluster.ec2.terminate(&machine.instance);
    until(|| cluster.ec2.in_state_since(&machine.instance, &InstanceState::Terminated)).await;
    // As the cloud's controller does.
    let (nodes, csi_nodes) = (Api::<Node>::all(cluster.client.clone()), Api::<CSINode>::all(cluster.client.clone()));
    let (name, how) = (machine.node.as_str(), DeleteParams::default());
    drop(nodes.delete(name, &how).await.expect("delete a Node"));
    drop(csi_nodes.delete(name, &how).await.expect("delete a CSINode"));
    let pod = format!("pod-{n:02}-a");
    if cluster.pace == Pace::Real {
        // Pod garbage collection runs every 20 s: its step would lock the samples to a few phases of the minute.
        cluster.force_delete_pod(&pod).await;
    } else {
        wait_until_collected(cluster, &pod).await;
    }
    let bound = Instant::now();
    drop(cluster.create_pod(&format!("pod-{n:02}-b"), n, spare).await);
    let to = &cluster.machines[spare].instance;
    until(|| cluster.ec2.attach_requested(to, &cluster.volumes[n])).await.saturating_duration_since(bound)
}

/// Pod garbage collection takes the pods of a Node that has been gone for 40 s.
async fn wait_until_collected(cluster: &Cluster, pod: &str) {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let begun = Instant::now();
    while api.get_opt(pod).await.expect("get a pod").is_some() {
        assert!(begun.elapsed() < PATIENCE, "{pod} is not collected");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn move_volume(cluster: &Cluster, n: usize, from: &str, to: &str, node: usize) {
    cluster.delete_pod(from).await;
    drop(cluster.create_pod(to, n, node).await);
    until(|| cluster.ec2.attached(&cluster.machines[node].instance, &cluster.volumes[n])).await;
}

/// A person deletes the VolumeAttachment of a mounted volume: it is held, until the pod has gone.
async fn delete_attachment_in_use(cluster: &Cluster, n: usize, node: usize) {
    let (machine, volume) = (&cluster.machines[node], &cluster.volumes[n]);
    let key = AttachmentKey { volume: VolumeKey::ebs(volume), node: machine.node.clone() };
    let name = AttachmentName::of(&key);
    let api: Api<VolumeAttachment> = Api::all(cluster.client.clone());
    drop(api.delete(&name.text(), &DeleteParams::default()).await.expect("delete a VolumeAttachment"));
    let begun = Instant::now();
    while events(cluster, "VolumeAttachmentHeld").await.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "no event says that it is held");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(cluster.ec2.attached(&machine.instance, volume).is_some(), "held while it is mounted");
    let held = api.get(&name.text()).await.expect("held");
    assert!(held.metadata.deletion_timestamp.is_some());
    cluster.delete_pod("guarded-a").await;
    until(|| cluster.ec2.ended(volume).pop()).await;
    let begun = Instant::now();
    while api.get_opt(&name.text()).await.expect("get a VolumeAttachment").is_some() {
        assert!(begun.elapsed() < PATIENCE, "the VolumeAttachment stays");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
