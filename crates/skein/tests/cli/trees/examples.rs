//! The examples of the page on workspaces, run unchanged.

use super::repository;
use crate::session::repository as project;

/// The YAML blocks of the page.
fn blocks() -> Vec<String> {
    let page = std::fs::read_to_string(project().join("docs/workspaces.md")).expect("the page is there");
    let parts = page.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix("yaml\n").map(str::to_owned)).collect()
}

#[test]
fn the_examples_of_the_page_run() {
    let blocks = blocks();
    assert!(blocks.len() >= 3, "the page has {} examples", blocks.len());
    for block in blocks {
        let place = repository(&block);
        place.folder.write("src/a.txt", "a\n").write("src/b.txt", "b\n");
        let told = place.ends("run flow.yaml", 0);
        assert!(!told.contains("Not merged"), "{block}\n{told}");
    }
}
