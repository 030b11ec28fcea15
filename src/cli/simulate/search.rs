//! Long searches: many seeds, every placement of faults, every sabotage. Progress on stderr, findings on stdout.

use std::io::{self, Write};
use std::str::FromStr;

use anyhow::bail;
use serde_json::json;

use super::palette::Palette;
use super::progress::Progress;
use super::{SimulateOptions, play};
use crate::controller::policy::{Policy, Rule};
use crate::sim::checkers::Violation;
use crate::sim::faults::placement::{self, Profile};
use crate::sim::faults::sabotage::{self, Effort, Found, Trial};
use crate::sim::faults::{Specification, pairs};
use crate::sim::run::Run;
use crate::sim::scenarios::Scenario;
use crate::sim::scenarios::small::SmallWorld;

/// How often a search says where it is, so that it can be taken up again.
const CHECKPOINT: u64 = 100;
/// Pairs of faults tried before a sabotage counts as not found; `--pairs` tries ten times as many.
const SABOTAGE: Effort = Effort { seeds: 400, firsts: 500, seconds: 40 };

/// The Ith of N parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    index: u64,
    of: u64,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match parsed {
            Some((index, of)) if 1 <= index && index <= of => Ok(Self { index, of }),
            _ => Err(format!("{text:?} is not I/N with 1 ≤ I ≤ N")),
        }
    }
}

/// What failed: the command that repeats it, and what broke.
struct Failure {
    command: String,
    violation: Violation,
}

/// Runs `seeds` seeds.
pub(super) fn seeds(
    options: &SimulateOptions,
    scenario: &'static Scenario,
    seeds: u64,
    palette: Palette,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let progress = Progress::of_runs(seeds, 0);
    let mut tally = Tally::default();
    for seed in options.seed..options.seed.saturating_add(seeds) {
        let run = Run::new(scenario.start(&options.world(seed, false), Policy::FULL), scenario.lasts);
        let report = play(run, |_| Ok(()))?;
        tally.runs += 1;
        tally.steps += report.steps;
        if let Some(violation) = report.violations.into_iter().next() {
            tally.fail(options, Failure { command: options.command(seed), violation }, palette, out)?;
            progress.say(format!("{} failed", tally.failures.len()));
        }
        progress.done_one();
    }
    progress.end();
    tally.conclude(options, &format!("{} seeds of {}", seeds, scenario.name), palette, out)
}

/// Runs every placement: of one fault, or (`--pairs`) of each first fault with every second one. The shards and `--from`
/// count first faults.
pub(super) fn placed(options: &SimulateOptions, palette: Palette, out: &mut impl Write) -> anyhow::Result<bool> {
    let are_chosen = options.pairs && !options.every_kind;
    let worlds: Vec<&str> = match &options.world {
        Some(name) => vec![name],
        None if are_chosen => pairs::WORLDS.to_vec(),
        None => SmallWorld::ALL.iter().map(|world| world.name).collect(),
    };
    let placements = if are_chosen { Profile::paired_placements } else { Profile::placements };
    let placements = |specification| {
        anyhow::Ok(Profile::of(specification, &Policy::FULL)?.map(|profile| placements(&profile)).unwrap_or_default())
    };
    let mut firsts = Vec::new();
    for world in &worlds {
        firsts.extend(placements(Specification::bare(world))?);
    }
    let shard = options.shard.unwrap_or(Shard { index: 1, of: 1 });
    let progress = Progress::of_runs(firsts.len() as u64, options.from);
    let mut tally = Tally::default();
    for (number, first) in (1u64..).zip(firsts) {
        if number <= options.from || (number - 1) % shard.of != shard.index - 1 {
            continue;
        }
        progress.set(number);
        let specifications = if options.pairs { placements(first)? } else { vec![first] };
        for specification in specifications {
            try_one(options, &specification, &mut tally, &progress, palette, out)?;
        }
        if options.pairs && number.is_multiple_of(CHECKPOINT) {
            progress.aside(|| writeln!(io::stderr(), "take it up here again: --from {number}"))?;
        }
    }
    progress.end();
    let what = if options.pairs { "pairs of faults" } else { "single faults" };
    tally.conclude(options, &format!("{what} placed in {} small worlds", worlds.len()), palette, out)
}

fn try_one(
    options: &SimulateOptions,
    specification: &Specification,
    tally: &mut Tally,
    progress: &Progress,
    palette: Palette,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let Some(report) = placement::run(specification, &Policy::FULL, false, |_| ())? else {
        tally.senseless += 1;
        return Ok(());
    };
    tally.runs += 1;
    tally.steps += report.steps;
    if let Some(violation) = report.violations.into_iter().next() {
        let command = format!("attachd simulate --place {specification}");
        progress.aside(|| tally.fail(options, Failure { command, violation }, palette, out))?;
    }
    progress.say(format!("{} runs, {} failed", tally.runs, tally.failures.len()));
    Ok(())
}

/// The rules named by `--rule`.
pub(super) fn rules(options: &SimulateOptions) -> anyhow::Result<Vec<Rule>> {
    let find = |name: &String| match Rule::ALL.into_iter().find(|rule| format!("{rule:?}") == *name) {
        Some(rule) => Ok(rule),
        None => {
            let names: Vec<String> = Rule::ALL.iter().map(|rule| format!("{rule:?}")).collect();
            bail!("no rule is called {name}; there are {}", names.join(", "))
        }
    };
    options.rule.iter().map(find).collect()
}

/// Looks for the loss that each rule prevents.
pub(super) fn sabotage(options: &SimulateOptions, palette: Palette, out: &mut impl Write) -> anyhow::Result<bool> {
    let named = rules(options)?;
    let rules = if named.is_empty() { Rule::ALL.to_vec() } else { named };
    let progress = Progress::of_runs(rules.len() as u64, 0);
    let effort = Effort { firsts: SABOTAGE.firsts * if options.pairs { 10 } else { 1 }, ..SABOTAGE };
    let mut missed = 0;
    let mut found_all = Vec::new();
    for rule in rules {
        let mut say = |tried: u64| {
            if tried.is_multiple_of(64) {
                progress.say(format!("{rule:?}: {tried} runs"));
            }
        };
        let found = match options.seeds {
            Some(seeds) => {
                let chaos = (options.seed..options.seed.saturating_add(seeds)).map(|seed| Trial::Chaos { seed });
                sabotage::first_of(rule, chaos, &mut say)?
            }
            None => kept_or_search(rule, effort, &mut say)?,
        };
        let name = format!("{rule:?}");
        match &found {
            Some(found) if !options.json => progress.aside(|| {
                let line = format!("{} {name:<28} {:>7} runs  {}", palette.good("✓"), found.tried, found.trial);
                writeln!(out, "{line}\n{:31}{}", "", palette.dim(found.violation.invariant.sentence()))?;
                out.flush()
            })?,
            None if !options.json => progress.aside(|| {
                writeln!(out, "{} {name:<28} not found", palette.bad("✗"))?;
                out.flush()
            })?,
            _ => {}
        }
        missed += u64::from(found.is_none());
        found_all.push(json!({
            "rule": name,
            "placement": found.as_ref().map(|found| found.trial.to_string()),
            "broken": found.as_ref().map(|found| found.violation.invariant.sentence()),
            "runs": found.as_ref().map(|found| found.tried),
        }));
        progress.done_one();
    }
    progress.end();
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &found_all)?;
        writeln!(out)?;
    }
    Ok(missed == 0)
}

/// First where the loss was found before; with that gone, everywhere.
fn kept_or_search(rule: Rule, effort: Effort, mut say: impl FnMut(u64)) -> anyhow::Result<Option<Found>> {
    for case in sabotage::CASES.iter().filter(|case| case.rule == rule) {
        if let Some(found) = case.search(&mut say)? {
            return Ok(Some(found));
        }
    }
    Ok(sabotage::search(rule, effort, say)?)
}

/// Runs, steps and what failed.
#[derive(Default)]
struct Tally {
    runs: u64,
    senseless: u64,
    steps: u64,
    failures: Vec<Failure>,
}

impl Tally {
    /// Shows a failure at once: a search may be stopped any time.
    fn fail(
        &mut self,
        options: &SimulateOptions,
        failure: Failure,
        palette: Palette,
        out: &mut impl Write,
    ) -> io::Result<()> {
        if !options.json {
            let Violation { invariant, about, detail, .. } = &failure.violation;
            writeln!(out, "{} {}", palette.bad("✗"), palette.attachd(&failure.command))?;
            writeln!(out, "    {invariant}\n    {}", palette.dim(&format!("{about}: {detail}")))?;
            out.flush()?;
        }
        self.failures.push(failure);
        Ok(())
    }

    fn conclude(
        &self,
        options: &SimulateOptions,
        what: &str,
        palette: Palette,
        out: &mut impl Write,
    ) -> anyhow::Result<bool> {
        if options.json {
            let failures: Vec<_> = self
                .failures
                .iter()
                .map(|failure| {
                    json!({
                        "repeat": failure.command,
                        "invariant": failure.violation.invariant.sentence(),
                        "about": failure.violation.about,
                        "detail": failure.violation.detail,
                    })
                })
                .collect();
            let document = json!({
                "what": what, "runs": self.runs, "senseless": self.senseless, "steps": self.steps, "failures": failures,
            });
            serde_json::to_writer_pretty(&mut *out, &document)?;
            writeln!(out)?;
        } else {
            let mark = if self.failures.is_empty() { palette.good("✓") } else { palette.bad("✗") };
            let senseless = match self.senseless {
                0 => String::new(),
                count => format!(" ({count} more hit nothing)"),
            };
            let failed = self.failures.len();
            writeln!(out, "{mark} {what}: {} runs{senseless}, {} steps, {failed} failed", self.runs, self.steps)?;
        }
        Ok(self.failures.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_one_of_its_parts() {
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, of: 3 }));
        for text in ["0/2", "3/2", "1", "a/b"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }
}
