//! The EC2 adapter against the sandbox: pages, throttles, unknown ids, answers that are none.

use std::net::SocketAddr;
use std::time::Duration;

use attachd::controller::command::Ec2Call;
use attachd::ec2::Ec2Client;
use attachd::model::device::DeviceName;
use attachd::model::ids::{AwsVolumeId, InstanceId, InstanceType};
use attachd::model::outcome::{Answer, CallResult, Ec2Refusal, Refusal};
use attachd::model::volume::{
    AttachmentState, CheckStatus, InstanceState, InstanceStatusReading, VolumeReading, VolumeState, VolumeStatusReading,
};
use attachd::sandbox::{Sandbox, SandboxOptions};
use attachd::sim::ec2::{Ec2Action, Ec2Fault, Ec2Options, LostEffect, Throttling};
use tokio::time::Instant;

use crate::local_ec2::{JSON, client_of, request, start_sandbox};

struct World {
    sandbox: Sandbox,
    address: SocketAddr,
    client: Ec2Client,
    volumes: Vec<AwsVolumeId>,
    instances: Vec<InstanceId>,
}

/// A fast EC2 with instances and volumes in it.
async fn world(throttling: Throttling, volumes: u32) -> World {
    let ec2 = Ec2Options { throttling, ..Ec2Options::default().faster(100.0) };
    let options = SandboxOptions { ec2, instances: 2, volumes, ..SandboxOptions::default() };
    let (sandbox, address) = start_sandbox(options).await;
    let (volumes, instances) = sandbox.with_model(|model, _| {
        let volumes = model.volumes().map(|volume| volume.id().clone()).collect();
        (volumes, model.instances().map(|instance| instance.id().clone()).collect())
    });
    World { client: client_of(address).await, sandbox, address, volumes, instances }
}

impl World {
    fn attach(&self, instance: usize) -> Ec2Call {
        Ec2Call::AttachVolume {
            volume: self.volumes[0].clone(),
            instance: self.instances[instance].clone(),
            device: DeviceName::new("/dev/xvdba"),
            card: None,
        }
    }

    fn detach(&self, instance: usize) -> Ec2Call {
        Ec2Call::DetachVolume {
            volume: self.volumes[0].clone(),
            instance: self.instances[instance].clone(),
            device: DeviceName::new("/dev/xvdba"),
        }
    }

    fn inject(&self, fault: Ec2Fault) {
        self.sandbox.with_model(|model, _| model.inject(fault));
    }

    async fn inject_on_the_wire(&self, fault: &str) {
        assert_eq!(request(self.address, "POST", "/sandbox/faults", JSON, fault).await.0, 204, "{fault}");
    }

    async fn inject_checks(&self, instance: &InstanceId, status: &str) {
        let checks = format!(r#"{{"instance": "{instance}", "status": "{status}"}}"#);
        assert_eq!(request(self.address, "POST", "/sandbox/checks", JSON, &checks).await.0, 204, "{checks}");
    }

    async fn refusal(&self, call: &Ec2Call) -> Ec2Refusal {
        match self.client.call(call).await {
            CallResult::Refused(Refusal::Ec2 { meaning, .. }) => meaning,
            other => panic!("{call:?} was not refused: {other:?}"),
        }
    }

    /// Every page of a read.
    async fn read(&self, volumes: &[AwsVolumeId]) -> (Vec<VolumeReading>, usize) {
        let (mut read, mut pages, mut next_token) = (Vec::new(), 0, None);
        loop {
            let call = Ec2Call::DescribeVolumes { volumes: volumes.to_vec(), next_token };
            match self.client.call(&call).await {
                CallResult::Done(Answer::Volumes { volumes, next_token: next }) => {
                    read.extend(volumes);
                    pages += 1;
                    next_token = next;
                }
                other => panic!("no page: {other:?}"),
            }
            if next_token.is_none() {
                return (read, pages);
            }
        }
    }

    async fn read_until(&self, state: Option<AttachmentState>) -> VolumeReading {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let (mut read, _) = self.read(&self.volumes[..1]).await;
            let volume = read.remove(0);
            if volume.attachments.first().map(|attachment| attachment.state.clone()) == state {
                return volume;
            }
            assert!(Instant::now() < end, "not {state:?}: {volume:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn is_uncertain(result: &CallResult) -> bool {
    matches!(result, CallResult::Uncertain(_))
}

#[tokio::test]
async fn a_volume_moves_and_every_state_is_read() {
    let world = world(Throttling::Off, 3).await;
    assert_eq!(world.client.call(&world.attach(0)).await, CallResult::Done(Answer::Accepted));
    let volume = world.read_until(Some(AttachmentState::Attached)).await;
    let attachment = &volume.attachments[0];
    assert_eq!((&volume.state, volume.zone.as_str()), (&VolumeState::InUse, "us-east-1a"));
    assert_eq!(attachment.instance.as_ref(), Some(&world.instances[0]));
    assert_eq!(attachment.device, Some(DeviceName::new("/dev/xvdba")));
    let truth = world.sandbox.with_model(|model, _| model.volume(&volume.id).unwrap().attachments()[0].clone());
    assert_eq!(attachment.attach_time, Some(truth.attach_time));

    assert_eq!(world.refusal(&world.attach(1)).await, Ec2Refusal::VolumeInUse);
    assert_eq!(world.refusal(&world.detach(1)).await, Ec2Refusal::AttachmentNotFound);
    assert_eq!(world.client.call(&world.detach(0)).await, CallResult::Done(Answer::Accepted));
    assert_eq!(world.read_until(None).await.state, VolumeState::Available);
    assert_eq!(world.refusal(&world.detach(0)).await, Ec2Refusal::IncorrectState);
}

#[tokio::test]
async fn pages_are_asked_for_one_by_one_and_unknown_ids_are_left_out() {
    let world = world(Throttling::Off, 150).await;
    world.inject(Ec2Fault::EmptyPages(2));
    let mut asked = world.volumes.clone();
    asked.push(AwsVolumeId::parse("vol-0000000000000ffff").unwrap());
    let (mut read, pages) = world.read(&asked).await;
    read.sort_by(|a, b| a.id.cmp(&b.id));
    let ids: Vec<AwsVolumeId> = read.into_iter().map(|volume| volume.id).collect();
    assert_eq!((ids, pages), (world.volumes.clone(), 3));

    let call = Ec2Call::DescribeInstances { instances: world.instances.clone(), next_token: None };
    let CallResult::Done(Answer::Instances { instances, .. }) = world.client.call(&call).await else {
        panic!("no instances");
    };
    assert_eq!(instances.len(), 2);
    assert_eq!(instances[0].mappings[0].device, DeviceName::new("/dev/xvda"));
    let garbage = Ec2Call::DescribeVolumes { volumes: asked, next_token: Some("garbage".to_owned()) };
    assert_eq!(world.refusal(&garbage).await, Ec2Refusal::NotPossible);
    let types = Ec2Call::DescribeInstanceTypes { types: vec![InstanceType::new("c8gn.48xlarge")] };
    let CallResult::Done(Answer::InstanceTypes(types)) = world.client.call(&types).await else { panic!("no types") };
    assert_eq!(types[0].ebs_cards, 2);
}

#[tokio::test]
async fn a_throttle_is_a_throttle_and_nothing_is_sent_twice() {
    let world = world(Throttling::AWS, 1).await;
    let mut throttled = 0;
    for _ in 0..55 {
        throttled += u32::from(world.client.call(&world.detach(0)).await == CallResult::Throttled);
    }
    assert!((1..=5).contains(&throttled), "{throttled} of 55 with a burst of 50");
    let counts = world.sandbox.with_model(|model, _| model.counts()[&Ec2Action::DetachVolume]);
    assert_eq!(counts.refused + counts.throttled, 55, "one request a call");
    for _ in 0..60 {
        assert!(
            matches!(
                world.client.call(&Ec2Call::DescribeVolumes { volumes: world.volumes.clone(), next_token: None }).await,
                CallResult::Done(_)
            ),
            "bulk reads draw from the bucket of 100"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_none_leaves_the_outcome_open() {
    let world = world(Throttling::Off, 1).await;
    for fault in [
        r#"{"fault": "html", "action": "AttachVolume", "status": 500, "count": 1}"#,
        r#"{"fault": "html", "action": "AttachVolume", "status": 400, "count": 1}"#,
        r#"{"fault": "html", "action": "AttachVolume", "status": 200, "count": 1}"#,
        r#"{"fault": "refuse", "action": "AttachVolume", "code": "InternalError", "message": "", "count": 1}"#,
    ] {
        world.inject_on_the_wire(fault).await;
        let result = world.client.call(&world.attach(0)).await;
        assert!(is_uncertain(&result), "{fault}: {result:?}");
    }
    // The first of them was carried out all the same.
    world.read_until(Some(AttachmentState::Attached)).await;
    let html = r#"{"fault": "html", "action": "DescribeVolumes", "status": 200, "count": 1}"#;
    world.inject_on_the_wire(html).await;
    let call = Ec2Call::DescribeVolumes { volumes: world.volumes.clone(), next_token: None };
    assert!(is_uncertain(&world.client.call(&call).await));
}

/// The SDK takes the beginning of an answer for the whole: what is not on it would read as gone, free, initialized.
#[tokio::test]
async fn an_answer_that_was_cut_short_is_none() {
    let world = world(Throttling::Off, 40).await;
    world.client.call(&world.attach(0)).await;
    world.read_until(Some(AttachmentState::Attached)).await;
    let reads = [
        Ec2Call::DescribeVolumes { volumes: world.volumes.clone(), next_token: None },
        Ec2Call::DescribeInstances { instances: world.instances.clone(), next_token: None },
        Ec2Call::DescribeInstanceStatus { instances: world.instances.clone(), next_token: None },
        Ec2Call::DescribeVolumeStatus { volumes: world.volumes.clone(), next_token: None },
    ];
    for (call, action) in
        reads.iter().zip(["DescribeVolumes", "DescribeInstances", "DescribeInstanceStatus", "DescribeVolumeStatus"])
    {
        for percent in (0..100).step_by(3) {
            let fault = format!(r#"{{"fault": "truncate", "action": "{action}", "percent": {percent}, "count": 1}}"#);
            world.inject_on_the_wire(&fault).await;
            let result = world.client.call(call).await;
            assert!(is_uncertain(&result), "{action}, {percent} %: {result:?}");
        }
        assert!(matches!(world.client.call(call).await, CallResult::Done(_)), "{action}, whole again");
    }
}

#[tokio::test]
async fn status_checks_are_read_of_running_instances_alone() {
    let world = world(Throttling::Off, 1).await;
    let [first, second] = [&world.instances[0], &world.instances[1]];
    world.inject_checks(first, "impaired").await;
    let call = Ec2Call::DescribeInstanceStatus { instances: world.instances.clone(), next_token: None };
    let read = async || match world.client.call(&call).await {
        CallResult::Done(Answer::InstanceStatuses { mut statuses, next_token: None }) => {
            statuses.sort_by(|a, b| a.id.cmp(&b.id));
            statuses
        }
        other => panic!("no statuses: {other:?}"),
    };
    let checked = |id: &InstanceId, check: CheckStatus| InstanceStatusReading {
        id: id.clone(),
        state: InstanceState::Running,
        system: check.clone(),
        instance: check,
    };
    assert_eq!(read().await, [checked(first, CheckStatus::Impaired), checked(second, CheckStatus::Ok)]);
    world.sandbox.with_model(|model, now| model.stop(now, first).expect("stop"));
    assert_eq!(read().await, [checked(second, CheckStatus::Ok)], "checks run while the instance does");

    let unknown = InstanceId::parse("i-0000000000000ffff").unwrap();
    let call = Ec2Call::DescribeInstanceStatus { instances: vec![second.clone(), unknown], next_token: None };
    assert_eq!(world.refusal(&call).await, Ec2Refusal::InstanceNotFound, "one unknown id fails the call");
    let html = r#"{"fault": "html", "action": "DescribeInstanceStatus", "status": 500, "count": 1}"#;
    world.inject_on_the_wire(html).await;
    assert!(is_uncertain(&world.client.call(&call).await));
}

#[tokio::test]
async fn a_volume_is_initializing_or_it_is_not() {
    let world = world(Throttling::Off, 2).await;
    let initializing = format!(r#"{{"volume": "{}", "initializing": true}}"#, world.volumes[0]);
    let answer = request(world.address, "POST", "/sandbox/initializing", JSON, &initializing).await;
    assert_eq!(answer.0, 204, "{answer:?}");
    let call = Ec2Call::DescribeVolumeStatus { volumes: world.volumes.clone(), next_token: None };
    let CallResult::Done(Answer::VolumeStatuses { mut statuses, next_token: None }) = world.client.call(&call).await
    else {
        panic!("no statuses");
    };
    statuses.sort_by(|a, b| a.id.cmp(&b.id));
    let status = |n: usize, initializing| VolumeStatusReading { id: world.volumes[n].clone(), initializing };
    assert_eq!(statuses, [status(0, true), status(1, false)]);

    let unknown = AwsVolumeId::parse("vol-0000000000000ffff").unwrap();
    let call = Ec2Call::DescribeVolumeStatus { volumes: vec![world.volumes[0].clone(), unknown], next_token: None };
    assert_eq!(world.refusal(&call).await, Ec2Refusal::VolumeNotFound, "one unknown id fails the call");
    let html = r#"{"fault": "html", "action": "DescribeVolumeStatus", "status": 500, "count": 1}"#;
    world.inject_on_the_wire(html).await;
    assert!(is_uncertain(&world.client.call(&call).await));
}

#[tokio::test]
async fn what_comes_too_late_or_finds_nobody_is_not_sent() {
    let world = world(Throttling::Off, 1).await;
    let past = Instant::now() - Duration::from_millis(1);
    assert_eq!(world.client.call_until(&world.attach(0), Some(past)).await, CallResult::NotSent);
    let later = Instant::now() + Duration::from_secs(5);
    assert!(world.sandbox.with_model(|model, _| model.counts().is_empty()), "nothing arrived");
    assert_eq!(world.client.call_until(&world.attach(0), Some(later)).await, CallResult::Done(Answer::Accepted));

    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    assert_eq!(client_of(address).await.call(&world.detach(0)).await, CallResult::NotSent);
}

#[tokio::test]
async fn a_call_without_an_answer_ends_after_ten_seconds_and_may_have_been_carried_out() {
    let world = world(Throttling::Off, 1).await;
    let lost = |effect| Ec2Fault::LoseAnswer { action: Ec2Action::AttachVolume, effect, count: 1 };
    world.inject(lost(LostEffect::Applied));
    let began = Instant::now();
    let result = world.client.call(&world.attach(0)).await;
    let took = began.elapsed();
    assert!(is_uncertain(&result), "{result:?}");
    assert!((Duration::from_secs(9)..Duration::from_secs(13)).contains(&took), "{took:?}");
    world.read_until(Some(AttachmentState::Attached)).await;
    let counts = world.sandbox.with_model(|model, _| model.counts()[&Ec2Action::AttachVolume]);
    assert_eq!(counts.unanswered, 1, "sent once");
}
