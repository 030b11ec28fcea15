//! The timeline of a run as data; the command line renders it.

use std::time::Duration;

use crate::model::time::Monotonic;

/// One entry of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Virtual time.
    pub at: Monotonic,
    /// The step it belongs to.
    pub step: u64,
    /// Who did it.
    pub who: Actor,
    /// What was done, in a few words.
    pub what: String,
    /// Why, or what came of it.
    pub why: String,
}

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// attachd, the process with this number.
    Attachd(u64),
    /// EC2.
    Ec2,
    /// The kubelet of this node.
    Kubelet(String),
    /// A control loop of Kubernetes (node lifecycle, PodGC, cloud node lifecycle, a workload's controller).
    ControlPlane(&'static str),
    /// A person.
    Person,
    /// A fault put in by the simulation.
    Fault,
    /// The simulation itself.
    Simulation,
    /// The stack attachd replaces, which is not in this world: what it was measured to do at such a moment.
    Upstream,
}

/// When a remark is made, counted from the start or from what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// This long after the start.
    Start(Duration),
    /// This long after a pod was first bound in place of another.
    Replacement(Duration),
}

impl std::fmt::Display for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Attachd(number) => write!(f, "attachd-{number}"),
            Self::Ec2 => f.write_str("EC2"),
            Self::Kubelet(node) => write!(f, "kubelet {node}"),
            Self::ControlPlane(name) => f.write_str(name),
            Self::Person => f.write_str("person"),
            Self::Fault => f.write_str("fault"),
            Self::Simulation => f.write_str("simulation"),
            Self::Upstream => f.write_str("upstream"),
        }
    }
}
