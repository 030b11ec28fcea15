//! Volumes and instances made, stopped, ended: what people and autoscalers do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::error::Ec2Error;
use super::history::History;
use super::records::{Instance, InstanceView, Volume, VolumeView};
use super::world::{Change, World};
use crate::model::ids::{AwsVolumeId, InstanceId, InstanceType, Zone};
use crate::model::volume::{CheckStatus, InstanceState, VolumeState};

/// Size of a volume nobody gave a size for.
pub(super) const DEFAULT_SIZE_GIB: u32 = 8;

impl World {
    pub(super) fn add_volume(
        &mut self,
        id: AwsVolumeId,
        zone: Zone,
        multi_attach: bool,
        size_gib: u32,
        state: VolumeState,
    ) {
        let view = VolumeView { state: state.clone(), attachments: Vec::new() };
        let volume = Volume {
            id: id.clone(),
            zone,
            multi_attach,
            size_gib,
            created: self.clock(),
            state,
            tags: BTreeMap::new(),
            initializing: false,
            attachments: Vec::new(),
            history: History::new(self.now.monotonic, view),
        };
        self.volumes.insert(id.clone(), volume);
        self.note_volume(&id);
    }

    pub(super) fn create_volume(&mut self, id: AwsVolumeId, zone: Zone, multi_attach: bool, size_gib: u32) {
        self.add_volume(id.clone(), zone, multi_attach, size_gib, VolumeState::Creating);
        let after = self.options.creating.draw(&mut self.dice);
        self.schedule(after, Change::VolumeCreated(id));
    }

    pub(super) fn delete_volume(&mut self, id: &AwsVolumeId) -> Result<(), Ec2Error> {
        let volume = self.volumes.get_mut(id).ok_or_else(|| Ec2Error::volume_not_found(id))?;
        match volume.state {
            VolumeState::Available | VolumeState::Error => volume.state = VolumeState::Deleting,
            VolumeState::InUse => return Err(Ec2Error::volume_in_use(id)),
            _ => return Err(Ec2Error::volume_state(id, volume.state.as_str())),
        }
        self.note_volume(id);
        let after = self.options.creating.draw(&mut self.dice);
        self.schedule(after, Change::VolumeDeleted(id.clone()));
        Ok(())
    }

    pub(super) fn add_instance(
        &mut self,
        id: InstanceId,
        root: AwsVolumeId,
        instance_type: InstanceType,
        zone: Zone,
        state: InstanceState,
        invisible: Duration,
    ) {
        let view = InstanceView { state: state.clone(), mappings: Vec::new() };
        let instance = Instance {
            id: id.clone(),
            instance_type,
            zone,
            root,
            launched: self.clock(),
            state,
            since: self.now.monotonic,
            visible_from: self.now.monotonic + invisible,
            devices: BTreeMap::new(),
            hidden_names: BTreeSet::new(),
            freed: BTreeMap::new(),
            held: BTreeSet::new(),
            is_off: false,
            system_check: CheckStatus::Ok,
            instance_check: CheckStatus::Ok,
            guest_changes: 0,
            history: History::new(self.now.monotonic, view),
        };
        self.instances.insert(id.clone(), instance);
        self.note_instance(&id);
    }

    pub(super) fn run_instance(&mut self, id: InstanceId, root: AwsVolumeId, instance_type: InstanceType, zone: Zone) {
        let invisible = self.options.partly_visible.draw(&mut self.dice);
        self.add_instance(id.clone(), root, instance_type, zone, InstanceState::Pending, invisible);
        let after = self.options.pending.draw(&mut self.dice);
        self.schedule(after, Change::Running(id));
    }

    fn instance_state(&self, id: &InstanceId) -> Result<InstanceState, Ec2Error> {
        self.instances.get(id).map(|instance| instance.state.clone()).ok_or_else(|| Ec2Error::instance_not_found(id))
    }

    /// TerminateInstances; of one that is on its way out already it changes nothing.
    pub(super) fn terminate(&mut self, id: &InstanceId) -> Result<(), Ec2Error> {
        let state = self.instance_state(id)?;
        if !matches!(state, InstanceState::ShuttingDown | InstanceState::Terminated) {
            self.set_instance_state(id, &state, InstanceState::ShuttingDown);
            let after = self.options.shutting_down.draw(&mut self.dice);
            // The guest has its time to shut down; what is left is EC2's.
            let off = self.dice.between(after / 4, after * 3 / 4);
            self.schedule(off, Change::GuestOff(id.clone()));
            self.schedule(after, Change::Terminated(id.clone()));
        }
        Ok(())
    }

    /// StopInstances: attachments stay.
    pub(super) fn stop(&mut self, id: &InstanceId) -> Result<(), Ec2Error> {
        match self.instance_state(id)? {
            InstanceState::Running => {
                self.set_instance_state(id, &InstanceState::Running, InstanceState::Stopping);
                let after = self.options.stopping.draw(&mut self.dice);
                self.schedule(after, Change::Stopped(id.clone()));
                Ok(())
            }
            InstanceState::Stopping | InstanceState::Stopped => Ok(()),
            _ => Err(wrong_state(id)),
        }
    }

    /// StartInstances.
    pub(super) fn start(&mut self, id: &InstanceId) -> Result<(), Ec2Error> {
        match self.instance_state(id)? {
            InstanceState::Stopped => {
                self.set_instance_state(id, &InstanceState::Stopped, InstanceState::Pending);
                let after = self.options.pending.draw(&mut self.dice);
                self.schedule(after, Change::Running(id.clone()));
                Ok(())
            }
            InstanceState::Pending | InstanceState::Running => Ok(()),
            _ => Err(wrong_state(id)),
        }
    }

    /// RebootInstances: the state stays `running`; the guest starts anew and holds nothing.
    pub(super) fn reboot(&mut self, id: &InstanceId) -> Result<(), Ec2Error> {
        match self.instance_state(id)? {
            InstanceState::Running => {
                self.release_all(id);
                self.guest_boots(id);
                Ok(())
            }
            _ => Err(wrong_state(id)),
        }
    }

    /// The guest no longer answers: the instance stays `running` and holds what it holds, its check fails after a while.
    pub(super) fn guest_hangs(&mut self, id: &InstanceId) {
        let after = self.options.check_fails.draw(&mut self.dice);
        self.check_later(id, after, CheckStatus::Impaired);
    }

    /// A guest boots: its check has nothing to say at first.
    pub(super) fn guest_boots(&mut self, id: &InstanceId) {
        if let Some(instance) = self.instances.get_mut(id) {
            let before = std::mem::replace(&mut instance.instance_check, CheckStatus::Initializing);
            if before == CheckStatus::Impaired {
                self.checked.insert(id.clone());
            }
        }
        let after = self.options.check_initializes.draw(&mut self.dice);
        self.check_later(id, after, CheckStatus::Ok);
    }

    fn check_later(&mut self, id: &InstanceId, after: Duration, check: CheckStatus) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        instance.guest_changes += 1;
        let change = Change::Checked(id.clone(), instance.guest_changes, check);
        self.schedule(after, change);
    }
}

fn wrong_state(id: &InstanceId) -> Ec2Error {
    Ec2Error::new(
        "IncorrectInstanceState",
        format!("The instance '{id}' is not in a state from which this is possible."),
    )
}
