//! attachd dies (KILL) at every step of attach and move, and starts again at once: nothing is lost, nothing leaks, and no
//! call is made a second time where EC2 shows that the first one did its work.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use attachd::model::ids::{AttachmentKey, AttachmentName, VolumeKey};
use attachd::model::volume::AttachmentState;
use attachd::sim::checkers::rest::check_rest;
use attachd::sim::ec2::{CallCounts, Ec2Action, Ec2Fault, LostEffect};

use crate::apiserver::{AuditEntry, AuditTail, User};
use crate::ec2::Pace;
use crate::failover::wait_until_mounted;
use crate::fixture::{Cluster, Size, persistent_volume_name};
use crate::moves::is_exact;
use crate::world::look;

/// A step of the work, as soon as it shows from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The PersistentVolume has its finalizer.
    Protected,
    /// The VolumeAttachment is made.
    Made,
    /// AttachVolume was sent, and is lost on the way.
    AttachLost,
    /// AttachVolume was carried out, and its answer has not come.
    AttachUnanswered,
    /// AttachVolume was answered; EC2 attaches.
    Attaching,
    /// EC2 shows it attached.
    Attached,
    /// The VolumeAttachment says so.
    Stated,
    /// The node lists it.
    Listed,
    /// The node lists it no more.
    Unlisted,
    /// The node was read once more.
    Read,
    /// The VolumeAttachment is being deleted.
    Deleted,
    /// DetachVolume was sent, and is lost on the way.
    DetachLost,
    /// DetachVolume was carried out, and its answer has not come.
    DetachUnanswered,
    /// DetachVolume was answered; EC2 detaches.
    Detaching,
    /// EC2 shows it attached nowhere.
    Detached,
    /// The VolumeAttachment is gone.
    Finished,
}

use Step::*;

const OF_ATTACH: [Step; 8] = [Protected, Made, AttachLost, AttachUnanswered, Attaching, Attached, Stated, Listed];
const OF_MOVE: [Step; 8] = [Unlisted, Read, Deleted, DetachLost, DetachUnanswered, Detaching, Detached, Finished];

/// How long a call waits for its answer where it shall not come before the end.
const NO_ANSWER_FOR: Duration = Duration::from_secs(30);
/// A call of a process that died counts as under way for 70 s (rule 7).
const PATIENCE: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attachd_dies_at_every_step_and_nothing_is_lost_or_done_twice() {
    let steps = [OF_ATTACH, OF_MOVE].concat();
    let spare = steps.len();
    // Each volume has a machine of its own to begin with, and its step.
    let mut cluster = Cluster::start("kill", Size::with_others(spare + 1, steps.len(), Pace::TenTimes)).await;
    cluster.start_attachd().await;
    let moved: Vec<usize> = (OF_ATTACH.len()..steps.len()).collect();
    cluster.create_pods(moved.iter().map(|n| (format!("pod-{n:02}-a"), *n, *n)).collect()).await;
    wait_until_mounted(&mut cluster, moved.iter().map(|n| (*n, *n)).collect()).await;

    for (n, step) in steps.iter().enumerate() {
        let written = cluster.server.audit_from_now();
        cluster.ec2.prepare(*step).await;
        if OF_ATTACH.contains(step) {
            drop(cluster.create_pod(&format!("pod-{n:02}-a"), n, n).await);
        } else {
            cluster.delete_pod(&format!("pod-{n:02}-a")).await;
            drop(cluster.create_pod(&format!("pod-{n:02}-b"), n, spare).await);
        }
        wait_for(&mut cluster, n, *step, written).await;
        cluster.kill_attachd().await;
        cluster.start_attachd().await;
    }

    let places: Vec<_> = (0..steps.len()).map(|n| (n, if moved.contains(&n) { spare } else { n })).collect();
    wait_until_mounted(&mut cluster, places.clone()).await;
    let at = |(n, node): &(usize, usize)| (cluster.volumes[*n].clone(), cluster.machines[*node].instance.clone());
    let wanted: BTreeSet<_> = places.iter().map(at).collect();
    let rest = async |cluster: &Cluster| {
        let world = look(cluster).await;
        is_exact(&world, &wanted)?;
        check_rest(&world).first().map_or(Ok(()), |violation| Err(violation.to_string()))
    };
    cluster.wait_until(PATIENCE, rest).await;
    assert_eq!(cluster.kubelets().faults(), Vec::<String>::new());

    // One call for each attach and detach, and one more for each that never arrived.
    let moves = moved.len() as u64;
    let once = |accepted| CallCounts { accepted, refused: 0, throttled: 0, unanswered: 1 };
    assert_eq!(cluster.ec2.counts(Ec2Action::AttachVolume), once(OF_ATTACH.len() as u64 + 2 * moves));
    assert_eq!(cluster.ec2.counts(Ec2Action::DetachVolume), once(moves));
    for (n, node) in &places {
        let ended = cluster.ec2.ended(&cluster.volumes[*n]).len();
        assert_eq!(ended, usize::from(node == &spare), "attachments of {} that ended", cluster.volumes[*n]);
    }
    cluster.stop_attachd().await;
}

impl crate::ec2::Ec2 {
    /// Puts in what keeps the answer to the step's call away.
    async fn prepare(&self, step: Step) {
        let lose = |action| {
            let fault = Ec2Fault::LoseAnswer { action, effect: LostEffect::NotApplied, count: 1 };
            self.sandbox().with_model(|model, _| model.inject(fault));
        };
        match step {
            AttachLost => lose(Ec2Action::AttachVolume),
            DetachLost => lose(Ec2Action::DetachVolume),
            AttachUnanswered => self.delay_next(Ec2Action::AttachVolume, NO_ANSWER_FOR).await,
            DetachUnanswered => self.delay_next(Ec2Action::DetachVolume, NO_ANSWER_FOR).await,
            _ => {}
        }
    }
}

/// Waits until the step of volume `n` shows, looking as often as a kill in the middle of it needs.
async fn wait_for(cluster: &mut Cluster, n: usize, step: Step, mut written: AuditTail) {
    let begun = Instant::now();
    let mut entries = Vec::new();
    while !shows(cluster, n, step, &entries) {
        cluster.assert_attachd_runs();
        assert!(begun.elapsed() < PATIENCE, "{step:?} of {} does not show", cluster.volumes[n]);
        tokio::time::sleep(Duration::from_millis(2)).await;
        entries.extend(written.read());
    }
}

fn shows(cluster: &Cluster, n: usize, step: Step, written: &[AuditEntry]) -> bool {
    let (node, volume) = (&cluster.machines[n].node, &cluster.volumes[n]);
    let attachment = AttachmentName::of(&AttachmentKey { volume: VolumeKey::ebs(volume), node: node.clone() });
    let done = |kind: &str, name: &str| {
        let is_it = |entry: &AuditEntry| {
            entry.user.username == User::Attachd.name() && entry.kind() == kind && (200..300).contains(&entry.code())
        };
        written.iter().any(|entry| is_it(entry) && (name.is_empty() || entry.names(name)))
    };
    let state =
        |wanted: AttachmentState| cluster.ec2.attachment_state(&cluster.machines[n].instance, volume) == Some(wanted);
    let unanswered = |action| cluster.ec2.counts(action).unanswered > 0;
    match step {
        Protected => done("patch persistentvolumes", &persistent_volume_name(n)),
        // The audit log has no name for what is made.
        Made => done("create volumeattachments", ""),
        AttachLost => unanswered(Ec2Action::AttachVolume),
        AttachUnanswered | Attaching => state(AttachmentState::Attaching),
        Attached => state(AttachmentState::Attached),
        Stated => done("patch volumeattachments/status", &attachment.text()),
        Listed | Unlisted => done("patch nodes/status", node.as_str()),
        Read => done("get nodes", node.as_str()),
        Deleted => done("delete volumeattachments", &attachment.text()),
        DetachLost => unanswered(Ec2Action::DetachVolume),
        DetachUnanswered | Detaching => state(AttachmentState::Detaching),
        Detached => cluster.ec2.attachment_state(&cluster.machines[n].instance, volume).is_none(),
        Finished => done("patch volumeattachments", &attachment.text()),
    }
}
