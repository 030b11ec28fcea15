//! Everything the outside may tell the core, as plain data: watch events, outcomes of commands, guards of leadership.
//!
//! Flow: adapters and the simulator make events; [`super::Controller::ingest`] takes them. Must never carry a client
//! type, a callback or a reference into an adapter.

use crate::model::attachment::VolumeAttachment;
use crate::model::claim::{Claim, PersistentVolume};
use crate::model::ids::{AttachmentName, ClaimKey, DriverName, NodeName, PersistentVolumeName, PodKey, Uid};
use crate::model::node::{CsiDriver, CsiNode, Node};
use crate::model::outcome::Outcome;
use crate::model::pod::Pod;
use crate::model::time::{Monotonic, Now};

/// One thing that happened outside, with the time it was learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When it was learned.
    pub at: Now,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
// Watch events are by far the most frequent: boxing them would cost an allocation each.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// A watch said something.
    Watch(WatchEvent),
    /// A command ended.
    Outcome(Outcome),
    /// Leadership of a role was got, prolonged or lost.
    Guard(GuardChange),
}

/// A kind of object that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Pod
    Pod,
    /// PersistentVolumeClaim
    Claim,
    /// PersistentVolume
    PersistentVolume,
    /// Node
    Node,
    /// CSINode
    CsiNode,
    /// CSIDriver
    CsiDriver,
    /// VolumeAttachment
    Attachment,
}

impl Kind {
    /// Every kind that must have synced before anything is decided.
    pub const ALL: [Self; 7] =
        [Self::Pod, Self::Claim, Self::PersistentVolume, Self::Node, Self::CsiNode, Self::CsiDriver, Self::Attachment];
}

/// One object of a watched kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// Pod
    Pod(Pod),
    /// PersistentVolumeClaim
    Claim(Claim),
    /// PersistentVolume
    PersistentVolume(PersistentVolume),
    /// Node
    Node(Node),
    /// CSINode
    CsiNode(CsiNode),
    /// CSIDriver
    CsiDriver(CsiDriver),
    /// VolumeAttachment
    Attachment(VolumeAttachment),
    /// An object that is there, but of which something that is needed could not be read. What was known of it stays,
    /// and in a list it counts as listed: unknown is not empty (rule 10).
    Unreadable(ObjectKey),
}

/// The key of an object of a watched kind, with the UID of the object that was deleted where the kind has one: a
/// deletion of an earlier object of that name must not remove a later one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKey {
    /// Pod
    Pod(PodKey, Uid),
    /// PersistentVolumeClaim
    Claim(ClaimKey, Uid),
    /// PersistentVolume
    PersistentVolume(PersistentVolumeName, Uid),
    /// Node
    Node(NodeName, Uid),
    /// CSINode
    CsiNode(NodeName),
    /// CSIDriver
    CsiDriver(DriverName),
    /// VolumeAttachment
    Attachment(AttachmentName, Uid),
}

/// What a watch says. A list (the first one, or one after a gap) comes as Begin, Item…, End with one generation; what
/// was known before and is not among the items is gone, and only End proves it.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// A list of `kind` begins. A later Begin voids an unfinished earlier one.
    Begin {
        /// Kind listed.
        kind: Kind,
        /// Higher than every earlier one of this kind.
        generation: u64,
    },
    /// One object of the list.
    Item {
        /// Generation of the Begin it belongs to.
        generation: u64,
        /// The object.
        object: Object,
    },
    /// The list is complete.
    End {
        /// Kind listed.
        kind: Kind,
        /// Generation of its Begin.
        generation: u64,
    },
    /// An object was added or changed.
    Applied(Object),
    /// An object was deleted.
    Deleted(ObjectKey),
}

/// A job that can be led on its own: design section 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Pods → VolumeAttachments and `volumesAttached`, for every CSI driver that needs attach.
    AttachDetach,
    /// VolumeAttachments of the EBS driver → EC2.
    Attacher,
}

/// One period of leadership; a later one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Term(pub u64);

/// What the loop tells the core about the leadership of one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardChange {
    /// The role.
    pub role: Role,
    /// `None`: not held.
    pub guard: Option<Guard>,
}

/// Leadership of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The period.
    pub term: Term,
    /// When it was got.
    pub since: Monotonic,
    /// Until then it is surely ours; `None`: for as long as the process lives.
    pub until: Option<Monotonic>,
}
