//! Node, CSINode and CSIDriver objects, as far as attaching needs them.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::ids::{BootId, DriverName, NodeName, ProviderId, ResourceVersion, Uid, UniqueVolumeName, Zone};
use super::time::Wall;

/// Annotation that hands a node's attachments to the controller. Its presence counts, not its value.
pub const MANAGED_ANNOTATION: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Annotation with the unknown marks of rule 3: a JSON object, volume → boot id.
pub const IN_USE_UNKNOWN_ANNOTATION: &str = "attachd/in-use-unknown";
/// Annotation that a nodes/status patch changes when it would otherwise change nothing, so that it gets a new
/// resourceVersion and voids every older patch under way (rule 6).
pub const TOUCH_ANNOTATION: &str = "attachd/touched";
/// Taint by which a person fences a node (KEP-2268). Key alone counts, as upstream.
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// A Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `metadata.name`
    pub name: NodeName,
    /// `metadata.uid`
    pub uid: Uid,
    /// `metadata.resourceVersion`
    pub resource_version: ResourceVersion,
    /// Whether the node carries [`MANAGED_ANNOTATION`].
    pub managed: bool,
    /// `spec.providerID`; `None` while empty.
    pub provider_id: Option<ProviderId>,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<Zone>,
    /// The Ready condition.
    pub ready: Ready,
    /// Whether the node carries [`OUT_OF_SERVICE_TAINT`].
    pub out_of_service: bool,
    /// `status.nodeInfo.bootID`
    pub boot_id: Option<BootId>,
    /// `status.volumesInUse`
    pub volumes_in_use: BTreeSet<UniqueVolumeName>,
    /// `status.volumesAttached`: name → devicePath (empty for CSI volumes).
    pub volumes_attached: BTreeMap<UniqueVolumeName, SmolStr>,
    /// [`IN_USE_UNKNOWN_ANNOTATION`].
    pub in_use_unknown: UnknownMarks,
}

/// The Ready condition of a node. A node without one is not ready, since its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whether its status is `True`.
    pub is_true: bool,
    /// `lastTransitionTime`
    pub since: Option<Wall>,
    /// `lastHeartbeatTime`: when the kubelet (or, for Unknown, nobody) last wrote it.
    pub heartbeat: Option<Wall>,
}

/// The unknown marks of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownMarks {
    /// Volume → boot id at which it was marked. An empty boot id equals none.
    Marks(BTreeMap<UniqueVolumeName, BootId>),
    /// The annotation is there but cannot be read: every volume of the node counts as marked.
    Unreadable(SmolStr),
}

impl Default for UnknownMarks {
    fn default() -> Self {
        Self::Marks(BTreeMap::new())
    }
}

impl UnknownMarks {
    /// Reads the annotation's value.
    pub fn parse(text: &str) -> Self {
        match serde_json::from_str::<BTreeMap<SmolStr, SmolStr>>(text) {
            Ok(map) => Self::Marks(
                map.into_iter().map(|(name, boot)| (UniqueVolumeName::new(name), BootId::new(boot))).collect(),
            ),
            Err(_) => Self::Unreadable(SmolStr::new(text)),
        }
    }

    /// The annotation's value for these marks; `None` when there are none (the annotation is removed).
    pub fn to_annotation(marks: &BTreeMap<UniqueVolumeName, BootId>) -> Option<String> {
        if marks.is_empty() {
            return None;
        }
        let map: BTreeMap<String, &str> = marks.iter().map(|(name, boot)| (name.to_string(), boot.as_str())).collect();
        Some(serde_json::to_string(&map).unwrap_or_default())
    }
}

/// A CSINode object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiNode {
    /// `metadata.name`, the Node's name.
    pub name: NodeName,
    /// `spec.drivers`: driver → nodeID (for EBS the instance id).
    pub drivers: BTreeMap<DriverName, SmolStr>,
    /// `spec.drivers[].allocatable.count` of the EBS driver: how many volumes its node plugin expects the instance to take
    /// beside the root. The scheduler keeps to it; what counts for an attach is EC2's answer.
    pub ebs_allocatable: Option<u32>,
}

/// A CSIDriver object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDriver {
    /// `metadata.name`
    pub name: DriverName,
    /// `spec.attachRequired`, true when absent.
    pub attach_required: bool,
}
