//! One bulk read of EC2, over all its pages.
//!
//! Flow: a part of the syncer says what it wants to read; the call of the next page goes out, and the [`Read`] with it, as
//! what the command is for; the outcome goes into [`Batch::absorb`], which gives back the batch, for the next page, or its
//! [`End`]. Owns what was asked for and what the pages showed so far. Must never let a page count before all of its batch
//! are there, nor any of them when one failed (rule 17).

use crate::controller::command::Ec2Call;
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType};
use crate::model::outcome::{Answer, CallResult, Ec2Refusal, Outcome, Refusal};
use crate::model::time::Monotonic;
use crate::model::volume::{
    InstanceReading, InstanceStatusReading, InstanceTypeReading, VolumeReading, VolumeStatusReading,
};

/// Values one filter takes (EC2's documented limit).
pub const FILTER_MAX: usize = 200;
/// Ids in one call that names them and has no filter for them (EC2's documented limit for most such calls). One that EC2
/// does not know fails the whole call: a larger batch would lose more to it.
pub const NAMED_MAX: usize = 100;

/// A read under way: what for, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// What volumes are attached to.
    Volumes(Batch<VolumeReading>, AskedBy),
    /// States of instances in doubt.
    States(Batch<InstanceReading>),
    /// Status checks of instances in doubt.
    Checks(Batch<InstanceStatusReading>),
    /// Device names that are taken on instances.
    Devices(Batch<InstanceReading>),
    /// EBS cards of instance types.
    Types(Batch<InstanceTypeReading>),
    /// Whether volumes are initialized.
    VolumeStatuses(Batch<VolumeStatusReading>),
}

/// Who asked for a read of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    /// An operation waits for it.
    Operation,
    /// Nobody: it was its turn.
    Sweep {
        /// How often this batch failed before.
        failures: u32,
    },
}

impl Read {
    /// The call of its next page.
    pub fn call(&self) -> Ec2Call {
        match self {
            Self::Volumes(batch, _) => batch.call(),
            Self::States(batch) | Self::Devices(batch) => batch.call(),
            Self::Checks(batch) => batch.call(),
            Self::Types(batch) => batch.call(),
            Self::VolumeStatuses(batch) => batch.call(),
        }
    }
}

/// What is asked for in one request, and what its pages showed so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<R: Reading> {
    /// What is asked for.
    pub asked: Vec<R::Id>,
    seen: Vec<R>,
    began: Option<Monotonic>,
    next_token: Option<String>,
}

/// A batch that is over.
#[derive(Debug)]
pub struct End<R: Reading> {
    /// What was asked for.
    pub asked: Vec<R::Id>,
    /// When the first page was asked for: nothing is proved about calls that ended later.
    pub began: Monotonic,
    /// When the last page was there.
    pub ended: Monotonic,
    /// What all pages together showed; or what came of the page that failed, and then nothing was shown of anything.
    pub shown: Result<Vec<R>, CallResult>,
}

impl<R: Reading> Batch<R> {
    /// A read of these; `None` if there are none.
    pub fn of(asked: Vec<R::Id>) -> Option<Self> {
        (!asked.is_empty()).then_some(Self { asked, seen: Vec::new(), began: None, next_token: None })
    }

    /// The call of its next page.
    fn call(&self) -> Ec2Call {
        R::call(self.asked.clone(), self.next_token.clone())
    }

    /// Takes in the outcome of a page.
    ///
    /// # Errors
    ///
    /// The batch itself when another page follows.
    pub fn absorb(mut self, outcome: Outcome) -> Result<End<R>, Self> {
        let began = *self.began.get_or_insert(outcome.began.monotonic);
        let shown = match R::page(outcome.result) {
            Ok((readings, next_token)) => {
                self.seen.extend(readings);
                if next_token.is_some() {
                    return Err(Self { next_token, ..self });
                }
                Ok(self.seen)
            }
            Err(failed) => Err(failed),
        };
        Ok(End { asked: self.asked, began, ended: outcome.ended.monotonic, shown })
    }
}

impl<R: Reading> End<R> {
    /// Whether one id that EC2 does not know failed the call for several: that says nothing of the others.
    pub fn is_spoilt_by_one(&self) -> bool {
        let Err(CallResult::Refused(Refusal::Ec2 { meaning, .. })) = &self.shown else { return false };
        matches!(meaning, Ec2Refusal::VolumeNotFound | Ec2Refusal::InstanceNotFound) && self.asked.len() > 1
    }

    /// What was asked for, to be asked for again in two calls: whatever spoils one does not spoil the other. The first
    /// half comes last.
    pub fn halves(&self) -> impl Iterator<Item = Batch<R>> {
        let (one, other) = self.asked.split_at(self.asked.len() / 2);
        [other, one].into_iter().filter_map(|half| Batch::of(half.to_vec()))
    }
}

/// Whether so many of those that are known are absent at once that nothing is believed of any of them: the wrong region,
/// account or role looks so. One that is absent while others are there is news of that one (rule 17).
pub fn is_mass_absence(absent: usize, known: usize) -> bool {
    absent > 1 && absent * 10 > known
}

/// One page, and the token of the next.
type Page<R> = (Vec<R>, Option<String>);

/// What a bulk read shows of one thing.
pub trait Reading: Sized {
    /// What it is asked for by.
    type Id: Clone;

    /// The call that asks for one page.
    fn call(asked: Vec<Self::Id>, next_token: Option<String>) -> Ec2Call;

    /// The page in an outcome.
    ///
    /// # Errors
    ///
    /// What came instead of one.
    fn page(result: CallResult) -> Result<Page<Self>, CallResult>;
}

macro_rules! paged {
    ($reading:ident of $id:ident: $call:ident { $ids:ident } shows $answer:ident { $readings:ident }) => {
        impl Reading for $reading {
            type Id = $id;

            fn call($ids: Vec<$id>, next_token: Option<String>) -> Ec2Call {
                Ec2Call::$call { $ids, next_token }
            }

            fn page(result: CallResult) -> Result<Page<Self>, CallResult> {
                match result {
                    CallResult::Done(Answer::$answer { $readings, next_token }) => Ok(($readings, next_token)),
                    other => Err(other),
                }
            }
        }
    };
}

paged!(VolumeReading of AwsVolumeId: DescribeVolumes { volumes } shows Volumes { volumes });
paged!(InstanceReading of InstanceId: DescribeInstances { instances } shows Instances { instances });
paged!(InstanceStatusReading of InstanceId: DescribeInstanceStatus { instances } shows InstanceStatuses { statuses });
paged!(VolumeStatusReading of AwsVolumeId: DescribeVolumeStatus { volumes } shows VolumeStatuses { statuses });

impl Reading for InstanceTypeReading {
    type Id = InstanceType;

    fn call(types: Vec<InstanceType>, _: Option<String>) -> Ec2Call {
        Ec2Call::DescribeInstanceTypes { types }
    }

    fn page(result: CallResult) -> Result<Page<Self>, CallResult> {
        match result {
            CallResult::Done(Answer::InstanceTypes(types)) => Ok((types, None)),
            other => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::outcome::CommandId;
    use crate::model::time::Now;

    fn id(number: usize) -> AwsVolumeId {
        AwsVolumeId::parse(&format!("vol-{number:05x}")).unwrap()
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn status(number: usize) -> VolumeStatusReading {
        VolumeStatusReading { id: id(number), initializing: false }
    }

    /// An outcome that began at `seconds` and took one.
    fn outcome(seconds: u64, result: CallResult) -> Outcome {
        let now = |seconds| Now { monotonic: at(seconds), ..Now::default() };
        Outcome { id: CommandId(1), began: now(seconds), ended: now(seconds + 1), result }
    }

    fn page(shown: usize, next_token: Option<&str>) -> CallResult {
        let next_token = next_token.map(str::to_owned);
        CallResult::Done(Answer::VolumeStatuses { statuses: vec![status(shown)], next_token })
    }

    /// Two volumes were asked for, the first page showed one of them and said that another page follows.
    fn after_one_page() -> Batch<VolumeStatusReading> {
        let batch = Batch::of(vec![id(1), id(2)]).unwrap();
        batch.absorb(outcome(5, page(1, Some("more")))).unwrap_err()
    }

    #[test]
    fn a_batch_is_over_with_its_last_page_and_proves_what_was_so_when_the_first_was_asked_for() {
        let batch = after_one_page();
        let call = Ec2Call::DescribeVolumeStatus { volumes: vec![id(1), id(2)], next_token: Some("more".to_owned()) };
        assert_eq!(batch.call(), call);
        let end = batch.absorb(outcome(8, page(2, None))).unwrap();
        assert_eq!((end.asked, end.began, end.ended), (vec![id(1), id(2)], at(5), at(9)));
        assert_eq!(end.shown, Ok(vec![status(1), status(2)]));
    }

    #[test]
    fn every_page_of_the_status_checks_is_asked_for() {
        let batch = Batch::of(vec![InstanceId::parse("i-01").unwrap()]).unwrap();
        let page = Answer::InstanceStatuses { statuses: Vec::new(), next_token: Some("more".to_owned()) };
        let batch: Batch<InstanceStatusReading> = batch.absorb(outcome(0, CallResult::Done(page))).unwrap_err();
        assert!(matches!(batch.call(), Ec2Call::DescribeInstanceStatus { next_token: Some(_), .. }));
    }

    #[test]
    fn a_page_that_fails_voids_those_before_it() {
        for failed in [CallResult::Throttled, CallResult::NotSent, CallResult::Done(Answer::Accepted)] {
            let end = after_one_page().absorb(outcome(8, failed.clone())).unwrap();
            assert_eq!((end.began, end.shown), (at(5), Err(failed)));
        }
    }

    #[test]
    fn one_that_is_absent_is_news_and_more_than_a_tenth_are_none() {
        for (absent, known, mass) in [(1, 1, false), (2, 20, false), (2, 19, true), (3, 20, true), (10, 100, false)] {
            assert_eq!(is_mass_absence(absent, known), mass, "{absent} of {known}");
        }
    }
}
