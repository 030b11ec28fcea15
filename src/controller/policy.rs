//! What people set (`Settings`) and what only tests switch off (`Policy`).
//!
//! Every rule of the core has a sabotage: a [`Policy`] without it, under which the simulator must find the loss. In
//! production the policy is [`Policy::FULL`] and nothing can change it.

use std::collections::BTreeSet;
use std::time::Duration;

use smol_str::SmolStr;

use super::event::Role;

/// The settings of the core, validated before they come here.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The jobs this process does.
    pub roles: BTreeSet<Role>,
    /// Rung (d) of the fencing ladder.
    pub force_detach: ForceDetach,
    /// How long a node must be not Ready before rung (d); upstream's constant is 6 min.
    pub unmount_timeout: Duration,
    /// What happens to attachments that are not ours (rule 9).
    pub unknown_attachments: UnknownAttachments,
    /// How long one sweep over every attachment takes: a silent detach is noticed within this and 15 s.
    pub sweep_period: Duration,
    /// How often the states of instances in doubt are read.
    pub instance_period: Duration,
    /// Whether PersistentVolumes without any placement are labelled with the zone EC2 shows.
    pub zone_labels: ZoneLabels,
    /// Whether they also get a node affinity to that zone, which cannot be undone.
    pub zone_affinity: ZoneAffinity,
    /// The region, for the label; `None`: no region label is written.
    pub region: Option<SmolStr>,
    /// Which volumes may be attached and detached at all.
    pub volume_guard: VolumeGuard,
    /// Mutating EC2 calls: AttachVolume, DetachVolume, ModifyVolume share one bucket.
    pub ec2_mutating: Bucket,
    /// Describe calls that operations wait for, at most (the poll interval follows from it).
    pub ec2_describe: Bucket,
    /// Describe calls of sweeps, at most: beside the others, so that neither starves the other.
    pub ec2_sweep: Bucket,
    /// Writes to the API server, Events excepted.
    pub api_writes: Bucket,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Tokens it holds at most.
    pub burst: u32,
    /// Tokens that come back per second.
    pub per_second: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            roles: [Role::AttachDetach, Role::Attacher].into(),
            force_detach: ForceDetach::Impaired,
            unmount_timeout: Duration::from_secs(6 * 60),
            unknown_attachments: UnknownAttachments::Report,
            sweep_period: Duration::from_secs(60),
            instance_period: Duration::from_secs(5),
            zone_labels: ZoneLabels::Write,
            zone_affinity: ZoneAffinity::LeaveAlone,
            region: None,
            volume_guard: VolumeGuard::default(),
            // EC2's default for an account and region is 50 and 5/s, shared by every caller. Two tokens stay: a request
            // that was quicker on the way than the first of its burst would find the last one not there yet.
            ec2_mutating: Bucket { burst: 48, per_second: 5.0 },
            // A tenth of EC2's 20/s: the rest belongs to the others in the account.
            ec2_describe: Bucket { burst: 4, per_second: 2.0 },
            // 100,000 volumes in a minute are 8.4/s. Sweeps are spread evenly and need hardly any burst.
            ec2_sweep: Bucket { burst: 2, per_second: 10.0 },
            // Five writes move a volume: with this EC2's rate is the limit, and 1,000 volumes that EC2 would let move at
            // once take about a minute.
            api_writes: Bucket { burst: 100, per_second: 100.0 },
        }
    }
}

/// When rung (d) of the fencing ladder may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceDetach {
    /// Withheld while EC2 reports the instance running with both status checks ok.
    Impaired,
    /// As upstream: after the timeout.
    Always,
    /// Never.
    Never,
}

/// What happens to an attachment that is not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownAttachments {
    /// Reported, never touched.
    Report,
    /// Led out by a VolumeAttachment and the whole of rule 6.
    Detach,
}

/// Labels of zone and region on PersistentVolumes that have neither labels nor node affinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLabels {
    /// Written from what a sweep shows.
    Write,
    /// Not written.
    LeaveAlone,
}

/// Node affinity of such PersistentVolumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAffinity {
    /// Written, where every node of EBS carries the zone label and it agrees with where the volume is used.
    Write,
    /// Not written.
    LeaveAlone,
}

/// Which volumes may be acted on, by their tags. An account may hold volumes of other clusters; a PersistentVolume can
/// name any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeGuard {
    /// This cluster: a volume tagged `kubernetes.io/cluster/…` for others only is refused.
    pub cluster_name: Option<SmolStr>,
    /// A tag every volume must carry: its key and, if given, its value.
    pub require_tag: Option<(SmolStr, Option<SmolStr>)>,
}

/// The rules in force. Tests switch single ones off to prove that the simulator finds what they prevent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// A bit for each rule: asked many times in every look at a volume.
    off: u64,
}

impl Policy {
    /// Every rule in force.
    pub const FULL: Self = Self { off: 0 };

    /// Every rule in force but these.
    pub fn without(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { off: rules.into_iter().fold(0, |off, rule| off | rule.bit()) }
    }

    /// Whether the rule is in force.
    pub fn holds(&self, rule: Rule) -> bool {
        self.off & rule.bit() == 0
    }
}

/// A clause of design section 3 that can be switched off alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// 1: AttachVolume of an exclusive volume waits for every other holder.
    OneHolder,
    /// 1: never switched to another node once AttachVolume was sent.
    NoSwitchAfterSend,
    /// 2: nothing in use is detached from a Ready node.
    InUseBlocksDetach,
    /// 3: absence from volumesInUse counts only from a Node with the recorded UID.
    AbsenceNeedsRecordedUid,
    /// 3: the unknown mark counts as in use until the boot id changes.
    MarkCountsAsInUse,
    /// 3: a volume listed under another UID, or unlisted by (c) or (d), is marked.
    MarkOnRelist,
    /// 4: only confirmed attachments are listed.
    ListOnlyConfirmed,
    /// 5: AttachVolume is not repeated before the last one is answered or dead.
    NoBlindRepeatAttach,
    /// 5: AttachTime other than before the send, and not older than the send by more than a minute.
    ConfirmByAttachTime,
    /// 5: the attachment is confirmed at the recorded device only.
    ConfirmByDevice,
    /// 5: the Node has the recorded UID when AttachVolume is sent.
    AttachNeedsRecordedUid,
    /// 6: unlisted and acknowledged before anything else.
    UnlistFirst,
    /// 6: live read of Node and pods after the acknowledgement.
    LiveReadBeforeDelete,
    /// 6: the rung is judged again on the live read.
    RungOnLiveRead,
    /// 6: where nothing was sent, or the answer was not Done, only consistent spaced reads end a detach.
    SpacedReadsWhenUnsure,
    /// 6: once DetachVolume was sent, the volume is unusable there until attached anew.
    UnusableAfterDetach,
    /// 7: the finalizer stays until every call made under the object is answered or dead.
    FinalizerUntilCallsDead,
    /// 7: the same instance waits until calls in flight are dead.
    SameInstanceWaits,
    /// 7: after a leader change calls of the earlier leader count as in flight for W.
    InheritedCallsWait,
    /// 8: a Terminating VolumeAttachment of a wanted, attached volume is healed, not detached.
    Heal,
    /// 9: an attachment at another than the recorded device is foreign.
    ForeignByDevice,
    /// 9: the mark is acknowledged before a VolumeAttachment is made over an attachment.
    MarkBeforeAdopt,
    /// 10: a pod that cannot be resolved keeps what it wanted.
    UnresolvedKeepsWants,
    /// 11: no action on a volume before every watch synced and the volume was read after the lease was got.
    ReadBeforeActing,
    /// 12: no mutation without the guard (term and not_after).
    GuardedMutations,
    /// 12: nodes/status patches carry UID and resourceVersion.
    NodePatchPreconditions,
    /// 12: VolumeAttachment deletes and finalizer removals carry UID and resourceVersion.
    AttachmentPreconditions,
    /// 16: a read proves nothing about a call that ended after it began.
    ReadsAfterCalls,
    /// 16: a silent detach is believed after three consistent reads.
    SilentDetachNeedsReads,
    /// 17: no volume is believed gone while nothing else is found either.
    AbsenceNeedsCompany,
    /// G1 (b): `stopped` and absence are believed after two reads far apart, and of a node that is not Ready or gone.
    DeathNeedsProof,
    /// G1 (d): under `impaired` nothing is forced from a machine that runs with both status checks ok.
    ForceNeedsImpairment,
}

impl Rule {
    const fn bit(self) -> u64 {
        1 << self as u64
    }

    /// Every rule that has a sabotage.
    pub const ALL: [Self; 32] = [
        Self::OneHolder,
        Self::NoSwitchAfterSend,
        Self::InUseBlocksDetach,
        Self::AbsenceNeedsRecordedUid,
        Self::MarkCountsAsInUse,
        Self::MarkOnRelist,
        Self::ListOnlyConfirmed,
        Self::NoBlindRepeatAttach,
        Self::ConfirmByAttachTime,
        Self::ConfirmByDevice,
        Self::AttachNeedsRecordedUid,
        Self::UnlistFirst,
        Self::LiveReadBeforeDelete,
        Self::RungOnLiveRead,
        Self::SpacedReadsWhenUnsure,
        Self::UnusableAfterDetach,
        Self::FinalizerUntilCallsDead,
        Self::SameInstanceWaits,
        Self::InheritedCallsWait,
        Self::Heal,
        Self::ForeignByDevice,
        Self::MarkBeforeAdopt,
        Self::UnresolvedKeepsWants,
        Self::ReadBeforeActing,
        Self::GuardedMutations,
        Self::NodePatchPreconditions,
        Self::AttachmentPreconditions,
        Self::ReadsAfterCalls,
        Self::SilentDetachNeedsReads,
        Self::AbsenceNeedsCompany,
        Self::DeathNeedsProof,
        Self::ForceNeedsImpairment,
    ];
}
