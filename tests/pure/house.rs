//! The form every file keeps: short, headed, and free of words that say nothing.

use crate::source::{Source, sources_below};

/// A file that is longer holds two things.
const FILE_LINES: usize = 600;
/// A function that is longer does two things. (70, and the signature of a long one.)
const FUNCTION_LINES: usize = 75;

/// Endings of names that say nothing of what is behind them.
const EMPTY_NAMES: [&str; 4] = ["Manager", "Helper", "Util", "Handler"];

/// Words that praise; and names of places that are nobody's business.
const BANNED: [&str; 11] = [
    "blazing",
    "seamless",
    "leverage",
    "cutting-edge",
    "state-of-the-art",
    "effortless",
    "battle-tested",
    "world-class",
    "todo!(",
    "unimplemented!(",
    "FIXME",
];

fn all_sources() -> Vec<Source> {
    let mut sources = sources_below("src");
    sources.extend(sources_below("tests"));
    sources
}

fn assert_none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn files_are_short() {
    let long = all_sources().into_iter().filter_map(|source| {
        let lines = source.text.lines().count();
        (lines >= FILE_LINES).then(|| format!("{}: {lines} lines", source.path))
    });
    assert_none(long.collect());
}

#[test]
fn functions_are_short() {
    let long = all_sources().into_iter().flat_map(|source| {
        let found = functions(&source.text).into_iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES);
        found.map(|(line, name, lines)| format!("{}:{line}: {name}: {lines} lines", source.path)).collect::<Vec<_>>()
    });
    assert_none(long.collect());
}

#[test]
fn every_module_says_what_it_is() {
    let bare = all_sources().into_iter().filter(|source| !source.text.starts_with("//! "));
    assert_none(bare.map(|source| format!("{}: no module head", source.path)).collect());
}

#[test]
fn no_word_is_wasted() {
    let mut wrong = Vec::new();
    for source in all_sources().into_iter().filter(|source| source.path != "tests/pure/house.rs") {
        for (index, line) in source.text.lines().enumerate() {
            if let Some(word) = BANNED.iter().find(|word| line.contains(**word)) {
                wrong.push(format!("{}:{}: {word}", source.path, index + 1));
            }
            if let Some(name) = type_name(line)
                && EMPTY_NAMES.iter().any(|ending| name.ends_with(ending))
            {
                wrong.push(format!("{}:{}: {name}", source.path, index + 1));
            }
        }
    }
    assert_none(wrong);
}

#[test]
fn the_counter_of_lines_counts() {
    let text = "impl A {\n    pub fn short(&self) {}\n\n    fn long(\n        a: u8,\n    ) {\n        b();\n    }\n}\nfn top() {\n}\n";
    let found: Vec<(String, usize)> = functions(text).into_iter().map(|(_, name, lines)| (name, lines)).collect();
    assert_eq!(found, [("short".to_owned(), 1), ("long".to_owned(), 5), ("top".to_owned(), 2)]);
}

/// Line, name and length of every function, by the indentation that rustfmt gives.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indentation = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indentation}}}");
        let one_line = line.ends_with('}') || line.ends_with(';');
        let length = if one_line {
            1
        } else {
            // A declaration without a body ends with a semicolon before any closing brace.
            lines[index..].iter().position(|line| *line == end).map_or(1, |length| length + 1)
        };
        found.push((index + 1, name, length));
    }
    found
}

/// The name of the type a line defines.
fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    ["struct", "enum", "trait", "type"].contains(&words.next()?).then_some(())?;
    words.next()?.split(['<', '(', '{', ';', ':', '=']).next()
}

fn function_name(line: &str) -> Option<String> {
    let line = line.trim_start();
    if line.starts_with("//") {
        return None;
    }
    let mut words = line.split_whitespace().skip_while(|word| {
        matches!(*word, "pub" | "const" | "async" | "unsafe") || word.starts_with("pub(") || *word == "super)"
    });
    (words.next()? == "fn").then_some(())?;
    let name = words.next()?;
    Some(name.split(['(', '<']).next()?.to_owned())
}
