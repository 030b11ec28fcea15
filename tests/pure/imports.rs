//! Imports run one way: between rooms by the table below, and within a room without circles.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, sources_below};

/// Room → the rooms it may import from. What is not in the table may import nothing.
const ALLOWED: [(&str, &[&str]); 9] = [
    ("model", &[]),
    ("controller", &["model"]),
    ("config", &["model", "controller"]),
    ("kubernetes", &["model", "controller"]),
    ("ec2", &["model", "controller"]),
    ("sim", &["model", "controller"]),
    ("sandbox", &["model", "controller", "sim"]),
    ("daemon", &["model", "controller", "config", "kubernetes", "ec2", "sim", "sandbox"]),
    ("cli", &["model", "controller", "config", "kubernetes", "ec2", "sim", "sandbox", "daemon"]),
];

#[test]
fn rooms_import_only_what_the_table_allows() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into();
    let mut wrong = Vec::new();
    for source in sources_below("src") {
        let module = source.module();
        let Some(room) = module.first().filter(|room| *room != "main") else { continue };
        for (line, path) in imported_paths(&source) {
            let Some(target) = path.first() else { continue };
            let fine = target == room || allowed.get(room.as_str()).is_some_and(|to| to.contains(&target.as_str()));
            if !fine {
                wrong.push(format!("{}:{line}: {room} must not import from {target}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn modules_of_a_room_import_in_no_circle() {
    let sources = sources_below("src");
    let modules: BTreeSet<Vec<String>> = sources.iter().map(Source::module).collect();
    // For each parent: which of its children import from which others.
    let mut siblings: BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for source in &sources {
        let from = source.module();
        for (_, path) in imported_paths(source) {
            let to = longest_module(&modules, &path);
            let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(child)) = (from.get(common), to.get(common)) {
                let parent = to[..common].to_vec();
                siblings.entry(parent).or_default().entry(from.clone()).or_default().insert(child.clone());
            }
        }
    }
    let circles: Vec<String> = siblings
        .iter()
        .filter_map(|(parent, edges)| Some(format!("in {}: {}", parent.join("::"), circle(edges)?.join(" → "))))
        .collect();
    assert!(circles.is_empty(), "\n{}", circles.join("\n"));
}

#[test]
fn the_reader_of_imports_understands_what_it_reads() {
    let text = "use crate::a::{b::C, d::{E, f}};\nuse super::g;\nfn h() { crate::i::j(); }\n// use crate::no;\n";
    let source = Source { path: "src/x/y.rs".to_owned(), text: text.to_owned() };
    let paths: Vec<String> = imported_paths(&source).into_iter().map(|(_, path)| path.join("::")).collect();
    assert_eq!(paths, ["a::b::C", "a::d::E", "a::d::f", "x::g", "i::j"]);
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        edges
    };
    assert_eq!(circle(&edges(&[("a", "b"), ("b", "c")])), None);
    assert!(circle(&edges(&[("a", "b"), ("b", "c"), ("c", "a")])).is_some());
}

/// Every path that starts with `crate::` or `super::`, as segments from the crate's root, with its line.
fn imported_paths(source: &Source) -> Vec<(usize, Vec<String>)> {
    let module = source.module();
    let code: Vec<(usize, &str)> = source.code_lines().collect();
    let mut paths = Vec::new();
    for (index, (line, text)) in code.iter().enumerate() {
        // A module of tests inside a file is one level deeper, and its `super::` is the file itself.
        let nested = text.starts_with(' ') && text.trim_start().starts_with("use super::");
        for (start, keyword) in text.match_indices("crate::").chain(text.match_indices("super::")) {
            let before = text[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$') {
                continue;
            }
            let rest: String = std::iter::once(&text[start..])
                .chain(code[index + 1..].iter().map(|(_, text)| *text).take_while(|_| text.starts_with("use ")))
                .collect::<Vec<_>>()
                .join(" ");
            let base = if keyword == "crate::" || nested { Vec::new() } else { module.clone() };
            if !nested {
                paths.extend(expand(&base, &rest).into_iter().map(|path| (*line, path)));
            }
        }
    }
    paths
}

/// The paths a use tree stands for.
fn expand(base: &[String], tree: &str) -> Vec<Vec<String>> {
    let mut at = base.to_vec();
    let mut rest = tree;
    loop {
        rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            return split_group(inner).iter().flat_map(|part| expand(&at, part)).collect();
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        match &rest[..end] {
            "" => break,
            "crate" => at.clear(),
            "super" => {
                at.pop();
            }
            "self" => {}
            segment => at.push(segment.to_owned()),
        }
        match rest[end..].strip_prefix("::") {
            Some(more) => rest = more,
            None => break,
        }
    }
    vec![at]
}

/// The parts of a group up to its closing brace, split at the commas of its own level.
fn split_group(inner: &str) -> Vec<String> {
    let (mut parts, mut part, mut depth) = (Vec::new(), String::new(), 0usize);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    parts.push(part);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn longest_module(modules: &BTreeSet<Vec<String>>, path: &[String]) -> Vec<String> {
    (0..=path.len()).rev().map(|end| path[..end].to_vec()).find(|prefix| modules.contains(prefix)).unwrap_or_default()
}

/// A circle among siblings, if there is one.
fn circle(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(edges: &BTreeMap<String, BTreeSet<String>>, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let Some(last) = path.last().cloned() else { return false };
        for next in edges.get(&last).into_iter().flatten() {
            if path.contains(next) {
                path.push(next.clone());
                return true;
            }
            if !done.contains(next) {
                path.push(next.clone());
                if walk(edges, path, done) {
                    return true;
                }
                path.pop();
            }
        }
        done.insert(last);
        false
    }
    let mut done = BTreeSet::new();
    edges.keys().find_map(|start| {
        let mut path = vec![start.clone()];
        walk(edges, &mut path, &mut done).then_some(path)
    })
}
