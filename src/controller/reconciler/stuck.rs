//! Attachments that EC2 does not bring to an end: `attaching`, `detaching` or `busy` for long.
//!
//! Flow: `reconciler` looks here before it advances a slot; attach and detach ask what to call their waiting. Owns the clock
//! of each transition and what was said of it. Must never act: nothing is forced, no node is tainted, no device name
//! freed; a person is told which instance to stop.

use std::time::Duration;

use super::work::Work;
use crate::controller::actual::slot::{InTransit, Slot};
use crate::controller::notes::event_text;
use crate::controller::reason::BlockedReason;
use crate::model::time::Monotonic;
use crate::model::volume::AttachmentState;

/// EC2 attaches within seconds; one that is `attaching` this long after its send hangs until it is detached.
pub const HUNG_AFTER: Duration = Duration::from_secs(90);
/// Longer than any detach that ends by itself: the wait is called what it is from here on.
const STUCK_AFTER: Duration = Duration::from_secs(5 * 60);
/// What is stuck is said when it has lasted this long, once each.
const NEWS_AT: [Duration; 2] = [STUCK_AFTER, Duration::from_secs(30 * 60)];
/// News rests on a read that is not older than this.
const READ_MAX_AGE: Duration = Duration::from_secs(60);

/// Keeps the clock of the slot's transition, and says when it has lasted long.
pub fn watch(slot: &mut Slot, work: &mut Work<'_>) {
    if work.volume.readings.current().is_none() {
        // A call ended just now, or nothing was read yet: what was seen last may still be so.
        return;
    }
    let now = work.now().monotonic;
    let state = work.shown(slot).map(|attachment| attachment.state.clone());
    let Some(state) = state.filter(|state| *state != AttachmentState::Attached) else {
        slot.in_transit = None;
        return;
    };
    let leaving = state != AttachmentState::Attaching;
    let transit = match slot.in_transit.take() {
        Some(transit) if transit.leaving == leaving => transit,
        _ => {
            let sent = slot.attach_sent.as_ref().filter(|_| !leaving).map(|sent| sent.at.monotonic);
            InTransit { leaving, since: sent.unwrap_or(now), given_up: None, said: 0 }
        }
    };
    slot.in_transit = Some(say(slot, work, transit, &state, now));
}

fn say(slot: &Slot, work: &mut Work<'_>, transit: InTransit, state: &AttachmentState, now: Monotonic) -> InTransit {
    let lasts = now.saturating_since(transit.since);
    let said = NEWS_AT.iter().filter(|at| lasts >= **at).count();
    if let Some(next) = NEWS_AT.get(said) {
        work.ctx.wake_volume(work.key, transit.since + *next, "stuck is news");
    }
    if said <= transit.said {
        return transit;
    }
    if work.volume.readings.began().is_none_or(|began| now.saturating_since(began) > READ_MAX_AGE) {
        work.ctx.want_read(work.key, now);
        return transit;
    }
    let Some(instance) = slot.instance().cloned() else { return transit };
    let volumes = work.ctx.desired.persistent_volumes_of(work.key);
    let about: Vec<_> = volumes.map(|volume| (volume.name.clone(), volume.uid.clone())).collect();
    let text = event_text::stuck(work.key, work.node, &instance, state.as_str(), lasts);
    work.ctx.notes.of_attachment(&text, slot.object.as_ref(), &about);
    InTransit { said, ..transit }
}

/// What a slot waits for while EC2 shows its attachment on the way.
pub fn waiting_reason(slot: &Slot, work: &Work<'_>) -> BlockedReason {
    let now = work.now().monotonic;
    let (Some(transit), Some(instance), Some(shown)) = (&slot.in_transit, slot.instance(), work.shown(slot)) else {
        return BlockedReason::WaitingForEc2;
    };
    let limit = if transit.leaving { STUCK_AFTER } else { HUNG_AFTER };
    if now.saturating_since(transit.since) < limit {
        return BlockedReason::WaitingForEc2;
    }
    BlockedReason::StuckInEc2 { state: shown.state.as_str().to_owned(), instance: instance.clone() }
}
