//! AttachVolume and DetachVolume: what EC2 checks, in its order, and what it starts.

use super::error::Ec2Error;
use super::records::{Attachment, Caller, Instance, ROOT_DEVICE, Volume};
use super::world::{Change, World};
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId};
use crate::model::time::Wall;
use crate::model::volume::{AttachmentState, InstanceState, VolumeState};

use super::options::{TypeLimits, WrongDevice};

/// How many instances may share a volume.
const MULTI_ATTACH_LIMIT: usize = 16;
/// The age of an attachment that a world is set up with.
const LONG_AGO_MILLIS: i64 = 3_600_000;

impl World {
    /// AttachVolume: checks, then `attaching`.
    pub(super) fn attach(
        &mut self,
        caller: &Caller,
        volume: &AwsVolumeId,
        instance: &InstanceId,
        device: &DeviceName,
        card: Option<u32>,
    ) -> Result<(), Ec2Error> {
        self.check_attach(volume, instance, device, card)?;
        let generation = self.next_generation();
        let attachment = Attachment {
            generation,
            instance: instance.clone(),
            device: device.clone(),
            card,
            state: AttachmentState::Attaching,
            since: self.now.monotonic,
            requested: self.now.monotonic,
            attach_time: self.clock(),
            by: caller.clone(),
            detach_by: None,
        };
        let after = self.options.attaching.draw(&mut self.dice) + self.faults.slow_attach;
        if self.faults.drops(volume) {
            self.schedule(after, Change::Dropped(volume.clone(), generation));
        } else if !self.hangs(instance, device) {
            self.schedule(after, Change::Attached(volume.clone(), generation));
        }
        if let Some(record) = self.volumes.get_mut(volume) {
            record.attachments.push(attachment);
            record.state = VolumeState::InUse;
        }
        if let Some(record) = self.instances.get_mut(instance) {
            record.devices.insert(volume.clone(), (device.clone(), card));
        }
        self.note_volume(volume);
        self.note_instance(instance);
        Ok(())
    }

    /// The attachment has been there for an hour, and EC2 has long forgotten any other past of it.
    pub(super) fn attached_long_ago(&mut self, id: &AwsVolumeId, instance: &InstanceId) {
        let attach_time = Wall::from_millis(self.clock().as_millis() - LONG_AGO_MILLIS);
        let Some(volume) = self.volumes.get_mut(id) else { return };
        let Some(attachment) = volume.attachments.iter_mut().find(|a| a.instance == *instance) else { return };
        attachment.attach_time = attach_time;
        let generation = attachment.generation;
        self.set_attachment_state(id, generation, AttachmentState::Attached);
    }

    fn check_attach(
        &self,
        id: &AwsVolumeId,
        instance_id: &InstanceId,
        device: &DeviceName,
        card: Option<u32>,
    ) -> Result<(), Ec2Error> {
        let volume = self.known_volume(id)?;
        let instance = self.visible_instance(instance_id)?;
        if !matches!(instance.state, InstanceState::Running | InstanceState::Stopped) {
            return Err(Ec2Error::instance_state(instance_id));
        }
        if volume.zone != instance.zone {
            return Err(Ec2Error::other_zone(id, instance_id));
        }
        check_volume(volume, instance_id)?;
        if !is_device_name(device) {
            return Err(Ec2Error::device_invalid(device));
        }
        if takes_name(instance, device) {
            return Err(Ec2Error::device_taken(device));
        }
        check_limits(instance, self.options.limits(&instance.instance_type), card)
    }

    /// Whether the instance takes no more volumes.
    pub(super) fn is_full(&self, id: &InstanceId) -> bool {
        // The root takes one slot.
        let taken = |instance: &Instance| u32::try_from(instance.devices.len() + 1).unwrap_or(u32::MAX);
        let full = |instance: &Instance| taken(instance) >= self.options.limits(&instance.instance_type).attachments;
        self.instances.get(id).is_some_and(full)
    }

    fn visible_instance(&self, id: &InstanceId) -> Result<&Instance, Ec2Error> {
        self.instances
            .get(id)
            .filter(|instance| instance.visible_from <= self.now.monotonic && self.has_instance(id))
            .ok_or_else(|| Ec2Error::instance_not_found(id))
    }

    fn known_volume(&self, id: &AwsVolumeId) -> Result<&Volume, Ec2Error> {
        self.volumes.get(id).filter(|_| self.has_volume(id)).ok_or_else(|| Ec2Error::volume_not_found(id))
    }

    fn hangs(&self, instance: &InstanceId, device: &DeviceName) -> bool {
        let reused = self
            .instances
            .get(instance)
            .and_then(|record| record.freed.get(device.slot()))
            .is_some_and(|freed| self.now.monotonic.saturating_since(*freed) < self.options.reused_device_hangs);
        reused || self.faults.hangs(instance, device)
    }

    /// DetachVolume: checks, then `detaching`. A repeated call on an attachment that is being detached is accepted and
    /// changes nothing.
    pub(super) fn detach(
        &mut self,
        caller: &Caller,
        id: &AwsVolumeId,
        instance: Option<&InstanceId>,
        device: Option<&DeviceName>,
    ) -> Result<(), Ec2Error> {
        let attachment = self.check_detach(id, instance, device)?;
        if matches!(attachment.state, AttachmentState::Detaching | AttachmentState::Busy) {
            return Ok(());
        }
        let generation = attachment.generation;
        if let Some(volume) = self.volumes.get_mut(id)
            && let Some(attachment) = volume.attachments.iter_mut().find(|a| a.generation == generation)
        {
            attachment.detach_by = Some(caller.clone());
        }
        self.set_attachment_state(id, generation, AttachmentState::Detaching);
        let after = self.options.detaching.draw(&mut self.dice) + self.faults.slow_detach;
        self.schedule(after, Change::TakenAway(id.clone(), generation));
        Ok(())
    }

    fn check_detach(
        &self,
        id: &AwsVolumeId,
        instance: Option<&InstanceId>,
        device: Option<&DeviceName>,
    ) -> Result<&Attachment, Ec2Error> {
        if let Some(instance) = instance {
            let record = self.visible_instance(instance)?;
            if record.root == *id {
                let text = format!("Unable to detach root volume '{id}' from instance '{instance}'");
                return Err(Ec2Error::new("OperationNotPermitted", text));
            }
        }
        let volume = self.known_volume(id)?;
        if volume.attachments.is_empty() {
            return Err(Ec2Error::volume_state(id, volume.state.as_str()));
        }
        let attachment = match instance {
            Some(instance) => volume.attachment(instance).ok_or_else(|| Ec2Error::not_attached(id, instance))?,
            None if volume.multi_attach => {
                return Err(Ec2Error::new("MissingParameter", "The request must contain the parameter InstanceId"));
            }
            None => &volume.attachments[0],
        };
        let other_device = device.is_some_and(|device| *device != attachment.device);
        if other_device && self.options.wrong_device == WrongDevice::Refused {
            return Err(Ec2Error::not_attached(id, &attachment.instance));
        }
        Ok(attachment)
    }
}

fn check_volume(volume: &Volume, instance: &InstanceId) -> Result<(), Ec2Error> {
    let shared_anew = volume.multi_attach && volume.attachment(instance).is_none();
    match volume.state {
        VolumeState::Available => Ok(()),
        VolumeState::InUse if !shared_anew => Err(Ec2Error::volume_in_use(&volume.id)),
        VolumeState::InUse if volume.attachments.len() >= MULTI_ATTACH_LIMIT => {
            let text = format!("Volume '{}' is attached to {MULTI_ATTACH_LIMIT} instances.", volume.id);
            Err(Ec2Error::new("AttachmentLimitExceeded", text))
        }
        VolumeState::InUse => Ok(()),
        _ => Err(Ec2Error::volume_state(&volume.id, volume.state.as_str())),
    }
}

/// The root counts as one attachment, on the first card.
fn check_limits(instance: &Instance, limits: TypeLimits, card: Option<u32>) -> Result<(), Ec2Error> {
    let card = card.unwrap_or(0);
    if card >= limits.cards {
        return Err(Ec2Error::new(
            "InvalidParameterValue",
            format!("EbsCardIndex {card} is not valid for the instance type."),
        ));
    }
    let on_card = instance.devices.values().filter(|(_, of)| of.unwrap_or(0) == card).count() + usize::from(card == 0);
    let share = limits.attachments / limits.cards;
    if u32::try_from(on_card).unwrap_or(u32::MAX) >= share {
        return Err(Ec2Error::instance_full(&instance.id, share));
    }
    Ok(())
}

fn takes_name(instance: &Instance, device: &DeviceName) -> bool {
    let root = DeviceName::new(ROOT_DEVICE);
    let data = instance.devices.values().map(|(name, _)| name);
    data.chain(&instance.hidden_names).chain([&root]).any(|name| name.slot() == device.slot())
}

/// `sd[a-z]`, with a partition up to 15; `xvd[a-z]`, `xvd[a-c][a-z]`, `xvdd[a-x]`; `/dev/` may be left out.
fn is_device_name(device: &DeviceName) -> bool {
    let name = device.as_str();
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let letter = |byte: u8| byte.is_ascii_lowercase();
    if let Some(rest) = name.strip_prefix("xvd") {
        return match *rest.as_bytes() {
            [one] => letter(one),
            [b'a'..=b'c', two] => letter(two),
            [b'd', two] => (b'a'..=b'x').contains(&two),
            _ => false,
        };
    }
    let Some((first, partition)) = name.strip_prefix("sd").and_then(|rest| rest.split_at_checked(1)) else {
        return false;
    };
    first.bytes().all(letter) && (partition.is_empty() || partition.parse::<u8>().is_ok_and(|n| (1..=15).contains(&n)))
}
