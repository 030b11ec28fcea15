//! When EC2 is read, and what for: one shared poll for every volume that waits, instances and types for device names.
//!
//! Flow: state machines say which volume they want read and from when on; [`Syncer::next_calls`] makes bulk requests as
//! the describe budget allows; answers come back through [`Syncer::absorb_volumes`] as one [`Sight`] per volume asked for.
//! Owns the batches under way. Must never let a failed page say anything about a volume (rule 17).

pub mod instances;
pub mod states;

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

/// Values one filter takes (EC2's documented limit).
const BATCH_MAX: usize = 200;
/// Volumes due this soon ride along: fewer calls for the same freshness.
const RIDE_ALONG: Duration = Duration::from_millis(150);
/// A failed batch is asked again after this.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Reads under way and wanted.
#[derive(Debug, Default)]
pub struct Syncer {
    due: BTreeMap<AwsVolumeId, Monotonic>,
    by_time: BTreeSet<(Monotonic, AwsVolumeId)>,
    batches: BTreeMap<CommandId, Batch>,
    /// Pages that wait to be asked for.
    continued: Vec<Batch>,
    asked: BTreeSet<AwsVolumeId>,
    /// Not among the answers of a batch: asked for alone before it is believed.
    suspected: BTreeSet<AwsVolumeId>,
    /// When the newest answer began in which any volume was found.
    found_at: Option<Monotonic>,
    /// Instances and instance types, for device names.
    pub instances: Instances,
    /// States of instances in doubt.
    pub states: States,
}

/// One request, over all its pages.
#[derive(Debug)]
struct Batch {
    asked: Vec<AwsVolumeId>,
    seen: Vec<VolumeReading>,
    began: Option<Monotonic>,
    next_token: Option<String>,
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
}

/// A batch that is about to be sent.
#[derive(Debug)]
pub struct Ticket(Batch);

impl Syncer {
    /// Wants a read of the volume that begins not before `at`; an earlier wish stands.
    pub fn want_volume(&mut self, id: AwsVolumeId, at: Monotonic) {
        if let Some(due) = self.due.get(&id) {
            if *due <= at {
                return;
            }
            self.by_time.remove(&(*due, id.clone()));
        }
        self.by_time.insert((at, id.clone()));
        self.due.insert(id, at);
    }

    /// When the next call may be made; `None` when nothing is wanted.
    pub fn next_due(&self, instance_period: Duration) -> Option<Monotonic> {
        if !self.continued.is_empty() || self.instances.is_due() {
            return Some(Monotonic::ZERO);
        }
        let volume = self.by_time.iter().find(|(_, id)| !self.asked.contains(id)).map(|(at, _)| *at);
        volume.into_iter().chain(self.states.next_due(instance_period)).min()
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
            let call = Ec2Call::DescribeVolumes { volumes: batch.asked.clone(), next_token: batch.next_token.clone() };
            return Some(Read::Volumes(call, Ticket(batch)));
        }
        if let Some(call) = self.instances.next_call() {
            return Some(Read::Instances(call));
        }
        if let Some(call) = self.states.next_call(now, instance_period, nodes) {
            return Some(Read::States(call));
        }
        let asked = self.take_due(now);
        if asked.is_empty() {
            return None;
        }
        let call = Ec2Call::DescribeVolumes { volumes: asked.clone(), next_token: None };
        Some(Read::Volumes(call, Ticket(Batch { asked, seen: Vec::new(), began: None, next_token: None })))
    }

    fn take_due(&mut self, now: Monotonic) -> Vec<AwsVolumeId> {
        let ready = |at: Monotonic| at <= now;
        let first = self.by_time.iter().find(|(at, id)| ready(*at) && !self.asked.contains(id)).cloned();
        let Some(first) = first else { return Vec::new() };
        let mut taken = Vec::new();
        if self.suspected.contains(&first.1) {
            taken.push(first);
        } else {
            let horizon = now + RIDE_ALONG;
            let rides = self.by_time.iter().take_while(|(at, _)| *at <= horizon);
            let rides = rides.filter(|(_, id)| !self.asked.contains(id) && !self.suspected.contains(id));
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

    /// The outcome of a page: once the batch is complete, what each volume asked for looked like, and when the first page
    /// began (nothing is proved about later calls).
    pub fn absorb_volumes(&mut self, outcome: Outcome) -> Vec<(AwsVolumeId, Sight, Monotonic)> {
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
                    self.continued.push(batch);
                    return Vec::new();
                }
                self.judge(batch, began, outcome.ended.monotonic)
            }
            _ => {
                self.void(batch, outcome.ended.monotonic + RETRY_AFTER);
                Vec::new()
            }
        }
    }

    /// Whether any volume or instance of this cluster was found by a read begun at `at` or later: in the wrong region or
    /// account nothing is, and then absence proves nothing (rule 17).
    pub fn has_found_any_since(&self, at: Monotonic) -> bool {
        self.found_at.max(self.states.found_at()).is_some_and(|found| found >= at)
    }

    fn void(&mut self, batch: Batch, again: Monotonic) {
        for id in batch.asked {
            self.asked.remove(&id);
            self.want_volume(id, again);
        }
    }

    fn judge(&mut self, batch: Batch, began: Monotonic, ended: Monotonic) -> Vec<(AwsVolumeId, Sight, Monotonic)> {
        let mut seen: BTreeMap<AwsVolumeId, VolumeReading> =
            batch.seen.into_iter().map(|volume| (volume.id.clone(), volume)).collect();
        let alone = batch.asked.len() == 1;
        let mut sights = Vec::with_capacity(batch.asked.len());
        for id in batch.asked {
            self.asked.remove(&id);
            match seen.remove(&id) {
                Some(mut volume) => {
                    self.suspected.remove(&id);
                    // EC2 gives attachments in no order; agreement is judged by equality.
                    volume
                        .attachments
                        .sort_by(|a, b| a.instance.cmp(&b.instance).then_with(|| a.device.cmp(&b.device)));
                    sights.push((id, Sight::Seen(volume), began));
                }
                None if alone => sights.push((id, Sight::Missing, began)),
                None => {
                    self.suspected.insert(id.clone());
                    self.want_volume(id, ended);
                }
            }
        }
        sights
    }
}
