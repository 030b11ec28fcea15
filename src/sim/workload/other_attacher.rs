//! The attacher of another CSI driver: what its VolumeAttachments ask for is done after a second.
//!
//! As csi-attacher: its finalizer first, then `attached: true`; of one that is being deleted, the finalizer goes when the
//! volume is detached. A volume is on one node at a time: another waits. Must never look at volumes of EBS.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::controller::event::Object;
use crate::model::attachment::VolumeAttachment;
use crate::model::ids::AttachmentName;
use crate::model::time::{Monotonic, Now};
use crate::sim::api_server::{Api, Change};

/// How long its storage takes to attach or to detach, and how soon it looks again at what must wait.
const TAKES: Duration = Duration::from_secs(1);

/// The attacher.
#[derive(Clone, Debug, Default)]
pub struct OtherAttacher {
    due: BTreeSet<(Monotonic, AttachmentName)>,
}

impl OtherAttacher {
    /// An attacher with nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// Something changed in the API server.
    pub fn see(&mut self, now: Now, change: &Change) {
        if let Some(Object::Attachment(object)) = &change.after
            && has_work(object)
            && !self.due.iter().any(|(_, name)| *name == object.name)
        {
            self.due.insert((now.monotonic + TAKES, object.name.clone()));
        }
    }

    /// When it has something to do.
    pub fn next_due(&self) -> Option<Monotonic> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Does what is due; returns what it did, for the timeline.
    pub fn wake(&mut self, now: Now, api: &mut Api) -> Vec<String> {
        let mut done = Vec::new();
        while let Some((at, name)) = self.due.first().cloned() {
            if at > now.monotonic {
                break;
            }
            self.due.pop_first();
            let Some(object) = api.attachment(&name).filter(|object| has_work(object)).cloned() else { continue };
            if object.deleting.is_some() {
                api.remove_attacher_finalizer(&name);
                done.push(format!("a volume of {} is detached from {}", object.driver, object.node));
            } else if api.attachments().any(|other| is_in_the_way(other, &object)) {
                self.due.insert((now.monotonic + TAKES, name));
            } else {
                api.add_attacher_finalizer(&name);
                api.set_attached_by_attacher(&name);
                done.push(format!("a volume of {} is attached to {}", object.driver, object.node));
            }
        }
        done
    }
}

fn has_work(object: &VolumeAttachment) -> bool {
    !object.driver.is_ebs() && (object.deleting.is_some() || !object.status.attached)
}

/// Whether the storage has the volume of `object` on another node still.
fn is_in_the_way(other: &VolumeAttachment, object: &VolumeAttachment) -> bool {
    other.source == object.source && other.name != object.name && other.has_attacher_finalizer()
}
