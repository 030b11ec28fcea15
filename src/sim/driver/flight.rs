//! Calls under way: when they reach the socket, the server and the caller, and what goes wrong on the way.
//!
//! The contract of design section 2: exactly one outcome each; `not_after` is compared at the socket; after ten seconds
//! the client gives up while the request may yet have its effect, but never more than W after the send.

use std::time::Duration;

use super::fault::{CallFault, CallTarget};
use super::options::{CallFaultRates, Latencies};
use crate::controller::command::{Call, Command, Ec2Call, KubernetesCall};
use crate::model::outcome::CallResult;
use crate::model::time::{Monotonic, Now};
use crate::sim::dice::Dice;

/// The client gives up an attempt after that long.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// A request has its effect at most that long after its send (W): attempt timeout and 60 s.
pub const DEAD_AFTER: Duration = Duration::from_secs(70);

/// A call under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// The process that sent it.
    pub(super) process: u64,
    pub(super) command: Command,
    pub(super) fault: Option<CallFault>,
    pub(super) began: Now,
    pub(super) sent: Option<Monotonic>,
    /// Arrivals that are still to come.
    pub(super) arrivals: u32,
    /// What the last arrival answered.
    pub(super) answer: Option<CallResult>,
    /// Whether that answer comes back before the caller gives up.
    pub(super) in_time: bool,
    /// Whether the caller has had its outcome.
    pub(super) answered: bool,
}

/// What the next moments of a call will be, decided when it reaches the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Course {
    /// When it lands; never if empty, twice if duplicated, the last time before it is answered.
    pub(super) arrivals: Vec<Monotonic>,
    /// When its caller has the answer, if the last arrival's answer comes back in time.
    pub(super) answered: Option<Monotonic>,
    /// When its caller gives up otherwise.
    pub(super) given_up: Monotonic,
}

impl Course {
    /// The course of a call sent at `sent`.
    pub(super) fn draw(
        sent: Monotonic,
        call: &Call,
        fault: Option<CallFault>,
        lat: &Latencies,
        dice: &mut Dice,
    ) -> Self {
        let (from, to) = match call {
            Call::Ec2(_) => lat.ec2,
            Call::Kubernetes(_) => lat.api,
        };
        let (there, back) = (dice.between(from, to), dice.between(from, to));
        let given_up = sent + ATTEMPT_TIMEOUT;
        let latest = sent + (DEAD_AFTER - Duration::from_millis(1));
        let lands = sent + there;
        let normal = Self { arrivals: vec![lands], answered: Some(lands + back), given_up };
        match fault {
            None | Some(CallFault::Throttle | CallFault::DelaySend(_)) => normal,
            Some(CallFault::LoseRequest) => Self { arrivals: Vec::new(), answered: None, given_up },
            Some(CallFault::LoseReply) => Self { answered: None, ..normal },
            Some(CallFault::ApplyLate(by)) => {
                let lands = (sent + by).max(lands).min(latest);
                let answered = Some(lands + back).filter(|at| *at < given_up);
                Self { arrivals: vec![lands], answered, given_up }
            }
            Some(CallFault::Duplicate(by)) => {
                let again = (sent + by).max(lands).min(latest);
                let answered = Some(again + back).filter(|at| *at < given_up);
                Self { arrivals: vec![lands, again], answered, given_up }
            }
            Some(CallFault::Slow(by)) => {
                let answered = Some(lands + back + by).filter(|at| *at < given_up);
                Self { answered, ..normal }
            }
        }
    }
}

/// Whether a fault for `target` hits this call.
pub(super) fn is_target(target: CallTarget, call: &Call) -> bool {
    match (target, call) {
        (CallTarget::AttachVolume, Call::Ec2(Ec2Call::AttachVolume { .. })) => true,
        (CallTarget::DetachVolume, Call::Ec2(Ec2Call::DetachVolume { .. })) => true,
        (CallTarget::Ec2Mutating, Call::Ec2(call)) => call.is_mutating(),
        (CallTarget::Ec2Describe, Call::Ec2(call)) => !call.is_mutating(),
        (CallTarget::NodeStatus, Call::Kubernetes(KubernetesCall::PatchNodeStatus { .. })) => true,
        (CallTarget::KubernetesWrite, Call::Kubernetes(call)) => {
            call.is_mutating() && !matches!(call, KubernetesCall::CreateEvent(_))
        }
        (
            CallTarget::Attachment,
            Call::Kubernetes(
                KubernetesCall::CreateAttachment(_)
                | KubernetesCall::RecordAttachment { .. }
                | KubernetesCall::PatchAttachmentStatus { .. }
                | KubernetesCall::SetAttachmentFinalizers { .. }
                | KubernetesCall::DeleteAttachment { .. },
            ),
        ) => true,
        (CallTarget::LiveRead, Call::Kubernetes(call)) => !call.is_mutating(),
        _ => false,
    }
}

/// A fault of chance for one call.
pub(super) fn draw_fault(rates: &CallFaultRates, dice: &mut Dice) -> Option<CallFault> {
    if *rates == CallFaultRates::default() {
        return None;
    }
    let late = (Duration::from_secs(1), DEAD_AFTER);
    let slow = (Duration::from_millis(500), Duration::from_secs(9));
    if dice.chance(rates.lose_request) {
        Some(CallFault::LoseRequest)
    } else if dice.chance(rates.lose_reply) {
        Some(CallFault::LoseReply)
    } else if dice.chance(rates.apply_late) {
        Some(CallFault::ApplyLate(dice.between(late.0, late.1)))
    } else if dice.chance(rates.duplicate) {
        Some(CallFault::Duplicate(dice.between(late.0, late.1)))
    } else if dice.chance(rates.throttle) {
        Some(CallFault::Throttle)
    } else if dice.chance(rates.slow) {
        Some(CallFault::Slow(dice.between(slow.0, slow.1)))
    } else if dice.chance(rates.delay_send) {
        Some(CallFault::DelaySend(dice.between(slow.0, slow.1)))
    } else {
        None
    }
}

/// The kind of a call, as it is counted.
pub(super) fn kind_name(call: &Call) -> &'static str {
    match call {
        Call::Ec2(call) => crate::sim::ec2::Ec2Action::of(call).name(),
        Call::Kubernetes(call) => match call {
            KubernetesCall::CreateAttachment(_) => "CreateAttachment",
            KubernetesCall::RecordAttachment { .. } => "RecordAttachment",
            KubernetesCall::PatchAttachmentStatus { .. } => "PatchAttachmentStatus",
            KubernetesCall::SetAttachmentFinalizers { .. } => "SetAttachmentFinalizers",
            KubernetesCall::DeleteAttachment { .. } => "DeleteAttachment",
            KubernetesCall::GetAttachment { .. } => "GetAttachment",
            KubernetesCall::SetPersistentVolumeFinalizers { .. } => "SetPersistentVolumeFinalizers",
            KubernetesCall::PlacePersistentVolume { .. } => "PlacePersistentVolume",
            KubernetesCall::GetPersistentVolume { .. } => "GetPersistentVolume",
            KubernetesCall::PatchNodeStatus { .. } => "PatchNodeStatus",
            KubernetesCall::GetNode { .. } => "GetNode",
            KubernetesCall::ListPods { .. } => "ListPods",
            KubernetesCall::CreateEvent(_) => "CreateEvent",
        },
    }
}

/// Whether the call changes anything.
pub(super) fn is_mutating(call: &Call) -> bool {
    match call {
        Call::Ec2(call) => call.is_mutating(),
        Call::Kubernetes(call) => call.is_mutating(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::NodeName;

    fn course(fault: Option<CallFault>) -> Course {
        let call = Call::Kubernetes(KubernetesCall::GetNode { name: NodeName::new("n1") });
        Course::draw(Monotonic::ZERO, &call, fault, &Latencies::default(), &mut Dice::new(1, 1))
    }

    fn seconds(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_call_lands_and_is_answered() {
        let course = course(None);
        assert_eq!(course.arrivals.len(), 1);
        assert!(course.answered.is_some_and(|at| at > course.arrivals[0] && at < seconds(1)));
    }

    #[test]
    fn a_lost_request_never_lands_and_a_lost_reply_does() {
        assert_eq!(course(Some(CallFault::LoseRequest)).arrivals, Vec::new());
        let lost = course(Some(CallFault::LoseReply));
        assert_eq!((lost.arrivals.len(), lost.answered, lost.given_up), (1, None, seconds(10)));
    }

    #[test]
    fn a_late_effect_comes_after_the_timeout_but_never_after_its_death() {
        let late = course(Some(CallFault::ApplyLate(Duration::from_secs(40))));
        assert_eq!((late.arrivals.as_slice(), late.answered), ([seconds(40)].as_slice(), None));
        let never = course(Some(CallFault::ApplyLate(Duration::from_secs(500))));
        assert!(never.arrivals[0] < seconds(70));
    }

    #[test]
    fn a_duplicate_lands_twice_and_nothing_lands_after_an_answer() {
        let twice = course(Some(CallFault::Duplicate(Duration::from_secs(5))));
        assert_eq!(twice.arrivals.len(), 2);
        assert!(twice.answered.is_some_and(|at| at > twice.arrivals[1]));
        let late = course(Some(CallFault::Duplicate(Duration::from_secs(30))));
        assert_eq!((late.arrivals.len(), late.answered), (2, None));
    }

    #[test]
    fn a_slow_answer_is_late_but_there() {
        let slow = course(Some(CallFault::Slow(Duration::from_secs(5))));
        assert!(slow.answered.is_some_and(|at| at > seconds(5) && at < seconds(6)));
    }
}
