//! What can go wrong in EC2, as data: switched on by scenarios, checkers and the sandbox's control endpoint.
//!
//! Counted faults wear off, the others last until [`super::Ec2Model::heal`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smol_str::SmolStr;

use super::error::Ec2Error;
use super::options::Staleness;
use crate::controller::command::Ec2Call;
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId};

/// An action of the EC2 API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ec2Action {
    /// AttachVolume
    AttachVolume,
    /// DetachVolume
    DetachVolume,
    /// DescribeVolumes
    DescribeVolumes,
    /// DescribeInstances
    DescribeInstances,
    /// DescribeInstanceTypes
    DescribeInstanceTypes,
    /// DescribeInstanceStatus
    DescribeInstanceStatus,
    /// DescribeVolumeStatus
    DescribeVolumeStatus,
}

impl Ec2Action {
    /// Every action.
    pub const ALL: [Self; 7] = [
        Self::AttachVolume,
        Self::DetachVolume,
        Self::DescribeVolumes,
        Self::DescribeInstances,
        Self::DescribeInstanceTypes,
        Self::DescribeInstanceStatus,
        Self::DescribeVolumeStatus,
    ];

    /// The action of a call.
    pub fn of(call: &Ec2Call) -> Self {
        match call {
            Ec2Call::AttachVolume { .. } => Self::AttachVolume,
            Ec2Call::DetachVolume { .. } => Self::DetachVolume,
            Ec2Call::DescribeVolumes { .. } => Self::DescribeVolumes,
            Ec2Call::DescribeInstances { .. } => Self::DescribeInstances,
            Ec2Call::DescribeInstanceTypes { .. } => Self::DescribeInstanceTypes,
            Ec2Call::DescribeInstanceStatus { .. } => Self::DescribeInstanceStatus,
            Ec2Call::DescribeVolumeStatus { .. } => Self::DescribeVolumeStatus,
        }
    }

    /// Whether it changes anything.
    pub fn is_mutating(self) -> bool {
        matches!(self, Self::AttachVolume | Self::DetachVolume)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::AttachVolume => "AttachVolume",
            Self::DetachVolume => "DetachVolume",
            Self::DescribeVolumes => "DescribeVolumes",
            Self::DescribeInstances => "DescribeInstances",
            Self::DescribeInstanceTypes => "DescribeInstanceTypes",
            Self::DescribeInstanceStatus => "DescribeInstanceStatus",
            Self::DescribeVolumeStatus => "DescribeVolumeStatus",
        }
    }
}

/// Whether a call whose answer is lost had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostEffect {
    /// It was carried out.
    Applied,
    /// It never arrived.
    NotApplied,
}

/// What is wrong with the answer to a describe call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerFault {
    /// An HTTP 500 with a page of HTML. A mutating call was carried out all the same.
    Unreadable,
    /// One entry is not in it, though it belongs there.
    LeavesOneOut,
    /// Half of its entries (at least one) are not in it, and nothing says that more follow: a page was lost.
    Half,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ec2Fault {
    /// Reads may show the past, and go back in time.
    StaleReads(Staleness),
    /// Attaching under this device name hangs in `attaching` until it is detached.
    StuckDevice {
        /// On this instance; `None`: on every one.
        instance: Option<InstanceId>,
        /// The name (every spelling of its slot).
        device: DeviceName,
    },
    /// The next accepted AttachVolume comes to nothing: the attachment vanishes from `attaching`, with no error anywhere.
    DropNextAttach {
        /// Of this volume; `None`: of any.
        volume: Option<AwsVolumeId>,
    },
    /// AttachVolume takes this much longer from now on.
    SlowAttach(Duration),
    /// DetachVolume takes this much longer from now on.
    SlowDetach(Duration),
    /// The next calls are refused with a code (a server error has no effect either, but the caller cannot know).
    Refuse {
        /// Of this action.
        action: Ec2Action,
        /// Code on the wire.
        code: SmolStr,
        /// Message.
        message: SmolStr,
        /// How many calls.
        count: u32,
    },
    /// The next calls get no answer.
    LoseAnswer {
        /// Of this action.
        action: Ec2Action,
        /// Whether they are carried out.
        effect: LostEffect,
        /// How many calls.
        count: u32,
    },
    /// The next pages of describe calls are empty and say that another follows, which AWS permits.
    EmptyPages(u32),
    /// The next answers of an action are wrong.
    SpoilAnswers {
        /// Of this action.
        action: Ec2Action,
        /// What is wrong with them.
        with: AnswerFault,
        /// How many answers.
        count: u32,
    },
    /// So many of a million pages of DescribeVolumes fail: refused for rate, answered with a page of HTML, or without half
    /// of their entries, a third of them each.
    FailPages {
        /// Of a million.
        per_million: u32,
    },
    /// No call of any action is carried out: an HTTP 503 with a page of HTML comes back.
    Outage,
    /// The client talks to another region (or account): nothing of this one is there, no volume and no instance.
    OtherRegion,
    /// The volume is left out of every answer, though it exists.
    HideVolume(AwsVolumeId),
    /// The instance is left out of every answer, though it exists.
    HideInstance(InstanceId),
    /// The instance is left out of half of the answers, though it exists.
    FlickerInstance(InstanceId),
    /// The volume's state is shown as a text that no client knows.
    ShowVolumeState(AwsVolumeId, SmolStr),
    /// The states of the volume's attachments are shown as a text that no client knows.
    ShowAttachmentState(AwsVolumeId, SmolStr),
    /// The volume shows an attachment to a host of AWS's own: no instance id, no device.
    ShowManagedAttachment(AwsVolumeId),
    /// The volume shows `in-use` and no attachment: what a truncated answer looks like to a lenient parser.
    ShowNoAttachments(AwsVolumeId),
}

/// The faults in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) staleness: Option<Staleness>,
    stuck: Vec<(Option<InstanceId>, DeviceName)>,
    drop_next: Vec<Option<AwsVolumeId>>,
    pub(super) slow_attach: Duration,
    pub(super) slow_detach: Duration,
    refuse: Vec<(Ec2Action, Ec2Error, u32)>,
    lose: Vec<(Ec2Action, LostEffect, u32)>,
    empty_pages: u32,
    spoil: Vec<(Ec2Action, AnswerFault, u32)>,
    pub(super) fail_pages: u32,
    pub(super) outage: bool,
    pub(super) other_region: bool,
    pub(super) flickering_instances: BTreeSet<InstanceId>,
    pub(super) hidden_volumes: BTreeSet<AwsVolumeId>,
    pub(super) hidden_instances: BTreeSet<InstanceId>,
    pub(super) volume_states: BTreeMap<AwsVolumeId, SmolStr>,
    pub(super) attachment_states: BTreeMap<AwsVolumeId, SmolStr>,
    pub(super) managed: BTreeSet<AwsVolumeId>,
    pub(super) without_attachments: BTreeSet<AwsVolumeId>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Ec2Fault) {
        match fault {
            Ec2Fault::StaleReads(staleness) => self.staleness = Some(staleness),
            Ec2Fault::StuckDevice { instance, device } => self.stuck.push((instance, device)),
            Ec2Fault::DropNextAttach { volume } => self.drop_next.push(volume),
            Ec2Fault::SlowAttach(by) => self.slow_attach = by,
            Ec2Fault::SlowDetach(by) => self.slow_detach = by,
            Ec2Fault::Refuse { action, code, message, count } => {
                self.refuse.push((action, Ec2Error::Code { code, message }, count));
            }
            Ec2Fault::LoseAnswer { action, effect, count } => self.lose.push((action, effect, count)),
            Ec2Fault::EmptyPages(count) => self.empty_pages += count,
            Ec2Fault::SpoilAnswers { action, with, count } => self.spoil.push((action, with, count)),
            Ec2Fault::FailPages { per_million } => self.fail_pages = per_million,
            Ec2Fault::Outage => self.outage = true,
            Ec2Fault::OtherRegion => self.other_region = true,
            Ec2Fault::HideVolume(volume) => drop(self.hidden_volumes.insert(volume)),
            Ec2Fault::HideInstance(instance) => drop(self.hidden_instances.insert(instance)),
            Ec2Fault::FlickerInstance(instance) => drop(self.flickering_instances.insert(instance)),
            Ec2Fault::ShowVolumeState(volume, text) => drop(self.volume_states.insert(volume, text)),
            Ec2Fault::ShowAttachmentState(volume, text) => drop(self.attachment_states.insert(volume, text)),
            Ec2Fault::ShowManagedAttachment(volume) => drop(self.managed.insert(volume)),
            Ec2Fault::ShowNoAttachments(volume) => drop(self.without_attachments.insert(volume)),
        }
    }

    /// Ends a fault that lasts; one that is counted, or not in force, is left alone.
    pub(super) fn end(&mut self, fault: &Ec2Fault) {
        match fault {
            Ec2Fault::StaleReads(_) => self.staleness = None,
            Ec2Fault::SlowAttach(_) => self.slow_attach = Duration::ZERO,
            Ec2Fault::SlowDetach(_) => self.slow_detach = Duration::ZERO,
            Ec2Fault::FailPages { .. } => self.fail_pages = 0,
            Ec2Fault::Outage => self.outage = false,
            Ec2Fault::OtherRegion => self.other_region = false,
            Ec2Fault::HideVolume(volume) => drop(self.hidden_volumes.remove(volume)),
            Ec2Fault::HideInstance(instance) => drop(self.hidden_instances.remove(instance)),
            Ec2Fault::FlickerInstance(instance) => drop(self.flickering_instances.remove(instance)),
            Ec2Fault::ShowVolumeState(volume, _) => drop(self.volume_states.remove(volume)),
            Ec2Fault::ShowAttachmentState(volume, _) => drop(self.attachment_states.remove(volume)),
            Ec2Fault::ShowManagedAttachment(volume) => drop(self.managed.remove(volume)),
            Ec2Fault::ShowNoAttachments(volume) => drop(self.without_attachments.remove(volume)),
            Ec2Fault::StuckDevice { .. }
            | Ec2Fault::DropNextAttach { .. }
            | Ec2Fault::Refuse { .. }
            | Ec2Fault::LoseAnswer { .. }
            | Ec2Fault::EmptyPages(_)
            | Ec2Fault::SpoilAnswers { .. } => {}
        }
    }

    /// What is wrong with the next answer of an action; uses one up.
    pub(super) fn spoilt(&mut self, action: Ec2Action) -> Option<AnswerFault> {
        let index = self.spoil.iter().position(|(of, ..)| *of == action)?;
        let (_, with, left) = &mut self.spoil[index];
        *left = left.saturating_sub(1);
        let with = *with;
        if *left == 0 {
            self.spoil.remove(index);
        }
        Some(with)
    }

    /// Whether an attach under this name hangs.
    pub(super) fn hangs(&self, instance: &InstanceId, device: &DeviceName) -> bool {
        self.stuck.iter().any(|(on, name)| on.as_ref().is_none_or(|on| on == instance) && name.slot() == device.slot())
    }

    /// Whether this accepted attach comes to nothing; uses the fault up.
    pub(super) fn drops(&mut self, volume: &AwsVolumeId) -> bool {
        let found = self.drop_next.iter().position(|of| of.as_ref().is_none_or(|of| of == volume));
        found.map(|index| self.drop_next.remove(index)).is_some()
    }

    /// The refusal that this call gets; uses one up.
    pub(super) fn refusal(&mut self, action: Ec2Action) -> Option<Ec2Error> {
        let index = self.refuse.iter().position(|(of, ..)| *of == action)?;
        let (_, error, left) = &mut self.refuse[index];
        *left = left.saturating_sub(1);
        let error = error.clone();
        if *left == 0 {
            self.refuse.remove(index);
        }
        Some(error)
    }

    /// Whether the answer of this call is lost; uses one up.
    pub(super) fn loss(&mut self, action: Ec2Action) -> Option<LostEffect> {
        let index = self.lose.iter().position(|(of, ..)| *of == action)?;
        let (_, effect, left) = &mut self.lose[index];
        *left = left.saturating_sub(1);
        let effect = *effect;
        if *left == 0 {
            self.lose.remove(index);
        }
        Some(effect)
    }

    /// Whether this page is empty; uses one up.
    pub(super) fn empty_page(&mut self) -> bool {
        let empty = self.empty_pages > 0;
        self.empty_pages = self.empty_pages.saturating_sub(1);
        empty
    }
}
