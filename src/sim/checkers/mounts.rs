//! The master invariants: what a kernel has mounted keeps the very attachment it was mounted on.

use super::memory::{Memory, is_dead};
use super::sends::Pardon;
use super::world::{Actor, Ec2Attachment, Ec2CallKind, Mount, MountKey, News, World, instance_of};
use super::{Findings, Invariant, Scope};
use crate::controller::event::Term;
use crate::model::ids::{AttachmentName, AwsVolumeId};

pub(super) fn check(memory: &mut Memory, world: &World, scope: &Scope, found: &mut Findings<'_>) {
    pardon_ordered_under_a_fence(memory, world);
    if world.rules.is_ordered {
        pardon_ordered_by_others(memory, world);
    }
    pardon_second_landings(memory, world);
    for news in &world.news {
        if let News::DeletionOrdered { name, by } = news
            && let Actor::Attachd(term) = by
        {
            other_driver_is_told_when_unmounted(memory, world, name, *term, found);
        }
    }
    for volume in &scope.volumes {
        attachment_under_a_mount_is_not_taken(memory, world, volume, found);
        mount_is_served_by_its_own_attachment(memory, world, volume, found);
    }
    for news in &world.news {
        if let News::AttachmentEnded { volume, attachment, by } = news
            && by.is_attachd()
        {
            judge_end(memory, world, volume, attachment, found);
        }
    }
}

/// A fence counts when the detach is ordered; that it falls before EC2 is done does not make the order wrong.
fn pardon_ordered_under_a_fence(memory: &mut Memory, world: &World) {
    for news in &world.news {
        let News::DeletionOrdered { name, by } = news else { continue };
        let Some(instance) = memory.attachments.get(name).and_then(|seen| seen.instance.clone()) else { continue };
        let Some(volume) = memory.attachments.get(name).and_then(|s| s.volume.as_ref()?.aws_volume_id()) else {
            continue;
        };
        let Some(attachment) = world.ec2_attachment(&volume, &instance).filter(|_| by.is_attachd()) else { continue };
        let generation = (volume, attachment.generation);
        // Where the send is told, what counts is what the live read before it showed.
        let told = memory.sends.fence_of_delete(name);
        match told.unwrap_or_else(|| memory.fence(world, &instance)) {
            Some(pardon) => {
                memory.pardons.insert(generation, pardon);
            }
            None if told.is_some() => {
                memory.unfenced.insert(generation);
            }
            None => {}
        }
    }
}

/// Beside kube-controller-manager an order of others is carried out, whoever climbed the ladder, with one guard: on a
/// Ready node that nobody fenced, a volume that is reported in use stays.
fn pardon_ordered_by_others(memory: &mut Memory, world: &World) {
    for news in &world.news {
        let News::AttachmentEnded { volume, attachment, .. } = news else { continue };
        memory.pardon_order(world, volume, attachment);
    }
    let touched = world.touched.volumes.iter();
    let ending = touched.filter_map(|id| Some((id, world.volumes.get(id)?)));
    for (id, attachment) in ending.flat_map(|(id, volume)| volume.attachments.iter().map(move |a| (id, a))) {
        if attachment.ending_by.is_some() {
            memory.pardon_order(world, id, attachment);
        }
    }
}

/// Whoever ends an attachment under a mount ends it, not the call that made it.
fn pardon_second_landings(memory: &mut Memory, world: &World) {
    for news in &world.news {
        let News::AttachmentEnded { volume, attachment, by } = news else { continue };
        let may_land_again = world.calls_in_flight.iter().any(|call| {
            call.kind == Ec2CallKind::Attach
                && (&call.volume, &call.instance) == (volume, &attachment.instance)
                && call.sent <= attachment.since
        });
        if may_land_again && !by.is_attachd() {
            let pardon = Pardon::MayLandAgain(attachment.since);
            memory.pardons.entry((volume.clone(), attachment.generation)).or_insert(pardon);
        }
    }
}

/// Of a volume of another driver attachd does nothing but delete its VolumeAttachment: that must not come under a mount.
fn other_driver_is_told_when_unmounted(
    memory: &Memory,
    world: &World,
    name: &AttachmentName,
    term: Term,
    found: &mut Findings<'_>,
) {
    let Some(seen) = memory.attachments.get(name) else { return };
    let Some(volume) = seen.volume.as_ref().filter(|volume| !volume.driver.is_ebs()) else { return };
    let Some(instance) = world.nodes.get(&seen.node).and_then(instance_of) else { return };
    let mounted = world.other_mounts.contains(&(volume.clone(), instance.clone())) && !is_dead(world, instance);
    // Its VolumeAttachment records no Node: one that registered again after it was made, and before this leader watched,
    // looks to it like the one it was made for (a known residual; its kubelet tells nothing of an older mount).
    let since = memory.nodes.get(&seen.node).map(|node| node.since);
    let watched = world.watched_since.get(&term);
    let untold = since
        .zip(watched)
        .is_some_and(|(since, watched)| since <= *watched && seen.made.is_none_or(|made| made <= since));
    let holds = !mounted || untold || memory.fence(world, instance).is_some();
    found.judge(Invariant::MountedAttachmentStays, holds, || {
        (format!("{volume} on {}", seen.node), "its VolumeAttachment was deleted while it is mounted".to_owned())
    });
}

/// Judged when the end begins: EC2 takes the device away some time between then and the end.
fn attachment_under_a_mount_is_not_taken(
    memory: &mut Memory,
    world: &World,
    volume: &AwsVolumeId,
    found: &mut Findings<'_>,
) {
    for attachment in world.volumes.get(volume).into_iter().flat_map(|v| &v.attachments) {
        if attachment.ending_by.is_some_and(|by| by.is_attachd())
            && !memory.endings.contains(&(volume.clone(), attachment.generation))
        {
            judge_end(memory, world, volume, attachment, found);
        }
    }
}

fn judge_end(
    memory: &mut Memory,
    world: &World,
    volume: &AwsVolumeId,
    attachment: &Ec2Attachment,
    found: &mut Findings<'_>,
) {
    let generation = (volume.clone(), attachment.generation);
    let key =
        MountKey { volume: volume.clone(), instance: attachment.instance.clone(), generation: attachment.generation };
    let mount = world.mounts.get(&key).filter(|mount| lives(world, &key, mount));
    let fence = || memory.fence(world, &attachment.instance).filter(|_| !memory.unfenced.contains(&generation));
    let pardon = memory.pardons.get(&generation).copied().or_else(fence);
    let holds = mount.is_none() || pardon.is_some();
    if let Some(pardon) = pardon {
        memory.pardons.insert(generation, pardon);
    }
    found.judge(Invariant::MountedAttachmentStays, holds, || {
        let about = format!("{volume} on {}", attachment.instance);
        (about, format!("attachment {} was ended while mounted, and nothing fenced the node", attachment.generation))
    });
}

fn mount_is_served_by_its_own_attachment(
    memory: &Memory,
    world: &World,
    volume: &AwsVolumeId,
    found: &mut Findings<'_>,
) {
    for attachment in world.volumes.get(volume).into_iter().flat_map(|v| &v.attachments) {
        if !attachment.made_by.is_attachd() {
            continue;
        }
        let from = MountKey { volume: volume.clone(), instance: attachment.instance.clone(), generation: 0 };
        let to = MountKey { generation: attachment.generation, ..from.clone() };
        let asked = memory.sends.attaches.get(&(volume.clone(), attachment.instance.clone()));
        // Another device name is another block device: the old mount stays dead, and serves nobody stale data.
        let stale = world.mounts.range(from..to).find(|(key, mount)| {
            lives(world, key, mount)
                && mount.device.slot() == attachment.device.slot()
                && !match memory.pardons.get(&(volume.clone(), key.generation)) {
                    Some(Pardon::FencedNodeGone) => true,
                    Some(Pardon::NameKnownTo(by)) => *by != Some(attachment.made_by),
                    Some(Pardon::MayLandAgain(after)) => asked.is_some_and(|(_, sent)| sent <= after),
                    Some(Pardon::Fenced) | None => false,
                }
        });
        found.judge(Invariant::MountServedByItsOwnAttachment, stale.is_none(), || {
            let older = stale.map(|(key, _)| key.generation).unwrap_or_default();
            let about = format!("{volume} on {}", attachment.instance);
            (about, format!("a mount made on attachment {older} is served by attachment {}", attachment.generation))
        });
    }
}

fn lives(world: &World, key: &MountKey, mount: &Mount) -> bool {
    !is_dead(world, &key.instance) && world.instances.get(&key.instance).is_some_and(|i| i.boot == mount.boot)
}
