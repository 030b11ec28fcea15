//! What is measured, under upstream's names where upstream has them.
//!
//! Flow: the executor reports each call, the loop reports its turns and what passes through it; `/metrics` encodes all of
//! it. Labels are closed sets, or names of CSI drivers: never a pod, a node or a volume.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::call_name::{CallName, result_name};
use super::clock::Clock;
use super::process_metrics::ProcessCollector;
use super::status_metrics::StatusCollector;
use crate::controller::event::Kind;
use crate::controller::status::Status;
use crate::model::outcome::CallResult;

/// Labels of a closed set.
type Labels<const N: usize> = [(&'static str, &'static str); N];
/// Labels one of which is the name of a CSI driver.
type DriverLabels = Vec<(&'static str, String)>;

/// Makes a histogram with fixed buckets.
#[derive(Clone, Copy, Debug)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Upstream's buckets of `storage_operation_duration_seconds`.
const OPERATION_BUCKETS: Buckets =
    Buckets(&[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0]);
/// From a fast answer of the API server to the attempt timeout.
const CALL_BUCKETS: Buckets = Buckets(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
/// A turn of the loop should take well under a millisecond at rest.
const LOOP_BUCKETS: Buckets = Buckets(&[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0]);

/// Every metric of the process. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    ec2_calls: Family<Labels<3>, Counter>,
    ec2_call_seconds: Family<Labels<1>, Histogram, Buckets>,
    api_calls: Family<Labels<4>, Counter>,
    api_call_seconds: Family<Labels<2>, Histogram, Buckets>,
    in_flight: Family<Labels<1>, Gauge>,
    events: Family<Labels<1>, Counter>,
    synced: Family<Labels<1>, Gauge>,
    lag_seconds: Histogram,
    turn_seconds: Histogram,
    operation_seconds: Family<DriverLabels, Histogram, Buckets>,
    status: StatusCollector,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// What an operation on an attachment came to, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationStatus {
    /// `success`
    Success,
    /// `fail-unknown`: upstream's only other value here.
    FailUnknown,
}

/// An operation on an attachment, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationName {
    /// `volume_attach`
    VolumeAttach,
    /// `volume_detach`
    VolumeDetach,
}

impl Metrics {
    /// Every metric at zero, and the process's own.
    pub fn new(clock: Clock) -> Self {
        let mut registry = Registry::default();
        let mut metrics = Self {
            registry: Arc::default(),
            ec2_calls: Family::default(),
            ec2_call_seconds: Family::new_with_constructor(CALL_BUCKETS),
            api_calls: Family::default(),
            api_call_seconds: Family::new_with_constructor(CALL_BUCKETS),
            in_flight: Family::default(),
            events: Family::default(),
            synced: Family::default(),
            lag_seconds: LOOP_BUCKETS.new_metric(),
            turn_seconds: LOOP_BUCKETS.new_metric(),
            operation_seconds: Family::new_with_constructor(OPERATION_BUCKETS),
            status: StatusCollector::default(),
        };
        metrics.register(&mut registry);
        registry.register_collector(Box::new(metrics.status.clone()));
        registry.register_collector(Box::new(ProcessCollector::new(clock)));
        metrics.registry = Arc::new(registry);
        for kind in Kind::ALL {
            metrics.watch_synced(kind, false);
        }
        metrics
    }

    /// Counters are registered without `_total`: the encoder appends it.
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "storage_operation_duration_seconds",
            "Time from the order to attach or detach to its end, as the VolumeAttachment shows it",
            self.operation_seconds.clone(),
        );
        registry.register("attachd_ec2_calls", "EC2 calls by action and result", self.ec2_calls.clone());
        registry.register(
            "attachd_ec2_call_duration_seconds",
            "Time an EC2 call took, from the check before sending to the answer",
            self.ec2_call_seconds.clone(),
        );
        registry.register(
            "attachd_api_calls",
            "Calls of the core to the API server by verb, resource and result; watches are not among them",
            self.api_calls.clone(),
        );
        registry.register(
            "attachd_api_call_duration_seconds",
            "Time a call to the API server took",
            self.api_call_seconds.clone(),
        );
        registry.register(
            "attachd_commands_in_flight",
            "Commands that have no outcome yet, by the side they went to",
            self.in_flight.clone(),
        );
        registry.register("attachd_events", "Events taken in by the core", self.events.clone());
        registry.register(
            "attachd_watch_synced",
            "1 once the first list of this kind is complete",
            self.synced.clone(),
        );
        registry.register(
            "attachd_loop_lag_seconds",
            "How much later than asked for the loop woke",
            self.lag_seconds.clone(),
        );
        registry.register(
            "attachd_loop_turn_duration_seconds",
            "Time one turn took: take in, plan, start commands",
            self.turn_seconds.clone(),
        );
        let build = Family::<Labels<1>, Gauge>::default();
        build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("attachd_build_info", "The version that runs", build);
    }

    /// A command was started.
    pub fn call_began(&self, name: CallName) {
        self.in_flight.get_or_create(&side(name)).inc();
    }

    /// A command has its outcome.
    pub fn call_ended(&self, name: CallName, result: &CallResult, took: Duration) {
        self.in_flight.get_or_create(&side(name)).dec();
        let (result, reason) = result_name(result);
        let sent = result != "not_sent";
        match name {
            CallName::Ec2 { action } => {
                let action = ("action", action);
                self.ec2_calls.get_or_create(&[action, ("result", result), ("reason", reason)]).inc();
                if sent {
                    self.ec2_call_seconds.get_or_create(&[action]).observe(took.as_secs_f64());
                }
            }
            CallName::Kubernetes { verb, resource } => {
                let (verb, resource) = (("verb", verb), ("resource", resource));
                self.api_calls.get_or_create(&[verb, resource, ("result", result), ("reason", reason)]).inc();
                if sent {
                    self.api_call_seconds.get_or_create(&[verb, resource]).observe(took.as_secs_f64());
                }
            }
        }
    }

    /// The core took in an event of this kind: `watch`, `outcome` or `guard`.
    pub fn event_taken_in(&self, kind: &'static str) {
        self.events.get_or_create(&[("kind", kind)]).inc();
    }

    /// Whether the first list of a kind is complete.
    pub fn watch_synced(&self, kind: Kind, synced: bool) {
        self.synced.get_or_create(&[("kind", resource_of(kind))]).set(i64::from(synced));
    }

    /// The loop woke this much later than asked for.
    pub fn loop_woke(&self, late_by: Duration) {
        self.lag_seconds.observe(late_by.as_secs_f64());
    }

    /// A turn of the loop ended.
    pub fn turn_ended(&self, took: Duration) {
        self.turn_seconds.observe(took.as_secs_f64());
    }

    /// An attach or detach ended, or an attempt at one failed.
    pub fn operation_ended(
        &self,
        driver: &str,
        operation: OperationName,
        status: OperationStatus,
        migrated: bool,
        took: Duration,
    ) {
        let operation = match operation {
            OperationName::VolumeAttach => "volume_attach",
            OperationName::VolumeDetach => "volume_detach",
        };
        let status = match status {
            OperationStatus::Success => "success",
            OperationStatus::FailUnknown => "fail-unknown",
        };
        let labels = vec![
            ("volume_plugin", format!("kubernetes.io/csi:{driver}")),
            ("operation_name", operation.to_owned()),
            ("status", status.to_owned()),
            ("migrated", migrated.to_string()),
        ];
        self.operation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// What the core said of itself just now; `None`: it did not answer, and nothing old is shown.
    pub fn show_status(&self, answer: Option<Status>) {
        self.status.show(answer);
    }

    /// Everything in the Prometheus text format 0.0.4.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn side(name: CallName) -> Labels<1> {
    match name {
        CallName::Ec2 { .. } => [("target", "ec2")],
        CallName::Kubernetes { .. } => [("target", "kubernetes")],
    }
}

/// The resource that a kind is listed as.
pub fn resource_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod => "pods",
        Kind::Claim => "persistentvolumeclaims",
        Kind::PersistentVolume => "persistentvolumes",
        Kind::Node => "nodes",
        Kind::CsiNode => "csinodes",
        Kind::CsiDriver => "csidrivers",
        Kind::Attachment => "volumeattachments",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::classify_ec2;

    fn line(metrics: &Metrics, start: &str) -> Option<String> {
        metrics.encode().unwrap().lines().find(|line| line.starts_with(start)).map(str::to_owned)
    }

    #[test]
    fn calls_are_counted_by_action_result_and_meaning() {
        let metrics = Metrics::new(Clock::start());
        let name = CallName::Ec2 { action: "AttachVolume" };
        metrics.call_began(name);
        metrics.call_began(name);
        let refusal = classify_ec2("VolumeInUse", "vol-1 is already attached");
        metrics.call_ended(name, &refusal, Duration::from_millis(30));
        assert_eq!(
            line(&metrics, "attachd_ec2_calls_total{").as_deref(),
            Some(r#"attachd_ec2_calls_total{action="AttachVolume",result="refused",reason="VolumeInUse"} 1"#)
        );
        assert_eq!(
            line(&metrics, r#"attachd_commands_in_flight{target="ec2"}"#).as_deref(),
            Some(r#"attachd_commands_in_flight{target="ec2"} 1"#)
        );
    }

    #[test]
    fn a_call_that_was_not_sent_has_no_duration() {
        let metrics = Metrics::new(Clock::start());
        let name = CallName::Kubernetes { verb: "patch", resource: "nodes/status" };
        metrics.call_began(name);
        metrics.call_ended(name, &CallResult::NotSent, Duration::ZERO);
        assert!(line(&metrics, "attachd_api_calls_total{").unwrap().contains(r#"result="not_sent""#));
        assert_eq!(line(&metrics, "attachd_api_call_duration_seconds_count"), None);
    }

    #[test]
    fn operations_have_upstreams_name_labels_and_buckets() {
        let metrics = Metrics::new(Clock::start());
        let took = Duration::from_secs(3);
        metrics.operation_ended("ebs.csi.aws.com", OperationName::VolumeAttach, OperationStatus::Success, false, took);
        let text = metrics.encode().unwrap();
        let expected = r#"storage_operation_duration_seconds_bucket{le="5",volume_plugin="kubernetes.io/csi:ebs.csi.aws.com",operation_name="volume_attach",status="success",migrated="false"} 1"#;
        let sorted = |line: &str| {
            let mut parts: Vec<String> = line.split(['{', ',', '}']).map(str::to_owned).collect();
            parts.sort();
            parts
        };
        assert!(text.lines().any(|line| sorted(line) == sorted(expected)), "{text}");
    }

    #[test]
    fn no_name_is_given_twice_and_the_process_is_among_them() {
        let text = Metrics::new(Clock::start()).encode().unwrap();
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for name in
            ["process_resident_memory_bytes gauge", "process_cpu_seconds_total counter", "process_open_fds gauge"]
        {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
    }
}
