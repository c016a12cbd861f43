//! Attempts after a failure: in the original workspace, in the changed one, or in the changed one with a description of
//! the changes.

use super::{apart, changes, flow, of, repository, step, trees};

/// Fails the first time, after it has changed files.
const TWICE: &str = "echo tried >> tries.txt; rm -f a.txt; echo x > new.txt; \
                     test $SKEIN_ATTEMPT -gt 1";

fn twice(name: &str, workspace: &str, script: &str) -> String {
    let more = format!("on_failure: retry\n    max_retries: 2\n    x-skein: {{workspace: {{{workspace}}}}}");
    step(name, &more, script)
}

#[test]
fn a_workspace_is_kept_unless_told_otherwise() {
    let project = repository(&flow(&twice("it", "on_retry: keep", TWICE)));
    assert!(!project.ends("plan flow.yaml", 0).contains("another attempt"));
    project.json("run flow.yaml", 0);
    assert_eq!(project.read("tries.txt"), "tried\ntried\n");
}

#[test]
fn a_workspace_is_put_back_before_another_attempt() {
    let script = format!("test -e a.txt; test ! -e new.txt; test ! -e deep; mkdir deep; echo x > deep/x; {TWICE}");
    for isolation in ["on_retry: reset", "on_retry: reset, isolation: worktree"] {
        let project = repository(&flow(&twice("it", isolation, &format!("set -e\n{script}"))));
        let plan = project.ends("plan flow.yaml", 0);
        assert!(plan.contains("another attempt finds the workspace restored"), "{plan}");
        let result = project.json("run flow.yaml", 0);
        assert_eq!(of(&result, "it")["attempts"], 2, "{isolation}");
        assert_eq!(project.read("tries.txt"), "tried\n", "{isolation}");
        assert!(!project.path("a.txt").exists() && project.path("new.txt").exists());
        assert_eq!(project.read("open.txt"), "nobody has committed this\n");
        // The changes of both attempts are stored.
        for attempt in ["0.0.1.1.main.1", "0.0.1.1.main.2"] {
            assert!(changes(&project, &result, attempt).contains("tries.txt"), "{isolation} {attempt}");
        }
        assert!(trees(&project, &result).is_empty());
    }
}

/// Concurrent changes by others are kept, and the next attempt is told about them.
#[test]
fn a_workspace_that_others_worked_in_is_not_put_back() {
    let other = step("other", "", "echo $$ > begun; cat go; echo other > other.txt");
    let one = twice(
        "it",
        "on_retry: reset",
        "if [ $SKEIN_ATTEMPT -eq 1 ]; then echo x > new.txt; exit 1; fi; \
        cp $SKEIN_CHANGES told.txt; test -e new.txt",
    );
    let project = repository(&flow(&(one + &other)));
    let going = project.begin("run flow.yaml --format jsonl");
    project.begun();
    // The other step continues only after both attempts.
    while !going.until("step_ended").contains("[0,0]") {}
    project.go();
    let (code, lines, errors) = going.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    assert!(project.read("told.txt").contains("new.txt"), "{}", project.read("told.txt"));
    assert_eq!(project.read("other.txt"), "other\n");
}

#[test]
fn an_attempt_is_told_what_the_last_one_changed() {
    let workflow = "workflow: {id: told, name: Told, version: \"1.0.0\"}\nstages:\n  - id: it\n    name: It\n    \
        x-skein: {workspace: {on_retry: keep_and_tell}}\n    roles: {primary: \"agent:writer\"}\n    \
        error_policy: {retry: {max_attempts: 2, initial_interval: 1s}, on_failure: halt}\n";
    let project = repository(workflow);
    let script = "cat > prompt.log; echo second >> a.txt; test $SKEIN_ATTEMPT -gt 1";
    project.folder.write(
        "skein.toml",
        format!("[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"bash\", \"-c\", \"{script}\"]\ncapabilities = [\"READ\", \"EDIT\"]\n"),
    );
    project.json("run flow.yaml", 0);
    let prompt = project.read("prompt.log");
    assert!(prompt.contains("Changes of an earlier attempt at this, as data."), "{prompt}");
    assert!(prompt.contains("\n```diff\n") && prompt.contains("\n+second\n"), "{prompt}");
    assert!(project.read("a.txt").ends_with("second\nsecond\n"), "it is kept");
}

/// The worktree of a step that failed permanently is kept.
#[test]
fn a_tree_of_a_failure_is_kept() {
    let project = repository(&flow(&apart("it", "", "echo x > half.txt; exit 1")));
    let told = project.ends("run flow.yaml", 4);
    let result = project.json("runs", 0)["runs"][0].clone();
    let left = trees(&project, &result);
    assert!(left.len() == 1 && left[0].join("half.txt").exists() && !project.path("half.txt").exists());
    assert!(told.contains(&left[0].display().to_string()), "{told}");
}
