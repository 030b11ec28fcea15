//! For each rule of the core: a run in which, without that rule, an invariant breaks. A rule whose sabotage is not found
//! is not tested.
//!
//! Flow: [`Case::search`] looks where the loss was found before, for every rule of [`CASES`]; [`search`] looks everywhere:
//! placements of one fault over all small worlds, then chaos, then placements of two, the core under test without the
//! rule. What is found is kept as tests. Must never weaken a checker to find, or a fault to miss.

use std::fmt;

use super::Specification;
use super::placement::{PlacementError, Profile, run};
use crate::controller::policy::{Policy, Rule};
use crate::sim::checkers::Violation;
use crate::sim::run::{Report, Run};
use crate::sim::scenarios::small::SmallWorld;
use crate::sim::scenarios::{Options, Scenario};

/// Where the loss that a rule prevents is looked for: a small world, and the kinds of the faults put into it, the first
/// before the second. Every placement of them is tried, so that a change of the core that moves steps hides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The rule.
    pub rule: Rule,
    /// The small world.
    pub world: &'static str,
    /// Kinds of faults, as the catalogue names them: none, one or two.
    pub faults: &'static [&'static str],
}

const fn case(rule: Rule, world: &'static str, faults: &'static [&'static str]) -> Case {
    Case { rule, world, faults }
}

/// The cases kept.
pub const CASES: &[Case] = &[
    case(Rule::NoSwitchAfterSend, "move", &["apply-late-attach"]),
    case(Rule::MarkCountsAsInUse, "orphaned-node-returned", &[]),
    case(Rule::MarkOnRelist, "given-up", &["lose-reply-live-read", "heal-partition-n1"]),
    case(Rule::NoBlindRepeatAttach, "move", &["apply-late-attach"]),
    case(Rule::ConfirmByAttachTime, "successor", &["stale-ec2-reads"]),
    case(Rule::ConfirmByDevice, "move", &["attach-by-hand-n1"]),
    case(Rule::AttachNeedsRecordedUid, "held-by-hand", &["replace-node-object-n1"]),
    case(Rule::LiveReadBeforeDelete, "given-up-node-gone", &["stall-watch-nodes"]),
    case(Rule::RungOnLiveRead, "given-up", &["lose-reply-live-read", "heal-partition-n1"]),
    case(Rule::SpacedReadsWhenUnsure, "short", &["stale-ec2-reads"]),
    case(Rule::UnusableAfterDetach, "comes-back", &["stale-ec2-reads"]),
    case(Rule::SameInstanceWaits, "robbed", &[]),
    case(Rule::InheritedCallsWait, "comes-back", &["apply-late-detach", "new-leader-old-dies"]),
    case(Rule::ForeignByDevice, "device-ignored", &["attach-by-hand-n1"]),
    case(Rule::MarkBeforeAdopt, "orphaned", &[]),
    case(Rule::UnresolvedKeepsWants, "kubelet-down", &["delete-claim"]),
    case(Rule::GuardedMutations, "cut-off", &["delay-send-attachment"]),
    case(Rule::AttachmentPreconditions, "delete", &["apply-late-attachment"]),
    case(Rule::SilentDetachNeedsReads, "handed-over", &["stale-ec2-reads"]),
    case(Rule::AbsenceNeedsCompany, "other-region", &[]),
    case(Rule::DeathNeedsProof, "started-again", &[]),
    case(Rule::ForceNeedsImpairment, "kept", &[]),
    case(Rule::ReadsAfterCalls, "move", &[]),
    case(Rule::AbsenceNeedsRecordedUid, "move", &["replace-node-object-n1"]),
    case(Rule::FinalizerUntilCallsDead, "move", &["apply-late-attach"]),
    case(Rule::NodePatchPreconditions, "move", &["apply-late-node-status"]),
    case(Rule::ReadBeforeActing, "multi-attach", &[]),
    case(Rule::Heal, "move", &["delete-attachment-n1"]),
];

/// Seeds of the small world that a case is searched with, one after the other.
const CASE_SEEDS: u64 = 12;

impl Case {
    /// Looks for the loss by every placement of the case. `progress` is told each run tried.
    pub fn search(&self, progress: impl FnMut(u64)) -> Result<Option<Found>, PlacementError> {
        let mut search = Search { policy: Policy::without([self.rule]), tried: 0, progress };
        for seed in 1..=CASE_SEEDS {
            let found = self.search_seed(seed, &mut search)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn search_seed(&self, seed: u64, search: &mut Search<impl FnMut(u64)>) -> Result<Option<Found>, PlacementError> {
        let bare = Specification::bare(&format!("{}#{seed}", self.world));
        let mut found = search.first_of([Trial::Placed(bare.clone())].into_iter())?;
        let mut before = vec![bare];
        for kind in self.faults {
            let mut after = Vec::new();
            for specification in before {
                if found.is_some() {
                    return Ok(found);
                }
                let with = search.placements(specification)?;
                let of_kind =
                    with.into_iter().filter(|with| with.placed.last().is_some_and(|last| last.fault == *kind));
                let of_kind: Vec<Specification> = of_kind.collect();
                found = search.first_of(of_kind.iter().cloned().map(Trial::Placed))?;
                after.extend(of_kind);
            }
            before = after;
        }
        Ok(found)
    }
}

/// How far a search goes. First come all single faults, then chaos, then pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many seeds of chaos, from 1 on.
    pub seeds: u64,
    /// How many first faults to give a second one, spread evenly over all there are.
    pub firsts: usize,
    /// How many second faults to try with each first one, spread likewise.
    pub seconds: usize,
}

/// A run in which something breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// Faults placed in a small world.
    Placed(Specification),
    /// A seed of chaos in a world of [`CHAOS_NODES`] and [`CHAOS_VOLUMES`].
    Chaos {
        /// The seed.
        seed: u64,
    },
}

/// Nodes of the chaos tried.
pub const CHAOS_NODES: u32 = 3;
/// Volumes of the chaos tried: few, so that faults meet.
pub const CHAOS_VOLUMES: u32 = 4;

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed(specification) => specification.fmt(f),
            Self::Chaos { seed } => {
                write!(f, "chaos --seed {seed} --nodes {CHAOS_NODES} --volumes {CHAOS_VOLUMES}")
            }
        }
    }
}

impl Trial {
    /// Runs it and tells the first thing that broke.
    pub fn run(&self, policy: &Policy) -> Result<Option<Violation>, PlacementError> {
        let report = match self {
            Self::Placed(specification) => run(specification, policy, false, |_| ())?,
            Self::Chaos { seed } => chaos(*seed, policy),
        };
        Ok(report.and_then(|report| report.violations.into_iter().next()))
    }
}

fn chaos(seed: u64, policy: &Policy) -> Option<Report> {
    let scenario = Scenario::named("chaos")?;
    let options = Options { seed, nodes: Some(CHAOS_NODES), volumes: Some(CHAOS_VOLUMES), trace: false };
    let mut run = Run::new(scenario.start(&options, policy.clone()), scenario.lasts);
    run.play(|_| ());
    Some(run.into_report())
}

/// What breaks without a rule.
#[derive(Clone, Debug)]
pub struct Found {
    /// In which run.
    pub trial: Trial,
    /// What broke.
    pub violation: Violation,
    /// Runs it took.
    pub tried: u64,
}

/// Looks for a run that breaks an invariant without the rule, and none with it. `progress` is told each run tried.
pub fn search(rule: Rule, effort: Effort, progress: impl FnMut(u64)) -> Result<Option<Found>, PlacementError> {
    let mut search = Search { policy: Policy::without([rule]), tried: 0, progress };
    let bare: Vec<Specification> = SmallWorld::ALL.iter().map(|world| Specification::bare(world.name)).collect();
    if let Some(found) = search.first_of(bare.iter().cloned().map(Trial::Placed))? {
        return Ok(Some(found));
    }
    let mut singles = Vec::new();
    for bare in bare {
        singles.extend(search.placements(bare)?);
    }
    if let Some(found) = search.first_of(singles.iter().cloned().map(Trial::Placed))? {
        return Ok(Some(found));
    }
    if let Some(found) = search.first_of((1..=effort.seeds).map(|seed| Trial::Chaos { seed }))? {
        return Ok(Some(found));
    }
    let stride = singles.len().div_ceil(effort.firsts.max(1)).max(1);
    for (index, single) in singles.into_iter().step_by(stride).enumerate() {
        let pairs = search.placements(single)?;
        let stride = pairs.len().div_ceil(effort.seconds.max(1)).max(1);
        // Each first fault begins elsewhere, so that together they reach every kind of second one.
        let some = pairs.into_iter().skip(index % stride).step_by(stride);
        if let Some(found) = search.first_of(some.map(Trial::Placed))? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The first of some runs that breaks an invariant without the rule, and none with it.
pub fn first_of(
    rule: Rule,
    trials: impl Iterator<Item = Trial>,
    progress: impl FnMut(u64),
) -> Result<Option<Found>, PlacementError> {
    Search { policy: Policy::without([rule]), tried: 0, progress }.first_of(trials)
}

struct Search<P> {
    policy: Policy,
    tried: u64,
    progress: P,
}

impl<P: FnMut(u64)> Search<P> {
    fn placements(&self, specification: Specification) -> Result<Vec<Specification>, PlacementError> {
        Ok(Profile::of(specification, &self.policy)?.map(|profile| profile.placements()).unwrap_or_default())
    }

    fn first_of(&mut self, trials: impl Iterator<Item = Trial>) -> Result<Option<Found>, PlacementError> {
        for trial in trials {
            self.tried += 1;
            (self.progress)(self.tried);
            let Some(violation) = trial.run(&self.policy)? else { continue };
            // What breaks with every rule in force too says nothing of this one.
            if trial.run(&Policy::FULL)?.is_none() {
                return Ok(Some(Found { trial, violation, tried: self.tried }));
            }
        }
        Ok(None)
    }
}
