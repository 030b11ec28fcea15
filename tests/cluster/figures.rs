//! The figures of a measured run, told on standard error: what a test prints is shown only when it fails.

use std::io::Write as _;
use std::time::Duration;

/// Samples of one duration.
#[derive(Debug)]
pub(crate) struct Figures {
    sorted: Vec<Duration>,
}

impl Figures {
    /// Takes the samples and tells them.
    pub(crate) fn tell(what: &str, mut samples: Vec<Duration>) -> Self {
        samples.sort();
        let figures = Self { sorted: samples };
        let (median, max) = (figures.median(), figures.max());
        let count = figures.sorted.len();
        let _ = writeln!(std::io::stderr(), "{what}: {median:.2?} (median of {count}), {max:.2?} (max)");
        figures
    }

    /// The middle one, or the mean of the middle two.
    pub(crate) fn median(&self) -> Duration {
        let count = self.sorted.len();
        (self.sorted[(count - 1) / 2] + self.sorted[count / 2]) / 2
    }

    /// The largest.
    pub(crate) fn max(&self) -> Duration {
        self.sorted[self.sorted.len() - 1]
    }
}
