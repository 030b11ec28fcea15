//! Which fault chance draws, and what ends it.
//!
//! Each kind is drawn as often as any other. Must never leave a kind out without a reason, which stands in `tests`.

use std::time::Duration;

use crate::controller::event::Kind;
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::sim::checkers::wanted::is_marked;
use crate::sim::dice::Dice;
use crate::sim::driver::{CallFault, CallTarget, Commander, Driver, Fault, OldLeader};
use crate::sim::ec2::{AnswerFault, Ec2Action};

/// Kinds of faults of a node's machine, its kubelet or its Node.
const OF_NODES: u64 = 16;
/// Kinds of faults that people make, to one volume.
const BY_PEOPLE: u64 = 13;
/// Kinds of faults of one node or one volume.
pub const KINDS: u64 = OF_NODES + BY_PEOPLE;
/// Kinds of faults of attachd, its calls or its watches.
pub const KINDS_AT_LARGE: u64 = 20;

/// So many of a million pages fail while pages fail.
const PAGES_THAT_FAIL: u32 = 100_000;

/// A fault, or what ends one, so long after the draw.
type Drawn = Vec<(Duration, Fault)>;

const NOW: Duration = Duration::ZERO;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl<C: Commander> Driver<C> {
    pub(super) fn some_volume(&mut self) -> Option<AwsVolumeId> {
        let count = self.apps.iter().count() as u64;
        let index = self.dice.chaos.below(count) as u32;
        self.apps.get(index).map(|app| app.volume.clone())
    }

    pub(super) fn some_node(&mut self) -> Option<NodeName> {
        let index = self.dice.chaos.below(self.kubelets.len() as u64) as usize;
        self.kubelets.keys().nth(index).cloned()
    }

    /// Where the pod of the volume is, or else any node.
    fn node_near(&self, volume: &AwsVolumeId, other: &NodeName) -> NodeName {
        let app = self.apps.of_volume(volume).and_then(|id| self.apps.get(id));
        app.map_or_else(|| other.clone(), |app| app.target.clone())
    }

    /// A fault of one node or one volume, and what ends it.
    pub(super) fn draw_faults(&mut self, volume: AwsVolumeId, any: NodeName) -> Drawn {
        let node = self.node_near(&volume, &any);
        let dice = &mut self.dice.chaos;
        let soon = dice.between(secs(1), secs(60));
        let later = dice.between(secs(30), secs(900));
        match dice.below(KINDS) {
            kind if kind < OF_NODES => of_node(kind, node, soon, later),
            kind => self.by_people(kind - OF_NODES, volume, (node, any), later),
        }
    }

    fn by_people(&self, kind: u64, volume: AwsVolumeId, (node, any): (NodeName, NodeName), later: Duration) -> Drawn {
        match kind {
            0 => vec![(NOW, Fault::DeleteAttachment(volume, node))],
            1 => vec![(NOW, Fault::StripFinalizers(volume, node))],
            2 => vec![(NOW, Fault::DeletePod(volume))],
            3 => vec![(NOW, Fault::ForceDeletePod(volume))],
            4 => vec![(NOW, Fault::FailPod(volume))],
            5 => vec![(NOW, Fault::DetachByHand(volume))],
            6 => vec![(NOW, Fault::ForceDetachByHand(volume))],
            7 => vec![(NOW, Fault::CarryByHand(volume.clone(), any)), (secs(60) + later, Fault::DetachByHand(volume))],
            8 => vec![(NOW, Fault::AttachByHand(volume.clone(), any)), (later, Fault::DetachByHand(volume))],
            9 => vec![(NOW, Fault::DeletePersistentVolume(volume.clone())), (later, Fault::RestoreClaim(volume))],
            10 => vec![(NOW, Fault::DeleteClaim(volume.clone())), (later, Fault::RestoreClaim(volume))],
            11 => {
                let (volume, node) = self.held_for_want_of_word().unwrap_or((volume, node));
                vec![(NOW, Fault::AnnotateUnmounted(volume, node))]
            }
            _ => vec![(NOW, Fault::ScaleWorkload(volume.clone(), false)), (later, Fault::ScaleWorkload(volume, true))],
        }
    }

    /// A volume that its node keeps until somebody vouches that it is not mounted there, which is true.
    fn held_for_want_of_word(&self) -> Option<(AwsVolumeId, NodeName)> {
        let held = |volume: &AwsVolumeId, node: &&NodeName| {
            let key = self.key_of(volume);
            let marked = self.api.node(node).is_some_and(|node| is_marked(node, &key));
            marked && self.machine(node).is_some_and(|machine| !machine.mounts().contains_key(&key))
        };
        self.apps.iter().find_map(|(_, app)| {
            let node = self.kubelets.keys().find(|node| held(&app.volume, node))?;
            Some((app.volume.clone(), node.clone()))
        })
    }

    /// A fault of attachd, its calls or its watches.
    pub(super) fn draw_fault_at_large(&mut self) -> Fault {
        let dice = &mut self.dice.chaos;
        let soon = dice.between(secs(1), secs(60));
        let write = one_of(dice, &CallTarget::WRITES);
        let any_call = one_of(dice, &CallTarget::ALL);
        let kind = one_of(dice, &Kind::ALL);
        let action = one_of(dice, &Ec2Action::ALL);
        match dice.below(KINDS_AT_LARGE) {
            0 => Fault::ChangeLeader(OldLeader::Dies),
            1 => Fault::ChangeLeader(OldLeader::LivesOn),
            2 => Fault::RestartController,
            3 => Fault::NextCall(any_call, CallFault::LoseReply),
            4 => Fault::NextCall(write, CallFault::ApplyLate(soon + secs(9))),
            5 => Fault::NextCall(write, CallFault::Duplicate(soon)),
            6 => Fault::NextCall(any_call, CallFault::LoseRequest),
            7 => Fault::NextCall(any_call, CallFault::Throttle),
            8 => Fault::NextCall(any_call, CallFault::Slow(soon / 6)),
            9 => Fault::NextCall(any_call, CallFault::DelaySend(soon / 6)),
            10 => Fault::StaleEc2Reads(secs(10)),
            11 => Fault::StallWatch(None, soon),
            12 => Fault::StallWatch(Some(kind), soon),
            13 => Fault::Relist(kind),
            14 => Fault::Ec2Outage(soon * 3),
            15 => Fault::OtherRegion(soon * 3),
            16 => Fault::FailPages(PAGES_THAT_FAIL, soon * 3),
            17 => Fault::NextAnswer(action, AnswerFault::Unreadable),
            18 => Fault::NextAnswer(action, AnswerFault::LeavesOneOut),
            _ => Fault::NextAnswer(action, AnswerFault::Half),
        }
    }
}

fn of_node(kind: u64, node: NodeName, soon: Duration, later: Duration) -> Drawn {
    let of = || node.clone();
    let replaced = |old_terminated| Fault::ReplaceInstance { node: node.clone(), old_terminated };
    match kind {
        0 => vec![(NOW, Fault::ReplaceNodeObject(node))],
        1 => vec![(NOW, Fault::DeleteNode(of())), (later, Fault::ReplaceNodeObject(node))],
        2 => vec![(NOW, Fault::RestartKubelet(node))],
        3 => vec![(NOW, Fault::Partition(of())), (later, Fault::HealPartition(node))],
        4 => vec![(NOW, Fault::StallKubelet(node, soon))],
        5 => vec![(NOW, Fault::SlowUnmount(of(), later)), (later, Fault::RestartKubelet(node))],
        6 => vec![(NOW, Fault::TerminateInstance(of())), (secs(300) + later, replaced(true))],
        7 => vec![(NOW, Fault::StopInstance(of())), (secs(60) + later, Fault::StartInstance(node))],
        8 => vec![(NOW, Fault::RebootInstance(node))],
        9 => vec![
            (NOW, Fault::StopInstance(of())),
            (secs(60) + soon, Fault::Taint(of())),
            (secs(180) + later, Fault::RemoveTaint(of())),
            (secs(180) + later, Fault::StartInstance(node)),
        ],
        10 => vec![(NOW, Fault::HangMachine(of())), (secs(300) + later, Fault::RebootInstance(node))],
        11 => vec![(NOW, Fault::HideInstance(node, later))],
        12 => vec![(NOW, Fault::FlickerInstance(node, later))],
        13 => vec![(NOW, replaced(false)), (secs(60) + later, Fault::TerminateOldInstances(node))],
        14 => vec![(NOW, Fault::Drain(of())), (later, Fault::Uncordon(node))],
        _ => vec![(NOW, Fault::StopKubelet(of())), (secs(120) + later, Fault::RestartKubelet(node))],
    }
}

fn one_of<T: Copy, const N: usize>(dice: &mut Dice, items: &[T; N]) -> T {
    items[dice.below(N as u64) as usize]
}
