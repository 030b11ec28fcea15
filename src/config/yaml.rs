//! A YAML file as a flat list of keys with their lines, so that every error can name both.
//!
//! Flow: [`super::Config::load`] gives the text, and looks every key up in its own table. Must know no key.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::Given;

/// One key of the file, spelled as a path with dots.
#[derive(Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) path: String,
    /// The line of the key, counted from 1.
    pub(super) line: u64,
    pub(super) given: Given,
}

/// The text is not the YAML of a configuration.
#[derive(Debug, PartialEq)]
pub(super) struct YamlError {
    /// 0 when the parser names no line.
    pub(super) line: u64,
    pub(super) message: String,
}

/// Every key of the file, in its order. An empty section (`ec2:`) is an entry without a value.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, YamlError> {
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    let root: Option<Spanned<Node>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| YamlError {
            line: error.location().map_or(0, |location| location.line()),
            message: error.render_with_formatter(&serde_saphyr::UserMessageFormatter),
        })?;
    let mut entries = Vec::new();
    match root {
        None => Ok(entries),
        Some(Spanned { value: Node::Empty, .. }) => Ok(entries),
        Some(Spanned { value: Node::Map(map), .. }) => {
            flatten("", map, &mut entries)?;
            Ok(entries)
        }
        Some(other) => Err(YamlError {
            line: other.referenced.line(),
            message: "expected keys and values (key: value)".to_owned(),
        }),
    }
}

fn flatten(prefix: &str, map: Vec<(Spanned<String>, Node)>, into: &mut Vec<Entry>) -> Result<(), YamlError> {
    for (key, node) in map {
        let line = key.referenced.line();
        let path = if prefix.is_empty() { key.value } else { format!("{prefix}.{}", key.value) };
        let given = match node {
            Node::Map(map) => {
                flatten(&path, map, into)?;
                continue;
            }
            Node::Empty => Given::Nothing,
            Node::Scalar(text) => Given::Text(text),
            Node::List(items) => {
                let texts = items.into_iter().map(|item| match item {
                    Node::Scalar(text) => Ok(text),
                    Node::Empty | Node::List(_) | Node::Map(_) => {
                        Err(YamlError { line, message: format!("{path}: expected a list of plain values") })
                    }
                });
                Given::List(texts.collect::<Result<_, _>>()?)
            }
        };
        into.push(Entry { path, line, given });
    }
    Ok(())
}

/// Any YAML value; scalars as text, for the table of keys to read.
enum Node {
    Empty,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(Spanned<String>, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a section")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Empty)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Empty)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = access.next_entry()? {
            map.push(entry);
        }
        Ok(Node::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, line: u64, text: &str) -> Entry {
        Entry { path: path.to_owned(), line, given: Given::Text(text.to_owned()) }
    }

    #[test]
    fn sections_become_paths_and_every_key_keeps_its_line() {
        let file =
            "# a comment\nlisten: 127.0.0.1:9808\nec2:\n  # another\n  mutatingBurst: 50\n  region:\nroles: [a, b]\n";
        assert_eq!(
            entries(file).unwrap(),
            [
                text("listen", 2, "127.0.0.1:9808"),
                text("ec2.mutatingBurst", 5, "50"),
                Entry { path: "ec2.region".to_owned(), line: 6, given: Given::Nothing },
                Entry { path: "roles".to_owned(), line: 7, given: Given::List(vec!["a".to_owned(), "b".to_owned()]) },
            ]
        );
    }

    #[test]
    fn an_empty_file_is_an_empty_configuration() {
        assert_eq!(entries("").unwrap(), []);
        assert_eq!(entries("# only a comment\n").unwrap(), []);
    }

    #[test]
    fn words_that_old_yaml_took_for_booleans_stay_words() {
        assert_eq!(entries("forceDetach: off\n").unwrap(), [text("forceDetach", 1, "off")]);
    }

    #[test]
    fn a_duplicate_key_is_an_error_with_its_line() {
        let error = entries("listen: 127.0.0.1:1\n\nlisten: 127.0.0.1:2\n").unwrap_err();
        assert_eq!(error.line, 3, "{error:?}");
        assert!(error.message.contains("listen"), "{error:?}");
    }

    #[test]
    fn broken_yaml_names_the_line() {
        let error = entries("listen: 127.0.0.1:1\nroles: [a\nlog: {}\n").unwrap_err();
        assert!(error.line >= 2, "{error:?}");
    }
}
