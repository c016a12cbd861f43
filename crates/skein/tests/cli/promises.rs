//! The promises of the README: each names the tests that prove it, and those exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::session::repository;

const TITLE: &str = "## What it promises";

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

/// The names of all functions that are marked as tests, or named as one for each agent.
fn tests() -> BTreeSet<String> {
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

#[test]
fn every_promise_has_tests_and_they_exist() {
    let readme = fs::read_to_string(repository().join("README.md")).expect("it is there");
    let section = readme.split(TITLE).nth(1).expect("the README has promises");
    let section = section.split("\n## ").next().expect("it has an end");
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter(|line| !line.contains("| proven by"))
        .collect();
    assert!(rows.len() >= 10, "each promise has a line");
    let tests = tests();
    for row in rows {
        let proof = row.split('|').nth(2).unwrap_or_else(|| panic!("a promise and its tests: {row}"));
        let named: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "a promise without a test: {row}");
        for name in named {
            assert!(tests.contains(name), "there is no test `{name}`: {row}");
        }
    }
}
