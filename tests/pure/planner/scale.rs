//! Cases SCALE: many at once, throttles, and what must not be written twice.

use std::collections::BTreeMap;

use attachd::controller::policy::{Bucket, Policy, Settings};
use attachd::model::outcome::CallResult;

use super::desk::{Desk, Reply, ec2_says, s};

#[test]
fn scale_04_a_throttled_attach_delays_no_detach_and_no_other_volume() {
    let mut desk = Desk::new();
    for v in ["v2", "v3"] {
        desk.add_volume(v);
    }
    desk.use_volume("a", "n1", "v1");
    desk.answer("attach v2", Reply::Is(CallResult::Throttled));
    desk.add_pod("b", "n1", &["v2"]);
    desk.run_to("attach v2 i1", s(10));
    desk.end_pod("a", "n1");
    desk.add_pod("a2", "n2", &["v1"]);
    desk.add_pod("c", "n1", &["v3"]);
    desk.run_to("detach v1 i1", s(5));
    desk.run_to("attach v1 i2", s(10));
    desk.assert_count("attach v3 i1", 1);
    desk.run_until(s(10), "attached", |desk| desk.count("attached v2 n1") == 1);
}

#[test]
fn scale_10_many_at_once_are_bounded_by_the_budget_and_written_once_each() {
    let api_writes = Bucket { burst: 5, per_second: 5.0 };
    let ec2_mutating = Bucket { burst: 50, per_second: 50.0 };
    let mut desk = Desk::with(Settings { api_writes, ec2_mutating, ..Settings::default() }, Policy::FULL);
    for number in 2..=25 {
        desk.add_volume(&format!("v{number}"));
    }
    let begun = desk.now.monotonic;
    for number in 1..=25 {
        desk.add_pod(&format!("a{number}"), "n1", &[&format!("v{number}")]);
    }
    // Finalizer, create and status of each, and a few lists, at five a second.
    desk.run_until(s(25), "attached", |desk| desk.count("attached v") == 25);
    desk.run(s(60));
    for what in ["protect", "create v", "attached v", "attach v"] {
        desk.assert_count(what, 25);
    }
    let mut in_second: BTreeMap<u64, usize> = BTreeMap::new();
    let writes = desk.sent.iter().filter(|sent| sent.is_mutation() && !sent.text.starts_with("attach v"));
    for sent in writes {
        *in_second.entry(sent.at.saturating_since(begun).as_secs()).or_default() += 1;
    }
    assert!(in_second.values().all(|writes| *writes <= 10), "{in_second:?}");
}

#[test]
fn scale_12_a_detach_that_fails_while_the_pod_comes_back_costs_one_patch_a_change() {
    let mut desk = Desk::new();
    desk.use_volume("a0", "n1", "v1");
    let mut changes = 0;
    for round in 1..=5 {
        desk.answer("detach v1", ec2_says("IncorrectState", "not now"));
        desk.remove_pod(&format!("a{}", round - 1));
        desk.in_use("n1", &[]);
        desk.run_to("detach v1", s(150));
        desk.add_pod(&format!("a{round}"), "n1", &["v1"]);
        desk.run(s(150));
        desk.in_use("n1", &["v1"]);
        desk.run(s(20));
        // One off the list, one on it again.
        changes += 2;
        assert!(desk.lists("n1", "v1"), "{}", desk.story());
    }
    let patches = desk.take_mutations().iter().filter(|text| text.starts_with("list n1")).count();
    assert!(patches <= changes, "{patches} patches for {changes} changes\n{}", desk.story());
}
