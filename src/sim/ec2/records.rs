//! The truth about volumes, attachments and instances, as checkers see it.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::history::History;
use crate::controller::event::Term;
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType, Zone};
use crate::model::time::{Monotonic, Wall};
use crate::model::volume::{
    AttachmentReading, AttachmentState, BlockDeviceMapping, CheckStatus, InstanceState, VolumeState,
};

/// Who made a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// attachd, in this period of leadership.
    Leader(Term),
    /// A person at the console.
    Person,
    /// A client of the sandbox, or a test that does not care.
    Unnamed,
}

/// One attachment: from the acceptance of AttachVolume until it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Unique in the life of the model: two attachments of one volume to one instance differ here.
    pub generation: u64,
    /// The instance.
    pub instance: InstanceId,
    /// As asked for.
    pub device: DeviceName,
    /// As asked for.
    pub card: Option<u32>,
    /// `attaching`, `attached`, `detaching` or `busy`.
    pub state: AttachmentState,
    /// When it came into that state.
    pub since: Monotonic,
    /// When AttachVolume was accepted.
    pub requested: Monotonic,
    /// The same by EC2's clock, in whole seconds.
    pub attach_time: Wall,
    /// Who attached it.
    pub by: Caller,
    /// Who asked first that it be detached.
    pub detach_by: Option<Caller>,
}

impl Attachment {
    pub(super) fn reading(&self) -> AttachmentReading {
        AttachmentReading {
            instance: Some(self.instance.clone()),
            device: Some(self.device.clone()),
            state: self.state.clone(),
            attach_time: Some(self.attach_time),
        }
    }
}

/// Why an attachment ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// DetachVolume.
    Detached {
        /// Who called first.
        by: Caller,
    },
    /// The instance was terminated.
    InstanceTerminated,
    /// EC2 dropped it while attaching (a fault).
    Dropped,
}

/// An attachment that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedAttachment {
    /// The volume.
    pub volume: AwsVolumeId,
    /// As it was at last.
    pub attachment: Attachment,
    /// When it was gone.
    pub at: Monotonic,
    /// Why.
    pub cause: EndCause,
}

/// A volume.
#[derive(Clone, Debug)]
pub struct Volume {
    pub(super) id: AwsVolumeId,
    pub(super) zone: Zone,
    pub(super) multi_attach: bool,
    pub(super) size_gib: u32,
    pub(super) created: Wall,
    pub(super) state: VolumeState,
    pub(super) tags: BTreeMap<SmolStr, SmolStr>,
    /// Blocks are still being loaded from a snapshot.
    pub(super) initializing: bool,
    pub(super) attachments: Vec<Attachment>,
    pub(super) history: History<VolumeView>,
}

/// What of a volume changes and is remembered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VolumeView {
    pub(super) state: VolumeState,
    pub(super) attachments: Vec<AttachmentReading>,
}

impl Volume {
    /// Its id.
    pub fn id(&self) -> &AwsVolumeId {
        &self.id
    }

    /// Its zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Whether several instances may attach it.
    pub fn multi_attach(&self) -> bool {
        self.multi_attach
    }

    /// Its tags.
    pub fn tags(&self) -> &BTreeMap<SmolStr, SmolStr> {
        &self.tags
    }

    /// Its size in GiB.
    pub fn size_gib(&self) -> u32 {
        self.size_gib
    }

    /// When it was created, by EC2's clock.
    pub fn created(&self) -> Wall {
        self.created
    }

    /// Its state.
    pub fn state(&self) -> &VolumeState {
        &self.state
    }

    /// Its attachments, oldest first.
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Its attachment to one instance.
    pub fn attachment(&self, instance: &InstanceId) -> Option<&Attachment> {
        self.attachments.iter().find(|attachment| attachment.instance == *instance)
    }

    pub(super) fn view(&self) -> VolumeView {
        VolumeView {
            state: self.state.clone(),
            attachments: self.attachments.iter().map(Attachment::reading).collect(),
        }
    }
}

/// An instance.
#[derive(Clone, Debug)]
pub struct Instance {
    pub(super) id: InstanceId,
    pub(super) instance_type: InstanceType,
    pub(super) zone: Zone,
    pub(super) root: AwsVolumeId,
    pub(super) launched: Wall,
    pub(super) state: InstanceState,
    pub(super) since: Monotonic,
    pub(super) visible_from: Monotonic,
    /// Data volumes attached, in whatever state, with name and card.
    pub(super) devices: BTreeMap<AwsVolumeId, (DeviceName, Option<u32>)>,
    /// Names taken by the image: they are in use, and no answer shows them.
    pub(super) hidden_names: BTreeSet<DeviceName>,
    /// When each slot was last freed; kept only while the option needs it.
    pub(super) freed: BTreeMap<SmolStr, Monotonic>,
    /// What the guest has mounted or opened: a detach of it stays `busy`.
    pub(super) held: BTreeSet<AwsVolumeId>,
    /// Whether the guest is off for good, though the instance still shows `shutting-down`.
    pub(super) is_off: bool,
    /// What the system status check finds while it runs.
    pub(super) system_check: CheckStatus,
    /// What the instance status check finds while it runs.
    pub(super) instance_check: CheckStatus,
    /// A change of the instance status check that is under way is void if this was counted up since.
    pub(super) guest_changes: u64,
    pub(super) history: History<InstanceView>,
}

/// What of an instance changes and is remembered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InstanceView {
    pub(super) state: InstanceState,
    pub(super) mappings: Vec<BlockDeviceMapping>,
}

/// The name of every root device.
pub(super) const ROOT_DEVICE: &str = "/dev/xvda";

impl Instance {
    /// Its id.
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// Its type.
    pub fn instance_type(&self) -> &InstanceType {
        &self.instance_type
    }

    /// Its zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// When it was launched, by EC2's clock.
    pub fn launched(&self) -> Wall {
        self.launched
    }

    /// Its state.
    pub fn state(&self) -> &InstanceState {
        &self.state
    }

    /// When it came into that state.
    pub fn since(&self) -> Monotonic {
        self.since
    }

    /// The data volumes attached to it, in whatever state.
    pub fn volumes(&self) -> impl Iterator<Item = &AwsVolumeId> {
        self.devices.keys()
    }

    /// Whether no guest runs on it, and none will any more without a start.
    pub fn is_off(&self) -> bool {
        self.is_off || matches!(self.state, InstanceState::Terminated | InstanceState::Stopped)
    }

    /// What its system status check finds while it runs.
    pub fn system_check(&self) -> &CheckStatus {
        &self.system_check
    }

    /// What its instance status check finds while it runs.
    pub fn instance_check(&self) -> &CheckStatus {
        &self.instance_check
    }

    /// Whether the guest holds the volume.
    pub fn holds(&self, volume: &AwsVolumeId) -> bool {
        self.held.contains(volume)
    }

    pub(super) fn view(&self) -> InstanceView {
        let gone = self.state == InstanceState::Terminated;
        let root =
            BlockDeviceMapping { device: DeviceName::new(ROOT_DEVICE), volume: Some(self.root.clone()), card: None };
        let data = self.devices.iter().map(|(volume, (device, card))| BlockDeviceMapping {
            device: device.clone(),
            volume: Some(volume.clone()),
            card: *card,
        });
        let mappings = (!gone).then_some(root).into_iter().chain(data).collect();
        InstanceView { state: self.state.clone(), mappings }
    }
}
