//! Every fault that can be put between two steps of a run.
//!
//! Owns only the names of faults; what they do stands in the models. Must never be told to the core.

use std::time::Duration;

use crate::controller::event::Kind;
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::sim::ec2::{AnswerFault, Ec2Action};

/// A fault, put between two steps by `Driver::inject`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A person (or an autoscaler) deletes the Node object. The kubelet goes on; it does not register again.
    DeleteNode(NodeName),
    /// The Node object is deleted and the kubelet restarted: it registers again, new UID, empty lists, same boot.
    ReplaceNodeObject(NodeName),
    /// The Node object is deleted and another instance registers under its name. The old instance goes on running
    /// (`old_terminated: false`: its kubelet is dead, its containers write on) or is terminated.
    ReplaceInstance {
        /// The name.
        node: NodeName,
        /// Whether the old instance is terminated.
        old_terminated: bool,
    },
    /// Every instance that lost that name to another, and runs on, is terminated.
    TerminateOldInstances(NodeName),
    /// The kubelet process restarts and reconstructs what it finds mounted.
    RestartKubelet(NodeName),
    /// The kubelet process dies and does not come back until healed; containers go on.
    StopKubelet(NodeName),
    /// The node cannot reach the API server until healed; containers go on.
    Partition(NodeName),
    /// The partition ends.
    HealPartition(NodeName),
    /// The kubelet's watch of its own Node stands still for that long.
    StallKubelet(NodeName, Duration),
    /// Unmounts on this node take that long until healed.
    SlowUnmount(NodeName, Duration),
    /// The instance is terminated.
    TerminateInstance(NodeName),
    /// The instance is stopped.
    StopInstance(NodeName),
    /// The instance is started again.
    StartInstance(NodeName),
    /// The instance reboots: mounts gone, another boot id.
    RebootInstance(NodeName),
    /// The machine panics or hangs: kubelet and containers do nothing any more, nothing is unmounted, EC2 goes on showing
    /// the instance as running; its status check fails some minutes later. Until healed, rebooted or stopped.
    HangMachine(NodeName),
    /// For that long EC2 leaves the node's instance out of every answer, though it exists.
    HideInstance(NodeName, Duration),
    /// For that long EC2 leaves the node's instance out of half of its answers.
    FlickerInstance(NodeName, Duration),
    /// For that long attachd's EC2 client talks to another region: no volume and no instance is there.
    OtherRegion(Duration),
    /// For that long EC2 carries out nothing and answers with pages of HTML.
    Ec2Outage(Duration),
    /// For that long so many of a million pages of DescribeVolumes fail, one way or another.
    FailPages(u32, Duration),
    /// Something is wrong with EC2's next answer to such a call.
    NextAnswer(Ec2Action, AnswerFault),
    /// A person taints the node `node.kubernetes.io/out-of-service`.
    Taint(NodeName),
    /// A person removes that taint.
    RemoveTaint(NodeName),
    /// Another replica becomes leader.
    ChangeLeader(OldLeader),
    /// The leading process dies and is started again; it gets its lease back after the time the lease still ran.
    RestartController,
    /// Something happens to the next call of that kind.
    NextCall(CallTarget, CallFault),
    /// For that long EC2 answers reads with an earlier state.
    StaleEc2Reads(Duration),
    /// Watches of that kind (`None`: all) stand still for that long; live reads stay fresh.
    StallWatch(Option<Kind>, Duration),
    /// The watch of that kind breaks and lists anew: deletions in between are only to be seen by absence.
    Relist(Kind),
    /// A person deletes the VolumeAttachment of that volume on that node.
    DeleteAttachment(AwsVolumeId, NodeName),
    /// A person strips every finalizer of it.
    StripFinalizers(AwsVolumeId, NodeName),
    /// A person deletes the PersistentVolume of that volume (it stays Terminating while finalizers hold it).
    DeletePersistentVolume(AwsVolumeId),
    /// A person deletes the claim of that volume, though a pod uses it (its protection taken off by force).
    DeleteClaim(AwsVolumeId),
    /// A person puts the storage of a workload right: a PersistentVolume that is gone or going is made anew (finalizers
    /// stripped), and so is its claim.
    RestoreClaim(AwsVolumeId),
    /// A person annotates it `attachd/unmounted` with the node's present boot id. A lie if it is mounted: placed only
    /// where it is not.
    AnnotateUnmounted(AwsVolumeId, NodeName),
    /// A person detaches the volume by hand, wherever it is attached.
    DetachByHand(AwsVolumeId),
    /// A person forces a detach of the volume, wherever it is attached: it is gone within seconds, mounted or not.
    ForceDetachByHand(AwsVolumeId),
    /// A person forces a detach of the volume and attaches it to that node's instance by hand as soon as it is free.
    CarryByHand(AwsVolumeId, NodeName),
    /// A person attaches the volume to that node's instance by hand.
    AttachByHand(AwsVolumeId, NodeName),
    /// Somebody deletes the pod that uses the volume (its workload makes it again).
    DeletePod(AwsVolumeId),
    /// Somebody force-deletes the pod that uses the volume: it is gone from the API at once, its container is not.
    ForceDeletePod(AwsVolumeId),
    /// The workload of the volume is moved to that node.
    MovePod(AwsVolumeId, NodeName),
    /// The workload of the volume is scaled to zero (`false`) or to one (`true`).
    ScaleWorkload(AwsVolumeId, bool),
    /// The node is cordoned and its pods are deleted, as `kubectl drain` does.
    Drain(NodeName),
    /// The node takes pods again.
    Uncordon(NodeName),
    /// The pod of the volume fails: terminated, its mount still there.
    FailPod(AwsVolumeId),
}

/// What becomes of the leader before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OldLeader {
    /// Its process is dead at once; its requests under way still land.
    Dies,
    /// It lives on, cut off from its lease, until its guard ends; its requests still land.
    LivesOn,
}

/// Which call a [`CallFault`] hits: the next one sent of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallTarget {
    /// AttachVolume.
    AttachVolume,
    /// DetachVolume.
    DetachVolume,
    /// Any mutating EC2 call.
    Ec2Mutating,
    /// Any describe call.
    Ec2Describe,
    /// Any write to the API server, Events excepted.
    KubernetesWrite,
    /// nodes/status.
    NodeStatus,
    /// Create, record, status, finalizer or delete of a VolumeAttachment.
    Attachment,
    /// A live read.
    LiveRead,
}

impl CallTarget {
    /// Every target.
    pub const ALL: [Self; 8] = [
        Self::AttachVolume,
        Self::DetachVolume,
        Self::Ec2Mutating,
        Self::Ec2Describe,
        Self::KubernetesWrite,
        Self::NodeStatus,
        Self::Attachment,
        Self::LiveRead,
    ];
    /// Those that change something: only they can come late or twice.
    pub const WRITES: [Self; 6] = [
        Self::AttachVolume,
        Self::DetachVolume,
        Self::Ec2Mutating,
        Self::KubernetesWrite,
        Self::NodeStatus,
        Self::Attachment,
    ];
}

/// What happens to that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallFault {
    /// It never reaches the server; the client times out.
    LoseRequest,
    /// It has its effect; the client times out.
    LoseReply,
    /// The client times out, the effect comes that long after the send (less than W = 70 s).
    ApplyLate(Duration),
    /// It lands twice, the second time that long after the send (less than W = 70 s), as when something on the way sends
    /// it again for want of an answer: the answer is the second landing's. Nothing lands after its answer.
    Duplicate(Duration),
    /// The server refuses it for rate.
    Throttle,
    /// The answer is late by that much, but not lost (below the client's timeout).
    Slow(Duration),
    /// The executor reaches the socket that much later.
    DelaySend(Duration),
}
