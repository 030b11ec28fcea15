//! The one model of EC2: strict where EC2 is strict, faulty where EC2 is faulty. The simulator calls it in virtual time,
//! `sandbox` puts HTTP in front of it.
//!
//! A call applies at the `now` it is given and answers at once; latency, lost and late requests are the business of
//! whoever carries the call. Owns the truth about attachments, which checkers read. Must never look at a clock, and
//! must never favour attachd: it knows nothing about Kubernetes.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod attach;
mod bucket;
mod describe;
mod error;
mod fault;
mod history;
mod lifecycle;
mod options;
mod records;
mod world;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use describe::{FILTER_VALUES, Page, Query, Selection};
pub use error::Ec2Error;
pub use fault::{AnswerFault, Ec2Action, Ec2Fault, LostEffect};
pub use options::{Ec2Options, Span, Staleness, Throttling, TypeLimits, WrongDevice};
pub use records::{Attachment, Caller, EndCause, EndedAttachment, Instance, Volume};

use crate::controller::command::Ec2Call;
use crate::model::device::DeviceName;
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType, Zone};
use crate::model::outcome::{Answer, CallResult};
use crate::model::time::{Monotonic, Now};
use crate::model::volume::{
    CheckStatus, InstanceReading, InstanceState, InstanceStatusReading, InstanceTypeReading, VolumeReading,
    VolumeState, VolumeStatusReading,
};
use crate::sim::dice::Dice;
use bucket::TokenBucket;
use world::World;

/// The stream of chance that is EC2's.
const DICE_STREAM: u64 = 0xEC2;

/// One account in one region.
#[derive(Clone, Debug)]
pub struct Ec2Model {
    world: World,
    buckets: Option<Buckets>,
    counts: BTreeMap<Ec2Action, CallCounts>,
    ids_given: u64,
}

/// How the calls of one action ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Accepted.
    pub accepted: u64,
    /// Refused with another code than for rate.
    pub refused: u64,
    /// Refused for rate.
    pub throttled: u64,
    /// Without an answer, or with one that cannot be read.
    pub unanswered: u64,
}

#[derive(Clone, Debug)]
struct Buckets {
    mutating: TokenBucket,
    describe: TokenBucket,
    unfiltered: TokenBucket,
}

impl Ec2Model {
    /// An empty account.
    pub fn new(options: Ec2Options, seed: u64) -> Self {
        let buckets = match options.throttling {
            Throttling::Off => None,
            Throttling::Buckets { mutating, describe, unfiltered } => Some(Buckets {
                mutating: TokenBucket::full(mutating),
                describe: TokenBucket::full(describe),
                unfiltered: TokenBucket::full(unfiltered),
            }),
        };
        let world = World::new(options, Dice::new(seed, DICE_STREAM));
        Self { world, buckets, counts: BTreeMap::new(), ids_given: 0 }
    }

    /// One request, carried out at `now`.
    pub fn call(&mut self, now: Now, call: &Ec2Call) -> CallResult {
        self.call_as(now, &Caller::Unnamed, call)
    }

    /// One request, carried out at `now`, of a caller that the attachments will name.
    pub fn call_as(&mut self, now: Now, caller: &Caller, call: &Ec2Call) -> CallResult {
        let page_size = Some(self.world.options.page_size);
        let answer = match call {
            Ec2Call::AttachVolume { volume, instance, device, card } => {
                self.attach_volume(now, caller, volume, instance, device, *card).map(|()| Answer::Accepted)
            }
            Ec2Call::DetachVolume { volume, instance, device } => {
                self.detach_volume(now, caller, volume, Some(instance), Some(device)).map(|()| Answer::Accepted)
            }
            Ec2Call::DescribeVolumes { volumes, next_token } => {
                let next_token = next_token.as_deref();
                let selection = Selection::Filtered(volumes);
                let query = Query { selection, keep: None, max_results: page_size, next_token };
                self.describe_volumes(now, &query).map(|(volumes, next_token)| Answer::Volumes { volumes, next_token })
            }
            Ec2Call::DescribeInstances { instances, next_token } => {
                let next_token = next_token.as_deref();
                let selection = Selection::Filtered(instances);
                let query = Query { selection, keep: None, max_results: page_size, next_token };
                self.describe_instances(now, &query)
                    .map(|(instances, next_token)| Answer::Instances { instances, next_token })
            }
            Ec2Call::DescribeInstanceTypes { types } => {
                self.describe_instance_types(now, types).map(Answer::InstanceTypes)
            }
            Ec2Call::DescribeInstanceStatus { instances, .. } => self
                .describe_instance_status(now, instances)
                .map(|statuses| Answer::InstanceStatuses { statuses, next_token: None }),
            Ec2Call::DescribeVolumeStatus { volumes, .. } => self
                .describe_volume_status(now, volumes)
                .map(|statuses| Answer::VolumeStatuses { statuses, next_token: None }),
        };
        answer.map_or_else(|error| error.to_result(), CallResult::Done)
    }

    /// AttachVolume.
    pub fn attach_volume(
        &mut self,
        now: Now,
        caller: &Caller,
        volume: &AwsVolumeId,
        instance: &InstanceId,
        device: &DeviceName,
        card: Option<u32>,
    ) -> Result<(), Ec2Error> {
        self.request(now, Ec2Action::AttachVolume, BucketKind::Mutating, |world| {
            world.attach(caller, volume, instance, device, card)
        })
    }

    /// DetachVolume; the wire leaves instance and device optional, attachd always names both.
    pub fn detach_volume(
        &mut self,
        now: Now,
        caller: &Caller,
        volume: &AwsVolumeId,
        instance: Option<&InstanceId>,
        device: Option<&DeviceName>,
    ) -> Result<(), Ec2Error> {
        self.request(now, Ec2Action::DetachVolume, BucketKind::Mutating, |world| {
            world.detach(caller, volume, instance, device)
        })
    }

    /// One page of DescribeVolumes.
    pub fn describe_volumes(
        &mut self,
        now: Now,
        query: &Query<'_, AwsVolumeId, VolumeReading>,
    ) -> Result<Page<VolumeReading>, Ec2Error> {
        let bucket = BucketKind::of(query);
        self.request(now, Ec2Action::DescribeVolumes, bucket, |world| world.describe_volumes(query))
    }

    /// One page of DescribeInstances.
    pub fn describe_instances(
        &mut self,
        now: Now,
        query: &Query<'_, InstanceId, InstanceReading>,
    ) -> Result<Page<InstanceReading>, Ec2Error> {
        let bucket = BucketKind::of(query);
        self.request(now, Ec2Action::DescribeInstances, bucket, |world| world.describe_instances(query))
    }

    /// DescribeInstanceTypes.
    pub fn describe_instance_types(
        &mut self,
        now: Now,
        types: &[InstanceType],
    ) -> Result<Vec<InstanceTypeReading>, Ec2Error> {
        self.request(now, Ec2Action::DescribeInstanceTypes, BucketKind::Describe, |world| world.describe_types(types))
    }

    /// DescribeInstanceStatus of ids.
    pub fn describe_instance_status(
        &mut self,
        now: Now,
        ids: &[InstanceId],
    ) -> Result<Vec<InstanceStatusReading>, Ec2Error> {
        self.request(now, Ec2Action::DescribeInstanceStatus, BucketKind::Describe, |world| {
            world.describe_instance_status(ids)
        })
    }

    /// DescribeVolumeStatus of ids.
    pub fn describe_volume_status(
        &mut self,
        now: Now,
        ids: &[AwsVolumeId],
    ) -> Result<Vec<VolumeStatusReading>, Ec2Error> {
        self.request(now, Ec2Action::DescribeVolumeStatus, BucketKind::Describe, |world| {
            world.describe_volume_status(ids)
        })
    }

    /// What both status checks of an instance find from now on, until its guest boots or hangs.
    pub fn set_checks(&mut self, instance: &InstanceId, checks: CheckStatus) {
        if let Some(instance) = self.world.instances.get_mut(instance) {
            instance.guest_changes += 1;
            instance.system_check = checks.clone();
            instance.instance_check = checks;
        }
    }

    /// The guest of a running instance no longer answers (a kernel panic, a hang): it goes on holding what it holds, and
    /// the instance status check notices after minutes. Ends with a reboot, or a stop and a start.
    pub fn guest_hangs(&mut self, now: Now, instance: &InstanceId) {
        self.world.advance(now);
        self.world.guest_hangs(instance);
    }

    /// Whether blocks of a volume are still being loaded from a snapshot.
    pub fn set_initializing(&mut self, volume: &AwsVolumeId, initializing: bool) {
        if let Some(volume) = self.world.volumes.get_mut(volume) {
            volume.initializing = initializing;
        }
    }

    /// Sets a tag of a volume.
    pub fn tag_volume(&mut self, volume: &AwsVolumeId, key: &str, value: &str) {
        if let Some(volume) = self.world.volumes.get_mut(volume) {
            volume.tags.insert(key.into(), value.into());
        }
    }

    /// What every request goes through: time, bucket, faults, and the books.
    fn request<T>(
        &mut self,
        now: Now,
        action: Ec2Action,
        bucket: BucketKind,
        apply: impl FnOnce(&mut World) -> Result<T, Ec2Error>,
    ) -> Result<T, Ec2Error> {
        self.world.advance(now);
        let counts = self.counts.entry(action).or_default();
        if let Some(buckets) = &mut self.buckets
            && !buckets.get(bucket).take(self.world.now.monotonic)
        {
            counts.throttled += 1;
            return Err(Ec2Error::throttled());
        }
        let loss = self.world.faults.loss(action);
        let answer = match loss {
            Some(LostEffect::NotApplied) => Err(Ec2Error::NoAnswer),
            _ if self.world.faults.outage => Err(Ec2Error::Unreadable),
            _ => match self.world.faults.refusal(action) {
                Some(refusal) => Err(refusal),
                None => self.world.draw_answer(action).and_then(|spoilt| {
                    self.world.spoilt = spoilt;
                    apply(&mut self.world)
                }),
            },
        };
        let answer = match (loss, self.world.spoilt.take()) {
            (Some(_), _) => Err(Ec2Error::NoAnswer),
            (None, Some(AnswerFault::Unreadable)) => Err(Ec2Error::Unreadable),
            (None, _) => answer,
        };
        match &answer {
            Ok(_) => counts.accepted += 1,
            Err(Ec2Error::NoAnswer | Ec2Error::Unreadable) => counts.unanswered += 1,
            Err(error) if error.to_result() == CallResult::Throttled => counts.throttled += 1,
            Err(_) => counts.refused += 1,
        }
        answer
    }

    /// Lets happen what is due.
    pub fn advance(&mut self, now: Now) {
        self.world.advance(now);
    }

    /// When something changes next by itself.
    pub fn next_change(&self) -> Option<Monotonic> {
        self.world.next_change()
    }

    /// Switches a fault on.
    pub fn inject(&mut self, fault: Ec2Fault) {
        self.world.faults.add(fault);
    }

    /// Ends one fault that lasts.
    pub fn end(&mut self, fault: &Ec2Fault) {
        self.world.faults.end(fault);
    }

    /// Ends every fault that was switched on. What a fault has made of an attachment stays.
    pub fn heal(&mut self) {
        self.world.faults = fault::Faults::default();
    }
}

/// Operator actions: what people, autoscalers and guests do. They take no token.
impl Ec2Model {
    /// RunInstances: `pending`, later `running`.
    pub fn run_instance(&mut self, now: Now, instance_type: InstanceType, zone: Zone) -> InstanceId {
        self.world.advance(now);
        let (id, root) = (self.new_instance_id(), self.new_volume_id());
        self.world.run_instance(id.clone(), root, instance_type, zone);
        id
    }

    /// An instance that has been running for long, to set up a world.
    pub fn add_running_instance(&mut self, now: Now, id: InstanceId, instance_type: InstanceType, zone: Zone) {
        self.world.advance(now);
        let root = self.new_volume_id();
        let invisible = std::time::Duration::ZERO;
        self.world.add_instance(id, root, instance_type, zone, InstanceState::Running, invisible);
    }

    /// TerminateInstances: `shutting-down`, later `terminated`; then every attachment ends, and no volume is deleted
    /// (volumes attached by AttachVolume have DeleteOnTermination false).
    pub fn terminate(&mut self, now: Now, instance: &InstanceId) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.terminate(instance)
    }

    /// StopInstances: attachments stay, the guest is gone.
    pub fn stop(&mut self, now: Now, instance: &InstanceId) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.stop(instance)
    }

    /// StartInstances.
    pub fn start(&mut self, now: Now, instance: &InstanceId) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.start(instance)
    }

    /// RebootInstances: attachments stay, the guest starts anew.
    pub fn reboot(&mut self, now: Now, instance: &InstanceId) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.reboot(instance)
    }

    /// Names the image maps to something that no describe call shows: AttachVolume under them is refused.
    pub fn set_hidden_names(&mut self, instance: &InstanceId, names: BTreeSet<DeviceName>) {
        if let Some(instance) = self.world.instances.get_mut(instance) {
            instance.hidden_names = names;
        }
    }

    /// CreateVolume: `creating`, later `available`.
    pub fn create_volume(&mut self, now: Now, zone: Zone, multi_attach: bool) -> AwsVolumeId {
        self.create_volume_sized(now, zone, multi_attach, lifecycle::DEFAULT_SIZE_GIB)
    }

    /// CreateVolume with a size in GiB.
    pub fn create_volume_sized(&mut self, now: Now, zone: Zone, multi_attach: bool, size_gib: u32) -> AwsVolumeId {
        self.world.advance(now);
        let id = self.new_volume_id();
        self.world.create_volume(id.clone(), zone, multi_attach, size_gib);
        id
    }

    /// A volume that has been `available` for long, to set up a world.
    pub fn add_available_volume(&mut self, now: Now, id: AwsVolumeId, zone: Zone, multi_attach: bool) {
        self.world.advance(now);
        self.world.add_volume(id, zone, multi_attach, lifecycle::DEFAULT_SIZE_GIB, VolumeState::Available);
    }

    /// An attachment that has been there for long, to set up a world.
    pub fn add_attached(
        &mut self,
        now: Now,
        caller: &Caller,
        volume: &AwsVolumeId,
        instance: &InstanceId,
        device: &DeviceName,
    ) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.attach(caller, volume, instance, device, None)?;
        self.world.attached_long_ago(volume, instance);
        Ok(())
    }

    /// DeleteVolume.
    pub fn delete_volume(&mut self, now: Now, volume: &AwsVolumeId) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.delete_volume(volume)
    }

    /// A person attaches at the console.
    pub fn attach_by_hand(
        &mut self,
        now: Now,
        volume: &AwsVolumeId,
        instance: &InstanceId,
        device: &DeviceName,
    ) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.attach(&Caller::Person, volume, instance, device, None)
    }

    /// A person detaches at the console, without a device name.
    pub fn detach_by_hand(&mut self, now: Now, volume: &AwsVolumeId, instance: &InstanceId) -> Result<(), Ec2Error> {
        self.world.advance(now);
        self.world.detach(&Caller::Person, volume, Some(instance), None)
    }

    /// A person detaches at the console, and forces it: the device is pulled from under whatever the guest does with it.
    /// Of one that is being detached already, the refusal says so, and the guest's hold ends all the same.
    pub fn force_detach_by_hand(
        &mut self,
        now: Now,
        volume: &AwsVolumeId,
        instance: &InstanceId,
    ) -> Result<(), Ec2Error> {
        self.world.advance(now);
        if let Some(record) = self.world.instances.get_mut(instance) {
            record.held.remove(volume);
        }
        // One that is on its way out already, kept by the guest, is let go.
        let refused = self.world.detach(&Caller::Person, volume, Some(instance), None);
        self.world.let_go(instance, volume);
        refused
    }

    /// Whether the guest has the volume open: while it has, a detach stays `busy`. Ends with the guest (stop, reboot,
    /// terminate).
    pub fn set_guest_holds(&mut self, now: Now, instance: &InstanceId, volume: &AwsVolumeId, holds: bool) {
        self.world.advance(now);
        let Some(record) = self.world.instances.get_mut(instance) else { return };
        if holds {
            record.held.insert(volume.clone());
        } else if record.held.remove(volume) {
            self.world.let_go(instance, volume);
        }
    }

    /// A fresh volume id.
    pub fn new_volume_id(&mut self) -> AwsVolumeId {
        loop {
            self.ids_given += 1;
            if let Ok(id) = AwsVolumeId::parse(&format!("vol-{:017x}", self.ids_given))
                && !self.world.volumes.contains_key(&id)
            {
                return id;
            }
        }
    }

    /// A fresh instance id.
    pub fn new_instance_id(&mut self) -> InstanceId {
        loop {
            self.ids_given += 1;
            if let Ok(id) = InstanceId::parse(&format!("i-{:017x}", self.ids_given))
                && !self.world.instances.contains_key(&id)
            {
                return id;
            }
        }
    }
}

/// The truth.
impl Ec2Model {
    /// Its options.
    pub fn options(&self) -> &Ec2Options {
        &self.world.options
    }

    /// Every volume, by id.
    pub fn volumes(&self) -> impl ExactSizeIterator<Item = &Volume> {
        self.world.volumes.values()
    }

    /// One volume.
    pub fn volume(&self, id: &AwsVolumeId) -> Option<&Volume> {
        self.world.volumes.get(id)
    }

    /// Every instance that can still be described, by id.
    pub fn instances(&self) -> impl ExactSizeIterator<Item = &Instance> {
        self.world.instances.values()
    }

    /// One instance.
    pub fn instance(&self, id: &InstanceId) -> Option<&Instance> {
        self.world.instances.get(id)
    }

    /// Whether the instance takes no more volumes.
    pub fn is_full(&self, id: &InstanceId) -> bool {
        self.world.is_full(id)
    }

    /// Ended attachments not yet taken, oldest first; the oldest are forgotten beyond [`Ec2Options::ended_kept`].
    pub fn ended(&self) -> impl Iterator<Item = &EndedAttachment> {
        self.world.ended()
    }

    /// Takes the log of ended attachments.
    pub fn take_ended(&mut self) -> Vec<EndedAttachment> {
        self.world.take_ended()
    }

    /// Takes the volumes that changed since the last time: what a checker has to look at.
    pub fn take_touched(&mut self) -> BTreeSet<AwsVolumeId> {
        self.world.take_touched()
    }

    /// Takes the instances whose instance status check came to another result since the last time.
    pub fn take_checked(&mut self) -> BTreeSet<InstanceId> {
        self.world.take_checked()
    }

    /// How the calls ended, by action.
    pub fn counts(&self) -> &BTreeMap<Ec2Action, CallCounts> {
        &self.counts
    }
}

#[derive(Clone, Copy)]
enum BucketKind {
    Mutating,
    Describe,
    Unfiltered,
}

impl BucketKind {
    fn of<Id, Reading>(query: &Query<'_, Id, Reading>) -> Self {
        if query.is_bounded() { Self::Describe } else { Self::Unfiltered }
    }
}

impl Buckets {
    fn get(&mut self, kind: BucketKind) -> &mut TokenBucket {
        match kind {
            BucketKind::Mutating => &mut self.mutating,
            BucketKind::Describe => &mut self.describe,
            BucketKind::Unfiltered => &mut self.unfiltered,
        }
    }
}
