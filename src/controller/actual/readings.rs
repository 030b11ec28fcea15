//! What EC2's answers about one volume are worth as evidence (rules 11, 16, 17).
//!
//! Flow: the syncer feeds every answer in; state machines ask what is proved. A read can be stale and can go back in time:
//! it proves nothing about a call that ended after the read began, and some questions need several agreeing reads. Owns
//! the readings of one volume; must never be asked what it did not see.

use std::time::Duration;

use crate::controller::policy::{Policy, Rule};
use crate::model::ids::InstanceId;
use crate::model::time::Monotonic;
use crate::model::volume::{AttachmentReading, VolumeReading, VolumeState};

/// Two agreeing reads are consistent when they began at least this far apart.
pub const CONSISTENT_APART: Duration = Duration::from_secs(5);
/// Consistent reads are spaced when the last began at least this long after the last call on the volume ended.
pub const SPACED_AFTER: Duration = Duration::from_secs(30);
/// With everything proved, the next look is this much later.
const LOOK_ON: Duration = Duration::from_secs(15);
/// A volume is missed for good when others were found between so many pairs of reads that lack it.
const MISSED_IN_COMPANY: u32 = 2;
/// A silent detach is believed after this many agreeing reads.
const SILENT_DETACH_READS: u32 = 3;
/// Their distance: three of them are consistent.
const SILENT_DETACH_APART: Duration = Duration::from_millis(2600);

/// What one answer showed of a volume that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The volume.
    Seen(VolumeReading),
    /// It was not among the answers, though asked for alone: it does not exist (or this account may not see it).
    Missing,
}

/// What a read added to what was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absorbed {
    /// It shows what the newest one showed.
    Agrees,
    /// It shows something else, or is the first that counts.
    IsNews,
    /// It is older than what is known, or than a call that ended since.
    TooOld,
}

/// The reads of one volume that count, as a run of agreeing ones.
#[derive(Debug, Default)]
pub struct Readings {
    sight: Option<Sight>,
    first_began: Monotonic,
    last_began: Monotonic,
    agreeing: u32,
    /// Reads that began at this time or before count no longer: a call on the volume ended then, or the lease was got.
    barrier: Monotonic,
    /// Whether any read counted since the lease was got.
    read_once: bool,
    /// How often in the present run, which misses the volume, something else was found between two reads.
    in_company: u32,
}

impl Readings {
    /// Takes one answer of a request that began at `began`.
    pub fn absorb(&mut self, sight: Sight, began: Monotonic, policy: &Policy) -> Absorbed {
        let too_old = self.barrier > Monotonic::ZERO && began <= self.barrier && policy.holds(Rule::ReadsAfterCalls);
        if too_old || (self.agreeing > 0 && began <= self.last_began) {
            return Absorbed::TooOld;
        }
        let agrees = self.agreeing > 0 && self.sight.as_ref() == Some(&sight);
        if agrees {
            self.agreeing = self.agreeing.saturating_add(1);
        } else {
            self.sight = Some(sight);
            self.first_began = began;
            self.agreeing = 1;
            self.in_company = 0;
        }
        self.last_began = began;
        self.read_once = true;
        if agrees { Absorbed::Agrees } else { Absorbed::IsNews }
    }

    /// Whether the volume was read since the lease was got (rule 11), counting still or not.
    pub fn have_begun(&self) -> bool {
        self.read_once
    }

    /// A call on the volume ended (was answered, or became dead) at `at`, or a lease was got: earlier reads prove nothing
    /// any more.
    pub fn invalidate(&mut self, at: Monotonic, policy: &Policy) {
        self.barrier = self.barrier.max(at);
        if policy.holds(Rule::ReadsAfterCalls) && self.last_began <= self.barrier {
            self.agreeing = 0;
        }
    }

    /// A lease was got at `at`: a read from before is none (rule 11).
    pub fn lease_got(&mut self, at: Monotonic, policy: &Policy) {
        self.invalidate(at, policy);
        self.read_once &= self.last_began > at || !policy.holds(Rule::ReadsAfterCalls);
    }

    /// What the newest read shows, if it counts.
    pub fn current(&self) -> Option<&Sight> {
        if self.agreeing == 0 { None } else { self.sight.as_ref() }
    }

    /// The volume as the newest read that counts shows it.
    pub fn volume(&self) -> Option<&VolumeReading> {
        match self.current() {
            Some(Sight::Seen(volume)) => Some(volume),
            _ => None,
        }
    }

    /// The last volume shown by any read, counting or not: for zone and MultiAttachEnabled, which calls do not change.
    pub fn last_seen(&self) -> Option<&VolumeReading> {
        match &self.sight {
            Some(Sight::Seen(volume)) => Some(volume),
            _ => None,
        }
    }

    /// Whether the newest read that counts shows the volume attached nowhere.
    pub fn shows_free(&self) -> bool {
        match self.current() {
            Some(Sight::Seen(volume)) => volume.state == VolumeState::Available && volume.attachments.is_empty(),
            Some(Sight::Missing) => true,
            None => false,
        }
    }

    /// Since when reads that count show no such volume; `None`: the newest one shows it.
    pub fn missing_since(&self) -> Option<Monotonic> {
        matches!(self.current(), Some(Sight::Missing)).then_some(self.first_began)
    }

    /// Something of the cluster was found between the last two of the reads that agree on missing the volume.
    pub fn miss_in_company(&mut self) {
        self.in_company = self.in_company.saturating_add(1);
    }

    /// Whether reads that count miss the volume, and others were found between them, again and again: a wrong region or
    /// role may come twice, with a find between (rule 17).
    pub fn are_in_company(&self) -> bool {
        self.in_company >= MISSED_IN_COMPANY && self.missing_since().is_some()
    }

    /// When the newest read that counts began.
    pub fn began(&self) -> Option<Monotonic> {
        (self.agreeing > 0).then_some(self.last_began)
    }

    /// When the last read that counted began, whether it counts still or not.
    pub fn last_read(&self) -> Option<Monotonic> {
        self.read_once.then_some(self.last_began)
    }

    /// Consistent reads: at least two agreeing reads from separate calls, 5 s apart, none begun before the last call ended.
    pub fn are_consistent(&self) -> bool {
        self.agreeing >= 2 && self.last_began.saturating_since(self.first_began) >= CONSISTENT_APART
    }

    /// Consistent and spaced: the last begun 30 s after the last call ended.
    pub fn are_spaced(&self) -> bool {
        self.are_consistent() && self.last_began.saturating_since(self.barrier) >= SPACED_AFTER
    }

    /// How long the reads agree already: from the first of the run to the last.
    pub fn agrees_for(&self) -> Duration {
        self.last_began.saturating_since(self.first_began)
    }

    /// Three consistent reads: what a silent detach takes to be believed. The last must be spaced: reads that follow a
    /// call closely may all show the time before it, and then agree without being right.
    pub fn prove_silent_detach(&self, policy: &Policy) -> bool {
        self.are_spaced() && self.agreeing >= SILENT_DETACH_READS || !policy.holds(Rule::SilentDetachNeedsReads)
    }

    /// When the next read is of use to prove or disprove a silent detach.
    pub fn next_useful_for_silent_detach(&self) -> Monotonic {
        let next = if self.agreeing == 0 { self.barrier } else { self.last_began + SILENT_DETACH_APART };
        if self.agreeing < SILENT_DETACH_READS { next } else { next.max(self.barrier + SPACED_AFTER) }
    }

    /// When the next read is of use for consistent spaced reads.
    pub fn next_useful(&self) -> Monotonic {
        if self.agreeing == 0 {
            return self.barrier;
        }
        let consistent = self.first_began + CONSISTENT_APART;
        let next = if self.last_began < consistent { consistent } else { self.barrier + SPACED_AFTER };
        // All is proved that agreeing reads can prove: look on slowly.
        if next > self.last_began { next } else { self.last_began + LOOK_ON }
    }

    /// When the last call on the volume ended, as far as reads are concerned.
    pub fn barrier(&self) -> Monotonic {
        self.barrier
    }
}

/// The entry of `instance` in the reading.
pub fn attachment_on<'a>(volume: &'a VolumeReading, instance: &InstanceId) -> Option<&'a AttachmentReading> {
    volume.attachments.iter().find(|attachment| attachment.instance.as_ref() == Some(instance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{AwsVolumeId, Zone};

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn free() -> Sight {
        Sight::Seen(VolumeReading {
            id: AwsVolumeId::parse("vol-0a").unwrap(),
            state: VolumeState::Available,
            attachments: Vec::new(),
            multi_attach_enabled: false,
            zone: Zone::new("z"),
            tags: Default::default(),
        })
    }

    #[test]
    fn a_read_proves_nothing_about_a_call_that_ended_after_it_began() {
        let mut readings = Readings::default();
        readings.absorb(free(), at(1), &Policy::FULL);
        assert!(readings.shows_free());
        readings.invalidate(at(3), &Policy::FULL);
        assert!(!readings.shows_free());
        readings.absorb(free(), at(2), &Policy::FULL);
        assert!(!readings.shows_free(), "begun before the call ended");
        readings.absorb(free(), at(4), &Policy::FULL);
        assert!(readings.shows_free());
    }

    #[test]
    fn consistent_reads_are_two_that_agree_five_seconds_apart_and_spaced_ones_thirty_after_the_call() {
        let mut readings = Readings::default();
        readings.invalidate(at(10), &Policy::FULL);
        readings.absorb(free(), at(11), &Policy::FULL);
        readings.absorb(free(), at(15), &Policy::FULL);
        assert!(!readings.are_consistent());
        readings.absorb(free(), at(16), &Policy::FULL);
        assert!(readings.are_consistent() && !readings.are_spaced());
        readings.absorb(Sight::Missing, at(20), &Policy::FULL);
        assert!(!readings.are_consistent(), "a read that disagrees starts anew");
        readings.absorb(free(), at(36), &Policy::FULL);
        readings.absorb(free(), at(41), &Policy::FULL);
        assert!(readings.are_spaced());
    }

    #[test]
    fn a_volume_is_missed_for_good_when_others_were_found_between_its_reads_more_than_once() {
        let mut readings = Readings::default();
        let miss = |readings: &mut Readings, second, found| {
            readings.absorb(Sight::Missing, at(second), &Policy::FULL);
            if found {
                readings.miss_in_company();
            }
            readings.are_in_company()
        };
        assert!(!miss(&mut readings, 5, false) && !miss(&mut readings, 10, true) && !miss(&mut readings, 15, false));
        assert!(miss(&mut readings, 20, true));
        readings.absorb(free(), at(25), &Policy::FULL);
        assert!(!miss(&mut readings, 30, true), "it was there meanwhile");
    }

    #[test]
    fn answers_that_come_out_of_order_do_not_go_back_in_time() {
        let mut readings = Readings::default();
        readings.absorb(Sight::Missing, at(5), &Policy::FULL);
        readings.absorb(free(), at(4), &Policy::FULL);
        assert_eq!(readings.current(), Some(&Sight::Missing));
    }
}
