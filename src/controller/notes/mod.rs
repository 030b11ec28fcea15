//! Events waiting to be written: made where something is decided, admitted once, written as the event budget allows.
//!
//! Owns the memory of what was said. An event must never delay a write: it has its own budget and may be dropped.

pub mod event_text;

use std::collections::VecDeque;

use crate::controller::command::{EventNote, Regarding};
use crate::controller::desired::Want;
use crate::model::attachment::VolumeAttachment;
use crate::model::claim::PersistentVolume;
use crate::model::ids::{NodeName, PersistentVolumeName, PodKey, Uid, VolumeKey};
use crate::model::time::Monotonic;
use crate::model::volume::AttachmentReading;
use event_text::{DETACH_WAITS, EventMemory, EventText, FAILED_ATTACH_VOLUME, FORCE_WITHHELD, MULTI_ATTACH};

/// More than this waiting: the oldest is dropped.
const WAITING_MAX: usize = 10_000;

/// Events waiting.
#[derive(Debug, Default)]
pub struct Notes {
    memory: EventMemory,
    waiting: VecDeque<EventNote>,
}

impl Notes {
    /// The attach is finished: upstream's event, one for each pod on the node. Said once an attachment, so the memory is
    /// not asked.
    pub fn attached(&mut self, wants: &[Want], node: &NodeName, volume: &VolumeKey) {
        for want in wants.iter().filter(|want| want.node == *node) {
            let text = event_text::attach_succeeded(&event_text::spec_name(&want.source, volume));
            self.push(text.about(Regarding::Pod(want.pod.clone(), want.uid.clone())));
        }
    }

    /// The attach failed or cannot be tried.
    pub fn attach_failed(&mut self, wants: &[Want], node: &NodeName, volume: &VolumeKey, error: &str, now: Monotonic) {
        for want in wants.iter().filter(|want| want.node == *node) {
            let cause = error.split([':', '(']).next().unwrap_or(error);
            let text = event_text::attach_failed(&event_text::spec_name(&want.source, volume), cause, error);
            self.say(Regarding::Pod(want.pod.clone(), want.uid.clone()), volume, text, now);
        }
    }

    /// The volume is exclusive and held elsewhere.
    pub fn multi_attach(&mut self, wants: &[Want], node: &NodeName, volume: &VolumeKey, now: Monotonic) {
        for want in wants.iter().filter(|want| want.node == *node) {
            let regarding = Regarding::Pod(want.pod.clone(), want.uid.clone());
            if self.has_said(&regarding, volume, (FAILED_ATTACH_VOLUME, MULTI_ATTACH), now) {
                continue;
            }
            let spec_name = event_text::spec_name(&want.source, volume);
            let users = wants.iter().filter(|want| want.node != *node).map(|want| want.pod.clone());
            let text = event_text::multi_attach(&spec_name, &want.pod.namespace, &users.collect::<Vec<_>>());
            self.say(regarding, volume, text, now);
        }
    }

    /// A pod's volume cannot be resolved.
    pub fn unresolved(&mut self, pod: &PodKey, uid: &Uid, why: &str, now: Monotonic) {
        let text = event_text::unresolved_volume(why);
        let regarding = Regarding::Pod(pod.clone(), uid.clone());
        if self.memory.admit(&regarding, why, &text, now) {
            self.push(text.about(regarding));
        }
    }

    /// EC2 shows a volume gone that should be attached: one event for each pod on the node and each PersistentVolume. Said
    /// once an attachment, so the memory is not asked.
    pub fn silent_detach<'a>(
        &mut self,
        wants: &[Want],
        persistent_volumes: impl Iterator<Item = &'a PersistentVolume>,
        volume: &VolumeKey,
        node: &NodeName,
        in_use: bool,
    ) {
        let text = if in_use {
            event_text::detached_behind_back(volume, node)
        } else {
            event_text::detached_while_unused(volume, node)
        };
        let pods = wants.iter().filter(|want| want.node == *node);
        let pods = pods.map(|want| Regarding::Pod(want.pod.clone(), want.uid.clone()));
        for regarding in pods.chain(persistent_volumes.map(regarding)) {
            self.push(text.clone().about(regarding));
        }
    }

    /// EC2 shows the volume attached in a way that nothing here explains.
    pub fn foreign_attachment<'a>(
        &mut self,
        persistent_volumes: impl Iterator<Item = &'a PersistentVolume>,
        volume: &VolumeKey,
        attachment: &AttachmentReading,
        now: Monotonic,
    ) {
        let text = event_text::foreign_attachment(volume, attachment.instance.as_ref(), attachment.device.as_ref());
        for about in persistent_volumes.map(regarding) {
            self.say(about, volume, text.clone(), now);
        }
    }

    /// A VolumeAttachment was made again.
    pub fn healed(&mut self, volume: &VolumeKey, node: &NodeName, object: Option<&VolumeAttachment>) {
        let Some(object) = object else { return };
        let text = event_text::attachment_healed(volume, node);
        self.push(text.about(Regarding::Attachment(object.name.clone(), object.uid.clone())));
    }

    /// A detach waits for a person or for the node.
    pub fn detach_waits(
        &mut self,
        volume: &VolumeKey,
        node: &NodeName,
        object: &VolumeAttachment,
        why: &str,
        withheld: bool,
        now: Monotonic,
    ) {
        let regarding = Regarding::Attachment(object.name.clone(), object.uid.clone());
        let topic = if withheld { (FORCE_WITHHELD, FORCE_WITHHELD) } else { (DETACH_WAITS, why) };
        if self.has_said(&regarding, volume, topic, now) {
            return;
        }
        let text = if withheld {
            event_text::force_withheld(volume, node, why)
        } else {
            event_text::detach_waits(volume, node, why)
        };
        self.say(regarding, volume, text, now);
    }

    /// Something about an attachment and the PersistentVolumes behind it. Who calls counts how often, so the memory is not
    /// asked.
    pub fn of_attachment(
        &mut self,
        text: &EventText,
        object: Option<&VolumeAttachment>,
        persistent_volumes: &[(PersistentVolumeName, Uid)],
    ) {
        let attachment = object.map(|object| Regarding::Attachment(object.name.clone(), object.uid.clone()));
        let volumes =
            persistent_volumes.iter().map(|(name, uid)| Regarding::PersistentVolume(name.clone(), uid.clone()));
        for regarding in attachment.into_iter().chain(volumes) {
            self.push(text.clone().about(regarding));
        }
    }

    /// A VolumeAttachment that a person deleted is held.
    pub fn held(&mut self, volume: &VolumeKey, node: &NodeName, object: Option<&VolumeAttachment>, now: Monotonic) {
        let Some(object) = object else { return };
        let text = event_text::attachment_held(volume, node);
        self.say(Regarding::Attachment(object.name.clone(), object.uid.clone()), volume, text, now);
    }

    /// The volume of a VolumeAttachment cannot be told.
    pub fn volume_unknown(&mut self, object: &VolumeAttachment, why: &str, now: Monotonic) {
        let text = event_text::volume_unknown(&object.driver, why);
        let regarding = Regarding::Attachment(object.name.clone(), object.uid.clone());
        if self.memory.admit(&regarding, "", &text, now) {
            self.push(text.about(regarding));
        }
    }

    /// Another writer changed a node's list.
    pub fn foreign_write(&mut self, node: &NodeName, uid: &Uid, hold: std::time::Duration, now: Monotonic) {
        let text = event_text::foreign_write(&format!("status.volumesAttached of node {node}"), hold);
        let regarding = Regarding::Node(node.clone(), uid.clone());
        if self.memory.admit(&regarding, "volumesAttached", &text, now) {
            self.push(text.about(regarding));
        }
    }

    fn has_said(&self, regarding: &Regarding, volume: &VolumeKey, topic: (&'static str, &str), now: Monotonic) -> bool {
        self.memory.has_said(regarding, &volume.handle.text(), topic, now)
    }

    fn say(&mut self, regarding: Regarding, volume: &VolumeKey, text: EventText, now: Monotonic) {
        if self.memory.admit(&regarding, &volume.handle.text(), &text, now) {
            self.push(text.about(regarding));
        }
    }

    fn push(&mut self, note: EventNote) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(note);
    }

    /// Whether an event waits.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next event.
    pub fn pop(&mut self) -> Option<EventNote> {
        self.waiting.pop_front()
    }
}

fn regarding(volume: &PersistentVolume) -> Regarding {
    Regarding::PersistentVolume(volume.name.clone(), volume.uid.clone())
}
