//! Progress on stderr. Hidden where stderr is no terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::timeline;
use crate::sim::run::Run;

/// A bar or a spinner.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For a run whose length nobody knows: shows virtual time once it takes a while.
    pub(super) fn of_one_run() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(style("{spinner} {msg}"));
        Self { bar }
    }

    /// For a search of so many runs.
    pub(super) fn of_runs(runs: u64, from: u64) -> Self {
        let bar = ProgressBar::new(runs);
        bar.set_position(from);
        bar.set_style(style("{bar:40} {pos}/{len}  {per_sec}  {eta} left  {msg}"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar }
    }

    /// Where a single run is.
    pub(super) fn at(&self, run: &Run) {
        // Formatting each of millions of steps would cost more than the steps.
        if run.steps() > 0 && run.steps().is_multiple_of(4096) {
            let time = timeline::duration(run.world().now.monotonic.since_start());
            self.bar.set_message(format!("{time} of virtual time, {} steps", run.steps()));
            self.bar.tick();
        }
    }

    /// One run of a search is done.
    pub(super) fn done_one(&self) {
        self.bar.inc(1);
    }

    /// The search is at this run.
    pub(super) fn set(&self, number: u64) {
        self.bar.set_position(number);
    }

    /// Does something that writes to the terminal, the bar out of the way.
    pub(super) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    /// What the search is at.
    pub(super) fn say(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
