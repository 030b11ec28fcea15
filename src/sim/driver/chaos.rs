//! Faults by chance, for worlds too large to place them one by one.

use std::time::Duration;

use super::{CallFault, CallTarget, Commander, Driver, Due, Fault, OldLeader};
use crate::controller::event::Kind;
use crate::model::ids::{AwsVolumeId, NodeName};

/// How often chance strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChaosOptions {
    /// Between two faults.
    pub every: (Duration, Duration),
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

    /// A fault, and what ends it.
    fn draw_faults(&mut self, volume: AwsVolumeId, any: NodeName) -> Vec<(Duration, Fault)> {
        let now = Duration::ZERO;
        let dice = &mut self.dice.chaos;
        let secs = Duration::from_secs;
        let soon = dice.between(secs(1), secs(60));
        let later = dice.between(secs(30), secs(900));
        let number = dice.below(27);
        let node = self.node_near(&volume, any.clone());
        let target =
            [CallTarget::Ec2Mutating, CallTarget::KubernetesWrite, CallTarget::NodeStatus, CallTarget::Attachment]
                [(number % 4) as usize];
        match number {
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
            10 => vec![(now, Fault::ChangeLeader(OldLeader::Dies))],
            11 => vec![(now, Fault::ChangeLeader(OldLeader::LivesOn))],
            12 => vec![(now, Fault::RestartController)],
            13 => vec![(now, Fault::NextCall(target, CallFault::LoseReply))],
            14 => vec![(now, Fault::NextCall(target, CallFault::ApplyLate(soon + secs(9))))],
            15 => vec![(now, Fault::NextCall(target, CallFault::Duplicate(soon)))],
            16 => vec![(now, Fault::NextCall(target, CallFault::LoseRequest))],
            17 => vec![(now, Fault::StaleEc2Reads(secs(10)))],
            18 => vec![(now, Fault::StallWatch(None, soon))],
            19 => vec![(now, Fault::StallWatch(Some(Kind::ALL[(soon.as_millis() % 7) as usize]), soon))],
            20 => vec![(now, Fault::Relist(Kind::ALL[(soon.as_millis() % 7) as usize]))],
            21 => vec![(now, Fault::DeleteAttachment(volume, node))],
            22 => vec![(now, Fault::StripFinalizers(volume, node))],
            23 => vec![(now, Fault::DeletePod(volume))],
            24 => vec![(now, Fault::ForceDeletePod(volume))],
            25 => vec![(now, Fault::FailPod(volume))],
            _ => vec![(now, Fault::DetachByHand(volume))],
        }
    }
}
