//! What EC2 says of the machines in doubt: their states at short intervals in one batched call, and their status checks
//! where the force policy asks for them (rule 18, G1 b and d).
//!
//! Flow: the reconciler says which instances a volume has doubts about ([`States::watch`]); [`States::next_read`] says
//! what is due; what was shown goes into [`States::absorb`], which tells the volumes that have to be looked at again; the
//! fencing ladder asks for the [`Machine`]. Owns the evidence about machines, nothing else. Must never take absence for an
//! end before other instances of the same answer were there, nor when many are absent at once (rule 17).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::batch::{Batch, End, FILTER_MAX, NAMED_MAX, Read, is_mass_absence};
use crate::controller::policy::{Policy, Rule};
use crate::model::ids::{InstanceId, NodeName, VolumeKey};
use crate::model::time::Monotonic;
use crate::model::volume::{CheckStatus, InstanceReading, InstanceState, InstanceStatusReading};

/// Instances not in doubt that are asked for beside those that are: where they are absent too, absence proves nothing.
const COMPANIONS: usize = 5;
/// Two reads of a state other than `terminated` prove it when they began this far apart (G1 b).
const STATE_PROVED_AFTER: Duration = Duration::from_secs(10);
/// Two reads without the instance prove that it is gone when they began this far apart (G1 b).
const ABSENCE_PROVED_AFTER: Duration = Duration::from_secs(30);
/// What was proved counts while the last read is not older than this: a stopped machine may be started again.
const COUNTS_FOR: Duration = Duration::from_secs(30);
/// Status checks run once a minute: asking more often than this tells nothing new.
const BETWEEN_CHECKS: Duration = Duration::from_secs(10);
/// An instance known terminated is remembered this long after the last volume had doubts about it: EC2 shows it for about
/// an hour, and pods may be bound to its node for as long as that.
const TERMINATED_REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What is known of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Nothing that counts; also while it stops or shuts down: its guest may write to the end.
    Unknown,
    /// Running, as far as EC2's checks tell.
    Running,
    /// Running with a status check failed, in two reads 10 s apart.
    Impaired,
    /// `stopped` in two reads 10 s apart.
    Stopped,
    /// Absent from two reads 30 s apart in which other instances were found.
    Absent,
    /// `terminated`: its volumes are free, whatever anybody else says.
    Terminated,
}

/// States and checks.
#[derive(Debug, Default)]
pub struct States {
    records: BTreeMap<InstanceId, Record>,
    terminated: BTreeMap<InstanceId, Monotonic>,
    /// Not read since they came into doubt.
    unread: BTreeSet<InstanceId>,
    /// What is still to be asked in the present round.
    round: BTreeSet<InstanceId>,
    round_began: Option<Monotonic>,
    checks_round: BTreeSet<InstanceId>,
    checks_began: Option<Monotonic>,
    /// Of these a status call failed for an unknown id: each is asked alone.
    alone: BTreeSet<InstanceId>,
    /// The last companion asked: the next call takes others.
    companion: Option<InstanceId>,
    mass_absence: bool,
}

/// One instance in doubt.
#[derive(Debug, Default)]
struct Record {
    /// Volumes that have doubts about it.
    volumes: BTreeSet<VolumeKey>,
    /// Those of them that need its status checks.
    checks_for: BTreeSet<VolumeKey>,
    state: Option<Run<Shown>>,
    checks: Option<Run<bool>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    State(InstanceState),
    Absent,
}

/// Reads that agree.
#[derive(Clone, Debug)]
struct Run<T> {
    what: T,
    first: Monotonic,
    last: Monotonic,
}

impl<T: PartialEq> Run<T> {
    /// Takes one more read into a run; whether it shows something else than the one before. A read that is not newer
    /// than the last one is none.
    fn extend(run: &mut Option<Self>, what: T, began: Monotonic) -> bool {
        match run {
            Some(known) if began <= known.last => false,
            Some(known) if known.what == what => {
                known.last = began;
                false
            }
            _ => {
                *run = Some(Self { what, first: began, last: began });
                true
            }
        }
    }

    fn spans(&self, time: Duration, policy: &Policy) -> bool {
        self.last.saturating_since(self.first) >= time || !policy.holds(Rule::DeathNeedsProof)
    }
}

impl States {
    /// What a volume has doubts about: `now_doubted` instead of `before`; with `checks`, also their status checks matter.
    pub fn watch(
        &mut self,
        volume: &VolumeKey,
        before: &BTreeSet<InstanceId>,
        now_doubted: &BTreeSet<InstanceId>,
        checks: bool,
    ) {
        for instance in before.difference(now_doubted) {
            let Some(record) = self.records.get_mut(instance) else { continue };
            record.volumes.remove(volume);
            record.checks_for.remove(volume);
            if record.volumes.is_empty() {
                self.records.remove(instance);
                self.unread.remove(instance);
                self.alone.remove(instance);
            }
        }
        for instance in now_doubted {
            let record = self.records.entry(instance.clone()).or_default();
            // One that was doubted before is there already.
            let is_new = !before.contains(instance) && record.volumes.insert(volume.clone());
            if is_new && record.state.is_none() {
                self.unread.insert(instance.clone());
            }
            if checks {
                record.checks_for.insert(volume.clone());
            } else {
                record.checks_for.remove(volume);
            }
        }
    }

    /// When the next call is due; `None` while nothing is in doubt.
    pub fn next_due(&self, period: Duration) -> Option<Monotonic> {
        if !self.round.is_empty() || !self.checks_round.is_empty() {
            return Some(Monotonic::ZERO);
        }
        if self.records.is_empty() {
            return None;
        }
        let states = match self.round_began {
            None => Monotonic::ZERO,
            // What is new in doubt need not wait for the whole period, nor may each get a call of its own.
            Some(began) if !self.unread.is_empty() => began + period / 2,
            Some(began) => began + period,
        };
        let wants_checks = self.records.values().any(|record| !record.checks_for.is_empty());
        let checks = wants_checks.then(|| self.checks_began.map_or(Monotonic::ZERO, |began| began + BETWEEN_CHECKS));
        Some(checks.map_or(states, |checks| checks.min(states)))
    }

    /// The next read that is due, if any. `nodes` are the instances of this cluster: some keep those in doubt company.
    pub fn next_read(
        &mut self,
        now: Monotonic,
        period: Duration,
        nodes: &BTreeMap<InstanceId, NodeName>,
    ) -> Option<Read> {
        self.begin_rounds(now, period);
        if !self.round.is_empty() {
            return Batch::of(self.take_round(nodes)).map(Read::States);
        }
        Batch::of(self.take_checks()).map(Read::Checks)
    }

    fn begin_rounds(&mut self, now: Monotonic, period: Duration) {
        let over = |began: Option<Monotonic>, time| began.is_none_or(|began| now >= began + time);
        let wait = if self.unread.is_empty() { period } else { period / 2 };
        if self.round.is_empty() && !self.records.is_empty() && over(self.round_began, wait) {
            self.round = self.records.keys().cloned().collect();
            self.round_began = Some(now);
            self.forget_terminated(now);
        }
        if self.checks_round.is_empty() && over(self.checks_began, BETWEEN_CHECKS) {
            let wanted = self.records.iter().filter(|(_, record)| !record.checks_for.is_empty());
            self.checks_round = wanted.map(|(instance, _)| instance.clone()).collect();
            if !self.checks_round.is_empty() {
                self.checks_began = Some(now);
            }
        }
    }

    fn take_round(&mut self, nodes: &BTreeMap<InstanceId, NodeName>) -> Vec<InstanceId> {
        let in_doubt = std::iter::from_fn(|| self.round.pop_first());
        let mut asked: Vec<InstanceId> = in_doubt.take(FILTER_MAX - COMPANIONS).collect();
        for instance in &asked {
            self.unread.remove(instance);
        }
        let after = self.companion.take();
        let later = nodes.keys().filter(|id| after.as_ref().is_none_or(|after| *id > after));
        let earlier = nodes.keys().take_while(|id| after.as_ref().is_some_and(|after| *id <= after));
        let sound = later.chain(earlier).filter(|id| !self.records.contains_key(*id));
        let company: Vec<InstanceId> = sound.take(COMPANIONS).cloned().collect();
        self.companion = company.last().cloned();
        asked.extend(company);
        asked
    }

    fn take_checks(&mut self) -> Vec<InstanceId> {
        let mut asked = Vec::new();
        while asked.len() < NAMED_MAX
            && let Some(instance) = self.checks_round.first()
        {
            let alone = self.alone.contains(instance);
            if alone && !asked.is_empty() {
                break;
            }
            asked.extend(self.checks_round.pop_first());
            if alone {
                break;
            }
        }
        asked
    }

    /// Takes in what the instances of one read looked like: the volumes that have to be looked at again. `known`: how many
    /// instances this cluster has.
    pub fn absorb(
        &mut self,
        asked: &[InstanceId],
        shown: &[InstanceReading],
        began: Monotonic,
        known: usize,
    ) -> BTreeSet<VolumeKey> {
        let mut news = BTreeSet::new();
        for reading in shown {
            news.extend(self.notice(&reading.id, &reading.state, began));
        }
        let seen: BTreeSet<&InstanceId> = shown.iter().map(|reading| &reading.id).collect();
        let absent: Vec<&InstanceId> = asked.iter().filter(|asked| !seen.contains(asked)).collect();
        let earlier = self.records.iter().filter(|(id, record)| record.is_absent() && !absent.contains(id)).count();
        self.mass_absence = is_mass_absence(earlier + absent.len(), known.max(asked.len()));
        let proves = !self.mass_absence && !seen.is_empty();
        for instance in absent {
            let Some(record) = self.records.get_mut(instance) else { continue };
            if proves {
                Run::extend(&mut record.state, Shown::Absent, began);
                news.extend(record.volumes.iter().cloned());
            } else if record.is_absent() {
                record.state = None;
            }
        }
        if self.mass_absence {
            for record in self.records.values_mut().filter(|record| record.is_absent()) {
                record.state = None;
            }
        }
        news
    }

    /// What a read that began then showed of an instance, in doubt or not; the volumes that have to be looked at again.
    pub fn notice(&mut self, instance: &InstanceId, state: &InstanceState, began: Monotonic) -> BTreeSet<VolumeKey> {
        if *state == InstanceState::Terminated {
            self.terminated.insert(instance.clone(), began);
        }
        let Some(record) = self.records.get_mut(instance) else { return BTreeSet::new() };
        let is_new = Run::extend(&mut record.state, Shown::State(state.clone()), began);
        let goes_on = matches!(state, InstanceState::Running | InstanceState::Pending);
        // A read that shows it running still tells nobody anything.
        if is_new || !goes_on { record.volumes.clone() } else { BTreeSet::new() }
    }

    /// Takes in what status checks were shown. An instance that is left out is not running: its state tells.
    pub fn absorb_checks(&mut self, end: End<InstanceStatusReading>) -> BTreeSet<VolumeKey> {
        if end.is_spoilt_by_one() {
            // Each is asked alone until it was answered.
            self.alone.extend(end.asked.iter().cloned());
            self.checks_round.extend(end.asked);
            return BTreeSet::new();
        }
        let Ok(statuses) = end.shown else { return BTreeSet::new() };
        for instance in &end.asked {
            self.alone.remove(instance);
        }
        statuses.iter().flat_map(|status| self.notice_checks(status, end.began)).collect()
    }

    fn notice_checks(&mut self, status: &InstanceStatusReading, began: Monotonic) -> BTreeSet<VolumeKey> {
        let Some(record) = self.records.get_mut(&status.id) else { return BTreeSet::new() };
        let impaired = [&status.system, &status.instance].contains(&&CheckStatus::Impaired);
        let is_new = Run::extend(&mut record.checks, impaired, began);
        if is_new || impaired { record.checks_for.clone() } else { BTreeSet::new() }
    }

    /// What is known of a machine now.
    pub fn machine(&self, instance: &InstanceId, now: Monotonic, policy: &Policy) -> Machine {
        if self.is_terminated(instance) {
            return Machine::Terminated;
        }
        let counts = |last: Monotonic| now.saturating_since(last) <= COUNTS_FOR;
        let Some(record) = self.records.get(instance) else { return Machine::Unknown };
        let Some(run) = record.state.as_ref().filter(|run| counts(run.last)) else { return Machine::Unknown };
        match &run.what {
            Shown::Absent if run.spans(ABSENCE_PROVED_AFTER, policy) => Machine::Absent,
            Shown::State(InstanceState::Stopped) if run.spans(STATE_PROVED_AFTER, policy) => Machine::Stopped,
            Shown::State(InstanceState::Running | InstanceState::Pending) => match &record.checks {
                Some(checks) if !counts(checks.last) => Machine::Unknown,
                Some(checks) if !checks.what => Machine::Running,
                Some(checks) if checks.spans(STATE_PROVED_AFTER, policy) => Machine::Impaired,
                _ => Machine::Unknown,
            },
            _ => Machine::Unknown,
        }
    }

    /// Whether the instance is known terminated: a state from which none comes back, so one read proves it.
    pub fn is_terminated(&self, instance: &InstanceId) -> bool {
        self.terminated.contains_key(instance)
    }

    /// Whether the newest read shows the instance on its way out or out: EC2 takes its volumes off soon.
    pub fn is_ending(&self, instance: &InstanceId) -> bool {
        let ending = Shown::State(InstanceState::ShuttingDown);
        let shown = self.records.get(instance).and_then(|record| record.state.as_ref());
        self.is_terminated(instance) || shown.is_some_and(|run| run.what == ending)
    }

    /// Whether the instance is in doubt and was not read since it is.
    pub fn is_unread(&self, instance: &InstanceId) -> bool {
        self.records.get(instance).is_some_and(|record| record.state.is_none()) && !self.is_terminated(instance)
    }

    /// Whether so many instances are absent at once that no absence counts: the wrong region, account or role looks so.
    pub fn is_mass_absence(&self) -> bool {
        self.mass_absence
    }

    fn forget_terminated(&mut self, now: Monotonic) {
        let in_doubt = &self.records;
        self.terminated
            .retain(|id, seen| in_doubt.contains_key(id) || now.saturating_since(*seen) < TERMINATED_REMEMBERED);
    }
}

impl Record {
    fn is_absent(&self) -> bool {
        self.state.as_ref().is_some_and(|run| run.what == Shown::Absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{AwsVolumeId, InstanceType, Zone};
    use crate::model::outcome::{CallResult, Ec2Refusal, Refusal};

    const PERIOD: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn id(number: usize) -> InstanceId {
        InstanceId::parse(&format!("i-0{number:03x}")).unwrap()
    }

    fn nodes(count: usize) -> BTreeMap<InstanceId, NodeName> {
        (0..count).map(|number| (id(number), NodeName::new(format!("n{number}")))).collect()
    }

    fn reading(id: &InstanceId, state: InstanceState) -> InstanceReading {
        let (instance_type, zone) = (InstanceType::new("m5.large"), Zone::new("z"));
        InstanceReading { id: id.clone(), state, instance_type, zone, mappings: Vec::new() }
    }

    fn doubting(instances: impl IntoIterator<Item = usize>) -> States {
        let mut states = States::default();
        let doubted = instances.into_iter().map(id).collect();
        let volume = VolumeKey::ebs(&AwsVolumeId::parse("vol-01").unwrap());
        states.watch(&volume, &BTreeSet::new(), &doubted, true);
        states
    }

    /// One round at `seconds`, in which `answer` says what is shown of each instance asked for.
    fn round(
        states: &mut States,
        seconds: u64,
        nodes: &BTreeMap<InstanceId, NodeName>,
        answer: impl Fn(&InstanceId) -> Option<InstanceState>,
    ) -> Vec<InstanceId> {
        let Some(Read::States(batch)) = states.next_read(at(seconds), PERIOD, nodes) else { panic!("no round is due") };
        let asked = batch.asked;
        let shown: Vec<_> = asked.iter().filter_map(|id| Some(reading(id, answer(id)?))).collect();
        states.absorb(&asked, &shown, at(seconds), nodes.len());
        asked
    }

    fn checks_asked(states: &mut States) -> Vec<InstanceId> {
        let Some(Read::Checks(batch)) = states.next_read(at(0), PERIOD, &nodes(9)) else { panic!("no checks are due") };
        batch.asked
    }

    fn machine(states: &States, instance: usize, seconds: u64) -> Machine {
        states.machine(&id(instance), at(seconds), &Policy::FULL)
    }

    #[test]
    fn stopped_takes_two_reads_ten_seconds_apart_and_terminated_one() {
        let mut states = doubting([1, 2]);
        let shows =
            |id_: &InstanceId| Some(if *id_ == id(1) { InstanceState::Stopped } else { InstanceState::Terminated });
        round(&mut states, 0, &nodes(9), shows);
        assert_eq!((machine(&states, 1, 0), machine(&states, 2, 0)), (Machine::Unknown, Machine::Terminated));
        round(&mut states, 9, &nodes(9), shows);
        assert_eq!(machine(&states, 1, 9), Machine::Unknown);
        round(&mut states, 14, &nodes(9), shows);
        assert_eq!(machine(&states, 1, 14), Machine::Stopped);
        assert_eq!(machine(&states, 1, 45), Machine::Unknown, "the last read is old: it may have been started");
    }

    #[test]
    fn a_read_that_shows_something_else_begins_anew() {
        let mut states = doubting([1]);
        for (seconds, state) in [(0, "stopped"), (5, "running"), (12, "stopped")] {
            let state = if state == "stopped" { InstanceState::Stopped } else { InstanceState::Running };
            round(&mut states, seconds, &nodes(9), |_| Some(state.clone()));
        }
        assert_eq!(machine(&states, 1, 12), Machine::Unknown);
    }

    #[test]
    fn absence_takes_thirty_seconds_and_others_in_the_same_answer() {
        let gone = |missing: usize| move |id_: &InstanceId| (*id_ != id(missing)).then_some(InstanceState::Running);
        let mut states = doubting([1]);
        round(&mut states, 0, &nodes(9), gone(1));
        round(&mut states, 25, &nodes(9), gone(1));
        assert_eq!(machine(&states, 1, 25), Machine::Unknown);
        round(&mut states, 31, &nodes(9), gone(1));
        assert_eq!(machine(&states, 1, 31), Machine::Absent);

        let mut alone = doubting([1]);
        for seconds in [0, 20, 40] {
            round(&mut alone, seconds, &BTreeMap::new(), |_| None);
        }
        assert_eq!(machine(&alone, 1, 40), Machine::Unknown, "nothing at all was found");
    }

    #[test]
    fn more_than_a_tenth_absent_at_once_is_no_absence_of_any() {
        for (absent, proved) in [(2, true), (3, false)] {
            let mut states = doubting(0..absent);
            let shows = |id_: &InstanceId| (*id_ >= id(absent)).then_some(InstanceState::Running);
            for seconds in [0, 20, 40] {
                round(&mut states, seconds, &nodes(20), shows);
            }
            assert_eq!(machine(&states, 0, 40) == Machine::Absent, proved, "{absent} of 20");
            assert_eq!(states.is_mass_absence(), !proved);
        }
    }

    #[test]
    fn companions_change_from_round_to_round() {
        let mut states = doubting([0]);
        let running = |_: &InstanceId| Some(InstanceState::Running);
        let first = round(&mut states, 0, &nodes(30), running);
        let second = round(&mut states, 5, &nodes(30), running);
        assert_eq!((first.len(), second.len()), (1 + COMPANIONS, 1 + COMPANIONS));
        let both = first.iter().filter(|id| second.contains(id)).collect::<Vec<_>>();
        assert_eq!(both, [&id(0)], "only the one in doubt is asked for again");
    }

    #[test]
    fn one_unknown_id_makes_each_be_asked_alone() {
        let mut states = doubting([1, 2]);
        round(&mut states, 0, &nodes(9), |_| Some(InstanceState::Running));
        let asked = checks_asked(&mut states);
        assert_eq!(asked, [id(1), id(2)]);
        let meaning = Ec2Refusal::InstanceNotFound;
        let refused = Refusal::Ec2 { meaning, code: "InvalidInstanceID.NotFound".into(), message: "".into() };
        let end = |asked, shown| End { asked, began: at(0), ended: at(0), shown };
        states.absorb_checks(end(asked, Err(CallResult::Refused(refused))));
        let alone = checks_asked(&mut states);
        assert_eq!(alone, [id(1)]);
        let ok = InstanceStatusReading {
            id: id(1),
            state: InstanceState::Running,
            system: CheckStatus::Ok,
            instance: CheckStatus::Ok,
        };
        states.absorb_checks(end(alone, Ok(vec![ok])));
        assert_eq!((machine(&states, 1, 0), machine(&states, 2, 0)), (Machine::Running, Machine::Unknown));
    }
}
