//! When EC2 is read, and what for: one shared poll for every volume that waits, sweeps over all of them, instances and
//! types for device names.
//!
//! Flow: state machines say which volume they want read and from when on; [`Syncer::next_call`] and
//! [`Syncer::next_sweep`] make bulk requests as their budgets allow; answers come back through
//! [`Syncer::absorb_volumes`] as one [`Sighting`] per volume asked for. Owns the batches under way. Must never let a
//! failed page say anything about a volume (rule 17).

pub mod instances;
pub mod states;
pub mod sweep;
pub mod volume_statuses;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::actual::readings::Sight;
use super::command::Ec2Call;
use crate::model::ids::{AwsVolumeId, InstanceId, NodeName};
use crate::model::outcome::{Answer, CallResult, CommandId, Outcome};
use crate::model::time::Monotonic;
use crate::model::volume::VolumeReading;
use instances::Instances;
use states::{StateCall, States};
use sweep::{Place, Sweep, SweepBatch};
use volume_statuses::VolumeStatuses;

/// Values one filter takes (EC2's documented limit).
const BATCH_MAX: usize = 200;
/// Volumes due this soon ride along: fewer calls for the same freshness.
const RIDE_ALONG: Duration = Duration::from_millis(150);
/// A failed batch is asked again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A volume that was asked for alone and missing this often is believed gone: from then on its absence from a batch counts
/// as well.
const ALONE: u32 = 3;
/// Of a batch of at least this many, more than a tenth missing at once proves nothing (rule 17).
const MASS_ABSENCE_FROM: usize = 20;
/// What somebody waits for is asked for again this long after a mass absence.
const MASS_ABSENCE_AGAIN: Duration = Duration::from_secs(15);

/// Reads under way and wanted.
#[derive(Debug)]
pub struct Syncer {
    due: BTreeMap<AwsVolumeId, Monotonic>,
    by_time: BTreeSet<(Monotonic, AwsVolumeId)>,
    batches: BTreeMap<CommandId, Batch>,
    /// Pages that wait to be asked for.
    continued: Vec<Batch>,
    /// The same, of sweeps.
    continued_sweeps: Vec<Batch>,
    asked: BTreeSet<AwsVolumeId>,
    /// Missing from the last answer; how often they were asked for alone since they were last seen.
    missing: BTreeMap<AwsVolumeId, u32>,
    mass_absence_at: Option<Monotonic>,
    /// When the newest answer began in which any volume was found.
    found_at: Option<Monotonic>,
    /// Instances and instance types, for device names.
    pub instances: Instances,
    /// States of instances in doubt.
    pub states: States,
    /// Whether volumes are initialized.
    pub volume_statuses: VolumeStatuses,
    sweep: Sweep,
}

/// One request, over all its pages.
#[derive(Debug)]
struct Batch {
    asked: Vec<AwsVolumeId>,
    seen: Vec<VolumeReading>,
    began: Option<Monotonic>,
    next_token: Option<String>,
    purpose: Purpose,
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Operations that wait.
    Poll,
    /// The sweep; how often this batch failed before.
    Sweep { failures: u32 },
}

impl Batch {
    fn new(asked: Vec<AwsVolumeId>, purpose: Purpose) -> Self {
        Self { asked, seen: Vec::new(), began: None, next_token: None, purpose }
    }

    fn call(&self) -> Ec2Call {
        Ec2Call::DescribeVolumes { volumes: self.asked.clone(), next_token: self.next_token.clone() }
    }
}

/// A call to make.
#[derive(Debug)]
pub enum Read {
    /// DescribeVolumes; the batch is registered by [`Syncer::sent_volumes`].
    Volumes(Ec2Call, Ticket),
    /// DescribeInstances or DescribeInstanceTypes, for device names.
    Instances(Ec2Call),
    /// DescribeInstances or DescribeInstanceStatus, for instances in doubt.
    States(StateCall),
    /// DescribeVolumeStatus, of these.
    VolumeStatuses(Ec2Call, Vec<AwsVolumeId>),
}

/// A batch that is about to be sent.
#[derive(Debug)]
pub struct Ticket(Batch);

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

/// Who asked for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    /// An operation waits for it.
    Operation,
    /// Nobody: it was its turn.
    Sweep,
}

impl Syncer {
    /// One that knows of no volume yet and sweeps once in `period`.
    pub fn new(period: Duration) -> Self {
        Self {
            due: BTreeMap::new(),
            by_time: BTreeSet::new(),
            batches: BTreeMap::new(),
            continued: Vec::new(),
            continued_sweeps: Vec::new(),
            asked: BTreeSet::new(),
            missing: BTreeMap::new(),
            mass_absence_at: None,
            found_at: None,
            instances: Instances::default(),
            states: States::default(),
            volume_statuses: VolumeStatuses::default(),
            sweep: Sweep::new(period),
        }
    }

    /// Wants a read of the volume that begins not before `at`; an earlier wish stands.
    pub fn want_volume(&mut self, id: AwsVolumeId, at: Monotonic) {
        if let Some(due) = self.due.get(&id) {
            if *due <= at {
                return;
            }
            self.by_time.remove(&(*due, id.clone()));
        }
        self.sweep.wished(&id);
        self.by_time.insert((at, id.clone()));
        self.due.insert(id, at);
    }

    /// The volume belongs there now; `None`: it is no volume of this cluster any more, and nothing is remembered of it.
    pub fn place(&mut self, id: &AwsVolumeId, place: Option<Place>, now: Monotonic) {
        if place.is_none() {
            self.missing.remove(id);
            if let Some(due) = self.due.remove(id) {
                self.by_time.remove(&(due, id.clone()));
            }
        }
        self.sweep.place(id, place, self.is_awaited(id), now);
    }

    /// Whether the volume is one of this cluster, as far as the plans have told.
    pub fn has_place(&self, id: &AwsVolumeId) -> bool {
        self.sweep.has(id)
    }

    /// A lease was got: every volume is to be read again.
    pub fn lease_got(&mut self, now: Monotonic) {
        self.sweep.lease_got(now);
    }

    /// Whether somebody waits for a read of the volume.
    fn is_awaited(&self, id: &AwsVolumeId) -> bool {
        self.due.contains_key(id) || self.asked.contains(id)
    }

    /// When the next call may be made; `None` when nothing is wanted.
    pub fn next_due(&self, instance_period: Duration) -> Option<Monotonic> {
        if !self.continued.is_empty() || self.instances.is_due() {
            return Some(Monotonic::ZERO);
        }
        let volume = self.by_time.iter().find(|(_, id)| !self.asked.contains(id)).map(|(at, _)| *at);
        volume.into_iter().chain(self.states.next_due(instance_period)).chain(self.volume_statuses.next_due()).min()
    }

    /// When the next call of a sweep may be made, `share` being what throttles left of its rate.
    pub fn next_sweep_due(&self, share: f64) -> Option<Monotonic> {
        if !self.continued_sweeps.is_empty() { Some(Monotonic::ZERO) } else { self.sweep.next_due(share) }
    }

    /// The next call of a sweep that is due, if any: pages of a batch first.
    pub fn next_sweep(&mut self, share: f64, now: Monotonic) -> Option<(Ec2Call, Ticket)> {
        let batch = match self.continued_sweeps.pop() {
            Some(batch) => batch,
            None => {
                let SweepBatch { volumes, failures } = self.sweep.next_batch(share, now)?;
                Batch::new(volumes, Purpose::Sweep { failures })
            }
        };
        Some((batch.call(), Ticket(batch)))
    }

    /// How long the last whole sweep over the attachments took.
    pub fn last_sweep(&self) -> Option<Duration> {
        self.sweep.last_round()
    }

    /// Whether an answer of the last sweeps lacked so much that its absences were taken for no evidence.
    pub fn is_mass_absence(&self, now: Monotonic) -> bool {
        self.mass_absence_at.is_some_and(|at| now.saturating_since(at) < self.sweep.period() * 2)
    }

    /// The next call that is due, if any. Pages of a batch first, then instances (an attach waits for them), then volumes.
    ///
    /// Instances in doubt are read at short intervals, in one call for all: they go before volumes.
    pub fn next_call(
        &mut self,
        now: Monotonic,
        instance_period: Duration,
        nodes: &BTreeMap<InstanceId, NodeName>,
    ) -> Option<Read> {
        if let Some(batch) = self.continued.pop() {
            return Some(Read::Volumes(batch.call(), Ticket(batch)));
        }
        if let Some(call) = self.instances.next_call() {
            return Some(Read::Instances(call));
        }
        if let Some(call) = self.states.next_call(now, instance_period, nodes) {
            return Some(Read::States(call));
        }
        if let Some((call, asked)) = self.volume_statuses.next_call(now) {
            return Some(Read::VolumeStatuses(call, asked));
        }
        let asked = self.take_due(now);
        if asked.is_empty() {
            return None;
        }
        let batch = Batch::new(asked, Purpose::Poll);
        Some(Read::Volumes(batch.call(), Ticket(batch)))
    }

    fn take_due(&mut self, now: Monotonic) -> Vec<AwsVolumeId> {
        let ready = |at: Monotonic| at <= now;
        let first = self.by_time.iter().find(|(at, id)| ready(*at) && !self.asked.contains(id)).cloned();
        let Some(first) = first else { return Vec::new() };
        let mut taken = Vec::new();
        if self.is_suspected(&first.1) {
            taken.push(first);
        } else {
            let horizon = now + RIDE_ALONG;
            let rides = self.by_time.iter().take_while(|(at, _)| *at <= horizon);
            let rides = rides.filter(|(_, id)| !self.asked.contains(id) && !self.is_suspected(id));
            taken.extend(rides.take(BATCH_MAX).cloned());
        }
        let mut asked = Vec::with_capacity(taken.len());
        for (at, id) in taken {
            self.by_time.remove(&(at, id.clone()));
            self.due.remove(&id);
            self.asked.insert(id.clone());
            asked.push(id);
        }
        asked.sort();
        asked
    }

    /// A batch was sent as this command.
    pub fn sent_volumes(&mut self, id: CommandId, ticket: Ticket) {
        self.batches.insert(id, ticket.0);
    }

    /// Missing from the answer of a batch: asked for alone before it is believed gone.
    fn is_suspected(&self, id: &AwsVolumeId) -> bool {
        self.missing.get(id).is_some_and(|alone| *alone < ALONE)
    }

    /// The outcome of a page: once the batch is complete, what each volume asked for looked like.
    pub fn absorb_volumes(&mut self, outcome: Outcome) -> Vec<Sighting> {
        let Some(mut batch) = self.batches.remove(&outcome.id) else { return Vec::new() };
        let began = *batch.began.get_or_insert(outcome.began.monotonic);
        match outcome.result {
            CallResult::Done(Answer::Volumes { volumes, next_token }) => {
                if !volumes.is_empty() {
                    self.found_at = self.found_at.max(Some(outcome.began.monotonic));
                }
                batch.seen.extend(volumes);
                if next_token.is_some() {
                    batch.next_token = next_token;
                    match batch.purpose {
                        Purpose::Poll => self.continued.push(batch),
                        Purpose::Sweep { .. } => self.continued_sweeps.push(batch),
                    }
                    return Vec::new();
                }
                self.judge(batch, began, outcome.ended.monotonic)
            }
            result => {
                self.void(batch, began, outcome.ended.monotonic, result == CallResult::Throttled);
                Vec::new()
            }
        }
    }

    /// Whether any volume or instance of this cluster was found by a read begun at `at` or later: in the wrong region or
    /// account nothing is, and then absence proves nothing (rule 17).
    pub fn has_found_any_since(&self, at: Monotonic) -> bool {
        self.found_at.max(self.states.found_at()).is_some_and(|found| found >= at)
    }

    fn void(&mut self, batch: Batch, began: Monotonic, ended: Monotonic, throttled: bool) {
        match batch.purpose {
            Purpose::Poll => {
                for id in batch.asked {
                    self.asked.remove(&id);
                    self.want_volume(id, ended + RETRY_AFTER);
                }
            }
            Purpose::Sweep { failures } => {
                self.sweep.failed(SweepBatch { volumes: batch.asked, failures }, began, ended, throttled);
            }
        }
    }

    fn judge(&mut self, batch: Batch, began: Monotonic, ended: Monotonic) -> Vec<Sighting> {
        let by = match batch.purpose {
            Purpose::Poll => AskedBy::Operation,
            Purpose::Sweep { .. } => AskedBy::Sweep,
        };
        if by == AskedBy::Sweep {
            self.sweep.succeeded(ended);
        }
        let mut seen: BTreeMap<AwsVolumeId, VolumeReading> =
            batch.seen.into_iter().map(|volume| (volume.id.clone(), volume)).collect();
        let alone = batch.asked.len() == 1;
        let is_news = |id: &&AwsVolumeId| !seen.contains_key(*id) && self.missing.get(*id).is_none_or(|n| *n < ALONE);
        let newly_missing = batch.asked.iter().filter(is_news).count();
        let mass = batch.asked.len() >= MASS_ABSENCE_FROM && newly_missing * 10 > batch.asked.len();
        if mass {
            self.mass_absence_at = Some(ended);
        }
        let mut sightings = Vec::with_capacity(batch.asked.len());
        for id in batch.asked {
            if by == AskedBy::Operation {
                self.asked.remove(&id);
            }
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
                self.want_volume(id.clone(), ended + MASS_ABSENCE_AGAIN);
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
        self.want_volume(id.clone(), ended);
        None
    }

    /// Whether somebody waited for this read, though it may have been a sweep that asked; the wish is then fulfilled.
    fn waited_for(&mut self, id: &AwsVolumeId, by: AskedBy, began: Monotonic) -> AskedBy {
        if by == AskedBy::Operation || !self.is_awaited(id) {
            return by;
        }
        if let Some(due) = self.due.get(id).filter(|due| **due <= began).copied() {
            self.due.remove(id);
            self.by_time.remove(&(due, id.clone()));
        }
        AskedBy::Operation
    }
}
