//! What must hold of a volume's attachments in EC2: one holder, an intent written first, foreign ones left alone, and
//! unlisted before they end.

use std::time::Duration;

use super::memory::Memory;
use super::wanted::is_exclusive;
use super::world::{Actor, Ec2Attachment, News, World};
use super::{Findings, Invariant, Scope};
use crate::model::ids::{AwsVolumeId, InstanceId, VolumeKey};

/// What a person attaches by hand so shortly before our own call lands cannot be known in time: the read that call stands
/// on was older, and may have been stale.
const KNOWN_AFTER: Duration = Duration::from_secs(30);

/// A Node object younger than this may not have been seen when AttachVolume was sent: a watch that stood still, and W.
const NODE_KNOWN_AFTER: Duration = Duration::from_secs(160);

pub(super) fn check(memory: &mut Memory, world: &World, scope: &Scope, found: &mut Findings<'_>) {
    for id in &scope.volumes {
        let Some(volume) = world.volumes.get(id) else { continue };
        exclusive_volume_is_on_one_instance(world, id, found);
        let known = memory.generations.get(id).copied();
        for attachment in &volume.attachments {
            if attachment.made_by.is_attachd() && known.is_none_or(|known| attachment.generation > known) {
                intent_stands_before_attachment(memory, world, id, attachment, found);
            }
            if attachment.ending_by.is_some_and(Actor::is_attachd) {
                judge_ending(memory, world, id, attachment, found);
            }
        }
    }
    for news in &world.news {
        if let News::AttachmentEnded { volume, attachment, by } = news
            && by.is_attachd()
        {
            judge_ending(memory, world, volume, attachment, found);
        }
    }
}

fn exclusive_volume_is_on_one_instance(world: &World, id: &AwsVolumeId, found: &mut Findings<'_>) {
    let Some(volume) = world.volumes.get(id) else { return };
    let newest = volume.attachments.iter().max_by_key(|attachment| attachment.generation);
    let broken = newest.filter(|newest| newest.made_by.is_attachd()).is_some_and(|newest| {
        let known_in_time = |other: &&Ec2Attachment| {
            other.made_by != Actor::Person || newest.since.saturating_since(other.since) >= KNOWN_AFTER
        };
        volume
            .attachments
            .iter()
            .filter(|other| other.generation != newest.generation)
            .any(|other| known_in_time(&other))
    });
    let holds = !broken || !is_exclusive(world, id);
    found.judge(Invariant::ExclusiveVolumeOnOneInstance, holds, || {
        let instances: Vec<_> = volume.attachments.iter().map(|a| a.instance.text()).collect();
        (id.to_string(), format!("attached to {}", instances.join(" and ")))
    });
}

fn intent_stands_before_attachment(
    memory: &Memory,
    world: &World,
    id: &AwsVolumeId,
    attachment: &Ec2Attachment,
    found: &mut Findings<'_>,
) {
    let instance = &attachment.instance;
    let intended = memory.objects_of(world, id, instance).any(|object| {
        object.has_attacher_finalizer()
            && object.device.as_ref().is_some_and(|device| device.slot() == attachment.device.slot())
    });
    let robbed = memory.robbed.contains_key(&(id.clone(), instance.clone()));
    attached_under_its_node(memory, world, id, instance, found);
    found.judge(Invariant::IntentBeforeAttach, intended || robbed, || {
        let about = format!("{id} on {instance}");
        (about, format!("attached at {} with no VolumeAttachment that says so", attachment.device))
    });
}

/// Rule 5: else its absence from volumesInUse is no evidence until the machine boots again.
fn attached_under_its_node(
    memory: &Memory,
    world: &World,
    id: &AwsVolumeId,
    instance: &InstanceId,
    found: &mut Findings<'_>,
) {
    let Some(node) = memory.node(world, instance) else { return };
    let since = memory.nodes.get(&node.name).filter(|seen| seen.uid == node.uid).map(|seen| seen.since);
    let known_in_time = since.is_some_and(|since| world.now.monotonic.saturating_since(since) >= NODE_KNOWN_AFTER);
    let other = memory
        .objects_of(world, id, instance)
        .any(|object| object.node_uid.as_ref().is_some_and(|recorded| *recorded != node.uid));
    found.judge(Invariant::AttachedUnderItsNode, !other || !known_in_time, || {
        (format!("{id} on {instance}"), format!("its VolumeAttachment records another Node {}", node.name))
    });
}

/// Judges once, when attachd begins to end an attachment.
fn judge_ending(
    memory: &mut Memory,
    world: &World,
    id: &AwsVolumeId,
    attachment: &Ec2Attachment,
    found: &mut Findings<'_>,
) {
    if !memory.endings.insert((id.clone(), attachment.generation)) {
        return;
    }
    let instance = &attachment.instance;
    let key = (id.clone(), instance.clone());
    // A call of ours that was under way when a person attached by hand may land on that attachment: a known residual.
    let sent_before = memory.detaches_in_flight.get(&key).is_some_and(|sent| *sent < attachment.since);
    let foreign = attachment.made_by == Actor::Person && !memory.recorded(id, instance, &attachment.device);
    found.judge(Invariant::ForeignUntouched, !foreign || sent_before, || {
        (format!("{id} on {instance}"), format!("attached by hand at {}, detached by us", attachment.device))
    });
    if foreign {
        return;
    }
    let name = VolumeKey::ebs(id).unique_name();
    let node = memory.node(world, instance);
    let listed = node.is_some_and(|node| node.volumes_attached.contains_key(&name));
    let other_writer = node.is_some_and(|node| memory.listed_by_others.contains(&(node.name.clone(), name.clone())));
    // A call of an earlier leader that lands late finds the volume listed by the next one, marked, on the Node object that
    // was registered since: rule 3 wants that at once, and a kubelet mounts nothing from a Terminating VolumeAttachment.
    let registered = node.and_then(|node| memory.nodes.get(&node.name)).map(|seen| seen.since);
    let sent_for_another =
        memory.detaches_in_flight.get(&key).zip(registered).is_some_and(|(sent, registered)| *sent < registered);
    found.judge(Invariant::UnlistedBeforeDetach, !listed || other_writer || sent_for_another, || {
        (format!("{id} on {instance}"), "its node lists it still".to_owned())
    });
}
