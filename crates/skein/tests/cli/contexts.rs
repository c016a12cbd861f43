//! Two runs never write the same context folder: the second is queued while the first runs.

use rustix::process::Signal;

use crate::kept::{HELD, Project, until};

fn project() -> Project {
    let project = Project::new();
    let other = HELD.replace("name: held", "name: other").replace("$$ > begun; cat go", ":");
    project.folder.write("other.yaml", &other);
    project.folder.write("apart.yaml", other.replace("timeout: 10m", "timeout: 10m\ncontext_dir: ./apart"));
    project
}

#[test]
fn a_second_run_in_the_same_context_folder_is_queued() {
    let project = project();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    let before = project.read("context/first/_meta.json");
    assert!(!before.is_empty());
    let told = project.ends("run other.yaml --no-wait", 6);
    assert!(told.contains(&format!("queued: run {run} is using the context folder")), "{told}");
    assert!(told.contains(&format!("skein cancel {run}")) && told.contains("--context DIR"), "{told}");
    let queued = project.json("runs", 0)["runs"][0].clone();
    assert_eq!(queued["status"], "queued");
    let second = queued["run_id"].as_str().unwrap();
    let shown = project.json(&format!("runs {second}"), 0);
    let why = shown["queued_because"].as_str().unwrap();
    assert!(why.contains(&format!("run {run} is using")), "{why}");
    assert!(project.ends(&format!("runs {second}"), 0).contains("Queued: run"));
    assert_eq!(project.json(&format!("resume {second} --no-wait"), 6)["status"], "queued");
    // With its own folder it starts at once.
    project.ends("run other.yaml --context apart/second", 0);
    assert!(project.path("apart/second/_workflow.json").exists());
    // Two more wait, one of them in the background.
    let waits = project.begin("run other.yaml");
    let detached = project.json("run other.yaml --detach", 0);
    assert_eq!(project.status(detached["run_id"].as_str().unwrap()), "queued");
    // A run with its own folder does not block others, nor does one without a folder.
    project.ends("run apart.yaml", 0);
    project.ends("run asks.md --no-wait", 6);
    assert_eq!(project.read("context/first/_meta.json"), before, "the first keeps its folder");
    project.go();
    assert_eq!(going.end().0, Some(0));
    let (code, lines, errors) = waits.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    project.ends(&format!("resume {second}"), 0);
    let background = detached["run_id"].as_str().unwrap();
    until("the run in the background does not end", || project.status(background) == "succeeded");
    assert!(!project.read("context/_workflow.json").contains(&run), "what a run left that is over is replaced");
}

/// Clearing one folder would clear the other.
#[test]
fn a_context_folder_inside_of_or_around_that_of_another_run_is_refused() {
    let project = project();
    let other = project.read("other.yaml");
    let at =
        |source: &str, folder: &str| source.replace("timeout: 10m", &format!("timeout: 10m\ncontext_dir: {folder}"));
    project.folder.write("held.yaml", at(HELD, "./in/the/middle"));
    for (name, folder) in [("inside", "./in/the/middle/deep/down"), ("around", "./in")] {
        project.folder.write(&format!("{name}.yaml"), at(&other, folder));
    }
    let going = project.begin("run held.yaml --format jsonl");
    project.begun();
    for (line, how) in [("run inside.yaml", "inside of"), ("run around.yaml", "around")] {
        let no = project.ends(line, 5);
        assert!(no.contains(&format!("is {how} `")) && no.contains("folder of another active run"), "{no}");
    }
    assert_eq!(project.json("runs", 0)["runs"].as_array().unwrap().len(), 1, "nothing was begun");
    project.go();
    assert_eq!(going.end().0, Some(0));
    project.ends("run inside.yaml", 0);
}

/// A killed run holds no folder. When it resumes, it takes the folder again, unless another run uses it.
#[test]
fn a_context_folder_is_free_when_its_run_was_killed() {
    let project = project();
    let going = project.begin("run held.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    project.ends("run other.yaml", 0);
    let other = project.begin("run held.yaml --format jsonl");
    let second = other.run();
    project.begun();
    let no = project.ends(&format!("resume {run}"), 5);
    assert!(no.contains(&format!("run {second} is using the context folder")), "{no}");
    let no = project.ends("resume --all", 5);
    assert!(no.contains(&format!("run {run} is skipped: run {second} is using")), "{no}");
    project.go();
    assert_eq!(other.end().0, Some(0));
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    assert_eq!(resumed.end().0, Some(0));
    assert!(project.read("context/_workflow.json").contains(&run), "the folder tells of it again");
}

#[test]
fn a_run_without_a_context_folder_takes_no_other() {
    let project = project();
    let no = project.ends("run asks.md --context apart", 2);
    assert!(no.contains("`--context` is for workflows of AgentCore"), "{no}");
    for folder in ["/tmp/x", "../x", "."] {
        let no = project.ends(&format!("run other.yaml --context {folder}"), 2);
        assert!(no.contains("a folder inside of the workspace"), "{no}");
    }
}

/// Notes of a person in the folder of a step, and an artifact that a person changed.
#[test]
fn a_context_folder_is_cleared_only_of_what_a_run_wrote() {
    let project = project();
    let writes = "name: w\nversion: \"1\"\ntimeout: 5m\nsteps:\n  make:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
                  instructions: |\n      mkdir -p dist; echo one > dist/one.txt; echo two > dist/two.txt\n    \
                  outputs: [{name: build, path: dist}]\n";
    project.folder.write("w.yaml", writes);
    project.ends("run w.yaml", 0);
    project.folder.write("context/make/notes.txt", "mine").write("context/make/build/dist/two.txt", "mine");
    project.folder.write("context/notes.txt", "mine");
    project.ends("run other.yaml", 0);
    for name in ["make/notes.txt", "make/build/dist/two.txt", "notes.txt"] {
        assert_eq!(project.read(&format!("context/{name}")), "mine", "{name}");
    }
    for name in ["make/_meta.json", "make/build/dist/one.txt"] {
        assert!(!project.path(&format!("context/{name}")).exists(), "{name}");
    }
}
