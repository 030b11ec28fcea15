//! Whether volumes are initialized: asked for those whose PersistentVolume says that nobody may use them before.
//!
//! Flow: an attach that is confirmed wants the status of its volume; one batched DescribeVolumeStatus answers for many.
//! There is no filter for ids, so one that EC2 does not know fails its whole batch: the halves are then asked apart, down
//! to one alone, and the rest get their answer. Owns what is asked; what is known belongs to the volume.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::controller::command::Ec2Call;
use crate::model::ids::AwsVolumeId;
use crate::model::outcome::{Answer, CallResult, Ec2Refusal, Refusal};
use crate::model::time::Monotonic;
use crate::model::volume::VolumeStatusReading;

/// Ids in one call. EC2 takes 1,000 results a page; a smaller batch loses less to an unknown id.
const BATCH_MAX: usize = 100;
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
    /// When each volume is to be asked for.
    due: BTreeMap<AwsVolumeId, Monotonic>,
    asked: BTreeSet<AwsVolumeId>,
    /// Pages to be asked for.
    continued: Vec<(Vec<AwsVolumeId>, String)>,
    /// Halves of a batch that failed.
    halves: Vec<Vec<AwsVolumeId>>,
}

impl VolumeStatuses {
    /// Wants the status of a volume. One that is asked for, or was answered not long ago, keeps its time.
    pub fn want(&mut self, id: &AwsVolumeId, now: Monotonic) {
        if !self.asked.contains(id) {
            self.due.entry(id.clone()).or_insert(now);
        }
    }

    /// When the next call may be made; `None` when nothing is wanted.
    pub fn next_due(&self) -> Option<Monotonic> {
        if !self.continued.is_empty() || !self.halves.is_empty() {
            return Some(Monotonic::ZERO);
        }
        self.due.values().min().copied()
    }

    /// The next call that is due, and the volumes it asks for.
    pub fn next_call(&mut self, now: Monotonic) -> Option<(Ec2Call, Vec<AwsVolumeId>)> {
        if let Some((volumes, token)) = self.continued.pop() {
            let call = Ec2Call::DescribeVolumeStatus { volumes: volumes.clone(), next_token: Some(token) };
            return Some((call, volumes));
        }
        let volumes = self.halves.pop().unwrap_or_else(|| self.next_batch(now));
        for id in &volumes {
            self.due.remove(id);
            self.asked.insert(id.clone());
        }
        let call = Ec2Call::DescribeVolumeStatus { volumes: volumes.clone(), next_token: None };
        (!volumes.is_empty()).then_some((call, volumes))
    }

    /// The longest due first.
    fn next_batch(&self, now: Monotonic) -> Vec<AwsVolumeId> {
        let mut due: Vec<_> = self.due.iter().filter(|(_, at)| **at <= now + RIDE_ALONG).collect();
        due.sort_by_key(|(_, at)| **at);
        if due.first().is_none_or(|(_, at)| **at > now) {
            return Vec::new();
        }
        due.into_iter().take(BATCH_MAX).map(|(id, _)| id.clone()).collect()
    }

    /// The answer for `asked`: the volumes that are initialized. The others are asked for again, until [`Self::forget`].
    pub fn absorb(&mut self, asked: &[AwsVolumeId], result: CallResult, now: Monotonic) -> Vec<AwsVolumeId> {
        match result {
            CallResult::Done(Answer::VolumeStatuses { statuses, next_token }) => {
                return self.absorb_page(asked, statuses, next_token, now);
            }
            CallResult::Refused(Refusal::Ec2 { meaning: Ec2Refusal::VolumeNotFound, .. }) if asked.len() > 1 => {
                let (one, other) = asked.split_at(asked.len() / 2);
                self.halves.extend([other.to_vec(), one.to_vec()]);
            }
            CallResult::Refused(_) => self.again(asked, now + REFUSED_AGAIN),
            _ => self.again(asked, now + RETRY_AFTER),
        }
        Vec::new()
    }

    fn absorb_page(
        &mut self,
        asked: &[AwsVolumeId],
        statuses: Vec<VolumeStatusReading>,
        next_token: Option<String>,
        now: Monotonic,
    ) -> Vec<AwsVolumeId> {
        let done: Vec<AwsVolumeId> =
            statuses.into_iter().filter(|status| !status.initializing).map(|status| status.id).collect();
        for id in &done {
            self.asked.remove(id);
        }
        match next_token {
            Some(token) => self.continued.push((asked.to_vec(), token)),
            None => self.again(asked, now + ASK_AGAIN),
        }
        done
    }

    /// Those whose answer is still open are asked for from `at` on.
    fn again(&mut self, volumes: &[AwsVolumeId], at: Monotonic) {
        for id in volumes {
            if self.asked.remove(id) {
                self.due.insert(id.clone(), at);
            }
        }
    }

    /// Nobody waits for the volume any more.
    pub fn forget(&mut self, id: &AwsVolumeId) {
        self.due.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> AwsVolumeId {
        AwsVolumeId::parse(&format!("vol-{number:05x}")).unwrap()
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn asked(call: Option<(Ec2Call, Vec<AwsVolumeId>)>) -> Vec<AwsVolumeId> {
        call.map(|(_, asked)| asked).unwrap_or_default()
    }

    fn page(statuses: Vec<VolumeStatusReading>, next_token: Option<&str>) -> CallResult {
        CallResult::Done(Answer::VolumeStatuses { statuses, next_token: next_token.map(str::to_owned) })
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
        let first = asked(statuses.next_call(at(0)));
        assert_eq!(first.len(), 100);
        statuses.want(&first[0], at(0));
        assert_eq!(asked(statuses.next_call(at(0))).len(), 50);
        assert_eq!(statuses.next_call(at(100)), None);
    }

    #[test]
    fn one_that_is_initializing_is_asked_for_again_later_and_one_that_is_not_never() {
        let mut statuses = VolumeStatuses::default();
        statuses.want(&id(1), at(0));
        statuses.want(&id(2), at(0));
        let batch = asked(statuses.next_call(at(0)));
        assert_eq!(statuses.absorb(&batch, page(vec![status(1, true), status(2, false)], None), at(1)), [id(2)]);
        assert_eq!(statuses.next_due(), Some(at(16)));
        assert_eq!(asked(statuses.next_call(at(16))), [id(1)]);
    }

    #[test]
    fn an_unknown_id_fails_nobody_but_itself() {
        let mut statuses = VolumeStatuses::default();
        for number in 0..100 {
            statuses.want(&id(number), at(0));
        }
        let (mut calls, mut done) = (0, 0);
        while let Some(batch) = Some(asked(statuses.next_call(at(0)))).filter(|batch| !batch.is_empty()) {
            calls += 1;
            if batch.contains(&id(63)) {
                statuses.absorb(&batch, refused(Ec2Refusal::VolumeNotFound), at(0));
            } else {
                let answer = batch.iter().map(|id| VolumeStatusReading { id: id.clone(), initializing: false });
                done += statuses.absorb(&batch, page(answer.collect(), None), at(0)).len();
            }
        }
        assert_eq!(done, 99);
        assert!(calls <= 15, "{calls}");
        assert_eq!(statuses.next_due(), Some(at(60)), "and that one is asked for again");
    }

    #[test]
    fn every_page_counts_before_one_that_is_missing_is_asked_for_again() {
        let mut statuses = VolumeStatuses::default();
        statuses.want(&id(1), at(0));
        statuses.want(&id(2), at(0));
        let batch = asked(statuses.next_call(at(0)));
        assert_eq!(statuses.absorb(&batch, page(vec![status(1, false)], Some("more")), at(1)), [id(1)]);
        assert_eq!(statuses.next_due(), Some(Monotonic::ZERO));
        assert_eq!(asked(statuses.next_call(at(1))), batch);
        assert_eq!(statuses.absorb(&batch, page(vec![status(2, false)], None), at(2)), [id(2)]);
        assert_eq!(statuses.next_due(), None);
    }

    #[test]
    fn those_due_soon_ride_along() {
        let mut statuses = VolumeStatuses::default();
        statuses.want(&id(1), at(8));
        statuses.want(&id(2), at(0));
        statuses.want(&id(3), at(11));
        assert_eq!(asked(statuses.next_call(at(0))), [id(2), id(1)]);
        assert_eq!(asked(statuses.next_call(at(5))), []);
        assert_eq!(statuses.next_due(), Some(at(11)));
    }

    #[test]
    fn a_right_that_is_missing_costs_one_call_a_minute() {
        let mut statuses = VolumeStatuses::default();
        statuses.want(&id(1), at(0));
        statuses.want(&id(2), at(0));
        let batch = asked(statuses.next_call(at(0)));
        statuses.absorb(&batch, refused(Ec2Refusal::Unauthorized), at(0));
        assert_eq!(statuses.next_due(), Some(at(60)));
        assert_eq!(asked(statuses.next_call(at(60))), batch);
        statuses.absorb(&batch, CallResult::Throttled, at(61));
        assert_eq!(statuses.next_due(), Some(at(62)));
        statuses.forget(&id(1));
        assert_eq!(asked(statuses.next_call(at(62))), [id(2)]);
    }
}
