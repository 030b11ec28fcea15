//! Every pod moves to the next node, one after the other.

use std::time::Duration;

use super::{BEGINS_AT, BOUND_AT, Stage};
use crate::sim::driver::Fault;

/// Between two moves.
const APART: Duration = Duration::from_secs(10);

pub(super) fn script(stage: &mut Stage) {
    let volumes = stage.add_workloads(BOUND_AT);
    for (number, volume) in volumes.into_iter().enumerate() {
        let next = stage.node(number + 1).clone();
        stage.driver.schedule(BEGINS_AT + APART * number as u32, Fault::MovePod(volume, next));
    }
}
