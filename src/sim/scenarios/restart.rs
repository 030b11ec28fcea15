//! attachd dies in a large world with work under way, and starts again while EC2 fails now and then.

use std::time::Duration;

use super::Stage;
use crate::model::ids::AwsVolumeId;
use crate::sim::driver::Fault;

/// When attachd dies: the first one has long read everything, and nothing of what it found can be under way any more.
const DIES_AT: Duration = Duration::from_secs(180);
/// From then on so many of a million pages of DescribeVolumes fail, for so long.
const PAGES_FAIL: (u32, Duration) = (10_000, Duration::from_secs(12 * 60));
/// The first of the work comes so long before attachd dies, the rest while nobody leads: a lease ends 25 to 30 s after its
/// holder, and a pod takes some seconds to end.
const UNDER_WAY: Duration = Duration::from_secs(4);
/// Between two pieces of work.
const APART: Duration = Duration::from_millis(600);
/// Pieces of work of each kind, at most: with them EC2's bucket (10 tokens after a start, 5 a second) is no reason to wait
/// ten seconds for the first call of the last one.
const OF_EACH_KIND: u32 = 12;
/// Attached volumes of a node, at most; it takes 31, and some will move to it.
const PER_NODE: usize = 24;

/// Most volumes have long been attached. Of some the pod moves, of some it ends for good, and some are wanted for the
/// first time.
pub(super) fn script(stage: &mut Stage) {
    let each = (stage.volumes / 6).clamp(1, OF_EACH_KIND);
    let attached = add_attached(stage, stage.volumes.saturating_sub(each));
    let begins = DIES_AT - UNDER_WAY;
    for number in 0..each {
        let at = begins + APART * number;
        // Far from one another: each on a node of its own, as long as there are enough.
        let of_kind = |kind: u32| {
            let index = attached.len() * (2 * number + kind) as usize / (2 * each) as usize;
            attached.get(index).map(|volume| (index, volume.clone()))
        };
        if let Some((index, volume)) = of_kind(0) {
            let next = stage.node(index % stage.nodes.len() + 1).clone();
            stage.driver.schedule(at, Fault::MovePod(volume, next));
        }
        if let Some((_, volume)) = of_kind(1) {
            stage.driver.schedule(at, Fault::ScaleWorkload(volume, false));
        }
        let node = stage.node(number as usize * 7).clone();
        stage.driver.add_workload(&format!("new-{}", number + 1), &node, at);
    }
    stage.driver.schedule(DIES_AT, Fault::RestartController);
    stage.driver.schedule(DIES_AT, Fault::FailPages(PAGES_FAIL.0, PAGES_FAIL.1));
}

/// Adds so many volumes, attached as far as the nodes take them; the volume of number `n` is on the node of number `n`.
fn add_attached(stage: &mut Stage, volumes: u32) -> Vec<AwsVolumeId> {
    let nodes = stage.nodes.clone();
    let names: Vec<String> = (1..=volumes).map(|number| format!("app-{number}")).collect();
    let (attached, loose) = names.split_at(names.len().min(nodes.len() * PER_NODE));
    let mut found = vec![None; attached.len()];
    for (place, node) in nodes.iter().enumerate() {
        let here: Vec<String> = attached.iter().skip(place).step_by(nodes.len()).cloned().collect();
        let volumes = stage.driver.add_attached_workloads(node, &here);
        for (turn, volume) in volumes.into_iter().enumerate() {
            found[place + turn * nodes.len()] = Some(volume);
        }
    }
    for name in loose {
        stage.driver.add_loose_volume(name);
    }
    found.into_iter().flatten().collect()
}
