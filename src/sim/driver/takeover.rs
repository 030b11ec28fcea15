//! What a process that takes over is measured by: how long until everything that was pending is acted on, and what it
//! asks of EC2 meanwhile.
//!
//! Flow: the driver begins one when a process comes to lead after another, and tells it of every call that leaves the
//! socket. Looks at the models for what is pending; the core is never asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Commander, Driver};
use crate::controller::command::{Call, Ec2Call, KubernetesCall};
use crate::model::ids::{AttachmentKey, AttachmentName, AwsVolumeId, InstanceId, VolumeKey};
use crate::model::time::Monotonic;
use crate::model::volume::AttachmentState;
use crate::sim::checkers::wanted::volume_behind;
use crate::sim::ec2::Ec2Action;
use crate::sim::workload::App;

/// So long after the lease everything has been read once, also in the largest world: at 10 requests a second 100,000
/// volumes take 50 s, longer where EC2 throttles.
const READ_ONCE_AFTER: Duration = Duration::from_secs(180);

/// What a process that took over found pending, and what it sent since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Takeover {
    leads_from: Monotonic,
    sweep_period: Duration,
    pending: BTreeMap<AwsVolumeId, Acted>,
    describes: Vec<(Monotonic, Ec2Action)>,
}

/// When a pending volume was first acted on, from the lease on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Acted {
    /// By a change of its objects or in EC2. A patch of a node's list is none: it names many.
    at_all: Option<Duration>,
    /// By AttachVolume or DetachVolume.
    in_ec2: Option<Duration>,
}

impl Takeover {
    /// Volumes that were pending when the lease was got: wanted on a node where EC2 does not show them, or shown where
    /// nobody wants them.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// From the lease to the first change of the volume's objects or in EC2, of every pending volume; `None`: some were
    /// never acted on.
    pub fn first_acts(&self) -> Option<Vec<Duration>> {
        self.pending.values().map(|acted| acted.at_all).collect()
    }

    /// From the lease to the first AttachVolume or DetachVolume, of every pending volume that got one: what an earlier
    /// leader sent needs no other.
    pub fn first_ec2_calls(&self) -> Vec<Duration> {
        self.pending.values().filter_map(|acted| acted.in_ec2).collect()
    }

    /// The most describe calls of every kind that left within any such span.
    pub fn most_describes_within(&self, span: Duration) -> usize {
        let sent = self.describes.iter().enumerate();
        let within = |(index, (at, _)): (usize, &(Monotonic, Ec2Action))| {
            let rest = &self.describes[index..];
            rest.iter().take_while(|(later, _)| later.saturating_since(*at) < span).count()
        };
        sent.map(within).max().unwrap_or(0)
    }

    /// DescribeVolumes in each whole sweep period, from the time on when everything has been read once.
    pub fn calls_per_sweep(&self) -> Vec<u64> {
        let begins = self.leads_from + READ_ONCE_AFTER;
        let period = self.sweep_period.as_millis().max(1);
        let mut calls: BTreeMap<u128, u64> = BTreeMap::new();
        for (at, action) in &self.describes {
            if *at >= begins && *action == Ec2Action::DescribeVolumes {
                *calls.entry(at.saturating_since(begins).as_millis() / period).or_default() += 1;
            }
        }
        // The last period is cut off by the end of the run.
        calls.pop_last();
        calls.into_values().collect()
    }

    fn sent(&mut self, at: Monotonic, to_ec2: Option<Ec2Action>, volume: Option<&AwsVolumeId>) {
        if let Some(action) = to_ec2.filter(|action| !action.is_mutating()) {
            self.describes.push((at, action));
        }
        let Some(acted) = volume.and_then(|volume| self.pending.get_mut(volume)) else { return };
        let since = at.saturating_since(self.leads_from);
        acted.at_all.get_or_insert(since);
        if to_ec2.is_some() {
            acted.in_ec2.get_or_insert(since);
        }
    }
}

impl<C: Commander> Driver<C> {
    /// A process took over from another.
    pub(super) fn begin_takeover(&mut self) {
        let pending = self.apps.iter().filter(|(_, app)| self.is_pending(app));
        let pending = pending.map(|(_, app)| (app.volume.clone(), Acted::default())).collect();
        let (leads_from, sweep_period) = (self.now.monotonic, self.options.settings.sweep_period);
        self.measures.takeover = Some(Takeover { leads_from, sweep_period, pending, describes: Vec::new() });
    }

    /// Whether the volume is not where its pod wants it, or somewhere where no pod does.
    fn is_pending(&self, app: &App) -> bool {
        if !app.driver.is_ebs() {
            return false;
        }
        let pod = app.pod.as_ref().and_then(|(key, _)| self.api.pod(key)).filter(|pod| !pod.terminated);
        let wanted_on = pod.and_then(|pod| pod.node.as_ref());
        let wanted: Option<InstanceId> = wanted_on.and_then(|node| self.instance_of(node));
        let attachments = self.ec2.volume(&app.volume).map(|volume| volume.attachments()).unwrap_or_default();
        let here: BTreeSet<&InstanceId> = attachments
            .iter()
            .filter(|attachment| attachment.state == AttachmentState::Attached)
            .map(|attachment| &attachment.instance)
            .collect();
        let is_superfluous = here.iter().any(|instance| Some(*instance) != wanted.as_ref());
        let is_missing = pod.is_some_and(|pod| !pod.deleting)
            && wanted_on.is_some_and(|node| {
                let name =
                    AttachmentName::of(&AttachmentKey { volume: VolumeKey::ebs(&app.volume), node: node.clone() });
                let stated = self.api.attachment(&name).is_some_and(|object| object.status.attached);
                !stated || wanted.as_ref().is_none_or(|instance| !here.contains(instance))
            });
        is_superfluous || is_missing
    }

    /// A call left the socket.
    pub(super) fn tell_takeover(&mut self, flight: u64) {
        if self.measures.takeover.is_none() {
            return;
        }
        let Some(call) = self.flights.get(&flight).map(|flight| &flight.command.call) else { return };
        let volume = self.volume_named_by(call);
        let to_ec2 = match call {
            Call::Ec2(call) => Some(Ec2Action::of(call)),
            Call::Kubernetes(_) => None,
        };
        if let Some(takeover) = &mut self.measures.takeover {
            takeover.sent(self.now.monotonic, to_ec2, volume.as_ref());
        }
    }

    /// The volume that a change is about.
    fn volume_named_by(&self, call: &Call) -> Option<AwsVolumeId> {
        let key = match call {
            Call::Ec2(Ec2Call::AttachVolume { volume, .. } | Ec2Call::DetachVolume { volume, .. }) => {
                return Some(volume.clone());
            }
            Call::Kubernetes(KubernetesCall::CreateAttachment(new)) => new.key.volume.clone(),
            Call::Kubernetes(
                KubernetesCall::RecordAttachment { name, .. }
                | KubernetesCall::PatchAttachmentStatus { name, .. }
                | KubernetesCall::SetAttachmentFinalizers { name, .. }
                | KubernetesCall::DeleteAttachment { name, .. },
            ) => volume_behind(&self.world, self.world.attachments.get(name)?)?,
            _ => return None,
        };
        key.aws_volume_id()
    }
}
