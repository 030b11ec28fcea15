//! Which machine an attachment is on, and which one a node is.
//!
//! Flow: every question about machines (rung b, doubts, wants that count) starts here. Pure lookups; must never tell the
//! machine of an attachment by its node's name where the VolumeAttachment has frozen it (G5).

use crate::controller::actual::slot::Slot;
use crate::controller::context::Context;
use crate::model::ids::{InstanceId, NodeName, VolumeKey};

/// The instance behind a node: of its Node object, else of the one that went, else the one frozen in the
/// VolumeAttachment.
pub fn instance_of<'a>(node: &NodeName, slot: Option<&'a Slot>, ctx: &'a Context) -> Option<&'a InstanceId> {
    let record = ctx.nodes.get(node);
    match record.and_then(|record| record.object.as_ref()) {
        Some(object) => object.provider_id.as_ref()?.instance(),
        None => {
            let gone = record.and_then(|record| record.gone.as_ref()?.instance.as_ref());
            gone.or_else(|| slot?.instance())
        }
    }
}

/// The machine an attachment is on: the instance frozen in the VolumeAttachment, never that of another Node under the
/// name; for other drivers, which freeze none, the node's own.
pub fn machine_behind(key: &VolumeKey, node: &NodeName, slot: &Slot, ctx: &Context) -> Option<InstanceId> {
    if key.driver.is_ebs() {
        return slot.instance().cloned().or_else(|| slot.object.as_ref()?.instance());
    }
    instance_of(node, None, ctx).cloned()
}
