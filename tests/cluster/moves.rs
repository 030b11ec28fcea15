//! The real attachd moves volumes on a real API server: attach all, move all to other nodes, delete all. Between the
//! phases the world is compared exactly with what is wanted, by the checkers of the simulator; what each phase cost is
//! counted by EC2's stand-in and by the API server's audit log.
//!
//! Every day EC2 is ten times faster than the real one. At its real pace, or with its throttles out of the way:
//!
//! ```text
//! ATTACHD_TEST_PACE=real        cargo test --test cluster -- --nocapture moves quiet
//! ATTACHD_TEST_PACE=unthrottled cargo test --test cluster -- --nocapture moves_everything
//! ```

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, DeleteParams};

use attachd::model::attachment::VolumeAttachment;
use attachd::model::ids::{AttachmentKey, AttachmentName, AwsVolumeId, DriverName, InstanceId};
use attachd::model::time::Monotonic;
use attachd::sim::checkers::Checker;
use attachd::sim::checkers::rest::{check_rest, check_silence};
use attachd::sim::checkers::world::{Ec2Volume, World, instance_of};
use attachd::sim::ec2::Ec2Action;

use crate::apiserver::{User, count_by_kind};
use crate::ec2::Pace;
use crate::fixture::{Cluster, Size, persistent_volume_name};
use crate::world::look;

/// The run the environment asks for.
pub(crate) fn pace() -> Pace {
    match std::env::var("ATTACHD_TEST_PACE").as_deref() {
        Err(_) | Ok("") => Pace::TenTimes,
        Ok("real") => Pace::Real,
        Ok("unthrottled") => Pace::Unthrottled,
        Ok(other) => panic!("ATTACHD_TEST_PACE={other}: allowed are real and unthrottled"),
    }
}

/// Five volumes on three nodes: what one move costs where nothing can be put together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_a_few_volumes() {
    let size = Size::alone(3, 5, pace());
    Moves::of("moves-few", size, Spread::Evenly).await.run(6.0).await;
}

/// Everything of one node to another, as a drain does it: the writes to the nodes are shared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_everything_of_a_node() {
    let size = Size::alone(2, 28, pace());
    Moves::of("moves-node", size, Spread::OneNode).await.run(4.5).await;
}

/// Everything of a cluster at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_everything() {
    let pace = pace();
    let (nodes, volumes) = if pace == Pace::Unthrottled { (200, 1000) } else { (50, 500) };
    Moves::of("moves-all", Size::alone(nodes, volumes, pace), Spread::Evenly).await.run(6.0).await;
}

/// How volumes are spread over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// One after the other over all nodes.
    Evenly,
    /// All on one node.
    OneNode,
}

/// One run.
struct Moves {
    cluster: Cluster,
    checker: Checker,
    spread: Spread,
    volumes: usize,
    patience: Duration,
}

/// Where the counters stood when a phase began.
struct Mark {
    begun: Instant,
    ec2_now: Monotonic,
    audit: usize,
    attaches: u64,
    detaches: u64,
    describes: u64,
}

impl Moves {
    async fn of(label: &str, size: Size, spread: Spread) -> Self {
        let mut cluster = Cluster::start(label, size).await;
        cluster.start_attachd().await;
        // Two calls for each volume at a tenth of what EC2 allows, and a minute.
        let patience = Duration::from_secs(60 + size.volumes as u64 * 4);
        Self { cluster, checker: Checker::new(), spread, volumes: size.volumes, patience }
    }

    /// `most_writes`: of attachd to the API server for each move, on the average.
    async fn run(mut self, most_writes: f64) {
        self.come_to_rest("before anything", &BTreeSet::new()).await;

        let mark = self.mark();
        self.cluster.create_pods(self.pods("a", 0)).await;
        self.come_to_rest("attached", &self.wanted(0)).await;
        let cost = self.report("attach", &mark);
        assert_eq!((cost.attaches, cost.detaches), (self.volumes as u64, 0), "mutating calls of the first attach");

        self.let_buckets_fill().await;
        let mark = self.mark();
        self.cluster.delete_pods(self.pods("a", 0).into_iter().map(|(name, ..)| name).collect()).await;
        self.cluster.create_pods(self.pods("b", 1)).await;
        self.come_to_rest("moved", &self.wanted(1)).await;
        let cost = self.report("move", &mark);
        let each = self.volumes as u64;
        assert_eq!((cost.attaches, cost.detaches), (each, each), "mutating calls of the move");
        assert!(cost.writes <= most_writes, "{} writes for each move, more than {most_writes}", cost.writes);
        // At EC2's own pace most volumes of a large move wait long enough for their turn to be news themselves.
        assert!(cost.events <= 1.0 || self.cluster.pace == Pace::Real, "{} events for each move", cost.events);

        self.let_buckets_fill().await;
        let mark = self.mark();
        self.cluster.delete_pods(self.pods("b", 1).into_iter().map(|(name, ..)| name).collect()).await;
        self.come_to_rest("deleted", &BTreeSet::new()).await;
        let cost = self.report("delete", &mark);
        assert_eq!((cost.attaches, cost.detaches), (0, each), "mutating calls of the deletion");

        self.is_silent().await;
        self.leaves_nothing().await;
        self.cluster.stop_attachd().await;
    }

    /// Pod, volume, node: each volume on the node `shift` behind its own.
    fn pods(&self, generation: &str, shift: usize) -> Vec<(String, usize, usize)> {
        let nodes = self.cluster.machines.len();
        let own = |n| if self.spread == Spread::Evenly { n } else { 0 };
        (0..self.volumes).map(|n| (format!("pod-{n:04}-{generation}"), n, (own(n) + shift) % nodes)).collect()
    }

    fn wanted(&self, shift: usize) -> BTreeSet<(AwsVolumeId, InstanceId)> {
        let place = |(_, n, node): (_, usize, usize)| {
            (self.cluster.volumes[n].clone(), self.cluster.machines[node].instance.clone())
        };
        self.pods("", shift).into_iter().map(place).collect()
    }

    /// Waits until exactly these mounts are there and the world is at rest, then lets every checker look.
    async fn come_to_rest(&mut self, what: &str, wanted: &BTreeSet<(AwsVolumeId, InstanceId)>) {
        let mounts = async |cluster: &Cluster| {
            let mounts: BTreeSet<_> = cluster.kubelets().mounts().into_keys().collect();
            same("mounts", &mounts, wanted).map_err(|differs| format!("{what}: {differs}"))
        };
        self.cluster.wait_until(self.patience, mounts).await;
        let rest = async |cluster: &Cluster| {
            let world = look(cluster).await;
            is_exact(&world, wanted).map_err(|differs| format!("{what}: {differs}"))?;
            match check_rest(&world).first() {
                None => Ok(()),
                Some(violation) => Err(format!("{what}: {violation}")),
            }
        };
        self.cluster.wait_until(self.patience, rest).await;

        let world = look(&self.cluster).await;
        assert_eq!(self.checker.look(&world), [], "{what}");
        assert_eq!(self.cluster.kubelets().faults(), Vec::<String>::new(), "{what}");
        assert_eq!(is_exact(&world, wanted), Ok(()), "{what}");
        assert_eq!(world.counts.ec2_throttles, 0, "{what}: EC2 throttled");
    }

    /// At EC2's pace a phase begins with a full bucket, as on a process that has run for a while.
    async fn let_buckets_fill(&self) {
        if self.cluster.pace == Pace::Real {
            tokio::time::sleep(Duration::from_secs(12)).await;
        }
    }

    /// At rest nothing but polls is sent.
    async fn is_silent(&mut self) {
        let before = look(&self.cluster).await.counts;
        tokio::time::sleep(Duration::from_secs(5)).await;
        self.cluster.assert_attachd_runs();
        assert_eq!(check_silence(&look(&self.cluster).await, &before), []);
    }

    /// A PersistentVolume on its way out is let go.
    async fn leaves_nothing(&mut self) {
        let api: Api<PersistentVolume> = Api::all(self.cluster.client.clone());
        stream::iter(0..self.volumes)
            .map(|n| {
                let api = api.clone();
                async move {
                    let deleted = api.delete(&persistent_volume_name(n), &DeleteParams::default()).await;
                    drop(deleted.expect("delete a persistent volume"));
                }
            })
            .buffer_unordered(16)
            .collect::<Vec<()>>()
            .await;
        let finalizer = DriverName::ebs().attacher_finalizer();
        let let_go = async |cluster: &Cluster| {
            let world = look(cluster).await;
            let holds = |finalizers: &[smol_str::SmolStr]| finalizers.iter().any(|text| *text == finalizer);
            match world.persistent_volumes.values().find(|volume| holds(&volume.finalizers)) {
                None => Ok(()),
                Some(held) => Err(format!("{}: {:?}", held.name, held.finalizers)),
            }
        };
        self.cluster.wait_until(self.patience, let_go).await;
    }

    fn mark(&self) -> Mark {
        let ec2 = &self.cluster.ec2;
        Mark {
            begun: Instant::now(),
            ec2_now: ec2.sandbox().with_model(|_, now| now.monotonic),
            audit: self.cluster.server.audit().len(),
            attaches: calls(ec2, Ec2Action::AttachVolume),
            detaches: calls(ec2, Ec2Action::DetachVolume),
            describes: calls(ec2, Ec2Action::DescribeVolumes),
        }
    }

    /// Tells, and returns, what the phase cost.
    fn report(&self, phase: &str, mark: &Mark) -> Cost {
        let ec2 = &self.cluster.ec2;
        let each = |count: usize| count as f64 / self.volumes as f64;
        let audit = self.cluster.server.audit();
        let sent = audit[mark.audit..].iter().filter(|entry| entry.is_write_of(User::Attachd));
        let (events, writes): (Vec<_>, Vec<_>) = sent.partition(|entry| entry.kind().ends_with(" events"));
        let cost = Cost {
            attaches: calls(ec2, Ec2Action::AttachVolume) - mark.attaches,
            detaches: calls(ec2, Ec2Action::DetachVolume) - mark.detaches,
            writes: each(writes.len()),
            events: each(events.len()),
        };
        let last_accepted = ec2.sandbox().with_model(|model, _| {
            let attachments = model.volumes().flat_map(|volume| volume.attachments());
            attachments.map(|attachment| attachment.requested).filter(|at| *at > mark.ec2_now).max()
        });
        let seconds = mark.begun.elapsed().as_secs_f64();
        let mut text = format!(
            "{} volumes on {} nodes, {:?}: {phase}: {seconds:.1} s to rest",
            self.volumes,
            self.cluster.machines.len(),
            self.cluster.pace
        );
        if let Some(at) = last_accepted {
            let until = at.saturating_since(mark.ec2_now).as_secs_f64();
            let _ = write!(text, ", last AttachVolume accepted after {until:.1} s");
        }
        let describes = calls(ec2, Ec2Action::DescribeVolumes) - mark.describes;
        let _ = write!(
            text,
            "; {} AttachVolume, {} DetachVolume, {describes} DescribeVolumes ({:.1}/s); \
             for each volume {:.2} writes, {:.2} events",
            cost.attaches,
            cost.detaches,
            describes as f64 / seconds,
            cost.writes,
            cost.events
        );
        for ((kind, code), count) in count_by_kind(writes.into_iter().chain(events)) {
            let _ = write!(text, "\n    {:7.2}  {kind} → {code}", each(count));
        }
        let _ = writeln!(std::io::stderr(), "{text}");
        cost
    }
}

/// What a phase cost.
struct Cost {
    attaches: u64,
    detaches: u64,
    writes: f64,
    events: f64,
}

/// Every call of an action, however it ended.
pub(crate) fn calls(ec2: &crate::ec2::Ec2, action: Ec2Action) -> u64 {
    let ended = ec2.counts(action);
    ended.accepted + ended.refused + ended.throttled + ended.unanswered
}

/// Whether EC2, VolumeAttachments and node statuses hold these attachments and no others; if not, what differs.
pub(crate) fn is_exact(world: &World, wanted: &BTreeSet<(AwsVolumeId, InstanceId)>) -> Result<(), String> {
    let attachments = |(id, volume): (&AwsVolumeId, &Ec2Volume)| {
        volume.attachments.iter().map(|a| (id.clone(), a.instance.clone())).collect::<Vec<_>>()
    };
    let ec2: BTreeSet<_> = world.volumes.iter().flat_map(attachments).collect();
    let mut listed = BTreeSet::new();
    let mut names = BTreeSet::new();
    for node in world.nodes.values() {
        let instance = instance_of(node).ok_or_else(|| format!("{} has no instance", node.name))?;
        if !node.volumes_in_use.iter().eq(node.volumes_attached.keys()) {
            return Err(format!("volumesInUse and volumesAttached of {} differ", node.name));
        }
        for volume in node.volumes_attached.keys().filter_map(|name| name.volume_key()) {
            listed.extend(volume.aws_volume_id().map(|id| (id, instance.clone())));
            names.insert(AttachmentName::of(&AttachmentKey { volume: volume.clone(), node: node.name.clone() }));
        }
    }
    let objects: BTreeSet<_> = world.attachments.keys().cloned().collect();
    same("EC2", &ec2, wanted)?;
    same("volumesAttached", &listed, wanted)?;
    same("VolumeAttachments", &objects, &names)?;
    let whole = |object: &&VolumeAttachment| {
        object.status.attached && object.deleting.is_none() && object.has_attacher_finalizer()
    };
    match world.attachments.values().find(|object| !whole(object)) {
        None => Ok(()),
        Some(other) => Err(format!("{other:?}")),
    }
}

/// Whether two sets are the same; if not, what differs.
pub(crate) fn same<T: Ord + Debug>(what: &str, is: &BTreeSet<T>, wanted: &BTreeSet<T>) -> Result<(), String> {
    let (missing, other) = (wanted.difference(is).count(), is.difference(wanted).count());
    if missing + other == 0 {
        return Ok(());
    }
    let (first, second) = (wanted.difference(is).next(), is.difference(wanted).next());
    Err(format!("{what}: {missing} missing ({first:?}), {other} not wanted ({second:?})"))
}
