//! Answers for people and for metrics, as data: what is held, what waits, and why.
//!
//! Flow: the loop asks between two plans. Walks everything once a question; must never change anything.

use std::collections::BTreeMap;
use std::time::Duration;

use super::actual::slot::Slot;
use super::command::BudgetClass;
use super::outbox::Pending;
use super::store::Store;
use crate::model::ids::{NodeName, VolumeKey};
use crate::model::time::Monotonic;

/// The state of the core in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Whether every watch has synced.
    pub synced: bool,
    /// Whether the guards of all roles are held.
    pub leading: bool,
    /// Volume and node pairs that pods want.
    pub desired: usize,
    /// Attachments that EC2 (or another driver's status) confirmed.
    pub actual: usize,
    /// Attaches that wait, and the age of the oldest.
    pub pending_attach: (usize, Duration),
    /// Detaches that wait, and the age of the oldest.
    pub pending_detach: (usize, Duration),
    /// What waits, by reason.
    pub blocked: BTreeMap<&'static str, usize>,
    /// Commands without an outcome.
    pub commands_in_flight: usize,
    /// Mutating EC2 calls without an outcome.
    pub ec2_mutations_in_flight: usize,
    /// Tokens and rate per second of each budget.
    pub budgets: Vec<(BudgetClass, f64, f64)>,
}

/// One thing that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The volume.
    pub volume: VolumeKey,
    /// The node.
    pub node: NodeName,
    /// Attach or detach.
    pub leaving: bool,
    /// Why.
    pub why: String,
    /// Since when.
    pub since: Monotonic,
}

/// The numbers.
pub(super) fn status(store: &Store) -> Status {
    let ctx = &store.ctx;
    let mut status = Status {
        synced: ctx.is_synced(),
        leading: ctx.leading_since.is_some(),
        commands_in_flight: ctx.outbox.in_flight().count(),
        ec2_mutations_in_flight: ctx.outbox.in_flight().filter(|pending| is_mutation(pending)).count(),
        ..Status::default()
    };
    for class in [BudgetClass::Attach, BudgetClass::Poll, BudgetClass::Write, BudgetClass::Event] {
        status.budgets.push((class, ctx.outbox.budget.level(class), ctx.outbox.budget.rate(class)));
    }
    for (key, volume) in &store.volumes {
        for (node, slot) in &volume.slots {
            let wanted = ctx.desired.wants(key).iter().any(|want| want.node == *node);
            status.desired += usize::from(wanted);
            status.actual += usize::from(slot.confirmed.is_some() || slot.confirmed_at.is_some());
            count_wait(&mut status, slot, wanted, ctx.now.monotonic);
        }
    }
    status
}

fn count_wait(status: &mut Status, slot: &Slot, wanted: bool, now: Monotonic) {
    let Some(blocked) = &slot.blocked else { return };
    *status.blocked.entry(blocked.reason.label()).or_default() += 1;
    let age = match &slot.leaving {
        Some(leaving) => now.saturating_since(leaving.since.monotonic),
        None => now.saturating_since(blocked.since),
    };
    let pending = if wanted { &mut status.pending_attach } else { &mut status.pending_detach };
    pending.0 += 1;
    pending.1 = pending.1.max(age);
}

fn is_mutation(pending: &Pending) -> bool {
    matches!(pending, Pending::Attach { .. } | Pending::Detach { .. })
}

/// Everything that waits, with its reason.
pub(super) fn waiting(store: &Store) -> Vec<Waiting> {
    let slots =
        store.volumes.iter().flat_map(|(key, volume)| volume.slots.iter().map(move |(node, slot)| (key, node, slot)));
    slots
        .filter_map(|(key, node, slot)| {
            let blocked = slot.blocked.as_ref()?;
            let leaving = slot.leaving.is_some() || slot.cleared || slot.is_terminating();
            let (volume, node) = (key.clone(), node.clone());
            Some(Waiting { volume, node, leaving, why: blocked.reason.to_string(), since: blocked.since })
        })
        .collect()
}
