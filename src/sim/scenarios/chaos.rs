//! Faults at random in a world too large to place them one by one.

use std::time::Duration;

use super::{BEGINS_AT, BOUND_AT, Stage};
use crate::sim::driver::{CallFaultRates, ChaosOptions, DriverOptions};

/// Each volume is moved about that often.
const MOVED_EVERY: Duration = Duration::from_secs(3600);
/// Each node is hit by a fault about that often.
const HIT_EVERY: Duration = Duration::from_secs(1800);
/// attachd itself, its calls or its watches are hit about that often, however large the world: a leader change about
/// every eleven minutes.
const HIT_AT_LARGE_EVERY: Duration = Duration::from_secs(180);
/// Of a million calls so many meet each kind of fault.
const CALLS_HIT: u32 = 2_000;

pub(super) fn tune(options: &mut DriverOptions) {
    options.call_faults = CallFaultRates::all(CALLS_HIT);
}

pub(super) fn script(stage: &mut Stage) {
    stage.add_workloads(BOUND_AT);
    let (nodes, volumes) = (stage.nodes.len() as u32, stage.volumes.max(1));
    let about = |every: Duration| (every / 4, every + every * 3 / 4);
    let options = ChaosOptions {
        every: about(HIT_EVERY / nodes),
        at_large_every: about(HIT_AT_LARGE_EVERY),
        move_every: Some(about(MOVED_EVERY / volumes)),
    };
    stage.driver.begin_chaos_after(BEGINS_AT, options);
}
