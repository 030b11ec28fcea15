//! The contract of the core: when it sends nothing, what a command carries, and what an outcome does.

use std::time::Duration;

use attachd::controller::event::{EventKind, Guard, Kind, Role, Term};
use attachd::controller::policy::{Policy, Rule, Settings};
use attachd::model::outcome::{Answer, CallResult, CommandId, Outcome};

use super::desk::{Desk, Reply, Sent, s};

fn bare() -> Desk {
    Desk::bare(Settings::default(), Policy::FULL)
}

fn mutations(desk: &Desk) -> impl Iterator<Item = &Sent> {
    desk.sent.iter().filter(|sent| sent.is_mutation())
}

#[test]
fn nothing_is_written_before_every_watch_has_synced() {
    for missing in Kind::ALL {
        let mut desk = bare();
        desk.lead();
        desk.add_pod("a", "n1", &["v1"]);
        desk.api.take_changes();
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != missing) {
            desk.list(kind);
        }
        desk.run(s(120));
        assert_eq!(desk.take_mutations(), [""; 0], "without {missing:?}");
        desk.list(missing);
        desk.run_to("attach v1 i1", s(10));
    }
}

#[test]
fn nothing_is_written_without_a_guard() {
    let mut desk = bare();
    desk.list_everything();
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(120));
    assert!(desk.sent.is_empty(), "{}", desk.story());
    desk.lead();
    desk.run_to("attach v1 i1", s(10));
}

#[test]
fn nothing_is_done_about_a_volume_before_it_was_read_since_the_lease_was_got() {
    let mut desk = Desk::using_v1();
    desk.kill();
    desk.end_pod("a", "n1");
    // The poll, and the two sweeps that come meanwhile.
    for _ in 0..3 {
        desk.answer("describe-volumes v1", Reply::Hold);
    }
    desk.lead();
    desk.list_everything();
    desk.run(s(120));
    desk.expect(&[]);
    desk.release_honestly("describe-volumes v1");
    desk.run_to("detach v1 i1 xvdaa", s(10));
}

#[test]
fn a_read_from_before_the_lease_counts_for_nothing() {
    let mut desk = Desk::using_v1();
    desk.tell_guard(None);
    desk.end_pod("a", "n1");
    desk.run(s(60));
    desk.expect(&[]);
    desk.answer("describe-volumes v1", Reply::Hold);
    desk.guard(None);
    desk.run(s(60));
    desk.expect(&[]);
    desk.release_honestly("describe-volumes v1");
    desk.run_to("detach v1 i1 xvdaa", s(10));
}

#[test]
fn crash_10_every_mutation_dies_twelve_seconds_before_the_guard_ends_and_none_is_made_after() {
    let mut desk = bare();
    let until = desk.now.monotonic + s(40);
    desk.guard(Some(s(40)));
    desk.list_everything();
    desk.run(s(20));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(7));
    assert!(desk.count("attach v1") == 1, "{}", desk.story());
    let not_after = until.saturating_sub(s(12));
    for sent in mutations(&desk) {
        assert_eq!(sent.command.not_after, Some(not_after), "{}", sent.text);
        assert_eq!(sent.command.term, Term(1));
        assert!(sent.at < not_after);
    }
    desk.take_mutations();
    desk.remove_pod("a");
    desk.add_volume("v2");
    desk.run(s(1));
    desk.take_mutations();
    desk.add_pod("b", "n2", &["v2"]);
    desk.run(s(120));
    desk.expect(&[]);
    desk.tell_guard(None);
    desk.run(s(120));
    desk.expect(&[]);
}

#[test]
fn a_renewed_guard_moves_the_limit_and_a_read_has_none() {
    let mut desk = bare();
    desk.guard(Some(s(40)));
    desk.list_everything();
    desk.run(s(20));
    let since = desk.now.monotonic.saturating_sub(s(20));
    let until = desk.now.monotonic + s(40);
    desk.tell_guard(Some(Guard { term: Term(1), since, until: Some(until) }));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run(s(15));
    assert!(mutations(&desk).count() >= 4, "{}", desk.story());
    for sent in &desk.sent {
        let expected = (sent.is_mutation() || sent.text.starts_with("event ")).then(|| until.saturating_sub(s(12)));
        assert_eq!(sent.command.not_after, expected, "{}", sent.text);
    }
}

#[test]
fn commands_have_ids_of_their_own() {
    let desk = Desk::using_v1();
    let ids: std::collections::BTreeSet<CommandId> = desk.sent.iter().map(|sent| sent.command.id).collect();
    assert_eq!(ids.len(), desk.sent.len());
}

#[test]
fn what_was_not_sent_has_no_effect_and_is_decided_anew() {
    let script = ["protect", "create", "attach v1", "attached", "list n1 [v1]"];
    for command in script {
        let mut desk = Desk::new();
        desk.answer(command, Reply::Is(CallResult::NotSent));
        desk.use_volume("a", "n1", "v1");
        desk.assert_count(command, 2);
    }
    for command in ["list n1 []", "get-node n1", "list-pods n1", "delete v1", "detach v1", "finish v1"] {
        let mut desk = Desk::using_v1();
        desk.answer(command, Reply::Is(CallResult::NotSent));
        desk.end_pod("a", "n1");
        desk.run(s(120));
        desk.assert_count(command, 2);
        assert!(desk.is_all_gone("v1"), "{command}\n{}", desk.story());
    }
}

#[test]
fn what_was_throttled_has_no_effect_and_is_tried_again_later() {
    for command in ["protect", "create", "attach v1", "attached", "list n1 [v1]"] {
        let mut desk = Desk::new();
        desk.answer(command, Reply::Is(CallResult::Throttled));
        desk.use_volume("a", "n1", "v1");
        let times = desk.times(command);
        assert_eq!(times.len(), 2, "{command}\n{}", desk.story());
        assert!(times[1] >= times[0] + Duration::from_millis(500), "{command}: {times:?}");
    }
}

#[test]
fn what_the_api_server_may_have_done_is_read_before_anything_else_is_written_to_the_object() {
    for (reply, lost) in [(Reply::LostAnswer, false), (Reply::Lost, true)] {
        for (command, read) in
            [("create v1", "get v1 n1"), ("attached v1", "get v1 n1"), ("list n1 [v1]", "get-node n1")]
        {
            let mut desk = Desk::new();
            desk.answer(command, reply.clone());
            desk.use_volume("a", "n1", "v1");
            desk.run(s(30));
            assert!(desk.count(read) >= 1, "{command}\n{}", desk.story());
            desk.assert_count(command, if lost { 2 } else { 1 });
            desk.assert_count("attach v1", 1);
        }
        // The watch tells that a finished one is gone: that settles it too.
        for (command, read) in [("list n1 []", "get-node n1"), ("delete v1", "get v1 n1"), ("finish v1", "finish v1")] {
            let mut desk = Desk::using_v1();
            desk.answer(command, reply.clone());
            desk.end_pod("a", "n1");
            desk.run(s(200));
            assert!(desk.count(read) >= 1, "{command}\n{}", desk.story());
            assert!(desk.is_all_gone("v1"), "{command}\n{}", desk.story());
            desk.assert_count("detach v1", 1);
        }
    }
}

#[test]
fn a_second_outcome_and_one_of_nobody_change_nothing() {
    let mut desk = Desk::using_v1();
    let attach = desk.sent.iter().find(|sent| sent.text.starts_with("attach v1")).unwrap().command.id;
    for id in [attach, CommandId(9999)] {
        for result in [CallResult::NotSent, CallResult::Uncertain("late".into()), CallResult::Done(Answer::Accepted)] {
            let outcome = Outcome { id, began: desk.now, ended: desk.now, result };
            desk.tell(EventKind::Outcome(outcome));
            desk.run(s(300));
        }
    }
    desk.expect(&[]);
}

/// kube-controller-manager makes the VolumeAttachments here.
fn attacher_alone() -> Desk {
    Desk::with(Settings { roles: [Role::Attacher].into(), ..Settings::default() }, Policy::FULL)
}

#[test]
fn without_attach_detach_pods_lead_to_nothing() {
    let mut desk = attacher_alone();
    desk.add_pod("a", "n1", &["v1"]);
    desk.in_use("n1", &["v1"]);
    desk.run(s(300));
    desk.expect(&[]);
}

#[test]
fn without_attach_detach_a_volume_attachment_is_recorded_attached_and_never_listed() {
    let mut desk = attacher_alone();
    desk.add_pod("a", "n1", &["v1"]);
    desk.make_va("v1", "n1");
    desk.run(s(60));
    let sent = desk.take_mutations();
    let attach = sent.iter().position(|text| text == "attach v1 i1 xvdaa").unwrap();
    let record = sent.iter().position(|text| text == "record v1 n1 xvdaa").unwrap();
    assert!(record < attach && sent.contains(&"attached v1 n1 xvdaa".to_owned()), "{sent:?}");
    desk.assert_never("list n1");
    desk.assert_never("create");
    // The deletion is the order: kube-controller-manager climbed the ladder.
    desk.remove_pod("a");
    desk.run(s(30));
    desk.expect(&[]);
    desk.delete_va("v1", "n1");
    desk.run(s(60));
    desk.expect(&["detach v1 i1 xvdaa", "finish v1 n1"]);
    assert!(desk.va("v1", "n1").is_none());
}

#[test]
fn a_sabotaged_guard_is_what_these_tests_would_see() {
    let mut desk = Desk::bare(Settings::default(), Policy::without([Rule::GuardedMutations]));
    desk.guard(Some(s(20)));
    desk.list_everything();
    desk.run(s(60));
    desk.add_pod("a", "n1", &["v1"]);
    desk.run_to("attach v1 i1", s(10));
    assert!(mutations(&desk).all(|sent| sent.command.not_after.is_none()));
}
