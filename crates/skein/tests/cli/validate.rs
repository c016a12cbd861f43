//! `skein validate`: several files, folders, severities.

use crate::session::{Folder, Session};

pub(crate) const GOOD: &str = "name: good\nversion: \"1\"\ntimeout: 5m\nsteps:\n  only:\n    worker: CUSTOM\n    instructions: 'true'\n    capabilities: [READ]\n    timeout: 1m\n";
const UNWISE: &str = "name: unwise\nversion: \"1\"\ntimeout: 5m\nsteps:\n  only:\n    worker: CUSTOM\n    instructions: 'true'\n    capabilities: [READ]\n    max_iterations: 4\n";
const WRONG: &str = "name: wrong\nversion: \"1\"\ntimeout: 5m\nsteps:\n  first:\n    worker: CUSTOM\n    instructions: 'true'\n    capabilities: [REED]\n  second:\n    worker: CUSTOM\n    instructions: 'true'\n    capabilities: [READ]\n    depends_on: [frist]\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("good.yaml", GOOD).write("deep/unwise.yaml", UNWISE).write("wrong.yaml", WRONG);
    folder.write("deep/data.json", "[1, 2]").write("deep/notes.md", "Not a workflow.\n");
    folder.write("target/wrong.yaml", WRONG);
    folder
}

#[test]
fn severities_decide_the_exit() {
    let folder = folder();
    let mut session = Session::within(&folder.0);
    session.skein("validate good.yaml", 0).skein("validate good.yaml --format json", 0);
    session.skein("validate deep/unwise.yaml", 0).skein("validate --strict deep/unwise.yaml", 3);
    session.skein("validate --strict deep/unwise.yaml --format json", 3);
    session.skein("validate wrong.yaml", 3).skein("validate wrong.yaml --format json", 3);
    session.is("validate");
}

#[test]
fn folders_are_searched() {
    let folder = folder();
    let mut session = Session::within(&folder.0);
    session.skein("validate .", 3).skein("validate deep good.yaml", 0).skein("validate deep --strict", 3);
    folder.write("empty/readme.txt", "");
    session.skein("validate empty", 0).skein("validate deep/data.json", 3);
    session.is("validate-folders");
}

#[test]
fn what_is_wrong_keeps_the_other_commands_from_working() {
    let folder = folder();
    let mut session = Session::within(&folder.0);
    for command in ["plan", "graph", "show"] {
        session.skein(&format!("{command} wrong.yaml"), 3);
        session.skein(&format!("{command} wrong.yaml --format json"), 3);
    }
    session.is("invalid");
}
