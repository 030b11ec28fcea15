//! What EC2 says, does not say, or says late.

use std::time::Duration;

use super::{BEGINS_AT, BOUND_AT, Stage};
use crate::sim::driver::{DriverOptions, Fault};
use crate::sim::ec2::Staleness;

/// When the pod whose volume was pulled is made anew: its application has long seen I/O errors.
const POD_DELETED_AT: Duration = Duration::from_secs(210);
/// How long EC2's API is down.
const OUTAGE: Duration = Duration::from_secs(5 * 60);
/// When pods begin to move.
const MOVED_AT: Duration = Duration::from_secs(75);
/// Between two moves.
const APART: Duration = Duration::from_secs(5);

pub(super) fn silent_detach(stage: &mut Stage) {
    let volumes = stage.add_workloads(BOUND_AT);
    if let Some(volume) = volumes.first() {
        stage.driver.schedule(BEGINS_AT, Fault::ForceDetachByHand(volume.clone()));
        stage.driver.schedule(POD_DELETED_AT, Fault::DeletePod(volume.clone()));
    }
}

/// A third of what is read within 20 s of a change is older than the change.
pub(super) fn read_late(options: &mut DriverOptions) {
    options.ec2.staleness = Staleness { window: Duration::from_secs(20), percent: 33 };
}

pub(super) fn stale_reads(stage: &mut Stage) {
    let volumes = stage.add_workloads(BOUND_AT);
    move_all(stage, volumes);
}

pub(super) fn api_outage(stage: &mut Stage) {
    let volumes = stage.add_workloads(BOUND_AT);
    stage.driver.schedule(BEGINS_AT, Fault::Ec2Outage(OUTAGE));
    move_all(stage, volumes);
}

fn move_all(stage: &mut Stage, volumes: Vec<crate::model::ids::AwsVolumeId>) {
    for (number, volume) in volumes.into_iter().enumerate() {
        let next = stage.node(number + 1).clone();
        stage.driver.schedule(MOVED_AT + APART * number as u32, Fault::MovePod(volume, next));
    }
}
