//! Workloads with one volume each: a pod that is made again when it is gone, on the node it shall run on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smol_str::SmolStr;

use crate::model::ids::{AwsVolumeId, DriverName, NodeName, PodKey, Uid, VolumeHandle, VolumeKey};
use crate::model::pod::Pod;
use crate::model::time::{Monotonic, Now};
use crate::sim::api_server::Api;
use crate::sim::checkers::world::Actor;
use crate::sim::dice::Dice;

/// Number of a workload.
pub type AppId = u32;

/// How long a workload's controller and the scheduler take to make and bind a pod.
const MAKE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// How soon they look again when no node takes the pod.
const NO_NODE: Duration = Duration::from_secs(5);

/// When the next pod of a workload is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// When the last one is gone (StatefulSet, strategy Recreate).
    AfterDeletion,
    /// When the last one is being deleted (Deployment, strategy RollingUpdate): both want the volume for a while.
    AtOnce,
}

/// A workload with one pod and one volume.
#[derive(Clone, Debug)]
pub struct App {
    /// Its name; pods and claim are named by it.
    pub name: SmolStr,
    /// The claim of its pods.
    pub claim: SmolStr,
    /// The volume behind the claim: its id in EC2, or an id of that form which is another driver's handle.
    pub volume: AwsVolumeId,
    /// Its driver.
    pub driver: DriverName,
    /// Where its pod shall run, if that node takes pods.
    pub target: NodeName,
    /// When the next pod is made.
    pub replacement: Replacement,
    /// Whether it wants a pod at all.
    pub wanted: bool,
    /// The pod made last, while it is not gone.
    pub pod: Option<(PodKey, Uid)>,
    incarnations: u64,
}

impl App {
    /// Its volume, driver and handle.
    pub fn key(&self) -> VolumeKey {
        VolumeKey { driver: self.driver.clone(), handle: VolumeHandle::new(self.volume.text()) }
    }

    /// Whether its present pod was made in place of an earlier one.
    pub fn is_replacement(&self) -> bool {
        self.incarnations > 1
    }
}

/// All workloads.
#[derive(Clone, Debug, Default)]
pub struct Apps {
    apps: BTreeMap<AppId, App>,
    by_volume: BTreeMap<AwsVolumeId, AppId>,
    by_pod: BTreeMap<PodKey, AppId>,
    due: BTreeSet<(Monotonic, AppId)>,
    /// Nodes nothing is scheduled to (a drain).
    cordoned: BTreeSet<NodeName>,
}

impl Apps {
    /// Adds a workload; its pod is made at `at`.
    pub fn add(&mut self, at: Monotonic, name: &str, claim: &str, volume: &AwsVolumeId, target: &NodeName) -> AppId {
        self.add_of(at, (name, claim), &VolumeKey::ebs(volume), volume, target)
    }

    /// The same with a volume of any driver.
    pub fn add_of(
        &mut self,
        at: Monotonic,
        (name, claim): (&str, &str),
        key: &VolumeKey,
        volume: &AwsVolumeId,
        target: &NodeName,
    ) -> AppId {
        let id = self.apps.len() as AppId;
        let app = App {
            driver: key.driver.clone(),
            name: SmolStr::new(name),
            claim: SmolStr::new(claim),
            volume: volume.clone(),
            target: target.clone(),
            replacement: Replacement::AfterDeletion,
            wanted: true,
            pod: None,
            incarnations: 0,
        };
        self.apps.insert(id, app);
        self.by_volume.insert(volume.clone(), id);
        self.due.insert((at, id));
        id
    }

    /// One workload.
    pub fn get(&self, id: AppId) -> Option<&App> {
        self.apps.get(&id)
    }

    /// Every workload.
    pub fn iter(&self) -> impl Iterator<Item = (AppId, &App)> {
        self.apps.iter().map(|(id, app)| (*id, app))
    }

    /// The workload of a volume.
    pub fn of_volume(&self, volume: &AwsVolumeId) -> Option<AppId> {
        self.by_volume.get(volume).copied()
    }

    /// The workload a pod was made for.
    pub fn of_pod(&self, key: &PodKey) -> Option<AppId> {
        self.by_pod.get(key).copied()
    }

    /// When a pod is to be made next.
    pub fn next_due(&self) -> Option<Monotonic> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Sets how the next pods of every workload are made.
    pub fn set_replacement(&mut self, replacement: Replacement) {
        for app in self.apps.values_mut() {
            app.replacement = replacement;
        }
    }

    /// Nothing is scheduled to the node any more, or again.
    pub fn set_cordoned(&mut self, node: &NodeName, cordoned: bool) {
        if cordoned {
            self.cordoned.insert(node.clone());
        } else {
            self.cordoned.remove(node);
        }
    }

    /// From now on the workload shall run on `target`; its pod, if it is elsewhere, is deleted.
    pub fn move_to(&mut self, id: AppId, target: &NodeName, api: &mut Api) -> bool {
        let Some(app) = self.apps.get_mut(&id) else { return false };
        app.target = target.clone();
        let Some((key, _)) = &app.pod else { return false };
        if api.pod(key).is_some_and(|pod| pod.node.as_ref() == Some(target)) {
            return false;
        }
        api.delete_pod(Actor::Platform, key)
    }

    /// Scales the workload to zero, or to one again.
    pub fn set_wanted(&mut self, now: Now, id: AppId, wanted: bool, api: &mut Api) {
        let Some(app) = self.apps.get_mut(&id) else { return };
        app.wanted = wanted;
        match &app.pod {
            Some((key, _)) if !wanted => {
                api.delete_pod(Actor::Platform, key);
            }
            None if wanted => {
                self.due.insert((now.monotonic, id));
            }
            _ => {}
        }
    }

    /// A pod changed; `gone` if it is no longer in the API.
    pub fn pod_changed(&mut self, now: Now, pod: &Pod, gone: bool, api: &mut Api, dice: &mut Dice) {
        let Some(id) = self.by_pod.get(&pod.key).copied() else { return };
        let Some(app) = self.apps.get_mut(&id) else { return };
        if gone {
            self.by_pod.remove(&pod.key);
        }
        if app.pod.as_ref().is_none_or(|(_, uid)| *uid != pod.uid) {
            return;
        }
        if !gone && pod.terminated && !pod.deleting {
            // A failed pod is deleted by its controller and made again.
            api.delete_pod(Actor::Platform, &pod.key);
            return;
        }
        if gone || (pod.deleting && app.replacement == Replacement::AtOnce) {
            app.pod = None;
            self.due.insert((now.monotonic + dice.between(MAKE.0, MAKE.1), id));
        }
    }

    /// Makes every pod that is due.
    pub fn wake(&mut self, now: Now, api: &mut Api, dice: &mut Dice) {
        while let Some((at, id)) = self.due.first().copied() {
            if at > now.monotonic {
                return;
            }
            self.due.pop_first();
            self.make_pod(now, id, api, dice);
        }
    }

    fn make_pod(&mut self, now: Now, id: AppId, api: &mut Api, dice: &mut Dice) {
        let Some(app) = self.apps.get_mut(&id) else { return };
        if app.pod.is_some() || !app.wanted {
            return;
        }
        let cordoned = &self.cordoned;
        let takes_pods = |node: &NodeName| {
            !cordoned.contains(node) && api.node(node).is_some_and(|n| n.ready.is_true && !n.out_of_service)
        };
        let node = if takes_pods(&app.target) {
            Some(app.target.clone())
        } else {
            let others: Vec<NodeName> = api.nodes().map(|n| n.name.clone()).filter(takes_pods).collect();
            dice.pick(&others).cloned()
        };
        let Some(node) = node else {
            self.due.insert((now.monotonic + NO_NODE, id));
            return;
        };
        app.target = node.clone();
        app.incarnations += 1;
        let name = match app.replacement {
            Replacement::AfterDeletion => app.name.clone(),
            Replacement::AtOnce => smol_str::format_smolstr!("{}-{}", app.name, app.incarnations),
        };
        let key = PodKey::new("default", name);
        match api.create_pod(now, &key, &node, std::slice::from_ref(&app.claim)) {
            Some(uid) => {
                app.pod = Some((key.clone(), uid));
                self.by_pod.insert(key, id);
            }
            None => {
                self.due.insert((now.monotonic + NO_NODE, id));
            }
        }
    }
}
