use std::time::Duration;

use super::*;
use crate::model::outcome::{Ec2Refusal, Refusal};
use crate::model::time::Wall;
use crate::model::volume::AttachmentState;

fn at(secs: u64) -> Now {
    Now { monotonic: Monotonic::ZERO, wall: Wall::from_millis(1_700_000_000_400) }.plus(Duration::from_secs(secs))
}

fn volume(n: u32) -> AwsVolumeId {
    AwsVolumeId::parse(&format!("vol-{n:017x}")).unwrap()
}

fn instance(n: u32) -> InstanceId {
    InstanceId::parse(&format!("i-{n:017x}")).unwrap()
}

fn zone() -> Zone {
    Zone::new("us-east-1a")
}

fn device(letter: char) -> DeviceName {
    DeviceName::new(format!("/dev/xvdb{letter}"))
}

/// Volumes 1–3 and instances 1–2 in one zone, latencies of exactly 3 s.
fn model_with(options: Ec2Options) -> Ec2Model {
    let mut model = Ec2Model::new(options, 7);
    for n in 1..=3 {
        model.add_available_volume(at(0), volume(n), zone(), false);
    }
    for n in 1..=2 {
        model.add_running_instance(at(0), instance(n), InstanceType::new("m5.large"), zone());
    }
    model
}

fn options() -> Ec2Options {
    let three = Span::fixed(Duration::from_secs(3));
    Ec2Options { attaching: three, detaching: three, ..Ec2Options::default() }
}

fn model() -> Ec2Model {
    model_with(options())
}

fn attach(v: u32, i: u32, letter: char) -> Ec2Call {
    Ec2Call::AttachVolume { volume: volume(v), instance: instance(i), device: device(letter), card: None }
}

fn detach(v: u32, i: u32, letter: char) -> Ec2Call {
    Ec2Call::DetachVolume { volume: volume(v), instance: instance(i), device: device(letter) }
}

fn accepted(result: CallResult) {
    assert_eq!(result, CallResult::Done(Answer::Accepted));
}

fn refused(result: CallResult) -> Ec2Refusal {
    match result {
        CallResult::Refused(Refusal::Ec2 { meaning, .. }) => meaning,
        other => panic!("not refused: {other:?}"),
    }
}

fn state(model: &Ec2Model, v: u32, i: u32) -> Option<AttachmentState> {
    model.volume(&volume(v)).unwrap().attachment(&instance(i)).map(|attachment| attachment.state.clone())
}

#[test]
fn attach_and_detach_take_their_time_and_leave_a_log() {
    let mut model = model();
    let leader = Caller::Leader(crate::controller::event::Term(4));
    accepted(model.call_as(at(10), &leader, &attach(1, 1, 'a')));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attaching));
    assert_eq!(model.next_change(), Some(at(13).monotonic));
    model.advance(at(13));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached));
    let attachment = model.volume(&volume(1)).unwrap().attachment(&instance(1)).unwrap().clone();
    assert_eq!(attachment.attach_time, Wall::from_millis(1_700_000_010_000), "whole seconds of EC2's clock");
    accepted(model.call_as(at(20), &leader, &detach(1, 1, 'a')));
    model.advance(at(23));
    assert_eq!(state(&model, 1, 1), None);
    assert_eq!(*model.volume(&volume(1)).unwrap().state(), VolumeState::Available);
    let ended = model.take_ended();
    assert_eq!(ended.len(), 1);
    assert_eq!(
        (ended[0].attachment.generation, &ended[0].cause),
        (attachment.generation, &EndCause::Detached { by: leader })
    );
    assert_eq!(model.take_touched().len(), 3, "set up and moved");
}
