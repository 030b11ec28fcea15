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
use crate::model::outcome::{CallResult, Ec2Refusal, Refusal};
use crate::model::time::Monotonic;
use crate::model::volume::{InstanceReading, InstanceTypeReading};

/// A hint older than this is read again before a name is chosen.
const HINT_MAX_AGE: Duration = Duration::from_secs(600);
/// An instance that EC2 does not show, or whose read failed, is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Types whose read failed are asked for again after this: attaches wait for it.
const TYPES_AGAIN: Duration = Duration::from_secs(1);
/// A type that EC2 refused to tell of is asked for again after this, if an attach needs it then.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);

/// Instances and types.
#[derive(Debug, Default)]
pub struct Instances {
    known: BTreeMap<InstanceId, InstanceRecord>,
    cards: BTreeMap<InstanceType, Cards>,
    due: Due<InstanceId>,
    due_types: Due<InstanceType>,
    /// Halves of a batch of types that EC2 refused.
    halves: Vec<Batch<InstanceTypeReading>>,
}

/// What is known of the EBS cards of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cards {
    /// EC2 told so many.
    Told(u32),
    /// EC2 refused to tell (the right to ask is optional): no card is named meanwhile. Not asked for before this time.
    Refused(Monotonic),
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
            let (answer, ask_at) = match self.cards.get(kind) {
                Some(Cards::Told(cards)) => return Readiness::Ready(*cards),
                Some(Cards::Refused(again)) => (Readiness::Ready(1), *again),
                None => (Readiness::Asked, now),
            };
            if !self.due_types.has(kind) {
                self.due_types.want(kind, ask_at);
            }
            return answer;
        }
        if let Some(at) = record.missing_at
            && now < at + ASK_AGAIN
        {
            return Readiness::NotVisible(at + ASK_AGAIN);
        }
        self.want(instance, now);
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
        let half = (!self.halves.is_empty()).then_some(Monotonic::ZERO);
        [half, self.due.next(), self.due_types.next()].into_iter().flatten().min()
    }

    /// The next read that is due.
    pub fn next_read(&mut self, now: Monotonic) -> Option<Read> {
        let instances = self.due.take(now, Duration::ZERO, FILTER_MAX, |_| false);
        Batch::of(instances).map(Read::Devices).or_else(|| {
            let types = || Batch::of(self.due_types.take(now, Duration::ZERO, NAMED_MAX, |_| false));
            self.halves.pop().or_else(types).map(Read::Types)
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

    /// Takes in what types are like. One that a whole answer left out is taken to have one card, which is what all but the
    /// largest have; a failed read says nothing of any (rule 10).
    pub fn absorb_types(&mut self, end: End<InstanceTypeReading>) {
        match &end.shown {
            Ok(_) => self.types_told(end),
            Err(CallResult::Refused(refusal)) if end.asked.len() > 1 && !is_unauthorized(refusal) => {
                // One name that EC2 does not know fails the call for all.
                self.halves.extend(end.halves());
            }
            Err(CallResult::Refused(_)) => {
                for kind in end.asked {
                    self.due_types.answered(&kind);
                    self.cards.insert(kind, Cards::Refused(end.ended + REFUSED_AGAIN));
                }
            }
            Err(_) => {
                for kind in end.asked {
                    self.due_types.answered(&kind);
                    self.due_types.want(&kind, end.ended + TYPES_AGAIN);
                }
            }
        }
    }

    fn types_told(&mut self, end: End<InstanceTypeReading>) {
        let shown = end.shown.unwrap_or_default().into_iter();
        let told: BTreeMap<_, _> = shown.map(|reading| (reading.instance_type, reading.ebs_cards.max(1))).collect();
        for kind in end.asked {
            self.due_types.answered(&kind);
            let cards = told.get(&kind).copied().unwrap_or(1);
            let before = self.cards.insert(kind.clone(), Cards::Told(cards));
            if cards > 1 && matches!(before, Some(Cards::Refused(_))) {
                // What was attached meanwhile stands on the first card; only a new hint counts it there.
                for record in self.known.values_mut().filter(|record| record.kind.as_ref() == Some(&kind)) {
                    record.read_at = None;
                }
            }
        }
    }
}

fn is_unauthorized(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Ec2 { meaning: Ec2Refusal::Unauthorized, .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::classify_ec2;
    use crate::model::volume::InstanceState;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn kind(number: usize) -> InstanceType {
        InstanceType::new(format!("t{number:02}"))
    }

    fn instance(number: usize) -> InstanceId {
        InstanceId::parse(&format!("i-{number:05x}")).unwrap()
    }

    /// One instance of each of `count` types, its devices read at 0 s, and every type is wanted.
    fn wanted(count: usize) -> Instances {
        let mut instances = Instances::default();
        let reading = |number| InstanceReading {
            id: instance(number),
            state: InstanceState::Running,
            instance_type: kind(number),
            zone: Zone::new("z"),
            mappings: Vec::new(),
        };
        let shown: Vec<_> = (0..count).map(reading).collect();
        let asked = shown.iter().map(|reading| reading.id.clone()).collect();
        instances.absorb(End { asked, began: at(0), ended: at(0), shown: Ok(shown) });
        for number in 0..count {
            assert_eq!(instances.ready(&instance(number), at(0)), Readiness::Asked);
        }
        instances
    }

    fn asked(instances: &mut Instances, seconds: u64) -> Vec<InstanceType> {
        match instances.next_read(at(seconds)) {
            Some(Read::Types(batch)) => batch.asked,
            _ => Vec::new(),
        }
    }

    /// The call for `types` ends at `seconds`.
    fn answer(
        instances: &mut Instances,
        types: &[InstanceType],
        seconds: u64,
        shown: Result<Vec<InstanceTypeReading>, CallResult>,
    ) {
        instances.absorb_types(End { asked: types.to_vec(), began: at(seconds), ended: at(seconds), shown });
    }

    fn told(types: &[InstanceType], ebs_cards: u32) -> Vec<InstanceTypeReading> {
        types.iter().map(|kind| InstanceTypeReading { instance_type: kind.clone(), ebs_cards }).collect()
    }

    #[test]
    fn a_failed_read_says_nothing_of_any_type() {
        for failed in [CallResult::Throttled, CallResult::NotSent, CallResult::Uncertain("cut off".into())] {
            let mut instances = wanted(2);
            let types = asked(&mut instances, 0);
            answer(&mut instances, &types, 1, Err(failed));
            assert_eq!(instances.ready(&instance(0), at(1)), Readiness::Asked);
            assert_eq!((instances.next_due(), asked(&mut instances, 1)), (Some(at(2)), Vec::new()));
            assert_eq!(asked(&mut instances, 2), types);
            answer(&mut instances, &types, 2, Ok(told(&types, 2)));
            assert_eq!(instances.ready(&instance(1), at(2)), Readiness::Ready(2));
            assert_eq!(instances.next_due(), None);
        }
    }

    #[test]
    fn a_type_that_a_whole_answer_leaves_out_has_one_card() {
        let mut instances = wanted(2);
        let types = asked(&mut instances, 0);
        answer(&mut instances, &types, 0, Ok(told(&types[..1], 2)));
        assert_eq!(instances.ready(&instance(0), at(0)), Readiness::Ready(2));
        assert_eq!(instances.ready(&instance(1), at(0)), Readiness::Ready(1));
    }

    #[test]
    fn a_type_that_ec2_does_not_know_harms_only_itself() {
        let mut instances = wanted(10);
        loop {
            let types = asked(&mut instances, 0);
            if types.is_empty() {
                break;
            }
            let is_spoilt = types.contains(&kind(3));
            let refused = classify_ec2("InvalidInstanceType", "The following supplied instance types do not exist");
            answer(&mut instances, &types, 0, if is_spoilt { Err(refused) } else { Ok(told(&types, 2)) });
        }
        let two = (0..10).filter(|number| instances.ready(&instance(*number), at(0)) == Readiness::Ready(2)).count();
        assert_eq!((two, instances.ready(&instance(3), at(0))), (9, Readiness::Ready(1)));
    }

    #[test]
    fn a_right_that_is_missing_keeps_no_attach_waiting_and_costs_at_most_one_call_a_minute() {
        let mut instances = wanted(2);
        let types = asked(&mut instances, 0);
        answer(&mut instances, &types, 0, Err(classify_ec2("UnauthorizedOperation", "")));
        assert_eq!(instances.next_due(), None, "nobody needs it");
        assert_eq!(instances.ready(&instance(0), at(1)), Readiness::Ready(1));
        assert_eq!((asked(&mut instances, 59), asked(&mut instances, 60)), (vec![], types[..1].to_vec()));
        assert_eq!(instances.ready(&instance(0), at(60)), Readiness::Ready(1), "also while it is asked for");
        answer(&mut instances, &types[..1], 61, Ok(told(&types[..1], 2)));
        assert_eq!(instances.ready(&instance(0), at(61)), Readiness::Asked, "what it holds by now is read first");
    }
}
