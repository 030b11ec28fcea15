//! Claims, PersistentVolumes and CSIDrivers as last seen, and the way from a pod's volume through them to a volume.
//!
//! Flow: [`super::DesiredStateOfWorld`] puts objects in and asks for the volumes of pods. Owns nothing about pods: who
//! must be asked again after a change is the caller's business. Must never take a missing object for "wants nothing".

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::translation::{Unresolved, volume_of_source, volume_of_spelled_id};
use crate::model::attachment::NewAttachmentSource;
use crate::model::claim::{Claim, PersistentVolume};
use crate::model::ids::{ClaimKey, DriverName, PersistentVolumeName, PodKey, Uid, VolumeKey};
use crate::model::pod::PodVolume;

/// A claim, as far as resolving needs it.
#[derive(Debug)]
pub(super) struct ClaimRecord {
    pub(super) uid: Uid,
    bound_to: Option<PersistentVolumeName>,
    owner_pod: Option<Uid>,
    pub(super) seen: u64,
}

/// A PersistentVolume, and the volume it names.
#[derive(Debug)]
pub(super) struct PersistentVolumeRecord {
    pub(super) object: PersistentVolume,
    pub(super) volume: Option<VolumeKey>,
    pub(super) seen: u64,
}

/// A CSIDriver.
#[derive(Debug)]
pub(super) struct DriverRecord {
    pub(super) attach_required: bool,
    pub(super) seen: u64,
}

/// A volume found for a pod, and what a VolumeAttachment of it is made from.
pub(super) type Found = (VolumeKey, NewAttachmentSource);

/// The objects between a pod and its volumes.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) claims: BTreeMap<ClaimKey, ClaimRecord>,
    pub(super) persistent_volumes: BTreeMap<PersistentVolumeName, PersistentVolumeRecord>,
    pub(super) drivers: BTreeMap<DriverName, DriverRecord>,
}

/// The claim a volume of a pod goes through, if it goes through one.
pub(super) fn claim_of(pod: &PodKey, volume: &PodVolume) -> Option<ClaimKey> {
    match volume {
        PodVolume::Claim(name) => Some(ClaimKey { namespace: pod.namespace.clone(), name: name.clone() }),
        PodVolume::Ephemeral(name) => {
            let name = SmolStr::new(format!("{}-{name}", pod.name));
            Some(ClaimKey { namespace: pod.namespace.clone(), name })
        }
        PodVolume::InlineEbs(_) | PodVolume::Untranslated(_) => None,
    }
}

impl Objects {
    /// Stores a claim. Whether anything that matters changed.
    pub(super) fn put_claim(&mut self, claim: &Claim, mark: u64) -> bool {
        let record = ClaimRecord {
            uid: claim.uid.clone(),
            bound_to: claim.bound_to.clone(),
            owner_pod: claim.owner_pod.clone(),
            seen: mark,
        };
        match self.claims.insert(claim.key.clone(), record) {
            Some(old) => old.uid != claim.uid || old.bound_to != claim.bound_to || old.owner_pod != claim.owner_pod,
            None => true,
        }
    }

    /// Whether a volume of this driver must be attached before use. A missing CSIDriver means that it must.
    pub(super) fn attach_required(&self, driver: &DriverName) -> bool {
        self.drivers.get(driver).is_none_or(|record| record.attach_required)
    }

    /// The volume of a pod: `Ok(None)` when it is of a kind that is never attached.
    pub(super) fn resolve(&self, pod: &PodKey, uid: &Uid, volume: &PodVolume) -> Result<Option<Found>, Unresolved> {
        match volume {
            PodVolume::InlineEbs(inline) => {
                let key = volume_of_spelled_id(&inline.volume_id)?;
                Ok(Some((key, NewAttachmentSource::Inline(inline.clone()))))
            }
            PodVolume::Untranslated(plugin) => Err(Unresolved::Untranslated(plugin.clone())),
            PodVolume::Claim(_) | PodVolume::Ephemeral(_) => {
                let Some(key) = claim_of(pod, volume) else { return Ok(None) };
                let must_own = matches!(volume, PodVolume::Ephemeral(_));
                self.resolve_claim(&key, must_own.then_some(uid))
            }
        }
    }

    fn resolve_claim(&self, key: &ClaimKey, owner: Option<&Uid>) -> Result<Option<Found>, Unresolved> {
        let claim = self.claims.get(key).ok_or_else(|| Unresolved::ClaimMissing(key.clone()))?;
        if owner.is_some() && claim.owner_pod.as_ref() != owner {
            return Err(Unresolved::ForeignClaim(key.clone()));
        }
        let name = claim.bound_to.as_ref().ok_or_else(|| Unresolved::ClaimUnbound(key.clone()))?;
        let record =
            self.persistent_volumes.get(name).ok_or_else(|| Unresolved::PersistentVolumeMissing(name.clone()))?;
        let bound_back = record.object.claim.as_ref().is_some_and(|(back, uid)| back == key && *uid == claim.uid);
        if !bound_back {
            return Err(Unresolved::BoundElsewhere { claim: key.clone(), volume: name.clone() });
        }
        match volume_of_source(&record.object.source) {
            Ok(volume) => Ok(Some((volume, NewAttachmentSource::PersistentVolume(record.object.name.clone())))),
            Err(Unresolved::NotAttachable) => Ok(None),
            Err(unresolved) => Err(unresolved),
        }
    }
}
