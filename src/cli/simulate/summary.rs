//! What a run came to, as text and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::palette::Palette;
use super::timeline::duration;
use super::{SimulateOptions, Told};
use crate::sim::checkers::Invariant;
use crate::sim::driver::{Measures, Takeover, TraceEntry};
use crate::sim::run::{Report, Run};
use crate::sim::scenarios::Upstream;

/// The line above a timeline.
pub(super) fn title(palette: Palette, name: &str, sentence: &str, seed: Option<u64>, run: &Run) -> String {
    let world = run.world();
    let mut figures = format!("{} nodes, {} volumes", world.nodes.len(), world.volumes.len());
    if let Some(seed) = seed {
        figures.push_str(&format!(", seed {seed}"));
    }
    format!("{}  {sentence}\n{}\n", palette.bold(name), palette.dim(&figures))
}

/// The summary below a timeline.
pub(super) fn text(palette: Palette, told: &Told<'_>, report: &Report) -> String {
    let mut text = format!("\n{}\n", palette.bold("summary"));
    let mut row = |label: &str, value: String| text.push_str(&format!("  {label:<28}{value}\n"));
    let measures = &report.measures;
    row("volumes", format!("{} attached for the first time, {} moved", measures.first_attaches, measures.moves));
    row("need → attached", percentiles(&measures.attach_times));
    row("need → running", percentiles(&measures.start_times));
    if let Some(Upstream { compared, measured, ours, .. }) = told.upstream {
        let here = palette.good(&format!("{} here", ours(measures)));
        row(compared, format!("{here}, {} upstream (measured)", palette.bold(measured)));
    }
    if let Some(takeover) = measures.takeover.as_ref().filter(|takeover| takeover.pending() > 0) {
        takeover_rows(takeover, &mut row);
    }
    row("simulated", format!("{} in {} steps", duration(report.simulated), report.steps));
    text.push_str(&format!("\n  {}\n", palette.bold(&format!("{:<32}{:>8}{:>8}", "call", "sent", "floor"))));
    for (kind, count) in &report.counts.by_kind {
        let floor = floor(kind, report).map(|floor| floor.to_string()).unwrap_or_default();
        text.push_str(&format!("  {kind:<32}{count:>8}{floor:>8}\n"));
    }
    let throttles = report.counts.ec2_throttles + report.counts.api_throttles;
    text.push_str(&format!("  {:<32}{throttles:>8}{:>8}\n\n", "throttled", 0));
    text.push_str(&verdict(palette, report, told.command));
    text
}

/// What became of the work that was pending when another process came to lead, and what that asked of EC2.
fn takeover_rows(takeover: &Takeover, row: &mut impl FnMut(&str, String)) {
    let acts = takeover.first_acts().map_or_else(|| "not of every one".to_owned(), |all| percentiles(&all));
    let calls = takeover.first_ec2_calls();
    row("pending at the lease", format!("{} volumes, {} of them to be called for", takeover.pending(), calls.len()));
    row("lease → first act", acts);
    row("lease → first EC2 call", percentiles(&calls));
    let within =
        |secs: u32| takeover.most_describes_within(Duration::from_secs(u64::from(secs))) as f64 / f64::from(secs);
    row("describes since then", format!("at most {:.1}/s over ten seconds, {:.0} in one", within(10), within(1)));
    if let Some(most) = takeover.calls_per_sweep().iter().max() {
        row("DescribeVolumes a sweep", format!("at most {most}"));
    }
}

fn verdict(palette: Palette, report: &Report, command: &str) -> String {
    if report.violations.is_empty() {
        let judged: u64 = report.checked.values().sum();
        let all = Invariant::ALL.len();
        return format!("  {} {all} invariants, judged {judged} times: all hold\n", palette.good("✓"));
    }
    let mut text = String::new();
    for violation in &report.violations {
        text.push_str(&format!("  {} {}\n", palette.bad("✗ broken:"), violation.invariant));
        text.push_str(&format!("    at {} s, {}: {}\n", violation.at, violation.about, violation.detail));
    }
    text.push_str(&format!("  repeat it: {}\n", palette.attachd(command)));
    text
}

/// The least calls of a kind that do the work: one AttachVolume for each volume that came, one DetachVolume for each that
/// went from a node where it was; an object made, told and ended for each.
fn floor(kind: &str, report: &Report) -> Option<u64> {
    let measures = &report.measures;
    let came = measures.first_attaches + measures.moves;
    match kind {
        "AttachVolume" | "CreateAttachment" | "PatchAttachmentStatus" => Some(came),
        "DetachVolume" | "DeleteAttachment" | "SetAttachmentFinalizers" => Some(report.detached),
        _ => None,
    }
}

const PERCENTS: [(&str, usize); 4] = [("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)];

fn percentiles(times: &[Duration]) -> String {
    let one = |(name, percent)| {
        let time = Measures::percentile(times, percent)?;
        Some(format!("{name} {:.2} s", time.as_secs_f64()))
    };
    let all: Option<Vec<String>> = PERCENTS.into_iter().map(one).collect();
    all.map_or_else(|| "none".to_owned(), |all| all.join("   "))
}

fn percentiles_json(times: &[Duration]) -> Value {
    let one = |(name, percent): (&str, usize)| {
        let time = Measures::percentile(times, percent).map(|time| json!(time.as_secs_f64()));
        (name.to_owned(), time.unwrap_or(Value::Null))
    };
    Value::Object(PERCENTS.into_iter().map(one).collect())
}

fn takeover_json(takeover: &Takeover) -> Value {
    json!({
        "pending": takeover.pending(),
        "leaseToFirstActSeconds": takeover.first_acts().map(|times| percentiles_json(&times)),
        "leaseToFirstEc2CallSeconds": percentiles_json(&takeover.first_ec2_calls()),
        "mostDescribesInTenSeconds": takeover.most_describes_within(Duration::from_secs(10)),
        "describeVolumesPerSweep": takeover.calls_per_sweep(),
    })
}

/// Everything as one document.
pub(super) fn json<'a>(
    options: &SimulateOptions,
    told: &Told<'_>,
    report: &Report,
    timeline: impl Iterator<Item = &'a TraceEntry>,
) -> Value {
    let measures = &report.measures;
    let calls: serde_json::Map<String, Value> = report
        .counts
        .by_kind
        .iter()
        .map(|(kind, sent)| ((*kind).to_owned(), json!({ "sent": sent, "floor": floor(kind, report) })))
        .collect();
    json!({
        "scenario": told.name,
        "seed": options.seed,
        "nodes": options.nodes,
        "volumes": options.volumes,
        "steps": report.steps,
        "simulatedSeconds": report.simulated.as_secs_f64(),
        "firstAttaches": measures.first_attaches,
        "moves": measures.moves,
        "comparison": told.upstream.map(|upstream| json!({
            "of": upstream.compared, "here": (upstream.ours)(measures), "upstream": upstream.measured,
        })),
        "takeover": measures.takeover.as_ref().map(takeover_json),
        "needToAttachedSeconds": percentiles_json(&measures.attach_times),
        "needToRunningSeconds": percentiles_json(&measures.start_times),
        "calls": calls,
        "ec2Throttles": report.counts.ec2_throttles,
        "apiThrottles": report.counts.api_throttles,
        "invariants": report.checked.iter().map(|(invariant, judged)| json!({
            "invariant": invariant.sentence(), "judged": judged,
        })).collect::<Vec<_>>(),
        "violations": report.violations.iter().map(|violation| json!({
            "invariant": violation.invariant.sentence(),
            "atSeconds": violation.at.since_start().as_secs_f64(),
            "about": violation.about,
            "detail": violation.detail,
        })).collect::<Vec<_>>(),
        "timeline": timeline.map(|entry| json!({
            "atSeconds": entry.at.since_start().as_secs_f64(),
            "step": entry.step,
            "who": entry.who.to_string(),
            "what": entry.what,
            "why": entry.why,
        })).collect::<Vec<_>>(),
        "repeat": told.command,
    })
}
