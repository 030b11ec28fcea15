//! Cases OOB, STUCK, EC, SCALE and LIMIT that one volume can show: attaches that go wrong.

use attachd::controller::command::BudgetClass;
use attachd::model::device::DeviceName;
use attachd::model::ids::InstanceType;
use attachd::model::outcome::{Answer, CallResult};
use attachd::model::volume::{
    AttachmentReading, AttachmentState, BlockDeviceMapping, InstanceReading, InstanceState, VolumeReading, VolumeState,
};
use attachd::sim::ec2::Ec2Fault;

use super::desk::{Desk, Reply, Sent, ec2_says, s};
use super::short::{instance, volume, zone};

#[test]
fn oob_03_an_attach_that_succeeds_after_it_was_given_up_is_detached() {
    let mut desk = Desk::new();
    desk.answer("attach v1", Reply::Late(s(45)));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1", s(10));
    desk.run(s(12));
    desk.remove_pod("a");
    desk.run(s(20));
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(300));
    assert!(desk.is_attached("v1", "i2"), "{}", desk.story());
    assert!(desk.va("v1", "n1").is_none());
    desk.assert_count("detach v1 i1", 1);
}

#[test]
fn oob_04_of_fifty_attaches_the_late_ones_are_not_lost() {
    let mut desk = Desk::new();
    let volumes: Vec<String> = (1..=50).map(|v| format!("v{v}")).collect();
    for v in &volumes[1..] {
        desk.add_volume(v);
    }
    for v in &volumes[..11] {
        desk.answer(&format!("attach {v} "), Reply::Late(s(50)));
    }
    for v in &volumes {
        desk.add_pod(&format!("pod-{v}"), "n1", &[v]);
    }
    desk.run(s(30));
    desk.assert_count("attach v", 50);
    for v in &volumes {
        desk.remove_pod(&format!("pod-{v}"));
    }
    desk.run(s(600));
    for v in &volumes {
        assert!(desk.is_all_gone(v), "{v}");
    }
}

#[test]
fn oob_06_a_volume_held_by_a_persons_attachment_is_taken_when_the_person_lets_go() {
    let mut desk = Desk::new();
    desk.answer("attach v1", ec2_says("AttachmentLimitExceeded", "too many"));
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("attach-error v1 n2", s(10));
    desk.attach_by_hand("v1", "i1", "/dev/sdf");
    desk.run(s(300));
    assert!(desk.waits("v1", "n2").contains("i-01") && desk.waits("v1", "n2").contains("/dev/sdf"), "{}", desk.story());
    desk.assert_never("detach v1");
    desk.assert_count("attach v1", 1);
    desk.detach_by_hand("v1", "i1");
    desk.run_to("attach v1 i2", s(400));
    desk.run(s(30));
    let status = &desk.va("v1", "n2").unwrap().status;
    assert!(status.attached && status.attach_error.is_none(), "{status:?}");
}

#[test]
fn oob_09_an_attach_whose_answer_is_lost_or_says_that_it_is_there_already_succeeded() {
    let answers = [Reply::LostAnswer, ec2_says("VolumeInUse", "vol-01 is already attached to an instance")];
    for answer in answers {
        let refused = matches!(answer, Reply::Is(_));
        let mut desk = Desk::new();
        desk.answer("attach v1", answer);
        desk.add_pod("a", "n1", &["v1"]);
        desk.run_to("attach v1 i1 xvdaa", s(10));
        if refused {
            // An attempt before this one, made under way, had its effect.
            desk.attach_by_hand("v1", "i1", "/dev/xvdaa");
        }
        desk.run_to("attached v1 n1 xvdaa", s(20));
        desk.run(s(120));
        assert!(desk.is_attached("v1", "i1") && desk.lists("n1", "v1"), "{}", desk.story());
        desk.assert_count("attach v1", 1);
        desk.assert_never("event FailedAttachVolume");
        desk.assert_never("attach-error");
    }
}

#[test]
fn oob_10_an_attach_waits_while_ec2_shows_the_volume_detaching_and_follows_at_once() {
    let mut desk = Desk::using_v1();
    desk.ec2.inject(Ec2Fault::SlowDetach(s(20)));
    desk.end_pod("a", "n1");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("detach v1", s(20));
    let sent = desk.now.monotonic;
    desk.run_to("attach v1 i2", s(60));
    assert!(desk.is_free("v1"), "{}", desk.story());
    // 23 s of detaching, and a poll.
    assert!(desk.now.monotonic <= sent + s(27), "{}", desk.story());
}

#[test]
fn oob_10_one_refused_because_a_read_was_stale_is_tried_again_later_each_time() {
    let mut desk = Desk::new();
    for _ in 0..4 {
        desk.answer("attach v1", ec2_says("VolumeInUse", "vol-01 is already attached to an instance"));
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(120));
    let times = desk.times("attach v1");
    assert_eq!(times.len(), 5, "{}", desk.story());
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect();
    assert!(gaps.windows(2).all(|pair| pair[1] >= pair[0]), "{gaps:?}");
    assert!(desk.is_attached("v1", "i1"));
}

#[test]
fn stuck_03_a_slow_attach_whose_answer_is_lost_is_polled_for_and_not_repeated() {
    let mut desk = Desk::new();
    desk.ec2.inject(Ec2Fault::SlowAttach(s(38)));
    desk.answer("attach v1", Reply::LostAnswer);
    desk.add_pod("a", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("attach v1", s(10));
    let sent = desk.now.monotonic;
    desk.run_to("attached v1", s(60));
    assert!(desk.now.monotonic <= sent + s(45), "{}", desk.story());
    desk.run(s(60));
    desk.assert_count("attach v1", 1);
    desk.assert_never("event FailedAttachVolume");
    desk.assert_never("attach-error");
}

#[test]
fn stuck_05_busy_is_waited_out_with_a_growing_interval_and_the_end_is_seen_at_once() {
    let mut desk = Desk::using_v1();
    desk.ec2.set_guest_holds(desk.now, &instance("i1"), &volume("v1"), true);
    desk.end_pod("a", "n1");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(600));
    assert_eq!(desk.ec2_shows("v1"), ["i1 /dev/xvdaa busy"]);
    desk.assert_never("attach v1 i2");
    desk.assert_count("detach v1", 1);
    let is_poll = |sent: &&Sent| sent.text.starts_with("describe-volumes") && sent.command.class == BudgetClass::Poll;
    let polls: Vec<_> = desk.sent.iter().filter(is_poll).map(|sent| sent.at).collect();
    let gap = |at: usize| polls[at].saturating_since(polls[at - 1]);
    assert!(gap(polls.len() - 1) >= s(10) && gap(polls.len() - 1) <= s(20), "{}", desk.story());
    desk.ec2.set_guest_holds(desk.now, &instance("i1"), &volume("v1"), false);
    desk.run_to("attach v1 i2", s(25));
    desk.run(s(60));
    assert!(desk.is_attached("v1", "i2") && desk.va("v1", "n1").is_none());
}

#[test]
fn stuck_13_an_attach_that_came_to_nothing_is_sent_again() {
    let mut desk = Desk::new();
    desk.ec2.inject(Ec2Fault::DropNextAttach { volume: None });
    desk.add_pod("a", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_until(s(120), "listed", |desk| desk.lists("n1", "v1"));
    let times = desk.times("attach v1");
    assert_eq!(times.len(), 2, "{}", desk.story());
    // Consistent reads that show it free, and then the backoff of a failure.
    assert!(times[1] >= times[0] + s(5), "{times:?}");
}

#[test]
fn ec_01_a_volume_that_is_still_detaching_is_not_taken_for_attached() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.run_to("detach v1", s(20));
    desk.run(s(1));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("attach v1 i1", s(60));
    assert!(desk.is_free("v1"), "{}", desk.story());
    desk.run(s(30));
    assert!(desk.lists("n1", "v1") && desk.is_attached("v1", "i1"), "{}", desk.story());
    desk.assert_count("detach v1", 1);
}

#[test]
fn ec_03_reads_that_go_back_in_time_confirm_nothing() {
    let mut desk = Desk::using_v1();
    let old = desk.va("v1", "n1").unwrap().status.device_path.clone().unwrap();
    let old_time = desk.now.wall.truncated_to_seconds();
    desk.end_pod("a", "n1");
    desk.run(s(60));
    assert!(desk.is_all_gone("v1"));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run_to("attach v1 i1 xvdab", s(20));
    let reading = |attachments: Vec<(DeviceName, AttachmentState)>| {
        let attachments = attachments.into_iter().map(|(device, state)| AttachmentReading {
            instance: Some(instance("i1")),
            device: Some(device),
            state,
            attach_time: Some(old_time),
        });
        let attachments: Vec<_> = attachments.collect();
        let state = if attachments.is_empty() { VolumeState::Available } else { VolumeState::InUse };
        let volume = VolumeReading {
            id: volume("v1"),
            state,
            attachments,
            multi_attach_enabled: false,
            zone: zone(),
            tags: Default::default(),
        };
        Reply::Is(CallResult::Done(Answer::Volumes { volumes: vec![volume], next_token: None }))
    };
    desk.answer("describe-volumes", reading(vec![(old.clone(), AttachmentState::Attached)]));
    desk.answer("describe-volumes", reading(vec![]));
    desk.answer("describe-volumes", reading(vec![(old, AttachmentState::Attached)]));
    desk.run(s(60));
    assert_eq!(
        desk.va("v1", "n1").unwrap().status.device_path,
        Some(DeviceName::new("/dev/xvdab")),
        "{}",
        desk.story()
    );
    desk.assert_count("attached v1 n1", 2);
    desk.assert_count("attach v1 i1 xvdab", 1);
    desk.assert_never("event FailedAttachVolume");
}

/// DescribeInstances shows the instances running, each with `v1` as `/dev/xvdaa`, whatever is true.
fn instances_with_v1(instances: &[&str]) -> Reply {
    let mapping = BlockDeviceMapping { device: DeviceName::new("/dev/xvdaa"), volume: Some(volume("v1")), card: None };
    let reading = |i: &&str| InstanceReading {
        id: instance(i),
        state: InstanceState::Running,
        instance_type: InstanceType::new("m7i.48xlarge"),
        zone: zone(),
        mappings: vec![mapping.clone()],
    };
    let instances = instances.iter().map(reading).collect();
    Reply::Is(CallResult::Done(Answer::Instances { instances, next_token: None }))
}

#[test]
fn ec_04_a_new_leader_believes_the_volume_and_not_the_instance() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    desk.run_to("finish v1 n1", s(60));
    desk.run(s(1));
    desk.kill();
    desk.answer_all("describe-instances i1", instances_with_v1(&["i1"]));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.lead();
    desk.list_everything();
    let asked = desk.count("describe-instances i1");
    desk.run_to("attach v1 i1", s(5));
    assert!(desk.count("describe-instances i1") > asked && desk.is_free("v1"), "{}", desk.story());
    desk.run_to("attached v1 n1", s(10));
    desk.run(s(60));
    desk.assert_count("attach v1", 2);
}

#[test]
fn ec_07_what_an_instance_still_lists_keeps_the_volume_from_no_other() {
    let mut desk = Desk::using_v1();
    desk.answer_all("describe-instances i1,i2", instances_with_v1(&["i1", "i2"]));
    desk.answer_all("describe-instances i1", instances_with_v1(&["i1"]));
    desk.answer_all("describe-instances i2", instances_with_v1(&["i2"]));
    desk.end_pod("a", "n1");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("detach v1 i1", s(20));
    desk.run_until(s(5), "free", |desk| desk.ec2.volume(&volume("v1")).unwrap().attachments().is_empty());
    desk.run_to("attach v1 i2", s(5));
    desk.run_to("attached v1 n2", s(10));
    desk.run(s(60));
    assert!(desk.count("describe-instances") >= 1);
    desk.assert_count("attach v1 i2", 1);
    desk.assert_count("detach v1", 1);
}

#[test]
fn scale_13_a_pod_that_goes_before_its_attach_succeeded_waits_for_no_unmount() {
    let mut desk = Desk::new();
    for _ in 0..50 {
        desk.answer("attach v1", ec2_says("IncorrectState", "no"));
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(60));
    desk.remove_pod("a");
    let gone = desk.now.monotonic;
    desk.run_to("delete v1", s(3));
    desk.run_to("finish v1", s(60));
    let last = *desk.times("attach v1").last().unwrap();
    assert!(desk.now.monotonic >= last + s(30) && desk.now.monotonic <= gone + s(45), "{}", desk.story());
    desk.assert_never("detach v1");
    desk.assert_never("list n1");
}

#[test]
fn scale_15_a_volume_whose_detaches_were_all_refused_is_listed_again_when_it_is_wanted() {
    let mut desk = Desk::using_v1();
    desk.end_pod("a", "n1");
    for _ in 0..2 {
        desk.answer("detach v1", ec2_says("IncorrectState", "not now"));
    }
    desk.run_to("detach v1", s(20));
    desk.run(s(0));
    desk.add_pod("a2", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run(s(120));
    desk.assert_count("detach v1", 1);
    desk.assert_count("attach v1", 1);
    let va = desk.va("v1", "n1").unwrap();
    assert!(va.deleting.is_none() && va.status.attached && desk.lists("n1", "v1"), "{}", desk.story());
}

#[test]
fn scale_16_a_volume_that_is_wanted_again_before_anything_irreversible_is_listed_again() {
    for held in ["get-node n1", "list-pods n1"] {
        let mut desk = Desk::using_v1();
        desk.end_pod("a", "n1");
        desk.answer(held, Reply::Hold);
        desk.run_to(held, s(10));
        desk.add_pod("a2", "n1", &["v1"]);
        desk.run(s(1));
        desk.release_honestly(held);
        desk.in_use("n1", &["v1"]);
        desk.run_until(s(15), "listed", |desk| desk.lists("n1", "v1"));
        desk.run(s(120));
        desk.assert_never("delete v1");
        desk.assert_never("detach v1");
    }
}

#[test]
fn limit_06_a_full_instance_is_said_as_resource_exhausted() {
    let mut desk = Desk::new();
    for _ in 0..3 {
        desk.answer("attach v1", ec2_says("AttachmentLimitExceeded", "Volume limit of 26 exceeded"));
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(100));
    desk.assert_count("attach-error v1 n1 8", 1);
    let error = desk.va("v1", "n1").unwrap().status.attach_error.clone().unwrap();
    assert_eq!(error.code, Some(8));
    assert!(error.message.contains("AttachmentLimitExceeded"), "{error:?}");
    let times = desk.times("attach v1");
    assert!(times.windows(2).all(|pair| pair[1] >= pair[0] + s(15)), "slowly: {times:?}");
    desk.run(s(600));
    assert!(desk.va("v1", "n1").unwrap().status.attached, "{}", desk.story());
}
