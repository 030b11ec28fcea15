//! The calls that read, in bulk, one page each: the core asks for the next page by a command of its own.
//!
//! Volumes and instances are named in a filter, not as ids: an id that is gone is left out instead of failing the whole
//! request, and filtered, paged calls draw from EC2's larger bucket.

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::Filter;
use smol_str::SmolStr;

use super::sending::Sending;
use super::translate;
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType};
use crate::model::outcome::{Answer, CallResult};

/// `MaxResults`: no filter takes more than 200 values, so that one page holds them all.
const PAGE_SIZE: i32 = 500;

/// One page of DescribeVolumes.
pub(super) async fn describe_volumes(
    client: &Client,
    sending: Sending,
    volumes: &[AwsVolumeId],
    next_token: Option<&str>,
) -> CallResult {
    let request = client
        .describe_volumes()
        .filters(filter("volume-id", volumes.iter().map(AwsVolumeId::text)))
        .max_results(PAGE_SIZE)
        .set_next_token(next_token.map(str::to_owned));
    match request.customize().interceptor(sending.clone()).send().await {
        Ok(page) => {
            let volumes = page.volumes().iter().filter_map(translate::volume).collect();
            CallResult::Done(Answer::Volumes { volumes, next_token: translate::token(page.next_token()) })
        }
        Err(error) => sending.failure(&error),
    }
}

/// One page of DescribeInstances.
pub(super) async fn describe_instances(
    client: &Client,
    sending: Sending,
    instances: &[InstanceId],
    next_token: Option<&str>,
) -> CallResult {
    let request = client
        .describe_instances()
        .filters(filter("instance-id", instances.iter().map(InstanceId::text)))
        .max_results(PAGE_SIZE)
        .set_next_token(next_token.map(str::to_owned));
    match request.customize().interceptor(sending.clone()).send().await {
        Ok(page) => {
            let all = page.reservations().iter().flat_map(|reservation| reservation.instances());
            let instances = all.filter_map(translate::instance).collect();
            CallResult::Done(Answer::Instances { instances, next_token: translate::token(page.next_token()) })
        }
        Err(error) => sending.failure(&error),
    }
}

/// DescribeInstanceTypes; its answer for at most 100 names comes in one page.
pub(super) async fn describe_instance_types(client: &Client, sending: Sending, types: &[InstanceType]) -> CallResult {
    let names = types.iter().map(|name| name.as_str().into()).collect();
    let request = client.describe_instance_types().set_instance_types(Some(names));
    match request.customize().interceptor(sending.clone()).send().await {
        Ok(answer) if translate::token(answer.next_token()).is_some() => {
            CallResult::Uncertain(SmolStr::new_static("not all of the answer came"))
        }
        Ok(answer) => {
            let types = answer.instance_types().iter().filter_map(translate::instance_type).collect();
            CallResult::Done(Answer::InstanceTypes(types))
        }
        Err(error) => sending.failure(&error),
    }
}

/// One page of DescribeInstanceStatus. It has no filter for ids, and takes no MaxResults beside them.
pub(super) async fn describe_instance_status(
    client: &Client,
    sending: Sending,
    instances: &[InstanceId],
    next_token: Option<&str>,
) -> CallResult {
    let ids = instances.iter().map(|id| id.to_string()).collect();
    let request =
        client.describe_instance_status().set_instance_ids(Some(ids)).set_next_token(next_token.map(str::to_owned));
    match request.customize().interceptor(sending.clone()).send().await {
        Ok(page) => {
            let statuses = page.instance_statuses().iter().filter_map(translate::instance_status).collect();
            CallResult::Done(Answer::InstanceStatuses { statuses, next_token: translate::token(page.next_token()) })
        }
        Err(error) => sending.failure(&error),
    }
}

/// One page of DescribeVolumeStatus, likewise.
pub(super) async fn describe_volume_status(
    client: &Client,
    sending: Sending,
    volumes: &[AwsVolumeId],
    next_token: Option<&str>,
) -> CallResult {
    let ids = volumes.iter().map(|id| id.to_string()).collect();
    let request =
        client.describe_volume_status().set_volume_ids(Some(ids)).set_next_token(next_token.map(str::to_owned));
    match request.customize().interceptor(sending.clone()).send().await {
        Ok(page) => {
            let statuses = page.volume_statuses().iter().filter_map(translate::volume_status).collect();
            CallResult::Done(Answer::VolumeStatuses { statuses, next_token: translate::token(page.next_token()) })
        }
        Err(error) => sending.failure(&error),
    }
}

fn filter(name: &str, values: impl Iterator<Item = SmolStr>) -> Filter {
    Filter::builder().name(name).set_values(Some(values.map(String::from).collect())).build()
}
