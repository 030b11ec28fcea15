//! Every fault at every step of every small world.
//!
//! Flow: [`Profile::of`] runs a world, without faults or with a first one, and notes what each step did;
//! [`Profile::placements`] lists what can be put into that run, in a fixed order (so that a search can be cut into shards
//! and taken up again); [`run`] runs one placement.

use std::collections::BTreeMap;
use std::time::Duration;

use super::catalogue::{Placeable, catalogue, kinds_of};
use super::{Placed, Specification, pairs};
use crate::controller::policy::Policy;
use crate::model::ids::{AwsVolumeId, NodeName, VolumeKey};
use crate::model::volume::InstanceState;
use crate::sim::checkers::wanted::is_marked;
use crate::sim::checkers::world::{CallCounts, World, instance_of};
use crate::sim::driver::Fault;
use crate::sim::run::{Report, Run};
use crate::sim::scenarios::small::SmallWorld;

/// The script of a small world, and what a fault does to it, is over after this long at the latest.
const SCRIPT: Duration = Duration::from_secs(40 * 60);

/// A run step by step: where a further fault can be put.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The faults it ran with: none, or one.
    pub specification: Specification,
    faults: Vec<Placeable>,
    /// Steps after which the world or what was sent was another than before: between two others a fault would make the
    /// same run.
    eventful: Vec<u64>,
    /// Those of them at which more than a read was sent: where the faults of a pair are put.
    decisive: Vec<u64>,
    /// By kind of call: the steps right before one was commanded.
    before_call: BTreeMap<&'static str, Vec<u64>>,
}

impl Profile {
    /// Runs a placement up to its calm and takes its profile from the last fault on. `None`: a fault made no sense, or
    /// broke something already.
    pub fn of(specification: Specification, policy: &Policy) -> Result<Option<Self>, PlacementError> {
        let (world, _, _) = resolve(&specification)?;
        let from = specification.placed.last().map_or(0, |placed| placed.step);
        let mut eventful = Vec::from_iter((from == 0).then_some(0));
        let mut decisive = eventful.clone();
        let mut before_call: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
        let mut counts = CallCounts::default();
        let mut decided = BTreeMap::new();
        let calm = run_to_calm(&specification, policy, false, |run| {
            let now = &run.world().counts;
            if run.steps() >= from {
                // A call meets its fault when it is commanded, some time before it leaves the socket.
                for (kind, count) in run.calls_decided() {
                    if *count > decided.get(kind).copied().unwrap_or(0) {
                        before_call.entry(kind).or_default().push(run.steps().saturating_sub(1));
                    }
                }
                if run.last_step_was_eventful() || *now != counts {
                    eventful.push(run.steps());
                }
                if run.last_step_was_eventful() || now.mutations() != counts.mutations() {
                    decisive.push(run.steps());
                }
            }
            counts.clone_from(now);
            decided.clone_from(run.calls_decided());
        })?;
        eventful.dedup();
        decisive.dedup();
        let sound = calm.is_some_and(|run| !run.is_broken());
        let faults = catalogue(&world.volume(), &world.nodes());
        Ok(sound.then_some(Self { specification, faults, eventful, decisive, before_call }))
    }

    /// The steps after which this fault is put: for a fault of the next call or its answer, once before each such call;
    /// for any other, each of `others`.
    fn steps_for(&self, fault: &Fault, others: &[u64]) -> Vec<u64> {
        let kinds = match fault {
            Fault::NextCall(target, _) => kinds_of(*target).to_vec(),
            Fault::NextAnswer(action, _) => vec![action.name()],
            _ => return others.to_vec(),
        };
        let mut steps: Vec<u64> =
            kinds.iter().filter_map(|kind| self.before_call.get(kind)).flatten().copied().collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// Every fault at each of its steps, added to what the run was made with, in a fixed order.
    pub fn placements(&self) -> Vec<Specification> {
        self.put(&self.eventful, |_| true)
    }

    /// As [`Self::placements`], of the faults that meet in pairs, at the steps where those are put.
    pub fn paired_placements(&self) -> Vec<Specification> {
        self.put(&self.decisive, pairs::meets_others)
    }

    fn put(&self, steps: &[u64], wanted: impl Fn(&Fault) -> bool) -> Vec<Specification> {
        let each = |placeable: &Placeable| {
            let name = placeable.name.clone();
            let steps = self.steps_for(&placeable.fault, steps);
            steps.into_iter().map(move |step| Placed { step, fault: name.clone() }).collect::<Vec<_>>()
        };
        let added = |placed| {
            let mut specification = self.specification.clone();
            specification.placed.push(placed);
            specification
        };
        self.faults.iter().filter(|placeable| wanted(&placeable.fault)).flat_map(each).map(added).collect()
    }
}

/// Why a specification cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No such small world.
    #[error("no small world is called {0:?}")]
    UnknownWorld(String),
    /// No such fault.
    #[error("no fault is called {0:?}")]
    UnknownFault(String),
}

/// The world of a specification, its seed, and its faults by their steps.
type Resolved = (&'static SmallWorld, u64, Vec<(u64, Fault)>);

fn resolve(specification: &Specification) -> Result<Resolved, PlacementError> {
    let (world, seed) = SmallWorld::with_seed(&specification.world)
        .ok_or_else(|| PlacementError::UnknownWorld(specification.world.clone()))?;
    let faults = catalogue(&world.volume(), &world.nodes());
    let find = |placed: &Placed| {
        let found = faults.iter().find(|placeable| placeable.name == placed.fault);
        let fault = found.ok_or_else(|| PlacementError::UnknownFault(placed.fault.clone()))?;
        Ok((placed.step, fault.fault.clone()))
    };
    let mut placed = specification.placed.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    placed.sort_by_key(|(step, _)| *step);
    Ok((world, seed, placed))
}

/// Runs one placement to its end: safety phase, heal, liveness phase. `watch` sees the run after each step.
///
/// `None`: a fault made no sense where it was put (nothing there to delete), so that the run is one of fewer faults and
/// says nothing new.
pub fn run(
    specification: &Specification,
    policy: &Policy,
    trace: bool,
    mut watch: impl FnMut(&mut Run),
) -> Result<Option<Report>, PlacementError> {
    let Some(mut run) = run_to_calm(specification, policy, trace, &mut watch)? else { return Ok(None) };
    if !run.is_broken() {
        run.come_to_rest(&mut watch);
    }
    Ok(Some(run.into_report()))
}

/// The safety phase: until every fault was put and the world is calm with them, or something broke.
fn run_to_calm(
    specification: &Specification,
    policy: &Policy,
    trace: bool,
    mut watch: impl FnMut(&mut Run),
) -> Result<Option<Run>, PlacementError> {
    let (world, seed, placed) = resolve(specification)?;
    let mut run = Run::new(world.start(seed, policy.clone(), trace), SCRIPT);
    let mut placed = placed.into_iter().peekable();
    loop {
        while let Some((_, fault)) = placed.next_if(|(step, _)| *step <= run.steps()) {
            if !makes_sense(run.world(), &fault) {
                return Ok(None);
            }
            run.inject(fault);
            watch(&mut run);
        }
        if run.is_broken() || (run.is_calm() && placed.peek().is_none()) || !run.step() {
            return Ok(Some(run));
        }
        watch(&mut run);
    }
}

/// Whether there is anything for the fault to hit: else the run is one of fewer faults.
fn makes_sense(world: &World, fault: &Fault) -> bool {
    // A small world has one volume.
    let attachment = |node: &NodeName| world.attachments.values().any(|object| object.node == *node);
    let attached = |volume: &AwsVolumeId| world.volumes.get(volume).is_some_and(|v| !v.attachments.is_empty());
    let state = |node: &NodeName| {
        let instance = instance_of(world.nodes.get(node)?)?;
        Some(&world.instances.get(instance)?.state)
    };
    match fault {
        Fault::DeleteNode(node) | Fault::ReplaceNodeObject(node) | Fault::Taint(node) => world.nodes.contains_key(node),
        Fault::RemoveTaint(node) => world.nodes.get(node).is_some_and(|node| node.out_of_service),
        Fault::StartInstance(node) => state(node) == Some(&InstanceState::Stopped),
        Fault::DeleteAttachment(_, node) | Fault::StripFinalizers(_, node) => attachment(node),
        // A person says so of a volume that is held for want of it, never of one that is about to be mounted.
        Fault::AnnotateUnmounted(volume, node) => {
            let marked = world.nodes.get(node).is_some_and(|node| is_marked(node, &VolumeKey::ebs(volume)));
            marked && attachment(node)
        }
        Fault::DeleteClaim(_) => !world.claims.is_empty(),
        Fault::DetachByHand(volume) | Fault::ForceDetachByHand(volume) => attached(volume),
        Fault::CarryByHand(volume, node) => {
            let there = world.nodes.get(node).and_then(instance_of).and_then(|i| world.ec2_attachment(volume, i));
            attached(volume) && there.is_none()
        }
        Fault::AttachByHand(volume, _) => !attached(volume),
        Fault::DeletePod(_) | Fault::ForceDeletePod(_) | Fault::FailPod(_) => !world.pods.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_next_call_hits_the_call_it_is_put_before() {
        let bare = Specification::bare("move");
        let profile = Profile::of(bare, &Policy::FULL).expect("a small world").expect("sound");
        let throttled: Vec<Specification> =
            profile.placements().into_iter().filter(|with| with.placed[0].fault == "throttle-attach").collect();
        assert_eq!(throttled.len(), 2, "the volume is attached twice");
        let mut hit_at = Vec::new();
        for specification in throttled {
            let mut seen = None;
            run(&specification, &Policy::FULL, false, |run| {
                if run.world().counts.ec2_throttles == 1 {
                    seen.get_or_insert(run.world().counts.of("AttachVolume"));
                }
            })
            .expect("it runs");
            hit_at.extend(seen);
        }
        assert_eq!(hit_at, [1, 2], "each call, and no later one");
    }

    #[test]
    fn another_seed_is_another_run_of_the_same_world() {
        let steps = |world: &str| {
            let report = run(&Specification::bare(world), &Policy::FULL, false, |_| ());
            report.expect("a small world").expect("it runs").steps
        };
        assert_eq!(steps("move"), steps("move#1"));
        assert_ne!(steps("move"), steps("move#2"));
        assert!(run(&Specification::bare("move#two"), &Policy::FULL, false, |_| ()).is_err());
    }
}
