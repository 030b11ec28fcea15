//! How long attaching and detaching take, between the two points upstream measures: from the order (VolumeAttachment
//! created or deleted) to its end as the VolumeAttachment shows it.
//!
//! Flow: the loop shows it each command, outcome and watch event that passes; it reports to the metrics. Remembers only
//! what this process ordered and what has not ended.

use std::collections::BTreeMap;

use super::metrics::{Metrics, OperationName, OperationStatus};
use crate::controller::command::{Call, Command, CommandId, KubernetesCall};
use crate::controller::event::{Object, ObjectKey, WatchEvent};
use crate::model::attachment::{AttachmentError, NewAttachmentSource, VolumeAttachment};
use crate::model::ids::{AttachmentName, DriverName};
use crate::model::outcome::{CallResult, Outcome};
use crate::model::time::Monotonic;

/// The operations under way.
#[derive(Debug)]
pub struct OperationTimes {
    metrics: Metrics,
    open: BTreeMap<AttachmentName, Open>,
    /// Creates without an outcome: a refused one starts nothing.
    creating: BTreeMap<CommandId, AttachmentName>,
}

#[derive(Debug)]
struct Open {
    operation: OperationName,
    /// Unknown of an object this process did not make, until a watch shows it.
    driver: Option<DriverName>,
    migrated: bool,
    since: Monotonic,
    /// The error already counted: the object is seen many times.
    counted: Option<AttachmentError>,
}

impl OperationTimes {
    /// Nothing under way.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, open: BTreeMap::new(), creating: BTreeMap::new() }
    }

    /// A command is about to be started.
    pub fn command(&mut self, command: &Command, now: Monotonic) {
        let Call::Kubernetes(call) = &command.call else { return };
        match call {
            KubernetesCall::CreateAttachment(new) => {
                let name = AttachmentName::of(&new.key);
                self.creating.insert(command.id, name.clone());
                self.open.entry(name).or_insert_with(|| Open {
                    operation: OperationName::VolumeAttach,
                    driver: Some(new.key.volume.driver.clone()),
                    migrated: matches!(new.source, NewAttachmentSource::Inline(_)),
                    since: now,
                    counted: None,
                });
            }
            KubernetesCall::DeleteAttachment { name, .. } => {
                // The attach of the same object names the driver; of one this process did not make, the watch will.
                let known = self.open.remove(name);
                let (driver, migrated) = match known {
                    Some(open) if open.operation == OperationName::VolumeDetach => {
                        self.open.insert(name.clone(), open);
                        return;
                    }
                    Some(open) => (open.driver, open.migrated),
                    None => (None, false),
                };
                let operation = OperationName::VolumeDetach;
                self.open.insert(name.clone(), Open { operation, driver, migrated, since: now, counted: None });
            }
            _ => {}
        }
    }

    /// A command has its outcome.
    pub fn outcome(&mut self, outcome: &Outcome) {
        let Some(name) = self.creating.remove(&outcome.id) else { return };
        if matches!(outcome.result, CallResult::Refused(_) | CallResult::NotSent | CallResult::Throttled) {
            self.open.remove(&name);
        }
    }

    /// A watch said something.
    pub fn watch(&mut self, event: &WatchEvent, now: Monotonic) {
        match event {
            WatchEvent::Applied(Object::Attachment(attachment))
            | WatchEvent::Item { object: Object::Attachment(attachment), .. } => self.seen(attachment, now),
            WatchEvent::Deleted(ObjectKey::Attachment(name, _)) => {
                if let Some(open) = self.open.remove(name)
                    && open.operation == OperationName::VolumeDetach
                {
                    self.ended(&open, OperationStatus::Success, now);
                }
            }
            _ => {}
        }
    }

    fn seen(&mut self, attachment: &VolumeAttachment, now: Monotonic) {
        let Some(mut open) = self.open.remove(&attachment.name) else { return };
        open.driver = Some(attachment.driver.clone());
        let status = &attachment.status;
        if open.operation == OperationName::VolumeAttach && status.attached {
            self.ended(&open, OperationStatus::Success, now);
            return;
        }
        let error = match open.operation {
            OperationName::VolumeAttach => &status.attach_error,
            OperationName::VolumeDetach => &status.detach_error,
        };
        if error.is_some() && *error != open.counted {
            self.ended(&open, OperationStatus::FailUnknown, now);
            open.counted = error.clone();
            open.since = now;
        }
        self.open.insert(attachment.name.clone(), open);
    }

    fn ended(&self, open: &Open, status: OperationStatus, now: Monotonic) {
        let Some(driver) = &open.driver else { return };
        let took = now.saturating_since(open.since);
        self.metrics.operation_ended(driver.as_str(), open.operation, status, open.migrated, took);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controller::command::{BudgetClass, NewAttachment};
    use crate::controller::event::Term;
    use crate::daemon::clock::Clock;
    use crate::model::attachment::{AttachmentSource, AttachmentStatus};
    use crate::model::ids::{
        AttachmentKey, NodeName, PersistentVolumeName, ResourceVersion, Uid, VolumeHandle, VolumeKey,
    };
    use crate::model::outcome::{Answer, classify_kubernetes};
    use crate::model::time::Now;

    fn key() -> AttachmentKey {
        let volume = VolumeKey { handle: VolumeHandle::new("h"), driver: DriverName::new("csi.example.com") };
        AttachmentKey { volume, node: NodeName::new("n1") }
    }

    fn command(id: u64, call: KubernetesCall) -> Command {
        let (id, call) = (CommandId(id), Call::Kubernetes(call));
        Command { id, term: Term(1), not_after: None, class: BudgetClass::Write, call }
    }

    fn create(id: u64) -> Command {
        let source = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv"));
        command(id, KubernetesCall::CreateAttachment(NewAttachment { key: key(), source, recorded: None }))
    }

    fn delete(id: u64) -> Command {
        let (name, uid) = (AttachmentName::of(&key()), Uid::new("u"));
        command(id, KubernetesCall::DeleteAttachment { name, uid, resource_version: ResourceVersion::new("1") })
    }

    fn outcome(id: u64, result: CallResult) -> Outcome {
        Outcome { id: CommandId(id), began: Now::default(), ended: Now::default(), result }
    }

    fn shown(status: AttachmentStatus) -> WatchEvent {
        WatchEvent::Applied(Object::Attachment(VolumeAttachment {
            name: AttachmentName::of(&key()),
            uid: Uid::new("u"),
            resource_version: ResourceVersion::new("1"),
            deleting: None,
            finalizers: Vec::new(),
            driver: key().volume.driver,
            node: key().node,
            source: AttachmentSource::PersistentVolume(PersistentVolumeName::new("pv")),
            node_id: None,
            node_uid: None,
            device: None,
            unmounted: None,
            status,
        }))
    }

    fn failed(message: &str) -> AttachmentStatus {
        let error = AttachmentError { message: message.into(), code: None, time: None };
        AttachmentStatus { attach_error: Some(error), ..AttachmentStatus::default() }
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    /// Name, status and total seconds of everything counted.
    fn sums(metrics: &Metrics) -> Vec<String> {
        let text = metrics.encode().unwrap();
        let mut sums: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("storage_operation_duration_seconds_sum{"))
            .map(|line| {
                let word = |key: &str| line.split(key).nth(1).and_then(|rest| rest.split('"').nth(1)).unwrap();
                let seconds = line.rsplit(' ').next().unwrap();
                format!("{} {} {seconds}", word("operation_name="), word("status="))
            })
            .collect();
        sums.sort();
        sums
    }

    #[test]
    fn an_attach_lasts_from_the_create_to_attached_and_a_detach_to_the_end_of_the_object() {
        let metrics = Metrics::new(Clock::start());
        let mut times = OperationTimes::new(metrics.clone());
        times.command(&create(1), at(10));
        times.outcome(&outcome(1, CallResult::Done(Answer::Attachment(None))));
        times.watch(&shown(AttachmentStatus::default()), at(11));
        times.watch(&shown(AttachmentStatus { attached: true, ..AttachmentStatus::default() }), at(13));
        times.watch(&shown(AttachmentStatus { attached: true, ..AttachmentStatus::default() }), at(50));
        times.command(&delete(2), at(100));
        times.watch(&shown(AttachmentStatus { attached: true, ..AttachmentStatus::default() }), at(101));
        times.watch(&WatchEvent::Deleted(ObjectKey::Attachment(AttachmentName::of(&key()), Uid::new("u"))), at(107));
        assert_eq!(sums(&metrics), ["volume_attach success 3.0", "volume_detach success 7.0"]);
        assert!(times.open.is_empty() && times.creating.is_empty());
    }

    #[test]
    fn each_error_is_one_failed_attempt_however_often_it_is_seen() {
        let metrics = Metrics::new(Clock::start());
        let mut times = OperationTimes::new(metrics.clone());
        times.command(&create(1), at(0));
        times.watch(&shown(failed("first")), at(2));
        times.watch(&shown(failed("first")), at(3));
        times.watch(&shown(failed("second")), at(6));
        assert_eq!(sums(&metrics), ["volume_attach fail-unknown 6.0"]);
        times.watch(&shown(AttachmentStatus { attached: true, ..AttachmentStatus::default() }), at(7));
        assert_eq!(sums(&metrics), ["volume_attach fail-unknown 6.0", "volume_attach success 1.0"]);
    }

    #[test]
    fn a_refused_create_starts_nothing() {
        let metrics = Metrics::new(Clock::start());
        let mut times = OperationTimes::new(metrics.clone());
        times.command(&create(1), at(0));
        times.outcome(&outcome(1, classify_kubernetes(403, "Forbidden", "no")));
        times.watch(&shown(AttachmentStatus { attached: true, ..AttachmentStatus::default() }), at(7));
        assert_eq!(sums(&metrics), [] as [String; 0]);
    }
}
