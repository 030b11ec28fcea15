//! docs/operations.md explains everything attachd says: every reason, every metric, every event.

use std::collections::BTreeSet;

use crate::source::sources_below;

fn operations() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    std::fs::read_to_string(path).expect("docs/operations.md")
}

fn text_of(path: &str) -> String {
    sources_below("src").into_iter().find(|source| source.path == path).expect("a source file").text
}

/// The double-quoted texts of some lines of code.
fn quoted(line: &str) -> impl Iterator<Item = String> + '_ {
    line.split('"').skip(1).step_by(2).map(str::to_owned)
}

#[track_caller]
fn assert_explained(names: BTreeSet<String>, at_least: usize) {
    assert!(names.len() >= at_least, "found too few to be all: {names:?}");
    let page = operations();
    let missing: Vec<String> = names.into_iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/operations.md: {missing:?}");
}

#[test]
fn every_reason_is_explained() {
    let text = text_of("src/controller/reason.rs");
    let labels = text.split("fn label(").nth(1).and_then(|rest| rest.split("\n    }\n").next()).expect("fn label");
    assert_explained(labels.lines().flat_map(quoted).collect(), 35);
}

#[test]
fn every_event_is_explained() {
    let text = text_of("src/controller/notes/event_text.rs");
    let constants = text.lines().filter(|line| line.starts_with("pub const ") && line.contains(": &str = "));
    assert_explained(constants.flat_map(quoted).collect(), 12);
}

#[test]
fn every_metric_is_explained() {
    let mut names = BTreeSet::new();
    for source in sources_below("src/daemon") {
        let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        let prefixes = ["attachd_", "attachdetach_", "attach_detach_", "storage_operation_", "process_"];
        let is_name = |text: &String| prefixes.iter().any(|prefix| text.starts_with(prefix)) && !text.contains(' ');
        names.extend(code.lines().flat_map(quoted).filter(is_name));
    }
    // The encoder appends `_total` to counters.
    let page = operations();
    let shown = |name: String| if page.contains(&format!("`{name}_total`")) { format!("{name}_total") } else { name };
    assert_explained(names.into_iter().map(shown).collect(), 25);
}
