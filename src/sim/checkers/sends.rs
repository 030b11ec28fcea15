//! What the checkers remember of calls that left the socket, and of the live reads they stand on.
//!
//! Owns no opinion: `calls` and `mounts` decide. Empty where a driver does not tell of sends.

use std::collections::BTreeMap;
use std::time::Duration;

use super::world::{Actor, AttachmentCallKind};
use crate::controller::event::Term;
use crate::model::ids::{AttachmentName, AwsVolumeId, ClaimKey, InstanceId, NodeName};
use crate::model::time::Monotonic;

/// A call lands within W of its send: older sends explain nothing.
const EXPLAINS_FOR: Duration = Duration::from_secs(80);

/// Why the end of a mounted attachment is excused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pardon {
    /// A person fenced the node, or the configured timeout did while its Node was there: the mark keeps the volume off
    /// that boot afterwards.
    Fenced,
    /// The configured timeout, with no Node to carry a mark: what comes after in the same boot is a known residual.
    FencedNodeGone,
    /// Others ordered the detach (beside kube-controller-manager), or a person ended the VolumeAttachment of what was lost
    /// under a mount. No mark keeps the volume off that boot: who carried it out knows the device name that is used up, and
    /// does not use it again; a later leader cannot know it. `None`: nobody knows it.
    NameKnownTo(Option<Actor>),
    /// A person ended an attachment under a mount while the AttachVolume that made it had no answer yet, and may land once
    /// more: a known residual, as long as attachd sends no other after this time.
    MayLandAgain(Monotonic),
}

/// What is remembered of sends.
#[derive(Clone, Debug, Default)]
pub(super) struct Sends {
    pub(super) attaches: BTreeMap<(AwsVolumeId, InstanceId), (Term, Monotonic)>,
    pub(super) attachments: BTreeMap<AttachmentName, Vec<Sent>>,
    reads: BTreeMap<NodeName, NodeRead>,
    pub(super) claims_gone: BTreeMap<ClaimKey, Monotonic>,
}

/// A call on a VolumeAttachment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) kind: AttachmentCallKind,
    pub(super) at: Monotonic,
    /// The fence that stood at the live read of the Node before.
    fence: Option<Pardon>,
}

/// What a live read of a Node showed.
#[derive(Clone, Debug)]
struct NodeRead {
    instance: Option<InstanceId>,
    fenced: bool,
}

impl Sends {
    /// The API server served a live read of a Node: whether it showed a fence.
    pub(super) fn node_read(&mut self, node: &NodeName, instance: Option<InstanceId>, fenced: bool) {
        self.reads.insert(node.clone(), NodeRead { instance, fenced });
    }

    /// A claim is gone.
    pub(super) fn claim_gone(&mut self, claim: &ClaimKey, at: Monotonic) {
        self.claims_gone.insert(claim.clone(), at);
    }

    /// Whether the last live read of the Node showed the instance fenced. `None`: it was not on that Node, or there was no
    /// read.
    pub(super) fn read_shows_fence(&self, node: &NodeName, instance: &InstanceId) -> Option<bool> {
        let read = self.reads.get(node)?;
        (read.instance.as_ref() == Some(instance)).then_some(read.fenced)
    }

    /// Whether a live read found no Node of that name, or one of another instance.
    pub(super) fn read_shows_no_node(&self, node: &NodeName, instance: &InstanceId) -> bool {
        self.reads.get(node).is_some_and(|read| read.instance.as_ref() != Some(instance))
    }

    /// A call on a VolumeAttachment left the socket.
    pub(super) fn attachment_call(
        &mut self,
        name: &AttachmentName,
        kind: AttachmentCallKind,
        at: Monotonic,
        fence: Option<Pardon>,
    ) {
        let sent = self.attachments.entry(name.clone()).or_default();
        sent.retain(|earlier| at.saturating_since(earlier.at) <= EXPLAINS_FOR);
        sent.push(Sent { kind, at, fence });
    }

    /// The fence that excuses the deletion of a VolumeAttachment: `None` if its send is not told.
    pub(super) fn fence_of_delete(&self, name: &AttachmentName) -> Option<Option<Pardon>> {
        let deletes = self.attachments.get(name)?.iter().filter(|sent| sent.kind == AttachmentCallKind::Delete);
        deletes.map(|sent| sent.fence).reduce(|one, other| one.or(other))
    }
}
