//! Machines that fail, EC2 that answers wrongly for a while, and people who pull volumes.

use super::*;
use crate::model::volume::{CheckStatus, InstanceState};
use crate::sim::ec2::{AnswerFault, Ec2Action};

fn describe(bench: &Bench) -> Call {
    let instances = vec![bench.driver.machine(&bench.n1).expect("a machine").instance().clone()];
    Call::Ec2(Ec2Call::DescribeInstances { instances, next_token: None })
}

/// How many instances the next answer shows; `None`: there is no answer.
fn shown(bench: &mut Bench, call: Call) -> Option<usize> {
    let id = bench.give(call);
    bench.run(1);
    match bench.outcome(id).first() {
        Some(CallResult::Done(Answer::Instances { instances, .. })) => Some(instances.len()),
        _ => None,
    }
}

#[test]
fn a_machine_that_hangs_is_running_and_impaired_and_comes_back_when_healed() {
    let mut bench = Bench::new(1);
    bench.attach_by_the_book();
    let instance = bench.driver.machine(&bench.n1).expect("a machine").instance().clone();
    bench.driver.inject(Fault::HangMachine(bench.n1.clone()));
    bench.run(200);
    let (world, ec2) = (bench.driver.world(), &bench.driver.ec2);
    assert!(!world.nodes[&bench.n1].ready.is_true);
    assert_eq!(world.mounts.len(), 1, "nothing is unmounted");
    let machine = ec2.instance(&instance).expect("there");
    assert_eq!((machine.state(), machine.instance_check()), (&InstanceState::Running, &CheckStatus::Impaired));
    bench.driver.heal_all();
    bench.run(200);
    let machine = bench.driver.ec2.instance(&instance).expect("there");
    assert_eq!(machine.instance_check(), &CheckStatus::Ok);
    assert!(bench.driver.world().nodes[&bench.n1].ready.is_true);
    assert!(bench.found.is_empty(), "{:?}", bench.found);
}

#[test]
fn where_only_the_kubelet_dies_the_checks_stay_ok_and_the_mount_stays() {
    let mut bench = Bench::new(2);
    bench.attach_by_the_book();
    let instance = bench.driver.machine(&bench.n1).expect("a machine").instance().clone();
    bench.driver.inject(Fault::StopKubelet(bench.n1.clone()));
    bench.run(600);
    assert!(!bench.driver.world().nodes[&bench.n1].ready.is_true);
    assert_eq!(bench.driver.ec2.instance(&instance).expect("there").instance_check(), &CheckStatus::Ok);
    assert_eq!(bench.driver.world().mounts.len(), 1);
    assert_eq!(bench.driver.machine(&bench.n1).expect("there").running_containers(), 1);
}

#[test]
fn mounts_are_gone_before_a_volume_leaves_an_instance_that_shuts_down() {
    for seed in 0..8 {
        let mut bench = Bench::new(seed);
        bench.attach_by_the_book();
        bench.driver.inject(Fault::TerminateInstance(bench.n1.clone()));
        for _ in 0..150 {
            bench.run(1);
            let world = bench.driver.world();
            let attached = !world.volumes[&bench.volume].attachments.is_empty();
            assert!(attached || world.mounts.is_empty(), "seed {seed}");
        }
        assert!(bench.driver.world().volumes[&bench.volume].attachments.is_empty());
        assert!(bench.found.is_empty(), "{:?}", bench.found);
    }
}

#[test]
fn a_forced_detach_takes_a_mounted_volume_away_silently() {
    let mut bench = Bench::new(3);
    bench.attach_by_the_book();
    bench.driver.inject(Fault::ForceDetachByHand(bench.volume.clone()));
    bench.run(6);
    let world = bench.driver.world();
    assert!(world.volumes[&bench.volume].attachments.is_empty());
    assert_eq!(world.mounts.len(), 1, "the kernel has what is left of it");
    let name = crate::model::ids::AttachmentName::of(&bench.key());
    assert!(world.attachments[&name].status.attached, "no object says so");
    assert!(bench.found.is_empty(), "{:?}", bench.found);
}

#[test]
fn a_volume_can_be_carried_to_another_instance_by_hand() {
    let mut bench = Bench::new(4);
    bench.attach_by_the_book();
    bench.driver.inject(Fault::CarryByHand(bench.volume.clone(), bench.n2.clone()));
    bench.run(15);
    let there = bench.driver.machine(&bench.n2).expect("a machine").instance().clone();
    let attachments = &bench.driver.world().volumes[&bench.volume].attachments;
    assert_eq!(attachments.iter().map(|a| &a.instance).collect::<Vec<_>>(), [&there]);
}

#[test]
fn what_ec2_does_not_show_for_a_while_is_there_again_after_it() {
    let mut bench = Bench::new(5);
    let faults = [
        (Fault::HideInstance(bench.n1.clone(), secs(20)), Some(0)),
        (Fault::OtherRegion(secs(20)), Some(0)),
        (Fault::Ec2Outage(secs(20)), None),
        (Fault::NextAnswer(Ec2Action::DescribeInstances, AnswerFault::LeavesOneOut), Some(0)),
        (Fault::NextAnswer(Ec2Action::DescribeInstances, AnswerFault::Unreadable), None),
    ];
    for (fault, wrong) in faults {
        let call = describe(&bench);
        assert_eq!(shown(&mut bench, call.clone()), Some(1));
        bench.driver.inject(fault.clone());
        assert_eq!(shown(&mut bench, call.clone()), wrong, "{fault:?}");
        bench.run(25);
        assert_eq!(shown(&mut bench, call), Some(1), "{fault:?}");
    }
    bench.driver.inject(Fault::FlickerInstance(bench.n1.clone(), secs(60)));
    let call = describe(&bench);
    let seen: Vec<_> = (0..20).map(|_| shown(&mut bench, call.clone())).collect();
    assert!(seen.contains(&Some(0)) && seen.contains(&Some(1)), "{seen:?}");
}
