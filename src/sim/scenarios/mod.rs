//! Worlds worth watching, each with a script: what `attachd simulate` offers by name.
//!
//! Flow: [`Scenario::start`] builds the world before its first step and puts its script into the future; whoever runs it
//! steps the driver, and heals it when the script is over. Must never look at what the core does.

mod chaos;
mod evidence;
mod failover;
mod large;
mod nodes;
mod restart;
mod rollout;
pub mod small;
mod upstream;

use std::time::Duration;

use crate::controller::policy::Policy;
use crate::model::ids::{AwsVolumeId, NodeName};
use crate::sim::driver::{Driver, DriverOptions};

pub use upstream::Upstream;

/// When the first pods are bound unless the scenario says otherwise: every kubelet is Ready, every watch has synced.
const BOUND_AT: Duration = Duration::from_secs(20);
/// When the script begins: what was bound first is attached and mounted.
const BEGINS_AT: Duration = Duration::from_secs(60);

/// What one may choose about a scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Seed of all chance.
    pub seed: u64,
    /// Number of nodes; `None`: the scenario's.
    pub nodes: Option<u32>,
    /// Number of volumes; `None`: the scenario's.
    pub volumes: Option<u32>,
    /// Whether the timeline is kept.
    pub trace: bool,
}

/// A world and what happens in it.
#[derive(Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens, in one line.
    pub sentence: &'static str,
    /// How long the script takes at most; it may be over sooner.
    pub lasts: Duration,
    /// Nodes unless chosen.
    pub nodes: u32,
    /// Volumes unless chosen.
    pub volumes: u32,
    /// What upstream was measured to do in this situation.
    pub upstream: Option<&'static Upstream>,
    tune: fn(&mut DriverOptions),
    script: fn(&mut Stage),
}

/// The world a script is written into.
pub(crate) struct Stage {
    driver: Driver,
    nodes: Vec<NodeName>,
    volumes: u32,
}

impl Stage {
    /// Adds every volume with its workload, spread over the nodes, bound at `at`.
    fn add_workloads(&mut self, at: Duration) -> Vec<AwsVolumeId> {
        (0..self.volumes)
            .map(|number| {
                let node = self.node(number as usize).clone();
                self.driver.add_workload(&format!("app-{}", number + 1), &node, at)
            })
            .collect()
    }

    /// The node of that number, counted round.
    fn node(&self, number: usize) -> &NodeName {
        &self.nodes[number % self.nodes.len()]
    }
}

fn as_it_is(_: &mut DriverOptions) {}

static ALL: [Scenario; 13] = [
    Scenario {
        name: "rollout",
        sentence: "volumes are attached for the first time, then every pod moves to the next node, one after the other",
        lasts: Duration::from_secs(30 * 60),
        nodes: 3,
        volumes: 6,
        upstream: None,
        tune: as_it_is,
        script: rollout::script,
    },
    Scenario {
        name: "node-drain",
        sentence: "a node is drained: its pods end and come back on the others, their volumes follow",
        lasts: Duration::from_secs(20 * 60),
        nodes: 4,
        volumes: 12,
        upstream: None,
        tune: as_it_is,
        script: nodes::drain,
    },
    Scenario {
        name: "node-loss",
        sentence: "a node is lost and stays lost: its volumes move when a person taints it out-of-service",
        lasts: Duration::from_secs(30 * 60),
        nodes: 3,
        volumes: 6,
        upstream: None,
        tune: as_it_is,
        script: nodes::loss_until_tainted,
    },
    Scenario {
        name: "node-loss-always",
        sentence: "a node is lost and nobody says so: with forceDetach: always its volumes move after six minutes",
        lasts: Duration::from_secs(40 * 60),
        nodes: 3,
        volumes: 6,
        upstream: None,
        tune: nodes::force_always,
        script: nodes::loss_until_timeout,
    },
    Scenario {
        name: "instance-terminated",
        sentence: "an instance is terminated: EC2 says so, its volumes are free at once, nobody waits six minutes",
        lasts: Duration::from_secs(20 * 60),
        nodes: 3,
        volumes: 3,
        upstream: Some(&upstream::INSTANCE_TERMINATED),
        tune: as_it_is,
        script: failover::instance_terminated,
    },
    Scenario {
        name: "stopped",
        sentence: "an instance is stopped and its pods are force-deleted: nothing runs there, so its volumes may go",
        lasts: Duration::from_secs(20 * 60),
        nodes: 3,
        volumes: 3,
        upstream: Some(&upstream::STOPPED),
        tune: as_it_is,
        script: failover::stopped,
    },
    Scenario {
        name: "kubelet-dead",
        sentence: "a kubelet dies, its machine does not: containers write on, so no volume is taken from them",
        lasts: Duration::from_secs(30 * 60),
        nodes: 3,
        volumes: 3,
        upstream: Some(&upstream::KUBELET_DEAD),
        tune: as_it_is,
        script: failover::kubelet_dead,
    },
    Scenario {
        name: "silent-detach",
        sentence: "a person detaches a mounted volume with Force: it is noticed, told, attached again, and its pod starts",
        lasts: Duration::from_secs(20 * 60),
        nodes: 2,
        volumes: 2,
        upstream: Some(&upstream::SILENT_DETACH),
        tune: as_it_is,
        script: evidence::silent_detach,
    },
    Scenario {
        name: "stale-reads",
        sentence: "pods move while a third of EC2's answers show what was true up to 20 seconds ago",
        lasts: Duration::from_secs(20 * 60),
        nodes: 3,
        volumes: 6,
        upstream: Some(&upstream::STALE_READS),
        tune: evidence::read_late,
        script: evidence::stale_reads,
    },
    Scenario {
        name: "api-outage",
        sentence: "EC2's API is down for five minutes while pods move: nothing is believed gone, all goes on afterwards",
        lasts: Duration::from_secs(30 * 60),
        nodes: 3,
        volumes: 3,
        upstream: Some(&upstream::API_OUTAGE),
        tune: as_it_is,
        script: evidence::api_outage,
    },
    Scenario {
        name: "burst",
        sentence: "a thousand volumes are wanted at once, under EC2's token buckets",
        lasts: Duration::from_secs(60 * 60),
        nodes: 50,
        volumes: 1_000,
        upstream: None,
        tune: as_it_is,
        script: large::burst,
    },
    Scenario {
        name: "restart",
        sentence: "attachd dies amid thousands of volumes and starts again while 1 % of EC2's pages fail: what is pending first",
        lasts: Duration::from_secs(20 * 60),
        nodes: 250,
        volumes: 5_000,
        upstream: None,
        tune: as_it_is,
        script: restart::script,
    },
    Scenario {
        name: "chaos",
        sentence: "pods move about once an hour while nodes, kubelets, calls, watches, leaders and people fail at random",
        lasts: Duration::from_secs(2 * 60 * 60),
        nodes: 20,
        volumes: 100,
        upstream: None,
        tune: chaos::tune,
        script: chaos::script,
    },
];

impl Scenario {
    /// Every scenario, the most instructive first.
    pub const ALL: &'static [Self] = &ALL;

    /// The scenario of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|scenario| scenario.name == name)
    }

    /// The world before its first step, its script in the future.
    pub fn start(&self, options: &Options, policy: Policy) -> Driver {
        self.start_tuned(options, policy, as_it_is)
    }

    /// The same with options of the run changed, after the scenario's own.
    pub fn start_tuned(&self, options: &Options, policy: Policy, tune: impl FnOnce(&mut DriverOptions)) -> Driver {
        let mut driver_options = DriverOptions { policy, trace: options.trace, ..DriverOptions::new(options.seed) };
        (self.tune)(&mut driver_options);
        tune(&mut driver_options);
        let mut driver = Driver::new(driver_options);
        let count = options.nodes.unwrap_or(self.nodes).max(1);
        let nodes = (1..=count).map(|number| driver.add_node(&format!("n{number}"))).collect();
        let mut stage = Stage { driver, nodes, volumes: options.volumes.unwrap_or(self.volumes) };
        (self.script)(&mut stage);
        for (moment, text) in self.upstream.into_iter().flat_map(|upstream| upstream.remarks) {
            stage.driver.remark(*moment, text);
        }
        stage.driver
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Monotonic;

    #[test]
    fn every_scenario_builds_its_world_and_has_a_name_of_its_own() {
        let mut names = std::collections::BTreeSet::new();
        for scenario in Scenario::ALL {
            assert!(names.insert(scenario.name) && Scenario::named(scenario.name).is_some());
            let options = Options { seed: 1, nodes: Some(3), volumes: Some(5), trace: false };
            let mut driver = scenario.start(&options, Policy::FULL);
            driver.run_until(Monotonic::new(Duration::from_secs(30)), |_| {});
            assert!(driver.world().nodes.values().all(|node| node.ready.is_true), "{}", scenario.name);
            assert_eq!((driver.world().nodes.len(), driver.world().volumes.len()), (3, 5), "{}", scenario.name);
        }
    }

    #[test]
    fn volumes_move_and_the_core_is_not_woken_for_nothing() {
        let rollout = Scenario::named("rollout").expect("there");
        let mut driver = rollout.start(&Options { seed: 1, ..Options::default() }, Policy::FULL);
        assert!(driver.run_until_quiet(rollout.lasts, |_| {}));
        assert_eq!((driver.measures().first_attaches, driver.measures().moves), (6, 6));
        assert!(driver.steps() < 1_500, "{} steps", driver.steps());
    }

    #[test]
    fn a_scenario_is_the_same_run_again_with_the_same_seed() {
        let chaos = Scenario::named("chaos").expect("there");
        let run = |seed| {
            let options = Options { seed, nodes: Some(4), volumes: Some(8), trace: true };
            let mut driver = chaos.start(&options, Policy::FULL);
            driver.run_until(Monotonic::new(Duration::from_secs(600)), |_| {});
            driver.take_trace()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
