//! Answers that are wrong, incomplete, or no answers at all.

use super::*;

fn three(model: &mut Ec2Model, now: Now) -> CallResult {
    let asked = (1..=3).map(volume).collect();
    model.call(now, &Ec2Call::DescribeVolumes { volumes: asked, next_token: None })
}

fn shown(result: &CallResult) -> Option<usize> {
    match result {
        CallResult::Done(Answer::Volumes { volumes, next_token: None }) => Some(volumes.len()),
        _ => None,
    }
}

#[test]
fn an_answer_can_leave_one_out_or_lose_a_page_and_nothing_tells() {
    let mut model = model();
    let action = Ec2Action::DescribeVolumes;
    model.inject(Ec2Fault::SpoilAnswers { action, with: AnswerFault::LeavesOneOut, count: 1 });
    model.inject(Ec2Fault::SpoilAnswers { action, with: AnswerFault::Half, count: 1 });
    assert_eq!(instances(&mut model, at(0), &[1, 2]).len(), 2, "another action");
    let answers: Vec<Option<usize>> = (0..3).map(|_| shown(&three(&mut model, at(0)))).collect();
    assert_eq!(answers, [Some(2), Some(1), Some(3)]);
}

#[test]
fn a_page_of_html_says_nothing_and_what_it_answers_was_done() {
    let mut model = model();
    for action in [Ec2Action::DescribeVolumes, Ec2Action::AttachVolume] {
        model.inject(Ec2Fault::SpoilAnswers { action, with: AnswerFault::Unreadable, count: 1 });
    }
    assert!(matches!(three(&mut model, at(0)), CallResult::Uncertain(_)));
    assert_eq!(shown(&three(&mut model, at(0))), Some(3));
    assert!(matches!(model.call(at(1), &attach(1, 1, 'a')), CallResult::Uncertain(_)));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attaching));
    assert_eq!(model.counts()[&Ec2Action::AttachVolume].unanswered, 1);
}

#[test]
fn of_pages_that_fail_by_chance_some_are_throttled_some_unreadable_and_some_halved() {
    let mut model = model();
    model.inject(Ec2Fault::FailPages { per_million: 200_000 });
    let answers: Vec<CallResult> = (0..1000).map(|second| three(&mut model, at(second))).collect();
    let throttled = answers.iter().filter(|answer| **answer == CallResult::Throttled).count();
    let unreadable = answers.iter().filter(|answer| matches!(answer, CallResult::Uncertain(_))).count();
    let halved = answers.iter().filter(|answer| shown(answer) == Some(1)).count();
    assert!(
        [throttled, unreadable, halved].iter().all(|count| (40..=100).contains(count)),
        "{throttled} {unreadable} {halved}"
    );
    assert_eq!(instances(&mut model, at(1000), &[1, 2]).len(), 2, "another action");
    model.end(&Ec2Fault::FailPages { per_million: 200_000 });
    assert!((1001..1100).all(|second| shown(&three(&mut model, at(second))) == Some(3)));
}

#[test]
fn in_an_outage_nothing_is_carried_out_until_it_ends() {
    let mut model = model();
    model.inject(Ec2Fault::Outage);
    assert!(matches!(three(&mut model, at(0)), CallResult::Uncertain(_)));
    assert!(matches!(model.call(at(1), &attach(1, 1, 'a')), CallResult::Uncertain(_)));
    assert_eq!(state(&model, 1, 1), None);
    model.end(&Ec2Fault::Outage);
    assert_eq!(shown(&three(&mut model, at(2))), Some(3));
}

#[test]
fn in_another_region_nothing_of_this_one_is_there() {
    let mut model = model();
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    model.inject(Ec2Fault::OtherRegion);
    assert_eq!(shown(&three(&mut model, at(5))), Some(0));
    assert_eq!(instances(&mut model, at(5), &[1, 2]).len(), 0);
    assert_eq!(refused(model.call(at(5), &detach(1, 1, 'a'))), Ec2Refusal::InstanceNotFound);
    assert_eq!(refused(model.call(at(5), &attach(2, 1, 'b'))), Ec2Refusal::VolumeNotFound);
    let status = Ec2Call::DescribeInstanceStatus { instances: vec![instance(1)], next_token: None };
    assert_eq!(refused(model.call(at(5), &status)), Ec2Refusal::InstanceNotFound);
    model.end(&Ec2Fault::OtherRegion);
    assert_eq!((shown(&three(&mut model, at(6))), state(&model, 1, 1)), (Some(3), Some(AttachmentState::Attached)));
}

#[test]
fn an_instance_can_be_in_half_of_the_answers_or_in_none() {
    let mut model = model();
    model.inject(Ec2Fault::FlickerInstance(instance(1)));
    model.inject(Ec2Fault::HideInstance(instance(2)));
    let seen: Vec<usize> = (0..40).map(|_| instances(&mut model, at(0), &[1, 2]).len()).collect();
    assert!(seen.contains(&0) && seen.contains(&1) && !seen.contains(&2), "{seen:?}");
    model.end(&Ec2Fault::FlickerInstance(instance(1)));
    assert_eq!(instances(&mut model, at(0), &[1, 2]).len(), 1, "the other is still hidden");
    model.end(&Ec2Fault::HideInstance(instance(2)));
    assert_eq!(instances(&mut model, at(0), &[1, 2]).len(), 2);
}
