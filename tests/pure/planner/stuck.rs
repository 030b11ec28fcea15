//! Cases STUCK and UNSAFE-06: EC2 does not bring an attach or a detach to its end.

use attachd::controller::status::Direction;
use attachd::model::device::DeviceName;
use attachd::model::time::Monotonic;
use attachd::sim::ec2::Ec2Fault;

use super::desk::{Desk, Reply, s};
use super::short::{instance, volume};

fn minutes(n: u64) -> std::time::Duration {
    s(60 * n)
}

/// Attaching under this name hangs on i1.
fn hang(desk: &mut Desk, device: &str) {
    desk.ec2.inject(Ec2Fault::StuckDevice { instance: Some(instance("i1")), device: DeviceName::new(device) });
}

/// `v1` is unused on n1, its DetachVolume is sent, and the guest does not let go.
fn busy() -> Desk {
    let mut desk = Desk::using_v1();
    desk.ec2.set_guest_holds(desk.now, &instance("i1"), &volume("v1"), true);
    desk.end_pod("a", "n1");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run_to("detach v1 i1", s(30));
    desk
}

fn let_go(desk: &mut Desk) {
    desk.ec2.set_guest_holds(desk.now, &instance("i1"), &volume("v1"), false);
}

#[test]
fn stuck_01_an_attach_that_hangs_is_detached_and_follows_under_another_name() {
    let mut desk = Desk::new();
    hang(&mut desk, "/dev/xvdaa");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1 xvdaa", s(10));
    let sent = desk.now.monotonic;
    desk.run_to("detach v1 i1 xvdaa", s(120));
    assert!(desk.now.monotonic >= sent + s(90) && desk.now.monotonic <= sent + s(97), "{}", desk.story());
    desk.run_to("attached v1 n1 xvdab", s(60));
    desk.expect(&[
        "protect pv-v1",
        "create v1 n1",
        "attach v1 i1 xvdaa",
        "detach v1 i1 xvdaa",
        "record v1 n1 xvdab",
        "attach v1 i1 xvdab",
        "attached v1 n1 xvdab",
    ]);
    assert!(desk.is_attached("v1", "i1"));
    // Not again on that instance, and a detach that was meant for the hung attempt says nothing of this attachment.
    desk.in_use("n1", &["v1"]);
    desk.run_until(s(30), "listed", |desk| desk.lists("n1", "v1"));
    desk.delete_va("v1", "n1");
    desk.run(minutes(3));
    let va = desk.va("v1", "n1").unwrap();
    assert!(va.deleting.is_none() && va.status.attached, "healed, not detached:\n{}", desk.story());
    desk.assert_count("detach v1", 1);
    for v in 2..=60 {
        let v = format!("v{v}");
        desk.add_volume(&v);
        desk.add_pod(&format!("pod-{v}"), "n1", &[&v]);
    }
    desk.run(minutes(3));
    let names = desk.sent.iter().filter(|sent| sent.text.starts_with("attach v")).map(|sent| sent.text.as_str());
    assert_eq!(names.filter(|text| text.ends_with(" xvdaa")).count(), 1, "{}", desk.story());
}

#[test]
fn stuck_01_one_found_after_a_leader_change_is_given_up_as_well() {
    let mut desk = Desk::new();
    hang(&mut desk, "/dev/xvdaa");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1 xvdaa", s(10));
    desk.run(s(5));
    desk.restart();
    let start = desk.now.monotonic;
    desk.run_to("detach v1 i1 xvdaa", s(150));
    assert!(desk.now.monotonic >= start + s(90), "{}", desk.story());
    desk.run_to("attached v1 n1 xvdab", s(60));
    desk.assert_count("attach v1", 2);
}

#[test]
fn stuck_01_a_volume_that_may_be_mounted_is_not_detached_for_a_hung_attach() {
    // In use, lost in EC2, attached anew: the new attachment hangs.
    let mut desk = Desk::new();
    hang(&mut desk, "/dev/xvdab");
    desk.use_volume("a", "n1", "v1");
    desk.detach_by_hand("v1", "i1");
    desk.restart();
    desk.run_to("attach v1 i1 xvdab", s(120));
    desk.run(minutes(20));
    desk.assert_never("detach v1");
    assert!(desk.lists("n1", "v1"), "{}", desk.story());
    assert!(desk.waits("v1", "n1").contains("i-01"), "{}", desk.story());
    // The same, found by the next leader.
    desk.restart();
    desk.run(minutes(20));
    desk.assert_never("detach v1");
}

#[test]
fn stuck_01_one_that_arrives_while_it_is_given_up_is_kept_if_the_detach_was_refused() {
    let mut desk = Desk::new();
    hang(&mut desk, "/dev/xvdaa");
    desk.add_pod("a", "n1", &["v1"]);
    desk.answer("detach v1", super::desk::ec2_says("IncorrectState", "not now"));
    desk.run_to("detach v1 i1 xvdaa", s(120));
    desk.assert_count("detach v1", 1);
    // Still hanging: one try each time it has hung that long again.
    desk.run(s(85));
    desk.assert_count("detach v1", 1);
    desk.run_to("detach v1 i1 xvdaa", s(30));
    desk.run_to("attached v1 n1 xvdab", s(60));
}

#[test]
fn stuck_01_a_hung_attempt_whose_detach_is_lost_waits_until_that_is_dead() {
    let mut desk = Desk::new();
    hang(&mut desk, "/dev/xvdaa");
    desk.add_pod("a", "n1", &["v1"]);
    desk.answer("detach v1", Reply::LostAnswer);
    desk.run_to("detach v1 i1 xvdaa", s(120));
    let sent = desk.now.monotonic;
    desk.run_to("attach v1 i1 xvdab", s(150));
    assert!(desk.now.monotonic >= sent + s(70), "it could land on the new one:\n{}", desk.story());
    desk.run(minutes(2));
    assert!(desk.is_attached("v1", "i1"));
    desk.assert_count("detach v1", 1);
}

#[test]
fn stuck_01_a_pod_that_goes_while_its_attach_hangs_leaves_nothing_behind() {
    let mut desk = Desk::new();
    hang(&mut desk, "/dev/xvdaa");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("detach v1 i1 xvdaa", s(120));
    desk.remove_pod("a");
    desk.run(minutes(3));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
    desk.assert_count("detach v1", 1);
    desk.assert_count("attach v1", 1);
}

#[test]
fn stuck_04_a_hundred_slow_attaches_get_one_call_each() {
    let mut desk = Desk::new();
    desk.ec2.inject(Ec2Fault::SlowAttach(s(18)));
    let nodes: Vec<String> = (1..=10).map(|n| format!("n{n}")).collect();
    for n in &nodes[2..] {
        desk.add_node(n, &n.replacen('n', "i", 1));
    }
    let volumes: Vec<String> = (1..=100).map(|v| format!("v{v}")).collect();
    for v in &volumes[1..] {
        desk.add_volume(v);
    }
    for (at, v) in volumes.iter().enumerate() {
        desk.add_pod(&format!("pod-{v}"), &nodes[at % 10], &[v]);
    }
    desk.run(minutes(3));
    for v in &volumes {
        desk.assert_count(&format!("attach {v} "), 1);
    }
    desk.assert_never("event FailedAttachVolume");
    desk.assert_never("attach-error");
    let attached = desk.sent.iter().filter(|sent| sent.text.starts_with("attached ")).count();
    assert_eq!(attached, 100);
}

#[test]
fn stuck_06_a_wait_survives_a_restart_and_ends_without_a_person() {
    let mut desk = busy();
    desk.run(minutes(20));
    desk.restart();
    desk.run(minutes(25));
    desk.assert_never("finish v1 n1");
    desk.assert_never("attach v1 i2");
    assert!(desk.va("v1", "n1").is_some_and(|va| va.deleting.is_some()), "{}", desk.story());
    let_go(&mut desk);
    desk.run_to("attach v1 i2", s(80));
    desk.run(minutes(1));
    assert!(desk.is_attached("v1", "i2") && desk.va("v1", "n1").is_none());
}

#[test]
fn stuck_07_while_ec2_is_busy_no_list_is_written() {
    let mut desk = busy();
    desk.run(minutes(1));
    desk.assert_count("list n1 []", 1);
    let lists = desk.count("list n1");
    for _ in 0..30 {
        desk.run(minutes(1));
        desk.ready("n1");
    }
    desk.assert_count("list n1", lists);
    desk.assert_count("detach v1", 1);
}

#[test]
fn stuck_09_what_is_busy_for_long_names_the_instance_and_ends_with_a_reboot() {
    let mut desk = busy();
    desk.run(minutes(200));
    assert!(desk.count("event VolumeStuck") >= 1, "{}", desk.story());
    let said = desk.sent.iter().find(|sent| sent.text.starts_with("event VolumeStuck")).unwrap();
    assert!(said.text.contains("terminate instance i-01"), "{}", said.text);
    desk.assert_never("attach v1 i2");
    let_go(&mut desk);
    desk.boot("n1", "second");
    desk.run_to("attach v1 i2", s(30));
}

#[test]
fn stuck_10_what_is_stuck_is_said_once_for_each_threshold_and_its_age_is_a_figure() {
    let mut desk = busy();
    let sent = desk.now.monotonic;
    desk.run(minutes(11));
    let pending = desk.core.status(desk.now).pending[&Direction::Detach];
    assert!(pending.count == 1 && pending.oldest >= minutes(11), "{pending:?}");
    assert_eq!(desk.core.status(desk.now).blocked.get(&(Direction::Detach, "StuckInEc2")), Some(&1));
    let times: Vec<Monotonic> = desk.times("event VolumeStuck");
    // One of the VolumeAttachment, one of the PersistentVolume.
    assert_eq!(times.len(), 2, "{}", desk.story());
    assert!(times.iter().all(|at| *at >= sent + minutes(5) && *at <= sent + minutes(6)), "{times:?}");
    desk.run(minutes(120));
    let times = desk.times("event VolumeStuck");
    assert_eq!(times.len(), 4, "{}", desk.story());
    assert!(times[2..].iter().all(|at| *at >= sent + minutes(30) && *at <= sent + minutes(31)), "{times:?}");
    // What a person detached and does not end is said as well, though nothing of ours waits for it.
    let mut desk = Desk::using_v1();
    desk.ec2.set_guest_holds(desk.now, &instance("i1"), &volume("v1"), true);
    desk.detach_by_hand("v1", "i1");
    desk.restart();
    desk.run(minutes(40));
    desk.assert_count("event VolumeStuck", 4);
    desk.assert_never("detach v1");
}

#[test]
fn stuck_11_hung_attaches_are_events_and_never_a_taint() {
    let mut desk = Desk::new();
    for device in attachd::model::device::device_names() {
        hang(&mut desk, device.as_str());
    }
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(minutes(21));
    // Each try hangs as long as the first.
    let tries = desk.count("attach v1");
    assert!((8..=14).contains(&tries), "{tries}\n{}", desk.story());
    desk.assert_count("detach v1", tries - 1);
    assert!(desk.count("event FailedAttachVolume") >= 2, "{}", desk.story());
    let node = desk.node("n1");
    assert!(!node.out_of_service && node.ready.is_true);
    let writes = desk.sent.iter().filter(|sent| sent.is_mutation()).map(|sent| sent.text.split(' ').next().unwrap());
    let kinds: std::collections::BTreeSet<&str> = writes.collect();
    assert_eq!(kinds, ["attach", "create", "detach", "protect", "record"].into());
}

#[test]
fn stuck_15_when_every_mutating_call_hangs_they_are_few_and_all_end_when_ec2_is_back() {
    let mut desk = Desk::new();
    let volumes: Vec<String> = (1..=60).map(|v| format!("v{v}")).collect();
    let nodes: Vec<String> = (1..=20).map(|n| format!("n{n}")).collect();
    for n in &nodes[2..] {
        desk.add_node(n, &n.replacen('n', "i", 1));
    }
    for v in &volumes[1..] {
        desk.add_volume(v);
    }
    // A quarter of them have to leave a node first.
    for v in &volumes[..15] {
        desk.use_volume(&format!("old-{v}"), "n1", v);
    }
    desk.answer_all("attach v", Reply::Lost);
    desk.answer_all("detach v", Reply::Lost);
    let stall = desk.now.monotonic;
    for v in &volumes[..15] {
        desk.remove_pod(&format!("old-{v}"));
    }
    desk.in_use("n1", &[]);
    let target = |at: usize| &nodes[1 + at % 19];
    for (at, v) in volumes.iter().enumerate() {
        desk.add_pod(&format!("pod-{v}"), target(at), &[v]);
    }
    desk.run(minutes(30));
    // One call on a volume at a time, each given 70 s to land.
    for (at, v) in volumes.iter().enumerate() {
        let calls = [format!("detach {v} "), format!("attach {v} ")].map(|prefix| desk.times(&prefix));
        let [detaches, attaches] = calls.map(|times| times.into_iter().filter(|at| *at > stall).collect::<Vec<_>>());
        let sent = if at < 15 { &detaches } else { &attaches };
        assert!(!sent.is_empty() && sent.len() <= 1 + 30 * 60 / 70, "{v}: {}", sent.len());
        assert!(sent.windows(2).all(|pair| pair[1] >= pair[0] + s(70)), "{v}: {sent:?}");
        assert!(at >= 15 || attaches.is_empty(), "{v} is held by n1 as far as anybody knows");
    }
    desk.forget_answers();
    desk.run(minutes(5));
    for (at, v) in volumes.iter().enumerate() {
        let va = desk.va(v, target(at));
        assert!(va.is_some_and(|va| va.status.attached), "{v} on {}\n{}", target(at), desk.waits(v, target(at)));
    }
}

#[test]
fn unsafe_06_what_is_busy_is_never_forced_and_ends_with_the_instance() {
    let mut desk = busy();
    desk.run(minutes(30));
    desk.assert_count("detach v1", 1);
    let said = desk.sent.iter().filter(|sent| sent.text.starts_with("event VolumeStuck")).collect::<Vec<_>>();
    assert!(said.iter().all(|sent| sent.text.contains("Stop or terminate instance i-01")), "{}", desk.story());
    assert!(!said.is_empty());
    desk.ec2.terminate(desk.now, &instance("i1")).unwrap();
    let_go(&mut desk);
    desk.run_to("attach v1 i2", minutes(4));
    desk.run(minutes(1));
    assert!(desk.is_attached("v1", "i2") && desk.va("v1", "n1").is_none(), "{}", desk.story());
}
