//! The calls that change something.

use aws_sdk_ec2::Client;

use super::sending::Sending;
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId};
use crate::model::outcome::{Answer, CallResult};

/// AttachVolume.
pub(super) async fn attach_volume(
    client: &Client,
    sending: Sending,
    volume: &AwsVolumeId,
    instance: &InstanceId,
    device: &DeviceName,
    card: Option<u32>,
) -> CallResult {
    let request = client
        .attach_volume()
        .volume_id(volume.text())
        .instance_id(instance.text())
        .device(device.as_str())
        .set_ebs_card_index(card.and_then(|card| i32::try_from(card).ok()));
    match request.customize().interceptor(sending.clone()).send().await {
        Ok(_) => CallResult::Done(Answer::Accepted),
        Err(error) => sending.failure(&error),
    }
}

/// DetachVolume, always with instance and device, never with Force.
pub(super) async fn detach_volume(
    client: &Client,
    sending: Sending,
    volume: &AwsVolumeId,
    instance: &InstanceId,
    device: &DeviceName,
) -> CallResult {
    let request = client.detach_volume().volume_id(volume.text()).instance_id(instance.text()).device(device.as_str());
    match request.customize().interceptor(sending.clone()).send().await {
        Ok(_) => CallResult::Done(Answer::Accepted),
        Err(error) => sending.failure(&error),
    }
}
