//! The EC2 adapter: one [`Ec2Call`] in, one HTTP request out, one [`CallResult`] back.
//!
//! Flow: the daemon's executor starts a call at once; `call.rs` sends what changes, `poll.rs` what reads, `translate.rs`
//! turns the SDK's types into the model's. Owns the connection and the timeouts. Must never retry, queue, pace or
//! remember anything: that is the core's business, and AttachVolume and DetachVolume have no client token.

mod call;
mod poll;
mod sending;
mod translate;

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::timeout::TimeoutConfig;
use tokio::time::Instant;

use crate::controller::command::Ec2Call;
use crate::model::outcome::CallResult;
use sending::Sending;

/// How long one attempt may take, from its start to the last byte of the answer. Rule 7 counts with it: a call is dead
/// 60 s after this.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take to be made; the SDK's own default, stated because the rest is.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(3_100);
/// The attempt and what the SDK does before and after it.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(12);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum Ec2ConnectError {
    /// Nothing names a region.
    #[error(
        "no AWS region: set ec2.region, AWS_REGION, or a region in the AWS profile (on an EC2 instance the metadata service answers it)"
    )]
    NoRegion,
    /// `ec2.endpoint` is no URL.
    #[error("ec2.endpoint {given:?} is not an http:// or https:// URL")]
    BadEndpoint {
        /// As given.
        given: String,
    },
}

/// A client of one region's EC2.
#[derive(Clone, Debug)]
pub struct Ec2Client {
    client: Client,
}

impl Ec2Client {
    /// A client by the SDK's standard chain for credentials, region and endpoint; what is given here wins over it.
    /// Sends nothing to EC2 (finding the region may ask the metadata service).
    pub async fn connect(endpoint: Option<String>, region: Option<String>) -> Result<Self, Ec2ConnectError> {
        let mut loader = aws_config::defaults(BehaviorVersion::latest());
        if let Some(region) = region {
            loader = loader.region(Region::new(region));
        }
        Self::from_config(&loader.load().await, endpoint)
    }

    /// A client of a configuration that was loaded elsewhere; an endpoint given here wins over it.
    pub fn from_config(shared: &SdkConfig, endpoint: Option<String>) -> Result<Self, Ec2ConnectError> {
        if let Some(given) = endpoint.as_ref().filter(|given| !is_http_url(given)) {
            return Err(Ec2ConnectError::BadEndpoint { given: given.clone() });
        }
        if shared.region().is_none() {
            return Err(Ec2ConnectError::NoRegion);
        }
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .operation_timeout(OPERATION_TIMEOUT)
            .build();
        let mut config =
            aws_sdk_ec2::config::Builder::from(shared).retry_config(RetryConfig::disabled()).timeout_config(timeouts);
        // Only where it is set in attachd's own configuration: an endpoint set here would beat AWS_ENDPOINT_URL_EC2.
        if let Some(endpoint) = endpoint {
            config = config.endpoint_url(endpoint);
        }
        Ok(Self { client: Client::from_conf(config.build()) })
    }

    /// The region it asks.
    pub fn region(&self) -> Option<&str> {
        self.client.config().region().map(|region| region.as_ref())
    }

    /// One attempt.
    pub async fn call(&self, call: &Ec2Call) -> CallResult {
        self.call_until(call, None).await
    }

    /// One attempt that is not begun after `not_after`, compared when the request is about to go to the socket (finding
    /// credentials may have taken seconds): later it is [`CallResult::NotSent`].
    pub async fn call_until(&self, call: &Ec2Call, not_after: Option<Instant>) -> CallResult {
        let sending = Sending::new(not_after);
        match call {
            Ec2Call::AttachVolume { volume, instance, device, card } => {
                call::attach_volume(&self.client, sending, volume, instance, device, *card).await
            }
            Ec2Call::DetachVolume { volume, instance, device } => {
                call::detach_volume(&self.client, sending, volume, instance, device).await
            }
            Ec2Call::DescribeVolumes { volumes, next_token } => {
                poll::describe_volumes(&self.client, sending, volumes, next_token.as_deref()).await
            }
            Ec2Call::DescribeInstances { instances, next_token } => {
                poll::describe_instances(&self.client, sending, instances, next_token.as_deref()).await
            }
            Ec2Call::DescribeInstanceTypes { types } => {
                poll::describe_instance_types(&self.client, sending, types).await
            }
            Ec2Call::DescribeInstanceStatus { instances, next_token } => {
                poll::describe_instance_status(&self.client, sending, instances, next_token.as_deref()).await
            }
            Ec2Call::DescribeVolumeStatus { volumes, next_token } => {
                poll::describe_volume_status(&self.client, sending, volumes, next_token.as_deref()).await
            }
        }
    }
}

fn is_http_url(text: &str) -> bool {
    text.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|h| !h.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url() {
        for good in ["http://127.0.0.1:4566", "https://ec2.eu-central-1.amazonaws.com", "http://[::1]:1/"] {
            assert!(is_http_url(good), "{good}");
        }
        for bad in ["127.0.0.1:4566", "ftp://host", "http://", "localhost", ""] {
            assert!(!is_http_url(bad), "{bad}");
        }
    }
}
