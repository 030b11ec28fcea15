//! The sabotage of rule 12: an API server that is not told on which state of an object a write was decided.
//!
//! The core always sends its preconditions; without the rule the driver takes them off, on the way to the server.

use crate::controller::command::KubernetesCall;
use crate::controller::policy::{Policy, Rule};
use crate::sim::api_server::Api;

/// The call as the server shall take it: every precondition that the policy gives up says what the object is now.
pub(super) fn as_policy_has_it(call: &KubernetesCall, policy: &Policy, api: &Api) -> KubernetesCall {
    let mut call = call.clone();
    match &mut call {
        KubernetesCall::PatchNodeStatus { name, uid, resource_version, .. }
            if !policy.holds(Rule::NodePatchPreconditions) =>
        {
            if let Some(node) = api.node(name) {
                (*uid, *resource_version) = (node.uid.clone(), node.resource_version.clone());
            }
        }
        KubernetesCall::SetAttachmentFinalizers { name, uid, resource_version, .. }
        | KubernetesCall::DeleteAttachment { name, uid, resource_version }
            if !policy.holds(Rule::AttachmentPreconditions) =>
        {
            if let Some(object) = api.attachment(name) {
                (*uid, *resource_version) = (object.uid.clone(), object.resource_version.clone());
            }
        }
        _ => {}
    }
    call
}
