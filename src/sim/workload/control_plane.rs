//! The control loops beside attachd: node life cycle, eviction, pod garbage collection, cloud node life cycle.
//!
//! They run at ticks of their period, but only while there is something they might do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::ids::{InstanceId, NodeName, PodKey, Uid};
use crate::model::time::{Monotonic, Now};
use crate::sim::api_server::Api;
use crate::sim::checkers::world::Actor;

/// How the loops behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// From the last lease renewal of a kubelet until its Node is not Ready (upstream since 1.32: 50 s).
    pub not_ready_after: Duration,
    /// From not Ready until its pods are evicted (`tolerationSeconds` 300); `None`: never.
    pub evict_after: Option<Duration>,
    /// Period of pod garbage collection.
    pub pod_gc_period: Duration,
    /// Period of the loop that deletes Nodes whose instance is gone; `None`: no such loop.
    pub cloud_node_period: Option<Duration>,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            not_ready_after: Duration::from_secs(50),
            evict_after: Some(Duration::from_secs(300)),
            pod_gc_period: Duration::from_secs(20),
            cloud_node_period: Some(Duration::from_secs(5)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Check {
    NotReady(NodeName),
    Evict(NodeName),
    PodGc,
    CloudNodes,
}

/// The loops.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    options: ControlPlaneOptions,
    /// Nodes whose kubelet does not renew its lease, since when.
    leases_lost: BTreeMap<NodeName, Monotonic>,
    due: BTreeSet<(Monotonic, Check)>,
}

impl ControlPlane {
    /// Loops with nothing to do.
    pub fn new(options: ControlPlaneOptions) -> Self {
        Self { options, leases_lost: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// A kubelet renews its lease again, or no longer.
    pub fn lease_changed(&mut self, now: Now, node: &NodeName, renewed: bool) {
        if renewed {
            self.leases_lost.remove(node);
        } else if !self.leases_lost.contains_key(node) {
            self.leases_lost.insert(node.clone(), now.monotonic);
            self.due.insert((now.monotonic + self.options.not_ready_after, Check::NotReady(node.clone())));
        }
    }

    /// A Node is gone: its pods may have to be collected.
    pub fn node_gone(&mut self, now: Now) {
        self.plan(now, Check::PodGc, self.options.pod_gc_period);
    }

    /// An instance ended: its Node may have to be deleted.
    pub fn instance_gone(&mut self, now: Now) {
        if let Some(period) = self.options.cloud_node_period {
            self.plan(now, Check::CloudNodes, period);
        }
    }

    /// A Node was tainted out-of-service (NoExecute): its pods are evicted at once, then collected.
    pub fn tainted(&mut self, now: Now, node: &NodeName, api: &mut Api) {
        evict(node, api);
        self.plan(now, Check::PodGc, self.options.pod_gc_period);
    }

    /// When a loop has something to do.
    pub fn next_due(&self) -> Option<Monotonic> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether a node may yet become not Ready, or its pods be evicted.
    pub fn is_waiting(&self) -> bool {
        self.due.iter().any(|(_, check)| matches!(check, Check::NotReady(_) | Check::Evict(_)))
    }

    /// Does what is due. `instance_is_gone` is the cloud's answer. Returns what was done, for the timeline.
    pub fn wake(
        &mut self,
        now: Now,
        api: &mut Api,
        instance_is_gone: impl Fn(&InstanceId) -> bool,
    ) -> Vec<(&'static str, String)> {
        let mut done = Vec::new();
        while let Some((at, check)) = self.due.first().cloned() {
            if at > now.monotonic {
                break;
            }
            self.due.pop_first();
            match check {
                Check::NotReady(node) => self.set_not_ready(now, &node, api, &mut done),
                Check::Evict(node) => {
                    let still_lost = api.node(&node).is_some_and(|n| !n.ready.is_true);
                    if still_lost && evict(&node, api) > 0 {
                        done.push(("taint-eviction", format!("evict the pods of {node}")));
                    }
                }
                Check::PodGc => self.collect_pods(now, api, &mut done),
                Check::CloudNodes => self.delete_nodes(now, api, &instance_is_gone, &mut done),
            }
        }
        done
    }

    fn plan(&mut self, now: Now, check: Check, period: Duration) {
        if self.due.iter().any(|(_, planned)| *planned == check) {
            return;
        }
        let period = period.as_nanos().max(1);
        let next = (now.monotonic.since_start().as_nanos() / period + 1) * period;
        let next = Monotonic::new(Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX)));
        self.due.insert((next, check));
    }

    fn set_not_ready(&mut self, now: Now, node: &NodeName, api: &mut Api, done: &mut Vec<(&'static str, String)>) {
        let Some(since) = self.leases_lost.get(node) else { return };
        if now.monotonic.saturating_since(*since) < self.options.not_ready_after {
            return;
        }
        if api.set_not_ready(now, node) {
            done.push(("node-lifecycle", format!("{node} is not Ready")));
        }
        if let Some(after) = self.options.evict_after {
            self.due.insert((now.monotonic + after, Check::Evict(node.clone())));
        }
        self.instance_gone(now);
        self.plan(now, Check::PodGc, self.options.pod_gc_period);
    }

    /// PodGC: pods of Nodes that do not exist, and Terminating pods of Nodes that are not Ready and out of service.
    fn collect_pods(&mut self, now: Now, api: &mut Api, done: &mut Vec<(&'static str, String)>) {
        let mut again = false;
        let nodes: Vec<NodeName> = api.nodes_with_pods().cloned().collect();
        for name in nodes {
            let collect_all = match api.node(&name) {
                None => true,
                Some(node) if node.out_of_service && !node.ready.is_true => false,
                // It may yet become not Ready.
                Some(node) => {
                    again |= node.out_of_service;
                    continue;
                }
            };
            let pods: Vec<(PodKey, Uid)> = api
                .pods_on(&name)
                .filter(|pod| collect_all || pod.deleting)
                .map(|pod| (pod.key.clone(), pod.uid.clone()))
                .collect();
            for (key, uid) in pods {
                if api.remove_pod(Actor::Platform, &key, &uid) {
                    done.push(("pod-gc", format!("collect pod {key} of {name}")));
                }
            }
        }
        if again {
            self.plan(now, Check::PodGc, self.options.pod_gc_period);
        }
    }

    fn delete_nodes(
        &mut self,
        now: Now,
        api: &mut Api,
        instance_is_gone: &impl Fn(&InstanceId) -> bool,
        done: &mut Vec<(&'static str, String)>,
    ) {
        let gone = |node: &crate::model::node::Node| {
            node.provider_id.as_ref().and_then(|id| id.instance()).is_some_and(instance_is_gone)
        };
        let (mut doomed, mut waiting) = (Vec::new(), false);
        for node in api.nodes().filter(|node| gone(node)) {
            // A Node that is still Ready is not asked about; it will not stay so.
            if node.ready.is_true { waiting = true } else { doomed.push(node.name.clone()) }
        }
        for name in doomed {
            api.delete_node(Actor::Platform, &name);
            done.push(("cloud-node-lifecycle", format!("delete Node {name}: its instance is gone")));
        }
        if waiting {
            self.instance_gone(now);
        }
    }
}

fn evict(node: &NodeName, api: &mut Api) -> usize {
    let keys: Vec<PodKey> = api.pods_on(node).filter(|pod| !pod.deleting).map(|pod| pod.key.clone()).collect();
    keys.into_iter().filter(|key| api.delete_pod(Actor::Platform, key)).count()
}
