//! The EC2 adapter against moto, an EC2 that nobody here wrote: its requests are understood, its answers are read.
//!
//! moto checks almost nothing that EC2 checks, so this says something about the protocol and nothing about behaviour.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use attachd::controller::command::Ec2Call;
use attachd::ec2::Ec2Client;
use attachd::model::device::DeviceName;
use attachd::model::ids::{AwsVolumeId, InstanceId, InstanceType};
use attachd::model::outcome::{Answer, CallResult, Ec2Refusal, Refusal};
use attachd::model::volume::{AttachmentState, CheckStatus, InstanceState, VolumeReading, VolumeState};

use crate::leash::Leash;
use crate::local_ec2::{client_of, request};
use crate::python;

/// moto on a free port.
async fn start_moto() -> (Leash, SocketAddr) {
    let binaries = tokio::task::spawn_blocking(python::binaries).await.expect("moto");
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind to loopback");
    let address = free.local_addr().expect("a bound address");
    drop(free);
    let mut command = Command::new(binaries.join("moto_server"));
    command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto.log");
    let mut leash = Leash::start("moto_server", &command, log);
    let end = Instant::now() + Duration::from_secs(60);
    while tokio::net::TcpStream::connect(address).await.is_err() {
        leash.assert_running();
        assert!(Instant::now() < end, "moto does not listen");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    (leash, address)
}

/// One call of EC2's Query API that the adapter does not make; the ids that its answer names in `element`.
async fn set_up(address: SocketAddr, call: &str, element: &str) -> Vec<String> {
    // moto tells the service from the scope of the signature, which it does not check.
    let headers = "content-type: application/x-www-form-urlencoded\r\nauthorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/ec2/aws4_request, \
                  SignedHeaders=host, Signature=0";
    let (status, body) = request(address, "POST", "/", headers, &format!("{call}&Version=2016-11-15")).await;
    assert_eq!(status, 200, "{call}: {body}");
    let open = format!("<{element}>");
    body.split(&open).skip(1).filter_map(|rest| rest.split('<').next()).map(str::to_owned).collect()
}

async fn read(client: &Ec2Client, volume: &AwsVolumeId) -> Vec<VolumeReading> {
    let call = Ec2Call::DescribeVolumes { volumes: vec![volume.clone()], next_token: None };
    match client.call(&call).await {
        CallResult::Done(Answer::Volumes { volumes, .. }) => volumes,
        other => panic!("no volumes: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moto_understands_every_call_and_its_answers_are_read() {
    let (_moto, address) = start_moto().await;
    let client = client_of(address).await;
    let run = "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=m5.large";
    let instances = set_up(address, run, "instanceId").await;
    let instance = InstanceId::parse(&instances[0]).expect("an instance id");

    let call = Ec2Call::DescribeInstances { instances: vec![instance.clone()], next_token: None };
    let CallResult::Done(Answer::Instances { instances, next_token: None }) = client.call(&call).await else {
        panic!("no instances");
    };
    let described = &instances[0];
    assert_eq!((&described.id, &described.state), (&instance, &InstanceState::Running));
    assert_eq!(described.instance_type, InstanceType::new("m5.large"));
    assert!(!described.mappings.is_empty(), "the root volume");

    let call = Ec2Call::DescribeInstanceStatus { instances: vec![instance.clone()], next_token: None };
    let CallResult::Done(Answer::InstanceStatuses { statuses, .. }) = client.call(&call).await else {
        panic!("no instance statuses");
    };
    assert_eq!((&statuses[0].id, &statuses[0].state), (&instance, &InstanceState::Running));
    assert_eq!((&statuses[0].system, &statuses[0].instance), (&CheckStatus::Ok, &CheckStatus::Ok));

    let create = format!("Action=CreateVolume&Size=8&AvailabilityZone={}", described.zone);
    let volume = AwsVolumeId::parse(&set_up(address, &create, "volumeId").await[0]).expect("a volume id");
    assert_eq!(read(&client, &volume).await[0].state, VolumeState::Available);

    // moto does not know this call. Its 500 says nothing about the volume.
    let call = Ec2Call::DescribeVolumeStatus { volumes: vec![volume.clone()], next_token: None };
    let result = client.call(&call).await;
    assert!(matches!(result, CallResult::Uncertain(_)), "{result:?}");

    let device = DeviceName::new("/dev/xvdba");
    let (of, on, at) = (volume.clone(), instance.clone(), device.clone());
    let attach = Ec2Call::AttachVolume { volume: of, instance: on, device: at, card: None };
    assert_eq!(client.call(&attach).await, CallResult::Done(Answer::Accepted));
    let attached = read(&client, &volume).await.remove(0);
    let attachment = &attached.attachments[0];
    assert_eq!((&attached.state, &attachment.state), (&VolumeState::InUse, &AttachmentState::Attached));
    assert_eq!((attachment.instance.as_ref(), attachment.device.as_ref()), (Some(&instance), Some(&device)));
    assert!(attachment.attach_time.is_some());

    let detach = Ec2Call::DetachVolume { volume: volume.clone(), instance: instance.clone(), device };
    assert_eq!(client.call(&detach).await, CallResult::Done(Answer::Accepted));
    let detached = read(&client, &volume).await.remove(0);
    assert_eq!((detached.state, detached.attachments.len()), (VolumeState::Available, 0));

    match client.call(&detach).await {
        CallResult::Refused(Refusal::Ec2 { meaning: Ec2Refusal::AttachmentNotFound, .. }) => {}
        other => panic!("detach of what is not attached: {other:?}"),
    }
    let missing = AwsVolumeId::parse("vol-0000000000000ffff").unwrap();
    assert_eq!(read(&client, &missing).await, [], "a filter leaves out what is unknown");
    let types = Ec2Call::DescribeInstanceTypes { types: vec![InstanceType::new("m5.large")] };
    let CallResult::Done(Answer::InstanceTypes(types)) = client.call(&types).await else { panic!("no types") };
    assert_eq!((types[0].instance_type.as_str(), types[0].ebs_cards), ("m5.large", 1));
}
