//! For each rule of the core: without it, something breaks that holds with it. What is searched here is small and was
//! found by `attachd simulate sabotage`.

use std::collections::BTreeSet;

use attachd::controller::policy::{Policy, Rule};
use attachd::sim::faults::Specification;
use attachd::sim::faults::placement::Profile;
use attachd::sim::faults::sabotage::{Trial, first_of};

/// Where the loss is found: among the first so many seeds of chaos. About twice what it took when the case was written,
/// so that a change of timing elsewhere does not hide it.
const FOUND_IN_CHAOS: [(Rule, u64); 13] = [
    (Rule::OneHolder, 20),
    (Rule::InUseBlocksDetach, 20),
    (Rule::AbsenceNeedsRecordedUid, 40),
    (Rule::MarkCountsAsInUse, 600),
    (Rule::ListOnlyConfirmed, 20),
    (Rule::NoBlindRepeatAttach, 300),
    (Rule::UnlistFirst, 20),
    (Rule::SpacedReadsWhenUnsure, 30),
    (Rule::FinalizerUntilCallsDead, 60),
    (Rule::Heal, 20),
    (Rule::ReadBeforeActing, 40),
    (Rule::GuardedMutations, 80),
    (Rule::NodePatchPreconditions, 40),
];

/// Where the loss is found with one fault: which, in which small world, at some step.
const FOUND_BY_ONE_FAULT: [(Rule, &str, &str); 1] = [(Rule::ReadsAfterCalls, "multi-attach", "move-pod-n1")];

/// Rules whose loss no search has found yet: they count as not tested. The list may only become shorter.
const NOT_FOUND_YET: [Rule; 14] = [
    Rule::NoSwitchAfterSend,
    Rule::MarkOnRelist,
    Rule::ConfirmByAttachTime,
    Rule::ConfirmByDevice,
    Rule::AttachNeedsRecordedUid,
    Rule::LiveReadBeforeDelete,
    Rule::RungOnLiveRead,
    Rule::UnusableAfterDetach,
    Rule::SameInstanceWaits,
    Rule::InheritedCallsWait,
    Rule::ForeignByDevice,
    Rule::MarkBeforeAdopt,
    Rule::UnresolvedKeepsWants,
    Rule::AttachmentPreconditions,
];

#[test]
fn every_rule_is_either_found_or_known_to_be_wanting() {
    let in_chaos = FOUND_IN_CHAOS.into_iter().map(|(rule, _)| rule);
    let by_one_fault = FOUND_BY_ONE_FAULT.into_iter().map(|(rule, ..)| rule);
    let listed: Vec<Rule> = in_chaos.chain(by_one_fault).chain(NOT_FOUND_YET).collect();
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
fn without_a_rule_one_fault_breaks_what_holds_with_it() {
    for (rule, world, fault) in FOUND_BY_ONE_FAULT {
        let policy = Policy::without([rule]);
        let profile = Profile::of(Specification::bare(world), &policy).expect("a small world").expect("it is sound");
        let with_it =
            profile.placements().into_iter().filter(|of| of.placed.iter().all(|placed| placed.fault == fault));
        let found = first_of(rule, with_it.map(Trial::Placed), |_| ()).expect("it can be run");
        assert!(found.is_some(), "{rule:?} with {fault} in {world}");
    }
}
