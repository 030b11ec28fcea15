//! The invariants by name, one sentence each, and what is told when one is broken.

use std::fmt;

use crate::model::time::Monotonic;

/// What must always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// Master invariant.
    MountedAttachmentStays,
    /// Master invariant.
    MountServedByItsOwnAttachment,
    /// Rule 1, UNSAFE-21.
    ExclusiveVolumeOnOneInstance,
    /// Rule 4.
    ListedOnlyIfAttached,
    /// Rules 3 and 4.
    InUseStaysListed,
    /// Rule 6.
    UnlistedBeforeDetach,
    /// DEV-10.
    DevicePathsDiffer,
    /// G4.
    IntentBeforeAttach,
    /// Rule 7.
    FinalizerOutlivesCalls,
    /// Rule 9.
    ForeignUntouched,
    /// Rule 12.
    SentUnderLease,
    /// G6.
    NeverForced,
    /// Rule 15.
    NeverThrottled,
    /// Rules 5, 6 and 16.
    AskedOnce,
    /// Rule 1.
    AskedOfOne,
    /// Rule 5.
    StatedOnlyIfAttached,
    /// Rule 5.
    AttachedUnderItsNode,
    /// Rules 6 and 10.
    WantedStays,
    /// Rule 12.
    WritesHitTheirObject,
    /// Rule 9.
    MadeOverIsMarked,
    /// Rule 13.
    WantedIsAttached,
    /// Rule 13.
    AttachedIsWanted,
    /// Rule 13.
    ObjectsExactAtRest,
    /// Rule 13.
    ListsExactAtRest,
    /// Rule 6.
    FinalizersGoneAtRest,
    /// Rule 13.
    SilentAtRest,
    /// Numbers of the project.
    PatchesAreChanges,
}

impl Invariant {
    /// Every one.
    pub const ALL: [Self; 27] = [
        Self::MountedAttachmentStays,
        Self::MountServedByItsOwnAttachment,
        Self::ExclusiveVolumeOnOneInstance,
        Self::ListedOnlyIfAttached,
        Self::InUseStaysListed,
        Self::UnlistedBeforeDetach,
        Self::DevicePathsDiffer,
        Self::IntentBeforeAttach,
        Self::FinalizerOutlivesCalls,
        Self::ForeignUntouched,
        Self::SentUnderLease,
        Self::NeverForced,
        Self::NeverThrottled,
        Self::AskedOnce,
        Self::AskedOfOne,
        Self::StatedOnlyIfAttached,
        Self::AttachedUnderItsNode,
        Self::WantedStays,
        Self::WritesHitTheirObject,
        Self::MadeOverIsMarked,
        Self::WantedIsAttached,
        Self::AttachedIsWanted,
        Self::ObjectsExactAtRest,
        Self::ListsExactAtRest,
        Self::FinalizersGoneAtRest,
        Self::SilentAtRest,
        Self::PatchesAreChanges,
    ];

    /// What must hold, as a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::MountedAttachmentStays => {
                "no attachment vanishes while the kernel has it mounted, unless the instance is dead or a person or the \
                 configured timeout fenced it"
            }
            Self::MountServedByItsOwnAttachment => {
                "no mount is served by an attachment younger than the one it was made on"
            }
            Self::ExclusiveVolumeOnOneInstance => "an exclusive volume is never attached to two instances through us",
            Self::ListedOnlyIfAttached => {
                "volumesAttached gains only what EC2 has attached to that node's instance and a VolumeAttachment stands for"
            }
            Self::InUseStaysListed => "nothing a Ready node reports in use leaves its volumesAttached",
            Self::UnlistedBeforeDetach => "no volume is detached while its node's volumesAttached lists it",
            Self::DevicePathsDiffer => "two attached VolumeAttachments of one node never share a devicePath",
            Self::IntentBeforeAttach => {
                "an attachment of ours comes only under a VolumeAttachment with finalizer, instance and device"
            }
            Self::FinalizerOutlivesCalls => {
                "a VolumeAttachment keeps its finalizer while a call for its volume and instance could still land"
            }
            Self::ForeignUntouched => "an attachment that is not ours is never detached by us",
            Self::SentUnderLease => "nothing is sent after the lease it was decided under",
            Self::NeverForced => "no DetachVolume is ever forced",
            Self::NeverThrottled => "without faults no call is ever throttled",
            Self::AskedOnce => {
                "no AttachVolume and no DetachVolume is sent again while the last one can still land, or has its effect"
            }
            Self::AskedOfOne => {
                "no AttachVolume of an exclusive volume is sent while one to another instance can still land"
            }
            Self::StatedOnlyIfAttached => {
                "a VolumeAttachment says attached only of an attachment that EC2 has at that device"
            }
            Self::AttachedUnderItsNode => {
                "an attachment of ours is made only under the Node object that its VolumeAttachment records"
            }
            Self::WantedStays => "no VolumeAttachment is deleted by us under a pod that wants it",
            Self::WritesHitTheirObject => "what ends a VolumeAttachment was sent when that very one was there",
            Self::MadeOverIsMarked => {
                "a VolumeAttachment made over an attachment that its maker did not know is marked on the Node before"
            }
            Self::WantedIsAttached => "at rest every volume that is wanted and can be attached is attached",
            Self::AttachedIsWanted => "at rest nothing is attached that nobody wants",
            Self::ObjectsExactAtRest => "at rest the VolumeAttachments are exactly those of the attachments",
            Self::ListsExactAtRest => "at rest volumesAttached is exactly what is attached to the node",
            Self::FinalizersGoneAtRest => {
                "at rest no PersistentVolume that is being deleted is held without a VolumeAttachment"
            }
            Self::SilentAtRest => "at rest nothing is sent but polls",
            Self::PatchesAreChanges => "a node's status is patched at most once for each real change",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When it was seen.
    pub at: Monotonic,
    /// Which things it is about: volume, node, instance.
    pub about: String,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {} ({}: {})", self.invariant, self.about, self.detail)
    }
}
