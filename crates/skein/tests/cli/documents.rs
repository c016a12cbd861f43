//! The README and the page of the command line: what they show is what the program prints.

use std::fs;

use crate::session::{Folder, repository, run, skein};

/// The blocks of a page that show a session: each begins with `$ skein …`, and the program is run to compare.
fn sessions(page: &str) -> Vec<String> {
    let text = fs::read_to_string(repository().join(page)).expect("the page is there");
    let blocks = text.split("```").skip(1).step_by(2);
    let shown = blocks.filter_map(|block| block.split_once('\n').map(|(_, inside)| inside.to_owned()));
    shown.filter(|inside| inside.starts_with("$ skein")).collect()
}

/// The files that the examples of the pages are about.
fn folder() -> Folder {
    let folder = Folder::new();
    let broken = fs::read(repository().join("docs/broken.yaml")).expect("it is there");
    folder.write("broken.yaml", broken);
    let examples = repository().join("examples");
    std::os::unix::fs::symlink(examples, folder.0.join("examples")).expect("a link can be made");
    folder
}

fn check(page: &str, least: usize) {
    let folder = folder();
    let sessions = sessions(page);
    assert!(sessions.len() >= least, "{page} shows {} sessions", sessions.len());
    for session in sessions {
        for shown in session.split("\n$ ").map(|part| part.trim_start_matches("$ ")) {
            let (line, printed) = shown.split_once('\n').unwrap_or((shown, ""));
            let words = line.split_whitespace().skip(1);
            let done = run(skein(&folder.0).args(words));
            let now = format!("{}{}", done.err, done.out);
            assert_eq!(printed.trim(), now.trim(), "{page} shows something else for `{line}`:\n{now}");
        }
    }
}

#[test]
fn the_readme_shows_what_is_printed() {
    check("README.md", 2);
}

#[test]
fn the_page_of_the_command_line_shows_what_is_printed() {
    check("docs/cli.md", 5);
}
