//! Volumes that somebody detaches behind Kubernetes' back, on real servers: a sweep notices, the cluster is told, and the
//! pod made again on the same node gets its volume.

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::Api;

use attachd::model::ids::{AttachmentKey, AttachmentName, VolumeKey};

use crate::ec2::Pace;
use crate::failover::{events, samples, size, until, wait_until_mounted};
use crate::figures::Figures;
use crate::fixture::{Cluster, persistent_volume_name};
use crate::moves::pace;

/// The period of every day's sweep; at EC2's own pace it is attachd's default, a minute.
const SHORT: Duration = Duration::from_secs(4);
/// Reads may show the past: within half a minute of the attach they do not count against it. What is measured is a volume
/// that was attached before.
const ATTACHED_BEFORE: Duration = Duration::from_secs(31);
/// Beside the sweep: three reads that agree.
const CONFIRMATION: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_detach_is_noticed_and_a_new_pod_on_the_node_starts() {
    let pace = pace();
    let (volumes, nodes) = (samples(pace), 3);
    let (settings, period) = match pace {
        Pace::Real => (String::new(), Duration::from_secs(60)),
        _ => (format!("sweepPeriod: {}s\n", SHORT.as_secs()), SHORT),
    };
    let mut cluster = Cluster::start("silent-detach", size(nodes, volumes, pace)).await;
    cluster.start_attachd_with(&settings).await;
    cluster.create_pods((0..volumes).map(|n| (format!("pod-{n:02}-a"), n, n % nodes)).collect()).await;
    let places: Vec<_> = (0..volumes).map(|n| (n, n % nodes)).collect();
    wait_until_mounted(&mut cluster, places.clone()).await;
    tokio::time::sleep(ATTACHED_BEFORE).await;

    // Spread over more than a period, so that each meets the sweep elsewhere.
    let stagger = period.mul_f64(1.3) / volumes as u32;
    let took = join_all(places.iter().map(|(n, node)| detach_silently(&cluster, *n, *node, stagger))).await;
    let what = format!("silent detach, {pace:?}: from the end of the attachment to the VolumeAttachment not attached");
    let figures = Figures::tell(&what, took);
    let limit = period + CONFIRMATION;
    assert!(figures.median() <= limit, "limit {limit:?}");
    // Beside other tests only a multiple would be a fault.
    let longest = if pace == Pace::Real { limit } else { limit * 2 };
    assert!(figures.max() <= longest, "limit {longest:?}");

    cluster.wait_until(Duration::from_secs(30), async |cluster: &Cluster| is_told_once(cluster, volumes).await).await;

    cluster.delete_pods((0..volumes).map(|n| format!("pod-{n:02}-a")).collect()).await;
    // One that came before the other has gone would share its mount.
    wait_until_mounted(&mut cluster, Vec::new()).await;
    cluster.create_pods((0..volumes).map(|n| (format!("pod-{n:02}-b"), n, n % nodes)).collect()).await;
    wait_until_mounted_anew(&mut cluster, &places).await;
    // Each was pulled from under its first mount, none from under the second.
    let faults = cluster.kubelets().faults();
    assert!(faults.iter().all(|fault| fault.contains("went from under its mount")), "{faults:?}");
    assert_eq!(faults.len(), volumes, "{faults:?}");
    cluster.stop_attachd().await;
}

/// Whether one event tells of each volume, at its pod and at its PersistentVolume.
async fn is_told_once(cluster: &Cluster, volumes: usize) -> Result<(), String> {
    let said = events(cluster, "VolumeDetachedExternally").await;
    let about = |kind: &str, name: &str| {
        let is_it = |event: &&Event| {
            let object = &event.involved_object;
            object.kind.as_deref() == Some(kind) && object.name.as_deref() == Some(name)
        };
        match said.iter().filter(is_it).count() {
            1 => Ok(()),
            count => Err(format!("{count} events about {kind} {name}")),
        }
    };
    for n in 0..volumes {
        about("Pod", &format!("pod-{n:02}-a"))?;
        about("PersistentVolume", &persistent_volume_name(n))?;
    }
    Ok(())
}

/// From the end of the attachment to the VolumeAttachment that says so.
async fn detach_silently(cluster: &Cluster, n: usize, node: usize, stagger: Duration) -> Duration {
    tokio::time::sleep(stagger * n as u32).await;
    let (machine, volume) = (&cluster.machines[node], &cluster.volumes[n]);
    cluster.ec2.force_detach_by_hand(&machine.instance, volume);
    let ended = until(|| cluster.ec2.ended(volume).last().map(|(at, _)| *at)).await;
    let key = AttachmentKey { volume: VolumeKey::ebs(volume), node: machine.node.clone() };
    let name = AttachmentName::of(&key);
    let api: Api<VolumeAttachment> = Api::all(cluster.client.clone());
    let begun = Instant::now();
    loop {
        let object = api.get(&name.text()).await.expect("the pod still wants it");
        if object.status.is_some_and(|status| !status.attached) {
            return ended.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(180), "{volume} is detached, and nobody noticed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until every mount is made on the attachment there is now.
async fn wait_until_mounted_anew(cluster: &mut Cluster, places: &[(usize, usize)]) {
    let anew = async |cluster: &Cluster| {
        let mounts = cluster.kubelets().mounts();
        let is_new = |(n, node): &&(usize, usize)| {
            let (instance, volume) = (&cluster.machines[*node].instance, &cluster.volumes[*n]);
            let attached = cluster.ec2.attached(instance, volume).map(|attachment| attachment.generation);
            attached.is_some()
                && attached == mounts.get(&(volume.clone(), instance.clone())).map(|mount| mount.generation)
        };
        match places.iter().find(|place| !is_new(place)) {
            None => Ok(()),
            Some((n, _)) => Err(format!("{} is not mounted anew", cluster.volumes[*n])),
        }
    };
    cluster.wait_until(Duration::from_secs(120), anew).await;
}
