//! Which faults meet in pairs, and in which worlds.
//!
//! Flow: [`super::placement`] asks here for the kinds, the command line for the worlds. All kinds in all small worlds would
//! be some four hundred million runs. Losses found by model checking were made of one to three faults of the kinds here,
//! each in the one wrong place: these meet in every pair, the others are placed alone and drawn by chance (decision 11).
//! Must never lose a kind to get green.

use crate::sim::driver::{CallFault, Fault};

/// The worlds of pairs: a pod is moved, deleted, force-deleted, made again on its node; a Node object is deleted and
/// registered again; a leader changes.
pub const WORLDS: [&str; 6] = ["move", "delete", "force-delete", "recreate", "node-returns", "leader-change"];

/// Whether the fault is placed together with every other such fault.
pub fn meets_others(fault: &Fault) -> bool {
    match fault {
        // Nodes, their names, and the machines behind them.
        Fault::DeleteNode(_)
        | Fault::ReplaceNodeObject(_)
        | Fault::ReplaceInstance { .. }
        | Fault::RestartKubelet(_)
        | Fault::Partition(_)
        | Fault::TerminateInstance(_)
        | Fault::StopInstance(_)
        | Fault::RebootInstance(_)
        | Fault::Taint(_) => true,
        // Who leads, and what is believed.
        Fault::ChangeLeader(_) | Fault::StaleEc2Reads(_) | Fault::StallWatch(..) => true,
        // Calls whose effect and answer part ways.
        Fault::NextCall(_, CallFault::LoseReply | CallFault::ApplyLate(_)) => true,
        // People.
        Fault::DeleteAttachment(..) | Fault::StripFinalizers(..) | Fault::DetachByHand(_) | Fault::AttachByHand(..) => {
            true
        }
        // Ends of the above, and what harms one call or one answer only.
        Fault::HealPartition(_)
        | Fault::StartInstance(_)
        | Fault::RemoveTaint(_)
        | Fault::TerminateOldInstances(_)
        | Fault::RestoreClaim(_)
        | Fault::RestartController
        | Fault::Relist(_)
        | Fault::NextCall(..)
        | Fault::NextAnswer(..) => false,
        // Slowness, and a world that shows less than there is.
        Fault::StopKubelet(_)
        | Fault::StallKubelet(..)
        | Fault::SlowUnmount(..)
        | Fault::HangMachine(_)
        | Fault::HideInstance(..)
        | Fault::FlickerInstance(..)
        | Fault::OtherRegion(_)
        | Fault::Ec2Outage(_)
        | Fault::FailPages(..) => false,
        // What the worlds themselves are made of, and what people seldom do.
        Fault::DeletePersistentVolume(_)
        | Fault::DeleteClaim(_)
        | Fault::AnnotateUnmounted(..)
        | Fault::ForceDetachByHand(_)
        | Fault::CarryByHand(..)
        | Fault::DeletePod(_)
        | Fault::ForceDeletePod(_)
        | Fault::MovePod(..)
        | Fault::ScaleWorkload(..)
        | Fault::Drain(_)
        | Fault::Uncordon(_)
        | Fault::FailPod(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::faults::catalogue::catalogue;
    use crate::sim::scenarios::small::SmallWorld;

    #[test]
    fn every_world_of_pairs_is_searched_for_single_faults_too() {
        for name in WORLDS {
            assert!(SmallWorld::ALL.iter().any(|world| world.name == name), "{name}");
        }
    }

    #[test]
    fn every_kind_that_meets_others_is_placed() {
        let world = SmallWorld::named(WORLDS[0]).expect("a small world");
        let placed = catalogue(&world.volume(), &world.nodes());
        let paired: Vec<&str> = placed
            .iter()
            .filter(|placeable| meets_others(&placeable.fault))
            .map(|placeable| placeable.name.as_str())
            .collect();
        for kind in [
            "delete-node-n1",
            "replace-node-object-n2",
            "replace-instance-old-runs-n1",
            "restart-kubelet-n2",
            "partition-n1",
            "new-leader-old-lives",
            "lose-reply-attach",
            "apply-late-detach",
            "apply-late-node-status",
            "stale-ec2-reads",
            "stall-all-watches",
            "terminate-n1",
            "stop-n2",
            "reboot-n1",
            "taint-n1",
            "delete-attachment-n1",
            "strip-finalizers-n2",
            "detach-by-hand",
            "attach-by-hand-n2",
        ] {
            assert!(paired.contains(&kind), "{kind} is missing of {paired:?}");
        }
        assert!(paired.len() < placed.len(), "what is placed alone only");
    }
}
