//! Lists: marked and swept in place; absence proves nothing before the end.

use super::*;
use crate::controller::event::Kind;
use crate::controller::policy::Rule;

fn begin(kind: Kind, generation: u64) -> WatchEvent {
    WatchEvent::Begin { kind, generation }
}

fn item(generation: u64, object: Object) -> WatchEvent {
    WatchEvent::Item { generation, object }
}

fn end(kind: Kind, generation: u64) -> WatchEvent {
    WatchEvent::End { kind, generation }
}

fn feed(desired: &mut DesiredStateOfWorld, events: impl IntoIterator<Item = WatchEvent>) {
    for event in events {
        desired.ingest(&event);
    }
}

#[test]
fn it_has_synced_once_each_of_its_kinds_saw_an_end() {
    let mut desired = DesiredStateOfWorld::new(Policy::FULL);
    for kind in Kind::ALL {
        assert!(!desired.has_synced());
        feed(&mut desired, [begin(kind, 1)]);
        assert!(!desired.has_synced());
        feed(&mut desired, [end(kind, 1)]);
        if kind == Kind::CsiDriver {
            break;
        }
    }
    assert!(desired.has_synced());
    feed(&mut desired, [begin(Kind::Pod, 2)]);
    assert!(desired.has_synced(), "a later list takes nothing back");
}

#[test]
fn what_a_complete_list_does_not_name_is_gone_at_its_end() {
    let mut desired = a_on_n1();
    let b = pod("b", "n2", [by_claim("c")]);
    feed(&mut desired, [begin(Kind::Pod, 1), item(1, Object::Pod(b))]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a"), on("n2", "b")], "absence proves nothing yet");
    desired.take_dirty();
    feed(&mut desired, [end(Kind::Pod, 1)]);
    assert_eq!(desired.wanted(&v1()), [on("n2", "b")]);
    assert_eq!(desired.take_dirty(), [v1()].into());
}

#[test]
fn a_later_begin_voids_an_unfinished_list() {
    let mut desired = a_on_n1();
    let (a, b) = (pod("a", "n1", [by_claim("c")]), pod("b", "n2", [by_claim("c")]));
    feed(&mut desired, [begin(Kind::Pod, 1), item(1, Object::Pod(b)), begin(Kind::Pod, 2)]);
    // What still comes of the first list counts for nothing, its end least of all.
    feed(&mut desired, [item(1, Object::Pod(pod("c", "n3", [by_claim("c")]))), end(Kind::Pod, 1)]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a"), on("n2", "b")]);
    // Seen by the void list only: gone at the end of the second.
    feed(&mut desired, [item(2, Object::Pod(a)), end(Kind::Pod, 2)]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
}

#[test]
fn an_end_or_item_without_its_begin_is_ignored() {
    let mut desired = a_on_n1();
    feed(&mut desired, [end(Kind::Pod, 0), end(Kind::Pod, 7)]);
    feed(&mut desired, [item(7, Object::Pod(pod("b", "n2", [by_claim("c")])))]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    feed(&mut desired, [begin(Kind::Pod, 7), begin(Kind::Pod, 3), end(Kind::Pod, 3)]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")], "an older begin begins nothing");
    feed(&mut desired, [end(Kind::Pod, 7), end(Kind::Pod, 7)]);
    assert!(desired.wants(&v1()).is_empty());
}

#[test]
fn what_the_watch_says_during_a_list_is_kept_and_what_was_unchanged_is_not_dirty() {
    let mut desired = a_on_n1();
    feed(&mut desired, [begin(Kind::Pod, 1), end(Kind::Pod, 1)]);
    let (a, b) = (pod("a", "n1", [by_claim("c")]), pod("b", "n2", [by_claim("c")]));
    desired.pod(&a);
    desired.take_dirty();
    feed(&mut desired, [begin(Kind::Pod, 2)]);
    desired.pod(&b);
    assert_eq!(desired.take_dirty(), [v1()].into());
    feed(&mut desired, [item(2, Object::Pod(a)), end(Kind::Pod, 2)]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a"), on("n2", "b")]);
    assert!(desired.take_dirty().is_empty());
}

#[test]
fn lists_of_claims_and_volumes_sweep_without_taking_wants_away() {
    let mut desired = a_on_n1();
    feed(&mut desired, [begin(Kind::PersistentVolume, 1), end(Kind::PersistentVolume, 1)]);
    feed(&mut desired, [begin(Kind::Claim, 1), end(Kind::Claim, 1)]);
    assert!(desired.persistent_volume(&PersistentVolumeName::new("pv")).is_none());
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    desired.pod(&pod("b", "n2", [by_claim("c")]));
    assert!(desired.never_resolved_on(&node("n2")));
}

#[test]
fn a_csi_driver_that_a_list_does_not_name_requires_attaching_again() {
    let mut desired = a_on_n1();
    desired.driver("ebs.csi.aws.com", false);
    assert!(desired.wants(&v1()).is_empty());
    feed(&mut desired, [begin(Kind::CsiDriver, 1)]);
    assert!(desired.wants(&v1()).is_empty());
    feed(&mut desired, [end(Kind::CsiDriver, 1)]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
}

#[test]
fn an_unreadable_object_counts_as_listed() {
    let mut desired = a_on_n1();
    let a = pod_gone(&pod("a", "n1", []));
    feed(&mut desired, [begin(Kind::Pod, 1), item(1, Object::Unreadable(a)), end(Kind::Pod, 1)]);
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    let unknown = ObjectKey::Pod(PodKey::new("default", "b"), Uid::new("uid-b"));
    feed(&mut desired, [begin(Kind::Pod, 2), item(2, Object::Unreadable(unknown)), end(Kind::Pod, 2)]);
    assert!(desired.never_resolved_on(&node("n1")));
    feed(&mut desired, [begin(Kind::Pod, 3), end(Kind::Pod, 3)]);
    assert!(!desired.never_resolved_on(&node("n1")));
}

#[test]
fn kinds_that_are_kept_elsewhere_change_nothing() {
    let mut desired = a_on_n1();
    desired.take_dirty();
    feed(&mut desired, [begin(Kind::Node, 1), end(Kind::Node, 1)]);
    desired.delete(ObjectKey::Node(node("n1"), Uid::new("uid-n1")));
    assert_eq!(desired.wanted(&v1()), [on("n1", "a")]);
    assert!(desired.take_dirty().is_empty());
}

/// A small world that changes at random: what the indexes say after every step is what a fresh store says that was only
/// ever shown the present objects. (With what a pod wanted earlier out of the way: that has a past.)
#[test]
fn the_indexes_say_what_a_fresh_store_would_say() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        for step in 0..120 {
            world.step();
            world.assert_as_fresh(seed, step);
        }
    }
}

struct World {
    state: u64,
    desired: DesiredStateOfWorld,
    pods: BTreeMap<String, Pod>,
    claims: BTreeMap<String, Claim>,
    volumes: BTreeMap<String, PersistentVolume>,
    generation: u64,
}

fn sabotaged() -> DesiredStateOfWorld {
    DesiredStateOfWorld::new(Policy::without([Rule::UnresolvedKeepsWants]))
}

impl World {
    fn new(seed: u64) -> Self {
        let (pods, claims, volumes) = Default::default();
        Self { state: seed, desired: sabotaged(), pods, claims, volumes, generation: 0 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn step(&mut self) {
        let (kind, number, gone) = (self.draw(7), self.draw(4), self.draw(3) == 0);
        let name = format!("{number}");
        match kind {
            0..=2 => {
                let uid = Uid::new(format!("uid-{number}-{}", self.draw(2)));
                let (first, second) = (self.draw(4), self.draw(4));
                let volumes = [by_claim(&format!("{first}")), by_claim(&format!("{second}"))];
                let known = self.pods.get(&name).filter(|known| known.uid == uid).cloned();
                let on = format!("n{}", self.draw(2));
                let next = known.unwrap_or(Pod { uid, ..pod(&name, &on, volumes) });
                if gone {
                    self.pods.remove(&name);
                    self.desired.delete(pod_gone(&next));
                    self.desired.pod(&Pod { terminated: true, ..next });
                } else {
                    self.desired.pod(&next);
                    self.pods.insert(name, next);
                }
            }
            3 | 4 => {
                let next = claim(&name, &format!("{}", self.draw(4)));
                if gone {
                    self.claims.remove(&name);
                    self.desired.delete(claim_gone(&next));
                } else {
                    self.desired.claim(&next);
                    self.claims.insert(name, next);
                }
            }
            5 => {
                let handle = if self.draw(5) == 0 { "bad".to_owned() } else { format!("vol-{}", self.draw(3)) };
                let next = ebs(&name, &format!("{}", self.draw(4)), &handle);
                if gone {
                    self.volumes.remove(&name);
                    self.desired.delete(volume_gone(&next));
                } else {
                    self.desired.volume(&next);
                    self.volumes.insert(name, next);
                }
            }
            _ => self.relist_pods(&name, gone),
        }
    }

    /// A list of pods that misses one: it is gone at the end, or not if the list breaks off.
    fn relist_pods(&mut self, missing: &str, breaks_off: bool) {
        self.generation += 1;
        let mut events = vec![begin(Kind::Pod, self.generation)];
        let listed = self.pods.iter().filter(|(name, _)| name.as_str() != missing);
        events.extend(listed.map(|(_, pod)| item(self.generation, Object::Pod(pod.clone()))));
        if !breaks_off {
            events.push(end(Kind::Pod, self.generation));
            self.pods.remove(missing);
        }
        feed(&mut self.desired, events);
    }

    fn assert_as_fresh(&self, seed: u64, step: u32) {
        let mut fresh = sabotaged();
        self.volumes.values().for_each(|volume| fresh.volume(volume));
        self.pods.values().for_each(|pod| fresh.pod(pod));
        self.claims.values().for_each(|claim| fresh.claim(claim));
        let all = |desired: &DesiredStateOfWorld| {
            let wants = desired.volumes().map(|key| (key.clone(), desired.wants(key).to_vec())).collect::<Vec<_>>();
            let on = ["n0", "n1"].map(|on| desired.wanted_on(&node(on)).cloned().collect::<Vec<_>>());
            let sources = desired.volumes().map(|key| desired.persistent_volumes_of(key).cloned().collect::<Vec<_>>());
            let troubled = desired.standing_problems().map(|(pod, why)| (pod.clone(), why.clone())).collect::<Vec<_>>();
            (wants, on, sources.collect::<Vec<_>>(), troubled)
        };
        assert_eq!(all(&self.desired), all(&fresh), "seed {seed}, step {step}");
    }
}
