//! What is judged at a quiet end.

use super::*;

fn broken(change: impl FnOnce(&mut World)) -> Vec<Invariant> {
    let mut scene = Scene::at_rest();
    change(&mut scene.world);
    scene.at_rest_broken()
}

#[test]
fn what_is_wanted_and_free_must_be_attached() {
    assert_eq!(broken(|w| add_pod(w, &v2(), &n2())), [Invariant::WantedIsAttached]);
}

#[test]
fn what_a_person_took_is_let_pass_only_where_nobody_can_know_whose_it_is() {
    let without_object = |is_listed: bool, another_leads: bool| {
        let mut broken = broken(|w| {
            w.attachments.remove(&name_of(&v1(), &n1()));
            w.robbed.insert((v1(), i1()), w.now.monotonic);
            if !is_listed {
                w.nodes.get_mut(&n1()).unwrap().volumes_attached.clear();
            }
            if another_leads {
                let since = w.now.monotonic + Duration::from_secs(1);
                w.terms.insert(Term(2), TermHeld { since, ended: None });
            }
        });
        broken.retain(|invariant| *invariant == Invariant::ObjectsExactAtRest);
        !broken.is_empty()
    };
    assert!(!without_object(false, true));
    assert!(without_object(true, true), "the list tells");
    assert!(without_object(false, false), "who saw it go leads still");
}

#[test]
fn what_cannot_be_attached_need_not_be() {
    type Hindrance = (&'static str, fn(&mut World));
    let hindrances: [Hindrance; 8] = [
        ("being deleted", |w| {
            w.persistent_volumes.values_mut().for_each(|pv| pv.deleting = pv.name.as_str() == "vol-02")
        }),
        ("another zone", |w| w.volumes.get_mut(&v2()).unwrap().zone = Zone::new("y")),
        ("no volume", |w| {
            w.volumes.remove(&v2());
        }),
        ("not running", |w| w.instances.get_mut(&i2()).unwrap().state = InstanceState::Stopped),
        ("no CSINode", |w| {
            w.csi_nodes.remove(&n2());
        }),
        ("full", |w| w.instances.get_mut(&i2()).unwrap().volume_limit = 0),
        ("marked", |w| {
            let marks = BTreeMap::from([(listed(&v2()), BootId::new("boot-i-02"))]);
            w.nodes.get_mut(&n2()).unwrap().in_use_unknown = UnknownMarks::Marks(marks);
        }),
        ("held by hand elsewhere", |w| attach_bare(w, &v2(), &i1(), 1, Actor::Person)),
    ];
    for (name, hinder) in hindrances {
        let found = broken(|w| {
            add_pod(w, &v2(), &n2());
            hinder(w);
        });
        assert!(!found.contains(&Invariant::WantedIsAttached), "{name}: {found:?}");
    }
}

#[test]
fn one_of_two_nodes_has_an_exclusive_volume() {
    assert_eq!(broken(|w| add_pod(w, &v1(), &n2())), []);
}

#[test]
fn what_nobody_wants_must_not_be_attached() {
    let unwanted = |w: &mut World| {
        w.pods.clear();
        w.mounts.clear();
        w.nodes.get_mut(&n1()).unwrap().volumes_in_use.clear();
    };
    assert_eq!(broken(unwanted), [Invariant::AttachedIsWanted]);
    assert_eq!(broken(|w| w.pods.clear()), [], "still in use");
    let gone = |w: &mut World| {
        unwanted(w);
        w.nodes.remove(&n1());
    };
    assert_eq!(broken(gone), [], "nobody vouches for the machine");
}

#[test]
fn objects_must_say_what_is() {
    let object =
        |change: fn(&mut VolumeAttachment)| broken(|w| change(w.attachments.get_mut(&name_of(&v1(), &n1())).unwrap()));
    let exact = Invariant::ObjectsExactAtRest;
    assert_eq!(object(|o| o.status.attached = false), [exact]);
    assert_eq!(object(|o| o.status.device_path = None), [exact]);
    assert_eq!(object(|o| o.finalizers.clear()), [exact]);
    assert_eq!(object(|o| o.deleting = Some(Wall::from_millis(1)))[..1], [exact]);
    assert!(broken(|w| w.attachments.clear()).contains(&exact));
    let left_over = |w: &mut World| {
        attach(w, &v2(), &n2(), &i2(), 1);
        w.volumes.get_mut(&v2()).unwrap().attachments.clear();
    };
    assert_eq!(broken(left_over), [exact]);
}

#[test]
fn lists_must_be_exact() {
    let list_of = |change: fn(&mut Node)| broken(|w| change(w.nodes.get_mut(&n1()).unwrap()));
    assert_eq!(list_of(|n| n.volumes_attached.clear()), [Invariant::ListsExactAtRest]);
    let too_many = |n: &mut Node| {
        n.volumes_attached.insert(listed(&v2()), "".into());
    };
    assert_eq!(list_of(too_many), [Invariant::ListsExactAtRest]);
}

#[test]
fn a_deleted_persistent_volume_must_be_let_go() {
    let deleting = |id: AwsVolumeId| {
        broken(|w| {
            let pv = PersistentVolumeName::new(id.text());
            w.persistent_volumes.get_mut(&pv).unwrap().deleting = true;
        })
    };
    assert_eq!(deleting(v2()), [Invariant::FinalizersGoneAtRest]);
    assert_eq!(deleting(v1()), [], "its VolumeAttachment is there");
}

#[test]
fn nothing_but_polls_is_sent() {
    let mut scene = Scene::at_rest();
    scene.world.counts.by_kind.extend([("DescribeVolumes", 7), ("PatchNodeStatus", 3), ("CreateEvent", 1)]);
    let before = scene.world.counts.clone();
    scene.world.counts.by_kind.extend([("DescribeVolumes", 9), ("CreateEvent", 2)]);
    assert_eq!(check_silence(&scene.world, &before), []);
    scene.world.counts.by_kind.insert("PatchNodeStatus", 4);
    assert_eq!(check_silence(&scene.world, &before).len(), 1);
}

#[test]
fn one_patch_for_each_change() {
    let mut scene = Scene::at_rest();
    scene.world.counts.node_patches.insert(n1(), 2);
    assert_eq!(check_patches(&scene.world, &BTreeMap::from([(n1(), 2)])), []);
    assert_eq!(check_patches(&scene.world, &BTreeMap::from([(n1(), 1)])).len(), 1);
}
