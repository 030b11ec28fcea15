//! The scenario `restart` with its numbers, in virtual time: what is pending is acted on at once, and EC2 is asked no more
//! often than it may be.
//!
//! 100,000 volumes by hand: `cargo simulate restart --nodes 5000 --volumes 100000`.

use std::time::Duration;

use attachd::controller::policy::{Bucket, Policy};
use attachd::sim::driver::{DriverOptions, Takeover};
use attachd::sim::run::Run;
use attachd::sim::scenarios::{Options, Scenario};

const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Plays the scenario; every invariant holds.
fn play(options: &Options, tune: impl FnOnce(&mut DriverOptions)) -> Takeover {
    let scenario = Scenario::named("restart").expect("a scenario");
    let mut run = Run::new(scenario.start_tuned(options, Policy::FULL, tune), scenario.lasts);
    run.play(|_| {});
    let report = run.into_report();
    assert_eq!(report.violations, [], "seed {}", options.seed);
    report.measures.takeover.expect("another process came to lead")
}

/// Everything pending is acted on within ten seconds of the lease.
fn assert_acted_on(takeover: &Takeover, seed: u64) {
    assert!(takeover.pending() >= 30, "{} pending, seed {seed}", takeover.pending());
    let acts = takeover.first_acts().expect("every pending volume is acted on");
    assert!(acts.iter().all(|act| *act <= TEN_SECONDS), "seed {seed}: {acts:?}");
    let calls = takeover.first_ec2_calls();
    assert!(calls.len() >= 20 && calls.iter().all(|call| *call <= TEN_SECONDS), "seed {seed}: {calls:?}");
}

#[test]
fn after_a_restart_pending_volumes_are_acted_on_and_a_sweep_costs_a_call_for_two_hundred() {
    let takeover = play(&Options { seed: 1, ..Options::default() }, |_| {});
    assert_acted_on(&takeover, 1);
    assert!(takeover.most_describes_within(TEN_SECONDS) <= 12 * 10, "polls and sweeps together");
    let sweeps = takeover.calls_per_sweep();
    assert!(sweeps.len() >= 10 && sweeps.iter().all(|calls| (20..=29).contains(calls)), "{sweeps:?}");
}

#[test]
fn it_is_no_later_where_reading_everything_takes_a_minute() {
    // 1,000 volumes at a tenth of a request a second take as long as 100,000 at ten.
    let slowly = |options: &mut DriverOptions| {
        options.settings.ec2_sweep = Bucket { burst: 2, per_second: 0.1 };
    };
    for seed in 2..=4 {
        let small = Options { seed, nodes: Some(50), volumes: Some(1_000), ..Options::default() };
        let takeover = play(&small, slowly);
        assert_acted_on(&takeover, seed);
    }
}
