//! What is judged after each step.

use super::*;

#[test]
fn a_clean_move_breaks_nothing() {
    let mut scene = Scene::at_rest();
    scene.release();
    assert_eq!(scene.step(|w| begin_detach(w, US)), []);
    assert_eq!(scene.step(|w| end_attachment(w, US)), []);
    assert_eq!(scene.step(|w| remove_object(w, US)), []);
    assert_eq!(scene.at_rest_broken(), []);
    let moved = |w: &mut World| {
        add_pod(w, &v1(), &n2());
        attach(w, &v1(), &n2(), &i2(), 2);
    };
    assert_eq!(scene.step(moved), []);
    assert_eq!(scene.at_rest_broken(), [Invariant::ListsExactAtRest]);
    scene.world.nodes.get_mut(&n2()).unwrap().volumes_attached.insert(listed(&v1()), "".into());
    assert_eq!(scene.at_rest_broken(), []);
}

mod mounted_attachment_stays {
    use super::*;

    fn unlisted() -> Scene {
        let mut scene = Scene::at_rest();
        scene.world.nodes.get_mut(&n1()).unwrap().volumes_in_use.clear();
        assert_eq!(scene.step(|w| unlist(w, US)), []);
        scene
    }

    #[test]
    fn caught_when_the_detach_begins() {
        assert_eq!(unlisted().step(|w| begin_detach(w, US)), [Invariant::MountedAttachmentStays]);
    }

    #[test]
    fn caught_when_only_the_end_is_seen() {
        assert_eq!(unlisted().step(|w| end_attachment(w, US)), [Invariant::MountedAttachmentStays]);
    }

    #[test]
    fn caught_when_mounted_while_it_detaches() {
        let mut scene = Scene::at_rest();
        scene.release();
        assert_eq!(scene.step(|w| begin_detach(w, US)), []);
        assert_eq!(scene.step(|w| mount(w, &v1(), &i1(), 1)), []);
        assert_eq!(scene.step(|w| end_attachment(w, US)), [Invariant::MountedAttachmentStays]);
    }

    #[test]
    fn a_person_or_the_platform_may() {
        assert_eq!(unlisted().step(|w| end_attachment(w, Actor::Person)), []);
        assert_eq!(unlisted().step(|w| end_attachment(w, Actor::Platform)), []);
    }

    #[test]
    fn a_dead_instance_excuses_and_a_stale_boot_is_no_mount() {
        let dead = |w: &mut World| {
            w.instances.get_mut(&i1()).unwrap().state = InstanceState::Terminated;
            end_attachment(w, US);
        };
        assert_eq!(unlisted().step(dead), []);
        let rebooted = |w: &mut World| {
            w.instances.get_mut(&i1()).unwrap().boot = BootId::new("next");
            end_attachment(w, US);
        };
        assert_eq!(unlisted().step(rebooted), []);
    }

    #[test]
    fn the_taint_excuses_while_it_is_there_and_a_moment_after() {
        let mut scene = unlisted();
        assert_eq!(scene.step(|w| w.nodes.get_mut(&n1()).unwrap().out_of_service = true), []);
        assert_eq!(scene.step(|w| w.nodes.get_mut(&n1()).unwrap().out_of_service = false), []);
        let mut late = Scene { world: scene.world.clone(), checker: scene.checker.clone() };
        assert_eq!(scene.step(|w| begin_detach(w, US)), []);
        let after = Duration::from_secs(100);
        assert_eq!(late.step_after(after, |w| begin_detach(w, US)), [Invariant::MountedAttachmentStays]);
    }

    #[test]
    fn an_order_given_under_the_taint_stays_excused() {
        let mut scene = unlisted();
        let fenced_order = |w: &mut World| {
            w.nodes.get_mut(&n1()).unwrap().out_of_service = true;
            order_deletion(w, US);
        };
        assert_eq!(scene.step(fenced_order), []);
        assert_eq!(scene.step(|w| w.nodes.get_mut(&n1()).unwrap().out_of_service = false), []);
        assert_eq!(scene.step_after(Duration::from_secs(200), |w| begin_detach(w, US)), []);
    }

    #[test]
    fn the_timeout_excuses_only_when_configured_and_only_when_over() {
        let not_ready_for = |seconds: i64, force_detach| {
            let mut scene = unlisted();
            scene.world.rules.force_detach = force_detach;
            let since = scene.world.now.wall - Duration::from_secs(seconds.unsigned_abs());
            scene.step(|w| {
                w.nodes.get_mut(&n1()).unwrap().ready = Ready { is_true: false, since: Some(since), heartbeat: None };
            });
            scene.step(|w| begin_detach(w, US))
        };
        assert_eq!(not_ready_for(361, ForceDetach::Always), []);
        assert_eq!(not_ready_for(300, ForceDetach::Always), [Invariant::MountedAttachmentStays]);
        assert_eq!(not_ready_for(1000, ForceDetach::Never), [Invariant::MountedAttachmentStays]);
    }

    #[test]
    fn with_its_node_gone_the_timeout_counts_from_the_loss() {
        let gone_for = |seconds| {
            let mut scene = unlisted();
            scene.world.rules.force_detach = ForceDetach::Always;
            scene.step(|w| {
                w.nodes.remove(&n1());
            });
            scene.step_after(Duration::from_secs(seconds), |w| begin_detach(w, US))
        };
        assert_eq!(gone_for(400), []);
        assert_eq!(gone_for(100), [Invariant::MountedAttachmentStays]);
    }
}

mod mount_is_served_by_its_own_attachment {
    use super::*;

    fn reattached(device: DeviceName, by: Actor) -> Vec<Invariant> {
        let mut scene = Scene::at_rest();
        scene.step(|w| end_attachment(w, Actor::Person));
        scene.step(|w| {
            attach_bare(w, &v1(), &i1(), 2, by);
            w.volumes.get_mut(&v1()).unwrap().attachments[0].device = device.clone();
            w.attachments.get_mut(&name_of(&v1(), &n1())).unwrap().device = Some(device);
        })
    }

    #[test]
    fn caught_under_the_same_device_name() {
        assert_eq!(reattached(device(), US), [Invariant::MountServedByItsOwnAttachment]);
        let same_slot = DeviceName::new("/dev/sdaa");
        assert_eq!(reattached(same_slot, US), [Invariant::MountServedByItsOwnAttachment]);
    }

    /// A person takes the volume from under a mount while the AttachVolume that made it has no answer, and it is attached
    /// again under the same name: by that call, or by another that was sent `again` since.
    fn landed_twice(again: bool) -> Vec<Invariant> {
        let mut scene = Scene::at_rest();
        let call =
            |sent| Ec2CallInFlight { volume: v1(), instance: i1(), kind: Ec2CallKind::Attach, term: Term(1), sent };
        let told = |w: &mut World, call: Ec2CallInFlight| {
            w.news.push(News::VolumeCallSent(call.clone()));
            w.calls_in_flight.push(call);
        };
        scene.step(|w| {
            let sent = w.volumes[&v1()].attachments[0].since;
            told(w, call(sent));
        });
        scene.step(|w| end_attachment(w, Actor::Person));
        if again {
            scene.step_after(Duration::from_secs(5), |w| told(w, call(w.now.monotonic)));
        }
        scene.step_after(Duration::from_secs(5), |w| attach_bare(w, &v1(), &i1(), 2, US))
    }

    #[test]
    fn a_call_that_lands_a_second_time_is_let_pass_and_a_second_call_is_caught() {
        assert_eq!(landed_twice(false), []);
        assert_eq!(landed_twice(true), [Invariant::MountServedByItsOwnAttachment]);
    }

    #[test]
    fn another_device_name_or_another_hand_is_let_pass() {
        assert_eq!(reattached(DeviceName::new("/dev/xvdab"), US), []);
        assert_eq!(reattached(device(), Actor::Person), []);
    }
}

mod exclusive_volume {
    use super::*;

    fn attached_twice(access: AccessMode, block: bool, by: Actor) -> Vec<Invariant> {
        let mut scene = Scene::at_rest();
        scene.step(|w| {
            w.volumes.get_mut(&v1()).unwrap().multi_attach_enabled = true;
            let pv = w.persistent_volumes.get_mut(&PersistentVolumeName::new("vol-01")).unwrap();
            pv.access_modes = [access].into();
            pv.block = block;
            attach(w, &v1(), &n2(), &i2(), 2);
            let made = w.volumes.get_mut(&v1()).unwrap().attachments.last_mut().unwrap();
            made.made_by = by;
        })
    }

    #[test]
    fn caught_on_two_instances() {
        let broken = [Invariant::ExclusiveVolumeOnOneInstance];
        assert_eq!(attached_twice(AccessMode::ReadWriteOnce, false, US), broken);
        assert_eq!(attached_twice(AccessMode::ReadWriteMany, false, US), broken);
    }

    #[test]
    fn over_one_made_by_hand_it_is_caught_once_that_could_be_known() {
        let after = |seconds| {
            let mut scene = Scene::at_rest();
            scene.step(|w| {
                w.volumes.get_mut(&v2()).unwrap().multi_attach_enabled = true;
                attach_bare(w, &v2(), &i1(), 1, Actor::Person);
            });
            scene.step_after(Duration::from_secs(seconds), |w| attach(w, &v2(), &n2(), &i2(), 2))
        };
        assert_eq!(after(5), []);
        assert_eq!(after(40), [Invariant::ExclusiveVolumeOnOneInstance]);
    }

    #[test]
    fn shared_or_by_hand_is_let_pass() {
        assert_eq!(attached_twice(AccessMode::ReadWriteMany, true, US), []);
        assert_eq!(attached_twice(AccessMode::ReadWriteOnce, false, Actor::Person), []);
    }
}

mod lists {
    use super::*;

    #[test]
    fn listing_what_is_not_attached_is_caught() {
        assert_eq!(Scene::at_rest().step(|w| list(w, &v2(), US)), [Invariant::ListedOnlyIfAttached]);
    }

    #[test]
    fn listing_what_is_still_attaching_is_caught() {
        let mut scene = Scene::at_rest();
        let early = |w: &mut World| {
            attach(w, &v2(), &n1(), &i1(), 1);
            w.attachments.get_mut(&name_of(&v2(), &n1())).unwrap().status = AttachmentStatus::default();
            w.volumes.get_mut(&v2()).unwrap().attachments[0].state = AttachmentState::Attaching;
            list(w, &v2(), US);
        };
        assert_eq!(scene.step(early), [Invariant::ListedOnlyIfAttached]);
    }

    #[test]
    fn listing_without_an_object_is_caught_and_with_one_is_right() {
        let mut scene = Scene::at_rest();
        scene.step(|w| attach_bare(w, &v2(), &i1(), 1, Actor::Person));
        assert_eq!(scene.step(|w| list(w, &v2(), US)), [Invariant::ListedOnlyIfAttached]);
        let mut scene = Scene::at_rest();
        scene.step(|w| {
            attach(w, &v2(), &n1(), &i1(), 1);
            let object = w.attachments.get_mut(&name_of(&v2(), &n1())).unwrap();
            object.status.device_path = Some(DeviceName::new("/dev/xvdab"));
        });
        assert_eq!(scene.step(|w| list(w, &v2(), US)), []);
    }

    #[test]
    fn what_a_person_took_a_moment_ago_may_still_be_listed() {
        let mut scene = Scene::at_rest();
        scene.step(|w| unlist(w, Actor::Person));
        scene.step(|w| end_attachment(w, Actor::Person));
        assert_eq!(scene.step(|w| list(w, &v1(), US)), []);
    }

    #[test]
    fn unlisting_what_is_in_use_is_caught_unless_fenced_or_not_ready() {
        assert_eq!(Scene::at_rest().step(|w| unlist(w, US)), [Invariant::InUseStaysListed]);
        assert_eq!(Scene::at_rest().step(|w| unlist(w, Actor::Person)), []);
        let mut scene = Scene::at_rest();
        scene.step(|w| w.nodes.get_mut(&n1()).unwrap().out_of_service = true);
        assert_eq!(scene.step(|w| unlist(w, US)), []);
    }

    #[test]
    fn detaching_what_is_listed_is_caught_unless_another_listed_it() {
        let unmounted = |listed_by: Option<Actor>| {
            let mut scene = Scene::at_rest();
            scene.step(|w| w.mounts.clear());
            if let Some(by) = listed_by {
                scene.world.nodes.get_mut(&n1()).unwrap().volumes_in_use.clear();
                scene.step(|w| unlist(w, US));
                scene.step(|w| list(w, &v1(), by));
            }
            scene.step(|w| begin_detach(w, US))
        };
        assert_eq!(unmounted(None), [Invariant::UnlistedBeforeDetach]);
        assert_eq!(unmounted(Some(US)), [Invariant::UnlistedBeforeDetach]);
        assert_eq!(unmounted(Some(Actor::Person)), []);
    }
}

mod objects {
    use super::*;

    fn second_on_n1(path: &str) -> Vec<Invariant> {
        Scene::at_rest().step(|w| {
            attach(w, &v2(), &n1(), &i1(), 1);
            let object = w.attachments.get_mut(&name_of(&v2(), &n1())).unwrap();
            object.status.device_path = Some(DeviceName::new(path));
        })
    }

    #[test]
    fn dev_10_one_device_path_for_two_is_caught() {
        assert_eq!(second_on_n1("/dev/xvdaa"), [Invariant::DevicePathsDiffer]);
        assert_eq!(second_on_n1("/dev/sdaa"), [Invariant::DevicePathsDiffer]);
        assert_eq!(second_on_n1("/dev/xvdab"), []);
    }

    #[test]
    fn attaching_without_intent_is_caught() {
        let broken = [Invariant::IntentBeforeAttach];
        assert_eq!(Scene::at_rest().step(|w| attach_bare(w, &v2(), &i2(), 1, US)), broken);
        assert_eq!(Scene::at_rest().step(|w| attach_bare(w, &v2(), &i2(), 1, Actor::Person)), []);
        let no_finalizer = |w: &mut World| {
            attach(w, &v2(), &n2(), &i2(), 1);
            w.attachments.get_mut(&name_of(&v2(), &n2())).unwrap().finalizers.clear();
        };
        assert_eq!(Scene::at_rest().step(no_finalizer), broken);
        let other_device = |w: &mut World| {
            attach(w, &v2(), &n2(), &i2(), 1);
            w.attachments.get_mut(&name_of(&v2(), &n2())).unwrap().device = Some(DeviceName::new("/dev/xvdaz"));
        };
        assert_eq!(Scene::at_rest().step(other_device), broken);
    }

    fn finish_with_call(kind: Ec2CallKind, by: Actor) -> Vec<Invariant> {
        let mut scene = Scene::at_rest();
        scene.release();
        scene.step(|w| begin_detach(w, US));
        scene.step(|w| {
            let sent = w.now.monotonic;
            w.calls_in_flight.push(Ec2CallInFlight { volume: v1(), instance: i1(), kind, term: Term(1), sent });
            end_attachment(w, US);
        });
        scene.step(|w| remove_object(w, by))
    }

    #[test]
    fn finishing_an_object_under_a_call_is_caught() {
        assert_eq!(finish_with_call(Ec2CallKind::Attach, US), [Invariant::FinalizerOutlivesCalls]);
        assert_eq!(finish_with_call(Ec2CallKind::Detach, US), [Invariant::FinalizerOutlivesCalls]);
        assert_eq!(finish_with_call(Ec2CallKind::Detach, Actor::Person), []);
    }

    #[test]
    fn a_call_of_an_earlier_leader_may_find_the_volume_listed_on_a_node_registered_since() {
        let lands_late = |registered_again: bool| {
            let mut scene = Scene::at_rest();
            scene.step(|w| {
                w.mounts.clear();
                w.pods.clear();
                w.nodes.get_mut(&n1()).unwrap().volumes_in_use.clear();
            });
            scene.step(|w| unlist(w, US));
            scene.step(|w| {
                let (sent, kind) = (w.now.monotonic, Ec2CallKind::Detach);
                w.calls_in_flight.push(Ec2CallInFlight { volume: v1(), instance: i1(), kind, term: Term(1), sent });
            });
            if registered_again {
                scene.step(|w| w.nodes.get_mut(&n1()).unwrap().uid = Uid::new("registered-again"));
            }
            scene.step(|w| {
                let boot = w.nodes[&n1()].boot_id.clone().unwrap();
                let marks = [(VolumeKey::ebs(&v1()).unique_name(), boot)].into();
                w.nodes.get_mut(&n1()).unwrap().in_use_unknown = UnknownMarks::Marks(marks);
                list(w, &v1(), US);
            });
            scene.step(|w| begin_detach(w, US))
        };
        assert_eq!(lands_late(false), [Invariant::UnlistedBeforeDetach]);
        assert_eq!(lands_late(true), []);
    }

    #[test]
    fn detaching_a_foreign_attachment_is_caught() {
        let by_hand = |sent_before: bool| {
            let mut scene = Scene::at_rest();
            scene.step(|w| {
                w.mounts.clear();
                w.pods.clear();
                w.nodes.get_mut(&n1()).unwrap().volumes_in_use.clear();
                remove_object(w, Actor::Person);
                end_attachment(w, Actor::Person);
            });
            scene.step(|w| unlist(w, US));
            if sent_before {
                scene.step(|w| {
                    let sent = w.now.monotonic;
                    let kind = Ec2CallKind::Detach;
                    w.calls_in_flight.push(Ec2CallInFlight { volume: v1(), instance: i1(), kind, term: Term(1), sent });
                });
            }
            scene.step(|w| attach_bare(w, &v1(), &i1(), 2, Actor::Person));
            scene.step(|w| begin_detach(w, US))
        };
        assert_eq!(by_hand(false), [Invariant::ForeignUntouched]);
        assert_eq!(by_hand(true), []);
    }
}

mod sending {
    use super::*;

    #[test]
    fn a_call_after_the_lease_is_caught() {
        let sent = |seconds| {
            let mut scene = Scene::at_rest();
            scene.step(|w| {
                let ended = Some(Monotonic::new(Duration::from_secs(500)));
                w.terms.insert(Term(1), TermHeld { since: Monotonic::ZERO, ended });
                let at = Monotonic::new(Duration::from_secs(seconds));
                w.news.push(News::CallSent { kind: "DetachVolume", term: Term(1), at });
            })
        };
        assert_eq!(sent(499), []);
        assert_eq!(sent(501), [Invariant::SentUnderLease]);
        let unknown = News::CallSent { kind: "AttachVolume", term: Term(9), at: Monotonic::ZERO };
        assert_eq!(Scene::at_rest().step(|w| w.news.push(unknown)), [Invariant::SentUnderLease]);
    }

    #[test]
    fn force_and_throttles_are_caught() {
        assert_eq!(Scene::at_rest().step(|w| w.counts.forced_detaches = 1), [Invariant::NeverForced]);
        let mut scene = Scene::at_rest();
        assert_eq!(check_never_throttled(&scene.world), []);
        scene.world.counts.ec2_throttles = 1;
        assert_eq!(check_never_throttled(&scene.world).len(), 1);
    }

    #[test]
    fn a_broken_invariant_is_told_once_for_one_thing() {
        let mut scene = Scene::at_rest();
        assert_eq!(scene.step(|w| w.counts.forced_detaches = 1), [Invariant::NeverForced]);
        assert_eq!(scene.step_after(Duration::from_secs(61), |_| ()), []);
    }
}
