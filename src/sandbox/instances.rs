//! DescribeInstances, DescribeInstanceStatus, DescribeInstanceTypes, DescribeAvailabilityZones, and the actions that
//! run, stop, start, reboot and terminate instances.

use super::exchange::Exchange;
use super::filters::{INSTANCE_FILTERS, check, ids_of, keeps_instance, needs_predicate};
use super::names::{instance_state_code, timestamp};
use super::query::{instance_id, invalid};
use super::xml::{Element, items, parent, text};
use crate::model::ids::{InstanceId, InstanceType, Zone};
use crate::model::time::Now;
use crate::model::volume::{
    AttachmentState, BlockDeviceMapping, CheckStatus, InstanceReading, InstanceState, InstanceStatusReading,
};
use crate::sim::ec2::{Attachment, Ec2Error, Ec2Model, Instance, Page, Query, Selection};

type Reply = Result<Vec<Element>, Ec2Error>;

const ACCOUNT: &str = "000000000000";
const MOST_AT_ONCE: u32 = 1000;

fn read(exchange: &mut Exchange<'_>) -> Result<Page<InstanceReading>, Ec2Error> {
    let filters = exchange.fields.filters()?;
    check(&filters, &INSTANCE_FILTERS)?;
    let named = exchange.fields.list("InstanceId").into_iter().map(instance_id).collect::<Result<Vec<_>, _>>()?;
    let filtered = ids_of(&filters, "instance-id", |value| InstanceId::parse(value).ok());
    let selection = match &filtered {
        _ if !named.is_empty() => Selection::Named(&named),
        Some(ids) => Selection::Filtered(ids),
        None => Selection::All,
    };
    let keep = |instance: &InstanceReading| keeps_instance(&filters, instance);
    let query = Query {
        selection,
        keep: needs_predicate(&filters, "instance-id").then_some(&keep as &dyn Fn(&InstanceReading) -> bool),
        max_results: exchange.fields.number("MaxResults")?,
        next_token: exchange.fields.get("NextToken"),
    };
    exchange.model.describe_instances(exchange.now, &query)
}

pub(super) fn describe(exchange: &mut Exchange<'_>) -> Reply {
    let (instances, next_token) = read(exchange)?;
    let model = &*exchange.model;
    let reservations = instances.iter().map(|instance| reservation(model, std::slice::from_ref(instance)));
    let set = items("reservationSet", reservations);
    Ok([set].into_iter().chain(next_token.map(|token| text("nextToken", token))).collect())
}

/// A reservation; its id is made from its first instance's.
fn reservation(model: &Ec2Model, instances: &[InstanceReading]) -> Vec<Element> {
    let first = instances.first().map(|first| first.id.text()).unwrap_or_default();
    let number = first.trim_start_matches("i-");
    vec![
        text("reservationId", format!("r-{number}")),
        text("ownerId", ACCOUNT),
        parent("groupSet", Vec::new()),
        items("instancesSet", instances.iter().map(|instance| instance_fields(model, instance))),
    ]
}

fn instance_fields(model: &Ec2Model, instance: &InstanceReading) -> Vec<Element> {
    let record = model.instance(&instance.id);
    let mut fields = vec![
        text("instanceId", &instance.id),
        text("imageId", "ami-00000000000000000"),
        parent("instanceState", state_fields(&instance.state)),
        text("instanceType", &instance.instance_type),
        parent("placement", vec![text("availabilityZone", &instance.zone), text("tenancy", "default")]),
        text("architecture", "x86_64"),
        text("rootDeviceType", "ebs"),
        text("rootDeviceName", "/dev/xvda"),
    ];
    fields.extend(record.map(|record| text("launchTime", timestamp(record.launched()))));
    let mappings = instance.mappings.iter().map(|mapping| mapping_fields(model, &instance.id, mapping));
    fields.push(items("blockDeviceMapping", mappings));
    fields
}

fn mapping_fields(model: &Ec2Model, instance: &InstanceId, mapping: &BlockDeviceMapping) -> Vec<Element> {
    let mut fields = vec![text("deviceName", &mapping.device)];
    let Some(volume) = &mapping.volume else { return fields };
    let attachment = model.volume(volume).and_then(|record| record.attachment(instance));
    let mut ebs = vec![text("volumeId", volume), text("status", mapping_status(attachment))];
    ebs.extend(attachment.map(|attachment| text("attachTime", timestamp(attachment.attach_time))));
    ebs.extend(mapping.card.map(|card| text("ebsCardIndex", card)));
    ebs.push(text("deleteOnTermination", attachment.is_none()));
    fields.push(parent("ebs", ebs));
    fields
}

/// Mappings know no `busy`.
fn mapping_status(attachment: Option<&Attachment>) -> &str {
    match attachment.map(|attachment| &attachment.state) {
        None => "attached",
        Some(AttachmentState::Busy) => "detaching",
        Some(state) => state.as_str(),
    }
}

fn state_fields(state: &InstanceState) -> Vec<Element> {
    vec![text("code", instance_state_code(state)), text("name", state.as_str())]
}

/// Named ids go to the model as DescribeInstanceStatus; the wider forms, which attachd never sends, are a selection of
/// instances with their checks beside.
pub(super) fn describe_status(exchange: &mut Exchange<'_>) -> Reply {
    let include_all = exchange.fields.is_true("IncludeAllInstances");
    let named = exchange.fields.list("InstanceId").into_iter().map(instance_id).collect::<Result<Vec<_>, _>>()?;
    let by_ids_alone = !named.is_empty() && !include_all && exchange.fields.filters()?.is_empty();
    if by_ids_alone && exchange.fields.number("MaxResults")?.is_none() {
        let statuses = exchange.model.describe_instance_status(exchange.now, &named)?;
        return Ok(vec![items(
            "instanceStatusSet",
            statuses.iter().map(|status| status_fields(exchange.model, status)),
        )]);
    }
    let (instances, next_token) = read(exchange)?;
    let model = &*exchange.model;
    let shown = instances.iter().filter(|instance| include_all || instance.state == InstanceState::Running);
    let statuses = shown.map(|instance| status_fields(model, &status_of(model, instance)));
    let set = items("instanceStatusSet", statuses);
    Ok([set].into_iter().chain(next_token.map(|token| text("nextToken", token))).collect())
}

/// The checks of an instance; they run only while it does.
fn status_of(model: &Ec2Model, instance: &InstanceReading) -> InstanceStatusReading {
    let record = model.instance(&instance.id).filter(|_| instance.state == InstanceState::Running);
    let check = |of: fn(&Instance) -> &CheckStatus| record.map_or(CheckStatus::NotApplicable, |r| of(r).clone());
    InstanceStatusReading {
        id: instance.id.clone(),
        state: instance.state.clone(),
        system: check(Instance::system_check),
        instance: check(Instance::instance_check),
    }
}

fn status_fields(model: &Ec2Model, status: &InstanceStatusReading) -> Vec<Element> {
    let mut fields = vec![text("instanceId", &status.id)];
    fields.extend(model.instance(&status.id).map(|record| text("availabilityZone", record.zone())));
    fields.push(parent("instanceState", state_fields(&status.state)));
    fields.push(parent("systemStatus", vec![text("status", status.system.as_str())]));
    fields.push(parent("instanceStatus", vec![text("status", status.instance.as_str())]));
    fields
}

pub(super) fn describe_types(exchange: &mut Exchange<'_>) -> Reply {
    let named = exchange.fields.list("InstanceType").into_iter().map(InstanceType::new).collect::<Vec<_>>();
    let types = match named.is_empty() {
        true => exchange.model.options().types.keys().cloned().collect(),
        false => named,
    };
    let types = exchange.model.describe_instance_types(exchange.now, &types)?;
    let fields = types.iter().map(|info| {
        let limits = exchange.model.options().limits(&info.instance_type);
        let ebs = vec![
            text("ebsOptimizedSupport", "default"),
            text("nvmeSupport", "required"),
            text("maximumEbsAttachments", limits.attachments),
            text("attachmentLimitType", if limits.attachments < 28 { "shared" } else { "dedicated" }),
            text("maximumEbsCards", info.ebs_cards),
        ];
        vec![
            text("instanceType", &info.instance_type),
            text("currentGeneration", true),
            text("hypervisor", "nitro"),
            parent("ebsInfo", ebs),
        ]
    });
    Ok(vec![items("instanceTypeSet", fields)])
}

pub(super) fn describe_zones(exchange: &mut Exchange<'_>) -> Reply {
    let region = exchange.region;
    let zone = |letter: char| {
        vec![
            text("zoneName", format!("{region}{letter}")),
            text("zoneState", "available"),
            text("regionName", region),
            text("zoneType", "availability-zone"),
        ]
    };
    Ok(vec![items("availabilityZoneInfo", ['a', 'b', 'c'].map(zone))])
}

pub(super) fn run(exchange: &mut Exchange<'_>) -> Reply {
    let count = exchange.fields.number("MaxCount")?.unwrap_or(1);
    if !(1..=MOST_AT_ONCE).contains(&count) {
        return Err(invalid("maxCount", &count.to_string(), "1 to 1000"));
    }
    let instance_type = InstanceType::new(exchange.fields.get("InstanceType").unwrap_or("m5.large"));
    let zone = exchange.fields.get("Placement.AvailabilityZone").map(Zone::new);
    let zone = zone.unwrap_or_else(|| Zone::new(format!("{}a", exchange.region)));
    let started: Vec<InstanceReading> = (0..count)
        .map(|_| InstanceReading {
            id: exchange.model.run_instance(exchange.now, instance_type.clone(), zone.clone()),
            state: InstanceState::Pending,
            instance_type: instance_type.clone(),
            zone: zone.clone(),
            mappings: Vec::new(),
        })
        .collect();
    Ok(reservation(exchange.model, &started))
}

/// What moves an instance from one state to another.
type Move = fn(&mut Ec2Model, Now, &InstanceId) -> Result<(), Ec2Error>;

pub(super) fn terminate(exchange: &mut Exchange<'_>) -> Reply {
    move_all(exchange, Ec2Model::terminate)
}

pub(super) fn stop(exchange: &mut Exchange<'_>) -> Reply {
    move_all(exchange, Ec2Model::stop)
}

pub(super) fn start(exchange: &mut Exchange<'_>) -> Reply {
    move_all(exchange, Ec2Model::start)
}

pub(super) fn reboot(exchange: &mut Exchange<'_>) -> Reply {
    move_all(exchange, Ec2Model::reboot)?;
    Ok(vec![text("return", true)])
}

fn move_all(exchange: &mut Exchange<'_>, step: Move) -> Reply {
    let ids = exchange.fields.list("InstanceId").into_iter().map(instance_id).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() {
        return Err(Ec2Error::new("MissingParameter", "The request must contain the parameter InstanceId"));
    }
    let mut moved = Vec::new();
    for id in &ids {
        let before = exchange.model.instance(id).map(Instance::state).cloned();
        step(exchange.model, exchange.now, id)?;
        let after = exchange.model.instance(id).map(Instance::state).cloned();
        if let (Some(before), Some(after)) = (before, after) {
            moved.push(vec![
                text("instanceId", id),
                parent("currentState", state_fields(&after)),
                parent("previousState", state_fields(&before)),
            ]);
        }
    }
    Ok(vec![items("instancesSet", moved)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::AwsVolumeId;

    #[test]
    fn a_mapping_shows_no_busy_and_the_root_goes_with_the_instance() {
        assert_eq!(mapping_status(None), "attached");
        let model = Ec2Model::new(crate::sim::ec2::Ec2Options::default(), 1);
        let root = BlockDeviceMapping {
            device: crate::model::device::DeviceName::new("/dev/xvda"),
            volume: AwsVolumeId::parse("vol-1").ok(),
            card: None,
        };
        let fields = mapping_fields(&model, &InstanceId::parse("i-1").unwrap(), &root);
        let expected = parent(
            "ebs",
            vec![text("volumeId", "vol-1"), text("status", "attached"), text("deleteOnTermination", true)],
        );
        assert_eq!(fields[1], expected);
    }
}
