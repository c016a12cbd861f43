//! Every field of every file, for each possible course of a run.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, sync::Arc};

use skein_core::{
    engine::{CheckFinding, RunInput, RunLedger},
    ir::{ArtifactExport, CallSpec, ConvergencePolicy, Step, StepKindSpec},
};
use skein_host::workspace::{ContextFolder, WrittenArtifacts, WrittenSteps};

use super::{
    tree,
    trial::{Says, Trial, agent, id, name, script, workflow},
};

/// Writes the context and compares it; then writes it again from nothing, which must have the same result.
fn expect(file: &str, trial: &Trial) {
    trial.write();
    let found = tree::of(&trial.context_path());
    tree::expect(file, &found);
    assert_eq!(tree::of(&trial.live_path()), found, "told bit by bit it is another");
    trial.write();
    assert_eq!(tree::of(&trial.context_path()), found, "writing it again changed it");
    fs::remove_dir_all(trial.context_path()).unwrap();
    trial.write();
    assert_eq!(tree::of(&trial.context_path()), found, "written from nothing it is another");
}

fn implement() -> Step {
    agent("implement").gives("implementation", "src/feature.ts", Some("code"))
}

#[test]
fn success() {
    let steps = vec![
        implement(),
        script("test").after(&["implement"]).gives("test-report", "test-results.txt", Some("test-report")),
    ];
    let trial = Trial::new(steps)
        .file("src/feature.ts", "export const x = 1\n")
        .seen("implement", &["src/feature.ts"], "Added utility function")
        .ok("implement")
        .file("test-results.txt", "1 passed\n")
        .ok("test");
    expect("success", &trial);
}

#[test]
fn a_run_that_is_going_on() {
    let steps = vec![implement(), script("test").after(&["implement"])];
    expect("running", &Trial::new(steps));
}

#[test]
fn failure_with_skipped_dependents() {
    let steps = vec![implement(), agent("beside"), script("test").after(&["implement"])];
    let trial = Trial::new(steps).fail("implement", "it does not compile").stopped("beside");
    expect("failure", &trial);
}

#[test]
fn failure_that_lets_the_others_go_on() {
    let steps = vec![implement().continues(), script("test").after(&["implement"])];
    let trial = Trial::new(steps).file("src/feature.ts", "half\n").fail("implement", "it does not compile");
    assert_eq!(trial.source("implement", "implementation"), None);
    expect("continue", &trial.ok("test"));
}

#[test]
fn retry() {
    let trial = Trial::new(vec![implement().retries(2)])
        .fail("implement", "the network is down")
        .wait()
        .file("src/feature.ts", "export const x = 1\n")
        .ok("implement");
    expect("retry", &trial);
}

#[test]
fn a_check_with_iterations() {
    let step = agent("implement-all").gives("final-todo", "todo.md", None).checked(20, false, None);
    let trial = Trial::new(vec![step])
        .file("todo.md", "- [ ] a\n")
        .ok("implement-all")
        .found("implement-all", CheckFinding::Incomplete, &["todo:a"])
        .file("todo.md", "- [x] a\n")
        .ok("implement-all")
        .found("implement-all", CheckFinding::Complete, &[]);
    assert_eq!(trial.source("implement-all", "final-todo").as_deref(), Some("0.0.1.2.main.1"));
    expect("iterations", &trial);
}

#[test]
fn a_check_that_was_never_content() {
    let step = agent("implement-all").gives("final-todo", "todo.md", None).checked(2, true, None);
    let trial = Trial::new(vec![step, agent("verify").after(&["implement-all"])])
        .file("todo.md", "- [ ] a\n")
        .ok("implement-all")
        .found("implement-all", CheckFinding::Incomplete, &[])
        .ok("implement-all")
        .found("implement-all", CheckFinding::Incomplete, &[])
        .ok("verify");
    expect("incomplete", &trial);
}

fn convergence(fail: bool) -> ConvergencePolicy {
    ConvergencePolicy {
        stall_threshold: 2,
        max_stage: 3,
        fail_on_max_stage: fail,
        stages: Vec::new(),
        allowed_paths: vec!["src".into()],
        ignored_paths: vec!["*.log".into()],
        diff_base_ref: None,
        diff_base_ref_file: None,
        max_changed_files: Some(5),
    }
}

/// The same finding comes four times: the stage is raised twice, and the second time ends the step.
#[test]
fn a_stall() {
    let step = agent("fix").checked(20, false, Some(convergence(true)));
    let mut trial = Trial::new(vec![step]);
    let guard = ["scope:outside_allowed_paths", "scope:file:docs/x.md", "diff_budget:max_changed_files_exceeded"];
    for said in [&guard[..], &guard[..], &["test:b"], &["test:b"]] {
        trial = trial.ok("fix").found("fix", CheckFinding::Incomplete, said);
    }
    expect("stalled", &trial);
}

#[test]
fn a_stage_that_helped() {
    let step = agent("fix").checked(20, false, Some(convergence(false)));
    let trial = Trial::new(vec![step])
        .ok("fix")
        .found("fix", CheckFinding::Incomplete, &["test:a"])
        .ok("fix")
        .found("fix", CheckFinding::Incomplete, &["test:a"])
        .ok("fix")
        .found("fix", CheckFinding::Complete, &[]);
    expect("converged", &trial);
}

#[test]
fn cancelled() {
    let steps = vec![implement(), agent("beside"), script("test").after(&["implement"])];
    let trial = Trial::new(steps)
        .file("src/feature.ts", "x\n")
        .ok("implement")
        .say(RunInput::Cancel { by: "ann".into(), reason: Some("wrong branch".into()) })
        .stopped("beside")
        .stopped("test");
    expect("cancelled", &trial);
}

#[test]
fn a_missing_artifact() {
    let steps = vec![implement().gives("notes", "notes/", None), script("test").after(&["implement"])];
    let trial = Trial::new(steps).file("notes/a.md", "a\n").file("notes/deep/b.md", "b\n").ok("implement").ok("test");
    expect("missing", &trial);
    assert!(fs::read_dir(trial.context_path().join("implement/implementation")).unwrap().next().is_none());
}

#[test]
fn a_called_workflow() {
    let call = CallSpec {
        workflow: "sub.yaml".into(),
        exports: vec![ArtifactExport { from: id("implement"), artifact: name("implementation"), name: name("code") }],
    };
    let library = BTreeMap::from([("sub.yaml".to_owned(), Arc::new(workflow("sub", vec![implement()])))]);
    let steps = vec![Step::new(id("build"), StepKindSpec::Call(Box::new(call))), script("test").after(&["build"])];
    let trial = Trial::calling(steps, &library).file("src/feature.ts", "x\n").ok("implement").ok("test");
    assert_eq!(trial.source("build", "code").as_deref(), Some("1.0.1.1.main.1"));
    expect("called", &trial);
}

#[test]
fn a_ledger_is_the_same_from_the_journal() {
    let trial = Trial::new(vec![implement().retries(1)]).fail("implement", "no").wait().ok("implement");
    let mut again = RunLedger::default();
    trial.records.iter().for_each(|record| again.apply_record(record));
    trial.story(|story| assert_eq!(*story.ledger, again));
}

/// Otherwise a run would check all of its steps before each of them.
#[test]
fn a_step_that_is_over_is_told_once() {
    let steps = vec![script("a"), script("b").after(&["a"]), script("c").after(&["b"])];
    let trial = Trial::new(steps).ok("a");
    let told = |step: &str| trial.live_path().join(step).join("_meta.json");
    fs::remove_file(told("a")).unwrap();
    fs::remove_file(told("b")).unwrap();
    let (a, b) = (told("a"), told("b"));
    let _trial = trial.ok("b");
    assert_eq!((a.exists(), b.exists()), (false, true));
}

/// Attempts that start together write the context in any order.
#[test]
fn what_was_before_is_not_told_again() {
    let trial = Trial::new(vec![script("a"), script("b").after(&["a"])]);
    let before = trial.now();
    let mut trial = trial.ok("a");
    let found = tree::of(&trial.live_path());
    trial.tell_of(&before);
    assert_eq!(tree::of(&trial.live_path()), found);
}

/// A consumer gets the kept artifact, whatever someone wrote into the context.
#[test]
fn nothing_is_read_from_the_context() {
    let trial = Trial::new(vec![implement(), script("test").after(&["implement"])]);
    let trial = trial.file("src/feature.ts", "good\n").ok("implement");
    trial.write();
    fs::write(trial.context_path().join("implement/implementation/src/feature.ts"), "evil\n").unwrap();
    let at = trial.story(|story| {
        skein_host::workspace::find_step(
            story.plan,
            story.state,
            skein_core::engine::InstanceIx::ROOT,
            &id("implement"),
        )
    });
    let source =
        trial.story(|story| story.find_artifact_source(at.unwrap(), &name("implementation"))).unwrap().unwrap();
    trial.run.put_artifact(Some((source.attempt, &source.artifact)), &trial.workspace, &name("given")).unwrap();
    let given = trial.dir.path().join("work/given/src/feature.ts");
    assert_eq!(fs::read_to_string(given).unwrap(), "good\n");
}

#[test]
fn a_context_knows_its_run_and_clears_only_what_is_a_context() {
    let trial = Trial::new(vec![implement()]).file("context/mine/notes.md", "mine\n");
    assert_eq!(trial.context().read_holder().unwrap(), None);
    trial.write();
    let holder = trial.context().read_holder().unwrap().unwrap();
    assert_eq!((holder.id.as_str(), holder.status.as_str()), ("run-1", "RUNNING"));
    fs::write(trial.context_path().join(".skein-pending-1-2-3"), "left by a crash").unwrap();
    trial.context().clear(&WrittenArtifacts::read(&trial.run).unwrap()).unwrap();
    assert_eq!(tree::of(&trial.context_path()), "mine/\nmine/notes.md\n    mine\n");
    fs::write(trial.context_path().join("_workflow.json"), "{").unwrap();
    assert_eq!(trial.context().read_holder().unwrap(), None);
}

#[test]
fn a_context_is_never_written_through_a_link() {
    let trial = Trial::new(vec![implement()]);
    let outside = trial.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(trial.context_path()).unwrap();
    symlink(&outside, trial.context_path().join("implement")).unwrap();
    let error = trial.story(|story| trial.context().write(story, &mut WrittenSteps::default())).unwrap_err();
    assert!(error.to_string().contains("`implement` is a symbolic link"), "{error}");
    fs::remove_dir_all(trial.context_path()).unwrap();
    symlink(&outside, trial.context_path()).unwrap();
    assert!(ContextFolder::open(&trial.workspace, "context").is_err());
    assert!(ContextFolder::open(&trial.workspace, "../outside").is_err());
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
}
