//! What device names and EBS cards of an instance are taken, as far as a name has to be chosen.
//!
//! Flow: an attach asks for an instance; one batched DescribeInstances (and DescribeInstanceTypes, once a type) answers.
//! Block device mappings are a hint only: they say which names to avoid, never what is attached (rule 16). Owns one
//! [`DeviceTable`] per instance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::controller::command::Ec2Call;
use crate::controller::devices::DeviceTable;
use crate::model::ids::{InstanceId, InstanceType, Zone};
use crate::model::time::Monotonic;
use crate::model::volume::{InstanceReading, InstanceTypeReading};

/// A hint older than this is read again before a name is chosen.
const HINT_MAX_AGE: Duration = Duration::from_secs(600);
/// An instance that EC2 does not show, or whose read failed, is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Instances asked for in one call (EC2's limit of filter values).
const BATCH_MAX: usize = 200;
/// Types asked for in one call (EC2's limit).
const TYPES_MAX: usize = 100;

/// Instances and types.
#[derive(Debug, Default)]
pub struct Instances {
    known: BTreeMap<InstanceId, InstanceRecord>,
    cards: BTreeMap<InstanceType, u32>,
    wanted: BTreeSet<InstanceId>,
    wanted_types: BTreeSet<InstanceType>,
    asked: BTreeSet<InstanceId>,
    asked_types: BTreeSet<InstanceType>,
    /// Requests of which another page is to be asked for.
    continued: Vec<(Vec<InstanceId>, String)>,
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
            if !self.asked_types.contains(kind) {
                self.wanted_types.insert(kind.clone());
            }
            return Readiness::Asked;
        }
        if let Some(at) = record.missing_at
            && now < at + ASK_AGAIN
        {
            return Readiness::NotVisible(at + ASK_AGAIN);
        }
        if !self.asked.contains(instance) {
            self.wanted.insert(instance.clone());
        }
        Readiness::Asked
    }

    /// The instance is gone for good.
    pub fn forget(&mut self, instance: &InstanceId) {
        self.known.remove(instance);
    }

    /// The hint of an instance proved wrong: it is read again before the next choice.
    pub fn distrust(&mut self, instance: &InstanceId) {
        self.record(instance).read_at = None;
    }

    /// Whether a call is wanted.
    pub fn is_due(&self) -> bool {
        !self.wanted.is_empty() || !self.wanted_types.is_empty() || !self.continued.is_empty()
    }

    /// The next call.
    pub fn next_call(&mut self) -> Option<Ec2Call> {
        if let Some((instances, token)) = self.continued.pop() {
            return Some(Ec2Call::DescribeInstances { instances, next_token: Some(token) });
        }
        if !self.wanted.is_empty() {
            let mut instances = Vec::new();
            while instances.len() < BATCH_MAX
                && let Some(instance) = self.wanted.pop_first()
            {
                self.asked.insert(instance.clone());
                instances.push(instance);
            }
            return Some(Ec2Call::DescribeInstances { instances, next_token: None });
        }
        let mut types = Vec::new();
        while types.len() < TYPES_MAX
            && let Some(kind) = self.wanted_types.pop_first()
        {
            self.asked_types.insert(kind.clone());
            types.push(kind);
        }
        (!types.is_empty()).then_some(Ec2Call::DescribeInstanceTypes { types })
    }

    /// An answer of DescribeInstances for `asked`; with a token, another page follows.
    pub fn absorb(
        &mut self,
        asked: &[InstanceId],
        readings: Vec<InstanceReading>,
        token: Option<String>,
        now: Monotonic,
    ) {
        for reading in readings {
            self.asked.remove(&reading.id);
            let record = self.known.entry(reading.id.clone()).or_default();
            record.read_at = Some(now);
            record.missing_at = None;
            record.kind = Some(reading.instance_type.clone());
            record.zone = Some(reading.zone.clone());
            record.devices.set_mappings(&reading.mappings);
        }
        if let Some(token) = token {
            self.continued.push((asked.to_vec(), token));
            return;
        }
        for instance in asked {
            if self.asked.remove(instance) {
                self.known.entry(instance.clone()).or_default().missing_at = Some(now);
            }
        }
    }

    /// A read of these failed.
    pub fn failed(&mut self, asked: &[InstanceId], now: Monotonic) {
        for instance in asked {
            if self.asked.remove(instance) {
                self.known.entry(instance.clone()).or_default().missing_at = Some(now);
            }
        }
    }

    /// The instances known to be of these types.
    pub fn of_types(&self, types: &[InstanceType]) -> Vec<InstanceId> {
        let of = |record: &InstanceRecord| record.kind.as_ref().is_some_and(|kind| types.contains(kind));
        self.known.iter().filter(|(_, record)| of(record)).map(|(instance, _)| instance.clone()).collect()
    }

    /// The answer of DescribeInstanceTypes for `asked`, or that it failed: a type that is not answered is taken to have
    /// one card, which is what all but the largest have.
    pub fn absorb_types(&mut self, asked: &[InstanceType], readings: Option<Vec<InstanceTypeReading>>) {
        for kind in asked {
            self.asked_types.remove(kind);
        }
        for reading in readings.into_iter().flatten() {
            self.cards.insert(reading.instance_type, reading.ebs_cards.max(1));
        }
        for kind in asked {
            self.cards.entry(kind.clone()).or_insert(1);
        }
    }
}
