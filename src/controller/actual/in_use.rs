//! Rule 3: when a volume's absence from `volumesInUse` is evidence that it is not mounted.
//!
//! Flow: fencing asks, once with the cached Node and once with the live one. Pure functions over one Node object; must
//! never answer "not in use" from anything but a Node object that passes every test here.

use crate::controller::policy::{Policy, Rule};
use crate::model::ids::{InstanceId, Uid, UniqueVolumeName};
use crate::model::node::{Node, UnknownMarks};

/// Whether a volume may be mounted on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUse {
    /// Not in use, and the absence is evidence.
    No,
    /// In `volumesInUse`.
    Reported,
    /// Absent, but the Node object is another than the recorded one.
    OtherNodeObject,
    /// Absent, but marked unknown since the present boot.
    Marked,
    /// Absent, but providerID and CSINode do not both name the instance.
    OtherInstance,
}

/// What is known of the attachment besides the Node object.
#[derive(Clone, Copy, Debug)]
pub struct Attachment<'a> {
    /// The name compared.
    pub name: &'a UniqueVolumeName,
    /// The instance frozen in the VolumeAttachment; `None` for other drivers.
    pub instance: Option<&'a InstanceId>,
    /// The recorded Node UID.
    pub node_uid: Option<&'a Uid>,
    /// A person's word for the present boot counts: the volume was checked and is not mounted.
    pub unmounted_by_person: bool,
}

/// Judges one Node object. `csi_instance` is what the CSINode of that name says (for EBS).
pub fn in_use(node: &Node, csi_instance: Option<&InstanceId>, attachment: Attachment<'_>, policy: &Policy) -> InUse {
    if node.volumes_in_use.contains(attachment.name) && policy.holds(Rule::InUseBlocksDetach) {
        return InUse::Reported;
    }
    if let Some(instance) = attachment.instance {
        let provider = node.provider_id.as_ref().and_then(|id| id.instance());
        if provider != Some(instance) || csi_instance != Some(instance) {
            return InUse::OtherInstance;
        }
    }
    if attachment.unmounted_by_person {
        return InUse::No;
    }
    match mark(node, attachment.name, policy) {
        Mark::PresentBoot => InUse::Marked,
        // The machine was booted since: whatever was mounted is gone, whichever Node object says so.
        Mark::OtherBoot => InUse::No,
        Mark::None => {
            let same = attachment.node_uid == Some(&node.uid) || !policy.holds(Rule::AbsenceNeedsRecordedUid);
            if same { InUse::No } else { InUse::OtherNodeObject }
        }
    }
}

/// The unknown mark of one volume on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// No mark.
    None,
    /// Marked since the present boot (or the boot cannot be told): counts as in use.
    PresentBoot,
    /// Marked in an earlier boot, or emptied by a person's word.
    OtherBoot,
}

/// Reads the mark of `name`.
pub fn mark(node: &Node, name: &UniqueVolumeName, policy: &Policy) -> Mark {
    if !policy.holds(Rule::MarkCountsAsInUse) {
        return Mark::None;
    }
    match &node.in_use_unknown {
        UnknownMarks::Unreadable(_) => Mark::PresentBoot,
        UnknownMarks::Marks(marks) => match (marks.get(name), &node.boot_id) {
            (None, _) => Mark::None,
            (Some(marked), Some(present)) if marked != present => Mark::OtherBoot,
            (Some(_), _) => Mark::PresentBoot,
        },
    }
}
