//! The faults that are placed in the small worlds, each under a short name that a specification can carry.
//!
//! Owns the choice of kinds and of the one duration each gets. Must never be shortened to get green.

use std::time::Duration;

use crate::controller::event::Kind;
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::sim::driver::{CallFault, CallTarget, Fault, OldLeader};
use crate::sim::ec2::{AnswerFault, Ec2Action};

/// A fault under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeable {
    /// Unique in the catalogue: `restart-kubelet-n1`.
    pub name: String,
    /// The fault.
    pub fault: Fault,
}

/// Longer than a call's timeout (10 s), shorter than W (70 s): the effect comes after the client gave up, while the core
/// must still reckon with it.
const LATE: Duration = Duration::from_secs(45);
/// Long enough for several polls to be fooled.
const STALE: Duration = Duration::from_secs(25);
/// Long enough for a whole move to happen behind a watch's back.
const STALLED: Duration = Duration::from_secs(90);
/// Longer than it takes until absence is believed (30 s) and than two sweeps of a small world.
const UNSEEN: Duration = Duration::from_secs(150);
/// Longer than an unmount ever takes a healthy node.
const SLOW: Duration = Duration::from_secs(120);

/// Every fault for a world of one volume and two nodes.
pub fn catalogue(volume: &AwsVolumeId, nodes: &[NodeName; 2]) -> Vec<Placeable> {
    let mut all = Vec::new();
    for node in nodes {
        node_faults(node, &mut all);
        people(volume, node, &mut all);
    }
    let mut add = |name: &str, fault| all.push(Placeable { name: name.to_owned(), fault });
    add("new-leader-old-dies", Fault::ChangeLeader(OldLeader::Dies));
    add("new-leader-old-lives", Fault::ChangeLeader(OldLeader::LivesOn));
    add("restart-controller", Fault::RestartController);
    add("stale-ec2-reads", Fault::StaleEc2Reads(STALE));
    add("stall-all-watches", Fault::StallWatch(None, STALLED));
    for (name, kind) in [("pods", Kind::Pod), ("nodes", Kind::Node), ("attachments", Kind::Attachment)] {
        add(&format!("stall-watch-{name}"), Fault::StallWatch(Some(kind), STALLED));
        add(&format!("relist-{name}"), Fault::Relist(kind));
    }
    add("ec2-outage", Fault::Ec2Outage(UNSEEN));
    add("other-region", Fault::OtherRegion(UNSEEN));
    add("delete-pv", Fault::DeletePersistentVolume(volume.clone()));
    add("delete-claim", Fault::DeleteClaim(volume.clone()));
    add("detach-by-hand", Fault::DetachByHand(volume.clone()));
    add("force-detach-by-hand", Fault::ForceDetachByHand(volume.clone()));
    add("delete-pod", Fault::DeletePod(volume.clone()));
    add("force-delete-pod", Fault::ForceDeletePod(volume.clone()));
    add("fail-pod", Fault::FailPod(volume.clone()));
    call_faults(&mut all);
    answer_faults(&mut all);
    all
}

fn node_faults(node: &NodeName, all: &mut Vec<Placeable>) {
    let of = || node.clone();
    let replaced = |old_terminated| Fault::ReplaceInstance { node: node.clone(), old_terminated };
    let faults = [
        ("delete-node", Fault::DeleteNode(of())),
        ("replace-node-object", Fault::ReplaceNodeObject(of())),
        ("replace-instance-old-runs", replaced(false)),
        ("replace-instance-old-terminated", replaced(true)),
        ("restart-kubelet", Fault::RestartKubelet(of())),
        ("stop-kubelet", Fault::StopKubelet(of())),
        ("partition", Fault::Partition(of())),
        ("heal-partition", Fault::HealPartition(of())),
        ("stall-kubelet", Fault::StallKubelet(of(), STALLED)),
        ("slow-unmount", Fault::SlowUnmount(of(), SLOW)),
        ("terminate", Fault::TerminateInstance(of())),
        ("stop", Fault::StopInstance(of())),
        ("start", Fault::StartInstance(of())),
        ("reboot", Fault::RebootInstance(of())),
        ("hang", Fault::HangMachine(of())),
        ("hide-instance", Fault::HideInstance(of(), UNSEEN)),
        ("flicker-instance", Fault::FlickerInstance(of(), UNSEEN)),
        ("taint", Fault::Taint(of())),
        ("untaint", Fault::RemoveTaint(of())),
    ];
    all.extend(faults.map(|(name, fault)| Placeable { name: format!("{name}-{node}"), fault }));
}

fn people(volume: &AwsVolumeId, node: &NodeName, all: &mut Vec<Placeable>) {
    let of = || (volume.clone(), node.clone());
    let on = |make: fn(AwsVolumeId, NodeName) -> Fault| {
        let (volume, node) = of();
        make(volume, node)
    };
    let faults = [
        ("delete-attachment", on(Fault::DeleteAttachment)),
        ("strip-finalizers", on(Fault::StripFinalizers)),
        ("annotate-unmounted", on(Fault::AnnotateUnmounted)),
        ("attach-by-hand", on(Fault::AttachByHand)),
        ("carry-by-hand", on(Fault::CarryByHand)),
        ("move-pod", on(Fault::MovePod)),
    ];
    all.extend(faults.map(|(name, fault)| Placeable { name: format!("{name}-{node}"), fault }));
}

fn call_faults(all: &mut Vec<Placeable>) {
    let targets = [
        ("attach", CallTarget::AttachVolume),
        ("detach", CallTarget::DetachVolume),
        ("describe", CallTarget::Ec2Describe),
        ("node-status", CallTarget::NodeStatus),
        ("attachment", CallTarget::Attachment),
        ("live-read", CallTarget::LiveRead),
    ];
    let faults = [
        ("lose-request", CallFault::LoseRequest),
        ("lose-reply", CallFault::LoseReply),
        ("apply-late", CallFault::ApplyLate(LATE)),
        ("duplicate", CallFault::Duplicate(LATE)),
        ("throttle", CallFault::Throttle),
        ("delay-send", CallFault::DelaySend(Duration::from_secs(6))),
    ];
    for (target_name, target) in targets {
        let reads = matches!(target, CallTarget::Ec2Describe | CallTarget::LiveRead);
        for (fault_name, fault) in faults {
            // Only a write can come late or twice; a lost request and a lost reply of a read are one.
            let only_for_writes =
                matches!(fault, CallFault::ApplyLate(_) | CallFault::Duplicate(_) | CallFault::LoseRequest);
            if !(reads && only_for_writes) {
                let name = format!("{fault_name}-{target_name}");
                all.push(Placeable { name, fault: Fault::NextCall(target, fault) });
            }
        }
    }
}

fn answer_faults(all: &mut Vec<Placeable>) {
    let actions = [
        ("volumes", Ec2Action::DescribeVolumes),
        ("instances", Ec2Action::DescribeInstances),
        ("checks", Ec2Action::DescribeInstanceStatus),
    ];
    let faults =
        [("html", AnswerFault::Unreadable), ("leave-out", AnswerFault::LeavesOneOut), ("half", AnswerFault::Half)];
    for (action_name, action) in actions {
        for (fault_name, with) in faults {
            let name = format!("{fault_name}-{action_name}");
            all.push(Placeable { name, fault: Fault::NextAnswer(action, with) });
        }
    }
}

/// The kinds of call, as [`crate::sim::checkers::world::CallCounts`] names them, that a target stands for.
pub(super) fn kinds_of(target: CallTarget) -> &'static [&'static str] {
    const ATTACHMENT: [&str; 5] = [
        "CreateAttachment",
        "RecordAttachment",
        "PatchAttachmentStatus",
        "SetAttachmentFinalizers",
        "DeleteAttachment",
    ];
    match target {
        CallTarget::AttachVolume => &["AttachVolume"],
        CallTarget::DetachVolume => &["DetachVolume"],
        CallTarget::Ec2Mutating => &["AttachVolume", "DetachVolume"],
        CallTarget::Ec2Describe => {
            &["DescribeVolumes", "DescribeInstances", "DescribeInstanceTypes", "DescribeInstanceStatus"]
        }
        CallTarget::KubernetesWrite | CallTarget::Attachment => &ATTACHMENT,
        CallTarget::NodeStatus => &["PatchNodeStatus"],
        CallTarget::LiveRead => &["GetNode", "ListPods", "GetAttachment", "GetPersistentVolume"],
    }
}
