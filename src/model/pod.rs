//! Pods, as far as they want volumes.

use smol_str::SmolStr;

use super::ids::{NodeName, PodKey, Uid};
use super::time::Wall;

/// A Pod object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: PodKey,
    /// `metadata.uid`
    pub uid: Uid,
    /// `spec.nodeName`
    pub node: Option<NodeName>,
    /// `metadata.creationTimestamp`
    pub created: Wall,
    /// Transition time of the condition PodScheduled=True.
    pub scheduled: Option<Wall>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Terminated in upstream's sense (IsPodTerminated): phase Failed or Succeeded, or deleting with no container
    /// running. A terminated pod wants nothing.
    pub terminated: bool,
    /// `spec.volumes`, as far as they may need attaching.
    pub volumes: Vec<PodVolume>,
}

/// One volume of a pod that may need attaching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodVolume {
    /// `persistentVolumeClaim`: the claim's name, in the pod's namespace.
    Claim(SmolStr),
    /// `ephemeral`: the volume's name in the pod; the claim is `<pod>-<volume>` and must be owned by the pod.
    Ephemeral(SmolStr),
    /// Inline `awsElasticBlockStore`.
    InlineEbs(InlineEbs),
    /// Another in-tree source that needs attaching and that attachd does not translate (its plugin's name): the pod is
    /// unresolved and reported once.
    Untranslated(SmolStr),
}

/// Inline `awsElasticBlockStore`, untouched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InlineEbs {
    /// `volumeID`, as spelled.
    pub volume_id: SmolStr,
    /// `fsType`
    pub fs_type: Option<SmolStr>,
    /// `partition`, 0 when absent.
    pub partition: i32,
    /// `readOnly`
    pub read_only: bool,
}
