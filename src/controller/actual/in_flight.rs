//! The memory of mutating EC2 calls (rule 7). It belongs to (volume, instance), not to the VolumeAttachment: deleting the
//! object does not end a call.
//!
//! Flow: opened when a command is made, settled by its outcome, expired by time. Owns nothing else. Must never forget a
//! call that is neither answered nor dead.

use std::time::Duration;

use crate::controller::leadership::ATTEMPT_TIMEOUT;
use crate::model::device::DeviceName;
use crate::model::ids::InstanceId;
use crate::model::outcome::{CallResult, CommandId, Outcome};
use crate::model::time::{Monotonic, Now, Wall};

/// A mutating call is dead this long after its send (W): attempt timeout and a minute in which EC2 may still take it.
pub const DEAD_AFTER: Duration = Duration::from_secs(ATTEMPT_TIMEOUT.as_secs() + 60);

/// AttachVolume or DetachVolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// AttachVolume
    Attach,
    /// DetachVolume
    Detach,
}

/// One call that is neither answered nor dead.
#[derive(Clone, Debug)]
pub struct InFlightCall {
    /// Its command.
    pub id: CommandId,
    /// What it does.
    pub kind: CallKind,
    /// To which instance.
    pub instance: InstanceId,
    /// When it can have no effect any more; while unanswered counted from its making, then from its send.
    pub dead_at: Monotonic,
    /// Whether its outcome came, and was Uncertain.
    pub uncertain: bool,
}

/// How the last call on the volume ended.
#[derive(Clone, Debug)]
pub struct EndedCall {
    /// What it did.
    pub kind: CallKind,
    /// To which instance.
    pub instance: InstanceId,
    /// How it ended.
    pub end: CallEnd,
    /// When.
    pub at: Monotonic,
}

/// How a mutating call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// Accepted.
    Done,
    /// Definitely without effect.
    NoEffect,
    /// Never answered; dead by now.
    Dead,
}

/// The calls of one volume.
#[derive(Debug, Default)]
pub struct CallsInFlight {
    open: Vec<InFlightCall>,
    last: Option<EndedCall>,
}

/// What an AttachVolume of this process was sent with, to tell its effect from an older attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachSend {
    /// When it was made.
    pub at: Now,
    /// AttachTime shown for that instance before the send.
    pub time_before: Option<Wall>,
    /// The device asked for.
    pub device: DeviceName,
    /// How it was answered; `None` while it is not.
    pub end: Option<CallEnd>,
}

impl CallsInFlight {
    /// A call was made at `now`.
    pub fn open(&mut self, id: CommandId, kind: CallKind, instance: InstanceId, now: Now) {
        self.open.push(InFlightCall { id, kind, instance, dead_at: now.monotonic + DEAD_AFTER, uncertain: false });
    }

    /// The outcome of a call. `None` if it is not one of ours (any more).
    pub fn settle(&mut self, outcome: &Outcome) -> Option<EndedCall> {
        let at = self.open.iter().position(|call| call.id == outcome.id)?;
        let end = match &outcome.result {
            CallResult::Done(_) => CallEnd::Done,
            CallResult::NotSent | CallResult::Refused(_) | CallResult::Throttled => CallEnd::NoEffect,
            CallResult::Uncertain(_) => {
                let call = &mut self.open[at];
                call.uncertain = true;
                call.dead_at = outcome.began.monotonic + DEAD_AFTER;
                return None;
            }
        };
        let call = self.open.remove(at);
        let ended = EndedCall { kind: call.kind, instance: call.instance, end, at: outcome.ended.monotonic };
        if end == CallEnd::Done || self.last.is_none() {
            self.last = Some(ended.clone());
        } else if let Some(last) = &mut self.last
            && !(last.end == CallEnd::Done && last.instance == ended.instance && last.kind == ended.kind)
        {
            *last = ended.clone();
        }
        Some(ended)
    }

    /// Takes one call that died: no answer, and none can have an effect any more.
    pub fn expire(&mut self, now: Monotonic) -> Option<EndedCall> {
        let at = self.open.iter().position(|call| call.uncertain && call.dead_at <= now)?;
        let call = self.open.remove(at);
        let ended = EndedCall { kind: call.kind, instance: call.instance, end: CallEnd::Dead, at: call.dead_at };
        self.last = Some(ended.clone());
        Some(ended)
    }

    /// Calls neither answered nor dead.
    pub fn iter(&self) -> impl Iterator<Item = &InFlightCall> {
        self.open.iter()
    }

    /// Whether any call to `instance` is neither answered nor dead.
    pub fn any_to(&self, instance: &InstanceId) -> bool {
        self.open.iter().any(|call| call.instance == *instance)
    }

    /// Whether a call without an answer yet is under way (its outcome is still to come).
    pub fn any_unanswered(&self) -> bool {
        self.open.iter().any(|call| !call.uncertain)
    }

    /// Whether an AttachVolume that is neither answered nor dead may make another instance than this one a holder.
    pub fn may_make_holder_besides(&self, instance: &InstanceId) -> bool {
        self.open.iter().any(|call| call.kind == CallKind::Attach && call.instance != *instance)
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// When the next one dies.
    pub fn next_death(&self) -> Option<Monotonic> {
        self.open.iter().filter(|call| call.uncertain).map(|call| call.dead_at).min()
    }

    /// How the last call on the volume ended, in this process.
    pub fn last(&self) -> Option<&EndedCall> {
        self.last.as_ref()
    }
}
