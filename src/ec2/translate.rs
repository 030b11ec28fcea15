//! The SDK's types into the model's. Pure.
//!
//! An entry that cannot be read is left out: absence proves nothing, a wrong reading might. A text this version does
//! not know stays a text. What was read is not judged: `in-use` without attachments stays that, and the core reads
//! again. An answer that was cut short does not come here (`sending`).

use aws_sdk_ec2::types::{
    Instance, InstanceBlockDeviceMapping, InstanceStateName, InstanceStatus, InstanceStatusSummary, InstanceTypeInfo,
    SummaryStatus, Volume, VolumeAttachment, VolumeAttachmentState, VolumeState as SdkVolumeState, VolumeStatusItem,
    VolumeStatusName,
};
use smol_str::SmolStr;

use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType, Zone};
use crate::model::time::Wall;
use crate::model::volume::{
    AttachmentReading, AttachmentState, BlockDeviceMapping, CheckStatus, InstanceReading, InstanceState,
    InstanceStatusReading, InstanceTypeReading, VolumeReading, VolumeState, VolumeStatusReading,
};

/// What the detail `initialization-state` says while blocks are being loaded.
const INITIALIZING: &str = "initializing";

/// A volume, if its id, state, zone and every one of its attachments can be read.
pub(super) fn volume(volume: &Volume) -> Option<VolumeReading> {
    Some(VolumeReading {
        id: AwsVolumeId::parse(volume.volume_id()?).ok()?,
        state: volume_state(volume.state()?),
        attachments: volume.attachments().iter().map(attachment).collect::<Option<_>>()?,
        // Older answers do not carry it.
        multi_attach_enabled: volume.multi_attach_enabled().unwrap_or(false),
        zone: Zone::new(volume.availability_zone()?),
        tags: volume.tags().iter().filter_map(|tag| Some((tag.key()?.into(), tag.value()?.into()))).collect(),
    })
}

fn attachment(attachment: &VolumeAttachment) -> Option<AttachmentReading> {
    let instance = match attachment.instance_id() {
        Some(id) => Some(InstanceId::parse(id).ok()?),
        None => None,
    };
    Some(AttachmentReading {
        instance,
        device: attachment.device().map(DeviceName::new),
        state: attachment_state(attachment.state()?),
        attach_time: attachment.attach_time().and_then(|time| time.to_millis().ok()).map(Wall::from_millis),
    })
}

/// An instance, if its id, state, type and zone can be read.
pub(super) fn instance(instance: &Instance) -> Option<InstanceReading> {
    Some(InstanceReading {
        id: InstanceId::parse(instance.instance_id()?).ok()?,
        state: instance_state(instance.state()?.name()?),
        instance_type: InstanceType::new(instance.instance_type()?.as_str()),
        zone: Zone::new(instance.placement()?.availability_zone()?),
        mappings: instance.block_device_mappings().iter().filter_map(mapping).collect(),
    })
}

/// A mapping without a name takes no name: it is of no use.
fn mapping(mapping: &InstanceBlockDeviceMapping) -> Option<BlockDeviceMapping> {
    let ebs = mapping.ebs();
    Some(BlockDeviceMapping {
        device: DeviceName::new(mapping.device_name()?),
        volume: ebs.and_then(|ebs| ebs.volume_id()).and_then(|id| AwsVolumeId::parse(id).ok()),
        card: ebs.and_then(|ebs| ebs.ebs_card_index()).and_then(|card| u32::try_from(card).ok()),
    })
}

/// A type and its number of EBS cards; types that do not say have one.
pub(super) fn instance_type(info: &InstanceTypeInfo) -> Option<InstanceTypeReading> {
    let cards = info.ebs_info().and_then(|ebs| ebs.maximum_ebs_cards()).and_then(|cards| u32::try_from(cards).ok());
    Some(InstanceTypeReading {
        instance_type: InstanceType::new(info.instance_type()?.as_str()),
        ebs_cards: cards.unwrap_or(1).max(1),
    })
}

/// An instance's status checks, if its id and state can be read. A check that is not given is one that says nothing.
pub(super) fn instance_status(status: &InstanceStatus) -> Option<InstanceStatusReading> {
    Some(InstanceStatusReading {
        id: InstanceId::parse(status.instance_id()?).ok()?,
        state: instance_state(status.instance_state()?.name()?),
        system: check(status.system_status()),
        instance: check(status.instance_status()),
    })
}

fn check(summary: Option<&InstanceStatusSummary>) -> CheckStatus {
    match summary.and_then(InstanceStatusSummary::status) {
        Some(SummaryStatus::Ok) => CheckStatus::Ok,
        Some(SummaryStatus::Impaired) => CheckStatus::Impaired,
        Some(SummaryStatus::Initializing) => CheckStatus::Initializing,
        Some(SummaryStatus::NotApplicable) => CheckStatus::NotApplicable,
        Some(SummaryStatus::InsufficientData) | None => CheckStatus::InsufficientData,
        Some(other) => CheckStatus::Unknown(SmolStr::new(other.as_str())),
    }
}

/// Whether a volume's blocks are still being loaded. The driver takes a volume for initialized unless the detail says
/// otherwise.
pub(super) fn volume_status(item: &VolumeStatusItem) -> Option<VolumeStatusReading> {
    let details = item.volume_status().map(|info| info.details()).unwrap_or_default();
    let detail = details.iter().find(|detail| detail.name() == Some(&VolumeStatusName::InitializationState));
    Some(VolumeStatusReading {
        id: AwsVolumeId::parse(item.volume_id()?).ok()?,
        initializing: detail.and_then(|detail| detail.status()).is_some_and(|status| status == INITIALIZING),
    })
}

/// An empty token means the same as none.
pub(super) fn token(token: Option<&str>) -> Option<String> {
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

fn volume_state(state: &SdkVolumeState) -> VolumeState {
    match state {
        SdkVolumeState::Creating => VolumeState::Creating,
        SdkVolumeState::Available => VolumeState::Available,
        SdkVolumeState::InUse => VolumeState::InUse,
        SdkVolumeState::Deleting => VolumeState::Deleting,
        SdkVolumeState::Deleted => VolumeState::Deleted,
        SdkVolumeState::Error => VolumeState::Error,
        other => VolumeState::Unknown(SmolStr::new(other.as_str())),
    }
}

fn attachment_state(state: &VolumeAttachmentState) -> AttachmentState {
    match state {
        VolumeAttachmentState::Attaching => AttachmentState::Attaching,
        VolumeAttachmentState::Attached => AttachmentState::Attached,
        VolumeAttachmentState::Detaching => AttachmentState::Detaching,
        VolumeAttachmentState::Busy => AttachmentState::Busy,
        VolumeAttachmentState::Detached => AttachmentState::Detached,
        other => AttachmentState::Unknown(SmolStr::new(other.as_str())),
    }
}

fn instance_state(state: &InstanceStateName) -> InstanceState {
    match state {
        InstanceStateName::Pending => InstanceState::Pending,
        InstanceStateName::Running => InstanceState::Running,
        InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        InstanceStateName::Terminated => InstanceState::Terminated,
        InstanceStateName::Stopping => InstanceState::Stopping,
        InstanceStateName::Stopped => InstanceState::Stopped,
        other => InstanceState::Unknown(SmolStr::new(other.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::primitives::DateTime;
    use aws_sdk_ec2::types::builders::VolumeBuilder;
    use aws_sdk_ec2::types::{EbsInfo, EbsInstanceBlockDevice, InstanceState as SdkInstanceState, Placement};

    use super::*;

    fn whole() -> VolumeBuilder {
        Volume::builder()
            .volume_id("vol-0aa11")
            .state(SdkVolumeState::InUse)
            .availability_zone("us-east-1a")
            .multi_attach_enabled(true)
    }

    fn attached() -> aws_sdk_ec2::types::builders::VolumeAttachmentBuilder {
        VolumeAttachment::builder()
            .instance_id("i-0bb22")
            .device("/dev/xvdba")
            .state(VolumeAttachmentState::Attached)
            .attach_time(DateTime::from_secs(1_700_000_000))
    }

    #[test]
    fn a_whole_volume_is_read_whole() {
        let read = volume(&whole().attachments(attached().build()).build()).unwrap();
        assert_eq!(read.id, AwsVolumeId::parse("vol-0aa11").unwrap());
        assert_eq!(
            (read.state, read.multi_attach_enabled, read.zone.as_str()),
            (VolumeState::InUse, true, "us-east-1a")
        );
        let expected = AttachmentReading {
            instance: Some(InstanceId::parse("i-0bb22").unwrap()),
            device: Some(DeviceName::new("/dev/xvdba")),
            state: AttachmentState::Attached,
            attach_time: Some(Wall::from_millis(1_700_000_000_000)),
        };
        assert_eq!(read.attachments, [expected]);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let without_state = attached().set_state(None).build();
        let odd_instance = attached().instance_id("mi-0123").build();
        let unreadable = [
            whole().volume_id("vol-XYZ").build(),
            whole().set_volume_id(None).build(),
            whole().set_state(None).build(),
            whole().set_availability_zone(None).build(),
            whole().attachments(attached().build()).attachments(without_state).build(),
            whole().attachments(odd_instance).build(),
        ];
        for entry in unreadable {
            assert_eq!(volume(&entry), None, "{entry:?}");
        }
    }

    #[test]
    fn unknown_texts_stay_unknown_and_managed_hosts_have_no_instance() {
        let managed = VolumeAttachment::builder().state("reattaching".into()).build();
        let read = volume(&whole().state("migrating".into()).attachments(managed).build()).unwrap();
        assert_eq!(read.state, VolumeState::Unknown("migrating".into()));
        assert_eq!(read.attachments[0].state, AttachmentState::Unknown("reattaching".into()));
        assert_eq!((&read.attachments[0].instance, &read.attachments[0].device), (&None, &None));
    }

    #[test]
    fn in_use_without_attachments_stays_as_it_was_read() {
        let read = volume(&whole().set_multi_attach_enabled(None).build()).unwrap();
        assert_eq!((read.state, read.attachments.len(), read.multi_attach_enabled), (VolumeState::InUse, 0, false));
    }

    #[test]
    fn an_instance_shows_its_names_whatever_is_behind_them() {
        let ebs = EbsInstanceBlockDevice::builder().volume_id("vol-0aa11").ebs_card_index(1).build();
        let read = instance(
            &Instance::builder()
                .instance_id("i-0bb22")
                .state(SdkInstanceState::builder().code(16).name(InstanceStateName::Running).build())
                .instance_type("m7i.large".into())
                .placement(Placement::builder().availability_zone("us-east-1a").build())
                .block_device_mappings(InstanceBlockDeviceMapping::builder().device_name("/dev/xvdba").ebs(ebs).build())
                .block_device_mappings(InstanceBlockDeviceMapping::builder().device_name("xvdca").build())
                .block_device_mappings(InstanceBlockDeviceMapping::builder().build())
                .build(),
        )
        .unwrap();
        assert_eq!((read.state, read.instance_type.as_str()), (InstanceState::Running, "m7i.large"));
        assert_eq!(read.mappings.len(), 2);
        assert_eq!(read.mappings[0].volume, Some(AwsVolumeId::parse("vol-0aa11").unwrap()));
        assert_eq!((read.mappings[0].card, &read.mappings[1].volume), (Some(1), &None));
        assert_eq!(instance(&Instance::builder().instance_id("i-0bb22").build()), None, "no state");
    }

    #[test]
    fn a_type_has_at_least_one_card() {
        let info =
            |ebs: Option<EbsInfo>| InstanceTypeInfo::builder().instance_type("a.b".into()).set_ebs_info(ebs).build();
        let cards = |info: &InstanceTypeInfo| instance_type(info).unwrap().ebs_cards;
        assert_eq!(cards(&info(None)), 1);
        assert_eq!(cards(&info(Some(EbsInfo::builder().maximum_ebs_cards(2).build()))), 2);
        assert_eq!(cards(&info(Some(EbsInfo::builder().maximum_ebs_cards(0).build()))), 1);
        assert_eq!(instance_type(&InstanceTypeInfo::builder().build()), None);
    }

    #[test]
    fn an_empty_token_is_none() {
        assert_eq!((token(None), token(Some("")), token(Some("t"))), (None, None, Some("t".to_owned())));
    }
}
