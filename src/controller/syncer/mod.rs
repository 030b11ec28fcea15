//! When EC2 is read, and what for: one shared poll for every volume that waits, sweeps over all of them, instances and
//! types for device names.
//!
//! Flow: state machines say which volume they want read and from when on; [`Syncer::next_poll`] and
//! [`Syncer::next_sweep`] say which bulk read is due as their budgets allow; the outcome of each page goes into
//! [`Syncer::take_page`], and what a whole read showed of volumes comes back from [`Syncer::absorb_volumes`] as one
//! [`Sighting`] per volume asked for. Owns what is due and what is missing. Must never let a failed page say anything
//! about a volume (rule 17).

pub mod batch;
mod due;
mod finds;
pub mod instances;
pub mod states;
pub mod sweep;
pub mod volume_statuses;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::actual::readings::Sight;
use crate::model::ids::{AwsVolumeId, InstanceId, NodeName, VolumeKey};
use crate::model::outcome::{CallResult, Outcome};
use crate::model::time::Monotonic;
use crate::model::volume::{InstanceReading, VolumeReading};
use batch::{AskedBy, Batch, End, FILTER_MAX, Read, Reading, is_mass_absence};
use due::Due;
use finds::Finds;
use instances::Instances;
use states::States;
use sweep::{Place, Sweep, SweepBatch};
use volume_statuses::VolumeStatuses;

/// Volumes due this soon ride along: fewer calls for the same freshness.
const RIDE_ALONG: Duration = Duration::from_millis(150);
/// A failed batch is asked again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A volume that was asked for alone and missing this often is believed gone: from then on its absence from a batch counts
/// as well.
const ALONE: u32 = 3;
/// A batch of fewer is no sample of what this cluster has: what is missing from it is asked for alone at once.
const SAMPLE_FROM: usize = 20;
/// What somebody waits for is asked for again this long after a mass absence.
const MASS_ABSENCE_AGAIN: Duration = Duration::from_secs(15);

/// Reads under way and wanted.
#[derive(Debug)]
pub struct Syncer {
    /// Volumes that somebody waits for.
    due: Due<AwsVolumeId>,
    /// Reads of which another page is to be asked for.
    continued: Vec<Read>,
    /// The same, of sweeps.
    continued_sweeps: Vec<Read>,
    /// Missing from the last answer; how often they were asked for alone since they were last seen.
    missing: BTreeMap<AwsVolumeId, u32>,
    mass_absence_at: Option<Monotonic>,
    finds: Finds,
    /// Instances and instance types, for device names.
    pub instances: Instances,
    /// States of instances in doubt.
    pub states: States,
    /// Whether volumes are initialized.
    pub volume_statuses: VolumeStatuses,
    sweep: Sweep,
}

/// What one answer showed of one volume.
#[derive(Debug)]
pub struct Sighting {
    /// The volume.
    pub id: AwsVolumeId,
    /// What was shown.
    pub sight: Sight,
    /// When the first page was asked for: nothing is proved about calls that ended later.
    pub began: Monotonic,
    /// Who asked.
    pub by: AskedBy,
}

impl Syncer {
    /// One that knows of no volume yet and sweeps once in `period`.
    pub fn new(period: Duration) -> Self {
        Self {
            due: Due::default(),
            continued: Vec::new(),
            continued_sweeps: Vec::new(),
            missing: BTreeMap::new(),
            mass_absence_at: None,
            finds: Finds::default(),
            instances: Instances::default(),
            states: States::default(),
            volume_statuses: VolumeStatuses::default(),
            sweep: Sweep::new(period),
        }
    }

    /// Wants a read of the volume that begins not before `at`; an earlier wish stands.
    pub fn want_volume(&mut self, id: &AwsVolumeId, at: Monotonic) {
        if self.due.want(id, at) {
            self.sweep.wished(id);
        }
    }

    /// The volume belongs there now; `None`: it is no volume of this cluster any more, and nothing is remembered of it.
    pub fn place(&mut self, id: &AwsVolumeId, place: Option<Place>, now: Monotonic) {
        if place.is_some() && self.sweep.place_of(id) == place.as_ref() {
            return;
        }
        if place.is_none() {
            self.missing.remove(id);
            self.due.forget(id);
        }
        self.sweep.place(id, place, self.due.has(id), now);
    }

    /// Whether the volume is one of this cluster, as far as the plans have told.
    pub fn has_place(&self, id: &AwsVolumeId) -> bool {
        self.sweep.has(id)
    }

    /// A lease was got: every volume is to be read again.
    pub fn lease_got(&mut self, now: Monotonic) {
        self.sweep.lease_got(now);
    }

    /// When the next read but those of sweeps may be made; `None` when nothing is wanted.
    pub fn next_due(&self, instance_period: Duration) -> Option<Monotonic> {
        let page = (!self.continued.is_empty()).then_some(Monotonic::ZERO);
        let (instances, states) = (self.instances.next_due(), self.states.next_due(instance_period));
        [page, instances, states, self.volume_statuses.next_due(), self.due.next()].into_iter().flatten().min()
    }

    /// The next read that is due, if any. Pages of a read first, then instances (an attach waits for them), then volumes.
    ///
    /// Instances in doubt are read at short intervals, in one call for all: they go before volumes. `nodes` are the
    /// instances of this cluster.
    pub fn next_poll(
        &mut self,
        now: Monotonic,
        instance_period: Duration,
        nodes: &BTreeMap<InstanceId, NodeName>,
    ) -> Option<Read> {
        let page = self.continued.pop();
        page.or_else(|| self.instances.next_read(now))
            .or_else(|| self.states.next_read(now, instance_period, nodes))
            .or_else(|| self.volume_statuses.next_read(now))
            .or_else(|| self.next_volumes(now))
    }

    /// One that was missing from the answer of a batch is asked for alone before it is believed gone.
    fn next_volumes(&mut self, now: Monotonic) -> Option<Read> {
        let is_suspected = |id: &AwsVolumeId| self.missing.get(id).is_some_and(|alone| *alone < ALONE);
        let asked = self.due.take(now, RIDE_ALONG, FILTER_MAX, is_suspected);
        Some(Read::Volumes(Batch::of(asked)?, AskedBy::Operation))
    }

    /// When the next read of a sweep may be made, `share` being what throttles left of its rate.
    pub fn next_sweep_due(&self, share: f64) -> Option<Monotonic> {
        if !self.continued_sweeps.is_empty() { Some(Monotonic::ZERO) } else { self.sweep.next_due(share) }
    }

    /// The next read of a sweep that is due, if any: pages of a read first.
    pub fn next_sweep(&mut self, share: f64, now: Monotonic) -> Option<Read> {
        self.continued_sweeps.pop().or_else(|| {
            let SweepBatch { volumes, failures } = self.sweep.next_batch(share, now)?;
            Some(Read::Volumes(Batch::of(volumes)?, AskedBy::Sweep { failures }))
        })
    }

    /// How long the last whole sweep over the attachments took.
    pub fn last_sweep(&self) -> Option<Duration> {
        self.sweep.last_round()
    }

    /// Whether the last reads lacked so much that its absence was taken for no evidence.
    pub fn is_mass_absence(&self, now: Monotonic) -> bool {
        let volumes = self.mass_absence_at.is_some_and(|at| now.saturating_since(at) < self.sweep.period() * 2);
        volumes || self.states.is_mass_absence()
    }

    /// Whether anything of this cluster was found between two reads that lacked a volume (rule 17). What is found after
    /// them is no company: the region or the role that was asked may be another one since.
    pub fn has_found_any_between(&self, first: Monotonic, last: Monotonic) -> bool {
        self.finds.any_between(first, last)
    }

    /// Takes in the outcome of a page: the end of its read, unless another page follows. That one is then due.
    pub fn take_page<R: Reading>(
        &mut self,
        batch: Batch<R>,
        outcome: Outcome,
        read_of: impl FnOnce(Batch<R>) -> Read,
    ) -> Option<End<R>> {
        let continued = match batch.absorb(outcome) {
            Ok(end) => return Some(end),
            Err(batch) => read_of(batch),
        };
        match continued {
            Read::Volumes(_, AskedBy::Sweep { .. }) => self.continued_sweeps.push(continued),
            _ => self.continued.push(continued),
        }
        None
    }

    /// Takes in what instances in doubt looked like: the volumes that have to be looked at again. `known`: how many
    /// instances this cluster has.
    pub fn absorb_states(&mut self, end: End<InstanceReading>, known: usize) -> BTreeSet<VolumeKey> {
        let Ok(seen) = end.shown else { return BTreeSet::new() };
        if !seen.is_empty() {
            self.finds.note(end.began, end.ended);
        }
        self.states.absorb(&end.asked, &seen, end.began, known)
    }

    /// Takes in what volumes looked like, each of those asked for. Where nothing was shown, they are asked for again.
    pub fn absorb_volumes(&mut self, end: End<VolumeReading>, by: AskedBy) -> Vec<Sighting> {
        let End { asked, began, ended, shown } = end;
        if by == AskedBy::Operation {
            for id in &asked {
                self.due.answered(id);
            }
        }
        match (shown, by) {
            (Ok(seen), _) => return self.judge(asked, seen, began, ended, by),
            (Err(_), AskedBy::Operation) => {
                for id in asked {
                    self.want_volume(&id, ended + RETRY_AFTER);
                }
            }
            (Err(failed), AskedBy::Sweep { failures }) => {
                let batch = SweepBatch { volumes: asked, failures };
                self.sweep.failed(batch, began, ended, failed == CallResult::Throttled);
            }
        }
        Vec::new()
    }

    fn judge(
        &mut self,
        asked: Vec<AwsVolumeId>,
        seen: Vec<VolumeReading>,
        began: Monotonic,
        ended: Monotonic,
        by: AskedBy,
    ) -> Vec<Sighting> {
        if by != AskedBy::Operation {
            self.sweep.succeeded(ended);
        }
        if !seen.is_empty() {
            self.finds.note(began, ended);
        }
        let mut seen: BTreeMap<AwsVolumeId, VolumeReading> =
            seen.into_iter().map(|volume| (volume.id.clone(), volume)).collect();
        let alone = asked.len() == 1;
        let is_news = |id: &&AwsVolumeId| !seen.contains_key(*id) && self.missing.get(*id).is_none_or(|n| *n < ALONE);
        let newly_missing = asked.iter().filter(is_news).count();
        let mass = asked.len() >= SAMPLE_FROM && is_mass_absence(newly_missing, asked.len());
        if mass {
            self.mass_absence_at = Some(ended);
        }
        let mut sightings = Vec::with_capacity(asked.len());
        for id in asked {
            let sight = match seen.remove(&id) {
                Some(mut volume) => {
                    self.missing.remove(&id);
                    // EC2 gives attachments in no order; agreement is judged by equality.
                    volume
                        .attachments
                        .sort_by(|a, b| a.instance.cmp(&b.instance).then_with(|| a.device.cmp(&b.device)));
                    Sight::Seen(volume)
                }
                None => match self.judge_missing(&id, by, alone, mass, ended) {
                    Some(sight) => sight,
                    None => continue,
                },
            };
            self.sweep.was_read(&id);
            let by = self.waited_for(&id, by, began);
            sightings.push(Sighting { id, sight, began, by });
        }
        sightings
    }

    /// A volume that was asked for and is not there: what that shows, if anything.
    fn judge_missing(
        &mut self,
        id: &AwsVolumeId,
        by: AskedBy,
        alone: bool,
        mass: bool,
        ended: Monotonic,
    ) -> Option<Sight> {
        if mass {
            // Not this volume is gone, but something is wrong with what was asked: region, account, rights (rule 17).
            if by == AskedBy::Operation {
                self.want_volume(id, ended + MASS_ABSENCE_AGAIN);
            }
            return None;
        }
        let times = self.missing.entry(id.clone()).or_default();
        if alone {
            *times = times.saturating_add(1);
        }
        if alone || *times >= ALONE {
            return Some(Sight::Missing);
        }
        self.want_volume(id, ended);
        None
    }

    /// Whether somebody waited for this read, though it may have been a sweep that asked; the wish is then fulfilled.
    fn waited_for(&mut self, id: &AwsVolumeId, by: AskedBy, began: Monotonic) -> AskedBy {
        if by == AskedBy::Operation || !self.due.has(id) {
            return by;
        }
        self.due.shown(id, began);
        AskedBy::Operation
    }
}
