//! One volume on one node: what is recorded, what is confirmed, and how far its operation has come.
//!
//! Flow: watch events and outcomes change it, the reconciler advances it. Plain state; the steps are in `reconciler`.

use smol_str::SmolStr;

use super::in_flight::{AttachSend, CallKind};
use crate::controller::command::{AttachmentStatusChange, Recorded};
use crate::controller::reason::BlockedReason;
use crate::controller::status::ForcedReason;
use crate::model::attachment::VolumeAttachment;
use crate::model::device::DeviceName;
use crate::model::ids::{InstanceId, PersistentVolumeName, Uid};
use crate::model::outcome::CommandId;
use crate::model::pod::InlineEbs;
use crate::model::time::{Monotonic, Now, Wall};

/// One volume on one node.
#[derive(Debug, Default)]
pub struct Slot {
    /// The VolumeAttachment as last known.
    pub object: Option<VolumeAttachment>,
    /// What it records (kept when the object vanished).
    pub recorded: Option<Recorded>,
    /// For other drivers: the Node UID when the VolumeAttachment was first seen.
    pub node_uid: Option<Uid>,
    /// Where it came from.
    pub origin: Origin,
    /// Its status said attached at some time, or EC2 confirmed it.
    pub ever_attached: bool,
    /// It was listed in volumesAttached at some time since it was made.
    pub ever_listed: bool,
    /// EC2 confirmed the attachment.
    pub confirmed: Option<Confirmation>,
    /// The AttachVolume of this process.
    pub attach_sent: Option<AttachSend>,
    /// What was sent to detach.
    pub detach_sent: DetachSent,
    /// The way out, if it is not wanted.
    pub leaving: Option<Leaving>,
    /// The fencing ladder was climbed and the VolumeAttachment deleted by this process.
    pub cleared: bool,
    /// It left the list by rung (c) or (d): it may still be mounted.
    pub forced: bool,
    /// Rule 6 unlisted it, and nothing listed it since.
    pub unlisted: bool,
    /// A heal under way.
    pub heal: Option<Heal>,
    /// The object vanished without this process finishing it.
    pub vanished: bool,
    /// The write under way on the object.
    pub write: Option<Write>,
    /// A write of unknown outcome: a live GET settles it.
    pub unsettled: bool,
    /// Until then calls of an earlier leader may be under way.
    pub inherited_until: Option<Monotonic>,
    /// Why it waits.
    pub blocked: Option<Blocked>,
    /// What EC2 refused the last call of this kind with, until another is sent.
    pub refusal: Option<(CallKind, String)>,
    /// What the pods' volume is made from, when wanted.
    pub source: Option<NewSource>,
    /// EC2 confirmed the end of this attachment. What happens to the volume elsewhere afterwards does not unprove it.
    pub freed: bool,
    /// The removal of the finalizer was asked for: when the object goes, it is finished.
    pub finish_asked: bool,
    /// A DetachVolume was accepted or may have been (a later refused one does not unsend it).
    pub detach_effective: bool,
    /// Device names EC2 refused in the present attach.
    pub tried: Vec<DeviceName>,
    /// EC2 refused the recorded device: the next name is recorded before AttachVolume is sent again.
    pub needs_name: bool,
    /// The recorded device was chosen by this process, and nothing was attached under it yet.
    pub fresh_name: bool,
    /// How long EC2 has shown the attachment on its way in or out.
    pub in_transit: Option<InTransit>,
    /// The EBS card chosen with the device.
    pub card: Option<u32>,
    /// An attachError or a detachError to be written.
    pub error_to_write: Option<AttachmentStatusChange>,
    /// The write whose outcome is unknown.
    pub unsettled_kind: Option<WriteKind>,
    /// Other drivers: when the status was first seen attached.
    pub confirmed_at: Option<Monotonic>,
    /// A SuccessfulAttachVolume event was written for the present attachment.
    pub announced: bool,
    /// A person's word that it is not mounted, as first seen.
    pub unmounted_word: Option<Word>,
    /// The instance on which the attach waits for room.
    pub waits_on: Option<InstanceId>,
    /// The instance on which its end makes room, while that is under way.
    pub leaves: Option<InstanceId>,
}

/// An attachment that EC2 shows on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTransit {
    /// On its way out (`detaching`, `busy`, or a state this version does not know), not in (`attaching`).
    pub leaving: bool,
    /// Since its AttachVolume was sent, or since this process first saw it so.
    pub since: Monotonic,
    /// When a hung attach was given up last.
    pub given_up: Option<Monotonic>,
    /// How many times its long wait was said.
    pub said: usize,
}

/// A person's word that the volume is not mounted (rule 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The boot it was said of.
    pub boot: SmolStr,
    /// When this process saw it being said.
    pub seen: Wall,
    /// It was said while this process watched, and the volume was neither attached nor seen in use since.
    pub counts: bool,
}

/// What a VolumeAttachment is made from.
pub type NewSource = crate::model::attachment::NewAttachmentSource;

/// Where a slot came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Found: made by an earlier leader, by upstream, or by a person.
    #[default]
    Found,
    /// Made by this process while EC2 showed the volume attached nowhere.
    MadeFree,
    /// Made by this process over an attachment (heal, rule 9): counts as attached from its create.
    MadeOver,
}

/// EC2 confirmed it attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// As EC2 reports it.
    pub device: DeviceName,
    /// AttachTime.
    pub attach_time: Option<Wall>,
    /// When we saw it.
    pub at: Monotonic,
}

/// What was sent to detach under the present VolumeAttachment (rule 8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DetachSent {
    /// Nothing.
    #[default]
    Nothing,
    /// Only calls that definitely had no effect.
    OnlyRefused,
    /// One that was accepted or may have been.
    Sent,
}

/// The way out of an attachment that is not wanted, before its VolumeAttachment is deleted (rule 6).
#[derive(Clone, Debug)]
pub struct Leaving {
    /// When it was first wished for.
    pub since: Now,
    /// Found when this process began to lead: earlier waiting counts.
    pub found_at_start: bool,
    /// How far.
    pub step: LeaveStep,
}

/// The steps of rule 6 up to the delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaveStep {
    /// Waiting for a rung of the ladder.
    Wish,
    /// The unlisting patch is asked for.
    Unlisting {
        /// The rung that was open.
        rung: Rung,
        /// Only a patch made after this counts.
        since: Monotonic,
    },
    /// Unlisted and acknowledged, or no Node of the instance: live reads begun after this are awaited.
    Checking {
        /// The rung that was open.
        rung: Rung,
        /// Only reads begun after this count.
        after: Monotonic,
        /// The Node UID of the patch; `None` if there was no Node of the instance.
        uid: Option<Uid>,
    },
    /// The live reads passed; the VolumeAttachment is being deleted.
    Deleting {
        /// The rung.
        rung: Rung,
        /// When the live reads were judged.
        judged: Monotonic,
    },
}

/// A rung of the fencing ladder (G1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// (a) absent from volumesInUse, where absence is evidence.
    Released,
    /// It was never listed and never attached: it cannot be mounted (rule 3).
    NeverMounted,
    /// (b) the machine is dead.
    Dead(Death),
    /// (c) fenced by a person's out-of-service taint.
    OutOfService,
    /// (d) given up after the unmount timeout.
    GivenUp,
}

/// What EC2 says of a dead machine (rung b).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// `terminated`: nothing else matters.
    Terminated,
    /// `stopped`, and its node is not Ready or gone.
    Stopped,
    /// Not there any more, its node not Ready or gone, and the volume shows no attachment to it.
    Absent,
}

impl Rung {
    /// Whether the volume may still be mounted when this rung opened.
    pub fn is_forced(self) -> bool {
        self.forced_reason().is_some()
    }

    /// Whether a pod on the node that was never resolved keeps the rung shut (rule 10).
    pub fn is_shut_by_unresolved_pods(self) -> bool {
        self.is_forced() || matches!(self, Self::Dead(Death::Stopped | Death::Absent))
    }

    /// Why the volume is taken without the node's word, if it is.
    pub fn forced_reason(self) -> Option<ForcedReason> {
        match self {
            Self::Released | Self::NeverMounted | Self::Dead(_) => None,
            Self::OutOfService => Some(ForcedReason::OutOfService),
            Self::GivenUp => Some(ForcedReason::Timeout),
        }
    }
}

/// A heal (rule 8) or a re-creation of a vanished VolumeAttachment (rule 9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heal {
    /// Rule 6 had unlisted it: listed again first, while still Terminating.
    Relisting,
    /// The finalizer is being removed without a detach.
    Removing,
    /// The object is gone; it is being made again with the old recorded values.
    Making,
}

/// The one write under way on a VolumeAttachment (or on the PersistentVolume before it is made).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its command.
    pub id: CommandId,
    /// What it is.
    pub kind: WriteKind,
}

/// Kinds of writes on behalf of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteKind {
    /// Adds the finalizer to the PersistentVolume.
    ProtectVolume,
    /// Creates the VolumeAttachment.
    Create,
    /// Records finalizer and annotations.
    Record,
    /// `status.attached: true`
    StatusAttached,
    /// `status.attached: false`
    StatusDetached,
    /// `status.attachError` or `status.detachError`
    StatusError,
    /// Deletes the VolumeAttachment.
    Delete,
    /// Removes the finalizer: the end of a detach.
    Finish,
    /// Removes the finalizer without a detach: a heal.
    HealRemove,
    /// Live GET, to settle a write of unknown outcome.
    Settle,
}

/// Why something waits, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Why.
    pub reason: BlockedReason,
    /// Since when for this reason.
    pub since: Monotonic,
}

impl Slot {
    /// The instance of the attachment: frozen in the VolumeAttachment.
    pub fn instance(&self) -> Option<&InstanceId> {
        self.recorded.as_ref().map(|recorded| &recorded.instance)
    }

    /// The Node UID absence is judged by.
    pub fn recorded_uid(&self) -> Option<&Uid> {
        self.recorded.as_ref().map(|recorded| &recorded.node_uid).or(self.node_uid.as_ref())
    }

    /// Whether this process made the VolumeAttachment.
    pub fn made_here(&self) -> bool {
        self.origin != Origin::Found
    }

    /// Whether the object is there and not being deleted.
    pub fn is_live(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.deleting.is_none())
    }

    /// Whether the object is Terminating.
    pub fn is_terminating(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.deleting.is_some())
    }

    /// Whether the volume cannot be mounted, unless an entry of an earlier attachment is on the node's list still: made here
    /// while EC2 showed it free, never attached, never listed (rule 3).
    pub fn cannot_be_mounted(&self) -> bool {
        self.origin == Origin::MadeFree && !self.ever_attached && !self.ever_listed
    }

    /// Notes why it waits; keeps the time while the reason stays.
    pub fn block(&mut self, reason: BlockedReason, now: Monotonic) {
        match &self.blocked {
            Some(blocked) if blocked.reason == reason => {}
            _ => self.blocked = Some(Blocked { reason, since: now }),
        }
    }

    /// Where the last call of this kind was refused, EC2's words are the reason: the reads that follow a refusal say less.
    pub fn block_by_refusal(&mut self, kind: CallKind, now: Monotonic) {
        if let Some((_, text)) = self.refusal.as_ref().filter(|(refused, _)| *refused == kind) {
            self.block(BlockedReason::Refused(text.clone()), now);
        }
    }

    /// Whether a rung of the ladder opened and the way out was begun.
    pub fn is_on_its_way_out(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| leaving.step != LeaveStep::Wish)
    }

    /// The way out starts again at the ladder.
    pub fn check_again(&mut self) {
        if let Some(leaving) = &mut self.leaving {
            leaving.step = LeaveStep::Wish;
        }
    }

    /// A person's word counts no longer.
    pub fn void_word(&mut self) {
        if let Some(word) = &mut self.unmounted_word {
            word.counts = false;
        }
    }

    /// Forgets what belonged to the VolumeAttachment that ended.
    pub fn forget_object(&mut self) {
        let (source, waits_on, leaves) = (self.source.take(), self.waits_on.take(), self.leaves.take());
        *self = Self { source, waits_on, leaves, ..Self::default() };
    }
}

/// The PersistentVolume or inline source of a new VolumeAttachment.
pub fn source_volume_name(source: &NewSource) -> Option<&PersistentVolumeName> {
    match source {
        NewSource::PersistentVolume(name) => Some(name),
        NewSource::Inline(InlineEbs { .. }) => None,
    }
}
