//! Folders that are not repositories: the supported features, and the refused ones.

use std::fs;

use super::{apart, flow, kept, step};
use crate::{
    kept::Project,
    session::{run, without_name_spaces},
};

fn project(workflow: &str) -> Project {
    let project = Project::new();
    project.folder.write("flow.yaml", workflow).write("a.txt", "as it was\n");
    project
}

#[test]
fn a_worktree_needs_a_repository() {
    let project = project(&flow(&apart("it", "", "echo x > new.txt")));
    let plan = project.ends("plan flow.yaml", 0);
    assert!(plan.contains("not available: the project is not in a git repository"), "{plan}");
    let told = project.ends("run flow.yaml", 5);
    assert!(
        told.contains("`it`: a worktree needs a git repository") && told.contains("`git init` creates one"),
        "{told}"
    );
    assert!(!project.path("new.txt").exists());
}

#[test]
fn a_plain_folder_is_put_back_too() {
    let more = "on_failure: retry\n    max_retries: 1\n    x-skein: {workspace: {on_retry: reset}}";
    let script = "set -e\ntest \"$(cat a.txt)\" = 'as it was'; test ! -e new; echo changed > a.txt; mkdir new; echo x > new/x; \
                  test $SKEIN_ATTEMPT -gt 1";
    let project = project(&flow(&step("it", more, script)));
    project.folder.write("kept/.gitignore", "*\n").write("kept/x", "x\n");
    let result = project.json("run flow.yaml", 0);
    assert_eq!(project.read("a.txt"), "changed\n");
    assert_eq!(project.read("kept/x"), "x\n");
    assert!(kept(&project, &result).join("attempts/0.0.1.1.main.1/changes.diff").exists());
}

/// Without a repository and without a reset, no copy of the workspace is kept.
#[test]
fn a_plain_folder_is_not_copied_for_nothing() {
    let project = project(&flow(&step("it", "", "echo x > new.txt")));
    let result = project.json("run flow.yaml", 0);
    assert!(!kept(&project, &result).join("git").exists());
}

#[test]
fn more_than_can_be_kept_is_refused() {
    let more = "x-skein: {workspace: {on_retry: reset}}";
    let project = project(&flow(&step("it", more, "echo x > new.txt")));
    let large = fs::File::create(project.path("large")).unwrap();
    large.set_len(2 * 1024 * 1024 * 1024 + 1).unwrap();
    let told = project.ends("run flow.yaml", 4);
    assert!(told.contains("snapshots of a folder without a git repository are limited to 2147483648"), "{told}");
    assert!(!project.path("new.txt").exists(), "it is not begun");
}

/// Without namespaces, a worktree is still isolated.
#[test]
fn a_tree_behind_rules_alone() {
    let script = "echo x > new.txt; git status --short; echo x > WHOLE/outside.txt && exit 7; true";
    let project = super::repository("");
    let whole = project.folder.0.display().to_string();
    project.folder.write("flow.yaml", flow(&apart("it", "", &script.replace("WHOLE", &whole))));
    let done = run(&mut without_name_spaces(&project.command("run flow.yaml")));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(project.read("new.txt"), "x\n");
    assert!(!project.path("outside.txt").exists());
}
