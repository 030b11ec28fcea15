//! What device names and EBS cards of an instance are taken, as far as a name has to be chosen.
//!
//! Flow: an attach asks for an instance; one batched DescribeInstances (and DescribeInstanceTypes, once a type) answers.
//! Block device mappings are a hint only: they say which names to avoid, never what is attached (rule 16). Owns one
//! [`DeviceTable`] per instance.

use std::collections::BTreeMap;
use std::time::Duration;

use super::batch::{Batch, End, FILTER_MAX, NAMED_MAX, Read};
use super::due::Due;
use crate::controller::devices::DeviceTable;
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType, Zone};
use crate::model::time::Monotonic;
use crate::model::volume::{InstanceReading, InstanceTypeReading};

/// A hint older than this is read again before a name is chosen.
const HINT_MAX_AGE: Duration = Duration::from_secs(600);
/// An instance that EC2 does not show, or whose read failed, is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Instances and types.
#[derive(Debug, Default)]
pub struct Instances {
    known: BTreeMap<InstanceId, InstanceRecord>,
    cards: BTreeMap<InstanceType, u32>,
    due: Due<InstanceId>,
    due_types: Due<InstanceType>,
}

/// One instance.
#[derive(Debug, Default)]
pub struct InstanceRecord {
    /// Device names.
    pub devices: DeviceTable,
    /// Its zone, once EC2 showed it.
    pub zone: Option<Zone>,
    kind: Option<InstanceType>,
    read_at: Option<Monotonic>,
    missing_at: Option<Monotonic>,
}

/// Whether a device name can be chosen on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Yes; the number of EBS cards.
    Ready(u32),
    /// It is being read.
    Asked,
    /// EC2 does not show it (yet); asked again at this time.
    NotVisible(Monotonic),
}

impl Instances {
    /// The record of an instance.
    pub fn record(&mut self, instance: &InstanceId) -> &mut InstanceRecord {
        self.known.entry(instance.clone()).or_default()
    }

    /// Whether device names of the instance are kept for volumes that may still be mounted under them.
    pub fn has_blocked_names(&self, instance: &InstanceId) -> bool {
        self.known.get(instance).is_some_and(|record| record.devices.blocked().next().is_some())
    }

    /// Whether a name can be chosen now; asks EC2 if not.
    pub fn ready(&mut self, instance: &InstanceId, now: Monotonic) -> Readiness {
        let record = self.known.entry(instance.clone()).or_default();
        let fresh = record.read_at.is_some_and(|at| now.saturating_since(at) < HINT_MAX_AGE);
        if fresh && let Some(kind) = &record.kind {
            if let Some(cards) = self.cards.get(kind) {
                return Readiness::Ready(*cards);
            }
            if !self.due_types.has(kind) {
                self.due_types.want(kind, now);
            }
            return Readiness::Asked;
        }
        if let Some(at) = record.missing_at
            && now < at + ASK_AGAIN
        {
            return Readiness::NotVisible(at + ASK_AGAIN);
        }
        if !self.due.has(instance) {
            self.due.want(instance, now);
        }
        Readiness::Asked
    }

    /// Has the instance read, whatever is known of it.
    pub fn want(&mut self, instance: &InstanceId, now: Monotonic) {
        if !self.due.has(instance) {
            self.due.want(instance, now);
        }
    }

    /// The volumes mapped on the instance, as far as it was read: candidates, nothing is proved by them.
    pub fn mapped_on(&self, instance: &InstanceId) -> impl Iterator<Item = &AwsVolumeId> {
        self.known.get(instance).into_iter().flat_map(|record| record.devices.mapped())
    }

    /// The instance is gone for good.
    pub fn forget(&mut self, instance: &InstanceId) {
        self.known.remove(instance);
    }

    /// The hint of an instance proved wrong: it is read again before the next choice.
    pub fn distrust(&mut self, instance: &InstanceId) {
        self.record(instance).read_at = None;
    }

    /// When the next read may be made; `None` when nothing is wanted.
    pub fn next_due(&self) -> Option<Monotonic> {
        self.due.next().into_iter().chain(self.due_types.next()).min()
    }

    /// The next read that is due.
    pub fn next_read(&mut self, now: Monotonic) -> Option<Read> {
        let instances = self.due.take(now, Duration::ZERO, FILTER_MAX, |_| false);
        Batch::of(instances).map(Read::Devices).or_else(|| {
            let types = self.due_types.take(now, Duration::ZERO, NAMED_MAX, |_| false);
            Batch::of(types).map(Read::Types)
        })
    }

    /// Takes in what instances looked like. One that was not shown is asked for again if still needed.
    pub fn absorb(&mut self, end: End<InstanceReading>) {
        let now = end.ended;
        for reading in end.shown.unwrap_or_default() {
            self.due.answered(&reading.id);
            let record = self.record(&reading.id);
            record.read_at = Some(now);
            record.missing_at = None;
            record.kind = Some(reading.instance_type);
            record.zone = Some(reading.zone);
            record.devices.set_mappings(&reading.mappings);
        }
        for instance in end.asked {
            if self.due.answered(&instance) {
                self.record(&instance).missing_at = Some(now);
            }
        }
    }

    /// The instances known to be of these types.
    pub fn of_types(&self, types: &[InstanceType]) -> Vec<InstanceId> {
        let of = |record: &InstanceRecord| record.kind.as_ref().is_some_and(|kind| types.contains(kind));
        self.known.iter().filter(|(_, record)| of(record)).map(|(instance, _)| instance.clone()).collect()
    }

    /// Takes in what types are like: one that was not shown is taken to have one card, which is what all but the largest
    /// have.
    pub fn absorb_types(&mut self, end: End<InstanceTypeReading>) {
        for reading in end.shown.unwrap_or_default() {
            self.cards.insert(reading.instance_type, reading.ebs_cards.max(1));
        }
        for kind in end.asked {
            self.due_types.answered(&kind);
            self.cards.entry(kind).or_insert(1);
        }
    }
}
