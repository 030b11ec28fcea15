//! For each rule of the core: without it, something breaks that holds with it. What is searched here is small and was
//! found by `attachd simulate sabotage`.

use std::collections::BTreeSet;

use attachd::controller::policy::Rule;
use attachd::sim::faults::sabotage::{CASES, Trial, first_of};

/// Where the loss is found: among the first so many seeds of chaos. About twice what it took when the case was written,
/// so that a change of timing elsewhere does not hide it.
const FOUND_IN_CHAOS: [(Rule, u64); 4] =
    [(Rule::OneHolder, 20), (Rule::InUseBlocksDetach, 20), (Rule::ListOnlyConfirmed, 20), (Rule::UnlistFirst, 20)];

/// Rules whose loss no search finds: they count as not tested.
const NOT_FOUND_YET: [Rule; 0] = [];

#[test]
fn every_rule_is_either_found_or_known_to_be_wanting() {
    let in_chaos = FOUND_IN_CHAOS.into_iter().map(|(rule, _)| rule);
    let placed = CASES.iter().map(|case| case.rule);
    let listed: Vec<Rule> = in_chaos.chain(placed).chain(NOT_FOUND_YET).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from(Rule::ALL));
    assert_eq!(listed.len(), Rule::ALL.len(), "a rule is in two lists");
}

#[test]
fn without_a_rule_chaos_breaks_what_holds_with_it() {
    let missed: Vec<String> = FOUND_IN_CHAOS
        .into_iter()
        .filter_map(|(rule, seeds)| {
            let chaos = (1..=seeds).map(|seed| Trial::Chaos { seed });
            let found = first_of(rule, chaos, |_| ()).expect("chaos can be run");
            found.is_none().then(|| format!("{rule:?} in {seeds} seeds"))
        })
        .collect();
    assert!(missed.is_empty(), "not found: {}", missed.join(", "));
}

#[test]
fn without_a_rule_some_placement_of_a_few_kinds_of_faults_breaks_what_holds_with_it() {
    let missed: Vec<String> = CASES
        .iter()
        .filter_map(|case| {
            let mut runs = 0;
            let found = case.search(|tried| runs = tried).expect("a case of known names");
            found.is_none().then(|| format!("{:?} in {} with {:?}: {runs} runs", case.rule, case.world, case.faults))
        })
        .collect();
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}
