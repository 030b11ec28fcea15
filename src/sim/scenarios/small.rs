//! Worlds small enough that every fault can be put at every step: one volume, two nodes, one thing that happens.
//!
//! Chance in them is the seed's alone, and the seed is always the same.

use std::time::Duration;

use crate::controller::event::Role;
use crate::controller::policy::Policy;
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::sim::driver::{Driver, DriverOptions, Fault, OldLeader};
use crate::sim::workload::Replacement;

/// The one seed of small worlds.
const SEED: u64 = 1;
/// When the pod is bound: every watch has synced by then.
const BOUND_AT: Duration = Duration::from_secs(5);
/// When the world's one thing happens: the volume has long been attached, listed and mounted.
const HAPPENS_AT: Duration = Duration::from_secs(45);

/// When a person gives up waiting for a node that has just become not Ready (50 s after it fell silent).
const GIVEN_UP_AT: Duration = Duration::from_secs(105);

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
static ALL: [SmallWorld; 12] = [
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
];

/// Beside other controllers: another driver's attacher, kube-controller-manager's attach/detach controller. Run by name
/// only: the core does not come through every fault in them yet.
static BESIDE_OTHERS: [SmallWorld; 5] = [
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
    /// Every small world.
    pub const ALL: &'static [Self] = &ALL;

    /// The small world of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().chain(&BESIDE_OTHERS).find(|world| world.name == name)
    }

    /// Its two nodes.
    pub fn nodes(&self) -> [NodeName; 2] {
        [NodeName::new("n1"), NodeName::new("n2")]
    }

    /// Its volume.
    pub fn volume(&self) -> AwsVolumeId {
        self.build(Policy::FULL, false).1
    }

    /// The world before its first step.
    pub fn start(&self, policy: Policy, trace: bool) -> Driver {
        self.build(policy, trace).0
    }

    fn build(&self, policy: Policy, trace: bool) -> (Driver, AwsVolumeId) {
        let mut options = DriverOptions { policy, trace, ..DriverOptions::new(SEED) };
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
