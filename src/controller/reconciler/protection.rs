//! The finalizer on PersistentVolumes: kept while a VolumeAttachment names the volume, taken off one that is being deleted.
//!
//! External-attacher's protocol: a PersistentVolume must outlive its VolumeAttachments, or a detach cannot find the volume.

use smol_str::SmolStr;

use crate::controller::actual::volume::Volume;
use crate::controller::command::{BudgetClass, Call, KubernetesCall};
use crate::controller::context::{BackoffKey, Context, Operation};
use crate::controller::event::Role;
use crate::controller::outbox::{Pending, Target};
use crate::model::ids::VolumeKey;

/// Takes our finalizer off a PersistentVolume of the volume that is being deleted, when no VolumeAttachment is left.
pub fn release(key: &VolumeKey, volume: &mut Volume, ctx: &mut Context) {
    let in_use =
        volume.slots.values().any(|slot| slot.object.is_some() || slot.write.is_some() || slot.recorded.is_some());
    // While a pod still wants it, it is kept: once off, it cannot be put back on one that is being deleted.
    let wanted = !ctx.desired.wants(key).is_empty();
    if in_use || wanted || ctx.has_persistent_volume_write(key) {
        return;
    }
    let is_ours = |finalizer: &SmolStr| key.driver.is_attacher_finalizer(finalizer);
    let leaving = ctx
        .desired
        .persistent_volumes_of(key)
        .find(|volume| volume.deleting && volume.finalizers.iter().any(is_ours))
        .cloned();
    let Some(leaving) = leaving else { return };
    let backoff = BackoffKey::PersistentVolume(key.clone());
    if let Some(at) = ctx.backoff.ready_at(&backoff, &Operation::PersistentVolume)
        && at > ctx.now.monotonic
    {
        return ctx.wake_volume(key, at, "backoff over");
    }
    let Some(permit) = ctx.permit(Role::Attacher) else { return };
    if !ctx.ask(BudgetClass::Write, Target::PersistentVolume(key.clone(), leaving.name.clone())) {
        return;
    }
    let call = KubernetesCall::SetPersistentVolumeFinalizers {
        name: leaving.name.clone(),
        uid: leaving.uid.clone(),
        resource_version: leaving.resource_version.clone(),
        finalizers: leaving.finalizers.iter().filter(|finalizer| !is_ours(finalizer)).cloned().collect(),
    };
    let pending = Pending::PersistentVolume { volume: key.clone(), name: leaving.name };
    ctx.outbox.push(BudgetClass::Write, permit, Call::Kubernetes(call), pending);
    ctx.persistent_volume_writes.insert(key.clone());
}
