//! `attachd simulate`: the main job without any cluster. The real core against modelled EC2, API server, kubelets and
//! people, in virtual time.
//!
//! Flow: options choose a scenario, a range of seeds or a search; `timeline` shows what happens, `summary` what it
//! came to. What goes to stdout depends on scenario, flags and seed alone; progress and this machine's timings go to
//! stderr. Exit code 0: every invariant held; 1: one is broken, and the command that repeats the run is shown.

mod palette;
mod progress;
mod search;
mod summary;
mod timeline;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use crate::controller::policy::Policy;
use crate::sim::faults::{Specification, placement};
use crate::sim::run::{Report, Run};
use crate::sim::scenarios::small::SmallWorld;
use crate::sim::scenarios::{Options, Scenario, Upstream};
use palette::Palette;
use progress::Progress;
use search::Shard;
use timeline::Timeline;

/// Searches, which are named like scenarios.
const PLACED: &str = "placed";
const SABOTAGE: &str = "sabotage";

/// What to run, and how to show it.
#[derive(Clone, Debug, Args)]
#[command(after_help = after_help())]
pub struct SimulateOptions {
    /// What to run: a scenario or a search from the list below
    #[arg(default_value = "rollout")]
    scenario: String,
    /// Seed of all chance: the same seed is the same run, byte for byte
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Run N seeds one after the other, from --seed on, and tell those that fail (`sabotage`: chaos only)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Number of nodes [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    nodes: Option<u32>,
    /// Number of volumes [default: the scenario's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    volumes: Option<u32>,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
    /// Every act on a line of its own, also in a large world
    #[arg(long)]
    lines: bool,
    /// List what can be run, and stop
    #[arg(long)]
    list: bool,
    /// Run one placement of faults, as a search printed it
    #[arg(long, value_name = "WORLD:FAULT@STEP,…")]
    place: Option<Specification>,
    /// `placed`: instead of every single fault, every pair of the faults that losses are made of, in six of the worlds
    #[arg(long)]
    pairs: bool,
    /// `placed --pairs`: pairs of faults of every kind, in every world (some hundred core-hours)
    #[arg(long, requires = "pairs")]
    every_kind: bool,
    /// `placed`: only in this small world
    #[arg(long, value_name = "NAME")]
    world: Option<String>,
    /// `placed`: only the Ith of N parts (counted from 1)
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// `placed`: take the search up again at this placement
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// `sabotage`: only these rules; `--place`: without these rules
    #[arg(long, value_name = "NAME")]
    rule: Vec<String>,
    /// Write without colours, also to a terminal
    #[arg(long, env = "NO_COLOR", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    no_color: bool,
}

impl SimulateOptions {
    fn world(&self, seed: u64, trace: bool) -> Options {
        Options { seed, nodes: self.nodes, volumes: self.volumes, trace }
    }

    /// The command that repeats the run of one seed.
    fn command(&self, seed: u64) -> String {
        let mut command = format!("attachd simulate {} --seed {seed}", self.scenario);
        for (flag, value) in [("nodes", self.nodes), ("volumes", self.volumes)] {
            if let Some(value) = value {
                command.push_str(&format!(" --{flag} {value}"));
            }
        }
        command
    }
}

/// Runs the subcommand.
pub fn run(options: &SimulateOptions) -> anyhow::Result<ExitCode> {
    let stdout = io::stdout();
    let palette = Palette::new(stdout.is_terminal() && !options.no_color && !options.json);
    let mut out = io::BufWriter::new(stdout.lock());
    let whole = run_to(options, palette, &mut out).and_then(|whole| {
        out.flush()?;
        Ok(whole)
    });
    match whole {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // `attachd simulate | head`: who stops reading has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether every invariant held.
fn run_to(options: &SimulateOptions, palette: Palette, out: &mut impl Write) -> anyhow::Result<bool> {
    if options.list {
        write!(out, "{}", list(palette))?;
        return Ok(true);
    }
    if let Some(specification) = &options.place {
        return place(options, specification, palette, out);
    }
    match (options.scenario.as_str(), options.seeds) {
        (PLACED, _) => search::placed(options, palette, out),
        (SABOTAGE, _) => search::sabotage(options, palette, out),
        (_, Some(seeds)) => search::seeds(options, scenario(options)?, seeds, palette, out),
        (_, None) => one(options, scenario(options)?, palette, out),
    }
}

fn scenario(options: &SimulateOptions) -> anyhow::Result<&'static Scenario> {
    let name = &options.scenario;
    match Scenario::named(name) {
        Some(scenario) => Ok(scenario),
        None if SmallWorld::named(name).is_some() => {
            bail!("{name} is a small world for placed faults: run it with --place {name}:")
        }
        None => {
            let names: Vec<&str> = Scenario::ALL.iter().map(|s| s.name).chain([PLACED, SABOTAGE]).collect();
            bail!("no scenario is called {name:?}; there are {}", names.join(", "))
        }
    }
}

/// One scenario with one seed, shown as it goes.
fn one(
    options: &SimulateOptions,
    scenario: &'static Scenario,
    palette: Palette,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let started = Instant::now();
    let run = Run::new(scenario.start(&options.world(options.seed, true), Policy::FULL), scenario.lasts);
    let mut timeline = Timeline::new(palette, &run, options);
    if !options.json {
        writeln!(out, "{}", summary::title(palette, scenario.name, scenario.sentence, Some(options.seed), &run))?;
    }
    let progress = Progress::of_one_run();
    let report = play(run, |run| {
        progress.at(run);
        timeline.show(run, out)
    })?;
    progress.end();
    let command = options.command(options.seed);
    let told = Told { name: scenario.name, upstream: scenario.upstream, command: &command };
    conclude(options, &told, &report, &timeline, palette, out)?;
    tell_speed(&report, started)?;
    Ok(report.violations.is_empty())
}

/// Plays a scenario to its end; what could not be written ends the showing, and is told.
fn play(mut run: Run, mut watch: impl FnMut(&mut Run) -> io::Result<()>) -> io::Result<Report> {
    let mut written = Ok(());
    run.play(|run| {
        if written.is_ok() {
            written = watch(run);
        }
    });
    written.map(|()| run.into_report())
}

/// One placement, shown as it goes.
fn place(
    options: &SimulateOptions,
    specification: &Specification,
    palette: Palette,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let started = Instant::now();
    let (world, seed) = SmallWorld::with_seed(&specification.world)
        .with_context(|| format!("no small world is called {:?}; see --list", specification.world))?;
    let policy = Policy::without(search::rules(options)?);
    let bare = Run::new(world.start(seed, policy.clone(), false), Duration::ZERO);
    let mut timeline = Timeline::new(palette, &bare, options);
    if !options.json {
        writeln!(out, "{}", summary::title(palette, &specification.to_string(), world.sentence, None, &bare))?;
    }
    let mut written = Ok(());
    let report = placement::run(specification, &policy, true, |run| {
        if written.is_ok() {
            written = timeline.show(run, out);
        }
    })?;
    written?;
    let Some(report) = report else {
        bail!("a fault of {specification} makes no sense where it is put (nothing there that it could hit)");
    };
    let without: String = options.rule.iter().map(|rule| format!(" --rule {rule}")).collect();
    let command = format!("attachd simulate --place {specification}{without}");
    let told = Told { name: &specification.to_string(), upstream: None, command: &command };
    conclude(options, &told, &report, &timeline, palette, out)?;
    tell_speed(&report, started)?;
    Ok(report.violations.is_empty())
}

/// What is told of a run beside what it came to.
pub(super) struct Told<'a> {
    /// Its name.
    name: &'a str,
    /// What upstream was measured to do in its place.
    upstream: Option<&'a Upstream>,
    /// How it is repeated.
    command: &'a str,
}

fn conclude(
    options: &SimulateOptions,
    told: &Told<'_>,
    report: &Report,
    timeline: &Timeline,
    palette: Palette,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if options.json {
        let document = summary::json(options, told, report, timeline.entries());
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)?;
    } else {
        if !report.violations.is_empty() {
            timeline.show_last(out)?;
        }
        write!(out, "{}", summary::text(palette, told, report))?;
    }
    Ok(())
}

/// This machine's time, for people only.
fn tell_speed(report: &Report, started: Instant) -> io::Result<()> {
    let took = started.elapsed();
    let hours = report.simulated.as_secs_f64() / 3600.0;
    let per_hour = hours / (took.as_secs_f64() / 3600.0).max(f64::EPSILON);
    writeln!(
        io::stderr(),
        "{} of virtual time in {:.1} s here: {per_hour:.0} simulated hours per hour",
        timeline::duration(report.simulated),
        took.as_secs_f64()
    )
}

fn after_help() -> String {
    format!(
        "{}\nExamples:\n  attachd simulate\n  attachd simulate node-loss --seed 7\n  \
             attachd simulate chaos --seeds 100\n  attachd simulate placed --pairs --shard 1/2\n",
        list(Palette::PLAIN)
    )
}

/// Everything that can be run, each with its sentence.
fn list(palette: Palette) -> String {
    let searches = [
        (PLACED, "every fault at every step of every small world, alone or (--pairs) in pairs"),
        (SABOTAGE, "the core without one of its rules: the run in which that loses data, for each rule"),
    ];
    let scenarios = Scenario::ALL.iter().map(|scenario| (scenario.name, scenario.sentence));
    let worlds = SmallWorld::ALL.iter().map(|world| (world.name, world.sentence));
    let mut text = String::new();
    let mut section = |title: &str, entries: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        text.push_str(&format!("{}\n", palette.bold(title)));
        for (name, sentence) in entries {
            text.push_str(&format!("  {}  {sentence}\n", palette.attachd(&format!("{name:<18}"))));
        }
    };
    section("Scenarios:", &mut scenarios.into_iter());
    section("Searches:", &mut searches.into_iter());
    section("Small worlds (for --place and --world):", &mut worlds.into_iter());
    text
}
