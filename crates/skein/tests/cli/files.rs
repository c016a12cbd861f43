//! Files that are not sources: missing, folders, pipes, devices, empty, not text, too large.

use std::process::Command;

use crate::session::{Folder, Session};

#[test]
fn whatever_a_path_leads_to_is_told_and_never_waited_for() {
    let folder = Folder::new();
    folder.write("empty.yaml", "").write("blank.yaml", "\n\n  \n").write("folder/readme.txt", "");
    folder.write("latin.yaml", b"name: caf\xe9\n").write("large.yaml", "#".repeat(1024 * 1024 + 1));
    let made = Command::new("mkfifo").arg(folder.0.join("pipe.yaml")).status().expect("mkfifo is there");
    assert!(made.success());
    std::os::unix::fs::symlink("nowhere", folder.0.join("dangling.yaml")).expect("a link can be made");
    let names = ["missing.yaml", "folder", "pipe.yaml", "/dev/zero", "empty.yaml", "blank.yaml", "latin.yaml"];
    let mut session = Session::within(&folder.0);
    for name in names.into_iter().chain(["large.yaml", "dangling.yaml"]) {
        session.skein(&format!("validate {name}"), if name == "folder" { 0 } else { 3 });
        let unresolved = ["missing.yaml", "folder", "dangling.yaml"].contains(&name);
        session.skein(&format!("plan {name}"), if unresolved { 5 } else { 3 });
    }
    session.skein("plan missing.yaml --format json", 5).skein("plan pipe.yaml --format json", 3);
    session.is("files");
}

/// A folder is searched without opening special files and without following links, which may form cycles.
#[test]
fn a_folder_of_pipes_and_links() {
    let folder = Folder::new();
    folder.write("inner/good.yaml", crate::validate::GOOD);
    let made = Command::new("mkfifo").arg(folder.0.join("pipe.yaml")).status().expect("mkfifo is there");
    assert!(made.success());
    std::os::unix::fs::symlink("..", folder.0.join("inner/round")).expect("a link can be made");
    Session::within(&folder.0).skein("validate .", 0).is("files-folder");
}

#[test]
fn what_a_workflow_says_cannot_command_the_terminal() {
    let folder = Folder::new();
    let text = crate::validate::GOOD.replace("name: good", "name: good\ndescription: \"a\\eb[2J\\r\\u202Ec\"");
    folder.write("shifty.yaml", text);
    Session::within(&folder.0).skein("plan shifty.yaml", 0).skein("show shifty.yaml", 0).is("files-shifty");
}

#[test]
fn a_folder_too_deep_to_look_into_is_told() {
    let folder = Folder::new();
    folder.write(&format!("{}good.yaml", "d/".repeat(63)), crate::validate::GOOD);
    let mut session = Session::within(&folder.0);
    session.skein("validate .", 0);
    folder.write(&format!("{}good.yaml", "d/".repeat(64)), crate::validate::GOOD);
    session.skein("validate .", 3);
    session.is("files-deep");
}
