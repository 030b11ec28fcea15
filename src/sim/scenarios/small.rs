//! Worlds small enough that every fault can be put at every step: one volume, two nodes, one thing that happens.
//!
//! Chance in them is the seed's alone: always the same one, unless a name says another (`move#3`).

use std::time::Duration;

use crate::controller::event::Role;
use crate::controller::policy::{ForceDetach, Policy};
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::sim::driver::{CallFault, CallTarget, Driver, DriverOptions, Fault, OldLeader};
use crate::sim::ec2::WrongDevice;
use crate::sim::workload::Replacement;

/// The seed of small worlds.
const SEED: u64 = 1;
/// When the pod is bound: every watch has synced by then.
const BOUND_AT: Duration = Duration::from_secs(5);
/// When the world's one thing happens: the volume has long been attached, listed and mounted.
const HAPPENS_AT: Duration = Duration::from_secs(45);

/// When a person gives up waiting for a node that has just become not Ready (50 s after it fell silent).
const GIVEN_UP_AT: Duration = Duration::from_secs(105);

/// Right after a renewal: the guard lasts nearly 30 s more.
const CUT_OFF_AT: Duration = Duration::from_millis(45_500);
/// Longer than a fence excuses anything.
const SLOW_UNMOUNT: Duration = Duration::from_secs(240);

/// A small world.
#[derive(Debug)]
pub struct SmallWorld {
    /// Its name, as specifications carry it.
    pub name: &'static str,
    /// What happens in it, in one line.
    pub sentence: &'static str,
    tune: fn(&mut DriverOptions),
    volume: fn(&mut Driver, &str, &NodeName, Duration) -> AwsVolumeId,
    script: fn(&mut Driver, &AwsVolumeId, &[NodeName; 2]),
}

/// Every small world.
static ALL: [SmallWorld; 22] = [
    SmallWorld {
        name: "move",
        sentence: "the pod is deleted on n1 and made again on n2",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "overlap",
        sentence: "the next pod is made on n2 while the one on n1 still ends: both want the volume",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            driver.apps_mut().set_replacement(Replacement::AtOnce);
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "multi-attach",
        sentence: "as overlap, with a ReadWriteOnce volume that EC2 would attach to both nodes",
        tune: as_it_is,
        volume: Driver::add_multi_attach_workload,
        script: |driver, volume, [_, n2]| {
            driver.apps_mut().set_replacement(Replacement::AtOnce);
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "delete",
        sentence: "the workload is scaled to zero, and to one again half a minute later",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, _| {
            driver.schedule(HAPPENS_AT, Fault::ScaleWorkload(volume.clone(), false));
            driver.schedule(HAPPENS_AT + Duration::from_secs(30), Fault::ScaleWorkload(volume.clone(), true));
        },
    },
    SmallWorld {
        name: "force-delete",
        sentence: "the pod on n1 is force-deleted (its container runs on) and made again on n2",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
            driver.schedule(HAPPENS_AT, Fault::ForceDeletePod(volume.clone()));
        },
    },
    SmallWorld {
        name: "recreate",
        sentence: "the pod is deleted and made again on the same node",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, _| driver.schedule(HAPPENS_AT, Fault::DeletePod(volume.clone())),
    },
    SmallWorld {
        name: "node-returns",
        sentence: "the Node object of n1 is deleted and registered again, then the pod moves to n2",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, n2]| {
            driver.schedule(HAPPENS_AT, Fault::ReplaceNodeObject(n1.clone()));
            let later = HAPPENS_AT + Duration::from_secs(40);
            driver.schedule(later, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "leader-change",
        sentence: "the pod moves to n2, and another replica becomes leader on the way",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
            let soon = HAPPENS_AT + Duration::from_millis(1500);
            driver.schedule(soon, Fault::ChangeLeader(OldLeader::Dies));
        },
    },
    SmallWorld {
        name: "terminated",
        sentence: "the instance of n1 is terminated, its pod is made again on n2",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, _, [n1, _]| driver.schedule(HAPPENS_AT, Fault::TerminateInstance(n1.clone())),
    },
    SmallWorld {
        name: "stopped",
        sentence: "the instance of n1 is stopped, its pod is force-deleted and made again on n2",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, _]| {
            driver.schedule(HAPPENS_AT, Fault::StopInstance(n1.clone()));
            driver.schedule(GIVEN_UP_AT, Fault::ForceDeletePod(volume.clone()));
        },
    },
    SmallWorld {
        name: "kubelet-dead",
        sentence: "the kubelet of n1 dies and its container writes on, its pod is force-deleted and made again on n2",
        tune: given_up_soon,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, _]| {
            driver.schedule(HAPPENS_AT, Fault::StopKubelet(n1.clone()));
            driver.schedule(GIVEN_UP_AT, Fault::ForceDeletePod(volume.clone()));
        },
    },
    SmallWorld {
        name: "hung",
        sentence: "the machine of n1 hangs, its pod is force-deleted and made again on n2",
        tune: given_up_soon,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, _]| {
            driver.schedule(HAPPENS_AT, Fault::HangMachine(n1.clone()));
            driver.schedule(GIVEN_UP_AT, Fault::ForceDeletePod(volume.clone()));
        },
    },
    SmallWorld {
        name: "short",
        sentence: "the workload is scaled to zero as soon as AttachVolume was sent, and to one again half a minute later",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, _| {
            let soon = Duration::from_millis(200);
            driver.schedule_after_call("AttachVolume", 1, soon, Fault::ScaleWorkload(volume.clone(), false));
            let later = Duration::from_secs(30);
            driver.schedule_after_call("AttachVolume", 1, later, Fault::ScaleWorkload(volume.clone(), true));
        },
    },
    SmallWorld {
        name: "comes-back",
        sentence: "the workload is scaled to zero, and to one again as soon as DetachVolume was sent",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, _| {
            driver.schedule(HAPPENS_AT, Fault::ScaleWorkload(volume.clone(), false));
            let soon = Duration::from_millis(300);
            driver.schedule_after_call("DetachVolume", 1, soon, Fault::ScaleWorkload(volume.clone(), true));
        },
    },
    SmallWorld {
        name: "cut-off",
        sentence: "the leader is cut off from its lease, and just before its guard ends the workload is scaled to one",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, _| {
            driver.schedule(Duration::from_secs(25), Fault::ScaleWorkload(volume.clone(), false));
            driver.schedule(CUT_OFF_AT, Fault::ChangeLeader(OldLeader::LivesOn));
            let late = CUT_OFF_AT + Duration::from_secs(25);
            driver.schedule(late, Fault::ScaleWorkload(volume.clone(), true));
        },
    },
    SmallWorld {
        name: "kubelet-down",
        sentence: "the kubelet of n1 dies when the volume is attached, before it reports it in use",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, _, [n1, _]| driver.schedule(Duration::from_secs(14), Fault::StopKubelet(n1.clone())),
    },
    SmallWorld {
        name: "device-ignored",
        sentence: "as move, with an EC2 that looks at no device name in DetachVolume",
        tune: |options| options.ec2.wrong_device = WrongDevice::Ignored,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "other-driver",
        sentence: "a volume of another CSI driver, with its own attacher: the pod is deleted on n1 and made again on n2",
        tune: as_it_is,
        volume: Driver::add_other_workload,
        script: |driver, volume, [_, n2]| {
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "ordered-move",
        sentence: "beside kube-controller-manager: the pod is deleted on n1 and made again on n2",
        tune: attacher_alone,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "ordered-force-delete",
        sentence: "beside kube-controller-manager: the pod on n1 is force-deleted and made again on n2",
        tune: attacher_alone,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
            driver.schedule(HAPPENS_AT, Fault::ForceDeletePod(volume.clone()));
        },
    },
    SmallWorld {
        name: "ordered-by-a-person",
        sentence: "beside kube-controller-manager: a person deletes the VolumeAttachment of a mounted volume, its pod moves later",
        tune: attacher_alone,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, n2]| {
            driver.schedule(HAPPENS_AT, Fault::DeleteAttachment(volume.clone(), n1.clone()));
            driver.schedule(GIVEN_UP_AT, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "ordered-terminated",
        sentence: "beside kube-controller-manager: the instance of n1 is terminated, its pod is made again on n2",
        tune: attacher_alone,
        volume: Driver::add_workload,
        script: |driver, _, [n1, _]| driver.schedule(HAPPENS_AT, Fault::TerminateInstance(n1.clone())),
    },
];

/// Small worlds whose script is made of faults already: run as they are, and searched for the loss of one rule.
static SCRIPTED: [SmallWorld; 11] = [
    SmallWorld {
        name: "given-up",
        sentence: "n1 is lost under a mounted volume for ten minutes, which with forceDetach: always is taken after six",
        tune: force_always,
        volume: Driver::add_workload,
        script: lose_for_ten_minutes,
    },
    SmallWorld {
        name: "kept",
        sentence: "as given-up with forceDetach: impaired: the machine is sound, nothing is taken from it",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: lose_for_ten_minutes,
    },
    SmallWorld {
        name: "started-again",
        sentence: "n1 is stopped and started again; when its pod has long mounted, reads of EC2 show it stopped now and then",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, n2]| {
            driver.apps_mut().set_replacement(Replacement::AtOnce);
            driver.schedule(HAPPENS_AT, Fault::StopInstance(n1.clone()));
            driver.schedule(HAPPENS_AT + Duration::from_secs(45), Fault::StartInstance(n1.clone()));
            let mounted = HAPPENS_AT + Duration::from_secs(110);
            driver.schedule(mounted, Fault::SlowUnmount(n1.clone(), SLOW_UNMOUNT));
            driver.schedule(mounted, Fault::StaleEc2Reads(Duration::from_secs(100)));
            driver.schedule(mounted, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "handed-over",
        sentence: "the leader hands over at once when the volume was just attached",
        tune: |options| options.lease = None,
        volume: Driver::add_workload,
        script: |driver, _, _| {
            let soon = Duration::from_secs(5);
            driver.schedule_after_call("PatchAttachmentStatus", 1, soon, Fault::RestartController);
        },
    },
    SmallWorld {
        name: "given-up-node-gone",
        sentence: "n1 cannot be reached, its Node is deleted, and it registers again a few seconds before six minutes are over",
        tune: force_always,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, n2]| {
            driver.schedule(HAPPENS_AT, Fault::SlowUnmount(n1.clone(), SLOW_UNMOUNT));
            driver.schedule(HAPPENS_AT, Fault::Partition(n1.clone()));
            driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
            driver.schedule(HAPPENS_AT, Fault::DeleteNode(n1.clone()));
            let returns = HAPPENS_AT + Duration::from_secs(345);
            driver.schedule(returns, Fault::HealPartition(n1.clone()));
            driver.schedule(returns, Fault::RestartKubelet(n1.clone()));
        },
    },
    SmallWorld {
        name: "robbed",
        sentence: "a DetachVolume hangs; people strip the finalizer and detach by hand, and the pod comes back",
        tune: |options| options.ec2.wrong_device = WrongDevice::Ignored,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, _]| {
            let late = CallFault::ApplyLate(Duration::from_secs(60));
            driver.schedule(Duration::ZERO, Fault::NextCall(CallTarget::DetachVolume, late));
            driver.schedule(HAPPENS_AT, Fault::ScaleWorkload(volume.clone(), false));
            let mut follows =
                |millis, fault| driver.schedule_after_call("DetachVolume", 1, Duration::from_millis(millis), fault);
            follows(500, Fault::StripFinalizers(volume.clone(), n1.clone()));
            follows(1_000, Fault::DetachByHand(volume.clone()));
            follows(2_000, Fault::ScaleWorkload(volume.clone(), true));
        },
    },
    SmallWorld {
        name: "other-region",
        sentence: "the workload is scaled to zero, DetachVolume is lost, and EC2 shows nothing at all for four minutes",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, _| {
            driver.schedule(Duration::ZERO, Fault::NextCall(CallTarget::DetachVolume, CallFault::LoseRequest));
            driver.schedule(HAPPENS_AT, Fault::ScaleWorkload(volume.clone(), false));
            let (soon, lasts) = (Duration::from_millis(500), Duration::from_secs(240));
            driver.schedule_after_call("DetachVolume", 1, soon, Fault::OtherRegion(lasts));
        },
    },
    SmallWorld {
        name: "orphaned",
        sentence: "no leader is there when people end the VolumeAttachment of a mounted volume",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, _]| orphan(driver, volume, n1, HAPPENS_AT),
    },
    SmallWorld {
        name: "orphaned-node-returned",
        sentence: "as orphaned, after n1 registered again under the mounted volume; then the pod moves, its unmount is slow",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [n1, n2]| {
            driver.schedule(HAPPENS_AT, Fault::ReplaceNodeObject(n1.clone()));
            orphan(driver, volume, n1, HAPPENS_AT + Duration::from_secs(30));
            let moves = HAPPENS_AT + Duration::from_secs(240);
            driver.schedule(moves, Fault::SlowUnmount(n1.clone(), SLOW_UNMOUNT));
            driver.schedule(moves, Fault::MovePod(volume.clone(), n2.clone()));
        },
    },
    SmallWorld {
        name: "successor",
        sentence: "the volume is detached, the leader hands over at once, and the pod comes back to the same node",
        tune: |options| options.lease = None,
        volume: Driver::add_workload,
        script: |driver, volume, _| {
            let long_attached = Duration::from_secs(100);
            driver.schedule(long_attached, Fault::ScaleWorkload(volume.clone(), false));
            let mut follows = |millis, fault| {
                driver.schedule_after_call("SetAttachmentFinalizers", 1, Duration::from_millis(millis), fault);
            };
            follows(200, Fault::RestartController);
            follows(4_000, Fault::ScaleWorkload(volume.clone(), true));
        },
    },
    SmallWorld {
        name: "held-by-hand",
        sentence: "AttachVolume to n1 is lost, and people attach the volume to n2 by hand meanwhile",
        tune: as_it_is,
        volume: Driver::add_workload,
        script: |driver, volume, [_, n2]| {
            let lost = Fault::NextCall(CallTarget::AttachVolume, CallFault::LoseRequest);
            driver.schedule(Duration::ZERO, lost);
            let by_hand = Fault::AttachByHand(volume.clone(), n2.clone());
            driver.schedule_after_call("AttachVolume", 1, Duration::from_secs(2), by_hand);
        },
    },
];

/// A machine nobody can reach, its kubelet dead: the volume stays mounted. The pod is force-deleted and made on the other.
fn lose_for_ten_minutes(driver: &mut Driver, volume: &AwsVolumeId, [n1, n2]: &[NodeName; 2]) {
    driver.schedule(HAPPENS_AT, Fault::SlowUnmount(n1.clone(), SLOW_UNMOUNT));
    driver.schedule(HAPPENS_AT, Fault::StopKubelet(n1.clone()));
    driver.schedule(HAPPENS_AT, Fault::Partition(n1.clone()));
    driver.schedule(HAPPENS_AT, Fault::MovePod(volume.clone(), n2.clone()));
    driver.schedule(HAPPENS_AT, Fault::ForceDeletePod(volume.clone()));
    driver.schedule(HAPPENS_AT + Duration::from_secs(600), Fault::HealPartition(n1.clone()));
}

fn force_always(options: &mut DriverOptions) {
    options.settings.force_detach = ForceDetach::Always;
}

/// The leader dies, and before the next one watches, people end the VolumeAttachment.
fn orphan(driver: &mut Driver, volume: &AwsVolumeId, node: &NodeName, at: Duration) {
    driver.schedule(at, Fault::RestartController);
    driver.schedule(at, Fault::DeleteAttachment(volume.clone(), node.clone()));
    driver.schedule(at, Fault::StripFinalizers(volume.clone(), node.clone()));
}

/// kube-controller-manager's own controller makes and deletes the VolumeAttachments.
fn attacher_alone(options: &mut DriverOptions) {
    options.settings.roles = [Role::Attacher].into();
}

fn as_it_is(_: &mut DriverOptions) {}

/// A timeout that is over before the world comes to rest: six minutes would never be.
fn given_up_soon(options: &mut DriverOptions) {
    options.settings.unmount_timeout = Duration::from_secs(60);
}

impl SmallWorld {
    /// Every small world in which every fault is put at every step.
    pub const ALL: &'static [Self] = &ALL;

    /// Small worlds whose script is made of faults already: run as they are, and searched for the loss of one rule.
    pub const SCRIPTED: &'static [Self] = &SCRIPTED;

    /// The small world of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().chain(Self::SCRIPTED).find(|world| world.name == name)
    }

    /// The small world of a specification, and the seed it names: `move`, or `move#3`.
    pub fn with_seed(name: &str) -> Option<(&'static Self, u64)> {
        match name.split_once('#') {
            Some((name, seed)) => Some((Self::named(name)?, seed.parse().ok()?)),
            None => Some((Self::named(name)?, SEED)),
        }
    }

    /// Its two nodes.
    pub fn nodes(&self) -> [NodeName; 2] {
        [NodeName::new("n1"), NodeName::new("n2")]
    }

    /// Its volume.
    pub fn volume(&self) -> AwsVolumeId {
        self.build(SEED, Policy::FULL, false).1
    }

    /// The world before its first step.
    pub fn start(&self, seed: u64, policy: Policy, trace: bool) -> Driver {
        self.build(seed, policy, trace).0
    }

    fn build(&self, seed: u64, policy: Policy, trace: bool) -> (Driver, AwsVolumeId) {
        let mut options = DriverOptions { policy, trace, ..DriverOptions::new(seed) };
        (self.tune)(&mut options);
        let mut driver = Driver::new(options);
        let nodes = self.nodes();
        for node in &nodes {
            driver.add_node(node.as_str());
        }
        let volume = (self.volume)(&mut driver, "a", &nodes[0], BOUND_AT);
        (self.script)(&mut driver, &volume, &nodes);
        (driver, volume)
    }
}
