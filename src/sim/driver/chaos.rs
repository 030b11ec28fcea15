//! Faults by chance, for worlds too large to place them one by one.

use std::time::Duration;

use super::{CallFault, CallTarget, Commander, Driver, Due, Fault, OldLeader};
use crate::controller::event::Kind;
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::sim::ec2::{AnswerFault, Ec2Action};

/// How often chance strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChaosOptions {
    /// Between two faults of a node or a volume, of the whole world.
    pub every: (Duration, Duration),
    /// Between two faults of attachd, its calls or its watches.
    pub at_large_every: (Duration, Duration),
    /// Between two moves of a pod of the whole world (`None`: workloads stay where they are).
    pub move_every: Option<(Duration, Duration)>,
}

impl<C: Commander> Driver<C> {
    /// From now on chance draws faults.
    pub fn begin_chaos(&mut self, options: ChaosOptions) {
        self.begin_chaos_after(Duration::ZERO, options);
    }

    /// After a while chance begins to draw faults.
    pub fn begin_chaos_after(&mut self, after: Duration, options: ChaosOptions) {
        self.chaos = Some(options);
        let at = self.now.monotonic + after;
        self.schedule_due(at, Due::Chaos);
        self.schedule_due(at, Due::ChaosAtLarge);
        if options.move_every.is_some() {
            self.schedule_due(at, Due::Move);
        }
    }

    /// Moves the pod of one workload to another node.
    pub(super) fn draw_move(&mut self) {
        let Some((from, to)) = self.chaos.and_then(|chaos| chaos.move_every) else { return };
        let next = self.now.monotonic + self.dice.chaos.between(from, to);
        self.schedule_due(next, Due::Move);
        if let (Some(volume), Some(node)) = (self.some_volume(), self.some_node()) {
            self.inject(Fault::MovePod(volume, node));
        }
    }

    /// Lets one fault of attachd's surroundings happen, and plans the next.
    pub(super) fn draw_chaos_at_large(&mut self) {
        let Some(chaos) = self.chaos else { return };
        let (from, to) = chaos.at_large_every;
        let next = self.now.monotonic + self.dice.chaos.between(from, to);
        self.schedule_due(next, Due::ChaosAtLarge);
        let fault = self.draw_fault_at_large();
        self.inject(fault);
    }

    /// Lets one fault of chance happen, and plans the next.
    pub(super) fn draw_chaos(&mut self) {
        let Some(chaos) = self.chaos else { return };
        let next = self.now.monotonic + self.dice.chaos.between(chaos.every.0, chaos.every.1);
        self.schedule_due(next, Due::Chaos);
        let (Some(volume), Some(node)) = (self.some_volume(), self.some_node()) else { return };
        for (after, fault) in self.draw_faults(volume, node) {
            if after.is_zero() {
                self.inject(fault);
            } else {
                self.schedule(after, fault);
            }
        }
    }

    fn some_volume(&mut self) -> Option<AwsVolumeId> {
        let count = self.apps.iter().count() as u64;
        let index = self.dice.chaos.below(count) as u32;
        self.apps.get(index).map(|app| app.volume.clone())
    }

    fn some_node(&mut self) -> Option<NodeName> {
        let index = self.dice.chaos.below(self.kubelets.len() as u64) as usize;
        self.kubelets.keys().nth(index).cloned()
    }

    /// Where the pod of the volume is, or else any node.
    fn node_near(&self, volume: &AwsVolumeId, other: NodeName) -> NodeName {
        self.apps.of_volume(volume).and_then(|id| self.apps.get(id)).map_or(other, |app| app.target.clone())
    }

    /// A fault of one node or one volume, and what ends it.
    fn draw_faults(&mut self, volume: AwsVolumeId, any: NodeName) -> Vec<(Duration, Fault)> {
        let now = Duration::ZERO;
        let node = self.node_near(&volume, any);
        let dice = &mut self.dice.chaos;
        let secs = Duration::from_secs;
        let soon = dice.between(secs(1), secs(60));
        let later = dice.between(secs(30), secs(900));
        match dice.below(20) {
            0 => vec![(now, Fault::ReplaceNodeObject(node))],
            1 => vec![(now, Fault::DeleteNode(node.clone())), (later, Fault::ReplaceNodeObject(node))],
            2 => vec![(now, Fault::RestartKubelet(node))],
            3 => vec![(now, Fault::Partition(node.clone())), (later, Fault::HealPartition(node))],
            4 => vec![(now, Fault::StallKubelet(node, soon))],
            5 => vec![(now, Fault::SlowUnmount(node.clone(), later)), (later, Fault::RestartKubelet(node))],
            6 => {
                let again = Fault::ReplaceInstance { node: node.clone(), old_terminated: true };
                vec![(now, Fault::TerminateInstance(node)), (later + secs(300), again)]
            }
            7 => vec![(now, Fault::StopInstance(node.clone())), (later + secs(60), Fault::StartInstance(node))],
            8 => vec![(now, Fault::RebootInstance(node))],
            9 => vec![
                (now, Fault::StopInstance(node.clone())),
                (secs(60) + soon, Fault::Taint(node.clone())),
                (secs(180) + later, Fault::RemoveTaint(node.clone())),
                (secs(180) + later, Fault::StartInstance(node)),
            ],
            10 => vec![(now, Fault::DeleteAttachment(volume, node))],
            11 => vec![(now, Fault::StripFinalizers(volume, node))],
            12 => vec![(now, Fault::DeletePod(volume))],
            13 => vec![(now, Fault::ForceDeletePod(volume))],
            14 => vec![(now, Fault::FailPod(volume))],
            15 => vec![(now, Fault::DetachByHand(volume))],
            16 => vec![(now, Fault::HangMachine(node.clone())), (later + secs(300), Fault::RebootInstance(node))],
            17 => vec![(now, Fault::HideInstance(node, later))],
            18 => vec![(now, Fault::FlickerInstance(node, later))],
            _ => vec![(now, Fault::StopKubelet(node.clone())), (later + secs(120), Fault::RestartKubelet(node))],
        }
    }

    /// A fault of attachd, its calls or its watches.
    fn draw_fault_at_large(&mut self) -> Fault {
        let dice = &mut self.dice.chaos;
        let secs = Duration::from_secs;
        let soon = dice.between(secs(1), secs(60));
        let targets =
            [CallTarget::Ec2Mutating, CallTarget::KubernetesWrite, CallTarget::NodeStatus, CallTarget::Attachment];
        let target = targets[dice.below(4) as usize];
        let kind = Kind::ALL[dice.below(Kind::ALL.len() as u64) as usize];
        let actions = Ec2Action::ALL;
        let action = actions[dice.below(actions.len() as u64) as usize];
        match dice.below(15) {
            0 => Fault::ChangeLeader(OldLeader::Dies),
            1 => Fault::ChangeLeader(OldLeader::LivesOn),
            2 => Fault::RestartController,
            3 => Fault::NextCall(target, CallFault::LoseReply),
            4 => Fault::NextCall(target, CallFault::ApplyLate(soon + secs(9))),
            5 => Fault::NextCall(target, CallFault::Duplicate(soon)),
            6 => Fault::NextCall(target, CallFault::LoseRequest),
            7 => Fault::StaleEc2Reads(secs(10)),
            8 => Fault::StallWatch(None, soon),
            9 => Fault::StallWatch(Some(kind), soon),
            10 => Fault::Ec2Outage(soon * 3),
            11 => Fault::NextAnswer(action, AnswerFault::Unreadable),
            12 => Fault::NextAnswer(action, AnswerFault::LeavesOneOut),
            13 => Fault::NextAnswer(action, AnswerFault::Half),
            _ => Fault::Relist(kind),
        }
    }
}
