//! The volume guard: which volumes may be attached and detached at all, told by their tags.
//!
//! Flow: `reconciler` asks before every AttachVolume and DetachVolume with what the last read showed; `answers` keeps only
//! the tags that are asked about. Pure functions; must never allow a volume that was not read.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::policy::VolumeGuard;
use super::reason::BlockedReason;
use crate::model::volume::VolumeReading;

/// The tag by which clusters own what they use: key `kubernetes.io/cluster/NAME`, value `owned` or `shared`.
pub const CLUSTER_TAG_PREFIX: &str = "kubernetes.io/cluster/";

/// Whether the volume may be attached or detached; why not otherwise. `None`: it was never read.
pub fn check(volume: Option<&VolumeReading>, guard: &VolumeGuard) -> Result<(), BlockedReason> {
    if *guard == VolumeGuard::default() {
        return Ok(());
    }
    let Some(volume) = volume else { return Err(BlockedReason::VolumeNotRead) };
    if let Some(cluster) = &guard.cluster_name {
        let mut owners = volume.tags.keys().filter_map(|key| key.strip_prefix(CLUSTER_TAG_PREFIX)).peekable();
        if let Some(owner) = owners.peek().copied()
            && !owners.any(|owner| owner == cluster.as_str())
        {
            return Err(BlockedReason::VolumeGuard(format!(
                "the volume is tagged {CLUSTER_TAG_PREFIX}{owner} and not for this cluster, {cluster} \
                 (volumeGuard.clusterName)"
            )));
        }
    }
    if let Some((key, value)) = &guard.require_tag {
        let found = volume.tags.get(key);
        let carries = found.is_some_and(|found| value.as_ref().is_none_or(|value| value == found));
        if !carries {
            let wanted = value.as_ref().map_or_else(|| key.to_string(), |value| format!("{key}={value}"));
            return Err(BlockedReason::VolumeGuard(format!(
                "the volume does not carry the tag {wanted} (volumeGuard.requireTag)"
            )));
        }
    }
    Ok(())
}

/// Drops the tags the guard does not ask about: a hundred thousand volumes with fifty tags each would take more memory
/// than everything else that is known of them.
pub fn keep_needed(tags: &mut BTreeMap<SmolStr, SmolStr>, guard: &VolumeGuard) {
    tags.retain(|key, _| {
        let cluster = guard.cluster_name.is_some() && key.starts_with(CLUSTER_TAG_PREFIX);
        cluster || guard.require_tag.as_ref().is_some_and(|(required, _)| required == key)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{AwsVolumeId, Zone};
    use crate::model::volume::VolumeState;

    fn tagged(tags: &[(&str, &str)]) -> VolumeReading {
        VolumeReading {
            id: AwsVolumeId::parse("vol-0a").unwrap(),
            state: VolumeState::Available,
            attachments: Vec::new(),
            multi_attach_enabled: false,
            zone: Zone::new("z"),
            tags: tags.iter().map(|(key, value)| (SmolStr::new(key), SmolStr::new(value))).collect(),
        }
    }

    fn of_cluster(name: &str) -> VolumeGuard {
        VolumeGuard { cluster_name: Some(name.into()), require_tag: None }
    }

    fn requiring(key: &str, value: Option<&str>) -> VolumeGuard {
        VolumeGuard { cluster_name: None, require_tag: Some((key.into(), value.map(SmolStr::new))) }
    }

    fn refusal(tags: &[(&str, &str)], guard: &VolumeGuard) -> Option<String> {
        check(Some(&tagged(tags)), guard).err().map(|reason| reason.to_string())
    }

    #[test]
    fn without_settings_everything_is_allowed_read_or_not() {
        assert_eq!(check(None, &VolumeGuard::default()), Ok(()));
        assert_eq!(refusal(&[("kubernetes.io/cluster/other", "owned")], &VolumeGuard::default()), None);
    }

    #[test]
    fn a_volume_of_other_clusters_only_is_refused_and_named() {
        let guard = of_cluster("blue");
        let refused = refusal(&[("kubernetes.io/cluster/green", "owned")], &guard).unwrap();
        assert!(refused.contains("kubernetes.io/cluster/green") && refused.contains("blue"), "{refused}");
        let shared = [("kubernetes.io/cluster/green", "shared"), ("kubernetes.io/cluster/blue", "shared")];
        assert_eq!(refusal(&shared, &guard), None);
        assert_eq!(refusal(&[("kubernetes.io/cluster/blue", "owned")], &guard), None);
        assert_eq!(refusal(&[("Name", "data")], &guard), None, "one that no cluster owns");
        assert!(refusal(&[("kubernetes.io/cluster/blue2", "owned")], &guard).is_some(), "the whole name counts");
    }

    #[test]
    fn a_required_tag_is_asked_for_with_its_value_if_one_is_set() {
        assert_eq!(refusal(&[("allow", "no")], &requiring("allow", None)), None);
        assert_eq!(refusal(&[("allow", "yes")], &requiring("allow", Some("yes"))), None);
        assert!(refusal(&[("allow", "no")], &requiring("allow", Some("yes"))).unwrap().contains("allow=yes"));
        assert!(refusal(&[], &requiring("allow", None)).is_some());
    }

    #[test]
    fn a_volume_that_was_not_read_is_not_allowed_yet() {
        assert_eq!(check(None, &of_cluster("blue")), Err(BlockedReason::VolumeNotRead));
    }

    #[test]
    fn only_the_tags_that_are_asked_about_are_kept() {
        let all = [("kubernetes.io/cluster/green", "owned"), ("allow", "yes"), ("Name", "data")];
        let kept = |guard: &VolumeGuard| {
            let mut tags = tagged(&all).tags;
            keep_needed(&mut tags, guard);
            tags.into_keys().map(|key| key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(kept(&VolumeGuard::default()), Vec::<String>::new());
        assert_eq!(kept(&of_cluster("blue")), ["kubernetes.io/cluster/green"]);
        assert_eq!(kept(&requiring("allow", Some("no"))), ["allow"]);
    }
}
