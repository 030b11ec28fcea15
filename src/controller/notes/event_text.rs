//! Every event attachd emits: reasons, texts, and how often. The only place with upstream's strings.
//!
//! Flow: whoever finds something to say builds an [`EventText`] here, asks [`EventMemory::admit`], and turns it into a
//! command. Dashboards and people match upstream's reasons and texts: they are kept to the letter. Must never name a pod
//! of another namespace than the one that reads the event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smol_str::SmolStr;

use crate::controller::command::{EventNote, Regarding};
use crate::model::attachment::NewAttachmentSource;
use crate::model::device::DeviceName;
use crate::model::ids::{DriverName, EBS_DRIVER, InstanceId, NodeName, PodKey, VolumeKey, Zone};
use crate::model::node::OUT_OF_SERVICE_TAINT;
use crate::model::time::Monotonic;

/// Upstream's reason for every failed or waiting attach, multi-attach included.
pub const FAILED_ATTACH_VOLUME: &str = "FailedAttachVolume";
/// Its cause where the volume is exclusive and elsewhere.
pub const MULTI_ATTACH: &str = "MultiAttach";
/// Upstream's reason for a finished attach.
pub const SUCCESSFUL_ATTACH_VOLUME: &str = "SuccessfulAttachVolume";
/// A pod's volume cannot be resolved until a person mends something.
pub const UNRESOLVED_VOLUME: &str = "UnresolvedVolume";
/// A detach waits for the node to unmount.
pub const DETACH_WAITS: &str = "VolumeDetachWaits";
/// Rung (d) of the fencing ladder is withheld.
pub const FORCE_WITHHELD: &str = "ForceDetachWithheld";
/// EC2 does not bring an attach or a detach to its end.
pub const STUCK: &str = "VolumeStuck";
/// providerID and CSINode of a node name different instances.
pub const IDENTITY_MISMATCH: &str = "IdentityMismatch";
/// A node is not an EC2 instance.
pub const NOT_AN_EC2_INSTANCE: &str = "NotAnEC2Instance";
/// EC2 shows an attachment that nobody here made.
pub const FOREIGN_ATTACHMENT: &str = "ForeignAttachment";
/// The volume of a VolumeAttachment cannot be told.
pub const VOLUME_UNKNOWN: &str = "VolumeUnknown";
/// Somebody else writes what attachd owns.
pub const FOREIGN_WRITE: &str = "ForeignWrite";
/// A volume in use was detached behind Kubernetes' back.
pub const DETACHED_BEHIND_BACK: &str = "VolumeDetachedExternally";
/// A VolumeAttachment that was deleted by hand was made again.
pub const ATTACHMENT_HEALED: &str = "VolumeAttachmentHealed";
/// A VolumeAttachment that was deleted by hand is held.
pub const ATTACHMENT_HELD: &str = "VolumeAttachmentHeld";

/// The same thing about the same object is said again only after this time (rule 14), and while it stays so after twice as
/// long each time.
pub const REPEAT_AFTER: Duration = Duration::from_secs(5 * 60);
/// What stays so is said this often at least: the API server keeps an Event for an hour, and one of them should be there.
/// A large cluster with hundreds of such waits must not spend the budget of Events on what everybody knows.
pub const REPEAT_AT_LEAST: Duration = Duration::from_secs(40 * 60);
/// A multi-attach wait that ends within this time is no news: every move of a pod has one.
pub const MULTI_ATTACH_QUIET: Duration = Duration::from_secs(15);

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    /// Warning or Normal.
    pub warning: bool,
    /// `reason`
    pub reason: &'static str,
    /// What tells this from other news with the same reason, and stays the same when only details of the text differ
    /// (request ids, counts). Never shown.
    pub cause: SmolStr,
    /// `message`
    pub message: String,
}

impl EventText {
    fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, cause: SmolStr::new_static(reason), message }
    }

    fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, ..Self::warning(reason, message) }
    }

    fn because(self, cause: impl Into<SmolStr>) -> Self {
        Self { cause: cause.into(), ..self }
    }

    /// The event about an object.
    pub fn about(self, regarding: Regarding) -> EventNote {
        EventNote { regarding, warning: self.warning, reason: self.reason, message: self.message }
    }
}

/// What upstream calls a volume in its texts: the PersistentVolume's name, and for an inline source the name of the
/// PersistentVolume it would be translated to.
pub fn spec_name(source: &NewAttachmentSource, volume: &VolumeKey) -> SmolStr {
    match source {
        NewAttachmentSource::PersistentVolume(name) => SmolStr::new(name.as_str()),
        NewAttachmentSource::Inline(_) => SmolStr::new(format!("{EBS_DRIVER}-{}", volume.handle)),
    }
}

/// Upstream's: the attach is finished. The space at the end is upstream's too.
pub fn attach_succeeded(spec_name: &str) -> EventText {
    EventText::normal(SUCCESSFUL_ATTACH_VOLUME, format!("AttachVolume.Attach succeeded for volume {spec_name:?} "))
}

/// Upstream's: the attach failed. `cause` is the kind of failure (an EC2 code, a blocked reason), `error` its text.
pub fn attach_failed(spec_name: &str, cause: &str, error: &str) -> EventText {
    let message = format!("AttachVolume.Attach failed for volume {spec_name:?} : {error}");
    EventText::warning(FAILED_ATTACH_VOLUME, message).because(cause)
}

/// Upstream's: the volume is exclusive and elsewhere. `users` are the pods that want it on other nodes, `reader` is the
/// namespace of the pod the event is about.
pub fn multi_attach(spec_name: &str, reader: &str, users: &[PodKey]) -> EventText {
    let (own, other): (Vec<&PodKey>, Vec<&PodKey>) = users.iter().partition(|pod| pod.namespace == reader);
    let names: Vec<&str> = own.iter().map(|pod| pod.name.as_str()).collect();
    let who = match (names.join(", "), other.len()) {
        (names, 0) if names.is_empty() => {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        }
        (names, count) if names.is_empty() => {
            format!("Volume is already used by {count} pod(s) in different namespaces")
        }
        (names, 0) => format!("Volume is already used by pod(s) {names}"),
        (names, count) => {
            format!("Volume is already used by pod(s) {names} and {count} pod(s) in different namespaces")
        }
    };
    let message = format!("Multi-Attach error for volume {spec_name:?} {who}");
    EventText::warning(FAILED_ATTACH_VOLUME, message).because(MULTI_ATTACH)
}

/// The volume is in another zone than the node: EC2 is not asked.
pub fn zone_mismatch(spec_name: &str, volume_zone: &Zone, node: &NodeName, node_zone: &Zone) -> EventText {
    let error = format!("the volume is in zone {volume_zone}, node {node} is in zone {node_zone}");
    attach_failed(spec_name, "ZoneMismatch", &error)
}

/// A pod's volume names nothing that can be attached. `why` quotes what is wrong.
pub fn unresolved_volume(why: &str) -> EventText {
    EventText::warning(UNRESOLVED_VOLUME, format!("A volume of the pod cannot be attached: {why}")).because(why)
}

/// Nobody wants the volume on the node any more, but it is not known to be unmounted there.
pub fn detach_waits(volume: &VolumeKey, node: &NodeName, why: &str) -> EventText {
    let message = format!("Volume {volume} stays attached to node {node}: {why}");
    EventText::warning(DETACH_WAITS, message).because(why)
}

/// The unmount timeout is over, but the machine behind the node may still write. Says what a person can do.
pub fn force_withheld(volume: &VolumeKey, node: &NodeName, why: &str) -> EventText {
    let message = format!(
        "Volume {volume} stays attached to node {node}, which does not unmount it: {why}. Once the machine is certainly \
         off, terminate it or taint the node {OUT_OF_SERVICE_TAINT}=nodeshutdown:NoExecute."
    );
    EventText::warning(FORCE_WITHHELD, message)
}

/// EC2 has not ended an attach or a detach for long. Says what a person can do: nothing is forced.
pub fn stuck(volume: &VolumeKey, node: &NodeName, instance: &InstanceId, state: &str, lasts: Duration) -> EventText {
    let message = format!(
        "EC2 has shown volume {volume} {state} on {instance} (node {node}) for {} min, and it does not end: it is waited \
         for, never forced. Stop or terminate instance {instance} to free the volume.",
        lasts.as_secs() / 60
    );
    EventText::warning(STUCK, message)
}

/// providerID and CSINode disagree about the instance behind a node.
pub fn identity_mismatch(node: &NodeName, provider_id: &str, csi_node_id: &str) -> EventText {
    let message = format!(
        "Node {node}: spec.providerID names {provider_id}, its CSINode names {csi_node_id}: nothing is attached to it"
    );
    EventText::warning(IDENTITY_MISMATCH, message)
}

/// The node is not an EC2 instance, and is left to others.
pub fn not_an_ec2_instance(node: &NodeName, provider_id: &str) -> EventText {
    let message = format!("Node {node} ({provider_id}) is not an EC2 instance: no volume is attached to it");
    EventText::normal(NOT_AN_EC2_INSTANCE, message)
}

/// EC2 shows the volume attached in a way that no VolumeAttachment of this cluster explains. Without an instance it is one
/// that AWS manages.
pub fn foreign_attachment(volume: &VolumeKey, instance: Option<&InstanceId>, device: Option<&DeviceName>) -> EventText {
    let instance = instance.map_or(SmolStr::new_static("a host that AWS manages"), InstanceId::text);
    let device = device.map_or("an unknown device", DeviceName::as_str);
    let message = format!(
        "Volume {volume} is attached to {instance} at {device} by somebody else: it is not touched from here. If nothing \
         uses it there, detach it by hand"
    );
    EventText::warning(FOREIGN_ATTACHMENT, message).because(instance)
}

/// Nothing tells what volume a VolumeAttachment is about. Says what a person can do.
pub fn volume_unknown(driver: &DriverName, why: &str) -> EventText {
    let message = format!(
        "What volume this is about cannot be told: {why}. Once no volume of it is attached to the instance, take the \
         finalizer {} off by hand",
        driver.attacher_finalizer()
    );
    EventText::warning(VOLUME_UNKNOWN, message)
}

/// Another writer changed what only attachd should write; `what` names it, `until` says how long it is held.
pub fn foreign_write(what: &str, hold: Duration) -> EventText {
    let message = format!(
        "{what} was changed by another writer: is a second attach/detach controller running? Held until {} s pass without \
         such a write",
        hold.as_secs()
    );
    EventText::warning(FOREIGN_WRITE, message)
}

/// EC2 shows a volume gone that the node still reports in use.
pub fn detached_behind_back(volume: &VolumeKey, node: &NodeName) -> EventText {
    let message = format!(
        "Volume {volume} is in use on node {node}, but somebody detached it in EC2: its file system there is lost to the \
         pod. Delete the pod: it gets the volume back, at another device"
    );
    EventText::warning(DETACHED_BEHIND_BACK, message)
}

/// EC2 shows a volume gone that was attached and is not in use.
pub fn detached_while_unused(volume: &VolumeKey, node: &NodeName) -> EventText {
    let message = format!(
        "Somebody detached volume {volume} from node {node} in EC2 while nothing used it: if a pod wants it there, it is \
         attached again. There is nothing to do"
    );
    EventText::warning(DETACHED_BEHIND_BACK, message)
}

/// A VolumeAttachment of a volume in use was deleted by hand, and was made again.
pub fn attachment_healed(volume: &VolumeKey, node: &NodeName) -> EventText {
    let message = format!(
        "The VolumeAttachment of {volume} on node {node} was deleted while a pod uses the volume: it was made again"
    );
    EventText::normal(ATTACHMENT_HEALED, message)
}

/// A VolumeAttachment of a volume in use is Terminating, and nothing shows that it is safe to detach.
pub fn attachment_held(volume: &VolumeKey, node: &NodeName) -> EventText {
    let message = format!(
        "The VolumeAttachment of {volume} is being deleted while ready node {node} reports the volume in use: it is not \
         detached before the node lets go of it. Delete the pods there that use the volume or wait for it"
    );
    EventText::warning(ATTACHMENT_HELD, message)
}

/// What was said about what, and when: an event goes out when there is something new to say, and the same again only
/// after [`REPEAT_AFTER`], then less often, up to [`REPEAT_AT_LEAST`].
#[derive(Debug)]
pub struct EventMemory {
    said: BTreeMap<Said, Repeat>,
    /// By when an entry is forgotten.
    by_time: BTreeSet<(Monotonic, Said)>,
    most: usize,
}

/// When something may be said again. It is forgotten as long after that: then it is news.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    at: Monotonic,
    gap: Duration,
}

impl Repeat {
    fn forgotten_at(self) -> Monotonic {
        self.at + self.gap
    }
}

/// Something that was said: about an object, on a subject (such as one volume of a pod), for a cause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    regarding: Regarding,
    subject: SmolStr,
    reason: &'static str,
    cause: SmolStr,
}

impl Default for EventMemory {
    fn default() -> Self {
        Self::with_most(20_000)
    }
}

impl EventMemory {
    /// A memory that holds at most `most` entries. When it is full the oldest is forgotten, and may be said again early.
    pub fn with_most(most: usize) -> Self {
        Self { said: BTreeMap::new(), by_time: BTreeSet::new(), most: most.max(1) }
    }

    /// Whether the event should go out; if so it counts as said. `subject` tells apart what is said about one object,
    /// such as the volumes of a pod.
    pub fn admit(&mut self, regarding: &Regarding, subject: &str, text: &EventText, now: Monotonic) -> bool {
        while let Some((at, said)) = self.by_time.first() {
            if now < *at && self.said.len() <= self.most {
                break;
            }
            self.said.remove(said);
            self.by_time.pop_first();
        }
        let said = Said {
            regarding: regarding.clone(),
            subject: SmolStr::new(subject),
            reason: text.reason,
            cause: text.cause.clone(),
        };
        let before = self.said.get(&said).copied();
        if before.is_some_and(|repeat| now < repeat.at) {
            return false;
        }
        if let Some(repeat) = before {
            self.by_time.remove(&(repeat.forgotten_at(), said.clone()));
        } else if self.said.len() == self.most
            && let Some((_, oldest)) = self.by_time.pop_first()
        {
            self.said.remove(&oldest);
        }
        let gap = before.map_or(REPEAT_AFTER, |repeat| (repeat.gap * 2).min(REPEAT_AT_LEAST));
        let repeat = Repeat { at: now + gap, gap };
        self.by_time.insert((repeat.forgotten_at(), said.clone()));
        self.said.insert(said, repeat);
        true
    }

    /// Whether this would not be admitted now: who waits long asks before a text is made of it.
    pub fn has_said(
        &self,
        regarding: &Regarding,
        subject: &str,
        (reason, cause): (&'static str, &str),
        now: Monotonic,
    ) -> bool {
        let (regarding, subject, cause) = (regarding.clone(), SmolStr::new(subject), SmolStr::new(cause));
        let said = self.said.get(&Said { regarding, subject, reason, cause });
        said.is_some_and(|repeat| now < repeat.at)
    }

    /// How many entries it holds.
    pub fn len(&self) -> usize {
        self.said.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.said.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{AwsVolumeId, PersistentVolumeName, Uid};
    use crate::model::pod::InlineEbs;

    fn volume() -> VolumeKey {
        VolumeKey::ebs(&AwsVolumeId::parse("vol-0aa11").unwrap())
    }

    fn pod(name: &str) -> Regarding {
        Regarding::Pod(PodKey::new("ns", name), Uid::new(format!("uid-{name}")))
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    #[test]
    fn attach_texts_are_upstreams_to_the_letter() {
        let done = attach_succeeded("pv-1");
        assert_eq!(done.message, "AttachVolume.Attach succeeded for volume \"pv-1\" ");
        assert_eq!((done.warning, done.reason), (false, "SuccessfulAttachVolume"));
        let failed = attach_failed("pv-1", "Throttled", "slow down");
        assert_eq!(failed.message, "AttachVolume.Attach failed for volume \"pv-1\" : slow down");
        assert_eq!((failed.warning, failed.reason), (true, "FailedAttachVolume"));
    }

    #[test]
    fn multi_attach_texts_are_upstreams_and_name_no_pod_of_another_namespace() {
        let (a, b, secret) = (PodKey::new("ns", "a"), PodKey::new("ns", "b"), PodKey::new("other", "secret"));
        let text = |users: &[PodKey]| multi_attach("pv-1", "ns", users).message;
        let prefix = "Multi-Attach error for volume \"pv-1\" ";
        assert_eq!(
            text(&[]),
            format!("{prefix}Volume is already exclusively attached to one node and can't be attached to another")
        );
        assert_eq!(text(&[a.clone(), b.clone()]), format!("{prefix}Volume is already used by pod(s) a, b"));
        assert_eq!(
            text(&[secret.clone(), a.clone()]),
            format!("{prefix}Volume is already used by pod(s) a and 1 pod(s) in different namespaces")
        );
        assert_eq!(
            text(&[secret.clone(), secret.clone()]),
            format!("{prefix}Volume is already used by 2 pod(s) in different namespaces")
        );
        assert!(!text(&[secret, a, b]).contains("secret"));
    }

    #[test]
    fn a_zone_mismatch_names_both_zones() {
        let text = zone_mismatch("pv-1", &Zone::new("us-east-9a"), &NodeName::new("n1"), &Zone::new("us-east-9b"));
        assert_eq!(text.reason, FAILED_ATTACH_VOLUME);
        assert!(text.message.contains("us-east-9a") && text.message.contains("us-east-9b"), "{}", text.message);
    }

    #[test]
    fn an_inline_volume_is_called_as_its_translation_would_be() {
        let inline =
            InlineEbs { volume_id: "aws://us-east-9a/vol-0aa11".into(), fs_type: None, partition: 0, read_only: false };
        assert_eq!(spec_name(&NewAttachmentSource::Inline(inline), &volume()), "ebs.csi.aws.com-vol-0aa11");
        let named = NewAttachmentSource::PersistentVolume(PersistentVolumeName::new("pv-1"));
        assert_eq!(spec_name(&named, &volume()), "pv-1");
    }

    #[test]
    fn the_same_is_said_again_only_after_five_minutes() {
        let mut memory = EventMemory::default();
        let text = |error: &str| attach_failed("pv-1", "IncorrectState", error);
        assert!(memory.admit(&pod("a"), "v1", &text("request 1"), at(0)));
        assert!(!memory.admit(&pod("a"), "v1", &text("request 2"), at(299)), "another request id is no news");
        let is_said = |memory: &EventMemory, second| {
            memory.has_said(&pod("a"), "v1", (FAILED_ATTACH_VOLUME, "IncorrectState"), at(second))
        };
        assert!(is_said(&memory, 299) && !is_said(&memory, 300));
        assert!(memory.admit(&pod("a"), "v1", &text("request 3"), at(300)));
        assert!(!memory.admit(&pod("a"), "v1", &text("request 4"), at(301)));
    }

    #[test]
    fn what_stays_so_is_said_less_and_less_often_and_anew_once_it_was_over() {
        let mut memory = EventMemory::default();
        let mut said = Vec::new();
        for second in (0..4 * 3600).step_by(15) {
            if memory.admit(&pod("a"), "v1", &attach_failed("pv-1", "IncorrectState", "x"), at(second)) {
                said.push(second);
            }
            assert!(memory.by_time.len() == memory.len() && memory.len() == 1);
        }
        assert_eq!(said[..6], [0, 300, 900, 2_100, 4_500, 6_900]);
        // For an hour and a half nobody had to say it.
        let later = said[said.len() - 1] + 5_400;
        for second in [later, later + 300] {
            assert!(memory.admit(&pod("a"), "v1", &attach_failed("pv-1", "IncorrectState", "x"), at(second)));
        }
    }

    #[test]
    fn another_cause_pod_or_volume_is_news_at_once_but_flapping_is_not() {
        let mut memory = EventMemory::default();
        let failed = attach_failed("pv-1", "IncorrectState", "x");
        let blocked = multi_attach("pv-1", "ns", &[]);
        assert!(memory.admit(&pod("a"), "v1", &blocked, at(0)));
        assert!(memory.admit(&pod("a"), "v1", &failed, at(1)), "the same reason, another cause");
        assert!(memory.admit(&pod("a"), "v2", &failed, at(1)));
        assert!(memory.admit(&pod("b"), "v1", &failed, at(1)));
        for second in 2..100 {
            assert!(!memory.admit(&pod("a"), "v1", &blocked, at(second)));
            assert!(!memory.admit(&pod("a"), "v1", &failed, at(second)));
        }
    }

    #[test]
    fn the_memory_is_bounded_and_forgets_what_is_old() {
        let mut memory = EventMemory::with_most(100);
        for number in 0..1_000 {
            assert!(memory.admit(&pod(&number.to_string()), "v1", &attach_succeeded("pv"), at(0)));
            assert!(memory.len() <= 100 && memory.by_time.len() == memory.len());
        }
        assert!(!memory.admit(&pod("999"), "v1", &attach_succeeded("pv"), at(1)));
        assert!(memory.admit(&pod("x"), "v1", &attach_succeeded("pv"), at(600)));
        assert_eq!(memory.len(), 1);
    }
}
