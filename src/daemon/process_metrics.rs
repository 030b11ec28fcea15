//! The usual `process_*` metrics, read from /proc when they are asked for.
//!
//! Flow: part of every encoding of [`super::metrics::Metrics`]. What cannot be read is left out, never shown as zero.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::clock::Clock;

/// The unit of the CPU times in /proc: USER_HZ, 100 on every architecture Linux runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads /proc/self at each scrape.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    /// Seconds since the Unix epoch.
    started: f64,
}

impl ProcessCollector {
    /// The start time is the clock's, which is that of the process to within milliseconds.
    pub(super) fn new(clock: Clock) -> Self {
        let now = clock.now();
        let millis = now.wall.as_millis() as f64 - now.monotonic.since_start().as_secs_f64() * 1000.0;
        Self { started: millis / 1000.0 }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let help = "User and system CPU time spent";
            let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        let memory = status_bytes();
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory", memory.map(|(resident, _)| resident)),
            ("process_virtual_memory_bytes", "Virtual memory", memory.map(|(_, mapped)| mapped)),
            ("process_open_fds", "Open file descriptors", open_fds()),
            ("process_max_fds", "Highest number of file descriptors allowed", max_fds()),
            ("process_threads", "Threads", threads()),
            ("process_start_time_seconds", "Start, in seconds since the Unix epoch", Some(self.started)),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

/// User and system time: fields 14 and 15 of /proc/self/stat. The second field is the program's name and may hold
/// anything, so what counts begins after the last parenthesis.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// Resident and virtual size in bytes.
fn status_bytes() -> Option<(f64, f64)> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some((status_field(&status, "VmRSS:")? * 1024.0, status_field(&status, "VmSize:")? * 1024.0))
}

fn threads() -> Option<f64> {
    status_field(&fs::read_to_string("/proc/self/status").ok()?, "Threads:")
}

fn status_field(status: &str, name: &str) -> Option<f64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<f64> {
    // One of them is the directory being read.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let rest = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}
