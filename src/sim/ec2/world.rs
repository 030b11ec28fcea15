//! Volumes and instances in time: every state change, whoever asked for it, happens here.
//!
//! Requests (`attach.rs`, `lifecycle.rs`) change states and put later changes on the schedule; `advance` lets them
//! happen, each at its own time. Never looks at all volumes: every change names what it is about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use smol_str::SmolStr;

use super::error::Ec2Error;
use super::fault::{AnswerFault, Ec2Action, Faults};
use super::options::Ec2Options;
use super::records::{Attachment, Caller, EndCause, EndedAttachment, Instance, Volume};
use crate::model::ids::{AwsVolumeId, InstanceId};
use crate::model::time::{Monotonic, Now, Wall};
use crate::model::volume::{AttachmentState, CheckStatus, InstanceState, VolumeState};
use crate::sim::dice::Dice;

/// A change that happens by itself.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// `creating` → `available`
    VolumeCreated(AwsVolumeId),
    /// `deleting` → gone
    VolumeDeleted(AwsVolumeId),
    /// `attaching` → `attached`
    Attached(AwsVolumeId, u64),
    /// `attaching` → gone, unasked
    Dropped(AwsVolumeId, u64),
    /// `detaching` or `busy` → gone, or `busy`
    TakenAway(AwsVolumeId, u64),
    /// `pending` → `running`
    Running(InstanceId),
    /// `stopping` → `stopped`
    Stopped(InstanceId),
    /// `shutting-down`, and the guest is off
    GuestOff(InstanceId),
    /// An instance that is shutting down loses a volume before it is `terminated`
    Freed(AwsVolumeId, u64),
    /// The instance status check comes to another result, unless the guest changed since
    Checked(InstanceId, u64, CheckStatus),
    /// `shutting-down` → `terminated`
    Terminated(InstanceId),
    /// `terminated` → no longer described
    Forgotten(InstanceId),
}

/// Everything there is.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) options: Ec2Options,
    pub(super) faults: Faults,
    pub(super) dice: Dice,
    pub(super) now: Now,
    pub(super) volumes: BTreeMap<AwsVolumeId, Volume>,
    pub(super) instances: BTreeMap<InstanceId, Instance>,
    schedule: BTreeMap<(Monotonic, u64), Change>,
    scheduled: u64,
    generation: u64,
    ended: VecDeque<EndedAttachment>,
    touched: BTreeSet<AwsVolumeId>,
    pub(super) checked: BTreeSet<InstanceId>,
    /// What is wrong with the answer that is being made.
    pub(super) spoilt: Option<AnswerFault>,
}

impl World {
    pub(super) fn new(options: Ec2Options, dice: Dice) -> Self {
        Self {
            options,
            faults: Faults::default(),
            dice,
            now: Now::default(),
            volumes: BTreeMap::new(),
            instances: BTreeMap::new(),
            schedule: BTreeMap::new(),
            scheduled: 0,
            generation: 0,
            ended: VecDeque::new(),
            touched: BTreeSet::new(),
            checked: BTreeSet::new(),
            spoilt: None,
        }
    }

    /// EC2's clock, in whole seconds.
    pub(super) fn clock(&self) -> Wall {
        Wall::from_millis(self.now.wall.as_millis() + self.options.clock_skew_millis).truncated_to_seconds()
    }

    pub(super) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    pub(super) fn schedule(&mut self, after: Duration, change: Change) {
        self.scheduled += 1;
        self.schedule.insert((self.now.monotonic + after, self.scheduled), change);
    }

    pub(super) fn next_change(&self) -> Option<Monotonic> {
        self.schedule.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due, in its order. Time never runs backwards: an earlier `now` changes nothing.
    pub(super) fn advance(&mut self, now: Now) {
        while let Some(entry) = self.schedule.first_entry()
            && entry.key().0 <= now.monotonic
        {
            let at = entry.key().0;
            let change = entry.remove();
            let ahead = at.saturating_since(self.now.monotonic);
            self.now = self.now.plus(ahead);
            self.happen(change);
        }
        if now.monotonic >= self.now.monotonic {
            self.now = now;
        }
    }

    /// What is wrong with the answer to come, by what was switched on for it or by chance. An error: it is refused for
    /// rate.
    pub(super) fn draw_answer(&mut self, action: Ec2Action) -> Result<Option<AnswerFault>, Ec2Error> {
        if action != Ec2Action::DescribeVolumes || !self.dice.chance(self.faults.fail_pages) {
            return Ok(self.faults.spoilt(action));
        }
        match self.dice.below(3) {
            0 => Err(Ec2Error::throttled()),
            1 => Ok(Some(AnswerFault::Unreadable)),
            _ => Ok(Some(AnswerFault::Half)),
        }
    }

    fn happen(&mut self, change: Change) {
        match change {
            Change::VolumeCreated(id) => self.set_volume_state(&id, &VolumeState::Creating, VolumeState::Available),
            Change::VolumeDeleted(id) => {
                self.touched.insert(id.clone());
                self.volumes.remove(&id);
            }
            Change::Attached(id, generation) => {
                if let Some(attachment) = self.attachment_mut(&id, generation)
                    && attachment.state == AttachmentState::Attaching
                {
                    self.set_attachment_state(&id, generation, AttachmentState::Attached);
                }
            }
            Change::Dropped(id, generation) => {
                if let Some(attachment) = self.attachment_mut(&id, generation)
                    && attachment.state == AttachmentState::Attaching
                {
                    self.end_attachment(&id, generation, EndCause::Dropped);
                }
            }
            Change::TakenAway(id, generation) => self.take_away(&id, generation),
            Change::Running(id) => {
                self.set_instance_state(&id, &InstanceState::Pending, InstanceState::Running);
                self.guest_boots(&id);
            }
            Change::GuestOff(id) => self.guest_off(&id),
            Change::Freed(id, generation) => self.end_attachment(&id, generation, EndCause::InstanceTerminated),
            Change::Checked(id, change, check) => {
                if let Some(instance) = self.instances.get_mut(&id).filter(|i| i.guest_changes == change) {
                    instance.instance_check = check;
                    self.checked.insert(id);
                }
            }
            Change::Stopped(id) => {
                self.set_instance_state(&id, &InstanceState::Stopping, InstanceState::Stopped);
                self.release_all(&id);
            }
            Change::Terminated(id) => self.terminated(&id),
            Change::Forgotten(id) => drop(self.instances.remove(&id)),
        }
    }

    fn attachment_mut(&mut self, id: &AwsVolumeId, generation: u64) -> Option<&mut Attachment> {
        self.volumes.get_mut(id)?.attachments.iter_mut().find(|attachment| attachment.generation == generation)
    }

    pub(super) fn set_attachment_state(&mut self, id: &AwsVolumeId, generation: u64, state: AttachmentState) {
        let at = self.now.monotonic;
        if let Some(attachment) = self.attachment_mut(id, generation) {
            attachment.state = state;
            attachment.since = at;
            self.note_volume(id);
        }
    }

    /// The device is pulled: gone, unless the guest still holds it.
    fn take_away(&mut self, id: &AwsVolumeId, generation: u64) {
        let Some(attachment) = self.attachment_mut(id, generation) else { return };
        let (instance, busy) = (attachment.instance.clone(), attachment.state == AttachmentState::Busy);
        let by = attachment.detach_by.clone().unwrap_or(Caller::Unnamed);
        if self.instances.get(&instance).is_some_and(|instance| instance.held.contains(id)) {
            if !busy {
                self.set_attachment_state(id, generation, AttachmentState::Busy);
            }
        } else {
            self.end_attachment(id, generation, EndCause::Detached { by });
        }
    }

    fn end_attachment(&mut self, id: &AwsVolumeId, generation: u64, cause: EndCause) {
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let Some(index) = volume.attachments.iter().position(|a| a.generation == generation) else { return };
        let attachment = volume.attachments.remove(index);
        if volume.attachments.is_empty() && volume.state == VolumeState::InUse {
            volume.state = VolumeState::Available;
        }
        self.note_volume(id);
        let remembers_names = !self.options.reused_device_hangs.is_zero();
        if let Some(instance) = self.instances.get_mut(&attachment.instance) {
            instance.devices.remove(id);
            instance.held.remove(id);
            if remembers_names {
                instance.freed.insert(SmolStr::new(attachment.device.slot()), self.now.monotonic);
            }
        }
        self.note_instance(&attachment.instance);
        if self.ended.len() >= self.options.ended_kept {
            self.ended.pop_front();
        }
        self.ended.push_back(EndedAttachment { volume: id.clone(), attachment, at: self.now.monotonic, cause });
    }

    /// The guest of an instance that is shutting down is off: EC2 may take volumes from it before it is `terminated`,
    /// each showing `detaching` for a while or not at all.
    fn guest_off(&mut self, id: &InstanceId) {
        let Some(instance) = self.instances.get_mut(id).filter(|i| i.state == InstanceState::ShuttingDown) else {
            return;
        };
        instance.is_off = true;
        let volumes: Vec<AwsVolumeId> = instance.devices.keys().cloned().collect();
        self.release_all(id);
        for volume in volumes {
            let generation = self.volumes.get(&volume).and_then(|v| v.attachment(id)).map(|a| a.generation);
            let early = self.dice.chance(u32::from(self.options.freed_while_shutting_down) * 10_000);
            if let Some(generation) = generation.filter(|_| early) {
                self.set_attachment_state(&volume, generation, AttachmentState::Detaching);
                let after = self.options.detaching.draw(&mut self.dice);
                self.schedule(after, Change::Freed(volume, generation));
            }
        }
    }

    fn terminated(&mut self, id: &InstanceId) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        instance.held.clear();
        let volumes: Vec<AwsVolumeId> = instance.devices.keys().cloned().collect();
        for volume in volumes {
            let generation = self.volumes.get(&volume).and_then(|v| v.attachment(id)).map(|a| a.generation);
            if let Some(generation) = generation {
                self.end_attachment(&volume, generation, EndCause::InstanceTerminated);
            }
        }
        self.set_instance_state(id, &InstanceState::ShuttingDown, InstanceState::Terminated);
        self.schedule(self.options.terminated_visible, Change::Forgotten(id.clone()));
    }

    /// The guest is gone or starts anew: nothing is held any more, and what was busy is let go.
    pub(super) fn release_all(&mut self, id: &InstanceId) {
        let held = self.instances.get_mut(id).map(|instance| std::mem::take(&mut instance.held)).unwrap_or_default();
        for volume in held {
            self.let_go(id, &volume);
        }
    }

    /// The guest let go of a volume: a busy detach goes through.
    pub(super) fn let_go(&mut self, instance: &InstanceId, id: &AwsVolumeId) {
        let busy = self
            .volumes
            .get(id)
            .and_then(|volume| volume.attachment(instance))
            .filter(|attachment| attachment.state == AttachmentState::Busy);
        if let Some(generation) = busy.map(|attachment| attachment.generation) {
            let after = self.options.busy_release.draw(&mut self.dice);
            self.schedule(after, Change::TakenAway(id.clone(), generation));
        }
    }

    fn set_volume_state(&mut self, id: &AwsVolumeId, from: &VolumeState, to: VolumeState) {
        if let Some(volume) = self.volumes.get_mut(id)
            && volume.state == *from
        {
            volume.state = to;
            self.note_volume(id);
        }
    }

    pub(super) fn set_instance_state(&mut self, id: &InstanceId, from: &InstanceState, to: InstanceState) {
        if let Some(instance) = self.instances.get_mut(id)
            && instance.state == *from
        {
            instance.state = to;
            instance.since = self.now.monotonic;
            self.note_instance(id);
        }
    }

    /// A volume changed: remembered for reads of the past, and told to checkers.
    pub(super) fn note_volume(&mut self, id: &AwsVolumeId) {
        if let Some(volume) = self.volumes.get_mut(id) {
            let view = volume.view();
            volume.history.push(self.now.monotonic, view);
            self.touched.insert(id.clone());
        }
    }

    pub(super) fn note_instance(&mut self, id: &InstanceId) {
        if let Some(instance) = self.instances.get_mut(id) {
            let view = instance.view();
            instance.history.push(self.now.monotonic, view);
        }
    }

    pub(super) fn ended(&self) -> impl Iterator<Item = &EndedAttachment> {
        self.ended.iter()
    }

    pub(super) fn take_ended(&mut self) -> Vec<EndedAttachment> {
        self.ended.drain(..).collect()
    }

    pub(super) fn take_checked(&mut self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut self.checked)
    }

    pub(super) fn take_touched(&mut self) -> BTreeSet<AwsVolumeId> {
        std::mem::take(&mut self.touched)
    }
}
