//! Whether volumes are initialized: asked for those whose PersistentVolume says that nobody may use them before.
//!
//! Flow: an attach that is confirmed wants the status of its volume; one batched DescribeVolumeStatus answers for many.
//! There is no filter for ids, so one that EC2 does not know fails its whole batch: the halves are then asked apart, down
//! to one alone, and the rest get their answer. Owns what is asked; what is known belongs to the volume.

use std::time::Duration;

use super::batch::{Batch, End, NAMED_MAX, Read};
use super::due::Due;
use crate::model::ids::AwsVolumeId;
use crate::model::outcome::CallResult;
use crate::model::time::Monotonic;
use crate::model::volume::VolumeStatusReading;

/// A volume that is being initialized is asked for again after this: it takes minutes to hours.
const ASK_AGAIN: Duration = Duration::from_secs(15);
/// Volumes due this soon ride along, so that all that wait soon share one call.
const RIDE_ALONG: Duration = Duration::from_secs(10);
/// After a failed call.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// After EC2 refused to answer for one volume alone, or to answer at all.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Debug, Default)]
pub struct VolumeStatuses {
    due: Due<AwsVolumeId>,
    /// Halves of a batch that failed.
    halves: Vec<Batch<VolumeStatusReading>>,
}

impl VolumeStatuses {
    /// Wants the status of a volume. One that is asked for, or was answered not long ago, keeps its time.
    pub fn want(&mut self, id: &AwsVolumeId, now: Monotonic) {
        if !self.due.has(id) {
            self.due.want(id, now);
        }
    }

    /// When the next read may be made; `None` when nothing is wanted.
    pub fn next_due(&self) -> Option<Monotonic> {
        if self.halves.is_empty() { self.due.next() } else { Some(Monotonic::ZERO) }
    }

    /// The next read that is due: the longest due first.
    pub fn next_read(&mut self, now: Monotonic) -> Option<Read> {
        let half = self.halves.pop();
        half.or_else(|| Batch::of(self.due.take(now, RIDE_ALONG, NAMED_MAX, |_| false))).map(Read::VolumeStatuses)
    }

    /// Takes in what statuses were shown: the volumes that are initialized. The others are asked for again, until
    /// [`Self::forget`].
    pub fn absorb(&mut self, end: End<VolumeStatusReading>) -> Vec<AwsVolumeId> {
        if end.is_spoilt_by_one() {
            self.halves.extend(end.halves());
            return Vec::new();
        }
        let (statuses, again) = match end.shown {
            Ok(statuses) => (statuses, ASK_AGAIN),
            Err(CallResult::Refused(_)) => (Vec::new(), REFUSED_AGAIN),
            Err(_) => (Vec::new(), RETRY_AFTER),
        };
        let done: Vec<_> = statuses.into_iter().filter(|status| !status.initializing).map(|status| status.id).collect();
        for id in &done {
            self.due.answered(id);
        }
        for id in end.asked {
            if self.due.answered(&id) {
                self.due.want(&id, end.ended + again);
            }
        }
        done
    }

    /// Nobody waits for the volume any more.
    pub fn forget(&mut self, id: &AwsVolumeId) {
        self.due.forget(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::{Ec2Refusal, Refusal};

    fn id(number: usize) -> AwsVolumeId {
        AwsVolumeId::parse(&format!("vol-{number:05x}")).unwrap()
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn asked(read: Option<Read>) -> Vec<AwsVolumeId> {
        match read {
            Some(Read::VolumeStatuses(batch)) => batch.asked,
            _ => Vec::new(),
        }
    }

    fn end(
        asked: &[AwsVolumeId],
        shown: Result<Vec<VolumeStatusReading>, CallResult>,
        ended: Monotonic,
    ) -> End<VolumeStatusReading> {
        End { asked: asked.to_vec(), began: ended, ended, shown }
    }

    fn refused(meaning: Ec2Refusal) -> CallResult {
        CallResult::Refused(Refusal::Ec2 { meaning, code: "".into(), message: "".into() })
    }

    fn status(number: usize, initializing: bool) -> VolumeStatusReading {
        VolumeStatusReading { id: id(number), initializing }
    }

    #[test]
    fn a_hundred_are_asked_for_in_one_call_and_none_twice_at_once() {
        let mut statuses = VolumeStatuses::default();
        for number in 0..150 {
            statuses.want(&id(number), at(0));
        }
        let first = asked(statuses.next_read(at(0)));
        assert_eq!(first.len(), 100);
        statuses.want(&first[0], at(0));
        assert_eq!(asked(statuses.next_read(at(0))).len(), 50);
        assert_eq!(statuses.next_read(at(100)), None);
    }

    #[test]
    fn one_that_is_initializing_is_asked_for_again_later_and_one_that_is_not_never() {
        let mut statuses = VolumeStatuses::default();
        statuses.want(&id(1), at(0));
        statuses.want(&id(2), at(0));
        let batch = asked(statuses.next_read(at(0)));
        assert_eq!(statuses.absorb(end(&batch, Ok(vec![status(1, true), status(2, false)]), at(1))), [id(2)]);
        assert_eq!(statuses.next_due(), Some(at(16)));
        assert_eq!(asked(statuses.next_read(at(16))), [id(1)]);
    }

    #[test]
    fn an_unknown_id_fails_nobody_but_itself() {
        let mut statuses = VolumeStatuses::default();
        for number in 0..100 {
            statuses.want(&id(number), at(0));
        }
        let (mut calls, mut done) = (0, 0);
        while let Some(batch) = Some(asked(statuses.next_read(at(0)))).filter(|batch| !batch.is_empty()) {
            calls += 1;
            if batch.contains(&id(63)) {
                statuses.absorb(end(&batch, Err(refused(Ec2Refusal::VolumeNotFound)), at(0)));
            } else {
                let answer = batch.iter().map(|id| VolumeStatusReading { id: id.clone(), initializing: false });
                done += statuses.absorb(end(&batch, Ok(answer.collect()), at(0))).len();
            }
        }
        assert_eq!(done, 99);
        assert!(calls <= 15, "{calls}");
        assert_eq!(statuses.next_due(), Some(at(60)), "and that one is asked for again");
    }

    #[test]
    fn those_due_soon_ride_along() {
        let mut statuses = VolumeStatuses::default();
        statuses.want(&id(1), at(8));
        statuses.want(&id(2), at(0));
        statuses.want(&id(3), at(11));
        assert_eq!(asked(statuses.next_read(at(0))), [id(1), id(2)]);
        assert_eq!(asked(statuses.next_read(at(5))), []);
        assert_eq!(statuses.next_due(), Some(at(11)));
    }

    #[test]
    fn a_right_that_is_missing_costs_one_call_a_minute() {
        let mut statuses = VolumeStatuses::default();
        statuses.want(&id(1), at(0));
        statuses.want(&id(2), at(0));
        let batch = asked(statuses.next_read(at(0)));
        statuses.absorb(end(&batch, Err(refused(Ec2Refusal::Unauthorized)), at(0)));
        assert_eq!(statuses.next_due(), Some(at(60)));
        assert_eq!(asked(statuses.next_read(at(60))), batch);
        statuses.absorb(end(&batch, Err(CallResult::Throttled), at(61)));
        assert_eq!(statuses.next_due(), Some(at(62)));
        statuses.forget(&id(1));
        assert_eq!(asked(statuses.next_read(at(62))), [id(2)]);
    }
}
