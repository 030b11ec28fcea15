//! For each rule of the core: a run in which, without that rule, an invariant breaks. A rule whose sabotage is not found
//! is not tested.
//!
//! Flow: [`search`] tries placements of one fault, then of two, over all small worlds, the core under test without the
//! rule. The placements found are kept as tests. Must never weaken a checker to find, or a fault to miss.

use super::Specification;
use super::placement::{PlacementError, Profile, run};
use crate::controller::policy::{Policy, Rule};
use crate::sim::checkers::Violation;
use crate::sim::scenarios::small::SmallWorld;

/// How far a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How many first faults to give a second one, spread evenly over all there are.
    pub firsts: usize,
    /// How many second faults to try with each first one, spread likewise.
    pub seconds: usize,
}

/// What breaks without a rule.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where the faults were put.
    pub specification: Specification,
    /// What broke.
    pub violation: Violation,
    /// Runs it took.
    pub tried: u64,
}

/// Looks for a placement that breaks an invariant without the rule. `progress` is told each run tried.
pub fn search(rule: Rule, effort: Effort, progress: impl FnMut(u64)) -> Result<Option<Found>, PlacementError> {
    let mut search = Search { policy: Policy::without([rule]), tried: 0, progress };
    let bare: Vec<Specification> = SmallWorld::ALL.iter().map(|world| Specification::bare(world.name)).collect();
    if let Some(found) = search.first_of(bare.iter().cloned())? {
        return Ok(Some(found));
    }
    let mut singles = Vec::new();
    for bare in bare {
        singles.extend(search.placements(bare)?);
    }
    if let Some(found) = search.first_of(singles.iter().cloned())? {
        return Ok(Some(found));
    }
    let stride = singles.len().div_ceil(effort.firsts.max(1)).max(1);
    for (index, single) in singles.into_iter().step_by(stride).enumerate() {
        let pairs = search.placements(single)?;
        let stride = pairs.len().div_ceil(effort.seconds.max(1)).max(1);
        // Each first fault begins elsewhere, so that together they reach every kind of second one.
        let some = pairs.into_iter().skip(index % stride).step_by(stride);
        if let Some(found) = search.first_of(some)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
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

    fn first_of(
        &mut self,
        specifications: impl Iterator<Item = Specification>,
    ) -> Result<Option<Found>, PlacementError> {
        for specification in specifications {
            self.tried += 1;
            (self.progress)(self.tried);
            let report = run(&specification, &self.policy, false, |_| ())?;
            let Some(violation) = report.and_then(|report| report.violations.into_iter().next()) else { continue };
            // What breaks with every rule in force too says nothing of this one.
            let whole = run(&specification, &Policy::FULL, false, |_| ())?;
            if whole.is_none_or(|report| report.violations.is_empty()) {
                return Ok(Some(Found { specification, violation, tried: self.tried }));
            }
        }
        Ok(None)
    }
}
