//! Reads the crate's own source for the tests of its form.

use std::fs;
use std::path::{Path, PathBuf};

/// One source file.
pub(crate) struct Source {
    /// Path from the crate's root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

impl Source {
    /// The module it is, as path segments from the crate's root: `src/sim/ec2/mod.rs` is `sim`, `ec2`.
    pub(crate) fn module(&self) -> Vec<String> {
        let stem = self.path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut segments: Vec<String> = stem.split('/').map(str::to_owned).collect();
        if segments.last().is_some_and(|last| last == "mod" || last == "lib") {
            segments.pop();
        }
        segments
    }

    /// Its lines without comments: what the compiler reads, near enough (no string here holds two slashes that matter).
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// Every Rust file below a directory of the crate, in the order of their paths.
pub(crate) fn sources_below(directory: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut open = vec![root.join(directory)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a directory of the crate") {
            let path = entry.expect("a directory entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(read(root, path));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no source below {directory}");
    found
}

fn read(root: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).expect("a source file");
    let path = path.strip_prefix(root).expect("a path below the root").to_string_lossy().replace('\\', "/");
    Source { path, text }
}
