//! The attach/detach controller alone, the attacher played by hand.

use super::*;
use crate::model::attachment::VolumeAttachment;
use crate::model::ids::{AttachmentKey, AttachmentName, VolumeKey};

struct Bench {
    api: Api,
    apps: Apps,
    dice: Dice,
    controller: AttachDetachController,
    now: u64,
    app: AppId,
    nodes: [NodeName; 2],
}

fn key() -> VolumeKey {
    VolumeKey::ebs(&AwsVolumeId::parse("vol-0a").expect("an id"))
}

impl Bench {
    /// The pod is bound to n1 and its volume attached there.
    fn attached() -> Self {
        let (api, apps, dice, n1, n2, app) = world();
        let controller = AttachDetachController::new();
        let mut bench = Self { api, apps, dice, controller, now: 1, app, nodes: [n1, n2] };
        bench.run(1);
        assert!(bench.object(0).is_some(), "made for the pod");
        bench.answer(0);
        bench.run(8);
        assert!(bench.lists(0), "listed once the attacher said so");
        bench
    }

    fn name(&self, node: usize) -> AttachmentName {
        AttachmentName::of(&AttachmentKey { volume: key(), node: self.nodes[node].clone() })
    }

    fn object(&self, node: usize) -> Option<&VolumeAttachment> {
        self.api.attachment(&self.name(node))
    }

    fn lists(&self, node: usize) -> bool {
        self.api.node(&self.nodes[node]).is_some_and(|node| node.volumes_attached.contains_key(&key().unique_name()))
    }

    /// The attacher attaches.
    fn answer(&mut self, node: usize) {
        let name = self.name(node);
        assert!(self.api.add_attacher_finalizer(&name) && self.api.set_attached_by_attacher(&name));
    }

    fn report_in_use(&mut self, node: usize, in_use: bool) {
        let volumes = in_use.then(|| key().unique_name()).into_iter().collect();
        let status = KubeletStatus { volumes_in_use: Some(volumes), boot_id: None, ready: true };
        self.api.patch_by_kubelet(at(self.now), &self.nodes[node].clone(), &status).expect("there");
    }

    fn move_pod(&mut self) {
        let n2 = self.nodes[1].clone();
        self.apps.move_to(self.app, &n2, &mut self.api);
        let (pod, uid) = self.apps.get(self.app).and_then(|app| app.pod.clone()).expect("a pod");
        self.api.remove_pod(Actor::Platform, &pod, &uid);
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            for tenth in 0..10 {
                let now = at(self.now).plus(Duration::from_millis(tenth * 100));
                for change in self.api.take_changes() {
                    self.controller.see(now, &change);
                    use crate::controller::event::Object;
                    match (&change.before, &change.after) {
                        (_, Some(Object::Pod(pod))) => {
                            self.apps.pod_changed(now, pod, false, &mut self.api, &mut self.dice);
                        }
                        (Some(Object::Pod(pod)), None) => {
                            self.apps.pod_changed(now, pod, true, &mut self.api, &mut self.dice);
                        }
                        _ => {}
                    }
                }
                self.apps.wake(now, &mut self.api, &mut self.dice);
                if self.controller.next_due().is_some_and(|due| due <= now.monotonic) {
                    self.controller.wake(now, &mut self.api);
                }
            }
            self.now += 1;
        }
    }
}

#[test]
fn a_volume_moves_when_its_node_no_longer_reports_it_in_use() {
    let mut bench = Bench::attached();
    bench.report_in_use(0, true);
    bench.move_pod();
    bench.run(30);
    assert!(bench.object(0).is_some_and(|object| object.deleting.is_none()) && bench.lists(0), "in use");
    assert!(bench.object(1).is_none(), "attached elsewhere: it waits");
    bench.report_in_use(0, false);
    bench.run(2);
    assert!(bench.object(0).is_some_and(|object| object.deleting.is_some()) && !bench.lists(0));
    let name = bench.name(0);
    bench.api.remove_attacher_finalizer(&name);
    bench.run(10);
    assert!(bench.object(0).is_none() && bench.object(1).is_some());
    assert!(!bench.lists(1), "not before its attacher said so");
}

#[test]
fn a_node_that_is_not_ready_loses_its_volumes_after_six_minutes_and_a_ready_one_never() {
    for ready in [true, false] {
        let mut bench = Bench::attached();
        bench.report_in_use(0, true);
        bench.move_pod();
        if !ready {
            bench.api.set_not_ready(at(bench.now), &bench.nodes[0].clone());
        }
        bench.run(350);
        assert!(bench.object(0).is_some_and(|object| object.deleting.is_none()));
        bench.run(30);
        assert_eq!(bench.object(0).is_some_and(|object| object.deleting.is_some()), !ready);
    }
}

#[test]
fn the_taint_fences_at_once() {
    let mut bench = Bench::attached();
    bench.report_in_use(0, true);
    bench.move_pod();
    bench.api.set_taint(Actor::Person, &bench.nodes[0].clone(), true);
    bench.run(2);
    assert!(bench.object(0).is_some_and(|object| object.deleting.is_some()));
}

#[test]
fn a_sync_believes_that_what_has_no_attachment_is_detached_and_attaches_it_again() {
    let mut bench = Bench::attached();
    bench.report_in_use(0, true);
    let name = bench.name(0);
    bench.api.delete_attachment_by_hand(at(bench.now), &name);
    bench.api.remove_attacher_finalizer(&name);
    bench.run(5);
    assert!(bench.object(0).is_none(), "it does not look");
    bench.run(60);
    assert!(bench.object(0).is_some_and(|object| object.deleting.is_none()), "made anew after the sync");
}

#[test]
fn a_detach_without_an_answer_leaves_the_volume_unlisted_and_after_two_minutes_in_nobodys_way() {
    let mut bench = Bench::attached();
    bench.report_in_use(0, false);
    bench.move_pod();
    bench.run(2);
    assert!(!bench.lists(0));
    bench.run(100);
    assert!(bench.object(1).is_none(), "its attacher does not answer");
    bench.run(30);
    assert!(bench.object(1).is_some(), "what is only uncertain does not count: the attacher must refuse");
    assert!(bench.object(0).is_some_and(|object| object.deleting.is_some()) && !bench.lists(0));
}
