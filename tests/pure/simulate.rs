//! `attachd simulate` as a newcomer meets it: the binary, its exit codes and what it writes.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_attachd")).arg("simulate").args(arguments).output().expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    for scenario in ["rollout", "chaos"] {
        let arguments = [scenario, "--seed", "7", "--nodes", "4", "--volumes", "6"];
        let (first, second) = (simulate(&arguments), simulate(&arguments));
        assert!(first.stdout.len() > 1_000, "{}", stdout(&first));
        assert!(first.stdout == second.stdout, "two runs of {scenario} with one seed differ");
        let other = simulate(&[scenario, "--seed", "8", "--nodes", "4", "--volumes", "6"]);
        assert!(first.stdout != other.stdout, "the seed of {scenario} changes nothing");
    }
}

#[test]
fn without_a_scenario_it_rolls_out() {
    let output = simulate(&[]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("rollout"), "{text}");
    assert!(text.contains("all hold"), "{text}");
    assert!(!text.contains('\u{1b}'), "colours only go to a terminal");
}

#[test]
fn the_list_explains_each_scenario_in_one_line() {
    let text = stdout(&simulate(&["--list"]));
    let scenarios =
        ["rollout", "node-drain", "node-loss", "instance-terminated", "stopped", "kubelet-dead", "burst", "restart"];
    for name in
        scenarios.into_iter().chain(["silent-detach", "stale-reads", "api-outage", "chaos", "placed", "sabotage"])
    {
        let line = text.lines().find(|line| line.trim_start().starts_with(name));
        assert!(line.is_some_and(|line| line.split_whitespace().count() > 4), "{name} in:\n{text}");
    }
    assert!(stdout(&simulate(&["--help"])).contains("node-drain"));
}

#[test]
fn upstream_is_said_at_its_moments_and_set_beside_ours() {
    let text = stdout(&simulate(&["instance-terminated"]));
    let of_upstream: Vec<&str> = text.lines().filter(|line| line.contains("  upstream  ")).collect();
    assert!(of_upstream.iter().any(|line| line.contains("368 s after it was made")), "{text}");
    let compared = text.lines().find(|line| line.contains("pod made anew → running"));
    assert!(compared.is_some_and(|line| line.contains("s here, 368 s upstream (measured)")), "{text}");
    assert!(!stdout(&simulate(&["rollout"])).contains("upstream"), "only what was measured");
}

#[test]
fn json_is_one_document() {
    let output = simulate(&["rollout", "--json", "--nodes", "4", "--volumes", "6"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["violations"].as_array().map(Vec::len), Some(0));
    assert!(document["timeline"].as_array().is_some_and(|timeline| timeline.len() > 20));
    assert!(document["calls"]["AttachVolume"]["sent"].as_u64().is_some_and(|sent| sent >= 6));
}

#[test]
fn what_cannot_be_run_says_what_can() {
    let output = simulate(&["roll-out"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("\"roll-out\"") && error.contains("rollout"), "{error}");
    assert_eq!(simulate(&["--place", "nowhere:taint-n1@3"]).status.code(), Some(2));
}
