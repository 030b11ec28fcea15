//! What is judged of calls when they leave the socket, and of VolumeAttachments when they come.

use super::*;

use attachd::sim::checkers::world::AttachmentCallKind;

fn at(seconds: u64) -> Monotonic {
    Monotonic::new(Duration::from_secs(seconds))
}

fn call_to(instance: &InstanceId, term: u64, sent: Monotonic) -> Ec2CallInFlight {
    Ec2CallInFlight { volume: v2(), instance: instance.clone(), kind: Ec2CallKind::Attach, term: Term(term), sent }
}

/// An AttachVolume of `vol-02` leaves the socket.
fn ask(w: &mut World, instance: &InstanceId, term: u64) {
    let call = call_to(instance, term, w.now.monotonic);
    w.calls_in_flight.push(call.clone());
    w.news.push(News::VolumeCallSent(call));
}

fn delete_sent(w: &mut World) {
    let (name, at) = (name_of(&v1(), &n1()), w.now.monotonic);
    w.news.push(News::AttachmentCallSent { kind: AttachmentCallKind::Delete, name, term: Term(1), at });
}

fn node_read(w: &mut World) {
    w.news.push(News::NodeRead { node: n1() });
}

#[test]
fn an_attach_asked_again_while_the_last_one_can_land_is_caught() {
    let mut scene = Scene::at_rest();
    assert_eq!(scene.step(|w| ask(w, &i1(), 1)), []);
    assert_eq!(scene.step(|w| ask(w, &i1(), 1)), [Invariant::AskedOnce]);

    let mut scene = Scene::at_rest();
    assert_eq!(scene.step(|w| ask(w, &i1(), 1)), []);
    assert_eq!(scene.step(|w| ask(w, &i1(), 2)), [], "the next leader cannot know");
}

#[test]
fn an_attach_asked_again_though_its_attachment_stands_is_caught_unless_reads_may_be_old() {
    let again = |stale: Option<Monotonic>| {
        let mut scene = Scene::at_rest();
        assert_eq!(scene.step(|w| ask(w, &i2(), 1)), []);
        let lands = |w: &mut World| {
            w.calls_in_flight.clear();
            attach(w, &v2(), &n2(), &i2(), 1);
        };
        assert_eq!(scene.step(lands), []);
        scene.step(|w| {
            w.stale_reads_until = stale;
            ask(w, &i2(), 1);
        })
    };
    assert_eq!(again(None), [Invariant::AskedOnce]);
    assert_eq!(again(Some(at(5000))), []);
}

#[test]
fn a_detach_asked_again_of_what_is_detaching_is_caught() {
    let again = |by: Actor| {
        let mut scene = Scene::at_rest();
        scene.release();
        assert_eq!(scene.step(|w| begin_detach(w, by)), []);
        scene.step(|w| {
            let (volume, instance, sent) = (v1(), i1(), w.now.monotonic);
            let kind = Ec2CallKind::Detach;
            w.news.push(News::VolumeCallSent(Ec2CallInFlight { volume, instance, kind, term: Term(1), sent }));
        })
    };
    assert_eq!(again(US), [Invariant::AskedOnce]);
    assert_eq!(again(Actor::Person), []);
    assert_eq!(again(Actor::Attachd(Term(9))), [], "an earlier leader");
}

#[test]
fn an_attach_asked_of_another_instance_while_one_can_land_is_caught() {
    let mut scene = Scene::at_rest();
    assert_eq!(scene.step(|w| ask(w, &i1(), 1)), []);
    assert_eq!(scene.step(|w| ask(w, &i2(), 1)), [Invariant::AskedOfOne]);

    let mut scene = Scene::at_rest();
    assert_eq!(scene.step(|w| ask(w, &i1(), 1)), []);
    let answered = |w: &mut World| w.calls_in_flight.clear();
    assert_eq!(scene.step(answered), []);
    assert_eq!(scene.step(|w| ask(w, &i2(), 1)), []);
}

#[test]
fn a_status_that_says_attached_of_nothing_or_of_another_device_is_caught() {
    let stated = |device_in_ec2: Option<&str>| {
        let mut scene = Scene::at_rest();
        let waits = |w: &mut World| {
            attach(w, &v2(), &n2(), &i2(), 1);
            w.attachments.get_mut(&name_of(&v2(), &n2())).unwrap().status.attached = false;
            let attachments = &mut w.volumes.get_mut(&v2()).unwrap().attachments;
            match device_in_ec2 {
                Some(device) => attachments[0].device = DeviceName::new(device),
                None => attachments.clear(),
            }
        };
        scene.step(waits);
        scene.step(|w| w.attachments.get_mut(&name_of(&v2(), &n2())).unwrap().status.attached = true)
    };
    assert_eq!(stated(Some("/dev/xvdaa")), []);
    assert_eq!(stated(Some("/dev/xvdf")), [Invariant::StatedOnlyIfAttached]);
    assert_eq!(stated(None), [Invariant::StatedOnlyIfAttached]);
}

#[test]
fn an_attachment_made_long_after_its_node_was_registered_anew_is_caught() {
    let made_after = |seconds| {
        let mut scene = Scene::at_rest();
        scene.step(|w| w.nodes.get_mut(&n2()).unwrap().uid = Uid::new("another"));
        scene.step_after(Duration::from_secs(seconds), |w| attach(w, &v2(), &n2(), &i2(), 1))
    };
    assert_eq!(made_after(200), [Invariant::AttachedUnderItsNode]);
    assert_eq!(made_after(100), [], "no watch may have shown it yet");
}

#[test]
fn a_delete_under_a_pod_that_wants_the_volume_is_caught() {
    assert_eq!(Scene::at_rest().step(delete_sent), [Invariant::WantedStays]);

    let mut scene = Scene::at_rest();
    assert_eq!(scene.step(|w| w.pods.clear()), []);
    assert_eq!(scene.step(delete_sent), [], "no pod is there");

    let mut scene = Scene::at_rest();
    let pod_is_young = |w: &mut World| {
        let now = w.now.wall;
        w.pods.values_mut().for_each(|pod| pod.created = now);
    };
    assert_eq!(scene.step(pod_is_young), []);
    assert_eq!(scene.step(delete_sent), [], "the live read may have been before it");
}

#[test]
fn a_claim_that_went_is_no_excuse_for_who_saw_it() {
    let deleted = |watched_since| {
        let mut scene = Scene::at_rest();
        let claim_goes = |w: &mut World| {
            w.watched_since.insert(Term(1), watched_since);
            let (claim, _) = w.claims.pop_first().unwrap();
            w.news.push(News::ClaimGone { claim });
        };
        scene.step(claim_goes);
        scene.step(delete_sent)
    };
    assert_eq!(deleted(at(10)), [Invariant::WantedStays]);
    assert_eq!(deleted(at(5000)), [], "this process never saw the claim");
}

#[test]
fn a_delete_that_lands_on_a_later_object_is_caught() {
    let landed = |made_before: bool| {
        let mut scene = Scene::at_rest();
        scene.release();
        if !made_before {
            scene.step(delete_sent);
        }
        let next = |w: &mut World| {
            w.attachments.clear();
            w.volumes.get_mut(&v1()).unwrap().attachments.clear();
            attach(w, &v1(), &n1(), &i1(), 2);
            w.news.push(News::AttachmentMade { name: name_of(&v1(), &n1()), by: US });
        };
        scene.step(next);
        if made_before {
            scene.step(delete_sent);
        }
        scene.step(|w| order_deletion(w, US))
    };
    assert_eq!(landed(true), []);
    assert_eq!(landed(false), [Invariant::WritesHitTheirObject]);
}

#[test]
fn a_volume_attachment_made_over_an_attachment_without_a_mark_is_caught() {
    let made = |marked: bool, seen_to_go: bool| {
        let mut scene = Scene::at_rest();
        scene.world.watched_since.insert(Term(1), if seen_to_go { at(1) } else { at(1003) });
        let object = scene.world.attachments[&name_of(&v1(), &n1())].clone();
        scene.step(|w| {
            w.attachments.clear();
        });
        if marked {
            scene.step(|w| {
                let node = w.nodes.get_mut(&n1()).unwrap();
                let boot = node.boot_id.clone().unwrap();
                node.in_use_unknown = UnknownMarks::Marks([(listed(&v1()), boot)].into());
            });
        }
        scene.step(|w| {
            let uid = Uid::new("the-next");
            w.attachments.insert(object.name.clone(), VolumeAttachment { uid, ..object });
            w.news.push(News::AttachmentMade { name: name_of(&v1(), &n1()), by: US });
        })
    };
    assert_eq!(made(false, false), [Invariant::MadeOverIsMarked]);
    assert_eq!(made(true, false), []);
    assert_eq!(made(false, true), [], "a heal");
}

#[test]
fn a_fence_excuses_only_what_was_decided_on_a_live_read_that_showed_it() {
    let detached = |read_while_tainted: bool| {
        let mut scene = Scene::at_rest();
        let taint = |w: &mut World, tainted| w.nodes.get_mut(&n1()).unwrap().out_of_service = tainted;
        scene.step(|w| w.pods.clear());
        scene.step(|w| taint(w, true));
        if read_while_tainted {
            scene.step(node_read);
        }
        scene.step(|w| unlist(w, US));
        scene.step(|w| taint(w, false));
        if !read_while_tainted {
            scene.step(node_read);
        }
        scene.step(delete_sent);
        scene.step(|w| order_deletion(w, US));
        scene.step(|w| begin_detach(w, US))
    };
    assert_eq!(detached(true), []);
    assert_eq!(detached(false), [Invariant::MountedAttachmentStays]);
}
