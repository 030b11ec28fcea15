//! The world as the checkers see it: plain data, the same for the modelled servers and for real ones.
//!
//! Flow: a driver renews the entries that a step changed, names them in [`World::touched`], adds what happened to
//! [`World::news`], lets the checkers look, and clears both. Holds the *truth* of EC2, of the API server and of the
//! kernels, never a stale read, a watch's copy or a belief of the core. Must never decide what is right or wrong.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::event::{Role, Term};
use crate::controller::policy::{ForceDetach, Settings};
use crate::model::attachment::VolumeAttachment;
use crate::model::claim::{Claim, PersistentVolume};
use crate::model::device::DeviceName;
use crate::model::ids::{
    AttachmentName, AwsVolumeId, BootId, ClaimKey, InstanceId, NodeName, PersistentVolumeName, PodKey, Uid, VolumeKey,
    Zone,
};
use crate::model::node::{CsiNode, Node};
use crate::model::pod::Pod;
use crate::model::time::{Monotonic, Now};
use crate::model::volume::{AttachmentState, InstanceState};

/// The present state of everything outside the core.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    /// The time of this look.
    pub now: Now,
    /// What people configured, as far as it decides what is allowed.
    pub rules: WorldRules,

    /// EC2: every volume that exists.
    pub volumes: BTreeMap<AwsVolumeId, Ec2Volume>,
    /// EC2: every instance it still shows, the terminated ones too.
    pub instances: BTreeMap<InstanceId, Ec2Instance>,
    /// Mutating EC2 calls that were sent and may yet change something, of every term. One whose fate is settled (applied,
    /// refused, lost for good) is not among them, whether its answer came or not.
    pub calls_in_flight: Vec<Ec2CallInFlight>,

    /// API server: Nodes as stored.
    pub nodes: BTreeMap<NodeName, Node>,
    /// API server: CSINodes as stored.
    pub csi_nodes: BTreeMap<NodeName, CsiNode>,
    /// API server: VolumeAttachments as stored.
    pub attachments: BTreeMap<AttachmentName, VolumeAttachment>,
    /// API server: pods as stored.
    pub pods: BTreeMap<PodKey, Pod>,
    /// API server: claims as stored.
    pub claims: BTreeMap<ClaimKey, Claim>,
    /// API server: PersistentVolumes as stored.
    pub persistent_volumes: BTreeMap<PersistentVolumeName, PersistentVolume>,

    /// The kernels: what is mounted where, and on which attachment it was mounted. Gone with the boot.
    pub mounts: BTreeMap<MountKey, Mount>,
    /// The kernels: volumes of other drivers that are mounted, by machine.
    pub other_mounts: BTreeSet<(VolumeKey, InstanceId)>,
    /// Volumes and instances whose VolumeAttachment lost its attacher's finalizer to a person: when it last did.
    pub robbed: BTreeMap<(AwsVolumeId, InstanceId), Monotonic>,
    /// Leadership, as the leases were really held.
    pub terms: BTreeMap<Term, TermHeld>,
    /// Since when the process that led in a term has watched everything.
    pub watched_since: BTreeMap<Term, Monotonic>,
    /// Until when a read of EC2 may show the past; `None`: none does.
    pub stale_reads_until: Option<Monotonic>,
    /// Calls counted since the start.
    pub counts: CallCounts,

    /// What happened since the last look, in order.
    pub news: Vec<News>,
    /// Which entries changed since the last look.
    pub touched: Touched,
}

impl World {
    /// Clears what belongs to one look: the driver calls it after the checkers have looked.
    pub fn forget_news(&mut self) {
        self.news.clear();
        self.touched = Touched::default();
    }

    /// The Node whose providerID names the instance.
    ///
    /// Two Nodes may (an old object and its successor under another name); the first by name is taken.
    pub fn node_of(&self, instance: &InstanceId) -> Option<&Node> {
        self.nodes.values().find(|node| instance_of(node) == Some(instance))
    }

    /// The attachment EC2 has of the volume on the instance, in whatever state.
    pub fn ec2_attachment(&self, volume: &AwsVolumeId, instance: &InstanceId) -> Option<&Ec2Attachment> {
        self.volumes.get(volume)?.attachments.iter().find(|attachment| attachment.instance == *instance)
    }

    /// Whether the instance takes no more volumes.
    pub fn is_full(&self, instance: &InstanceId) -> bool {
        let attachments = self.volumes.values().flat_map(|volume| &volume.attachments);
        let taken = attachments.filter(|attachment| attachment.instance == *instance).count();
        self.instances.get(instance).is_some_and(|machine| taken >= machine.volume_limit)
    }
}

/// The instance a Node names.
pub fn instance_of(node: &Node) -> Option<&InstanceId> {
    node.provider_id.as_ref()?.instance()
}

/// The settings that decide what may be done to a node that is not Ready.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldRules {
    /// Rung (d).
    pub force_detach: ForceDetach,
    /// Rung (d).
    pub unmount_timeout: std::time::Duration,
    /// Whether kube-controller-manager makes and deletes the VolumeAttachments: then a deletionTimestamp is an order, and
    /// the fencing is who gave it.
    pub is_ordered: bool,
}

impl From<&Settings> for WorldRules {
    fn from(settings: &Settings) -> Self {
        Self {
            force_detach: settings.force_detach,
            unmount_timeout: settings.unmount_timeout,
            is_ordered: !settings.roles.contains(&Role::AttachDetach),
        }
    }
}

impl Default for WorldRules {
    fn default() -> Self {
        Self::from(&Settings::default())
    }
}

/// A volume in EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2Volume {
    /// `MultiAttachEnabled`: EC2 refuses no second attachment.
    pub multi_attach_enabled: bool,
    /// Its zone.
    pub zone: Zone,
    /// Where it is attached now, transitional states included.
    pub attachments: Vec<Ec2Attachment>,
}

/// One attachment in EC2, from the acceptance of AttachVolume until it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2Attachment {
    /// The instance.
    pub instance: InstanceId,
    /// The device name it was asked for with.
    pub device: DeviceName,
    /// Its state now. Never [`AttachmentState::Detached`]: such an entry is gone.
    pub state: AttachmentState,
    /// Tells one attachment from every earlier one of this volume; later ones are higher.
    pub generation: u64,
    /// When it was accepted.
    pub since: Monotonic,
    /// Who attached it.
    pub made_by: Actor,
    /// Who asked for its end, once it is `detaching` or `busy`.
    pub ending_by: Option<Actor>,
}

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// attachd, in this period of leadership.
    Attachd(Term),
    /// A person, or a tool of theirs: by hand.
    Person,
    /// The platform: an instance that ended, pod garbage collection, the node life cycle.
    Platform,
}

impl Actor {
    /// Whether attachd did it, in whatever period.
    pub fn is_attachd(self) -> bool {
        matches!(self, Self::Attachd(_))
    }
}

/// An instance in EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2Instance {
    /// Its state now.
    pub state: InstanceState,
    /// Its zone.
    pub zone: Zone,
    /// The boot that runs, or last ran, on it.
    pub boot: BootId,
    /// Whether one of its status checks says `impaired`: its guest does nothing any more.
    pub impaired: bool,
    /// How many volumes it takes at most.
    pub volume_limit: usize,
}

/// A mutating EC2 call that may yet change something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ec2CallInFlight {
    /// The volume.
    pub volume: AwsVolumeId,
    /// The instance.
    pub instance: InstanceId,
    /// Attach or detach.
    pub kind: Ec2CallKind,
    /// The period of leadership it was sent in.
    pub term: Term,
    /// When it was sent.
    pub sent: Monotonic,
}

/// What a mutating EC2 call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ec2CallKind {
    /// AttachVolume
    Attach,
    /// DetachVolume
    Detach,
}

/// A volume mounted on a machine: one per attachment, however many pods share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountKey {
    /// The volume.
    pub volume: AwsVolumeId,
    /// The machine.
    pub instance: InstanceId,
    /// The attachment it was mounted on: [`Ec2Attachment::generation`].
    pub generation: u64,
}

/// What is known of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The boot it lives in.
    pub boot: BootId,
    /// The device name of the attachment it was mounted on.
    pub device: DeviceName,
    /// UIDs of the pods that use it.
    pub pods: BTreeSet<Uid>,
}

/// A period of leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermHeld {
    /// When it was got.
    pub since: Monotonic,
    /// When the lease ended: another may lead from then on. `None`: still held.
    pub ended: Option<Monotonic>,
}

/// Calls counted since the start, by kind. Numbers, so that a burst of them costs nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Every call by its kind (`AttachVolume`, `PatchNodeStatus`, …).
    pub by_kind: BTreeMap<&'static str, u64>,
    /// AttachVolume that asked an instance which took no more volumes when it was sent.
    pub asked_of_full: u64,
    /// EC2's answers RequestLimitExceeded and alike.
    pub ec2_throttles: u64,
    /// The API server's 429.
    pub api_throttles: u64,
    /// DetachVolume with `Force`, by attachd.
    pub forced_detaches: u64,
    /// Accepted patches of a Node's status by attachd, per Node.
    pub node_patches: BTreeMap<NodeName, u64>,
}

impl CallCounts {
    /// Mutating EC2 calls that were sent.
    pub fn ec2_mutations(&self) -> u64 {
        self.of("AttachVolume") + self.of("DetachVolume")
    }

    /// Calls of every kind that changes something, Events excepted.
    pub fn mutations(&self) -> u64 {
        let quiet =
            |kind: &str| ["Describe", "Get", "List"].iter().any(|verb| kind.starts_with(verb)) || kind == "CreateEvent";
        self.by_kind.iter().filter(|(kind, _)| !quiet(kind)).map(|(_, count)| count).sum()
    }

    /// The same without what full instances were asked in vain: that goes on while somebody waits for a slot.
    pub fn mutations_but_in_vain(&self) -> u64 {
        self.mutations() - self.asked_of_full
    }

    /// Calls of one kind.
    pub fn of(&self, kind: &str) -> u64 {
        self.by_kind.get(kind).copied().unwrap_or(0)
    }
}

/// Something that happened between two looks, which the state alone does not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// An attachment is gone from EC2. A reboot ends none.
    AttachmentEnded {
        /// The volume.
        volume: AwsVolumeId,
        /// As it last was.
        attachment: Ec2Attachment,
        /// Who ended it: the one who asked for it, or [`Actor::Platform`] when its instance terminated.
        by: Actor,
    },
    /// A VolumeAttachment is gone from the API server, or lost its attacher's finalizer.
    FinalizerGone {
        /// As it last was, the finalizer still on it.
        object: Box<VolumeAttachment>,
        /// Who took the finalizer off.
        by: Actor,
    },
    /// A VolumeAttachment was marked for deletion.
    DeletionOrdered {
        /// Its name.
        name: AttachmentName,
        /// Who ordered it.
        by: Actor,
    },
    /// The list or the marks of a Node were written.
    ListWritten {
        /// The Node.
        node: NodeName,
        /// Who wrote it.
        by: Actor,
    },
    /// A mutating call left the socket.
    CallSent {
        /// Its kind, as in [`CallCounts::by_kind`].
        kind: &'static str,
        /// The period of leadership it was decided in.
        term: Term,
        /// When.
        at: Monotonic,
    },
    /// AttachVolume or DetachVolume left the socket.
    VolumeCallSent(Ec2CallInFlight),
    /// A call that ends a VolumeAttachment, or takes a finalizer off it, left the socket.
    AttachmentCallSent {
        /// What it asks for.
        kind: AttachmentCallKind,
        /// Of which VolumeAttachment.
        name: AttachmentName,
        /// The period of leadership it was decided in.
        term: Term,
        /// When.
        at: Monotonic,
    },
    /// The API server served attachd a live read of a Node.
    NodeRead {
        /// The Node's name, whether it is there or not.
        node: NodeName,
    },
    /// A VolumeAttachment is there that was not.
    AttachmentMade {
        /// Its name.
        name: AttachmentName,
        /// Who made it.
        by: Actor,
    },
    /// A claim is gone from the API server.
    ClaimGone {
        /// Which.
        claim: ClaimKey,
    },
}

/// What a call asks of a VolumeAttachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachmentCallKind {
    /// Its deletion.
    Delete,
    /// Other finalizers.
    Finalizers,
}

/// Which entries of the world changed since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Everything may have: after a start, and for snapshots of real servers.
    pub everything: bool,
    /// Volumes whose attachments, mounts or PersistentVolumes changed.
    pub volumes: BTreeSet<AwsVolumeId>,
    /// Nodes, and the instances behind them.
    pub nodes: BTreeSet<NodeName>,
    /// VolumeAttachments.
    pub attachments: BTreeSet<AttachmentName>,
}

impl Touched {
    /// Everything.
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        !self.everything && self.volumes.is_empty() && self.nodes.is_empty() && self.attachments.is_empty()
    }
}
