//! Cases OOB, SCALE and LIMIT that take a sweep: what happens in EC2 while nobody asks.

use std::collections::BTreeMap;
use std::time::Duration;

use attachd::controller::command::{BudgetClass, Call, Ec2Call};
use attachd::controller::event::Role;
use attachd::controller::policy::{Policy, Settings, UnknownAttachments};
use attachd::controller::status::Disagreement;
use attachd::model::ids::{NodeName, VolumeKey};
use attachd::model::outcome::{Answer, CallResult};

use super::desk::{Desk, Reply, s};
use super::short::volume;

/// One sweep and the confirmation.
const NOTICED_WITHIN: Duration = s(60 + 15);

/// v1 in use by pod `a` on n1, at rest.
fn at_rest() -> Desk {
    let mut desk = Desk::using_v1();
    desk.run(s(90));
    desk.take_mutations();
    desk
}

fn sweeps(desk: &Desk) -> Vec<usize> {
    let asked = desk.sent.iter().filter(|sent| sent.command.class == BudgetClass::Sweep);
    let volumes = asked.map(|sent| match &sent.command.call {
        Call::Ec2(Ec2Call::DescribeVolumes { volumes, .. }) => volumes.len(),
        other => panic!("{other:?}"),
    });
    volumes.collect()
}

fn no_volumes() -> Reply {
    Reply::Is(CallResult::Done(Answer::Volumes { volumes: Vec::new(), next_token: None }))
}

#[test]
fn oob_01_a_detach_behind_our_back_is_noticed_said_once_and_its_device_name_is_not_given_away() {
    let mut desk = at_rest();
    desk.add_volume("v2");
    desk.run(s(7));
    desk.detach_by_hand("v1", "i1");
    let since = desk.now.monotonic;
    desk.run_to("detached v1 n1", NOTICED_WITHIN);
    let sweep = desk.sent.iter().rfind(|sent| sent.command.class == BudgetClass::Sweep).map(|sent| sent.at).unwrap();
    assert!(sweep >= since && desk.now.monotonic.saturating_since(sweep) <= s(15), "{}", desk.story());
    // It stays listed while the node reports it in use, and its name stays taken.
    assert!(desk.lists("n1", "v1"));
    desk.add_pod("c", "n1", &["v2"]);
    desk.run_to("attach v2", s(20));
    desk.assert_never("attach v2 i1 xvdaa");
    desk.run(s(60));
    assert!(desk.lists("n1", "v1") && desk.is_attached("v1", "i1"), "{}", desk.story());
    desk.assert_never("list n1 []");
    desk.assert_count("attach v1 i1 xvdaa", 1);
    desk.assert_count("event VolumeDetachedExternally", 2);
    assert_eq!(desk.core.status(desk.now).disagreements, [(Disagreement::SilentDetach, 1)].into());
}

#[test]
fn oob_07_a_pod_that_is_made_again_on_the_same_node_gets_its_volume_back() {
    let mut desk = at_rest();
    desk.detach_by_hand("v1", "i1");
    desk.end_pod("a", "n1");
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_until(NOTICED_WITHIN + s(10), "attached anew", |desk| desk.count("attached v1 n1") == 2);
    assert!(desk.is_attached("v1", "i1"));
    desk.run(s(15));
    assert!(desk.lists("n1", "v1"), "{}", desk.story());
}

#[test]
fn oob_07_a_volume_that_went_while_its_node_was_gone_comes_back_with_it() {
    let mut desk = at_rest();
    desk.delete_node("n1");
    desk.detach_by_hand("v1", "i1");
    desk.run(NOTICED_WITHIN);
    desk.register("n1", "i1");
    desk.csi("n1", "i1");
    desk.run(s(200));
    desk.assert_count("attach v1", 1);
    assert!(desk.marks("n1", "v1").is_some(), "it may be mounted there yet, unknown to the new Node object");
    desk.boot("n1", "another boot");
    desk.run(NOTICED_WITHIN);
    assert!(desk.is_attached("v1", "i1"), "{}", desk.story());
}

#[test]
fn oob_07_one_that_nobody_wants_any_more_is_noticed_too() {
    let mut desk = at_rest();
    desk.remove_pod("a");
    desk.run(s(1));
    desk.detach_by_hand("v1", "i1");
    desk.run_to("detached v1 n1", NOTICED_WITHIN);
    assert!(desk.lists("n1", "v1"), "it is in use");
    desk.in_use("n1", &[]);
    desk.run(s(60));
    assert!(desk.is_all_gone("v1"), "{}", desk.story());
    desk.assert_never("detach v1");
}

#[test]
fn oob_02_a_foreign_attachment_that_nobody_asks_about_is_reported() {
    let mut desk = Desk::new();
    desk.attach_by_hand("v1", "i1", "/dev/xvdcz");
    // Ten times less often than attachments.
    desk.run(s(600 + 15));
    desk.assert_count("event ForeignAttachment PersistentVolume", 1);
    assert!(desk.story().contains("is attached to i-01 at /dev/xvdcz by somebody else"), "{}", desk.story());
    let status = desk.core.status(desk.now);
    assert_eq!(status.foreign_attachments, 1);
    assert_eq!(status.disagreements, [(Disagreement::ForeignAttachment, 1)].into());
    desk.run(s(3600));
    desk.assert_count("event ForeignAttachment", 1);
    desk.expect(&[]);
    desk.detach_by_hand("v1", "i1");
    desk.run(s(620));
    assert_eq!(desk.core.status(desk.now).foreign_attachments, 0);
}

#[test]
fn oob_02_where_people_say_so_it_is_led_out_but_never_from_an_instance_that_is_no_node() {
    let settings = Settings { unknown_attachments: UnknownAttachments::Detach, ..Settings::default() };
    let mut desk = Desk::with(settings, Policy::FULL);
    desk.attach_by_hand("v1", "i1", "/dev/xvdcz");
    desk.add_pod("b", "n2", &["v1"]);
    desk.run(s(300));
    desk.assert_count("create v1 n1", 1);
    desk.assert_never("detach");
    // It may have been mounted there: only another boot shows that it is not.
    assert!(desk.marks("n1", "v1").is_some());
    desk.boot("n1", "another boot");
    desk.run(s(120));
    desk.assert_count("detach v1 i1 xvdcz", 1);
    assert!(desk.is_attached("v1", "i2"), "{}", desk.story());

    let settings = Settings { unknown_attachments: UnknownAttachments::Detach, ..Settings::default() };
    let mut desk = Desk::with(settings, Policy::FULL);
    desk.add_node("n3", "i3");
    desk.delete_node("n3");
    desk.attach_by_hand("v1", "i3", "/dev/xvdcz");
    desk.run(s(700));
    desk.expect(&[]);
    desk.assert_count("event ForeignAttachment", 1);
}

#[test]
fn limit_09_foreign_attachments_are_never_detached_to_make_room() {
    let mut desk = at_rest();
    for v in 2..=6 {
        desk.add_volume(&format!("v{v}"));
        desk.attach_by_hand(&format!("v{v}"), "i1", &format!("/dev/xvdc{}", ['a', 'b', 'c', 'd', 'e', 'f', 'g'][v]));
    }
    desk.run(s(700));
    desk.assert_never("detach");
    desk.assert_count("event ForeignAttachment", 5);
}

#[test]
fn scale_01_volumes_at_rest_cost_one_call_for_two_hundred_of_them_a_minute() {
    let mut desk = Desk::new();
    for v in 2..=50 {
        desk.add_volume(&format!("v{v}"));
    }
    let names: Vec<String> = (1..=50).map(|v| format!("v{v}")).collect();
    let volumes: Vec<&str> = names.iter().map(String::as_str).collect();
    desk.add_pod("a", "n1", &volumes);
    desk.run(s(5));
    desk.in_use("n1", &volumes);
    desk.run(s(55));
    let (calls, swept) = (desk.count("describe"), sweeps(&desk).len());
    desk.run(s(600));
    assert_eq!(desk.count("describe") - calls, 10, "{}", desk.story());
    assert_eq!(sweeps(&desk)[swept..], [50; 10]);
    let age = desk.core.status(desk.now).sweep_age.unwrap();
    assert!(age <= s(61), "{age:?}");
}

#[test]
fn how_fresh_each_volume_and_each_node_is_can_be_told() {
    let mut desk = at_rest();
    desk.add_volume("v2");
    desk.use_volume("b", "n2", "v2");
    let nodes = desk.core.freshness(desk.now);
    let age = |node: &str, v: &str| nodes[&NodeName::new(node)].volumes[&VolumeKey::ebs(&volume(v))];
    let (old, fresh) = (age("n1", "v1"), age("n2", "v2"));
    assert!(fresh < old && fresh <= s(15) && old <= s(61), "{nodes:?}");
    assert_eq!(nodes[&NodeName::new("n2")].oldest(), fresh);
    let status = desk.core.status(desk.now);
    assert_eq!(status.sweep_age, Some(old));
    for ages in [&status.read_ages.volumes, &status.read_ages.nodes] {
        let within: BTreeMap<Option<u64>, u64> = ages.cumulated().collect();
        assert_eq!((within[&Some(15)], within[&Some(90)], within[&None]), (1, 2, 2), "{ages:?}");
    }
    desk.run(s(90));
    let nodes = desk.core.freshness(desk.now);
    assert!(nodes.len() == 2 && nodes.values().all(|node| node.oldest() <= s(61)), "the sweep read both: {nodes:?}");
}

#[test]
fn scale_01_throttled_reads_stop_no_mutating_work_and_stretch_the_sweep_visibly() {
    let mut desk = at_rest();
    for _ in 0..3 {
        desk.answer("describe-volumes v1", Reply::Is(CallResult::Throttled));
    }
    desk.run(s(250));
    let took = desk.core.status(desk.now).sweep_duration.unwrap();
    assert!(took > s(61), "{took:?}\n{}", desk.story());
    desk.end_pod("a", "n1");
    desk.run_to("detach v1", s(10));
}

#[test]
fn scale_06_one_unknown_volume_in_a_sweep_is_asked_for_alone_and_then_remembered() {
    let mut desk = Desk::new();
    for v in 2..=50 {
        desk.add_volume(&format!("v{v}"));
    }
    desk.add_claim_without_volume("v51");
    desk.run(s(5 * 600 + 60));
    let alone: Vec<_> = desk.sent.iter().filter(|sent| sent.text == "describe-volumes v51").collect();
    assert_eq!(alone.len(), 3, "{}", desk.story());
    assert_eq!(sweeps(&desk), [51; 5]);
    desk.expect(&[]);
}

#[test]
fn scale_07_dead_handles_and_attachments_of_missing_volumes_harm_nobody_else() {
    let mut desk = Desk::new();
    for v in 2..=40 {
        desk.add_volume(&format!("v{v}"));
    }
    for v in 41..=43 {
        desk.add_claim_without_volume(&format!("v{v}"));
        desk.add_pod(&format!("dead{v}"), "n2", &[&format!("v{v}")]);
    }
    for v in 44..=45 {
        desk.make_va(&format!("v{v}"), "n2");
    }
    let names: Vec<String> = (1..=40).map(|v| format!("v{v}")).collect();
    let volumes: Vec<&str> = names.iter().map(String::as_str).collect();
    desk.add_pod("a", "n1", &volumes);
    desk.run(s(5));
    desk.in_use("n1", &volumes);
    desk.run_until(s(60), "all listed", |desk| names.iter().all(|v| desk.lists("n1", v)));
    desk.run(s(120));
    for v in 41..=43 {
        assert_eq!(desk.waits(&format!("v{v}"), "n2"), "the volume does not exist", "{}", desk.story());
        desk.assert_never(&format!("attach v{v}"));
    }
}

#[test]
fn rule_17_when_a_tenth_of_a_sweep_is_missing_nothing_of_it_is_believed_and_an_alarm_is_raised() {
    let mut desk = Desk::new();
    let names: Vec<String> = (1..=30).map(|v| format!("v{v}")).collect();
    for v in &names[1..] {
        desk.add_volume(v);
    }
    let volumes: Vec<&str> = names.iter().map(String::as_str).collect();
    desk.add_pod("a", "n1", &volumes);
    desk.run(s(5));
    desk.in_use("n1", &volumes);
    desk.run(s(90));
    desk.take_mutations();
    let calls = desk.count("describe");
    // Another account answers: nothing of ours is there.
    for _ in 0..5 {
        desk.answer("describe-volumes", no_volumes());
    }
    desk.run(s(300));
    desk.expect(&[]);
    assert_eq!(desk.count("describe") - calls, 5, "no calls for single volumes\n{}", desk.story());
    assert!(desk.core.status(desk.now).mass_absence);
    desk.run(s(300));
    assert!(!desk.core.status(desk.now).mass_absence);
}

#[test]
fn a_volume_that_leaves_the_cluster_is_read_no_more() {
    let mut desk = Desk::new();
    desk.add_claim_without_volume("v9");
    desk.run(s(610));
    assert!(desk.count("describe-volumes v9") > 0);
    desk.delete_claim("v9");
    desk.delete_pv("v9");
    desk.run(s(1));
    let calls = desk.sent.iter().filter(|sent| sent.text.contains("v9")).count();
    desk.run(s(2000));
    assert_eq!(desk.sent.iter().filter(|sent| sent.text.contains("v9")).count(), calls, "{}", desk.story());
}

#[test]
fn after_a_restart_what_is_pending_is_read_by_the_poll_and_what_rests_by_the_sweep() {
    let mut desk = at_rest();
    desk.add_volume("v2");
    desk.use_volume("b", "n2", "v2");
    desk.kill();
    desk.end_pod("b", "n2");
    let sent = desk.sent.len();
    desk.lead();
    desk.list_everything();
    desk.run(s(5));
    let read = |class: BudgetClass, v: &str| {
        desk.sent[sent..].iter().any(|sent| match &sent.command.call {
            Call::Ec2(Ec2Call::DescribeVolumes { volumes, .. }) => {
                sent.command.class == class && volumes.contains(&volume(v))
            }
            _ => false,
        })
    };
    assert!(read(BudgetClass::Poll, "v2") && !read(BudgetClass::Poll, "v1"), "{}", desk.story());
    assert!(read(BudgetClass::Sweep, "v1"), "{}", desk.story());
    desk.assert_count("detach v2 i2 xvdaa", 1);
    desk.assert_count("attached v1 n1", 1);
}

#[test]
fn a_machine_that_is_terminated_under_a_ready_node_is_no_silent_detach() {
    let settings = Settings { roles: [Role::Attacher].into(), ..Settings::default() };
    let mut desk = Desk::with(settings, Policy::FULL);
    desk.add_pod("a", "n1", &["v1"]);
    desk.make_va("v1", "n1");
    desk.run_to("attached v1 n1", s(30));
    desk.run(s(30));
    desk.take_mutations();
    desk.ec2.terminate(desk.now, &super::short::instance("i1")).unwrap();
    desk.run(s(200));
    desk.assert_never("detached v1 n1");
}
