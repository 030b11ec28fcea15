//! Machines that hang, boot, shut down and are gone, and what people pull from under them.

use super::*;
use crate::model::volume::CheckStatus;

/// The checks of one instance; `None`: it is not in the answer.
fn checks(model: &mut Ec2Model, now: Now, i: u32) -> Option<(CheckStatus, CheckStatus)> {
    let call = Ec2Call::DescribeInstanceStatus { instances: vec![instance(i)], next_token: None };
    match model.call(now, &call) {
        CallResult::Done(Answer::InstanceStatuses { statuses, .. }) => {
            statuses.into_iter().next().map(|status| (status.system, status.instance))
        }
        other => panic!("not answered: {other:?}"),
    }
}

fn minute() -> Ec2Options {
    let minute = Span::fixed(Duration::from_secs(60));
    Ec2Options { check_fails: minute, check_initializes: minute, shutting_down: minute, stopping: minute, ..options() }
}

#[test]
fn a_guest_that_hangs_fails_its_check_after_a_while_and_holds_on() {
    let mut model = model_with(minute());
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    model.set_guest_holds(at(5), &instance(1), &volume(1), true);
    model.guest_hangs(at(10), &instance(1));
    assert_eq!(checks(&mut model, at(69), 1), Some((CheckStatus::Ok, CheckStatus::Ok)));
    assert_eq!(checks(&mut model, at(70), 1), Some((CheckStatus::Ok, CheckStatus::Impaired)));
    assert_eq!(checks(&mut model, at(70), 2), Some((CheckStatus::Ok, CheckStatus::Ok)), "another machine");
    assert_eq!(*model.instance(&instance(1)).unwrap().state(), InstanceState::Running);
    accepted(model.call(at(80), &detach(1, 1, 'a')));
    model.advance(at(500));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Busy), "nobody lets go of it");
    model.reboot(at(500), &instance(1)).unwrap();
    assert_eq!(checks(&mut model, at(501), 1), Some((CheckStatus::Ok, CheckStatus::Initializing)));
    assert_eq!(checks(&mut model, at(560), 1), Some((CheckStatus::Ok, CheckStatus::Ok)));
    assert_eq!(state(&model, 1, 1), None);
}

#[test]
fn a_reboot_in_time_leaves_nothing_of_a_hang() {
    let mut model = model_with(minute());
    model.guest_hangs(at(0), &instance(1));
    model.reboot(at(50), &instance(1)).unwrap();
    assert_eq!(checks(&mut model, at(61), 1), Some((CheckStatus::Ok, CheckStatus::Initializing)));
    assert_eq!(checks(&mut model, at(600), 1), Some((CheckStatus::Ok, CheckStatus::Ok)));
}

#[test]
fn what_does_not_run_has_no_checks_and_an_unknown_id_fails_the_call() {
    let mut model = model_with(minute());
    model.stop(at(0), &instance(1)).unwrap();
    model.terminate(at(0), &instance(2)).unwrap();
    assert_eq!((checks(&mut model, at(1), 1), checks(&mut model, at(1), 2)), (None, None));
    let call = Ec2Call::DescribeInstanceStatus { instances: vec![instance(1), instance(9)], next_token: None };
    assert_eq!(refused(model.call(at(1), &call)), Ec2Refusal::InstanceNotFound);
    model.start(at(61), &instance(1)).unwrap();
    model.advance(at(100));
    assert_eq!(checks(&mut model, at(100), 1), Some((CheckStatus::Ok, CheckStatus::Initializing)));
}

#[test]
fn checks_can_be_set_and_a_hang_before_does_not_come_through() {
    let mut model = model_with(minute());
    model.guest_hangs(at(0), &instance(1));
    model.set_checks(&instance(1), CheckStatus::InsufficientData);
    let set = (CheckStatus::InsufficientData, CheckStatus::InsufficientData);
    assert_eq!(checks(&mut model, at(600), 1), Some(set));
}

#[test]
fn volumes_leave_an_instance_that_shuts_down_once_its_guest_is_off_or_with_its_end() {
    for (percent, early) in [(0, false), (100, true)] {
        let mut model = model_with(Ec2Options { freed_while_shutting_down: percent, ..minute() });
        accepted(model.call(at(0), &attach(1, 1, 'a')));
        model.advance(at(5));
        model.set_guest_holds(at(5), &instance(1), &volume(1), true);
        model.terminate(at(10), &instance(1)).unwrap();
        let off = (10..=70).find(|secs| {
            model.advance(at(*secs));
            model.instance(&instance(1)).unwrap().is_off()
        });
        let off = off.expect("the guest goes off before the instance is terminated");
        assert!((25..=55).contains(&off), "{off}");
        assert_eq!(*model.instance(&instance(1)).unwrap().state(), InstanceState::ShuttingDown);
        assert!(!model.instance(&instance(1)).unwrap().holds(&volume(1)), "nothing runs on it");
        let shown = if early { AttachmentState::Detaching } else { AttachmentState::Attached };
        assert_eq!(state(&model, 1, 1), Some(shown));
        model.advance(at(69));
        assert_eq!(state(&model, 1, 1).is_none(), early, "before its end");
        model.advance(at(70));
        assert_eq!(*model.instance(&instance(1)).unwrap().state(), InstanceState::Terminated);
        assert_eq!(state(&model, 1, 1), None);
        let ended = model.take_ended();
        assert_eq!((ended.len(), &ended[0].cause), (1, &EndCause::InstanceTerminated));
    }
}

#[test]
fn a_person_who_forces_a_detach_pulls_the_device_from_under_the_guest() {
    let mut model = model();
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    accepted(model.call(at(0), &attach(2, 1, 'b')));
    model.advance(at(4));
    for v in [1, 2] {
        model.set_guest_holds(at(4), &instance(1), &volume(v), true);
    }
    model.force_detach_by_hand(at(5), &volume(1), &instance(1)).unwrap();
    model.detach_by_hand(at(5), &volume(2), &instance(1)).unwrap();
    model.advance(at(9));
    assert_eq!((state(&model, 1, 1), state(&model, 2, 1)), (None, Some(AttachmentState::Busy)));
    assert_eq!(model.take_ended()[0].cause, EndCause::Detached { by: Caller::Person });
    model.force_detach_by_hand(at(20), &volume(2), &instance(1)).unwrap();
    model.advance(at(22));
    assert_eq!(state(&model, 2, 1), None, "also when it was busy");
}

#[test]
fn volumes_carry_tags_and_say_whether_they_are_being_initialized() {
    let mut model = model();
    model.tag_volume(&volume(1), "kubernetes.io/cluster/blue", "owned");
    model.set_initializing(&volume(2), true);
    let read = volumes(&mut model, at(0), &[1]);
    assert_eq!(read[0].tags.get("kubernetes.io/cluster/blue").map(|value| value.as_str()), Some("owned"));
    let mut status = |named: Vec<AwsVolumeId>| {
        model.call(at(0), &Ec2Call::DescribeVolumeStatus { volumes: named, next_token: None })
    };
    let CallResult::Done(Answer::VolumeStatuses { mut statuses, .. }) = status(vec![volume(1), volume(2)]) else {
        panic!("not answered");
    };
    statuses.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(statuses.iter().map(|status| status.initializing).collect::<Vec<_>>(), [false, true]);
    assert_eq!(refused(status(vec![volume(1), volume(9)])), Ec2Refusal::VolumeNotFound);
}
