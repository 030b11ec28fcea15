//! One node: its objects, the list we want and the list we were acknowledged, and the live reads for removals.
//!
//! Flow: watch events and outcomes change it, slots put wishes into it, `report::node_status` makes patches from it. A
//! node patch is a report, not an operation: one is under way per node, and its acknowledgement answers every wish that
//! was in it.

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

use super::slot::Rung;
use crate::model::ids::{
    BootId, DriverName, InstanceId, ProviderId, ResourceVersion, Uid, UniqueVolumeName, VolumeKey,
};
use crate::model::node::{CsiNode, Node};
use crate::model::outcome::CommandId;
use crate::model::pod::Pod;
use crate::model::time::{Monotonic, Now, Wall};

/// One node, by name.
#[derive(Debug, Default)]
pub struct NodeRecord {
    /// The Node object, if there is one.
    pub object: Option<Node>,
    /// Generation of the relist that last named it.
    pub generation: u64,
    /// The CSINode, with the generation that last named it.
    pub csi: Option<(CsiNode, u64)>,
    /// When the Node object was seen to go, and of which instance it was.
    pub gone: Option<Gone>,
    /// The instance the CSINode names for EBS.
    pub csi_ebs: Option<InstanceId>,
    /// Volumes with a slot on this node.
    pub volumes: BTreeSet<VolumeKey>,
    /// What slots want of the list.
    pub wishes: BTreeMap<UniqueVolumeName, Wish>,
    /// The patch under way.
    pub patch: Option<Patch>,
    /// The last list acknowledged to this process.
    pub acknowledged: Option<Acknowledged>,
    /// Removals acknowledged, until the slot takes note.
    pub removed: BTreeMap<UniqueVolumeName, Removal>,
    /// When the last patch was made: further changes go together 2 s later.
    pub last_patch: Option<Monotonic>,
    /// A patch of unknown outcome, or a conflict: a live GET comes first.
    pub refresh: bool,
    /// The live GET for a refresh.
    pub refreshing: Option<CommandId>,
    /// A patch of unknown outcome was made at this version: only a newer one voids it.
    pub hung_at: Option<ResourceVersion>,
    /// Held until then: another writer changed the list (rule 12).
    pub held_until: Option<Monotonic>,
    /// Names whose presence on the list another writer changed: marked (rule 3).
    pub suspect: BTreeSet<UniqueVolumeName>,
    /// Live reads for removals.
    pub live: Option<LiveReads>,
    /// After this a failed patch or read is tried again.
    pub retry_at: Option<Monotonic>,
}

/// A Node object that went.
#[derive(Clone, Debug)]
pub struct Gone {
    /// When it was seen to go.
    pub at: Now,
    /// The instance it was of.
    pub instance: Option<InstanceId>,
    /// Since when it was not ready, if it was not.
    pub not_ready_since: Option<Wall>,
}

/// What a slot wants of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Listed, not before `not_before` unless the node reports it in use; marked if the Node is another than `node_uid`.
    Listed {
        /// The instance it is attached to: never listed on a Node that is another. `None` for other drivers.
        instance: Option<InstanceId>,
        /// The recorded Node UID.
        node_uid: Option<Uid>,
        /// 12 s after EC2's confirmation: earlier only throws the kubelet into back-off.
        not_before: Monotonic,
        /// The volume may be mounted without being reported: marked whatever the UID.
        mark: bool,
    },
    /// Not listed, by a patch made after `since`.
    Unlisted {
        /// The rung that is open for it.
        rung: Rung,
        /// Only a patch made after this counts.
        since: Monotonic,
        /// A person's word voids the mark: its boot id is emptied.
        empty_mark: bool,
    },
    /// EC2 shows it gone and the node does not report it in use (rule 4).
    Dropped,
    /// Left as it is: the volume went behind our back while the node reports it in use (rule 4).
    Keep,
    /// Marked, the list left as it is: before a VolumeAttachment is made over an attachment (rule 9).
    Marked,
}

/// A nodes/status patch under way.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Its command.
    pub id: CommandId,
    /// The Node object it is for.
    pub uid: Uid,
    /// Its precondition.
    pub resource_version: ResourceVersion,
    /// The list it carries.
    pub list: BTreeMap<UniqueVolumeName, SmolStr>,
    /// The marks it carries.
    pub marks: Option<BTreeMap<UniqueVolumeName, BootId>>,
    /// The removals that were asked for.
    pub removals: BTreeSet<UniqueVolumeName>,
    /// When it was made.
    pub made: Monotonic,
}

/// A list acknowledged to this process.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// The Node object.
    pub uid: Uid,
    /// The version it was stored at.
    pub resource_version: ResourceVersion,
    /// The list.
    pub list: BTreeMap<UniqueVolumeName, SmolStr>,
}

/// A removal acknowledged.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The Node object.
    pub uid: Uid,
    /// When its patch was made.
    pub made: Monotonic,
    /// When it was acknowledged.
    pub at: Monotonic,
}

/// A live GET of the Node and a live LIST of its pods.
#[derive(Clone, Debug, Default)]
pub struct LiveReads {
    /// Not before this: the acknowledgement they have to follow.
    pub after: Monotonic,
    /// The volumes that wait for one of them to end.
    pub asked_by: BTreeSet<VolumeKey>,
    /// The GET under way.
    pub get: Option<CommandId>,
    /// The LIST under way.
    pub list: Option<CommandId>,
    /// The Node, as of a GET that began then (`None`: NotFound).
    pub node: Option<(Monotonic, Option<Box<Node>>)>,
    /// The pods, as of a LIST that began then.
    pub pods: Option<(Monotonic, Vec<Pod>)>,
}

/// What the identity of a node is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// providerID and CSINode agree.
    Instance(InstanceId),
    /// No Node object.
    NoNode,
    /// providerID is empty.
    NoProviderId,
    /// Not an EC2 instance.
    NotAnInstance,
    /// The CSINode does not list the driver.
    NotRegistered,
    /// They disagree.
    Mismatch,
}

impl NodeRecord {
    /// The instance behind the node, by rule 19.
    pub fn identity(&self) -> Identity {
        let Some(node) = &self.object else { return Identity::NoNode };
        let instance = match &node.provider_id {
            None => return Identity::NoProviderId,
            Some(ProviderId::Other(_)) => return Identity::NotAnInstance,
            Some(ProviderId::Instance { instance, .. }) => instance,
        };
        match self.csi.as_ref().and_then(|(csi, _)| csi.drivers.get(&DriverName::ebs())) {
            None => Identity::NotRegistered,
            Some(id) if InstanceId::parse(id).as_ref() == Ok(instance) => Identity::Instance(instance.clone()),
            Some(_) => Identity::Mismatch,
        }
    }

    /// The Node object, if its providerID names `instance`.
    pub fn object_of(&self, instance: &InstanceId) -> Option<&Node> {
        let node = self.object.as_ref()?;
        (node.provider_id.as_ref()?.instance() == Some(instance)).then_some(node)
    }

    /// Whether the node's list may not be touched at `now` (rule 12).
    pub fn is_held(&self, now: Monotonic) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// Asks for live reads that begin after `after`; the volume is looked at when one has ended.
    pub fn ask_live(&mut self, after: Monotonic, volume: &VolumeKey) {
        let live = self.live.get_or_insert_default();
        live.after = live.after.max(after);
        live.asked_by.insert(volume.clone());
    }

    /// Both live reads, if they began after `after`.
    pub fn live_result(&self, after: Monotonic) -> Option<(Option<&Node>, &[Pod])> {
        let live = self.live.as_ref()?;
        let (node_began, node) = live.node.as_ref()?;
        let (pods_began, pods) = live.pods.as_ref()?;
        (*node_began >= after && *pods_began >= after).then_some((node.as_deref(), pods.as_slice()))
    }

    /// Whether nothing is left to remember.
    pub fn is_forgettable(&self) -> bool {
        let idle = self.patch.is_none() && self.refreshing.is_none() && self.hung_at.is_none();
        let read = self.live.as_ref().is_none_or(|live| live.get.is_none() && live.list.is_none());
        let empty = self.object.is_none() && self.csi.is_none() && self.volumes.is_empty() && self.wishes.is_empty();
        empty && idle && read
    }
}
