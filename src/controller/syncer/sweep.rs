//! The periodic reads: every volume that is or may be attached once a sweep period, every other PersistentVolume's at a
//! tenth of that rate.
//!
//! Flow: the plan tells where each volume belongs ([`Sweep::place`]); [`Sweep::next_batch`] gives the volumes of the next
//! request when it is due; the syncer makes the call and judges the answer. Owns the rotas and the batches that failed.
//! Members come and go one by one: nothing here walks over all of them, except when a lease is got. Must never send a
//! burst: requests are spread evenly over the period, and only volumes that were never read since the lease was got are
//! read as fast as the budget of sweeps allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use super::batch::FILTER_MAX;
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::model::time::Monotonic;

/// Volumes without an attachment are read this many times less often: only what a person does to them is news.
const LOOSE_STRETCH: u32 = 10;
/// Volumes never read since the lease gather for this long before less than a full batch of them is asked for.
const UNREAD_GATHER: Duration = Duration::from_secs(1);
/// Requests of sweeps without an answer, at most: when EC2 is slow, more of them make it slower.
const UNDER_WAY_MAX: usize = 32;
/// A failed batch is asked again after this; longer with every failure in a row, up to [`RETRY_AT_MOST`].
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// See [`RETRY_AFTER`].
const RETRY_AT_MOST: Duration = Duration::from_secs(15);
/// The rotas stand while this many failed batches wait: an outage must not fill the memory with them.
const RETRIES_MAX: usize = 8;
/// A batch that failed this often while others did not is asked for in halves: what spoils it then spoils less.
const HALVED_AFTER: u32 = 3;

/// Where a volume belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It has a slot on this node (the first, if it has several): a node's volumes are read together.
    On(NodeName),
    /// It has none, but a PersistentVolume names it.
    Loose,
}

/// A volume in its rota: the order of the rota is the order of this.
type Member = (Option<NodeName>, AwsVolumeId);

/// The periodic reads.
#[derive(Debug)]
pub struct Sweep {
    period: Duration,
    places: BTreeMap<AwsVolumeId, Placed>,
    attached: Rota,
    loose: Rota,
    /// Members of `attached` that were never read since the lease was got, and that nobody else asks for.
    unread: BTreeSet<Member>,
    /// Since when any of them waits.
    unread_since: Monotonic,
    retries: VecDeque<Retry>,
    /// Failures in a row.
    failing: u32,
    last_success: Monotonic,
    under_way: usize,
}

#[derive(Debug)]
struct Placed {
    place: Place,
    /// Whether it was read since the lease was got.
    is_read: bool,
}

/// A batch that failed.
#[derive(Debug)]
struct Retry {
    at: Monotonic,
    volumes: Vec<AwsVolumeId>,
    failures: u32,
}

/// The volumes of one request.
#[derive(Debug)]
pub struct SweepBatch {
    /// At most [`FILTER_MAX`], sorted.
    pub volumes: Vec<AwsVolumeId>,
    /// How often it failed already.
    pub failures: u32,
}

/// Members in order, and how far the present round has come.
#[derive(Debug, Default)]
struct Rota {
    members: BTreeSet<Member>,
    /// The last one that was asked for in this round.
    cursor: Option<Member>,
    last_sent: Monotonic,
    round_began: Option<Monotonic>,
    last_round: Option<Duration>,
}

impl Sweep {
    /// A sweep that takes `period`.
    pub fn new(period: Duration) -> Self {
        Self {
            period,
            places: BTreeMap::new(),
            attached: Rota::default(),
            loose: Rota::default(),
            unread: BTreeSet::new(),
            unread_since: Monotonic::ZERO,
            retries: VecDeque::new(),
            failing: 0,
            last_success: Monotonic::ZERO,
            under_way: 0,
        }
    }

    /// A lease was got: what was read before counts no longer, and both rotas begin anew.
    pub fn lease_got(&mut self, now: Monotonic) {
        for placed in self.places.values_mut() {
            placed.is_read = false;
        }
        self.unread = self.attached.members.clone();
        self.unread_since = now;
        self.attached.begin_anew(now);
        self.loose.begin_anew(now);
    }

    /// The volume belongs there now; `None`: it is no volume of this cluster any more. One that
    /// somebody asks for already (`wished`) needs no first read.
    pub fn place(&mut self, id: &AwsVolumeId, place: Option<Place>, wished: bool, now: Monotonic) {
        let known = self.places.get(id);
        if known.map(|known| &known.place) == place.as_ref() {
            return;
        }
        let is_read = known.is_some_and(|known| known.is_read);
        if let Some(known) = known {
            let member = member(&known.place, id);
            self.rota(&member).members.remove(&member);
            self.unread.remove(&member);
        }
        let Some(place) = place else {
            self.places.remove(id);
            return;
        };
        let member = member(&place, id);
        if member.0.is_some() && !is_read && !wished {
            if self.unread.is_empty() {
                self.unread_since = now;
            }
            self.unread.insert(member.clone());
        }
        let rota = self.rota(&member);
        if rota.members.is_empty() {
            rota.begin_anew(now);
        }
        rota.members.insert(member);
        self.places.insert(id.clone(), Placed { place, is_read });
    }

    fn rota(&mut self, member: &Member) -> &mut Rota {
        if member.0.is_some() { &mut self.attached } else { &mut self.loose }
    }

    /// Where the volume belongs, as last told.
    pub fn place_of(&self, id: &AwsVolumeId) -> Option<&Place> {
        self.places.get(id).map(|placed| &placed.place)
    }

    /// Whether the volume is one of this cluster.
    pub fn has(&self, id: &AwsVolumeId) -> bool {
        self.places.contains_key(id)
    }

    /// The volume is being read otherwise: it needs no first read from here.
    pub fn wished(&mut self, id: &AwsVolumeId) {
        if let Some(placed) = self.places.get(id).filter(|placed| !placed.is_read) {
            self.unread.remove(&member(&placed.place, id));
        }
    }

    /// The volume was read, by whatever request.
    pub fn was_read(&mut self, id: &AwsVolumeId) {
        let Some(placed) = self.places.get_mut(id) else { return };
        if !std::mem::replace(&mut placed.is_read, true) {
            self.unread.remove(&member(&placed.place, id));
        }
    }

    /// When the next batch is due, `share` being what throttles left of the rate. `None` while there is nothing to read,
    /// or too much is under way.
    pub fn next_due(&self, share: f64) -> Option<Monotonic> {
        if self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        let retry = self.retries.front().map(|retry| retry.at);
        if self.retries.len() >= RETRIES_MAX {
            return retry;
        }
        let unread = match self.unread.len() {
            0 => None,
            few if few < FILTER_MAX => Some(self.unread_since + UNREAD_GATHER),
            _ => Some(Monotonic::ZERO),
        };
        let attached = self.attached.next_due(self.period, share);
        let loose = self.loose.next_due(self.period * LOOSE_STRETCH, share);
        [retry, unread, attached, loose].into_iter().flatten().min()
    }

    /// The next batch that is due, if any: what failed before, then what was never read, then the rotas.
    pub fn next_batch(&mut self, share: f64, now: Monotonic) -> Option<SweepBatch> {
        if self.next_due(share).is_none_or(|due| due > now) {
            return None;
        }
        let batch = self.take(share, now);
        self.under_way += usize::from(batch.is_some());
        batch
    }

    fn take(&mut self, share: f64, now: Monotonic) -> Option<SweepBatch> {
        while let Some(retry) = self.retries.pop_front_if(|retry| retry.at <= now) {
            let volumes: Vec<_> = retry.volumes.into_iter().filter(|id| self.places.contains_key(id)).collect();
            if !volumes.is_empty() {
                return Some(SweepBatch { volumes, failures: retry.failures });
            }
        }
        let gathered = self.unread.len() >= FILTER_MAX || now >= self.unread_since + UNREAD_GATHER;
        let is_due = |due: Option<Monotonic>| due.is_some_and(|due| due <= now);
        let members = if !self.unread.is_empty() && gathered {
            std::iter::from_fn(|| self.unread.pop_first()).take(FILTER_MAX).collect()
        } else if is_due(self.attached.next_due(self.period, share)) {
            self.attached.take(now)
        } else if is_due(self.loose.next_due(self.period * LOOSE_STRETCH, share)) {
            self.loose.take(now)
        } else {
            return None;
        };
        let mut volumes: Vec<_> = members.into_iter().map(|(_, id)| id).collect();
        volumes.sort();
        (!volumes.is_empty()).then_some(SweepBatch { volumes, failures: 0 })
    }

    /// A batch was answered, all its pages.
    pub fn succeeded(&mut self, now: Monotonic) {
        self.under_way = self.under_way.saturating_sub(1);
        self.failing = 0;
        self.last_success = self.last_success.max(now);
    }

    /// A batch failed, or one of its pages: it comes again soon, and says nothing until then.
    pub fn failed(&mut self, batch: SweepBatch, began: Monotonic, now: Monotonic, throttled: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        let delay = RETRY_AFTER * 2u32.saturating_pow(self.failing.min(8));
        self.failing += 1;
        let at = now + delay.min(RETRY_AT_MOST);
        let failures = batch.failures + u32::from(!throttled);
        let others_came = self.last_success > began.saturating_sub(RETRY_AT_MOST);
        let mut parts = vec![batch.volumes];
        if failures >= HALVED_AFTER && others_came && parts[0].len() > 1 {
            let half = parts[0].len() / 2;
            let rest = parts[0].split_off(half);
            parts.push(rest);
        }
        for volumes in parts {
            let place = self.retries.partition_point(|retry| retry.at <= at);
            self.retries.insert(place, Retry { at, volumes, failures });
        }
    }

    /// How long a sweep is to take.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// How long the last whole sweep over the attachments took.
    pub fn last_round(&self) -> Option<Duration> {
        self.attached.last_round
    }
}

impl Rota {
    fn begin_anew(&mut self, now: Monotonic) {
        self.cursor = None;
        self.round_began = None;
        self.last_sent = now;
    }

    fn next_due(&self, period: Duration, share: f64) -> Option<Monotonic> {
        let batches = u32::try_from(self.members.len().div_ceil(FILTER_MAX)).unwrap_or(u32::MAX);
        let interval = (batches > 0).then(|| (period / batches).div_f64(share.max(0.01)))?;
        Some(self.last_sent + interval)
    }

    /// The members after the cursor; at the end of them the round is over.
    fn take(&mut self, now: Monotonic) -> Vec<Member> {
        if self.cursor.is_none() {
            self.last_round = self.round_began.map(|began| now.saturating_since(began));
            self.round_began = Some(now);
        }
        let after = self.cursor.take().map_or(Bound::Unbounded, Bound::Excluded);
        let taken: Vec<Member> = self.members.range((after, Bound::Unbounded)).take(FILTER_MAX).cloned().collect();
        if taken.len() == FILTER_MAX && taken.last() != self.members.last() {
            self.cursor = taken.last().cloned();
        }
        self.last_sent = now;
        taken
    }
}

fn member(place: &Place, id: &AwsVolumeId) -> Member {
    let node = match place {
        Place::On(node) => Some(node.clone()),
        Place::Loose => None,
    };
    (node, id.clone())
}

#[cfg(test)]
mod tests;
