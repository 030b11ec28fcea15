//! The fencing ladder (G1): which rung is open for taking a volume off a node, or why none is.
//!
//! Flow: asked by `leave` with the cached Node, and again with the Node of the live read before anything irreversible.
//! Pure functions; must never open a rung on anything but the Node object it was given.

use std::time::Duration;

use crate::controller::actual::in_use::{Attachment, InUse, in_use};
use crate::controller::actual::nodes::Gone;
use crate::controller::actual::slot::{Death, Leaving, Rung, Slot};
use crate::controller::policy::{ForceDetach, Policy, Rule, Settings};
use crate::controller::reason::BlockedReason;
use crate::controller::syncer::states::Machine;
use crate::model::ids::{InstanceId, UniqueVolumeName};
use crate::model::node::Node;
use crate::model::time::{Now, Wall};

/// What the ladder is climbed with.
#[derive(Clone, Copy, Debug)]
pub struct Ladder<'a> {
    /// The volume's name on lists.
    pub name: &'a UniqueVolumeName,
    /// The instance the CSINode of that node name names.
    pub csi_instance: Option<&'a InstanceId>,
    /// When the Node object went, if it did.
    pub gone: Option<&'a Gone>,
    /// What EC2 says of the machine.
    pub machine: Machine,
    /// Consistent reads show the volume without an attachment to that machine.
    pub shown_free: bool,
    /// A pod on the node was never resolved since start (rule 10).
    pub unresolved_pod: bool,
    /// A person's word for the present boot counts.
    pub unmounted_by_person: bool,
    /// When leading began.
    pub leading_since: Now,
    /// The present.
    pub now: Now,
}

/// The rung that is open by this Node object (`None`: there is none of that name), or why none is; with the time when
/// it is worth asking again, where time alone can open one.
pub fn open_rung(
    slot: &Slot,
    node: Option<&Node>,
    ladder: Ladder<'_>,
    settings: &Settings,
    policy: &Policy,
) -> Result<Rung, (BlockedReason, Option<Duration>)> {
    // An entry of an earlier attachment may be left on the list: a kubelet mounts by it as soon as EC2 has the volume there.
    let listed = node.is_some_and(|node| node.volumes_attached.contains_key(ladder.name));
    if slot.cannot_be_mounted() && !listed {
        return Ok(Rung::NeverMounted);
    }
    if ladder.machine == Machine::Terminated {
        return Ok(Rung::Dead(Death::Terminated));
    }
    let Some(leaving) = &slot.leaving else { return Err((BlockedReason::InUse, None)) };
    let of_instance = node.filter(|node| match slot.instance() {
        Some(instance) => node.provider_id.as_ref().and_then(|id| id.instance()) == Some(instance),
        None => true,
    });
    let Some(node) = of_instance else {
        let reason = if node.is_some() { BlockedReason::OtherInstance } else { BlockedReason::NodeGone };
        if let Some(death) = death(ladder) {
            return dead(death, ladder);
        }
        let since = gone_since(leaving, ladder);
        return given_up(since, reason, ladder, settings, policy);
    };
    let attachment = Attachment {
        name: ladder.name,
        instance: slot.instance(),
        node_uid: slot.recorded_uid(),
        unmounted_by_person: ladder.unmounted_by_person,
    };
    let shut = match in_use(node, ladder.csi_instance, attachment, policy) {
        InUse::No => return Ok(Rung::Released),
        InUse::Reported => BlockedReason::InUse,
        InUse::OtherNodeObject => BlockedReason::OtherNodeObject,
        InUse::Marked => BlockedReason::InUseUnknown,
        InUse::OtherInstance => BlockedReason::OtherInstance,
    };
    if node.out_of_service {
        return if ladder.unresolved_pod { Err((BlockedReason::UnresolvedPod, None)) } else { Ok(Rung::OutOfService) };
    }
    if let Some(death) = death(ladder).filter(|_| !node.ready.is_true || !policy.holds(Rule::DeathNeedsProof)) {
        return dead(death, ladder);
    }
    if node.ready.is_true {
        return Err((shut, None));
    }
    let since = not_ready_since(node.ready.since, leaving);
    given_up(since, shut, ladder, settings, policy)
}

/// Rung (b) for a machine that may come back: stopped, or not there any more and without the volume.
fn death(ladder: Ladder<'_>) -> Option<Death> {
    match ladder.machine {
        Machine::Stopped => Some(Death::Stopped),
        Machine::Absent if ladder.shown_free => Some(Death::Absent),
        _ => None,
    }
}

fn dead(death: Death, ladder: Ladder<'_>) -> Result<Rung, (BlockedReason, Option<Duration>)> {
    if ladder.unresolved_pod { Err((BlockedReason::UnresolvedPod, None)) } else { Ok(Rung::Dead(death)) }
}

/// Rung (d): not Ready or gone for the unmount timeout, and the force policy allows it.
fn given_up(
    since: Wall,
    shut: BlockedReason,
    ladder: Ladder<'_>,
    settings: &Settings,
    policy: &Policy,
) -> Result<Rung, (BlockedReason, Option<Duration>)> {
    if settings.force_detach == ForceDetach::Never {
        return Err((shut, None));
    }
    let elapsed = ladder.now.wall.saturating_since(since);
    if elapsed < settings.unmount_timeout {
        return Err((BlockedReason::UnmountTimeout, Some(settings.unmount_timeout - elapsed)));
    }
    let impaired = settings.force_detach == ForceDetach::Impaired && policy.holds(Rule::ForceNeedsImpairment);
    match ladder.machine {
        Machine::Running if impaired => Err((BlockedReason::ForceWithheld, None)),
        Machine::Unknown if impaired => Err((BlockedReason::MachineUnknown, None)),
        // EC2 contradicts itself: it knows no such instance, and shows the volume attached to it.
        Machine::Absent if impaired && !ladder.shown_free => Err((BlockedReason::MachineUnknown, None)),
        _ if ladder.unresolved_pod => Err((BlockedReason::UnresolvedPod, None)),
        _ => Ok(Rung::GivenUp),
    }
}

/// From the Ready condition's transition and the wish to detach, whichever is later; a wish found at start counts from
/// the transition alone.
fn not_ready_since(transition: Option<Wall>, leaving: &Leaving) -> Wall {
    match transition {
        Some(transition) if leaving.found_at_start => transition,
        Some(transition) => transition.max(leaving.since.wall),
        None => leaving.since.wall,
    }
}

/// A Node that went counts from its Ready transition, if it was not Ready, else from when it was seen to go; one that
/// was never seen, from when leading began.
fn gone_since(leaving: &Leaving, ladder: Ladder<'_>) -> Wall {
    let since = ladder.gone.map_or(ladder.leading_since.wall, |gone| gone.not_ready_since.unwrap_or(gone.at.wall));
    if leaving.found_at_start { since } else { since.max(leaving.since.wall) }
}

fn is_of(slot: &Slot, node: &Node) -> bool {
    slot.instance().is_none_or(|instance| node.provider_id.as_ref().and_then(|id| id.instance()) == Some(instance))
}

/// Judges the live read of a removal by `rung`: whether the step may go on, or why not.
pub fn judge_live(
    slot: &Slot,
    rung: Rung,
    patched_uid: Option<&crate::model::ids::Uid>,
    node: Option<&Node>,
    ladder: Ladder<'_>,
    settings: &Settings,
    policy: &Policy,
) -> Result<(), BlockedReason> {
    match (node, patched_uid) {
        (Some(node), Some(uid)) if node.uid != *uid => return Err(BlockedReason::OtherNodeObject),
        (None, _) if rung == Rung::Released => return Err(BlockedReason::NodeGone),
        // A Node of the instance came meanwhile: no patch of it voided the older ones.
        (Some(node), None) if rung != Rung::NeverMounted && policy.holds(Rule::UnlistFirst) && is_of(slot, node) => {
            return Err(BlockedReason::OtherNodeObject);
        }
        _ => {}
    }
    if let Some(node) = node
        && patched_uid.is_some()
        && node.volumes_attached.contains_key(ladder.name)
    {
        return Err(BlockedReason::Writing);
    }
    if !policy.holds(Rule::RungOnLiveRead) {
        return Ok(());
    }
    match open_rung(slot, node, ladder, settings, policy) {
        Ok(Rung::Released | Rung::NeverMounted | Rung::Dead(_)) => Ok(()),
        Ok(open) if open == rung || rung.is_forced() => Ok(()),
        Ok(_) => Err(BlockedReason::InUse),
        Err((reason, _)) => Err(reason),
    }
}
