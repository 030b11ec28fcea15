//! Chance leaves nothing out: a kind of fault that is added is drawn, or says here why it is not.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::controller::Controller;
use crate::model::time::Monotonic;
use crate::sim::driver::{CallFault, CallTarget, DriverOptions, OldLeader};
use crate::sim::ec2::AnswerFault;

/// The name of every variant, by a match that must name each.
macro_rules! variants {
    ($name:ident, $all:ident, $of:ident: $($variant:ident),* $(,)?) => {
        fn $name(of: &$of) -> &'static str {
            match of {
                $($of::$variant { .. } => stringify!($variant),)*
            }
        }
        const $all: &[&str] = &[$(stringify!($variant)),*];
    };
}

variants! { fault_name, FAULTS, Fault:
    DeleteNode, ReplaceNodeObject, ReplaceInstance, TerminateOldInstances, RestartKubelet, StopKubelet, Partition,
    HealPartition, StallKubelet, SlowUnmount, TerminateInstance, StopInstance, StartInstance, RebootInstance, HangMachine,
    HideInstance, FlickerInstance, OtherRegion, Ec2Outage, FailPages, NextAnswer, Taint, RemoveTaint, ChangeLeader,
    RestartController, NextCall, StaleEc2Reads, StallWatch, Relist, DeleteAttachment, StripFinalizers, DeletePersistentVolume, DeleteClaim,
    RestoreClaim, AnnotateUnmounted, DetachByHand, ForceDetachByHand, CarryByHand, AttachByHand, DeletePod, ForceDeletePod,
    MovePod, ScaleWorkload, Drain, Uncordon, FailPod,
}
variants! { call_fault_name, CALL_FAULTS, CallFault:
    LoseRequest, LoseReply, ApplyLate, Duplicate, Throttle, Slow, DelaySend,
}
variants! { target_name, TARGETS, CallTarget:
    AttachVolume, DetachVolume, Ec2Mutating, Ec2Describe, KubernetesWrite, NodeStatus, Attachment, LiveRead,
}
variants! { old_leader_name, OLD_LEADERS, OldLeader: Dies, LivesOn }
variants! { answer_fault_name, ANSWER_FAULTS, AnswerFault: Unreadable, LeavesOneOut, Half }

/// What chance draws elsewhere or not at all, and why.
const DRAWN_ELSEWHERE: [(&str, &str); 1] = [("MovePod", "moves are drawn at a rate of their own")];

/// Everything that a long chaos draws, with what ends it.
fn drawn() -> Vec<Fault> {
    let mut driver: Driver<Controller> = Driver::new(DriverOptions::new(1));
    let node = driver.add_node("n1");
    let volume = driver.add_workload("a", &node, Duration::ZERO);
    driver.run_until(Monotonic::new(Duration::from_secs(5)), |_| {});
    let mut all = Vec::new();
    for _ in 0..2_000 {
        all.extend(driver.draw_faults(volume.clone(), node.clone()).into_iter().map(|(_, fault)| fault));
        all.push(driver.draw_fault_at_large());
    }
    all
}

fn missing(all: &[&'static str], drawn: impl Iterator<Item = &'static str>) -> BTreeSet<&'static str> {
    let drawn: BTreeSet<&str> = drawn.collect();
    all.iter().copied().filter(|name| !drawn.contains(name)).collect()
}

#[test]
fn every_kind_of_fault_is_drawn_or_has_a_reason_not_to_be() {
    let drawn = drawn();
    let excused: BTreeSet<&str> = DRAWN_ELSEWHERE.iter().map(|(name, _)| *name).collect();
    assert_eq!(missing(FAULTS, drawn.iter().map(fault_name)), excused);
}

#[test]
fn every_kind_of_each_fault_of_calls_answers_and_leaders_is_drawn() {
    let drawn = drawn();
    let calls =
        || drawn.iter().filter_map(|fault| if let Fault::NextCall(to, with) = fault { Some((to, with)) } else { None });
    assert_eq!(missing(CALL_FAULTS, calls().map(|(_, with)| call_fault_name(with))), BTreeSet::new());
    assert_eq!(missing(TARGETS, calls().map(|(to, _)| target_name(to))), BTreeSet::new());
    let leaders = drawn.iter().filter_map(|fault| if let Fault::ChangeLeader(old) = fault { Some(old) } else { None });
    assert_eq!(missing(OLD_LEADERS, leaders.map(old_leader_name)), BTreeSet::new());
    let answers =
        drawn.iter().filter_map(|fault| if let Fault::NextAnswer(_, with) = fault { Some(with) } else { None });
    assert_eq!(missing(ANSWER_FAULTS, answers.map(answer_fault_name)), BTreeSet::new());
}
