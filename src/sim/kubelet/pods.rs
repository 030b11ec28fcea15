//! Pods on the node: started when their volumes are mounted, stopped when they are deleted, taken from the API when
//! their containers have stopped, whether unmounted or not.

use std::collections::BTreeSet;

use super::machine::Container;
use super::{Deed, Kubelet, SeenPod, Surroundings, Timer};
use crate::model::claim::PersistentVolumeSource;
use crate::model::ids::{ClaimKey, KubernetesVolumeId, PodKey, Uid, VolumeKey};
use crate::model::pod::{Pod, PodVolume};
use crate::sim::api_server::Api;

/// A pod as the kubelet's process works on it.
#[derive(Clone, Debug)]
pub(super) struct PodWork {
    pub(super) key: PodKey,
    pub(super) volumes: BTreeSet<VolumeKey>,
    pub(super) state: PodState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// Its volumes are not all mounted yet.
    Waiting,
    Running,
    /// Its containers were told to stop. They still write.
    Stopping,
    /// No container runs; the API may not know yet.
    Stopped,
}

impl PodWork {
    /// Whether it keeps its volumes in the desired state: until its containers have stopped.
    pub(super) fn wants_volumes(&self) -> bool {
        self.state != PodState::Stopped
    }
}

/// The volumes a pod needs. A claim that cannot be read yet is none for now; the kubelet would ask again.
fn volumes_of(pod: &Pod, api: &Api) -> BTreeSet<VolumeKey> {
    let claim = |name: &str| {
        let claim = api.claim(&ClaimKey::new(pod.key.namespace.clone(), name))?;
        match &api.persistent_volume(claim.bound_to.as_ref()?)?.source {
            PersistentVolumeSource::Csi { driver, handle, .. } => {
                Some(VolumeKey { driver: driver.clone(), handle: handle.clone() })
            }
            PersistentVolumeSource::InTreeEbs(id) => {
                KubernetesVolumeId::parse(id).ok().map(|id| VolumeKey::ebs(id.aws_volume_id()))
            }
            _ => None,
        }
    };
    pod.volumes
        .iter()
        .filter_map(|volume| match volume {
            PodVolume::Claim(name) => claim(name),
            PodVolume::Ephemeral(name) => claim(&format!("{}-{name}", pod.key.name)),
            PodVolume::InlineEbs(inline) => {
                KubernetesVolumeId::parse(&inline.volume_id).ok().map(|id| VolumeKey::ebs(id.aws_volume_id()))
            }
            PodVolume::Untranslated(_) => None,
        })
        .collect()
}

impl Kubelet {
    /// Acts on what the pod watch (or a list) shows of one pod.
    pub(super) fn sync_pod(&mut self, seen: SeenPod, at: &mut Surroundings<'_>) {
        match seen {
            SeenPod::Applied(pod) => {
                let known = self.process.as_ref().is_some_and(|process| process.pods.contains_key(&pod.uid));
                if !known {
                    self.admit_pod(&pod, at);
                }
                if pod.deleting {
                    self.stop_pod(&pod.uid, at);
                }
            }
            SeenPod::Gone(_, uid) => {
                self.stop_pod(&uid, at);
                if let Some(process) = &mut self.process
                    && process.pods.get(&uid).is_some_and(|pod| pod.state == PodState::Stopped)
                {
                    process.pods.remove(&uid);
                }
            }
        }
    }

    fn admit_pod(&mut self, pod: &Pod, at: &mut Surroundings<'_>) {
        let container = self.machine.containers.get(&pod.uid);
        let (state, volumes) = match container {
            Some(container) => (PodState::Running, container.volumes.clone()),
            None if pod.terminated || pod.deleting => (PodState::Stopped, BTreeSet::new()),
            None => (PodState::Waiting, volumes_of(pod, at.api)),
        };
        let Some(process) = &mut self.process else { return };
        let work = PodWork { key: pod.key.clone(), volumes: volumes.clone(), state };
        process.pods.insert(pod.uid.clone(), work);
        if state == PodState::Stopped {
            if pod.deleting {
                let due = at.after(self.options.pod_removal);
                self.set(due, Timer::RemovePod(pod.uid.clone()));
            }
            return;
        }
        for volume in &volumes {
            self.want_volume(volume, at);
        }
        self.start_ready_pods(at);
        self.plan_status(at);
    }

    /// Begins to end a pod, however far it came.
    pub(super) fn stop_pod(&mut self, uid: &Uid, at: &mut Surroundings<'_>) {
        let due = at.after(self.options.container_stop);
        let Some(pod) = self.process.as_mut().and_then(|process| process.pods.get_mut(uid)) else { return };
        match pod.state {
            PodState::Waiting => self.pod_stopped(uid, at),
            PodState::Running => {
                pod.state = PodState::Stopping;
                self.set(due, Timer::ContainerStopped(uid.clone()));
            }
            PodState::Stopping => {}
            PodState::Stopped => {
                let waits = self.timers.iter().any(|(_, timer)| matches!(timer, Timer::RemovePod(of) if of == uid));
                if !waits {
                    self.set(due, Timer::RemovePod(uid.clone()));
                }
            }
        }
    }

    pub(super) fn container_stopped(&mut self, uid: &Uid, at: &mut Surroundings<'_>) {
        if let Some(container) = self.machine.stop_container(uid) {
            at.deeds.extend(container.volumes.into_iter().map(Deed::MountChanged));
        }
        self.pod_stopped(uid, at);
    }

    /// The pod of that name fails by itself: its containers end, its object stays, its volumes are unmounted.
    pub fn fail_pod(&mut self, uid: &Uid, at: &mut Surroundings<'_>) -> bool {
        let runs = self.process.as_ref().and_then(|p| p.pods.get(uid)).is_some_and(|p| p.state == PodState::Running);
        if runs {
            self.container_stopped(uid, at);
        }
        runs
    }

    /// No container of the pod runs (any more): the API is told, its volumes are not wanted any longer.
    fn pod_stopped(&mut self, uid: &Uid, at: &mut Surroundings<'_>) {
        let Some(pod) = self.process.as_mut().and_then(|process| process.pods.get_mut(uid)) else { return };
        pod.state = PodState::Stopped;
        let (key, volumes) = (pod.key.clone(), pod.volumes.clone());
        for volume in &volumes {
            self.release_volume(volume, at);
        }
        self.plan_status(at);
        if !self.partitioned {
            at.api.set_pod_terminated(&key, uid);
        }
        let due = at.after(self.options.pod_removal);
        self.set(due, Timer::RemovePod(uid.clone()));
    }

    /// Ends the pod in the API, if it is being deleted there; a failed pod's object stays.
    pub(super) fn remove_pod(&mut self, uid: &Uid, at: &mut Surroundings<'_>) {
        if self.partitioned {
            return;
        }
        let Some(process) = &mut self.process else { return };
        let Some(key) = process.pods.get(uid).filter(|pod| pod.state == PodState::Stopped).map(|p| p.key.clone())
        else {
            return;
        };
        let stored = at.api.pod(&key).filter(|pod| pod.uid == *uid);
        match stored.map(|pod| (pod.deleting, pod.terminated)) {
            Some((true, _)) => {
                at.api.remove_pod(crate::sim::checkers::world::Actor::Platform, &key, uid);
                process.pods.remove(uid);
            }
            Some((false, false)) => at.api.set_pod_terminated(&key, uid),
            Some((false, true)) => {}
            None => {
                process.pods.remove(uid);
            }
        }
    }

    /// Starts every waiting pod whose volumes are all mounted.
    pub(super) fn start_ready_pods(&mut self, at: &mut Surroundings<'_>) {
        let Some(process) = &mut self.process else { return };
        let volumes = &process.volumes;
        let ready: Vec<Uid> = process
            .pods
            .iter()
            .filter(|(_, pod)| pod.state == PodState::Waiting)
            .filter(|(_, pod)| pod.volumes.iter().all(|v| volumes.get(v).is_some_and(|work| work.is_mounted())))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in ready {
            let Some(pod) = process.pods.get_mut(&uid) else { continue };
            pod.state = PodState::Running;
            let container = Container { key: pod.key.clone(), volumes: pod.volumes.clone() };
            at.deeds.push(Deed::PodRunning(pod.key.clone(), uid.clone()));
            at.deeds.extend(pod.volumes.iter().cloned().map(Deed::MountChanged));
            self.machine.start_container(&uid, container);
        }
    }

    /// Whether any pod still keeps the volume in the desired state.
    pub(super) fn is_wanted(&self, volume: &VolumeKey) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.pods.values().any(|pod| pod.wants_volumes() && pod.volumes.contains(volume)))
    }
}
