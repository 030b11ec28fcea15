//! What befalls a node: drained, lost.

use std::time::Duration;

use super::{BEGINS_AT, BOUND_AT, Stage};
use crate::controller::policy::ForceDetach;
use crate::sim::driver::{DriverOptions, Fault};
use crate::sim::workload::Replacement;

/// When a person has made sure that the lost node is off, and taints it.
const TAINTED_AT: Duration = Duration::from_secs(240);

pub(super) fn drain(stage: &mut Stage) {
    stage.add_workloads(BOUND_AT);
    let node = stage.node(0).clone();
    stage.driver.schedule(BEGINS_AT, Fault::Drain(node));
}

pub(super) fn loss_until_tainted(stage: &mut Stage) {
    stage.add_workloads(BOUND_AT);
    let node = stage.node(0).clone();
    stage.driver.schedule(BEGINS_AT, Fault::StopInstance(node.clone()));
    stage.driver.schedule(TAINTED_AT, Fault::Taint(node));
}

pub(super) fn force_always(options: &mut DriverOptions) {
    options.settings.force_detach = ForceDetach::Always;
}

/// The workloads make the next pod as soon as the last one is evicted: nobody ends a pod on a lost node.
pub(super) fn loss_until_timeout(stage: &mut Stage) {
    stage.add_workloads(BOUND_AT);
    stage.driver.apps_mut().set_replacement(Replacement::AtOnce);
    let node = stage.node(0).clone();
    stage.driver.schedule(BEGINS_AT, Fault::StopInstance(node));
}
