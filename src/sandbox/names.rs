//! How EC2 spells codes, types and times.

use std::time::{Duration, UNIX_EPOCH};

use crate::model::time::Wall;
use crate::model::volume::InstanceState;

pub(super) fn instance_state_code(state: &InstanceState) -> u8 {
    match state {
        InstanceState::Pending => 0,
        InstanceState::Running => 16,
        InstanceState::ShuttingDown => 32,
        InstanceState::Terminated => 48,
        InstanceState::Stopping => 64,
        InstanceState::Stopped => 80,
        InstanceState::Unknown(_) => 255,
    }
}

/// The sandbox knows two types: those that can be attached more than once, and the others.
pub(super) fn volume_type(multi_attach: bool) -> &'static str {
    if multi_attach { "io2" } else { "gp3" }
}

/// `2026-01-31T12:00:00.000Z`
pub(super) fn timestamp(wall: Wall) -> String {
    let millis = u64::try_from(wall.as_millis()).unwrap_or(0);
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis)).to_string()
}
