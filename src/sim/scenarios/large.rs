//! Many volumes at once.

use std::time::Duration;

use super::Stage;

/// When they are wanted: the process has run long enough for its bucket to be full (10 tokens at the start, 50 at most,
/// 5 a second) and for every sweep of the start to be over.
const WANTED_AT: Duration = Duration::from_secs(10 * 60);

pub(super) fn burst(stage: &mut Stage) {
    stage.add_workloads(WANTED_AT);
}
