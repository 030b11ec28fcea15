//! What a run is measured by: how long from need to attached, how many calls against the least that would do.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Takeover;
use crate::model::ids::{AttachmentName, AwsVolumeId, NodeName};
use crate::model::time::Monotonic;

/// The measures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    back_at: Option<Monotonic>,
    unnoticed: BTreeMap<AttachmentName, Monotonic>,
    needs: BTreeMap<AttachmentName, (Monotonic, AwsVolumeId, NodeName)>,
    last_node: BTreeMap<AwsVolumeId, NodeName>,
    /// From the bound pod to `attached: true` of its VolumeAttachment, of every attach, in the order they were done.
    pub attach_times: Vec<Duration>,
    /// From the bound pod to its containers running.
    pub start_times: Vec<Duration>,
    /// The same of pods made in place of others alone.
    pub restart_times: Vec<Duration>,
    /// From the end of an attachment that attachd did not order to the moment its VolumeAttachment no longer says
    /// `attached`.
    pub notice_times: Vec<Duration>,
    /// From the end of an outage of EC2's API until a pod's containers run, of every pod that came to run after it.
    pub times_since_outage: Vec<Duration>,
    /// DetachVolume of attachd that EC2 accepted while the volume was mounted and its machine ran.
    pub detached_while_mounted: u64,
    /// Attaches of a volume to another node than the last.
    pub moves: u64,
    /// Volumes attached for the first time.
    pub first_attaches: u64,
    /// Events attachd wrote, by reason.
    pub events: BTreeMap<&'static str, u64>,
    /// The last time a process came to lead after another.
    pub takeover: Option<Takeover>,
}

impl Measures {
    /// A pod that needs the attachment was bound.
    pub(super) fn need(&mut self, at: Monotonic, name: AttachmentName, volume: AwsVolumeId, node: NodeName) {
        self.needs.entry(name).or_insert((at, volume, node));
    }

    /// The volume was on that node before the run began.
    pub(super) fn begins_on(&mut self, volume: AwsVolumeId, node: NodeName) {
        self.last_node.insert(volume, node);
    }

    /// A pod's containers run.
    pub(super) fn started(&mut self, at: Monotonic, since: Duration, replaces: bool) {
        self.start_times.push(since);
        if let Some(back) = self.back_at {
            self.times_since_outage.push(at.saturating_since(back));
        }
        if replaces {
            self.restart_times.push(since);
        }
    }

    /// EC2's API is there again after an outage.
    pub(super) fn ec2_is_back(&mut self, at: Monotonic) {
        self.back_at = Some(at);
    }

    /// An attachment ended, and attachd had no part in it; its VolumeAttachment says that it is there.
    pub(super) fn lost(&mut self, at: Monotonic, name: AttachmentName) {
        self.unnoticed.entry(name).or_insert(at);
    }

    /// A VolumeAttachment no longer says that its volume is attached.
    pub(super) fn noticed(&mut self, at: Monotonic, name: &AttachmentName) {
        if let Some(since) = self.unnoticed.remove(name) {
            self.notice_times.push(at.saturating_since(since));
        }
    }

    /// Nobody needs the attachment any more.
    pub(super) fn no_need(&mut self, name: &AttachmentName) {
        self.needs.remove(name);
    }

    /// The attachment is there.
    pub(super) fn attached(&mut self, at: Monotonic, name: &AttachmentName) {
        let Some((since, volume, node)) = self.needs.remove(name) else { return };
        self.attach_times.push(at.saturating_since(since));
        match self.last_node.insert(volume, node.clone()) {
            None => self.first_attaches += 1,
            Some(last) if last != node => self.moves += 1,
            Some(_) => {}
        }
    }

    /// The shortest time that `percent` of `times` did not exceed; `None` of none.
    pub fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_secs).collect();
        let of = |percent| Measures::percentile(&times, percent).map(|time| time.as_secs());
        assert_eq!((of(0), of(50), of(99), of(100)), (Some(1), Some(100), Some(198), Some(200)));
        assert_eq!(Measures::percentile(&[], 50), None);
    }
}
