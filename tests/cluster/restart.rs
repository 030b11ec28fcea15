//! attachd dies (KILL) in a cluster full of attached volumes with work pending, and starts again while 1 % of the pages of
//! DescribeVolumes fail: how long until each pending volume is acted on, and what that takes.
//!
//! Every day few volumes, at ten times EC2's pace. The figure, EC2 at its own pace, attachd with its defaults and nothing
//! beside it:
//!
//! ```text
//! ATTACHD_TEST_PACE=real ATTACHD_TEST_VOLUMES=20000 cargo test --test cluster -- --nocapture restart
//! ```

use std::io::Write as _;
use std::time::{Duration, Instant};

use attachd::model::ids::{AwsVolumeId, InstanceId};
use attachd::model::volume::AttachmentState;
use attachd::sim::ec2::{Ec2Action, Ec2Fault};

use crate::ec2::{Ec2, Pace};
use crate::figures::Figures;
use crate::fixture::{Cluster, Company, Size};
use crate::kubelet::Leases;
use crate::moves::{calls, pace};

/// Attached volumes of a node: with those that come to it, fewer than the 31 it takes.
const PER_NODE: usize = 20;
/// Nodes on which anything happens. The others have no kubelet: their pods run on.
const BUSY_NODES: usize = 12;
/// Of a million pages.
const PAGES_FAIL: u32 = 10_000;
/// What is ordered while no attachd runs is done by its kubelet then.
const DOWN_FOR: Duration = Duration::from_secs(6);
/// How long describe calls are counted after the last act: everything that was not read yet is read now.
const AFTERWARDS: Duration = Duration::from_secs(15);
/// For everything pending to be acted on.
const PATIENCE: Duration = Duration::from_secs(240);

/// What EC2 is to be asked for.
#[derive(Clone, Debug)]
enum Work {
    Attach(InstanceId),
    Detach(InstanceId),
}

fn attached_volumes() -> usize {
    match std::env::var("ATTACHD_TEST_VOLUMES").as_deref() {
        Err(_) | Ok("") => 4 * PER_NODE,
        Ok(number) => number.parse().expect("ATTACHD_TEST_VOLUMES is a number"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_every_pending_volume_is_acted_on() {
    let (attached, pace) = (attached_volumes(), pace());
    let nodes = attached.div_ceil(PER_NODE);
    let busy = nodes.min(BUSY_NODES);
    let company = if pace == Pace::Real { Company::Alone } else { Company::Others };
    let size = Size { nodes, volumes: attached + busy, pace, company, leases: Leases::None, attached, kubelets: busy };
    let begun = Instant::now();
    let mut cluster = Cluster::start("restart", size).await;
    for node in 0..nodes {
        create_running_pods(&cluster, node, (node..attached).step_by(nodes).collect(), node < busy).await;
    }
    tell(&format!("{attached} volumes on {nodes} nodes, made in {:.0?}", begun.elapsed()));

    let begun = Instant::now();
    cluster.start_attachd().await;
    tell(&format!("first start: ready after {:.2?}", begun.elapsed()));
    cluster.wait_until(PATIENCE, async |cluster: &Cluster| has_swept(cluster, attached)).await;

    cluster.ec2.sandbox().with_model(|model, _| model.inject(Ec2Fault::FailPages { per_million: PAGES_FAIL }));
    let work = Orders { attached, nodes, busy };
    work.give(&cluster, 0..busy / 3).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.kill_attachd().await;
    work.give(&cluster, busy / 3..busy).await;
    tokio::time::sleep(DOWN_FOR).await;

    let pending = work.pending(&cluster);
    assert!(pending.len() >= busy, "{pending:?}");
    let begun = Instant::now();
    let watching = tokio::task::spawn_blocking({
        let (ec2, pending) = (cluster.ec2.clone(), pending.clone());
        move || watch(&ec2, begun, pending)
    });
    cluster.start_attachd().await;
    let ready = begun.elapsed();
    let seen = watching.await.expect("every pending volume is acted on");
    tell(&format!("second start: ready after {ready:.2?}; resident {:.0} MB", cluster.resident_memory() / 1e6));
    let what = format!("restart, {attached} volumes, {} pending, {pace:?}", pending.len());
    Figures::tell(&format!("{what}: from the start of the process to the first EC2 call"), seen.acted.clone());
    let since_ready = seen.acted.iter().map(|acted| acted.saturating_sub(ready)).collect();
    let figures = Figures::tell(&format!("{what}: from its readiness to the first EC2 call"), since_ready);
    tell(&format!("{what}: at most {:.1} describes a second over ten seconds", seen.most_describes_in_ten() / 10.0));

    cluster.wait_until(PATIENCE, async |cluster: &Cluster| work.is_done(cluster)).await;
    assert_eq!(cluster.kubelets().faults(), Vec::<String>::new());
    if pace == Pace::Real {
        let before = calls(&cluster.ec2, Ec2Action::DescribeVolumes);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let sweep = calls(&cluster.ec2, Ec2Action::DescribeVolumes) - before;
        tell(&format!("{what}: {sweep} DescribeVolumes in a sweep period"));
    }
    cluster.stop_attachd().await;
    // Beside other tests only a multiple would be a fault.
    let limit = Duration::from_secs(if pace == Pace::Real { 10 } else { 30 });
    assert!(figures.max() <= limit, "limit {limit:?}");
}

fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "restart: {line}");
}

/// Whether EC2 was asked about every volume.
fn has_swept(cluster: &Cluster, volumes: usize) -> Result<(), String> {
    let asked = calls(&cluster.ec2, Ec2Action::DescribeVolumes);
    if asked as usize >= volumes.div_ceil(200) { Ok(()) } else { Err(format!("{asked} DescribeVolumes so far")) }
}

/// The work: on each busy node one volume moves to the next, one is let go for good, and one comes for the first time.
struct Orders {
    attached: usize,
    nodes: usize,
    busy: usize,
}

impl Orders {
    fn moved(&self, node: usize) -> usize {
        node
    }

    fn let_go(&self, node: usize) -> usize {
        node + self.nodes
    }

    fn fresh(&self, node: usize) -> usize {
        self.attached + node
    }

    async fn give(&self, cluster: &Cluster, nodes: std::ops::Range<usize>) {
        for node in nodes {
            for n in [self.moved(node), self.let_go(node)] {
                cluster.delete_pod(&running_pod_name(n)).await;
            }
            let next = (node + 1) % self.busy;
            drop(cluster.create_pod(&format!("moved-{node}"), self.moved(node), next).await);
            drop(cluster.create_pod(&format!("new-{node}"), self.fresh(node), node).await);
        }
    }

    /// Each volume with the machine that is to have it in the end.
    fn places<'a>(&self, cluster: &'a Cluster) -> Vec<(&'a AwsVolumeId, Option<&'a InstanceId>)> {
        let instance = |node: usize| &cluster.machines[node % self.busy].instance;
        let of_node = |node: usize| {
            let volume = |n: usize| &cluster.volumes[n];
            [
                (volume(self.moved(node)), Some(instance(node + 1))),
                (volume(self.let_go(node)), None),
                (volume(self.fresh(node)), Some(instance(node))),
            ]
        };
        (0..self.busy).flat_map(of_node).collect()
    }

    /// What EC2 was not asked for yet.
    fn pending(&self, cluster: &Cluster) -> Vec<(AwsVolumeId, Work)> {
        let work = |(volume, wanted): (&AwsVolumeId, Option<&InstanceId>)| {
            let attachments = attachments(&cluster.ec2, volume);
            let attached = attachments.iter().find(|(_, state)| *state == AttachmentState::Attached);
            let work = match (attached, wanted) {
                (Some((instance, _)), wanted) if Some(instance) != wanted => Work::Detach(instance.clone()),
                (None, Some(wanted)) if attachments.is_empty() => Work::Attach(wanted.clone()),
                _ => return None,
            };
            Some((volume.clone(), work))
        };
        self.places(cluster).into_iter().filter_map(work).collect()
    }

    fn is_done(&self, cluster: &Cluster) -> Result<(), String> {
        for (volume, wanted) in self.places(cluster) {
            let attachments = attachments(&cluster.ec2, volume);
            let is_there = match wanted {
                Some(wanted) => attachments == [(wanted.clone(), AttachmentState::Attached)],
                None => attachments.is_empty(),
            };
            if !is_there {
                return Err(format!("{volume} is wanted on {wanted:?}: {attachments:?}"));
            }
        }
        Ok(())
    }
}

/// Pods that use what is attached to a node: on a busy one a pod for each volume, else one for all of them.
async fn create_running_pods(cluster: &Cluster, node: usize, volumes: Vec<usize>, is_busy: bool) {
    if is_busy {
        cluster.create_pods(volumes.into_iter().map(|n| (running_pod_name(n), n, node)).collect()).await;
    } else {
        drop(cluster.create_pod_of(&format!("settled-{node}"), &volumes, node).await);
    }
}

/// The pod that has run for long with volume `n` alone.
fn running_pod_name(n: usize) -> String {
    format!("running-{n}")
}

fn attachments(ec2: &Ec2, volume: &AwsVolumeId) -> Vec<(InstanceId, AttachmentState)> {
    ec2.sandbox().with_model(|model, _| {
        let attachments = model.volume(volume).map(|volume| volume.attachments()).unwrap_or_default();
        attachments.iter().map(|attachment| (attachment.instance.clone(), attachment.state.clone())).collect()
    })
}

/// What was seen of EC2 from the start of attachd on.
struct Seen {
    /// From then to the first call for each pending volume.
    acted: Vec<Duration>,
    /// Describe calls so far, by time.
    describes: Vec<(Duration, u64)>,
}

impl Seen {
    fn most_describes_in_ten(&self) -> f64 {
        let ten = Duration::from_secs(10);
        let within = |(index, (at, before)): (usize, &(Duration, u64))| {
            let later = self.describes[index..].iter().take_while(|(later, _)| *later - *at <= ten);
            later.last().map_or(0, |(_, count)| count - before)
        };
        self.describes.iter().enumerate().map(within).max().unwrap_or(0) as f64
    }
}

/// Looks at EC2 until it was asked for everything pending, and for a while after.
fn watch(ec2: &Ec2, begun: Instant, mut pending: Vec<(AwsVolumeId, Work)>) -> Seen {
    let mut seen = Seen { acted: Vec::new(), describes: Vec::new() };
    let mut last_act = Duration::ZERO;
    while !pending.is_empty() || begun.elapsed() < last_act + AFTERWARDS {
        let at = begun.elapsed();
        assert!(at < PATIENCE, "not acted on: {pending:?}");
        pending.retain(|(volume, work)| {
            let attachments = attachments(ec2, volume);
            let is_waiting = match work {
                Work::Detach(from) => attachments.contains(&(from.clone(), AttachmentState::Attached)),
                Work::Attach(to) => attachments.iter().all(|(instance, _)| instance != to),
            };
            if !is_waiting {
                seen.acted.push(at);
                last_act = at;
            }
            is_waiting
        });
        let describes = Ec2Action::ALL.into_iter().filter(|action| !action.is_mutating());
        seen.describes.push((at, describes.map(|action| calls(ec2, action)).sum()));
        std::thread::sleep(Duration::from_millis(20));
    }
    seen
}
