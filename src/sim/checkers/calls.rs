//! What must hold of calls when they leave the socket: asked once, asked of one instance, and decided on what was so.
//!
//! Judged by what the models hold at the send and at the landing, as far as the driver tells of sends. Must never demand
//! that the core knows what no watch and no read could have shown it.

use std::time::Duration;

use super::memory::{Memory, is_dead};
use super::sends::Sent;
use super::wanted::is_exclusive;
use super::world::{Actor, AttachmentCallKind, Ec2CallInFlight, Ec2CallKind, News, World, instance_of};
use super::{Findings, Invariant};
use crate::controller::event::Term;
use crate::model::attachment::{AttachmentSource, VolumeAttachment};
use crate::model::ids::{AttachmentName, ClaimKey, Uid};
use crate::model::pod::{Pod, PodVolume};
use crate::model::time::Monotonic;

/// A pod younger than this at the send of a delete may not have been there at the live read it stands on: that read may be
/// 10 s old, and the executor late.
const SEEN_AFTER: Duration = Duration::from_secs(30);

pub(super) fn check(memory: &mut Memory, world: &World, found: &mut Findings<'_>) {
    for news in &world.news {
        match news {
            News::VolumeCallSent(call) => {
                is_asked_once(memory, world, call, found);
                if call.kind == Ec2CallKind::Attach {
                    attach_is_asked_of_one(world, call, found);
                    let key = (call.volume.clone(), call.instance.clone());
                    memory.sends.attaches.insert(key, (call.term, call.sent));
                }
            }
            News::AttachmentCallSent { kind: AttachmentCallKind::Delete, name, term, .. } => {
                delete_is_not_under_a_pod(memory, world, name, *term, found);
            }
            News::DeletionOrdered { name, by } if by.is_attachd() => {
                hits_its_object(memory, name, AttachmentCallKind::Delete, found);
            }
            News::FinalizerGone { object, by } if by.is_attachd() => {
                hits_its_object(memory, &object.name, AttachmentCallKind::Finalizers, found);
            }
            _ => {}
        }
    }
}

/// Rules 5 and 6.
fn is_asked_once(memory: &Memory, world: &World, call: &Ec2CallInFlight, found: &mut Findings<'_>) {
    let lands_yet = world.calls_in_flight.iter().any(|other| {
        let same = other.volume == call.volume && other.instance == call.instance && other.kind == call.kind;
        same && other.term == call.term && other.sent < call.sent
    });
    let asked = memory.sends.attaches.get(&(call.volume.clone(), call.instance.clone()));
    let by_the_last = |since: Monotonic| asked.is_some_and(|(term, at)| *term == call.term && *at <= since);
    // Consistent reads are believed: where reads may be stale, they can be wrong.
    let may_be_fooled = world.stale_reads_until.is_some_and(|until| call.sent <= until);
    let us = Actor::Attachd(call.term);
    let has_its_effect = !may_be_fooled
        && world.ec2_attachment(&call.volume, &call.instance).is_some_and(|attachment| match call.kind {
            Ec2CallKind::Attach => {
                attachment.made_by == us && attachment.ending_by.is_none() && by_the_last(attachment.since)
            }
            Ec2CallKind::Detach => attachment.ending_by == Some(us),
        });
    found.judge(Invariant::AskedOnce, !lands_yet && !has_its_effect, || {
        let why = if lands_yet { "the one before can still land" } else { "the one before has its effect" };
        (format!("{:?} of {} and {}", call.kind, call.volume, call.instance), why.to_owned())
    });
}

/// Rule 1.
fn attach_is_asked_of_one(world: &World, call: &Ec2CallInFlight, found: &mut Findings<'_>) {
    let other = world.calls_in_flight.iter().find(|other| {
        let elsewhere = other.volume == call.volume && other.instance != call.instance && other.kind == call.kind;
        elsewhere && other.term == call.term && other.sent < call.sent
    });
    let holds = other.is_none() || !is_exclusive(world, &call.volume);
    found.judge(Invariant::AskedOfOne, holds, || {
        let other = other.map(|other| other.instance.to_string()).unwrap_or_default();
        (call.volume.to_string(), format!("asked of {} while the call for {other} can still land", call.instance))
    });
}

/// Rules 6 and 10, G1: what is told here is the order for an attachment that stands, decided by attachd itself.
fn delete_is_not_under_a_pod(
    memory: &Memory,
    world: &World,
    name: &AttachmentName,
    term: Term,
    found: &mut Findings<'_>,
) {
    let Some(object) = world.attachments.get(name).filter(|object| object.deleting.is_none() && object.status.attached)
    else {
        return;
    };
    let Some(instance) = object.instance() else { return };
    let of_instance = world.nodes.get(&object.node).is_some_and(|node| instance_of(node) == Some(&instance));
    if !of_instance || is_dead(world, &instance) {
        return;
    }
    let pod = pods_of(world, object).find(|pod| {
        let bound = pod.scheduled.unwrap_or(pod.created);
        let long_there = world.now.wall.saturating_since(bound) >= SEEN_AFTER;
        long_there && could_be_resolved(memory, world, pod, object, term)
    });
    found.judge(Invariant::WantedStays, pod.is_none(), || {
        let pod = pod.map(|pod| pod.key.to_string()).unwrap_or_default();
        (format!("{name} on {}", object.node), format!("pod {pod} wants it there"))
    });
}

/// The claim a VolumeAttachment's PersistentVolume is bound to, by the PersistentVolume alone.
fn claim_of<'a>(world: &'a World, object: &VolumeAttachment) -> Option<&'a (ClaimKey, Uid)> {
    let AttachmentSource::PersistentVolume(name) = &object.source else { return None };
    world.persistent_volumes.get(name)?.claim.as_ref()
}

/// The pods on its node that use the claim of a VolumeAttachment, whether that claim is still there or not.
fn pods_of<'a>(world: &'a World, object: &'a VolumeAttachment) -> impl Iterator<Item = &'a Pod> {
    let claim = claim_of(world, object).map(|(key, _)| key);
    world.pods.values().filter(move |pod| {
        let uses = |volume: &PodVolume| {
            matches!((volume, claim), (PodVolume::Claim(name), Some(claim))
                if *name == claim.name && pod.key.namespace == claim.namespace)
        };
        !pod.terminated && pod.node.as_ref() == Some(&object.node) && pod.volumes.iter().any(uses)
    })
}

/// Whether the process that decided could tell what the pod wants: its claim is there, or was when the process already
/// watched.
fn could_be_resolved(memory: &Memory, world: &World, pod: &Pod, object: &VolumeAttachment, term: Term) -> bool {
    let Some((claim, _)) = claim_of(world, object) else { return false };
    if world.claims.contains_key(claim) {
        return true;
    }
    let gone = memory.sends.claims_gone.get(claim).copied().unwrap_or_default();
    let watched = world.watched_since.get(&term).copied().unwrap_or(world.now.monotonic);
    // The pod itself must have been seen while its claim was there.
    let pod_age = world.now.wall.saturating_since(pod.scheduled.unwrap_or(pod.created));
    let pod_since = world.now.monotonic.saturating_sub(pod_age);
    gone > watched + Duration::from_secs(2) && gone > pod_since + Duration::from_secs(100)
}

/// Rule 12: what ends a VolumeAttachment was decided when that very one was there.
fn hits_its_object(memory: &Memory, name: &AttachmentName, kind: AttachmentCallKind, found: &mut Findings<'_>) {
    let Some(made) = memory.attachments.get(name).and_then(|seen| seen.made) else { return };
    let sent: Vec<&Sent> =
        memory.sends.attachments.get(name).into_iter().flatten().filter(|sent| sent.kind == kind).collect();
    let holds = sent.is_empty() || sent.iter().any(|sent| sent.at >= made);
    found.judge(Invariant::WritesHitTheirObject, holds, || {
        (name.to_string(), format!("a {kind:?} that was sent before it was made at {made} landed on it"))
    });
}
