//! AttachVolume, DetachVolume, DescribeVolumes, DescribeVolumeStatus, CreateVolume, DeleteVolume.

use super::exchange::Exchange;
use super::filters::{VOLUME_FILTERS, check, ids_of, keeps_volume, needs_predicate};
use super::names::{timestamp, volume_type};
use super::query::{instance_id, volume_id};
use super::xml::{Element, items, parent, text};
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId, Zone};
use crate::model::volume::{AttachmentReading, VolumeReading, VolumeStatusReading};
use crate::sim::ec2::{Attachment, Caller, Ec2Error, Ec2Model, Query, Selection, Volume};

type Reply = Result<Vec<Element>, Ec2Error>;

pub(super) fn attach(exchange: &mut Exchange<'_>) -> Reply {
    let volume = volume_id(exchange.fields.require("VolumeId")?)?;
    let instance = instance_id(exchange.fields.require("InstanceId")?)?;
    let device = DeviceName::new(exchange.fields.require("Device")?);
    let card = exchange.fields.number("EbsCardIndex")?;
    exchange.model.attach_volume(exchange.now, &Caller::Unnamed, &volume, &instance, &device, card)?;
    Ok(attachment_now(exchange.model, &volume, Some(&instance)))
}

pub(super) fn detach(exchange: &mut Exchange<'_>) -> Reply {
    let volume = volume_id(exchange.fields.require("VolumeId")?)?;
    let instance = exchange.fields.get("InstanceId").map(instance_id).transpose()?;
    let device = exchange.fields.get("Device").map(DeviceName::new);
    let caller = Caller::Unnamed;
    exchange.model.detach_volume(exchange.now, &caller, &volume, instance.as_ref(), device.as_ref())?;
    Ok(attachment_now(exchange.model, &volume, instance.as_ref()))
}

/// The attachment that a call has just been accepted for.
fn attachment_now(model: &Ec2Model, id: &AwsVolumeId, instance: Option<&InstanceId>) -> Vec<Element> {
    let attachments = model.volume(id).map(Volume::attachments).unwrap_or_default();
    let of = |attachment: &&Attachment| instance.is_none_or(|instance| attachment.instance == *instance);
    attachments.iter().find(of).map(|attachment| attachment_fields(id, &reading(attachment))).unwrap_or_default()
}

fn reading(attachment: &Attachment) -> AttachmentReading {
    AttachmentReading {
        instance: Some(attachment.instance.clone()),
        device: Some(attachment.device.clone()),
        state: attachment.state.clone(),
        attach_time: Some(attachment.attach_time),
    }
}

fn attachment_fields(volume: &AwsVolumeId, attachment: &AttachmentReading) -> Vec<Element> {
    let mut fields = vec![text("volumeId", volume)];
    fields.extend(attachment.instance.as_ref().map(|instance| text("instanceId", instance)));
    fields.extend(attachment.device.as_ref().map(|device| text("device", device)));
    fields.push(text("status", attachment.state.as_str()));
    fields.extend(attachment.attach_time.map(|time| text("attachTime", timestamp(time))));
    fields.push(text("deleteOnTermination", false));
    fields
}

pub(super) fn describe(exchange: &mut Exchange<'_>) -> Reply {
    let filters = exchange.fields.filters()?;
    check(&filters, &VOLUME_FILTERS)?;
    let named = exchange.fields.list("VolumeId").into_iter().map(volume_id).collect::<Result<Vec<_>, _>>()?;
    let filtered = ids_of(&filters, "volume-id", |value| AwsVolumeId::parse(value).ok());
    let selection = match &filtered {
        _ if !named.is_empty() => Selection::Named(&named),
        Some(ids) => Selection::Filtered(ids),
        None => Selection::All,
    };
    let keep = |volume: &VolumeReading| keeps_volume(&filters, volume);
    let query = Query {
        selection,
        keep: needs_predicate(&filters, "volume-id").then_some(&keep as &dyn Fn(&VolumeReading) -> bool),
        max_results: exchange.fields.number("MaxResults")?,
        next_token: exchange.fields.get("NextToken"),
    };
    let (volumes, next_token) = exchange.model.describe_volumes(exchange.now, &query)?;
    let set = items("volumeSet", volumes.iter().map(|volume| volume_fields(exchange.model, volume)));
    Ok([set].into_iter().chain(next_token.map(|token| text("nextToken", token))).collect())
}

fn volume_fields(model: &Ec2Model, volume: &VolumeReading) -> Vec<Element> {
    let attachments = volume.attachments.iter().map(|attachment| attachment_fields(&volume.id, attachment));
    let mut fields = vec![
        text("volumeId", &volume.id),
        text("availabilityZone", &volume.zone),
        text("status", volume.state.as_str()),
        text("volumeType", volume_type(volume.multi_attach_enabled)),
        text("multiAttachEnabled", volume.multi_attach_enabled),
        text("encrypted", false),
        text("snapshotId", ""),
    ];
    if let Some(record) = model.volume(&volume.id) {
        fields.push(text("size", record.size_gib()));
        fields.push(text("createTime", timestamp(record.created())));
    }
    fields.push(items("attachmentSet", attachments));
    let tags = volume.tags.iter().map(|(key, value)| vec![text("key", key), text("value", value)]);
    fields.push(items("tagSet", tags));
    fields
}

/// Of ids, or of all volumes; no filter is known here.
pub(super) fn describe_status(exchange: &mut Exchange<'_>) -> Reply {
    check(&exchange.fields.filters()?, &[])?;
    let named = exchange.fields.list("VolumeId").into_iter().map(volume_id).collect::<Result<Vec<_>, _>>()?;
    let ids = match named.is_empty() {
        true => exchange.model.volumes().map(|volume| volume.id().clone()).collect(),
        false if exchange.fields.number("MaxResults")?.is_some() => {
            let text = "The parameter volumeSet cannot be used with the parameter maxResults";
            return Err(Ec2Error::new("InvalidParameterCombination", text));
        }
        false => named,
    };
    let statuses = exchange.model.describe_volume_status(exchange.now, &ids)?;
    Ok(vec![items("volumeStatusSet", statuses.iter().map(|status| status_fields(exchange.model, status)))])
}

fn status_fields(model: &Ec2Model, status: &VolumeStatusReading) -> Vec<Element> {
    let initialization = if status.initializing { "initializing" } else { "completed" };
    let details = [("io-enabled", "passed"), ("io-performance", "normal"), ("initialization-state", initialization)];
    let details = details.map(|(name, value)| vec![text("name", name), text("status", value)]);
    let mut fields = vec![text("volumeId", &status.id)];
    fields.extend(model.volume(&status.id).map(|record| text("availabilityZone", record.zone())));
    fields.push(parent("volumeStatus", vec![text("status", "ok"), items("details", details)]));
    fields.extend(["eventsSet", "actionsSet", "attachmentStatuses"].map(|name| parent(name, Vec::new())));
    fields
}

pub(super) fn create(exchange: &mut Exchange<'_>) -> Reply {
    let zone = Zone::new(exchange.fields.require("AvailabilityZone")?);
    let multi_attach = exchange.fields.is_true("MultiAttachEnabled");
    if multi_attach && !matches!(exchange.fields.get("VolumeType"), Some("io1" | "io2")) {
        return Err(Ec2Error::new("InvalidParameterCombination", "Multi-Attach is only supported for io1 and io2."));
    }
    let size = exchange.fields.number("Size")?.unwrap_or(8);
    let id = exchange.model.create_volume_sized(exchange.now, zone, multi_attach, size);
    let reading = exchange.model.volume(&id).map(|volume| VolumeReading {
        id: id.clone(),
        state: volume.state().clone(),
        attachments: Vec::new(),
        multi_attach_enabled: multi_attach,
        zone: volume.zone().clone(),
        tags: volume.tags().clone(),
    });
    Ok(reading.map(|reading| volume_fields(exchange.model, &reading)).unwrap_or_default())
}

pub(super) fn delete(exchange: &mut Exchange<'_>) -> Reply {
    let id = volume_id(exchange.fields.require("VolumeId")?)?;
    exchange.model.delete_volume(exchange.now, &id)?;
    Ok(vec![text("return", true)])
}
