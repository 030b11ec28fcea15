//! Machines that end, stop, or only seem to: what EC2 knows and a kubelet cannot say.

use std::time::Duration;

use super::{BEGINS_AT, BOUND_AT, Stage};
use crate::sim::driver::Fault;

/// When a person, tired of Terminating pods, force-deletes those of a node that does not answer: it has long been not
/// Ready.
const FORCE_DELETED_AT: Duration = Duration::from_secs(150);
/// When somebody starts the dead kubelet again: later than any timeout.
const KUBELET_BACK_AT: Duration = Duration::from_secs(660);

pub(super) fn instance_terminated(stage: &mut Stage) {
    stage.add_workloads(BOUND_AT);
    let node = stage.node(0).clone();
    stage.driver.schedule(BEGINS_AT, Fault::TerminateInstance(node));
}

pub(super) fn stopped(stage: &mut Stage) {
    let node = stage.node(0).clone();
    add_workloads_that_are_force_deleted(stage);
    stage.driver.schedule(BEGINS_AT, Fault::StopInstance(node));
}

pub(super) fn kubelet_dead(stage: &mut Stage) {
    let node = stage.node(0).clone();
    add_workloads_that_are_force_deleted(stage);
    stage.driver.schedule(BEGINS_AT, Fault::StopKubelet(node.clone()));
    stage.driver.schedule(KUBELET_BACK_AT, Fault::RestartKubelet(node));
}

/// Every workload; the pods of the first node are force-deleted.
fn add_workloads_that_are_force_deleted(stage: &mut Stage) {
    let nodes = stage.nodes.len();
    let volumes = stage.add_workloads(BOUND_AT);
    for volume in volumes.into_iter().step_by(nodes) {
        stage.driver.schedule(FORCE_DELETED_AT, Fault::ForceDeletePod(volume));
    }
}
