//! What the outcomes of a slot's commands mean: mutating EC2 calls and writes to the API server.
//!
//! Flow: `Controller::ingest` gives each outcome to the volume it belongs to; the slot's state changes here, and `plan`
//! decides what follows. Must never take an uncertain outcome for either of its two possible pasts.

use super::adopt;
use super::conflict::{NextStep, next_step};
use super::detach;
use super::error_status::{self, INTERNAL, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED};
use super::heal;
use super::room;
use super::work::Work;
use crate::controller::actual::in_flight::{CallEnd, CallKind, EndedCall};
use crate::controller::actual::slot::{DetachSent, Heal, Slot, WriteKind};
use crate::controller::backoff::Pace;
use crate::controller::command::KubernetesCall;
use crate::controller::context::{BackoffKey, Operation};
use crate::controller::event::{Object, Role, WatchEvent};
use crate::controller::reason::BlockedReason;
use crate::model::attachment::{AttachmentSource, NewAttachmentSource};
use crate::model::ids::{AttachmentKey, AttachmentName};
use crate::model::outcome::{Answer, CallResult, Ec2Refusal, Outcome, Refusal};

/// AttachVolume ended (or may not have).
pub fn attach_ended(slot: &mut Slot, work: &mut Work<'_>, outcome: &Outcome) {
    let ended = work.volume.calls.settle(outcome);
    read_after(work, outcome, ended.as_ref());
    if let Some(sent) = &mut slot.attach_sent {
        sent.end = ended.as_ref().map(|ended| ended.end);
    }
    if !is_no_room(&outcome.result, work) {
        room::answered(slot, work, &outcome.result);
    }
    match &outcome.result {
        CallResult::Done(_) | CallResult::Uncertain(_) => {}
        CallResult::NotSent => slot.attach_sent = None,
        CallResult::Throttled => {
            slot.attach_sent = None;
            work.fail(Operation::Attach, Pace::Fast);
        }
        CallResult::Refused(refusal) => {
            slot.attach_sent = None;
            attach_refused(slot, work, refusal);
        }
    }
}

fn attach_refused(slot: &mut Slot, work: &mut Work<'_>, refusal: &Refusal) {
    let now = work.now();
    let Refusal::Ec2 { meaning, code, message } = refusal else { return };
    let (pace, grpc) = match meaning {
        Ec2Refusal::DeviceInUse => {
            if let (Some(recorded), Some(id)) = (&slot.recorded, work.id) {
                slot.tried.push(recorded.device.clone());
                let devices = &mut work.ctx.syncer.instances.record(&recorded.instance).devices;
                devices.refused_in_use(id, now.monotonic);
                work.ctx.syncer.instances.distrust(&recorded.instance);
            }
            slot.needs_name = true;
            return;
        }
        Ec2Refusal::VolumeInUse
        | Ec2Refusal::IncorrectState
        | Ec2Refusal::AttachmentNotFound
        | Ec2Refusal::ModificationUnderWay => {
            work.fail(Operation::Attach, Pace::Fast);
            return;
        }
        Ec2Refusal::AttachmentLimit if is_no_room_for(work) => {
            // It waits for a slot of the instance, not by its own delays.
            return room::refused(slot, work, &refusal_text(*meaning, code, message));
        }
        Ec2Refusal::AttachmentLimit => (Pace::Slow, RESOURCE_EXHAUSTED),
        Ec2Refusal::VolumeNotFound | Ec2Refusal::InstanceNotFound => (Pace::Slow, NOT_FOUND),
        Ec2Refusal::ZoneMismatch | Ec2Refusal::NotPossible => (Pace::Slow, INVALID_ARGUMENT),
        Ec2Refusal::Unauthorized | Ec2Refusal::KeyUnusable => (Pace::Slow, INTERNAL),
    };
    work.fail(Operation::Attach, pace);
    let text = refusal_text(*meaning, code, message);
    slot.refusal = Some((CallKind::Attach, text.clone()));
    slot.block_by_refusal(CallKind::Attach, now.monotonic);
    work.ctx.notes.attach_failed(work.ctx.desired.wants(work.key), work.node, work.key, &text, now.monotonic);
    error_status::state_error(slot, work, &text, grpc);
}

fn is_no_room(result: &CallResult, work: &Work<'_>) -> bool {
    let limit = matches!(result, CallResult::Refused(Refusal::Ec2 { meaning: Ec2Refusal::AttachmentLimit, .. }));
    limit && is_no_room_for(work)
}

/// Whether a limit that was reached is the instance's: a volume for several instances has one of its own.
fn is_no_room_for(work: &Work<'_>) -> bool {
    work.volume.readings.last_seen().is_none_or(|volume| !volume.multi_attach_enabled)
}

/// What a person is told of a refusal. EC2's text carries an encoded part that is another one each time: without it, the
/// same refusal is the same news.
fn refusal_text(meaning: Ec2Refusal, code: &str, message: &str) -> String {
    let message = message.split("Encoded authorization failure message").next().unwrap_or(message).trim_end();
    let hint = match meaning {
        Ec2Refusal::Unauthorized => {
            " (attachd's IAM policy does not allow it for this volume or instance; a policy that goes by tags wants the \
             volume tagged as it says)"
        }
        Ec2Refusal::KeyUnusable => " (attachd's role needs a grant on the volume's KMS key)",
        _ => "",
    };
    format!("{code}: {message}{hint}")
}

/// DetachVolume ended (or may not have).
pub fn detach_ended(slot: &mut Slot, work: &mut Work<'_>, outcome: &Outcome) {
    let ended = work.volume.calls.settle(outcome);
    read_after(work, outcome, ended.as_ref());
    let no_effect = ended.as_ref().is_some_and(|ended| ended.end == CallEnd::NoEffect);
    if no_effect && !slot.detach_effective {
        // A refused one does not unsend another that was accepted or may have been.
        slot.detach_sent = DetachSent::OnlyRefused;
    } else {
        slot.detach_effective = true;
    }
    match &outcome.result {
        CallResult::Done(_) => work.succeed(),
        CallResult::NotSent | CallResult::Uncertain(_) => {}
        CallResult::Throttled => work.fail(Operation::Detach, Pace::Fast),
        CallResult::Refused(refusal) => detach_refused(slot, work, refusal),
    }
}

fn detach_refused(slot: &mut Slot, work: &mut Work<'_>, refusal: &Refusal) {
    let Refusal::Ec2 { meaning, code, message } = refusal else { return };
    if !matches!(meaning, Ec2Refusal::Unauthorized | Ec2Refusal::KeyUnusable | Ec2Refusal::NotPossible) {
        return work.fail(Operation::Detach, Pace::Fast);
    }
    work.fail(Operation::Detach, Pace::Slow);
    let text = refusal_text(*meaning, code, message);
    slot.refusal = Some((CallKind::Detach, text.clone()));
    slot.block_by_refusal(CallKind::Detach, work.now().monotonic);
    error_status::state_detach_error(slot, work, &text);
}

/// Reads that began before the call ended prove nothing; the next one comes when most operations have finished.
fn read_after(work: &mut Work<'_>, outcome: &Outcome, ended: Option<&EndedCall>) {
    let no_effect = ended.is_some_and(|ended| ended.end == CallEnd::NoEffect);
    if !no_effect || !matches!(outcome.result, CallResult::NotSent | CallResult::Throttled) {
        work.volume.readings.invalidate(outcome.ended.monotonic, &work.ctx.policy);
        work.poll();
    }
}

/// A write on behalf of the slot ended (or may not have).
pub fn write_ended(slot: &mut Slot, work: &mut Work<'_>, kind: WriteKind, outcome: Outcome) {
    if slot.write.is_none_or(|write| write.id != outcome.id) {
        // The slot's object ended meanwhile (the watch was faster than the answer): this is news of the past.
        return;
    }
    slot.write = None;
    match outcome.result {
        CallResult::Done(answer) => {
            let key = BackoffKey::Slot(work.key.clone(), work.node.clone());
            if work.ctx.backoff.ready_at(&key, &Operation::Write(kind)).is_some() {
                work.ctx.backoff.clear(&key);
            }
            write_done(slot, work, kind, answer);
        }
        CallResult::NotSent => not_written(slot, work, kind),
        CallResult::Throttled => {
            not_written(slot, work, kind);
            work.fail(Operation::Write(kind), Pace::Fast);
        }
        CallResult::Uncertain(_) => {
            // The object may yet change: nothing else is written to it before a read shows where it stands.
            if kind == WriteKind::ProtectVolume {
                work.fail(Operation::Write(kind), Pace::Fast);
            }
            unsettle(slot, kind);
        }
        CallResult::Refused(Refusal::Kubernetes { meaning, message }) => {
            not_written(slot, work, kind);
            work.fail(Operation::Write(kind), Pace::Fast);
            match next_step(kind, meaning) {
                NextStep::ReadObject | NextStep::ReadGone | NextStep::ReadTwin => {
                    unsettle(slot, kind);
                }
                NextStep::RetrySlowly => {
                    work.fail(Operation::Write(kind), Pace::Slow);
                    slot.block(BlockedReason::Refused(message.to_string()), work.ctx.now.monotonic);
                }
            }
        }
        CallResult::Refused(Refusal::Ec2 { .. }) => {}
    }
}

/// Where the object stands is to be read. A read that fails itself leaves the question what it was.
fn unsettle(slot: &mut Slot, kind: WriteKind) {
    slot.unsettled = true;
    if kind != WriteKind::Settle {
        slot.unsettled_kind = Some(kind);
    }
}

/// A write that surely had no effect.
fn not_written(slot: &mut Slot, work: &mut Work<'_>, kind: WriteKind) {
    match kind {
        WriteKind::Create if slot.object.is_none() && !slot.vanished && slot.heal.is_none() => release(slot, work),
        WriteKind::HealRemove => slot.heal = None,
        // What was checked is checked again: the node may be back by the time the delete can be sent.
        WriteKind::Delete => slot.check_again(),
        _ => {}
    }
}

/// The device reserved for a VolumeAttachment that was not made.
fn release(slot: &mut Slot, work: &mut Work<'_>) {
    if let (Some(recorded), Some(id)) = (slot.recorded.take(), work.id) {
        work.ctx.syncer.instances.record(&recorded.instance).devices.release(id);
    }
}

fn write_done(slot: &mut Slot, work: &mut Work<'_>, kind: WriteKind, answer: Answer) {
    match (kind, answer) {
        (WriteKind::ProtectVolume, Answer::PersistentVolume(Some(volume))) => {
            work.ctx.desired.ingest(&WatchEvent::Applied(Object::PersistentVolume(*volume)));
        }
        (WriteKind::Finish, Answer::Attachment(object)) => {
            let still_ours = object.as_ref().is_some_and(|object| object.has_attacher_finalizer());
            if still_ours { seen(slot, work, object.map(|o| *o)) } else { detach::close(slot, work) }
        }
        (WriteKind::HealRemove, Answer::Attachment(object)) => match object {
            Some(object) if object.has_attacher_finalizer() => seen(slot, work, Some(*object)),
            _ => {
                forget_ended(slot, work);
                heal::removed(slot);
            }
        },
        (WriteKind::Delete, Answer::Attachment(object)) => {
            slot.cleared = true;
            match object {
                Some(object) => seen(slot, work, Some(*object)),
                None if work.id.is_none() => detach::close(slot, work),
                None => forget_ended(slot, work),
            }
        }
        (WriteKind::Create, Answer::Attachment(Some(object))) => {
            let healed = slot.heal == Some(Heal::Making);
            seen(slot, work, Some(*object));
            heal::made(slot);
            work.volume.listed_only.remove(work.node);
            if healed {
                work.ctx.notes.healed(work.key, work.node, slot.object.as_ref());
            }
        }
        (WriteKind::StatusError, Answer::Attachment(object)) => {
            slot.error_to_write = None;
            seen(slot, work, object.map(|o| *o));
        }
        (WriteKind::Settle, Answer::Attachment(object)) => settled(slot, work, object.map(|o| *o)),
        (WriteKind::Record, Answer::Attachment(object)) => {
            seen(slot, work, object.map(|o| *o));
        }
        (_, Answer::Attachment(object)) => seen(slot, work, object.map(|o| *o)),
        _ => {}
    }
}

/// The object as an answer shows it; `None`: it is gone.
fn seen(slot: &mut Slot, work: &mut Work<'_>, object: Option<crate::model::attachment::VolumeAttachment>) {
    let wall = work.now().wall;
    match object {
        Some(object) => {
            let older = slot.object.as_ref().is_some_and(|known| {
                known.uid == object.uid && object.resource_version.is_older_than(&known.resource_version)
            });
            if !older && !work.volume.ended.contains_key(&object.uid) {
                if slot.object.as_ref().is_some_and(|known| known.uid != object.uid) {
                    // What was wished for the one before is not this one's.
                    work.unwish();
                }
                adopt::observe(slot, object, work.ctx.lease_start(), wall);
            }
        }
        None => vanish(slot, work),
    }
}

/// The object went without this process finishing it.
pub fn vanish(slot: &mut Slot, work: &mut Work<'_>) {
    let Some(object) = slot.object.take() else { return };
    if slot.finish_asked || !object.driver.is_ebs() {
        slot.object = Some(object);
        return detach::close(slot, work);
    }
    work.remember_end(object.uid.clone());
    if let AttachmentSource::PersistentVolume(name) = &object.source {
        slot.source.get_or_insert_with(|| NewAttachmentSource::PersistentVolume(name.clone()));
    }
    if slot.write.is_some_and(|write| write.kind == WriteKind::Delete) || slot.cleared {
        slot.cleared = true;
    } else {
        slot.vanished = true;
    }
}

fn forget_ended(slot: &mut Slot, work: &mut Work<'_>) {
    if let Some(object) = slot.object.take() {
        work.remember_end(object.uid.clone());
        if let AttachmentSource::PersistentVolume(name) = &object.source {
            slot.source.get_or_insert_with(|| NewAttachmentSource::PersistentVolume(name.clone()));
        }
    }
}

/// A live GET showed where the object stands after a write of unknown outcome, or a refused one.
fn settled(slot: &mut Slot, work: &mut Work<'_>, object: Option<crate::model::attachment::VolumeAttachment>) {
    let kind = slot.unsettled_kind.take();
    slot.unsettled = false;
    match (kind, object) {
        (Some(WriteKind::HealRemove), None) => {
            forget_ended(slot, work);
            heal::removed(slot);
        }
        (Some(WriteKind::Delete), None) => {
            slot.cleared = true;
            forget_ended(slot, work);
        }
        (Some(WriteKind::Delete), Some(object)) => {
            // Terminating now: by our delete (its preconditions held, so what was checked still held) or by a person's,
            // which the ladder is then climbed for anew.
            seen(slot, work, Some(object));
            if let Some(leaving) = &mut slot.leaving {
                leaving.step = crate::controller::actual::slot::LeaveStep::Wish;
            }
        }
        (Some(WriteKind::Create), Some(object)) => {
            let ours = slot.recorded.as_ref().is_some_and(|r| object.device.as_ref() == Some(&r.device));
            seen(slot, work, Some(object));
            if ours {
                heal::made(slot);
            }
        }
        (Some(WriteKind::Create), None) => {
            if slot.heal.is_none() && !slot.vanished {
                release(slot, work);
            }
        }
        (_, object) => seen(slot, work, object),
    }
}

/// Asks where the object stands.
pub fn settle(slot: &mut Slot, work: &mut Work<'_>) {
    let name = match &slot.object {
        Some(object) => object.name.clone(),
        None => AttachmentName::of(&AttachmentKey { volume: work.key.clone(), node: work.node.clone() }),
    };
    if slot.unsettled_kind == Some(WriteKind::ProtectVolume) {
        // The PersistentVolume's finalizer: the write is repeated with what the watch then shows; its resourceVersion
        // makes that safe.
        slot.unsettled = false;
        slot.unsettled_kind = None;
        return;
    }
    work.write(slot, Role::Attacher, WriteKind::Settle, KubernetesCall::GetAttachment { name });
}

/// Deletes a VolumeAttachment that is outdated (rule 5): it was confirmed free before, so only its end is left.
pub fn delete_outdated(slot: &mut Slot, work: &mut Work<'_>) {
    let Some(object) = &slot.object else { return };
    let call = KubernetesCall::DeleteAttachment {
        name: object.name.clone(),
        uid: object.uid.clone(),
        resource_version: object.resource_version.clone(),
    };
    work.write(slot, Role::AttachDetach, WriteKind::Delete, call);
}
