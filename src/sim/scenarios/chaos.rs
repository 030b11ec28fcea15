//! Faults at random in a world too large to place them one by one.

use std::time::Duration;

use super::{BEGINS_AT, BOUND_AT, Stage};
use crate::controller::event::Role;
use crate::sim::dice::Dice;
use crate::sim::driver::{CallFaultRates, ChaosOptions, DriverOptions, KINDS, KINDS_AT_LARGE};

/// Each volume is moved about that often.
const MOVED_EVERY: Duration = Duration::from_secs(3600);
/// Each node is hit by each kind of fault about that often: a kind that is added makes no other one rarer.
const HIT_BY_A_KIND_EVERY: Duration = Duration::from_secs(36_000);
/// attachd itself, its calls or its watches are hit by each kind about that often, however large the world: a leader
/// change about every fifteen minutes.
const HIT_AT_LARGE_BY_A_KIND_EVERY: Duration = Duration::from_secs(2_700);
/// Of a million calls so many meet each kind of fault.
const CALLS_HIT: u32 = 2_000;
/// Beside so many volumes of EBS (or a part of them) there is one of another driver.
const VOLUMES_FOR_ONE_OF_ANOTHER_DRIVER: u32 = 10;
/// Of so many worlds one has kube-controller-manager's own controller in it, and attachd the role `attacher` alone.
const WORLDS_FOR_ONE_BESIDE_KUBERNETES: u64 = 4;
/// The stream of chance that decides what a world is made of; the models have the lower ones.
const WORLD_STREAM: u64 = 64;

pub(super) fn tune(options: &mut DriverOptions) {
    options.call_faults = CallFaultRates::all(CALLS_HIT);
    if Dice::new(options.seed, WORLD_STREAM).below(WORLDS_FOR_ONE_BESIDE_KUBERNETES) == 0 {
        options.settings.roles = [Role::Attacher].into();
    }
}

pub(super) fn script(stage: &mut Stage) {
    stage.add_workloads(BOUND_AT);
    for number in 0..stage.volumes.div_ceil(VOLUMES_FOR_ONE_OF_ANOTHER_DRIVER) {
        let node = stage.node(number as usize).clone();
        stage.driver.add_other_workload(&format!("other-{}", number + 1), &node, BOUND_AT);
    }
    let (nodes, volumes) = (stage.nodes.len() as u32, stage.volumes.max(1));
    let about = |every: Duration| (every / 4, every + every * 3 / 4);
    let options = ChaosOptions {
        every: about(HIT_BY_A_KIND_EVERY / KINDS as u32 / nodes),
        at_large_every: about(HIT_AT_LARGE_BY_A_KIND_EVERY / KINDS_AT_LARGE as u32),
        move_every: Some(about(MOVED_EVERY / volumes)),
    };
    stage.driver.begin_chaos_after(BEGINS_AT, options);
}
