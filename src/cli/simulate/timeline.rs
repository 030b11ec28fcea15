//! The timeline: what happens, as it happens. A line for each act in a small world; a table of figures, at growing
//! intervals, in a large one.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use super::SimulateOptions;
use super::palette::Palette;
use crate::model::time::Monotonic;
use crate::model::volume::AttachmentState;
use crate::sim::checkers::wanted::wanted;
use crate::sim::checkers::world::CallCounts;
use crate::sim::driver::{Actor, TraceEntry};
use crate::sim::run::Run;

/// With more volumes nobody reads each line.
const LINES_UP_TO: usize = 24;
/// How many of the last lines are shown when something broke in a large world.
const LAST: usize = 30;
/// The first interval of the table; later ones are a tenth of the time that passed.
const FIRST_INTERVAL: Duration = Duration::from_secs(10);

/// Shows a run.
#[derive(Debug)]
pub(super) struct Timeline {
    palette: Palette,
    form: Form,
    kept: VecDeque<TraceEntry>,
    next_row: Monotonic,
    last_counts: CallCounts,
    rows: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Every act.
    Lines,
    /// Figures.
    Table,
    /// Nothing yet: it goes into one document at the end.
    Kept {
        /// How many of the last lines.
        at_most: usize,
    },
}

impl Timeline {
    /// The timeline of a run that has not begun.
    pub(super) fn new(palette: Palette, run: &Run, options: &SimulateOptions) -> Self {
        let each = options.lines || run.world().volumes.len() <= LINES_UP_TO;
        let form = match (options.json, each) {
            (true, each) => Form::Kept { at_most: if each { usize::MAX } else { LAST } },
            (false, true) => Form::Lines,
            (false, false) => Form::Table,
        };
        let next_row = Monotonic::ZERO + FIRST_INTERVAL;
        Self { palette, form, kept: VecDeque::new(), next_row, last_counts: CallCounts::default(), rows: 0 }
    }

    /// Shows what the last step did.
    pub(super) fn show(&mut self, run: &mut Run, out: &mut impl Write) -> io::Result<()> {
        let entries = run.take_trace();
        match self.form {
            Form::Lines => {
                for entry in &entries {
                    writeln!(out, "{}", line(self.palette, entry))?;
                }
                // As it goes: a line is there when it happens, not when a buffer is full.
                if !entries.is_empty() {
                    out.flush()?;
                }
            }
            Form::Table => {
                self.keep(entries, LAST);
                if run.world().now.monotonic >= self.next_row {
                    self.row(run, out)?;
                }
            }
            Form::Kept { at_most } => self.keep(entries, at_most),
        }
        Ok(())
    }

    fn keep(&mut self, entries: Vec<TraceEntry>, at_most: usize) {
        self.kept.extend(entries);
        while self.kept.len() > at_most {
            self.kept.pop_front();
        }
    }

    /// What was kept and not shown.
    pub(super) fn entries(&self) -> impl Iterator<Item = &TraceEntry> {
        self.kept.iter()
    }

    /// The last lines before the end, if they were not shown.
    pub(super) fn show_last(&self, out: &mut impl Write) -> io::Result<()> {
        if self.form == Form::Table && !self.kept.is_empty() {
            writeln!(out, "\n{}", self.palette.bold("the last of it"))?;
            for entry in &self.kept {
                writeln!(out, "{}", line(self.palette, entry))?;
            }
        }
        Ok(())
    }

    fn row(&mut self, run: &Run, out: &mut impl Write) -> io::Result<()> {
        let world = run.world();
        let now = world.now.monotonic;
        if self.rows.is_multiple_of(25) {
            let head =
                "      time   wanted  attached  in motion    attaches  detaches  describes  API writes  throttled";
            writeln!(out, "{}", self.palette.bold(head))?;
        }
        self.rows += 1;
        let attachments = || world.volumes.values().flat_map(|volume| &volume.attachments);
        let attached = attachments().filter(|a| a.state == AttachmentState::Attached).count();
        let moving = attachments().count() - attached;
        let counts = &world.counts;
        let since = |kinds: fn(&CallCounts) -> u64| kinds(counts) - kinds(&self.last_counts);
        writeln!(
            out,
            "{:>10} {:>8} {attached:>9} {moving:>10} {:>11} {:>9} {:>10} {:>11} {:>10}",
            duration(now.since_start()),
            wanted(world).len(),
            format!("+{}", since(|c| c.of("AttachVolume"))),
            format!("+{}", since(|c| c.of("DetachVolume"))),
            format!("+{}", since(describes)),
            format!("+{}", since(|c| c.mutations() - c.ec2_mutations())),
            format!("+{}", since(|c| c.ec2_throttles + c.api_throttles)),
        )?;
        out.flush()?;
        self.last_counts = counts.clone();
        self.next_row = now + (now.since_start() / 10).max(FIRST_INTERVAL);
        Ok(())
    }
}

fn describes(counts: &CallCounts) -> u64 {
    counts.by_kind.iter().filter(|(kind, _)| kind.starts_with("Describe")).map(|(_, count)| count).sum()
}

/// Where the last column begins: the longest usual act fits before it.
const WHAT_WIDTH: usize = 58;

/// One act: when, who, what, and why.
pub(super) fn line(palette: Palette, entry: &TraceEntry) -> String {
    let time = palette.dim(&format!("{:>10}", clock(entry.at)));
    let who = palette.actor(&entry.who, &format!("{:<13}", entry.who.to_string()));
    let (what, why) = (short_ids(&entry.what), short_ids(&entry.why));
    let shown = if entry.who == Actor::Fault { palette.bad(&what) } else { what.clone() };
    if why.is_empty() {
        return format!("{time}  {who}  {shown}");
    }
    // Colours have no width: pad by what is seen.
    let padding = " ".repeat(WHAT_WIDTH.saturating_sub(what.chars().count()));
    format!("{time}  {who}  {shown}{padding}  {}", palette.dim(&why))
}

/// The ids of modelled volumes and instances are numbers with many zeros in front, which nobody needs to see.
fn short_ids(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) =
        ["vol-0", "i-0"].into_iter().filter_map(|prefix| rest.find(prefix).map(|at| at + prefix.len() - 1)).min()
    {
        short.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches('0');
    }
    short.push_str(rest);
    short
}

/// A point of virtual time: seconds with milliseconds, minutes and hours in front once there are any.
fn clock(at: Monotonic) -> String {
    let time = at.since_start();
    let (hours, minutes) = (time.as_secs() / 3600, time.as_secs() / 60 % 60);
    let seconds = format!("{:02}.{:03}", time.as_secs() % 60, time.subsec_millis());
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds}") } else { format!("{minutes}:{seconds}") }
}

/// A duration as people say it.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else if seconds < 3600.0 {
        format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
    } else {
        format!("{}:{:02} h", time.as_secs() / 3600, time.as_secs() / 60 % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_at_a_glance() {
        let at = |millis| clock(Monotonic::new(Duration::from_millis(millis)));
        assert_eq!(
            (at(1_005), at(61_000), at(3_661_200)),
            ("0:01.005".into(), "1:01.000".into(), "1:01:01.200".into())
        );
        let said = |secs| duration(Duration::from_secs(secs));
        assert_eq!((said(9), said(75), said(7_320)), ("9.0 s".into(), "1:15 min".into(), "2:02 h".into()));
    }

    #[test]
    fn a_line_is_aligned_with_and_without_colours() {
        let entry = TraceEntry {
            at: Monotonic::new(Duration::from_millis(1_500)),
            step: 3,
            who: Actor::Ec2,
            what: "vol-00a01 attached to i-002".to_owned(),
            why: "AttachVolume".to_owned(),
        };
        let plain = line(Palette::PLAIN, &entry);
        assert!(plain.starts_with("  0:01.500  EC2            vol-a01 attached to i-2 "), "{plain}");
        let coloured = line(Palette::new(true), &entry);
        let mut seen = String::new();
        let mut escaped = false;
        for c in coloured.chars() {
            match c {
                '\u{1b}' => escaped = true,
                'm' if escaped => escaped = false,
                c if !escaped => seen.push(c),
                _ => {}
            }
        }
        assert_eq!(seen, plain);
    }
}
