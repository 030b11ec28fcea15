//! How much attachd adds to what EC2 and the kubelet take, where nothing else is going on.

use std::time::{Duration, Instant};

use attachd::model::volume::AttachmentState;

use crate::ec2::Pace;
use crate::figures::Figures;
use crate::fixture::{Cluster, Size};
use crate::moves::pace;

const SAMPLES: usize = 20;

/// From the bound pod to the acknowledged `volumesAttached`, without EC2's attaching and the wait for the node to report
/// the volume in use. At EC2's real pace (`ATTACHD_TEST_PACE=real`) a second is the limit. Every day, beside other
/// tests, only a multiple of it would be a fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adds_little_to_a_single_attach() {
    let pace = pace();
    let mut cluster = Cluster::start("quiet", Size::alone(SAMPLES, SAMPLES, pace)).await;
    cluster.start_attachd().await;
    let mut added = Vec::new();
    for n in 0..SAMPLES {
        added.push(sample(&mut cluster, n).await);
    }
    cluster.stop_attachd().await;

    let median = Figures::tell(&format!("quiet, {pace:?}: added to an attach"), added).median();
    let limit = if pace == Pace::Real { Duration::from_secs(1) } else { Duration::from_secs(4) };
    assert!(median <= limit, "median {median:?}, limit {limit:?}");
}

async fn sample(cluster: &mut Cluster, n: usize) -> Duration {
    cluster.create_pod(&format!("pod-{n:04}"), n, n).await;
    let bound = Instant::now();
    let (machine, volume) = (cluster.machines[n].clone(), cluster.volumes[n].clone());
    let listed = async |cluster: &Cluster| {
        let listed = cluster.kubelets().listed_at(&machine.node, &volume);
        listed.map(|_| ()).ok_or_else(|| format!("{volume} is not listed on {}", machine.node))
    };
    cluster.wait_until(Duration::from_secs(60), listed).await;
    let listed = cluster.kubelets().listed_at(&machine.node, &volume).expect("listed");
    let reported = cluster.kubelets().reported_at(&machine.node, &volume).expect("in use before it is listed");
    let (requested, attached) = cluster.ec2.sandbox().with_model(|model, now| {
        let attachment =
            model.volume(&volume).and_then(|volume| volume.attachment(&machine.instance)).expect("attached");
        assert_eq!(attachment.state, AttachmentState::Attached);
        let instant = |at| Instant::now() - now.monotonic.saturating_since(at);
        (instant(attachment.requested), instant(attachment.since))
    });
    requested.saturating_duration_since(bound) + listed.saturating_duration_since(attached.max(reported))
}
