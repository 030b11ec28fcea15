//! What a person must mend before a pod's volume can be attached: said once when it appears, once when it clears.
//!
//! Flow: [`super::DesiredStateOfWorld`] notes every change; the reporter takes them. Owns no text but what
//! [`Unresolved`] says of itself.

use super::translation::Unresolved;
use crate::model::ids::{NodeName, PodKey, Uid};

/// News about one volume of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    /// The pod.
    pub pod: PodKey,
    /// Its UID.
    pub uid: Uid,
    /// The node it is bound to.
    pub node: NodeName,
    /// What changed.
    pub change: ProblemChange,
}

/// What changed about a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemChange {
    /// It is there since now. Its text is what a person should read.
    Appeared(Unresolved),
    /// It is gone, or the pod is.
    Cleared(Unresolved),
}
