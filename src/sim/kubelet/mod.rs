//! One kubelet and the machine under it: mounts, unmounts, reports what is in use, and has a real kubelet's faults.
//!
//! Flow: the driver hands it what its watches saw ([`Kubelet::see_node`], [`Kubelet::see_pod`]), wakes it when
//! [`Kubelet::next_due`] says so, and takes its deeds. Between two wakes it does nothing: no ticks. Owns the kernel's
//! mounts, which outlive the process. Must never look at attachd, and reads EC2 only as a guest does: whether a device
//! is there.

mod machine;
mod pods;
mod reconstruct;
mod status;
#[cfg(test)]
mod tests;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::model::ids::{BootId, InstanceId, NodeName, PodKey, ProviderId, Uid, UniqueVolumeName, VolumeKey, Zone};
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::time::{Monotonic, Now};
use crate::sim::api_server::{Api, NewNode};
use crate::sim::dice::Dice;
use crate::sim::ec2::Ec2Model;

pub use machine::{KernelMount, Machine};
use pods::PodWork;
use volumes::VolumeWork;

/// How kubelets behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletOptions {
    /// Period of the status cycle (10 s): a change is reported at its next tick.
    pub status_period: Duration,
    /// How often the status is written when nothing changed (5 min).
    pub heartbeat: Duration,
    /// Delay of its watches.
    pub watch_lag: (Duration, Duration),
    /// From the decision to mount until the kernel has it mounted.
    pub mount: (Duration, Duration),
    /// From the end of the last container until the kernel has it unmounted.
    pub unmount: (Duration, Duration),
    /// From the order to stop a container until it has stopped.
    pub container_stop: (Duration, Duration),
    /// From the death of the process until it is there again.
    pub restart: (Duration, Duration),
    /// From the end of the containers until the pod is deleted from the API.
    pub pod_removal: (Duration, Duration),
}

impl Default for KubeletOptions {
    fn default() -> Self {
        let millis = Duration::from_millis;
        Self {
            status_period: Duration::from_secs(10),
            heartbeat: Duration::from_secs(300),
            watch_lag: (millis(5), millis(200)),
            mount: (millis(100), millis(1_000)),
            unmount: (millis(100), millis(1_500)),
            container_stop: (millis(200), millis(3_000)),
            restart: (millis(1_000), millis(5_000)),
            pod_removal: (millis(50), millis(500)),
        }
    }
}

/// What a kubelet and its machine did, for the checkers and the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The kernel has the volume mounted, or no longer, or other pods use it.
    MountChanged(VolumeKey),
    /// The machine lost all its mounts (reboot, stop, end).
    MountsLost(BTreeSet<VolumeKey>),
    /// Every container of the pod runs.
    PodRunning(PodKey, Uid),
    /// Something worth a line: what, and why.
    Note(String, String),
}

/// What a kubelet works with while it is awake.
pub struct Surroundings<'a> {
    /// The time.
    pub now: Now,
    /// The API server.
    pub api: &'a mut Api,
    /// EC2: whether the device is there.
    pub ec2: &'a mut Ec2Model,
    /// Its chance.
    pub dice: &'a mut Dice,
    /// What it did.
    pub deeds: &'a mut Vec<Deed>,
}

impl Surroundings<'_> {
    fn after(&mut self, (from, to): (Duration, Duration)) -> Monotonic {
        self.now.monotonic + self.dice.between(from, to)
    }

    fn note(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.deeds.push(Deed::Note(what.into(), why.into()));
    }
}

/// What a kubelet's process knows; gone when it dies.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Its Node, from its informer.
    node: Option<Node>,
    node_inbox: VecDeque<(Monotonic, Option<Box<Node>>)>,
    node_still_until: Monotonic,
    pod_inbox: VecDeque<(Monotonic, SeenPod)>,
    pods: BTreeMap<Uid, PodWork>,
    volumes: BTreeMap<VolumeKey, VolumeWork>,
    /// What its last accepted (or skipped as unchanged) status report showed in use.
    reported: BTreeSet<UniqueVolumeName>,
    last_report: Option<Monotonic>,
}

/// What the pod watch of a kubelet shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenPod {
    /// Added or changed.
    Applied(Pod),
    /// Gone.
    Gone(PodKey, Uid),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Start,
    Inbox,
    Verify(VolumeKey),
    Mount(VolumeKey),
    Mounted(VolumeKey),
    Unmounted(VolumeKey),
    ContainerStopped(Uid),
    RemovePod(Uid),
    StatusTick,
}

/// A node: machine and kubelet.
#[derive(Clone, Debug)]
pub struct Kubelet {
    name: NodeName,
    options: KubeletOptions,
    machine: Machine,
    process: Option<Process>,
    /// Offset of its status cycle.
    phase: Duration,
    partitioned: bool,
    /// Overrides the time an unmount takes.
    slow_unmount: Option<Duration>,
    timers: BTreeSet<(Monotonic, Timer)>,
}

impl Kubelet {
    /// A machine whose kubelet starts at once.
    pub fn new(
        name: NodeName,
        instance: InstanceId,
        zone: Zone,
        options: KubeletOptions,
        at: Surroundings<'_>,
    ) -> Self {
        let phase = at.dice.between(Duration::ZERO, options.status_period);
        let mut kubelet = Self {
            machine: Machine::new(instance, zone),
            name,
            options,
            process: None,
            phase,
            partitioned: false,
            slow_unmount: None,
            timers: BTreeSet::new(),
        };
        kubelet.set(at.now.monotonic, Timer::Start);
        kubelet
    }

    /// Its node's name.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether it renews its lease: the process runs and reaches the API server.
    pub fn renews_lease(&self) -> bool {
        self.process.is_some() && !self.partitioned && self.machine.runs()
    }

    /// When it has something to do.
    pub fn next_due(&self) -> Option<Monotonic> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does everything that is due.
    pub fn wake(&mut self, at: &mut Surroundings<'_>) {
        while let Some((due, timer)) = self.timers.first().cloned() {
            if due > at.now.monotonic {
                return;
            }
            self.timers.pop_first();
            self.handle(timer, at);
        }
    }

    fn handle(&mut self, timer: Timer, at: &mut Surroundings<'_>) {
        match timer {
            Timer::Start => self.start(at),
            Timer::Inbox => self.read_inbox(at),
            Timer::Verify(volume) => self.verify(&volume, at),
            Timer::Mount(volume) => self.begin_mount(&volume, at),
            Timer::Mounted(volume) => self.end_mount(&volume, at),
            Timer::Unmounted(volume) => self.end_unmount(&volume, at),
            Timer::ContainerStopped(uid) => self.container_stopped(&uid, at),
            Timer::RemovePod(uid) => self.remove_pod(&uid, at),
            Timer::StatusTick => self.status_tick(at),
        }
    }

    fn set(&mut self, at: Monotonic, timer: Timer) {
        self.timers.insert((at, timer));
    }

    fn unset(&mut self, matches: impl Fn(&Timer) -> bool) {
        self.timers.retain(|(_, timer)| !matches(timer));
    }

    /// Its watch of Nodes saw its Node change (`None`: deleted).
    pub fn see_node(&mut self, node: Option<Node>, at: &mut Surroundings<'_>) {
        let due = at.after(self.options.watch_lag);
        let Some(process) = self.process.as_mut().filter(|_| !self.partitioned) else { return };
        let due = process.node_inbox.back().map_or(due, |(last, _)| due.max(*last)).max(process.node_still_until);
        process.node_inbox.push_back((due, node.map(Box::new)));
        self.set(due, Timer::Inbox);
    }

    /// Its watch of pods saw one of its pods change.
    pub fn see_pod(&mut self, seen: SeenPod, at: &mut Surroundings<'_>) {
        let due = at.after(self.options.watch_lag);
        let Some(process) = self.process.as_mut().filter(|_| !self.partitioned) else { return };
        let due = process.pod_inbox.back().map_or(due, |(last, _)| due.max(*last));
        process.pod_inbox.push_back((due, seen));
        self.set(due, Timer::Inbox);
    }

    fn read_inbox(&mut self, at: &mut Surroundings<'_>) {
        let now = at.now.monotonic;
        let mut node_changed = false;
        while let Some(process) = &mut self.process {
            if process.node_inbox.front().is_some_and(|(due, _)| *due <= now) {
                process.node = process.node_inbox.pop_front().and_then(|(_, node)| node.map(|boxed| *boxed));
                node_changed = true;
            } else if process.pod_inbox.front().is_some_and(|(due, _)| *due <= now) {
                if let Some((_, seen)) = process.pod_inbox.pop_front() {
                    self.sync_pod(seen, at);
                }
            } else {
                break;
            }
        }
        if node_changed {
            self.node_changed(at);
        }
    }

    fn node_changed(&mut self, at: &mut Surroundings<'_>) {
        let waiting = self.volumes_to_verify();
        for volume in waiting {
            self.verify(&volume, at);
        }
        self.plan_status(at);
    }
}

/// What happens to it.
impl Kubelet {
    /// The process dies; it starts again by itself unless `stay_down`.
    pub fn kill_process(&mut self, stay_down: bool, at: &mut Surroundings<'_>) {
        self.process = None;
        self.timers.clear();
        if !stay_down && self.machine.runs() {
            let due = at.after(self.options.restart);
            self.set(due, Timer::Start);
        }
    }

    /// Starts the process if it is down and the machine runs.
    pub fn revive(&mut self, at: &mut Surroundings<'_>) {
        let starting = self.timers.iter().any(|(_, timer)| *timer == Timer::Start);
        if self.process.is_none() && self.machine.runs() && !starting {
            self.set(at.now.monotonic, Timer::Start);
        }
    }

    /// The API server cannot be reached, or can be again (then it lists anew).
    pub fn set_partitioned(&mut self, partitioned: bool, at: &mut Surroundings<'_>) {
        if std::mem::replace(&mut self.partitioned, partitioned) == partitioned {
            return;
        }
        if partitioned {
            if let Some(process) = &mut self.process {
                process.node_inbox.clear();
                process.pod_inbox.clear();
            }
        } else if self.process.is_some() {
            self.list_anew(at);
        } else {
            self.revive(at);
        }
    }

    /// Its watch of its own Node stands still for that long.
    pub fn stall_node_watch(&mut self, by: Duration, now: Now) {
        let Some(process) = &mut self.process else { return };
        let until = now.monotonic + by;
        process.node_still_until = process.node_still_until.max(until);
        let mut moved = Vec::new();
        for (due, _) in &mut process.node_inbox {
            *due = (*due).max(until);
            moved.push(*due);
        }
        for due in moved {
            self.set(due, Timer::Inbox);
        }
    }

    /// Unmounts that begin from now on take that long; `None`: as usual again.
    pub fn set_slow_unmount(&mut self, takes: Option<Duration>) {
        self.slow_unmount = takes;
    }

    /// The machine reboots: mounts and containers gone, another boot id, the kubelet starts again.
    pub fn reboot(&mut self, at: &mut Surroundings<'_>) {
        self.lose_machine_state(at);
        self.machine.boot_again();
        let due = at.after((Duration::from_secs(15), Duration::from_secs(40)));
        self.set(due, Timer::Start);
    }

    /// The kernel panics or hangs: kubelet and containers do nothing any more, and nothing is unmounted.
    pub fn hang(&mut self) {
        self.process = None;
        self.timers.clear();
        self.machine.hang();
    }

    /// The kubelet's machine goes down: nobody renews the lease. The kernel lives on until [`Kubelet::machine_off`].
    pub fn shut_down(&mut self) {
        self.process = None;
        self.timers.clear();
        self.machine.shut_down();
    }

    /// The machine is off: mounts and containers are gone.
    pub fn machine_off(&mut self, at: &mut Surroundings<'_>) {
        self.shut_down();
        self.lose_machine_state(at);
    }

    /// The machine starts again after it was off.
    pub fn power_on(&mut self, at: &mut Surroundings<'_>) {
        self.machine.boot_again();
        let due = at.after((Duration::from_secs(15), Duration::from_secs(40)));
        self.set(due, Timer::Start);
    }

    /// Another machine takes over the name; the old one is handed out, without a kubelet.
    pub fn replace_machine(&mut self, instance: InstanceId, at: &mut Surroundings<'_>) -> Machine {
        self.process = None;
        self.timers.clear();
        self.partitioned = false;
        self.slow_unmount = None;
        let zone = self.machine.zone().clone();
        let old = std::mem::replace(&mut self.machine, Machine::new(instance, zone));
        self.set(at.now.monotonic + Duration::from_secs(5), Timer::Start);
        old
    }

    /// EC2 sees of a guest whether it holds the device of an EBS volume.
    fn set_guest_holds(&self, volume: &VolumeKey, holds: bool, at: &mut Surroundings<'_>) {
        if let Some(id) = volume.aws_volume_id() {
            at.ec2.set_guest_holds(at.now, self.machine.instance(), &id, holds);
        }
    }

    fn lose_machine_state(&mut self, at: &mut Surroundings<'_>) {
        self.process = None;
        self.timers.clear();
        let lost = self.machine.lose_everything();
        for volume in &lost {
            self.set_guest_holds(volume, false, at);
        }
        if !lost.is_empty() {
            at.deeds.push(Deed::MountsLost(lost));
        }
    }

    fn new_node(&self) -> NewNode {
        NewNode {
            name: self.name.clone(),
            provider_id: ProviderId::Instance {
                instance: self.machine.instance().clone(),
                zone: Some(self.machine.zone().clone()),
            },
            zone: self.machine.zone().clone(),
            boot_id: self.machine.boot().clone(),
        }
    }

    fn boot(&self) -> &BootId {
        self.machine.boot()
    }
}
