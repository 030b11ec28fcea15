//! The machine under a kubelet: what the kernel has mounted and which containers run. Outlives the kubelet's process,
//! not the boot.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::device::DeviceName;
use crate::model::ids::{BootId, InstanceId, PodKey, Uid, VolumeKey, Zone};

/// A volume the kernel has mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMount {
    /// The attachment it was mounted on.
    pub generation: u64,
    /// That attachment's device name.
    pub device: DeviceName,
    /// Pods whose containers run on it.
    pub pods: BTreeSet<Uid>,
}

/// A running container (all of a pod's containers are one here).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) key: PodKey,
    pub(super) volumes: BTreeSet<VolumeKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Power {
    On,
    /// The kernel runs nothing any more and lets go of nothing.
    Hung,
    ShuttingDown,
    Off,
}

/// One machine.
#[derive(Clone, Debug)]
pub struct Machine {
    instance: InstanceId,
    zone: Zone,
    boots: u64,
    boot: BootId,
    power: Power,
    mounts: BTreeMap<VolumeKey, KernelMount>,
    pub(super) containers: BTreeMap<Uid, Container>,
}

impl Machine {
    pub(super) fn new(instance: InstanceId, zone: Zone) -> Self {
        let boot = boot_id(&instance, 1);
        Self { instance, zone, boots: 1, boot, power: Power::On, mounts: BTreeMap::new(), containers: BTreeMap::new() }
    }

    /// The instance it is.
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// Its zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The boot that runs or last ran.
    pub fn boot(&self) -> &BootId {
        &self.boot
    }

    /// Whether processes can run on it.
    pub fn runs(&self) -> bool {
        self.power == Power::On
    }

    /// Whether it is off.
    pub fn is_off(&self) -> bool {
        self.power == Power::Off
    }

    /// Whether it hangs: nothing runs, and what is mounted stays so until it is rebooted or off.
    pub fn hangs(&self) -> bool {
        self.power == Power::Hung
    }

    /// What the kernel has mounted.
    pub fn mounts(&self) -> &BTreeMap<VolumeKey, KernelMount> {
        &self.mounts
    }

    /// How many containers run.
    pub fn running_containers(&self) -> usize {
        self.containers.len()
    }

    /// The machine loses power or is ended: everything in memory is gone. What was mounted is handed out.
    pub fn lose_everything(&mut self) -> BTreeSet<VolumeKey> {
        self.containers.clear();
        // Only a reboot finds it still on, and is followed by a boot.
        if self.power != Power::On {
            self.power = Power::Off;
        }
        std::mem::take(&mut self.mounts).into_keys().collect()
    }

    pub(super) fn shut_down(&mut self) {
        if self.power != Power::Off {
            self.power = Power::ShuttingDown;
        }
    }

    /// The kernel panics or hangs.
    pub(super) fn hang(&mut self) {
        if self.power == Power::On {
            self.power = Power::Hung;
        }
    }

    pub(super) fn boot_again(&mut self) {
        self.boots += 1;
        self.boot = boot_id(&self.instance, self.boots);
        self.power = Power::On;
    }

    pub(super) fn mount(&mut self, volume: VolumeKey, generation: u64, device: DeviceName) {
        self.mounts.insert(volume, KernelMount { generation, device, pods: BTreeSet::new() });
    }

    pub(super) fn unmount(&mut self, volume: &VolumeKey) -> bool {
        self.mounts.remove(volume).is_some()
    }

    pub(super) fn start_container(&mut self, uid: &Uid, container: Container) {
        for volume in &container.volumes {
            if let Some(mount) = self.mounts.get_mut(volume) {
                mount.pods.insert(uid.clone());
            }
        }
        self.containers.insert(uid.clone(), container);
    }

    pub(super) fn stop_container(&mut self, uid: &Uid) -> Option<Container> {
        let container = self.containers.remove(uid)?;
        for volume in &container.volumes {
            if let Some(mount) = self.mounts.get_mut(volume) {
                mount.pods.remove(uid);
            }
        }
        Some(container)
    }
}

fn boot_id(instance: &InstanceId, number: u64) -> BootId {
    BootId::new(smol_str::format_smolstr!("boot-{number}-{instance}"))
}
