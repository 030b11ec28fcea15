//! Filters of describe calls: which ids are asked for, and a predicate for the rest.

use smol_str::SmolStr;

use super::query::{Filter, has_wildcard, matches};
use crate::model::ids::{AwsVolumeId, InstanceId};
use crate::model::volume::{InstanceReading, VolumeReading};
use crate::sim::ec2::Ec2Error;

use super::names::{instance_state_code, volume_type};

/// Ids named literally by the filter `id_filter`, if there is one without wildcards: EC2 looks only at those.
pub(super) fn ids_of<Id>(filters: &[Filter], id_filter: &str, parse: impl Fn(&str) -> Option<Id>) -> Option<Vec<Id>> {
    let filter = filters.iter().find(|filter| filter.name == id_filter)?;
    let literal = !filter.values.iter().any(|value| has_wildcard(value));
    // A value that is no id matches nothing.
    literal.then(|| filter.values.iter().filter_map(|value| parse(value)).collect())
}

/// Whether the filters ask for more than the ids that [`ids_of`] found.
pub(super) fn needs_predicate(filters: &[Filter], id_filter: &str) -> bool {
    let only_ids = |filter: &Filter| filter.name == id_filter && !filter.values.iter().any(|value| has_wildcard(value));
    filters.len() > 1 || !filters.iter().all(only_ids)
}

/// Refuses filters that this sandbox does not know, instead of answering with everything.
pub(super) fn check(filters: &[Filter], known: &[&str]) -> Result<(), Ec2Error> {
    match filters.iter().find(|filter| !known.contains(&filter.name.as_str())) {
        Some(unknown) => {
            Err(Ec2Error::new("InvalidParameterValue", format!("The filter '{}' is invalid", unknown.name)))
        }
        None => Ok(()),
    }
}

/// Filters of DescribeVolumes that the sandbox knows.
pub(super) const VOLUME_FILTERS: [&str; 8] = [
    "attachment.device",
    "attachment.instance-id",
    "attachment.status",
    "availability-zone",
    "multi-attach-enabled",
    "status",
    "volume-id",
    "volume-type",
];

/// Whether every filter lets the volume through.
pub(super) fn keeps_volume(filters: &[Filter], volume: &VolumeReading) -> bool {
    filters.iter().all(|filter| {
        let attachments = volume.attachments.iter();
        let shown: Vec<SmolStr> = match filter.name.as_str() {
            "volume-id" => vec![volume.id.text()],
            "status" => vec![volume.state.as_str().into()],
            "availability-zone" => vec![volume.zone.as_str().into()],
            "multi-attach-enabled" => vec![if volume.multi_attach_enabled { "true" } else { "false" }.into()],
            "volume-type" => vec![volume_type(volume.multi_attach_enabled).into()],
            "attachment.instance-id" => attachments.filter_map(|a| a.instance.as_ref()).map(InstanceId::text).collect(),
            "attachment.device" => {
                attachments.filter_map(|a| a.device.as_ref()).map(|device| device.as_str().into()).collect()
            }
            "attachment.status" => attachments.map(|a| a.state.as_str().into()).collect(),
            _ => Vec::new(),
        };
        any_matches(filter, &shown)
    })
}

/// Filters of DescribeInstances and DescribeInstanceStatus that the sandbox knows.
pub(super) const INSTANCE_FILTERS: [&str; 7] = [
    "availability-zone",
    "block-device-mapping.device-name",
    "block-device-mapping.volume-id",
    "instance-id",
    "instance-state-code",
    "instance-state-name",
    "instance-type",
];

/// Whether every filter lets the instance through.
pub(super) fn keeps_instance(filters: &[Filter], instance: &InstanceReading) -> bool {
    let code = instance_state_code(&instance.state).to_string();
    filters.iter().all(|filter| {
        let mappings = instance.mappings.iter();
        let shown: Vec<SmolStr> = match filter.name.as_str() {
            "instance-id" => vec![instance.id.text()],
            "instance-type" => vec![instance.instance_type.as_str().into()],
            "instance-state-name" => vec![instance.state.as_str().into()],
            "instance-state-code" => vec![code.as_str().into()],
            "availability-zone" => vec![instance.zone.as_str().into()],
            "block-device-mapping.device-name" => mappings.map(|m| m.device.as_str().into()).collect(),
            "block-device-mapping.volume-id" => {
                mappings.filter_map(|m| m.volume.as_ref()).map(AwsVolumeId::text).collect()
            }
            _ => Vec::new(),
        };
        any_matches(filter, &shown)
    })
}

fn any_matches(filter: &Filter, shown: &[SmolStr]) -> bool {
    filter.values.iter().any(|value| shown.iter().any(|text| matches(value, text)))
}
