//! Access modes: what EBS can serve, what may be shared, and upstream's test for other drivers.
//!
//! Flow: asked by [`super::DesiredStateOfWorld`] for one PersistentVolume at a time. Owns the tables. Must never look at
//! a pod or at EC2 (whether EC2 lets several instances attach a volume is tested by the caller).

use std::collections::BTreeSet;

use crate::model::claim::{AccessMode, PersistentVolume};

/// Whether the EBS driver accepts a volume's access modes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessCheck {
    /// It does.
    Allowed,
    /// It does not, and AttachVolume must not be sent: the whole reason, for an event or an attachError.
    Refused(String),
}

/// What csi-attacher and the EBS driver together make of the access modes: ReadWriteMany wins over the others and needs
/// a raw block device; otherwise one writer on one node. Readers on many nodes are not a thing EBS can promise.
pub(super) fn ebs_access(volume: &PersistentVolume) -> AccessCheck {
    use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
    let modes = &volume.access_modes;
    let has = |mode| modes.contains(&mode);
    let why = if has(ReadWriteOncePod) && modes.len() > 1 {
        "ReadWriteOncePod cannot be combined with other access modes"
    } else if has(ReadWriteMany) {
        if volume.block {
            return AccessCheck::Allowed;
        }
        "an EBS volume is shared (ReadWriteMany) only as a raw device: volumeMode must be Block"
    } else if has(ReadOnlyMany) && has(ReadWriteOnce) {
        "CSI does not support ReadOnlyMany and ReadWriteOnce on the same PersistentVolume"
    } else if has(ReadOnlyMany) {
        "EBS does not support ReadOnlyMany"
    } else if has(ReadWriteOnce) || has(ReadWriteOncePod) {
        return AccessCheck::Allowed;
    } else {
        "it has no access mode"
    };
    AccessCheck::Refused(format!("access modes [{}] of PersistentVolume {}: {why}", list(modes), volume.name))
}

/// Whether this PersistentVolume of EBS lets its volume be shared between nodes.
pub(super) fn ebs_shareable(volume: &PersistentVolume) -> bool {
    volume.block && volume.access_modes.contains(&AccessMode::ReadWriteMany)
}

/// Upstream's IsMultiAttachAllowed for a PersistentVolume: no modes says nothing (the attacher decides), any mode for
/// many nodes allows it.
pub(super) fn multi_attach_allowed(volume: &PersistentVolume) -> bool {
    volume.access_modes.is_empty()
        || volume.access_modes.contains(&AccessMode::ReadWriteMany)
        || volume.access_modes.contains(&AccessMode::ReadOnlyMany)
}

fn list(modes: &BTreeSet<AccessMode>) -> String {
    let names: Vec<&str> = modes
        .iter()
        .map(|mode| match mode {
            AccessMode::ReadWriteOnce => "ReadWriteOnce",
            AccessMode::ReadOnlyMany => "ReadOnlyMany",
            AccessMode::ReadWriteMany => "ReadWriteMany",
            AccessMode::ReadWriteOncePod => "ReadWriteOncePod",
        })
        .collect();
    names.join(", ")
}
