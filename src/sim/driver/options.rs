//! What a run is made of: settings, model options, latencies, leases, rates of chance faults.

use std::time::Duration;

use crate::controller::policy::{Policy, Settings};
use crate::sim::ec2::Ec2Options;
use crate::sim::kubelet::KubeletOptions;
use crate::sim::workload::ControlPlaneOptions;

/// Everything a run is made of. The same options make the same run.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Seed of all chance.
    pub seed: u64,
    /// Settings of the core.
    pub settings: Settings,
    /// The rules in force.
    pub policy: Policy,
    /// EC2.
    pub ec2: Ec2Options,
    /// Kubelets.
    pub kubelet: KubeletOptions,
    /// Control loops.
    pub control_plane: ControlPlaneOptions,
    /// Leases; `None`: one process leads for as long as it lives, without an end.
    pub lease: Option<LeaseOptions>,
    /// Latencies of calls and watches.
    pub latencies: Latencies,
    /// Faults that chance puts on calls.
    pub call_faults: CallFaultRates,
    /// Whether the timeline is kept.
    pub trace: bool,
}

impl DriverOptions {
    /// Everything as in production, no faults.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            settings: Settings::default(),
            policy: Policy::FULL,
            ec2: Ec2Options::default(),
            kubelet: KubeletOptions::default(),
            control_plane: ControlPlaneOptions::default(),
            lease: Some(LeaseOptions::default()),
            latencies: Latencies::default(),
            call_faults: CallFaultRates::default(),
            trace: false,
        }
    }
}

/// How leadership is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// How long a lease lasts from its renewal.
    pub duration: Duration,
    /// How often it is renewed.
    pub renew_every: Duration,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { duration: Duration::from_secs(30), renew_every: Duration::from_secs(5) }
    }
}

/// Latencies, each drawn evenly between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// From the decision to the socket.
    pub executor: (Duration, Duration),
    /// One way to EC2, and back.
    pub ec2: (Duration, Duration),
    /// One way to the API server, and back.
    pub api: (Duration, Duration),
    /// From a change to the watches of attachd.
    pub watch: (Duration, Duration),
}

impl Default for Latencies {
    fn default() -> Self {
        let millis = Duration::from_millis;
        Self {
            executor: (Duration::from_micros(50), millis(2)),
            ec2: (millis(25), millis(150)),
            api: (millis(1), millis(15)),
            watch: (millis(2), millis(30)),
        }
    }
}

/// Faults that chance puts on calls, in calls per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFaultRates {
    /// The request is lost.
    pub lose_request: u32,
    /// The reply is lost.
    pub lose_reply: u32,
    /// The effect comes late (up to W).
    pub apply_late: u32,
    /// The request lands twice.
    pub duplicate: u32,
    /// Refused for rate.
    pub throttle: u32,
    /// The answer is seconds late.
    pub slow: u32,
    /// The executor is seconds late.
    pub delay_send: u32,
}

impl CallFaultRates {
    /// Every one at that rate.
    pub fn all(per_million: u32) -> Self {
        Self {
            lose_request: per_million,
            lose_reply: per_million,
            apply_late: per_million,
            duplicate: per_million,
            throttle: per_million,
            slow: per_million,
            delay_send: per_million,
        }
    }
}
