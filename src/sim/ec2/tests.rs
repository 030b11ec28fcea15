//! The EC2 model alone, fault by fault.

mod answers;
mod machines;

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

#[test]
fn an_exclusive_volume_has_one_holder_until_it_is_gone() {
    let mut model = model();
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    for secs in [0, 1, 5] {
        assert_eq!(refused(model.call(at(secs), &attach(1, 2, 'a'))), Ec2Refusal::VolumeInUse);
        assert_eq!(refused(model.call(at(secs), &attach(1, 1, 'b'))), Ec2Refusal::VolumeInUse);
    }
    accepted(model.call(at(6), &detach(1, 1, 'a')));
    assert_eq!(refused(model.call(at(8), &attach(1, 2, 'a'))), Ec2Refusal::VolumeInUse, "detaching still holds it");
    accepted(model.call(at(9), &attach(1, 2, 'a')));
    let generations: Vec<u64> = model.volume(&volume(1)).unwrap().attachments().iter().map(|a| a.generation).collect();
    assert_eq!(generations, [2]);
}

#[test]
fn a_detach_names_an_attachment_that_is_there() {
    let mut model = model();
    assert_eq!(refused(model.call(at(0), &detach(1, 1, 'a'))), Ec2Refusal::IncorrectState, "available");
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    assert_eq!(refused(model.call(at(4), &detach(1, 2, 'a'))), Ec2Refusal::AttachmentNotFound);
    assert_eq!(refused(model.call(at(4), &detach(1, 1, 'b'))), Ec2Refusal::AttachmentNotFound, "another device");
    assert_eq!(refused(model.call(at(4), &detach(9, 1, 'b'))), Ec2Refusal::VolumeNotFound);
    assert_eq!(refused(model.call(at(4), &detach(1, 9, 'b'))), Ec2Refusal::InstanceNotFound);
    accepted(model.call(at(4), &detach(1, 1, 'a')));
    accepted(model.call(at(5), &detach(1, 1, 'a')));
    model.advance(at(7));
    assert_eq!(state(&model, 1, 1), None, "a repeated call does not prolong it");

    let mut lax = model_with(Ec2Options { wrong_device: WrongDevice::Ignored, ..options() });
    accepted(lax.call(at(0), &attach(1, 1, 'a')));
    accepted(lax.call(at(4), &detach(1, 1, 'b')));
}

#[test]
fn device_names_collide_by_slot_and_with_what_the_image_hides() {
    let mut model = model();
    model.set_hidden_names(&instance(1), [DeviceName::new("/dev/sdf")].into());
    let mut named = |v: u32, name: &str| {
        let call = Ec2Call::AttachVolume {
            volume: volume(v),
            instance: instance(1),
            device: DeviceName::new(name),
            card: None,
        };
        model.call(at(0), &call)
    };
    for taken in ["/dev/xvdf", "sdf", "/dev/sda1", "/dev/xvda"] {
        assert_eq!(refused(named(1, taken)), Ec2Refusal::DeviceInUse, "{taken}");
    }
    for bad in ["/dev/xvddy", "/dev/nvme1n1", "/dev/sdB", "/dev/sdb16", "", "/dev/xvdea"] {
        assert_eq!(refused(named(1, bad)), Ec2Refusal::NotPossible, "{bad}");
    }
    accepted(named(1, "/dev/xvdg"));
    assert_eq!(refused(named(2, "/dev/sdg")), Ec2Refusal::DeviceInUse);
    accepted(named(2, "/dev/xvddx"));
}

#[test]
fn every_offered_name_is_a_device_name() {
    let mut model = model_with(Ec2Options { throttling: Throttling::Off, ..options() });
    let host = instance(3);
    model.add_running_instance(at(0), host.clone(), InstanceType::new("m7i.48xlarge"), zone());
    let mut slots = BTreeSet::new();
    for (n, name) in (1_000..).zip(crate::model::device::device_names()) {
        if slots.insert(name.slot().to_owned()) {
            model.add_available_volume(at(0), volume(n), zone(), false);
            accepted(
                model
                    .attach_volume(at(0), &Caller::Unnamed, &volume(n), &host, &name, None)
                    .map_or_else(|error| error.to_result(), |()| CallResult::Done(Answer::Accepted)),
            );
        }
    }
    assert!(slots.len() > 90);
}

#[test]
fn zones_states_and_unknown_ids_are_refused() {
    let mut model = model();
    model.add_running_instance(at(0), instance(3), InstanceType::new("m5.large"), Zone::new("us-east-1b"));
    assert_eq!(refused(model.call(at(0), &attach(1, 3, 'a'))), Ec2Refusal::ZoneMismatch);
    assert_eq!(refused(model.call(at(0), &attach(9, 1, 'a'))), Ec2Refusal::VolumeNotFound);
    assert_eq!(refused(model.call(at(0), &attach(1, 9, 'a'))), Ec2Refusal::InstanceNotFound);
    let fresh = model.create_volume(at(0), zone(), false);
    let pending = model.run_instance(at(0), InstanceType::new("m5.large"), zone());
    let call = |volume: &AwsVolumeId, instance: &InstanceId| Ec2Call::AttachVolume {
        volume: volume.clone(),
        instance: instance.clone(),
        device: device('a'),
        card: None,
    };
    assert_eq!(refused(model.call(at(0), &call(&fresh, &instance(1)))), Ec2Refusal::IncorrectState, "creating");
    assert_eq!(refused(model.call(at(0), &call(&volume(1), &pending))), Ec2Refusal::IncorrectState, "pending");
    accepted(model.call(at(20), &call(&fresh, &pending)));
    assert!(model.delete_volume(at(20), &fresh).is_err(), "in use");
    model.delete_volume(at(20), &volume(1)).unwrap();
    assert_eq!(refused(model.call(at(20), &attach(1, 1, 'a'))), Ec2Refusal::IncorrectState, "deleting");
    assert_eq!(refused(model.call(at(30), &attach(1, 1, 'a'))), Ec2Refusal::VolumeNotFound);
}

#[test]
fn an_instance_takes_what_its_type_allows() {
    let types = [(InstanceType::new("m5.large"), TypeLimits { attachments: 3, cards: 1 })].into();
    let mut model = model_with(Ec2Options { types, ..options() });
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    accepted(model.call(at(0), &attach(2, 1, 'b')));
    assert_eq!(refused(model.call(at(0), &attach(3, 1, 'c'))), Ec2Refusal::AttachmentLimit, "the root counts");
    accepted(model.call(at(4), &detach(1, 1, 'a')));
    assert_eq!(refused(model.call(at(5), &attach(3, 1, 'c'))), Ec2Refusal::AttachmentLimit, "detaching holds the slot");
    accepted(model.call(at(7), &attach(3, 1, 'c')));
}

#[test]
fn cards_share_the_slots_evenly() {
    let types = [(InstanceType::new("m5.large"), TypeLimits { attachments: 4, cards: 2 })].into();
    let mut model = model_with(Ec2Options { types, ..options() });
    let on = |v: u32, letter: char, card: Option<u32>| Ec2Call::AttachVolume {
        volume: volume(v),
        instance: instance(1),
        device: device(letter),
        card,
    };
    accepted(model.call(at(0), &on(1, 'a', None)));
    assert_eq!(refused(model.call(at(0), &on(2, 'b', Some(0)))), Ec2Refusal::AttachmentLimit);
    accepted(model.call(at(0), &on(2, 'b', Some(1))));
    assert_eq!(refused(model.call(at(0), &on(3, 'c', Some(2)))), Ec2Refusal::NotPossible);
    let call = Ec2Call::DescribeInstanceTypes { types: vec![InstanceType::new("m5.large")] };
    let CallResult::Done(Answer::InstanceTypes(read)) = model.call(at(0), &call) else { panic!("no answer") };
    assert_eq!(read[0].ebs_cards, 2);
}

#[test]
fn a_multi_attach_volume_has_many_holders_each_detached_by_name() {
    let mut model = model();
    let shared = volume(8);
    model.add_available_volume(at(0), shared.clone(), zone(), true);
    accepted(model.call(at(0), &attach(8, 1, 'a')));
    accepted(model.call(at(0), &attach(8, 2, 'a')));
    assert_eq!(refused(model.call(at(0), &attach(8, 2, 'b'))), Ec2Refusal::VolumeInUse, "one mapping per instance");
    assert!(model.detach_volume(at(4), &Caller::Person, &shared, None, None).is_err());
    accepted(model.call(at(4), &detach(8, 1, 'a')));
    model.advance(at(8));
    assert_eq!((state(&model, 8, 1), state(&model, 8, 2)), (None, Some(AttachmentState::Attached)));
    assert_eq!(*model.volume(&shared).unwrap().state(), VolumeState::InUse);
    for n in 10..25 {
        model.add_running_instance(at(8), instance(n), InstanceType::new("m5.large"), zone());
        accepted(model.call(at(8), &attach(8, n, 'a')));
    }
    assert_eq!(refused(model.call(at(8), &attach(8, 1, 'a'))), Ec2Refusal::AttachmentLimit, "16 instances");
}

#[test]
fn a_volume_the_guest_holds_stays_busy_until_it_lets_go() {
    let mut model = model();
    for (v, letter) in [(1, 'a'), (2, 'b')] {
        accepted(model.call(at(0), &attach(v, 1, letter)));
        model.set_guest_holds(at(4), &instance(1), &volume(v), true);
        accepted(model.call(at(5), &detach(v, 1, letter)));
    }
    model.advance(at(3600));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Busy));
    assert_eq!(refused(model.call(at(3600), &attach(1, 2, 'a'))), Ec2Refusal::VolumeInUse);
    model.set_guest_holds(at(3600), &instance(1), &volume(1), false);
    model.advance(at(3602));
    assert_eq!((state(&model, 1, 1), state(&model, 2, 1)), (None, Some(AttachmentState::Busy)));
    model.reboot(at(3602), &instance(1)).unwrap();
    model.advance(at(3604));
    assert_eq!(state(&model, 2, 1), None, "a reboot lets go of everything");
}

#[test]
fn a_terminated_instance_gives_its_volumes_back_and_is_forgotten_after_an_hour() {
    let shutting_down = Span::fixed(Duration::from_secs(60));
    let mut model = model_with(Ec2Options { shutting_down, freed_while_shutting_down: 0, ..options() });
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    model.set_guest_holds(at(4), &instance(1), &volume(1), true);
    model.terminate(at(10), &instance(1)).unwrap();
    assert_eq!(refused(model.call(at(11), &attach(2, 1, 'b'))), Ec2Refusal::IncorrectState);
    model.advance(at(69));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached), "shutting-down holds what it has");
    model.advance(at(70));
    assert_eq!(*model.volume(&volume(1)).unwrap().state(), VolumeState::Available, "no DeleteOnTermination");
    assert_eq!(model.ended().next().unwrap().cause, EndCause::InstanceTerminated);
    let shown = instances(&mut model, at(70 + 3599), &[1, 2]);
    assert_eq!(shown.iter().filter(|i| i.state == InstanceState::Terminated && i.mappings.is_empty()).count(), 1);
    assert_eq!(instances(&mut model, at(70 + 3600), &[1, 2]).len(), 1);
}

#[test]
fn a_stopped_instance_keeps_its_volumes_and_takes_more() {
    let mut model = model();
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    model.stop(at(10), &instance(1)).unwrap();
    assert_eq!(refused(model.call(at(11), &attach(2, 1, 'b'))), Ec2Refusal::IncorrectState, "stopping");
    model.advance(at(60));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached));
    accepted(model.call(at(60), &attach(2, 1, 'b')));
    model.start(at(70), &instance(1)).unwrap();
    model.advance(at(90));
    assert_eq!(*model.instance(&instance(1)).unwrap().state(), InstanceState::Running);
}

#[test]
fn mutating_calls_share_a_bucket_and_describes_have_theirs() {
    let mut model = model();
    let refusals = (0..60).filter(|_| model.call(at(0), &detach(1, 1, 'a')) == CallResult::Throttled).count();
    assert_eq!(refusals, 10, "burst of 50");
    assert_eq!(model.call(at(0), &attach(1, 1, 'a')), CallResult::Throttled, "shared by the actions");
    assert_eq!(volumes(&mut model, at(0), &[1]).len(), 1, "reads have their own");
    let through = (0..20).filter(|_| model.call(at(2), &detach(1, 1, 'a')) != CallResult::Throttled).count();
    assert_eq!(through, 10, "five a second");
    let counts = model.counts()[&Ec2Action::DetachVolume];
    assert_eq!((counts.refused, counts.throttled), (60, 20));
    let whole = Query { selection: Selection::All, keep: None, max_results: None, next_token: None };
    let unfiltered = (0..200).filter(|_| model.describe_volumes(at(2), &whole).is_ok()).count();
    assert_eq!(unfiltered, 50, "neither filtered nor paged");
}

fn page(model: &mut Ec2Model, now: Now, ids: &[u32], token: Option<String>) -> (Vec<VolumeReading>, Option<String>) {
    let call = Ec2Call::DescribeVolumes { volumes: ids.iter().map(|n| volume(*n)).collect(), next_token: token };
    match model.call(now, &call) {
        CallResult::Done(Answer::Volumes { volumes, next_token }) => (volumes, next_token),
        other => panic!("no page: {other:?}"),
    }
}

fn volumes(model: &mut Ec2Model, now: Now, ids: &[u32]) -> Vec<VolumeReading> {
    page(model, now, ids, None).0
}

fn instances(model: &mut Ec2Model, now: Now, ids: &[u32]) -> Vec<InstanceReading> {
    let call = Ec2Call::DescribeInstances { instances: ids.iter().map(|n| instance(*n)).collect(), next_token: None };
    match model.call(now, &call) {
        CallResult::Done(Answer::Instances { instances, .. }) => instances,
        other => panic!("no page: {other:?}"),
    }
}

#[test]
fn pages_cover_everything_once_and_a_filter_leaves_out_what_is_unknown() {
    let mut model = model_with(Ec2Options { page_size: 5, ..options() });
    for n in 4..=12 {
        model.add_available_volume(at(0), volume(n), zone(), false);
    }
    model.inject(Ec2Fault::EmptyPages(1));
    let ids: Vec<u32> = (1..=12).chain([77, 78]).collect();
    let (mut seen, mut pages, mut token) = (Vec::new(), 0, None);
    loop {
        let (volumes, next) = page(&mut model, at(0), &ids, token);
        seen.extend(volumes.into_iter().map(|volume| volume.id));
        pages += 1;
        token = next;
        if token.is_none() {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, (1..=12).map(volume).collect::<Vec<_>>());
    assert_eq!(pages, 4, "an empty one, and 5 + 5 + 2");

    let query = |selection, max_results, next_token| Query { selection, keep: None, max_results, next_token };
    let named = [volume(1), volume(77)];
    let code = |result: Result<Page<VolumeReading>, Ec2Error>| match result {
        Err(Ec2Error::Code { code, .. }) => code,
        other => panic!("not refused: {other:?}"),
    };
    let missing = model.describe_volumes(at(0), &query(Selection::Named(&named), None, None));
    assert_eq!(code(missing), "InvalidVolume.NotFound", "one unknown id fails the request");
    let both = model.describe_volumes(at(0), &query(Selection::Named(&named), Some(50), None));
    assert_eq!(code(both), "InvalidParameterCombination");
    let few = model.describe_volumes(at(0), &query(Selection::All, Some(4), None));
    assert_eq!(code(few), "InvalidParameterValue");
    let token = model.describe_volumes(at(0), &query(Selection::All, Some(5), Some("garbage")));
    assert_eq!(code(token), "InvalidPaginationToken");
    let many: Vec<AwsVolumeId> = (0..201).map(volume).collect();
    let over = model.describe_volumes(at(0), &query(Selection::Filtered(&many), Some(500), None));
    assert_eq!(code(over), "FilterLimitExceeded");
}

#[test]
fn stale_reads_show_the_past_go_back_in_time_and_end_with_the_window() {
    let mut model = model_with(Ec2Options { throttling: Throttling::Off, ..options() });
    model.inject(Ec2Fault::StaleReads(Staleness { window: Duration::from_secs(10), percent: 60 }));
    accepted(model.call(at(100), &attach(1, 1, 'a')));
    let mut attached = Vec::new();
    for _ in 0..200 {
        let read = volumes(&mut model, at(104), &[1]);
        attached.push(read[0].attachments.first().map(|a| a.state.clone()));
    }
    assert!(attached.contains(&None) && attached.contains(&Some(AttachmentState::Attaching)));
    let back = attached.windows(2).any(|two| two[0] == Some(AttachmentState::Attached) && two[1].is_none());
    assert!(back, "shown attached, then not yet attached");
    for _ in 0..50 {
        let read = volumes(&mut model, at(113), &[1]);
        assert_eq!(read[0].attachments[0].state, AttachmentState::Attached, "the change is older than the window");
    }
    let mappings: BTreeSet<usize> = (0..100).map(|_| instances(&mut model, at(104), &[1])[0].mappings.len()).collect();
    assert_eq!(mappings.len(), 1, "time does not run backwards in the model");
    model.heal();
    accepted(model.call(at(120), &detach(1, 1, 'a')));
    assert!((0..50).all(|_| volumes(&mut model, at(123), &[1])[0].attachments.is_empty()));
}

#[test]
fn a_new_instance_is_partly_visible() {
    let partly_visible = Span::fixed(Duration::from_secs(30));
    let pending = Span::fixed(Duration::from_secs(1));
    let mut model = model_with(Ec2Options { partly_visible, pending, throttling: Throttling::Off, ..options() });
    let fresh = model.run_instance(at(0), InstanceType::new("m5.large"), zone());
    let call = Ec2Call::DescribeInstances { instances: vec![fresh.clone()], next_token: None };
    let sizes = |model: &mut Ec2Model, now| -> BTreeSet<usize> {
        let shown = |result| match result {
            CallResult::Done(Answer::Instances { instances, .. }) => instances.len(),
            other => panic!("no page: {other:?}"),
        };
        (0..64).map(|_| shown(model.call(now, &call))).collect()
    };
    assert_eq!(sizes(&mut model, at(10)), [0, 1].into());
    let attach = Ec2Call::AttachVolume { volume: volume(1), instance: fresh.clone(), device: device('a'), card: None };
    assert_eq!(refused(model.call(at(10), &attach)), Ec2Refusal::InstanceNotFound);
    assert_eq!(sizes(&mut model, at(30)), [1].into());
    accepted(model.call(at(30), &attach));
}

#[test]
fn a_stuck_name_hangs_in_attaching_until_it_is_detached() {
    let mut model = model();
    model.inject(Ec2Fault::StuckDevice { instance: Some(instance(1)), device: DeviceName::new("/dev/sdba") });
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    accepted(model.call(at(0), &attach(2, 2, 'a')));
    model.advance(at(600));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attaching));
    assert_eq!(state(&model, 2, 2), Some(AttachmentState::Attached), "the name is stuck on one instance only");
    accepted(model.call(at(600), &detach(1, 1, 'a')));
    accepted(model.call(at(603), &attach(1, 1, 'b')));
    model.advance(at(606));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached));
}

#[test]
fn a_name_used_again_too_soon_hangs() {
    let mut model = model_with(Ec2Options { reused_device_hangs: Duration::from_secs(60), ..options() });
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    accepted(model.call(at(4), &detach(1, 1, 'a')));
    accepted(model.call(at(20), &attach(2, 1, 'a')));
    accepted(model.call(at(20), &attach(3, 1, 'b')));
    model.advance(at(600));
    assert_eq!(state(&model, 2, 1), Some(AttachmentState::Attaching));
    assert_eq!(state(&model, 3, 1), Some(AttachmentState::Attached));
}

#[test]
fn a_dropped_attach_ends_available_with_no_error() {
    let mut model = model();
    model.inject(Ec2Fault::DropNextAttach { volume: Some(volume(1)) });
    accepted(model.call(at(0), &attach(2, 1, 'b')));
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    model.advance(at(3));
    assert_eq!(*model.volume(&volume(1)).unwrap().state(), VolumeState::Available);
    assert_eq!(state(&model, 2, 1), Some(AttachmentState::Attached));
    assert_eq!(model.ended().next().unwrap().cause, EndCause::Dropped);
    accepted(model.call(at(3), &attach(1, 1, 'a')));
    model.advance(at(6));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached), "only the next one is dropped");
}

#[test]
fn refusals_and_lost_answers_are_counted_down() {
    let mut model = model();
    model.inject(Ec2Fault::Refuse {
        action: Ec2Action::AttachVolume,
        code: "UnauthorizedOperation".into(),
        message: "no".into(),
        count: 2,
    });
    assert_eq!(refused(model.call(at(0), &attach(1, 1, 'a'))), Ec2Refusal::Unauthorized);
    assert_eq!(volumes(&mut model, at(0), &[1]).len(), 1, "another action");
    assert_eq!(refused(model.call(at(0), &attach(1, 1, 'a'))), Ec2Refusal::Unauthorized);
    let lose = |effect| Ec2Fault::LoseAnswer { action: Ec2Action::AttachVolume, effect, count: 1 };
    model.inject(lose(LostEffect::NotApplied));
    model.inject(lose(LostEffect::Applied));
    assert!(matches!(model.call(at(0), &attach(1, 1, 'a')), CallResult::Uncertain(_)));
    assert_eq!(state(&model, 1, 1), None);
    assert!(matches!(model.call(at(0), &attach(1, 1, 'a')), CallResult::Uncertain(_)));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attaching));
    model.inject(Ec2Fault::Refuse {
        action: Ec2Action::DetachVolume,
        code: "InternalError".into(),
        message: "oops".into(),
        count: 1,
    });
    assert!(matches!(model.call(at(4), &detach(1, 1, 'a')), CallResult::Uncertain(_)));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached));
}

#[test]
fn slow_calls_take_longer_until_healed() {
    let mut model = model();
    model.inject(Ec2Fault::SlowAttach(Duration::from_secs(40)));
    model.inject(Ec2Fault::SlowDetach(Duration::from_secs(60)));
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    model.advance(at(42));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attaching));
    model.advance(at(43));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached));
    accepted(model.call(at(50), &detach(1, 1, 'a')));
    model.heal();
    model.advance(at(112));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Detaching), "what is under way stays slow");
    accepted(model.call(at(113), &attach(1, 1, 'a')));
    model.advance(at(116));
    assert_eq!(state(&model, 1, 1), Some(AttachmentState::Attached));
}

#[test]
fn answers_can_show_what_no_client_knows() {
    let mut model = model();
    accepted(model.call(at(0), &attach(1, 1, 'a')));
    accepted(model.call(at(0), &attach(2, 1, 'b')));
    model.inject(Ec2Fault::HideVolume(volume(3)));
    model.inject(Ec2Fault::HideInstance(instance(2)));
    model.inject(Ec2Fault::ShowVolumeState(volume(1), "migrating".into()));
    model.inject(Ec2Fault::ShowAttachmentState(volume(1), "reattaching".into()));
    model.inject(Ec2Fault::ShowManagedAttachment(volume(1)));
    model.inject(Ec2Fault::ShowNoAttachments(volume(2)));
    let mut read = volumes(&mut model, at(4), &[1, 2, 3]);
    read.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(read.len(), 2, "one is left out");
    assert_eq!(read[0].state, VolumeState::Unknown("migrating".into()));
    assert_eq!(read[0].attachments[0].state, AttachmentState::Unknown("reattaching".into()));
    assert_eq!((read[0].attachments[1].instance.clone(), read[0].attachments[1].device.clone()), (None, None));
    assert_eq!((&read[1].state, read[1].attachments.len()), (&VolumeState::InUse, 0));
    assert_eq!(instances(&mut model, at(4), &[1, 2]).len(), 1);
    model.heal();
    assert_eq!(volumes(&mut model, at(4), &[1, 2, 3]).len(), 3);
}

#[test]
fn people_attach_and_detach_and_the_log_names_them() {
    let mut model = model();
    model.attach_by_hand(at(0), &volume(1), &instance(1), &DeviceName::new("/dev/sdf")).unwrap();
    model.advance(at(3));
    assert_eq!(model.volume(&volume(1)).unwrap().attachments()[0].by, Caller::Person);
    model.detach_by_hand(at(4), &volume(1), &instance(1)).unwrap();
    model.advance(at(7));
    assert_eq!(model.take_ended()[0].cause, EndCause::Detached { by: Caller::Person });
    assert!(model.counts().is_empty(), "no call of the API's clients");
}

#[test]
fn the_root_device_is_a_mapping_and_cannot_be_detached() {
    let mut model = model();
    let mappings = instances(&mut model, at(0), &[1])[0].mappings.clone();
    assert_eq!(mappings[0].device, DeviceName::new("/dev/xvda"));
    let root = mappings[0].volume.clone().unwrap();
    let call = Ec2Call::DetachVolume { volume: root, instance: instance(1), device: DeviceName::new("/dev/xvda") };
    assert_eq!(refused(model.call(at(0), &call)), Ec2Refusal::NotPossible);
}

#[test]
fn the_clock_of_ec2_may_differ_and_seeds_repeat() {
    let mut ahead = model_with(Ec2Options { clock_skew_millis: 5_000, ..options() });
    accepted(ahead.call(at(0), &attach(1, 1, 'a')));
    assert_eq!(ahead.volume(&volume(1)).unwrap().attachments()[0].attach_time, Wall::from_millis(1_700_000_005_000));

    let run = |seed| {
        let mut model = Ec2Model::new(Ec2Options::default(), seed);
        let host = model.run_instance(at(0), InstanceType::new("m5.large"), zone());
        let data = model.create_volume(at(0), zone(), false);
        let mut changes = vec![model.next_change()];
        model.advance(at(60));
        model.attach_by_hand(at(60), &data, &host, &device('a')).unwrap();
        changes.push(model.next_change());
        changes
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
