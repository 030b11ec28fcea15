//! From an HTTP answer to what it means, purely.
//!
//! Flow: `write` hands over status and body of the answer to its one request. Owns which answers count as the API
//! server's word. Must never take a gateway's page for it: a 404 that is no `Status` proves nothing about the object.

use std::fmt::Display;

use smol_str::SmolStr;

use super::lenient::{Field, Readable, Unread};
use super::objects::{AttachmentObject, NodeObject, ObjectList, PersistentVolumeObject, PodObject, StatusObject};
use super::translate;
use crate::controller::command::KubernetesCall;
use crate::model::outcome::{Answer, CallResult, classify_kubernetes};

/// What the answer to `call` means.
pub fn read(call: &KubernetesCall, status: u16, body: &[u8]) -> CallResult {
    if !(200..300).contains(&status) {
        return refused(call, status, body);
    }
    // Accepted, but of a form we do not know: the effect is there, what it is must be read again.
    accepted(call, body).map_or_else(|unread| uncertain(format_args!("HTTP {status}: {unread}")), CallResult::Done)
}

/// An outcome that nobody knows.
pub fn uncertain(why: impl Display) -> CallResult {
    CallResult::Uncertain(SmolStr::new(why.to_string()))
}

fn accepted(call: &KubernetesCall, body: &[u8]) -> Result<Answer, Unread> {
    match call {
        KubernetesCall::CreateAttachment(_)
        | KubernetesCall::RecordAttachment { .. }
        | KubernetesCall::PatchAttachmentStatus { .. }
        | KubernetesCall::SetAttachmentFinalizers { .. }
        | KubernetesCall::GetAttachment { .. } => attachment(body),
        KubernetesCall::DeleteAttachment { .. } => {
            let status: StatusObject = object(body)?;
            // `Status` says: gone at once. With finalizers left, the Terminating object comes back.
            if status.kind == Field::Is(SmolStr::new_static("Status")) {
                return Ok(Answer::Attachment(None));
            }
            attachment(body)
        }
        KubernetesCall::SetPersistentVolumeFinalizers { .. }
        | KubernetesCall::PlacePersistentVolume { .. }
        | KubernetesCall::GetPersistentVolume { .. } => {
            let volume = translate::persistent_volume(object::<PersistentVolumeObject>(body)?)?;
            let gone = volume.deleting && volume.finalizers.is_empty();
            Ok(Answer::PersistentVolume((!gone).then(|| Box::new(volume))))
        }
        KubernetesCall::PatchNodeStatus { .. } | KubernetesCall::GetNode { .. } => {
            Ok(Answer::Node(Some(Box::new(translate::node(object::<NodeObject>(body)?)?))))
        }
        KubernetesCall::ListPods { .. } => pods(body),
        KubernetesCall::CreateEvent(_) => Ok(Answer::EventWritten),
    }
}

fn object<T: Readable>(body: &[u8]) -> Result<T, Unread> {
    serde_json::from_slice::<Field<T>>(body).ok().and_then(Field::ok).ok_or(Unread("the answer"))
}

/// The write that takes the last finalizer from a Terminating object is answered with what the object was; it is gone.
fn attachment(body: &[u8]) -> Result<Answer, Unread> {
    let attachment = translate::attachment(object::<AttachmentObject>(body)?)?;
    let gone = attachment.deleting.is_some() && attachment.finalizers.is_empty();
    Ok(Answer::Attachment((!gone).then(|| Box::new(attachment))))
}

/// The whole list or nothing: a pod that cannot be read might want the volume.
fn pods(body: &[u8]) -> Result<Answer, Unread> {
    let list: ObjectList<PodObject> = serde_json::from_slice(body).map_err(|_| Unread("the answer"))?;
    if list.kind != Field::Is(SmolStr::new_static("PodList")) {
        return Err(Unread("the list"));
    }
    let metadata = list.metadata.required("metadata of the list")?;
    if metadata.continue_token.get().is_some_and(|token| !token.is_empty()) {
        return Err(Unread("the rest of the list"));
    }
    let pods: Result<Vec<_>, _> = list.items.all("items")?.into_iter().map(translate::pod).collect();
    Ok(Answer::Pods(pods?))
}

fn refused(call: &KubernetesCall, status: u16, body: &[u8]) -> CallResult {
    let said: Option<StatusObject> = object(body).ok();
    let Some(said) = said.filter(|said| said.kind == Field::Is(SmolStr::new_static("Status"))) else {
        // The API server's flow control answers 429 in plain text; nothing else that is no `Status` is its word.
        if status == 429 {
            return CallResult::Throttled;
        }
        return uncertain(format_args!("HTTP {status} that is no answer of an API server"));
    };
    let reason = said.reason.ok().unwrap_or_default();
    let message = said.message.ok().unwrap_or_default();
    let result = classify_kubernetes(status, &reason, &message);
    // 410 is no word about the object: only 404 is.
    match (status, absent(call)) {
        (404, Some(answer)) => CallResult::Done(answer),
        _ => result,
    }
}

/// For a live read, NotFound is an answer.
fn absent(call: &KubernetesCall) -> Option<Answer> {
    match call {
        KubernetesCall::GetAttachment { .. } => Some(Answer::Attachment(None)),
        KubernetesCall::GetPersistentVolume { .. } => Some(Answer::PersistentVolume(None)),
        KubernetesCall::GetNode { .. } => Some(Answer::Node(None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
