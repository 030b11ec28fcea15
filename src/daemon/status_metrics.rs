//! The core's own figures as metrics, under upstream's names where upstream has them.
//!
//! Flow: before a scrape the loop is asked for a [`Status`]; each encoding shows the last answer, or nothing when there
//! was none in time: an old figure would look like a new one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::controller::budget::BucketKind;
use crate::controller::status::{Ages, BudgetLevel, Direction, Disagreement, ForcedReason, Pending, Status};

/// Shows the last answer of the core.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusCollector {
    shown: Arc<Mutex<Option<Status>>>,
}

/// The lines of one metric: labels and value.
type Lines = Vec<(Vec<(&'static str, String)>, f64)>;

/// Name, help, type and lines.
type Metric = (&'static str, &'static str, MetricType, Lines);

impl StatusCollector {
    /// The answer; `None`: there was none in time.
    pub(super) fn show(&self, answer: Option<Status>) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }
}

impl Collector for StatusCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(status) = shown.as_ref() else { return Ok(()) };
        for (name, help, metric_type, lines) in metrics_of(status).into_iter().chain(reads_of(status)) {
            if lines.is_empty() {
                continue;
            }
            let mut metric = encoder.encode_descriptor(name, help, None, metric_type)?;
            for (labels, value) in lines {
                let mut line = metric.encode_family(&labels)?;
                match metric_type {
                    MetricType::Counter => line.encode_counter::<NoLabelSet, _, f64>(&value, None)?,
                    _ => line.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }
}

fn metrics_of(status: &Status) -> [Metric; 10] {
    let pending = |value: fn(&Pending) -> f64| -> Lines {
        let line =
            |(direction, pending): (&Direction, &Pending)| (vec![("operation", operation(*direction))], value(pending));
        status.pending.iter().map(line).collect()
    };
    let budgets = |value: fn(&BudgetLevel) -> f64| -> Lines {
        status.budgets.iter().map(|(kind, level)| (vec![("bucket", bucket(*kind))], value(level))).collect()
    };
    [
        (
            "attachdetach_controller_total_volumes",
            "Volumes in the desired and the actual state of world, once for each node",
            MetricType::Gauge,
            total_volumes(status),
        ),
        // Upstream's counter has no `_total`, which the encoder would append to one of that type.
        (
            "attach_detach_controller_attachdetach_controller_forced_detaches",
            "Detaches without the node's word that the volume is not in use",
            MetricType::Unknown,
            forced_detaches(status),
        ),
        (
            "attachd_pending_operations",
            "Attaches and detaches that are wanted and have not ended",
            MetricType::Gauge,
            pending(|pending| pending.count as f64),
        ),
        (
            "attachd_oldest_pending_operation_age_seconds",
            "How long the oldest attach or detach has been wanted",
            MetricType::Gauge,
            pending(|pending| pending.oldest.as_secs_f64()),
        ),
        (
            "attachd_blocked_operations",
            "Attaches and detaches that wait, by the reason they wait for",
            MetricType::Gauge,
            blocked(status),
        ),
        (
            "attachd_leading",
            "1 while every role of this process is led by it",
            MetricType::Gauge,
            vec![(Vec::new(), f64::from(u8::from(status.leading)))],
        ),
        (
            "attachd_mass_absence",
            "1 while so many instances are absent from EC2's answers that no absence is believed",
            MetricType::Gauge,
            vec![(Vec::new(), f64::from(u8::from(status.mass_absence)))],
        ),
        (
            "attachd_unresolved_pods",
            "Pods that name a volume that cannot be told",
            MetricType::Gauge,
            vec![(Vec::new(), status.unresolved_pods as f64)],
        ),
        ("attachd_budget_tokens", "Tokens in the bucket", MetricType::Gauge, budgets(|level| level.tokens)),
        (
            "attachd_budget_tokens_per_second",
            "Tokens that come back per second; fewer than configured after a throttle answer",
            MetricType::Gauge,
            budgets(|level| level.per_second),
        ),
    ]
}

/// How fresh EC2's answers are, and what they taught.
fn reads_of(status: &Status) -> [Metric; 6] {
    [
        (
            "attachd_sweep_age_seconds",
            "How long ago the attached volume was read from EC2 whose last read is the oldest",
            MetricType::Gauge,
            seconds(status.sweep_age),
        ),
        (
            "attachd_volumes_by_read_age",
            "Attached volumes that were read from EC2 not longer ago than so many seconds",
            MetricType::Gauge,
            ages(&status.read_ages.volumes),
        ),
        (
            "attachd_nodes_by_read_age",
            "Nodes of which every attached volume was read from EC2 not longer ago than so many seconds",
            MetricType::Gauge,
            ages(&status.read_ages.nodes),
        ),
        (
            "attachd_sweep_duration_seconds",
            "How long the last whole sweep over the attachments took; longer than sweepPeriod when EC2 throttles",
            MetricType::Gauge,
            seconds(status.sweep_duration),
        ),
        (
            "attachd_disagreements",
            "Reads of EC2 that disagreed with what was believed",
            MetricType::Counter,
            disagreements(status),
        ),
        (
            "attachd_foreign_attachments",
            "Attachments of this cluster's volumes that nothing here explains",
            MetricType::Gauge,
            vec![(Vec::new(), status.foreign_attachments as f64)],
        ),
    ]
}

/// Cumulated, with the label of a histogram's buckets.
fn ages(ages: &Ages) -> Lines {
    let bound = |bound: Option<u64>| bound.map_or_else(|| "+Inf".to_owned(), |secs| secs.to_string());
    ages.cumulated().map(|(secs, count)| (vec![("le", bound(secs))], count as f64)).collect()
}

fn total_volumes(status: &Status) -> Lines {
    let lines = status.volumes.iter().flat_map(|(driver, counts)| {
        let plugin = format!("kubernetes.io/csi:{driver}");
        [("desired_state_of_world", counts.desired), ("actual_state_of_world", counts.actual)]
            .map(|(state, count)| (vec![("plugin_name", plugin.clone()), ("state", state.to_owned())], count as f64))
    });
    lines.collect()
}

/// Both reasons always: a counter that appears with its first event hides that event from `increase()`.
fn forced_detaches(status: &Status) -> Lines {
    [(ForcedReason::Timeout, "timeout"), (ForcedReason::OutOfService, "out-of-service")]
        .into_iter()
        .map(|(reason, name)| {
            let count = status.forced_detaches.get(&reason).copied().unwrap_or(0);
            (vec![("reason", name.to_owned())], count as f64)
        })
        .collect()
}

/// Every kind always, as with forced detaches.
fn disagreements(status: &Status) -> Lines {
    Disagreement::ALL
        .into_iter()
        .map(|kind| {
            let name = match kind {
                Disagreement::SilentDetach => "silent_detach",
                Disagreement::ForeignAttachment => "foreign_attachment",
            };
            (vec![("kind", name.to_owned())], status.disagreements.get(&kind).copied().unwrap_or(0) as f64)
        })
        .collect()
}

fn seconds(time: Option<Duration>) -> Lines {
    time.map(|time| (Vec::new(), time.as_secs_f64())).into_iter().collect()
}

fn blocked(status: &Status) -> Lines {
    let line = |((direction, reason), count): (&(Direction, &'static str), &u64)| {
        (vec![("operation", operation(*direction)), ("reason", (*reason).to_owned())], *count as f64)
    };
    status.blocked.iter().map(line).collect()
}

fn operation(direction: Direction) -> String {
    match direction {
        Direction::Attach => "attach",
        Direction::Detach => "detach",
    }
    .to_owned()
}

fn bucket(kind: BucketKind) -> String {
    match kind {
        BucketKind::Mutating => "ec2_mutating",
        BucketKind::Poll => "ec2_describe",
        BucketKind::Sweep => "ec2_sweep",
        BucketKind::Api => "api",
        BucketKind::Event => "event",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::controller::status::{ReadAges, VolumeCounts};
    use crate::model::ids::DriverName;

    fn lines(answer: Option<Status>) -> Vec<String> {
        let collector = StatusCollector::default();
        collector.show(answer);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(collector));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with("# HELP")).map(str::to_owned).collect()
    }

    #[test]
    fn upstreams_metrics_keep_upstreams_names() {
        let volumes = [(DriverName::ebs(), VolumeCounts { desired: 5, actual: 4 })].into();
        let forced_detaches = [(ForcedReason::OutOfService, 2)].into();
        assert_eq!(
            lines(Some(Status { volumes, forced_detaches, ..Status::default() })),
            [
                "# TYPE attachdetach_controller_total_volumes gauge",
                r#"attachdetach_controller_total_volumes{plugin_name="kubernetes.io/csi:ebs.csi.aws.com",state="desired_state_of_world"} 5.0"#,
                r#"attachdetach_controller_total_volumes{plugin_name="kubernetes.io/csi:ebs.csi.aws.com",state="actual_state_of_world"} 4.0"#,
                "# TYPE attach_detach_controller_attachdetach_controller_forced_detaches untyped",
                r#"attach_detach_controller_attachdetach_controller_forced_detaches{reason="timeout"} 0.0"#,
                r#"attach_detach_controller_attachdetach_controller_forced_detaches{reason="out-of-service"} 2.0"#,
                "# TYPE attachd_leading gauge",
                "attachd_leading 0.0",
                "# TYPE attachd_mass_absence gauge",
                "attachd_mass_absence 0.0",
                "# TYPE attachd_unresolved_pods gauge",
                "attachd_unresolved_pods 0.0",
                "# TYPE attachd_volumes_by_read_age gauge",
                r#"attachd_volumes_by_read_age{le="15"} 0.0"#,
                r#"attachd_volumes_by_read_age{le="30"} 0.0"#,
                r#"attachd_volumes_by_read_age{le="60"} 0.0"#,
                r#"attachd_volumes_by_read_age{le="90"} 0.0"#,
                r#"attachd_volumes_by_read_age{le="180"} 0.0"#,
                r#"attachd_volumes_by_read_age{le="600"} 0.0"#,
                r#"attachd_volumes_by_read_age{le="+Inf"} 0.0"#,
                "# TYPE attachd_nodes_by_read_age gauge",
                r#"attachd_nodes_by_read_age{le="15"} 0.0"#,
                r#"attachd_nodes_by_read_age{le="30"} 0.0"#,
                r#"attachd_nodes_by_read_age{le="60"} 0.0"#,
                r#"attachd_nodes_by_read_age{le="90"} 0.0"#,
                r#"attachd_nodes_by_read_age{le="180"} 0.0"#,
                r#"attachd_nodes_by_read_age{le="600"} 0.0"#,
                r#"attachd_nodes_by_read_age{le="+Inf"} 0.0"#,
                "# TYPE attachd_disagreements_total counter",
                r#"attachd_disagreements_total{kind="silent_detach"} 0.0"#,
                r#"attachd_disagreements_total{kind="foreign_attachment"} 0.0"#,
                "# TYPE attachd_foreign_attachments gauge",
                "attachd_foreign_attachments 0.0",
            ]
        );
    }

    #[test]
    fn what_waits_is_shown_with_its_age_and_reason() {
        let oldest = Duration::from_secs(60);
        let mut read_ages = ReadAges::default();
        for millis in [20_000, 60_000, 61_500] {
            read_ages.volumes.count(Duration::from_millis(millis));
        }
        read_ages.nodes.count(Duration::from_secs(1_000));
        let status = Status {
            pending: [(Direction::Detach, Pending { count: 3, oldest })].into(),
            blocked: [((Direction::Detach, "InUse"), 2)].into(),
            budgets: [(BucketKind::Mutating, BudgetLevel { tokens: 7.5, per_second: 2.5 })].into(),
            sweep_age: Some(Duration::from_millis(61_500)),
            read_ages,
            sweep_duration: Some(oldest),
            ..Status::default()
        };
        let lines = lines(Some(status));
        for line in [
            r#"attachd_pending_operations{operation="detach"} 3.0"#,
            r#"attachd_oldest_pending_operation_age_seconds{operation="detach"} 60.0"#,
            r#"attachd_blocked_operations{operation="detach",reason="InUse"} 2.0"#,
            "attachd_sweep_age_seconds 61.5",
            r#"attachd_volumes_by_read_age{le="15"} 0.0"#,
            r#"attachd_volumes_by_read_age{le="60"} 2.0"#,
            r#"attachd_volumes_by_read_age{le="90"} 3.0"#,
            r#"attachd_nodes_by_read_age{le="600"} 0.0"#,
            r#"attachd_nodes_by_read_age{le="+Inf"} 1.0"#,
            "attachd_sweep_duration_seconds 60.0",
            r#"attachd_budget_tokens{bucket="ec2_mutating"} 7.5"#,
            r#"attachd_budget_tokens_per_second{bucket="ec2_mutating"} 2.5"#,
        ] {
            assert!(lines.iter().any(|shown| shown == line), "{line} is not in {lines:#?}");
        }
    }

    #[test]
    fn without_an_answer_there_is_no_old_figure() {
        assert_eq!(lines(None), [] as [&str; 0]);
    }
}
