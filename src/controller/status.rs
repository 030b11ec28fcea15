//! What the core says of itself when asked: counts and ages, for metrics.
//!
//! Flow: the loop asks between two plans; the daemon turns the answer into metrics. Names no pod, node or volume, so that
//! the answer stays small however large the cluster is.

use std::collections::BTreeMap;
use std::time::Duration;

use super::budget::BucketKind;
use crate::model::ids::DriverName;

/// The state of the core in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Whether the guards of all roles are held.
    pub leading: bool,
    /// Per driver, of those that need attach.
    pub volumes: BTreeMap<DriverName, VolumeCounts>,
    /// Operations that are wanted and have not ended; a direction without any is left out.
    pub pending: BTreeMap<Direction, Pending>,
    /// How many operations wait for a reason, by [`super::reason::BlockedReason::label`].
    pub blocked: BTreeMap<(Direction, &'static str), u64>,
    /// Every bucket.
    pub budgets: BTreeMap<BucketKind, BudgetLevel>,
    /// Detaches without the node's word that the volume is not in use, since the start of the process.
    pub forced_detaches: BTreeMap<ForcedReason, u64>,
    /// Reads of EC2 that disagreed with what was believed, since the start of the process.
    pub disagreements: BTreeMap<Disagreement, u64>,
    /// Attachments that EC2 shows and nothing here explains.
    pub foreign_attachments: u64,
    /// How long ago the attached volume was read whose last read is the oldest; one that was not read since the lease was
    /// got counts from there. `None` while nothing is attached.
    pub sweep_age: Option<Duration>,
    /// How long ago what is attached was read.
    pub read_ages: ReadAges,
    /// How long the last whole sweep over the attachments took: longer than the sweep period when EC2 throttles.
    pub sweep_duration: Option<Duration>,
    /// So many instances or volumes are absent from EC2's answers at once that no absence counts: the wrong region, account
    /// or role looks like that (rule 17).
    pub mass_absence: bool,
    /// Pods that name a volume that cannot be told.
    pub unresolved_pods: u64,
}

/// How many volumes, counted once for each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounts {
    /// In the desired state of world: a pod wants the volume on the node.
    pub desired: u64,
    /// In the actual state of world: the volume is, or may be, attached to the node.
    pub actual: u64,
}

/// How long ago what is attached was read from EC2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAges {
    /// Attached volumes, once for each node.
    pub volumes: Ages,
    /// Nodes with attached volumes, each by the volume whose last read is the oldest.
    pub nodes: Ages,
}

/// How many are how old: a count for each bound, and all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    within: [u64; Ages::BOUNDS_SECS.len()],
    all: u64,
}

impl Ages {
    /// In seconds. A sweep takes a minute unless it is stretched.
    pub const BOUNDS_SECS: [u64; 6] = [15, 30, 60, 90, 180, 600];

    /// One that is so old.
    pub fn count(&mut self, age: Duration) {
        for (bound, count) in Self::BOUNDS_SECS.into_iter().zip(&mut self.within) {
            *count += u64::from(age <= Duration::from_secs(bound));
        }
        self.all += 1;
    }

    /// Each bound in seconds with how many are not older; last those of any age (`None`).
    pub fn cumulated(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let within = Self::BOUNDS_SECS.into_iter().map(Some).zip(self.within);
        within.chain([(None, self.all)])
    }
}

/// Which way an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// A volume is wanted on a node, and its VolumeAttachment does not say attached yet.
    Attach,
    /// A volume is not wanted on a node, and its VolumeAttachment is not gone yet.
    Detach,
}

/// Operations under way in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// How many.
    pub count: u64,
    /// How long the oldest has been wanted: since its pod was bound, or since the detach was wished for.
    pub oldest: Duration,
}

/// The state of one bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetLevel {
    /// Tokens in it now.
    pub tokens: f64,
    /// Tokens that come back per second now: fewer than configured after a throttle.
    pub per_second: f64,
}

/// Why a volume was taken from a node that did not let it go: upstream's two reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForcedReason {
    /// The unmount timeout was over, rung (d).
    Timeout,
    /// The node carries the taint `node.kubernetes.io/out-of-service`, rung (c).
    OutOfService,
}

/// How a read of EC2 can disagree with what was believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disagreement {
    /// A volume that was attached is not, and nothing here detached it.
    SilentDetach,
    /// A volume is attached in a way that nothing here explains.
    ForeignAttachment,
}

impl Disagreement {
    /// Every way.
    pub const ALL: [Self; 2] = [Self::SilentDetach, Self::ForeignAttachment];
}
