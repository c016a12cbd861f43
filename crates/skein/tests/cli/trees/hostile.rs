//! Repositories and workers that try to make the engine run a program.

use std::{fs, os::unix::fs::PermissionsExt};

use super::{apart, flow, repository, step};
use crate::{kept::Project, run::git};

/// A program that leaves a trace whenever it runs.
fn evil(project: &Project) -> String {
    let path = project.path("evil.sh");
    let trace = project.path("evil-was-here").display().to_string();
    project.folder.write("evil.sh", format!("#!/bin/sh\ntouch {trace}\ncat\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn nothing_that_a_repository_names_is_run() {
    let steps = apart("one", "", "sed -i s/one/ONE/ a.txt; echo x > b.txt")
        + &apart("two", "", "sed -i s/seven/SEVEN/ a.txt")
        + &step("three", "depends_on: [one, two]", "echo y >> a.txt");
    let project = repository(&flow(&steps));
    let evil = evil(&project);
    project.folder.write(".gitattributes", "*.txt filter=evil diff=evil merge=evil text eol=crlf\n");
    let keys = [
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "core.fsmonitor",
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "merge.evil.driver",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "gpg.program",
        "core.alternateRefsCommand",
    ];
    for key in keys {
        git(&project.folder, &["config", key, &evil]);
    }
    git(&project.folder, &["config", "filter.evil.required", "true"]);
    git(&project.folder, &["config", "commit.gpgSign", "true"]);
    fs::create_dir_all(project.path(".git/hooks")).unwrap();
    for hook in
        ["post-checkout", "post-index-change", "pre-commit", "post-commit", "post-merge", "reference-transaction"]
    {
        fs::copy(&evil, project.path(&format!(".git/hooks/{hook}"))).unwrap();
    }
    let _ = fs::remove_file(project.path("evil-was-here"));
    project.json("run flow.yaml", 0);
    assert!(!project.path("evil-was-here").exists());
    assert_eq!(project.read("a.txt"), "ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\ny\n", "to the byte, without filters");
    assert_eq!(project.read("b.txt"), "x\n");
    git(&project.folder, &["status"]);
    assert!(project.path("evil-was-here").exists(), "whoever asks as usual runs it");
}

/// A worker owns the git folder of its worktree, and can plant another repository in the workspace. The engine uses
/// neither.
#[test]
fn nothing_that_a_worker_plants_is_run() {
    let plant = "mkdir -p sub/.git/objects sub/.git/refs; echo 'ref: refs/heads/main' > sub/.git/HEAD; \
        printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = EVIL\\n\\thooksPath = /\\n' > sub/.git/config; \
        git init --quiet other 2>/dev/null; (cd other; git config core.fsmonitor EVIL; echo x > x; true); \
        cp sub/.git/config .git/config.worktree 2>/dev/null; echo ../sub/.git > .git/commondir; rm -f .git/HEAD; \
        echo '*.txt filter=x' > .gitattributes; echo planted > planted.txt";
    let project = repository("");
    let evil = evil(&project);
    let plant = plant.replace("EVIL", &evil);
    let shared = plant.replace(".git/commondir", "/dev/null").replace("rm -f .git/HEAD", "true");
    let steps = apart("own", "", &plant)
        + &step("shared", "depends_on: [own]", &shared)
        + &step("again", "depends_on: [shared]", "echo more > more.txt; echo x > other/y")
        + &apart("last", "", "echo last > last.txt").replace("  last:", "  last:\n    depends_on: [again]");
    // The files that control git are not even protected.
    let unprotected = flow(&steps).replacen("timeout: 10m\n", "timeout: 10m\nx-skein: {unprotect: [\"**\"]}\n", 1);
    project.folder.write("flow.yaml", unprotected);
    let _ = fs::remove_file(project.path("evil-was-here"));
    project.json("run flow.yaml", 0);
    assert!(!project.path("evil-was-here").exists());
    assert_eq!(project.read("planted.txt"), "planted\n");
    assert_eq!(project.read("last.txt"), "last\n");
    git(&project.folder, &["-C", "other", "status"]);
    assert!(project.path("evil-was-here").exists(), "whoever asks as usual runs it");
}

/// A folder that has become a link leads no write out of the workspace.
#[test]
fn a_merge_does_not_follow_links() {
    let project = repository("");
    let whole = |name: &str| project.path(name).display().to_string();
    let wait = format!("echo $$ > {}; cat {} > /dev/null", whole("begun"), whole("go"));
    project.folder.write("flow.yaml", flow(&apart("own", "", &format!("mkdir d; echo x > d/x; {wait}"))));
    let going = project.begin("run flow.yaml --format jsonl");
    project.begun();
    let outside = crate::session::Folder::new();
    std::os::unix::fs::symlink(&outside.0, project.path("d")).unwrap();
    project.go();
    let (code, lines, errors) = going.end();
    assert_eq!(code, Some(4), "{lines}{errors}");
    assert!(lines.contains("merge_conflict") || lines.contains("symbolic link"), "{lines}");
    assert!(!outside.0.join("x").exists());
}
