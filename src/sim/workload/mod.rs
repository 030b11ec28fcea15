//! Everything else that acts on the cluster: workloads that want pods, and the control loops of Kubernetes and of the
//! cloud.
//!
//! Flow: the driver tells them what changed and wakes them when they say so; they write to the API server. Must never
//! look at EC2 (but for whether an instance is gone, which the cloud's loop asks) nor at attachd.

mod apps;
mod attach_detach;
mod control_plane;
mod other_attacher;
#[cfg(test)]
mod tests;

pub use apps::{App, AppId, Apps, Replacement};
pub use attach_detach::AttachDetachController;
pub use control_plane::{ControlPlane, ControlPlaneOptions};
pub use other_attacher::OtherAttacher;
