//! What a test or a person may do beside EC2's API, under `/sandbox/`, in JSON: look at the truth, put faults in, hold
//! volumes as a guest does, set what status checks find, count calls.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::names::timestamp;
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, IdError, InstanceId};
use crate::model::volume::CheckStatus;
use crate::sim::ec2::{
    Attachment, Caller, Ec2Action, Ec2Fault, Ec2Model, EndCause, EndedAttachment, LostEffect, Staleness,
};

/// Everything there is, in truth.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StateView {
    volumes: Vec<VolumeView>,
    instances: Vec<InstanceView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VolumeView {
    id: String,
    zone: String,
    state: String,
    multi_attach: bool,
    attachments: Vec<AttachmentView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AttachmentView {
    generation: u64,
    instance: String,
    device: String,
    state: String,
    attach_time: String,
    by: String,
    detach_by: Option<String>,
    guest_holds: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct InstanceView {
    id: String,
    instance_type: String,
    zone: String,
    state: String,
}

/// An attachment that is gone.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndedView {
    volume: String,
    attachment: AttachmentView,
    /// Milliseconds since the sandbox started.
    at_millis: u64,
    cause: &'static str,
}

pub(super) fn state(model: &Ec2Model) -> StateView {
    let volumes = model.volumes().map(|volume| VolumeView {
        id: volume.id().to_string(),
        zone: volume.zone().to_string(),
        state: volume.state().as_str().to_owned(),
        multi_attach: volume.multi_attach(),
        attachments: volume.attachments().iter().map(|a| attachment(model, volume.id(), a)).collect(),
    });
    let instances = model.instances().map(|instance| InstanceView {
        id: instance.id().to_string(),
        instance_type: instance.instance_type().to_string(),
        zone: instance.zone().to_string(),
        state: instance.state().as_str().to_owned(),
    });
    StateView { volumes: volumes.collect(), instances: instances.collect() }
}

pub(super) fn ended(model: &Ec2Model) -> Vec<EndedView> {
    let view = |ended: &EndedAttachment| EndedView {
        volume: ended.volume.to_string(),
        attachment: attachment(model, &ended.volume, &ended.attachment),
        at_millis: u64::try_from(ended.at.since_start().as_millis()).unwrap_or(u64::MAX),
        cause: match ended.cause {
            EndCause::Detached { .. } => "detached",
            EndCause::InstanceTerminated => "instanceTerminated",
            EndCause::Dropped => "dropped",
        },
    };
    model.ended().map(view).collect()
}

fn attachment(model: &Ec2Model, volume: &AwsVolumeId, attachment: &Attachment) -> AttachmentView {
    let holder = model.instance(&attachment.instance);
    AttachmentView {
        generation: attachment.generation,
        instance: attachment.instance.to_string(),
        device: attachment.device.to_string(),
        state: attachment.state.as_str().to_owned(),
        attach_time: timestamp(attachment.attach_time),
        by: caller(&attachment.by),
        detach_by: attachment.detach_by.as_ref().map(caller),
        guest_holds: holder.is_some_and(|instance| instance.holds(volume)),
    }
}

fn caller(caller: &Caller) -> String {
    match caller {
        Caller::Leader(term) => format!("leader {}", term.0),
        Caller::Person => "person".to_owned(),
        Caller::Unnamed => "client".to_owned(),
    }
}

/// How the calls ended: action → `OK`, an error code, or `NoAnswer` → how many.
pub(super) type Counts = BTreeMap<SmolStr, BTreeMap<SmolStr, u64>>;

/// What a guest holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GuestHolds {
    instance: String,
    volume: String,
    holds: bool,
}

impl GuestHolds {
    pub(super) fn ids(&self) -> Result<(InstanceId, AwsVolumeId, bool), IdError> {
        Ok((InstanceId::parse(&self.instance)?, AwsVolumeId::parse(&self.volume)?, self.holds))
    }
}

/// What both status checks of an instance find from now on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checks {
    instance: String,
    status: String,
}

impl Checks {
    pub(super) fn parse(&self) -> Result<(InstanceId, CheckStatus), ControlError> {
        const ALLOWED: [CheckStatus; 4] =
            [CheckStatus::Ok, CheckStatus::Impaired, CheckStatus::Initializing, CheckStatus::InsufficientData];
        let found = ALLOWED.into_iter().find(|status| status.as_str() == self.status);
        let status = found.ok_or_else(|| ControlError::CheckStatus(self.status.clone()))?;
        Ok((InstanceId::parse(&self.instance)?, status))
    }
}

/// Whether blocks of a volume are still being loaded from its snapshot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Initializing {
    volume: String,
    initializing: bool,
}

impl Initializing {
    pub(super) fn parse(&self) -> Result<(AwsVolumeId, bool), IdError> {
        Ok((AwsVolumeId::parse(&self.volume)?, self.initializing))
    }
}

/// A fault as it is asked for. Actions have their names on the wire.
#[derive(Debug, Deserialize)]
#[serde(tag = "fault", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum FaultRequest {
    StaleReads { window_millis: u64, percent: u8 },
    StuckDevice { instance: Option<String>, device: String },
    DropNextAttach { volume: Option<String> },
    SlowAttach { millis: u64 },
    SlowDetach { millis: u64 },
    Refuse { action: String, code: String, message: String, count: u32 },
    LoseAnswer { action: String, applied: bool, count: u32 },
    EmptyPages { count: u32 },
    HideVolume { volume: String },
    HideInstance { instance: String },
    ShowVolumeState { volume: String, text: String },
    ShowAttachmentState { volume: String, text: String },
    ShowManagedAttachment { volume: String },
    ShowNoAttachments { volume: String },
    Html { action: String, status: u16, count: u32 },
    Truncate { action: String, percent: u8, count: u32 },
    Delay { action: String, millis: u64, count: u32 },
}

/// A fault, in the model or on the wire.
#[derive(Debug)]
pub(super) enum Fault {
    Model(Ec2Fault),
    Wire(WireFault),
}

/// What goes wrong between the model and the client, for the next calls of one action.
#[derive(Clone, Debug)]
pub(super) struct WireFault {
    pub(super) action: SmolStr,
    pub(super) kind: WireFaultKind,
    pub(super) left: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum WireFaultKind {
    /// The call is carried out, and a proxy answers with an HTML page.
    Html { status: u16 },
    /// Only the first part of the answer arrives, in a whole HTTP message.
    Truncate { percent: u8 },
    /// The answer comes late.
    Delay(Duration),
}

/// Why a control request makes no sense.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("{0:?} is not an action that can be made to fail")]
    Action(String),
    #[error("{0:?} is not a status of a check; allowed: ok, impaired, initializing, insufficient-data")]
    CheckStatus(String),
    #[error("{0} is no HTTP status")]
    Status(u16),
}

impl FaultRequest {
    pub(super) fn into_fault(self) -> Result<Fault, ControlError> {
        let wire = |action: &str, kind, left| {
            Ok(Fault::Wire(WireFault { action: SmolStr::new(action_of(action)?.name()), kind, left }))
        };
        let millis = Duration::from_millis;
        let fault = match self {
            Self::Html { action, status, count } => {
                http::StatusCode::from_u16(status).map_err(|_| ControlError::Status(status))?;
                return wire(&action, WireFaultKind::Html { status }, count);
            }
            Self::Truncate { action, percent, count } => {
                return wire(&action, WireFaultKind::Truncate { percent: percent.min(100) }, count);
            }
            Self::Delay { action, millis: delay, count } => {
                return wire(&action, WireFaultKind::Delay(millis(delay)), count);
            }
            Self::StaleReads { window_millis, percent } => {
                Ec2Fault::StaleReads(Staleness { window: millis(window_millis), percent: percent.min(100) })
            }
            Self::StuckDevice { instance, device } => Ec2Fault::StuckDevice {
                instance: instance.map(|id| InstanceId::parse(&id)).transpose()?,
                device: DeviceName::new(device),
            },
            Self::DropNextAttach { volume } => {
                Ec2Fault::DropNextAttach { volume: volume.map(|id| AwsVolumeId::parse(&id)).transpose()? }
            }
            Self::SlowAttach { millis: by } => Ec2Fault::SlowAttach(millis(by)),
            Self::SlowDetach { millis: by } => Ec2Fault::SlowDetach(millis(by)),
            Self::Refuse { action, code, message, count } => Ec2Fault::Refuse {
                action: action_of(&action)?,
                code: SmolStr::new(code),
                message: SmolStr::new(message),
                count,
            },
            Self::LoseAnswer { action, applied, count } => Ec2Fault::LoseAnswer {
                action: action_of(&action)?,
                effect: if applied { LostEffect::Applied } else { LostEffect::NotApplied },
                count,
            },
            Self::EmptyPages { count } => Ec2Fault::EmptyPages(count),
            Self::HideVolume { volume } => Ec2Fault::HideVolume(AwsVolumeId::parse(&volume)?),
            Self::HideInstance { instance } => Ec2Fault::HideInstance(InstanceId::parse(&instance)?),
            Self::ShowVolumeState { volume, text } => {
                Ec2Fault::ShowVolumeState(AwsVolumeId::parse(&volume)?, SmolStr::new(text))
            }
            Self::ShowAttachmentState { volume, text } => {
                Ec2Fault::ShowAttachmentState(AwsVolumeId::parse(&volume)?, SmolStr::new(text))
            }
            Self::ShowManagedAttachment { volume } => Ec2Fault::ShowManagedAttachment(AwsVolumeId::parse(&volume)?),
            Self::ShowNoAttachments { volume } => Ec2Fault::ShowNoAttachments(AwsVolumeId::parse(&volume)?),
        };
        Ok(Fault::Model(fault))
    }
}

fn action_of(name: &str) -> Result<Ec2Action, ControlError> {
    let found = Ec2Action::ALL.into_iter().find(|action| action.name() == name);
    found.ok_or_else(|| ControlError::Action(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_finds_what_ec2_can_say() {
        let ask = |json: &str| {
            let checks = serde_json::from_str::<Checks>(json).map_err(|error| error.to_string())?;
            checks.parse().map(|(_, status)| status).map_err(|error| error.to_string())
        };
        assert_eq!(ask(r#"{"instance": "i-1", "status": "impaired"}"#), Ok(CheckStatus::Impaired));
        for wrong in [r#"{"instance": "i-1", "status": "ill"}"#, r#"{"instance": "n1", "status": "ok"}"#] {
            assert!(ask(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn faults_are_asked_for_in_json() {
        let ask = |json: &str| {
            serde_json::from_str::<FaultRequest>(json)
                .map_err(|e| e.to_string())?
                .into_fault()
                .map_err(|e| e.to_string())
        };
        let stale = ask(r#"{"fault": "staleReads", "windowMillis": 5000, "percent": 30}"#).unwrap();
        let expected = Ec2Fault::StaleReads(Staleness { window: Duration::from_secs(5), percent: 30 });
        assert!(matches!(stale, Fault::Model(fault) if fault == expected));
        let html = ask(r#"{"fault": "html", "action": "DetachVolume", "status": 502, "count": 1}"#).unwrap();
        assert!(matches!(html, Fault::Wire(WireFault { kind: WireFaultKind::Html { status: 502 }, left: 1, .. })));
        for wrong in [
            r#"{"fault": "staleReads", "windowMillis": 5000, "percent": 30, "more": 1}"#,
            r#"{"fault": "hideVolume", "volume": "i-1"}"#,
            r#"{"fault": "emptyPages"}"#,
            r#"{"fault": "delay", "action": "RunInstances", "millis": 1, "count": 1}"#,
            r#"{"fault": "earthquake"}"#,
        ] {
            assert!(ask(wrong).is_err(), "{wrong}");
        }
    }
}
