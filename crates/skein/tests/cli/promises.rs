//! The promises of the README: each names the tests that prove it, and those exist.

use std::fs;

use crate::{
    proofs::{named, tests},
    session::repository,
};

const TITLE: &str = "## Guarantees";

#[test]
fn every_promise_has_tests_and_they_exist() {
    let readme = fs::read_to_string(repository().join("README.md")).expect("it is there");
    let section = readme.split(TITLE).nth(1).expect("the README has promises");
    let section = section.split("\n## ").next().expect("it has an end");
    let rows: Vec<&str> =
        section.lines().filter(|line| line.starts_with("| ")).filter(|line| !line.contains("| proven by")).collect();
    assert!(rows.len() >= 10, "each promise has a line");
    let tests = tests();
    for row in rows {
        let proof = row.split('|').nth(2).unwrap_or_else(|| panic!("a promise and its tests: {row}"));
        let named = named(proof);
        assert!(!named.is_empty(), "a promise without a test: {row}");
        for name in named {
            assert!(tests.contains(name), "there is no test `{name}`: {row}");
        }
    }
}
