//! Carries what changed to whoever watches: processes, kubelets, workloads, control loops, and the checkers' world.

use super::{Actor, Commander, Driver};
use crate::controller::event::Object;
use crate::model::ids::{AttachmentKey, AttachmentName, NodeName};
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::sim::api_server::Change;
use crate::sim::kubelet::{Deed, SeenPod};
use crate::sim::workload::App;

impl<C: Commander> Driver<C> {
    /// Until nothing changes any more without time passing.
    pub(super) fn settle(&mut self) {
        loop {
            self.mirror_ec2();
            let changes = self.api.take_changes();
            if changes.is_empty() {
                return;
            }
            for change in changes {
                self.carry(change);
            }
        }
    }

    fn carry(&mut self, change: Change) {
        if !is_heartbeat(&change) {
            self.last_activity = self.now.monotonic;
        }
        self.other_attacher.see(self.now, &change);
        if let Some(controller) = &mut self.attach_detach {
            controller.see(self.now, &change);
        }
        let (from, to) = self.options.latencies.watch;
        for process in &mut self.processes {
            let due = self.now.monotonic + self.dice.watches.between(from, to);
            process.see(due, &change);
        }
        match (&change.before, &change.after) {
            (_, Some(Object::Node(node))) => {
                let node = node.clone();
                let tainted = node.out_of_service
                    && !matches!(&change.before, Some(Object::Node(before)) if before.out_of_service);
                self.with_kubelet(&node.name.clone(), |kubelet, at| kubelet.see_node(Some(node.clone()), at));
                if tainted {
                    self.plane.tainted(self.now, &node.name, &mut self.api);
                }
            }
            (Some(Object::Node(node)), None) => {
                let name = node.name.clone();
                self.with_kubelet(&name, |kubelet, at| kubelet.see_node(None, at));
                self.plane.node_gone(self.now);
            }
            (before, Some(Object::Pod(pod))) => {
                if before.is_none() {
                    self.pod_bound(pod);
                }
                self.pod_changed(pod, false);
            }
            (Some(Object::Pod(pod)), None) => self.pod_changed(pod, true),
            (_, Some(Object::Attachment(object))) if object.status.attached && object.deleting.is_none() => {
                self.measures.attached(self.now.monotonic, &object.name);
            }
            (Some(Object::Attachment(object)), _) if object.status.attached => {
                self.measures.noticed(self.now.monotonic, &object.name);
            }
            _ => {}
        }
        self.mirror_change(change);
    }

    fn pod_changed(&mut self, pod: &Pod, gone: bool) {
        if let Some(node) = &pod.node {
            let seen =
                if gone { SeenPod::Gone(pod.key.clone(), pod.uid.clone()) } else { SeenPod::Applied(pod.clone()) };
            self.with_kubelet(node, |kubelet, at| kubelet.see_pod(seen, at));
        }
        if (gone || pod.deleting)
            && let Some(name) = self.attachment_of(pod)
        {
            self.measures.no_need(&name);
        }
        self.apps.pod_changed(self.now, pod, gone, &mut self.api, &mut self.dice.workload);
    }

    /// Since now a volume is needed on a node.
    fn pod_bound(&mut self, pod: &Pod) {
        let (Some(node), Some(name)) = (pod.node.clone(), self.attachment_of(pod)) else { return };
        let text = || format!("bind pod {} to {node}", pod.key);
        if self.options.trace {
            self.note(Actor::ControlPlane("scheduler"), text(), "");
        }
        let replaces = self.apps.of_pod(&pod.key).and_then(|id| self.apps.get(id)).is_some_and(App::is_replacement);
        if replaces {
            for (after, text) in std::mem::take(&mut self.remarks) {
                self.schedule_due(self.now.monotonic + after, super::Due::Remark(text));
            }
        }
        let there = self.api.attachment(&name).is_some_and(|o| o.status.attached && o.deleting.is_none());
        if let Some(app) = self.apps.of_pod(&pod.key).and_then(|id| self.apps.get(id))
            && !there
        {
            self.measures.need(self.now.monotonic, name, app.volume.clone(), node);
        }
    }

    fn attachment_of(&self, pod: &Pod) -> Option<AttachmentName> {
        let app = self.apps.get(self.apps.of_pod(&pod.key)?)?;
        Some(AttachmentName::of(&AttachmentKey { volume: app.key(), node: pod.node.clone()? }))
    }

    /// Takes up what a kubelet did.
    pub(super) fn take_deed(&mut self, node: &NodeName, deed: Deed) {
        match deed {
            Deed::MountChanged(volume) => self.mirror_mount(node, &volume),
            Deed::MountsLost(volumes) => {
                for volume in volumes {
                    self.mirror_mount(node, &volume);
                }
                self.note(Actor::Kubelet(node.to_string()), "all mounts are gone", "the machine is down");
            }
            Deed::PodRunning(key, _) => {
                if let Some(pod) = self.api.pod(&key) {
                    let since = self.now.wall.saturating_since(pod.created);
                    let replaces =
                        self.apps.of_pod(&key).and_then(|id| self.apps.get(id)).is_some_and(App::is_replacement);
                    self.measures.started(self.now.monotonic, since, replaces);
                }
                self.note(Actor::Kubelet(node.to_string()), format!("pod {key} runs"), "");
            }
            Deed::Note(what, why) => self.note(Actor::Kubelet(node.to_string()), what, why),
        }
    }
}

/// Whether nothing but the heartbeat of a Node changed.
fn is_heartbeat(change: &Change) -> bool {
    let (Some(Object::Node(before)), Some(Object::Node(after))) = (&change.before, &change.after) else { return false };
    let same = |of: fn(&Node) -> &crate::model::ids::Uid| of(before) == of(after);
    same(|node| &node.uid)
        && before.ready.is_true == after.ready.is_true
        && before.volumes_in_use == after.volumes_in_use
        && before.volumes_attached == after.volumes_attached
        && before.in_use_unknown == after.in_use_unknown
        && before.out_of_service == after.out_of_service
        && before.boot_id == after.boot_id
        && before.ready.heartbeat != after.ready.heartbeat
}
