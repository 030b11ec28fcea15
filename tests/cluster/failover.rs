//! Machines that are lost, on real servers and with every role: what EC2 says of them decides, not a timeout.
//!
//! Every day EC2 is ten times faster, with few samples. At its own pace, twenty of each, attachd with its defaults:
//!
//! ```text
//! ATTACHD_TEST_PACE=real cargo test --test cluster -- --nocapture --test-threads 1 failover silent_detach beside
//! ```

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};

use attachd::model::volume::{CheckStatus, InstanceState};
use attachd::sim::ec2::Ec2Action;

use crate::ec2::Pace;
use crate::figures::Figures;
use crate::fixture::{Cluster, Size};
use crate::moves::{calls, pace};

/// Long enough for anything here to have happened at EC2's own pace.
const PATIENCE: Duration = Duration::from_secs(240);

/// How many machines are lost.
pub(crate) fn samples(pace: Pace) -> usize {
    if pace == Pace::Real { 20 } else { 3 }
}

/// A cluster whose last nodes are spare, where its figures are the point alone on the machine.
pub(crate) fn size(nodes: usize, volumes: usize, pace: Pace) -> Size {
    if pace == Pace::Real { Size::alone(nodes, volumes, pace) } else { Size::with_others(nodes, volumes, pace) }
}

/// Between the losses of two machines.
fn stagger(pace: Pace) -> Duration {
    Duration::from_millis(if pace == Pace::Real { 5_300 } else { 1_300 })
}

/// What becomes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Terminated,
    Stopped,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_of_terminated_instances_are_attached_elsewhere_at_once() {
    lose_machines("failover-terminated", Loss::Terminated, Duration::from_secs(10)).await;
}

/// `stopped` counts in two reads ten seconds apart, on a node that is not Ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_of_stopped_instances_are_attached_elsewhere_soon() {
    lose_machines("failover-stopped", Loss::Stopped, Duration::from_secs(40)).await;
}

/// Loses machines one after the other; each had a pod, which gets a successor on a machine that lives.
async fn lose_machines(label: &str, loss: Loss, limit: Duration) {
    let pace = pace();
    let lost = samples(pace);
    let mut cluster = Cluster::start(label, size(lost + 1, lost, pace)).await;
    cluster.start_attachd().await;
    cluster.create_pods((0..lost).map(|n| (format!("pod-{n:02}-a"), n, n)).collect()).await;
    wait_until_mounted(&mut cluster, (0..lost).map(|n| (n, n)).collect()).await;

    let took = join_all((0..lost).map(|n| lose_machine(&cluster, n, loss))).await;
    let what = format!("{label}, {pace:?}: from {loss:?} and the new pod bound to AttachVolume");
    let figures = Figures::tell(&what, took);
    wait_until_mounted(&mut cluster, (0..lost).map(|n| (n, lost)).collect()).await;
    assert_eq!(cluster.kubelets().faults(), Vec::<String>::new());
    let detaches = if loss == Loss::Terminated { 0 } else { lost as u64 };
    assert_eq!(calls(&cluster.ec2, Ec2Action::AttachVolume), 2 * lost as u64);
    assert_eq!(calls(&cluster.ec2, Ec2Action::DetachVolume), detaches, "a terminated instance has let go");
    cluster.stop_attachd().await;
    // Beside other tests only a multiple would be a fault.
    let limit = if pace == Pace::Real { limit } else { limit * 2 };
    assert!(figures.median() <= limit, "limit {limit:?}");
}

/// From the machine's end, or its successor pod if that came later, to the AttachVolume on the spare node.
async fn lose_machine(cluster: &Cluster, n: usize, loss: Loss) -> Duration {
    tokio::time::sleep(stagger(cluster.pace) * n as u32).await;
    let (machine, volume) = (&cluster.machines[n], &cluster.volumes[n]);
    let spare = cluster.machines.len() - 1;
    cluster.kubelets().power_off(machine).await;
    let end = match loss {
        Loss::Terminated => {
            cluster.ec2.terminate(&machine.instance);
            InstanceState::Terminated
        }
        Loss::Stopped => {
            cluster.ec2.stop(&machine.instance);
            // It may be started again: only the pod's end frees the volume.
            cluster.set_ready(n, "Unknown").await;
            cluster.force_delete_pod(&format!("pod-{n:02}-a")).await;
            InstanceState::Stopped
        }
    };
    // Every other pod has its successor before the machine's end: nothing may happen then.
    let waits_for_end = n.is_multiple_of(2);
    let name = format!("pod-{n:02}-b");
    let mut bound = Instant::now();
    if !waits_for_end {
        drop(cluster.create_pod(&name, n, spare).await);
    }
    let ended = until(|| cluster.ec2.in_state_since(&machine.instance, &end)).await;
    if waits_for_end {
        bound = Instant::now();
        drop(cluster.create_pod(&name, n, spare).await);
    }
    let to = &cluster.machines[spare].instance;
    let requested = until(|| cluster.ec2.attach_requested(to, volume)).await;
    requested.saturating_duration_since(bound.max(ended))
}

/// A dead kubelet is not a dead machine: as long as EC2 finds that healthy, nothing is taken from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_detached_where_only_the_kubelet_is_dead() {
    let mut cluster = Cluster::start("failover-kubelet", Size::with_others(2, 1, Pace::TenTimes)).await;
    cluster.start_attachd_with("unmountTimeout: 5s\n").await;
    cluster.create_pod("pod-a", 0, 0).await;
    wait_until_mounted(&mut cluster, vec![(0, 0)]).await;
    let (machine, volume) = (cluster.machines[0].clone(), cluster.volumes[0].clone());

    cluster.kubelets().kill(&machine.node).await;
    cluster.set_ready(0, "Unknown").await;
    cluster.force_delete_pod("pod-a").await;
    cluster.create_pod("pod-b", 0, 1).await;
    let withheld = async |cluster: &Cluster| match events(cluster, "ForceDetachWithheld").await.first() {
        None => Err("no event says that the detach is withheld".to_owned()),
        Some(_) => Ok(()),
    };
    cluster.wait_until(Duration::from_secs(60), withheld).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(calls(&cluster.ec2, Ec2Action::DetachVolume), 0);
    assert!(cluster.ec2.attached(&machine.instance, &volume).is_some());

    // The other half, without which the first would prove little: an impaired machine is given up.
    cluster.ec2.set_checks(&machine.instance, CheckStatus::Impaired);
    let detached = async |cluster: &Cluster| match calls(&cluster.ec2, Ec2Action::DetachVolume) {
        0 => Err("no DetachVolume from an impaired machine".to_owned()),
        _ => Ok(()),
    };
    cluster.wait_until(Duration::from_secs(60), detached).await;
    cluster.stop_attachd().await;
}

/// Waits until exactly these volumes are mounted: (volume, node).
pub(crate) async fn wait_until_mounted(cluster: &mut Cluster, wanted: Vec<(usize, usize)>) {
    let place = |(n, node): &(usize, usize)| (cluster.volumes[*n].clone(), cluster.machines[*node].instance.clone());
    let wanted: std::collections::BTreeSet<_> = wanted.iter().map(place).collect();
    let mounted = async |cluster: &Cluster| {
        let mounts: std::collections::BTreeSet<_> = cluster.kubelets().mounts().into_keys().collect();
        crate::moves::same("mounts", &mounts, &wanted)
    };
    cluster.wait_until(PATIENCE, mounted).await;
}

/// Asks every few milliseconds until there is an answer.
pub(crate) async fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "waited for {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The events of a reason, of any object.
pub(crate) async fn events(cluster: &Cluster, reason: &str) -> Vec<Event> {
    let api: Api<Event> = Api::all(cluster.client.clone());
    let of_reason = ListParams::default().fields(&format!("reason={reason}"));
    api.list(&of_reason).await.expect("list events").items
}
