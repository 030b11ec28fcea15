//! One table: the next step for every refusal of the API server, by what was written.

use crate::controller::actual::slot::WriteKind;
use crate::model::outcome::KubernetesRefusal;

/// What follows a refused write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// A live GET of the object, then everything is decided anew from what it shows.
    ReadObject,
    /// The object is not there: a live GET makes sure, then it counts as gone.
    ReadGone,
    /// The name is taken by a Terminating twin: wait for its end, which the watch tells; a live GET shows it now.
    ReadTwin,
    /// Nothing a read would explain (RBAC, admission, a bad request): tried again slowly.
    RetrySlowly,
}

/// The table. 409 on a create: somebody made it, or our own earlier create of unknown outcome landed. 409 on anything
/// else, or 422: the object changed, is Terminating, or is another one of that name (a patch with a UID is answered 422
/// where the UID is another). 404: it is gone.
pub fn next_step(kind: WriteKind, refusal: KubernetesRefusal) -> NextStep {
    match (kind, refusal) {
        (_, KubernetesRefusal::Forbidden | KubernetesRefusal::Other) => NextStep::RetrySlowly,
        (WriteKind::Create, KubernetesRefusal::AlreadyExistsTerminating) => NextStep::ReadTwin,
        (WriteKind::Create, KubernetesRefusal::AlreadyExists | KubernetesRefusal::Conflict) => NextStep::ReadObject,
        (WriteKind::Create, KubernetesRefusal::NotFound | KubernetesRefusal::Invalid) => NextStep::RetrySlowly,
        (_, KubernetesRefusal::NotFound) => NextStep::ReadGone,
        (
            _,
            KubernetesRefusal::AlreadyExists
            | KubernetesRefusal::AlreadyExistsTerminating
            | KubernetesRefusal::Conflict
            | KubernetesRefusal::Invalid,
        ) => NextStep::ReadObject,
    }
}
