//! Proofs that documents name: tests by the name of their function, and input files by their path.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::session::repository;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it is a folder").map(|entry| entry.expect("it can be read")) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The names of all functions that are marked as tests, or declared as one for each agent.
pub(crate) fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&repository().join("crates"), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("it is text");
        let (mut marked, mut each) = (false, false);
        for line in text.lines().map(str::trim) {
            each |= line.starts_with("for_each_agent!(");
            if each {
                let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                names.extend(words.map(str::to_owned));
                each = !line.ends_with(");");
            } else if line == "#[test]" || line == "alone! {" {
                marked = true;
            } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| marked) {
                names.extend(rest.split('(').next().map(str::to_owned));
                marked = false;
            }
        }
    }
    names
}

/// The texts between backticks.
pub(crate) fn named(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
