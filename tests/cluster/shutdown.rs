//! attachd is told to end while a call to EC2 has no answer: once, and it waits for the call; twice, and it does not.

use std::time::{Duration, Instant};

use attachd::sim::ec2::{Ec2Action, Ec2Fault, LostEffect};

use crate::ec2::Pace;
use crate::failover::{until, wait_until_mounted};
use crate::fixture::{Cluster, Size};
use crate::moves::calls;

/// What a call in flight may take at most, whatever becomes of it, and a margin for a busy machine.
const LIMIT: Duration = Duration::from_secs(13 + 2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_signal_waits_for_calls_in_flight_and_the_second_does_not() {
    let mut cluster = Cluster::start("shutdown", Size::with_others(1, 2, Pace::TenTimes)).await;
    cluster.start_attachd().await;
    let lost = Ec2Fault::LoseAnswer { action: Ec2Action::AttachVolume, effect: LostEffect::Applied, count: 1 };

    // Carried out, never answered: the process waits until the call can get no answer any more.
    cluster.ec2.sandbox().with_model(|model, _| model.inject(lost.clone()));
    cluster.create_pod("pod-0", 0, 0).await;
    until(|| (calls(&cluster.ec2, Ec2Action::AttachVolume) == 1).then_some(())).await;
    let begun = Instant::now();
    cluster.attachd().signal("TERM");
    until(|| (!cluster.attachd_is_ready()).then_some(())).await;
    // Nothing new is begun meanwhile.
    cluster.create_pod("pod-1", 1, 0).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    cluster.assert_attachd_runs();
    assert_eq!(cluster.wait_for_attachds_end(LIMIT).await, 0);
    let took = begun.elapsed();
    assert!((Duration::from_secs(7)..LIMIT).contains(&took), "{took:?}");
    assert_eq!(calls(&cluster.ec2, Ec2Action::AttachVolume), 1);

    // The next process finds what the call did, and does the rest.
    cluster.ec2.sandbox().with_model(|model, _| model.inject(lost));
    cluster.start_attachd().await;
    until(|| (calls(&cluster.ec2, Ec2Action::AttachVolume) == 2).then_some(())).await;
    cluster.attachd().signal("TERM");
    until(|| (!cluster.attachd_is_ready()).then_some(())).await;
    cluster.assert_attachd_runs();
    let begun = Instant::now();
    cluster.attachd().signal("TERM");
    assert_eq!(cluster.wait_for_attachds_end(LIMIT).await, 128 + 15);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());

    cluster.start_attachd().await;
    wait_until_mounted(&mut cluster, vec![(0, 0), (1, 0)]).await;
    assert_eq!(calls(&cluster.ec2, Ec2Action::AttachVolume), 2, "each was sent once");
    cluster.stop_attachd().await;
}
