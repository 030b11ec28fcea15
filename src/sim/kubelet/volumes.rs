//! Volumes on the node: the gates before a mount, the mount, the unmount.
//!
//! The order of the gates is the kubelet's: the name in `volumesAttached` of its informer's Node (else it simply waits);
//! then, inside an operation that backs off when it fails: reported in use, and the name in a live Node; then one GET of
//! the VolumeAttachment; then the device.

use std::time::Duration;

use super::{Deed, Kubelet, Surroundings, Timer};
use crate::model::device::DeviceName;
use crate::model::ids::{AttachmentKey, AttachmentName, UniqueVolumeName, VolumeKey};
use crate::model::time::Monotonic;
use crate::model::volume::AttachmentState;

/// First delay after a failed operation; it doubles up to [`BACKOFF_MOST`]. Upstream: exponentialbackoff, 500 ms to
/// 2 min 2 s.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MOST: Duration = Duration::from_secs(122);
/// The kubelet's reconciler runs every 100 ms.
const LOOP_PERIOD: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Wanted, not in the kubelet's actual state.
    Unattached,
    /// In the actual state, not mounted.
    Attached,
    /// The mount is under way on the attachment of this generation.
    Mounting(u64),
    Mounted,
    Unmounting,
}

/// A volume as the kubelet's process works on it.
#[derive(Clone, Debug)]
pub(super) struct VolumeWork {
    pub(super) stage: Stage,
    /// The verdict of reconstruction, taken once; true for what this process verified itself.
    pub(super) attachable: bool,
    delay: Option<Duration>,
    not_before: Monotonic,
}

impl VolumeWork {
    pub(super) fn new(stage: Stage, attachable: bool) -> Self {
        Self { stage, attachable, delay: None, not_before: Monotonic::ZERO }
    }

    pub(super) fn is_mounted(&self) -> bool {
        self.stage == Stage::Mounted
    }

    /// Whether it is in the kubelet's actual state of the world.
    pub(super) fn is_in_actual_state(&self) -> bool {
        self.stage != Stage::Unattached
    }

    fn back_off(&mut self, now: Monotonic) -> Monotonic {
        let delay = self.delay.map_or(BACKOFF_FIRST, |delay| (delay * 2).min(BACKOFF_MOST));
        self.delay = Some(delay);
        self.not_before = now + delay;
        self.not_before
    }

    fn succeed(&mut self) {
        self.delay = None;
        self.not_before = Monotonic::ZERO;
    }
}

pub(super) fn unique_name(volume: &VolumeKey) -> UniqueVolumeName {
    volume.unique_name()
}

impl Kubelet {
    /// A pod wants the volume.
    pub(super) fn want_volume(&mut self, volume: &VolumeKey, at: &mut Surroundings<'_>) {
        let Some(process) = &mut self.process else { return };
        let work = process.volumes.entry(volume.clone()).or_insert_with(|| VolumeWork::new(Stage::Unattached, true));
        match work.stage {
            Stage::Unattached => self.verify(volume, at),
            Stage::Attached => self.set(at.now.monotonic + LOOP_PERIOD, Timer::Mount(volume.clone())),
            Stage::Mounting(_) | Stage::Mounted | Stage::Unmounting => {}
        }
    }

    /// Volumes that wait for the verify step.
    pub(super) fn volumes_to_verify(&self) -> Vec<VolumeKey> {
        let Some(process) = &self.process else { return Vec::new() };
        process.volumes.iter().filter(|(_, w)| w.stage == Stage::Unattached).map(|(v, _)| v.clone()).collect()
    }

    /// VerifyControllerAttachedVolume.
    pub(super) fn verify(&mut self, volume: &VolumeKey, at: &mut Surroundings<'_>) {
        let now = at.now.monotonic;
        let name = unique_name(volume);
        let Some(process) = &mut self.process else { return };
        let Some(work) = process.volumes.get_mut(volume) else { return };
        if work.stage != Stage::Unattached || now < work.not_before {
            return;
        }
        // No operation and no back-off while the informer's Node does not list it: the next change of the Node asks again.
        if !process.node.as_ref().is_some_and(|node| node.volumes_attached.contains_key(&name)) {
            return;
        }
        let failure = if !process.reported.contains(&name) {
            Some("listed before it was reported in use")
        } else if self.partitioned {
            Some("the API server cannot be reached")
        } else if !at.api.node(&self.name).is_some_and(|node| node.volumes_attached.contains_key(&name)) {
            Some("not listed in a live read")
        } else {
            None
        };
        if let Some(why) = failure {
            let again = work.back_off(now);
            self.set(again, Timer::Verify(volume.clone()));
            at.note(format!("cannot verify {volume}"), why);
            return;
        }
        work.succeed();
        work.stage = Stage::Attached;
        work.attachable = true;
        self.set(now + LOOP_PERIOD, Timer::Mount(volume.clone()));
    }

    /// WaitForAttach (one GET), then the device, then the mount begins.
    pub(super) fn begin_mount(&mut self, volume: &VolumeKey, at: &mut Surroundings<'_>) {
        let now = at.now.monotonic;
        if !self.is_wanted(volume) {
            self.release_volume(volume, at);
            return;
        }
        let ready = self.wait_for_attach(volume, at);
        let takes = at.after(self.options.mount);
        let Some(work) = self.process.as_mut().and_then(|process| process.volumes.get_mut(volume)) else { return };
        if work.stage != Stage::Attached || now < work.not_before {
            return;
        }
        match ready {
            Ok(generation) => {
                work.stage = Stage::Mounting(generation);
                self.set(takes, Timer::Mounted(volume.clone()));
            }
            Err(why) => {
                let again = work.back_off(now);
                self.set(again, Timer::Mount(volume.clone()));
                at.note(format!("cannot mount {volume}"), why);
            }
        }
    }

    fn wait_for_attach(&self, volume: &VolumeKey, at: &Surroundings<'_>) -> Result<u64, &'static str> {
        if self.partitioned {
            return Err("the API server cannot be reached");
        }
        let object = at.api.attachment(&self.attachment_name(volume)).ok_or("the VolumeAttachment is not there")?;
        if object.deleting.is_some() {
            return Err("the VolumeAttachment is being deleted");
        }
        if !object.status.attached {
            return Err("the VolumeAttachment is not attached");
        }
        if volume.driver.is_ebs() && object.status.device_path.is_none() {
            return Err("the VolumeAttachment names no device path");
        }
        self.device(volume, at).ok_or("the device is not there")
    }

    fn attachment_name(&self, volume: &VolumeKey) -> AttachmentName {
        AttachmentName::of(&AttachmentKey { volume: volume.clone(), node: self.name.clone() })
    }

    /// The attachment through which the guest sees the device. A device on its way out is still there; that of another
    /// driver is there for as long as its VolumeAttachment.
    fn device(&self, volume: &VolumeKey, at: &Surroundings<'_>) -> Option<u64> {
        let Some(id) = volume.aws_volume_id() else {
            return at.api.attachment(&self.attachment_name(volume)).map(|_| 0);
        };
        let attachment = at.ec2.volume(&id)?.attachment(self.machine.instance())?;
        let seen =
            matches!(attachment.state, AttachmentState::Attached | AttachmentState::Detaching | AttachmentState::Busy);
        seen.then_some(attachment.generation)
    }

    /// The mount is done, if the device is still the one it began on.
    pub(super) fn end_mount(&mut self, volume: &VolumeKey, at: &mut Surroundings<'_>) {
        let device = self.device(volume, at);
        let Some(work) = self.process.as_mut().and_then(|process| process.volumes.get_mut(volume)) else { return };
        let Stage::Mounting(generation) = work.stage else { return };
        if device != Some(generation) {
            work.stage = Stage::Attached;
            let again = work.back_off(at.now.monotonic);
            self.set(again, Timer::Mount(volume.clone()));
            at.note(format!("cannot mount {volume}"), "the device went away");
            return;
        }
        work.succeed();
        work.stage = Stage::Mounted;
        let attached = volume.aws_volume_id().and_then(|id| at.ec2.volume(&id)?.attachment(self.machine.instance()));
        let device_name = attached.map_or_else(|| DeviceName::new(""), |attachment| attachment.device.clone());
        self.machine.mount(volume.clone(), generation, device_name);
        self.set_guest_holds(volume, true, at);
        at.deeds.push(Deed::MountChanged(volume.clone()));
        at.note(format!("mounted {volume}"), "");
        self.start_ready_pods(at);
        if !self.is_wanted(volume) {
            self.release_volume(volume, at);
        }
    }

    /// A pod no longer wants the volume: when none does, it is unmounted, or forgotten if it never was mounted.
    pub(super) fn release_volume(&mut self, volume: &VolumeKey, at: &mut Surroundings<'_>) {
        if self.is_wanted(volume) {
            return;
        }
        let takes = match self.slow_unmount {
            Some(takes) => at.now.monotonic + takes,
            None => at.after(self.options.unmount),
        };
        let Some(process) = &mut self.process else { return };
        let Some(work) = process.volumes.get_mut(volume) else { return };
        match work.stage {
            Stage::Unattached | Stage::Attached => {
                process.volumes.remove(volume);
                self.unset(|timer| matches!(timer, Timer::Verify(of) | Timer::Mount(of) if of == volume));
                self.plan_status(at);
            }
            Stage::Mounted => {
                work.stage = Stage::Unmounting;
                self.set(takes, Timer::Unmounted(volume.clone()));
            }
            // A pending operation is waited for.
            Stage::Mounting(_) | Stage::Unmounting => {}
        }
    }

    /// The unmount is done: the volume leaves the actual state at once.
    pub(super) fn end_unmount(&mut self, volume: &VolumeKey, at: &mut Surroundings<'_>) {
        if self.machine.unmount(volume) {
            self.set_guest_holds(volume, false, at);
            at.deeds.push(Deed::MountChanged(volume.clone()));
            at.note(format!("unmounted {volume}"), "");
        }
        if let Some(process) = &mut self.process {
            process.volumes.remove(volume);
        }
        if self.is_wanted(volume) {
            self.want_volume(volume, at);
        }
        self.plan_status(at);
    }
}
