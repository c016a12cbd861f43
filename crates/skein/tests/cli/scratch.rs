//! The input and output files of a workflow, by AIP-16: staged before it starts and returned when it is over, whatever
//! happens in between.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
};

/// Reads the file `data` and writes the file `report`; a script from the test runs before that.
const DOES: &str =
    "cat > /dev/null; cd \"$1\"\n$2\ntr a-z A-Z < data > report\nprintf '{\"root\": \"%s\"}\\n' \"$1\"\n";
const FILES: &str = "inputsFiles:\n  data: { path: \"in/<workflowId>.txt\", mode: ro }\noutputsFiles:\n  \
                     report: { path: \"out/<runId>-<isoDate>.txt\" }\n  extra: { path: out/extra.txt }\n";

fn project(before: &str) -> Project {
    let project = Project::new();
    project.folder.write(".tools/shout/TOOL.md", tool("shout", "idempotent: true\n"));
    let about = "kind: cli\nbin: ./shout.sh\nimplements:\n  - { tool: shout, metadata: { cli: { argv: [\"${input.root}\"] } } }\n";
    project.folder.write(".drivers/shout/DRIVER.md", driver("shout", about));
    project.folder.write(".drivers/shout/shout.sh", format!("#!/bin/sh\n{}", DOES.replace("$2", before)));
    let may = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(project.path(".drivers/shout/shout.sh"), may).unwrap();
    let steps = "  - { id: one, kind: tool, tool: shout, inputs: { root: $input._workflowFsRoot } }\n";
    let text = workflow("flow", steps).replace("steps:", &format!("{FILES}steps:"));
    project.folder.write("flow.md", text).write("in/flow.txt", "some words\n");
    project
}

/// The files of a run in the workspace, and the messages about missing ones.
fn given(project: &Project, run: &str) -> (String, Vec<String>) {
    let begins = format!("{run}-20");
    let out = fs::read_dir(project.path("out")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let found = out.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&begins));
    let texts: Vec<String> = found.map(|path| fs::read_to_string(path).unwrap()).collect();
    let told = |event: &Value| Some(event["event"].get("publication_ended")?["failed"].as_str()?.to_owned());
    (texts.concat(), project.events(run).iter().filter_map(told).collect())
}

fn left(project: &Project, run: &str) -> bool {
    project.path(&format!(".skein/runs/{run}/files")).exists()
}

#[test]
fn files_are_staged_and_given_back_and_what_was_not_made_is_told() {
    let project = project("");
    let result = project.json("run flow.md --param _workflowFsRoot=/etc", 0);
    let run = result["run_id"].as_str().unwrap();
    let root = result["outputs"]["root"].as_str().unwrap();
    assert!(root.ends_with(&format!(".skein/runs/{run}/files")), "what a caller says does not count: {root}");
    let (text, told) = given(&project, run);
    assert_eq!((text.as_str(), told), ("SOME WORDS\n", vec!["the run made no file `extra`".to_owned()]));
    assert_eq!(result["status"], "succeeded");
    // The folder is removed concurrently with the end of the run; later it does not exist.
    let second = project.json("run flow.md", 0);
    assert_ne!(second["outputs"]["root"], json!(root));
}

#[test]
fn files_of_a_workflow_that_is_called_are_warned_of() {
    let project = project("");
    let steps = "  - { id: all, kind: subworkflow, workflow: flow }\n";
    project.folder.write("outer.md", workflow("outer", steps));
    project.folder.write(".workflows/flow/WORKFLOW.md", project.read("flow.md"));
    let told = project.ends("validate outer.md", 0);
    assert!(told.contains("its files are neither staged nor collected"), "{told}");
    assert!(!project.ends("validate flow.md", 0).contains("its files are neither"));
}

#[test]
fn a_file_that_is_not_there_keeps_the_run_from_beginning() {
    let project = project("");
    fs::remove_file(project.path("in/flow.txt")).unwrap();
    let told = project.ends("run flow.md", 5);
    assert!(told.contains("the file `data` of the workflow") && told.contains("in/flow.txt"), "{told}");
    assert_eq!(project.json("runs", 0)["runs"], json!([]));
    assert_eq!(fs::read_dir(project.path(".skein/runs")).map_or(0, Iterator::count), 0, "nothing of it stays");
    let records = project.json("audit", 0)["records"].clone();
    assert_eq!((&records[0]["action"], &records[0]["input"]["file"]), (&json!("run.refuse"), &json!("data")));
    for path in ["../beside.txt", "/etc/passwd"] {
        let text = fs::read_to_string(project.path("flow.md")).unwrap().replace("in/<workflowId>.txt", path);
        project.folder.write("out-of.md", text);
        project.ends("run out-of.md", 3);
    }
    std::os::unix::fs::symlink("/etc/passwd", project.path("in/flow.txt")).unwrap();
    project.ends("run flow.md", 5);
}

/// The files of a failed run are returned, too, and a file that cannot be returned fails nothing.
#[test]
fn files_are_given_back_after_a_failure_and_their_failure_fails_nothing() {
    let project = project("echo half > report; exit 3");
    let failed = project.json("run flow.md", 4);
    let run = failed["run_id"].as_str().unwrap();
    assert_eq!(given(&project, run).0, "half\n");
    // A folder cannot be created in place of a file.
    fs::remove_dir_all(project.path("out")).unwrap();
    project.folder.write("out", "in the way");
    let script = fs::read_to_string(project.path(".drivers/shout/shout.sh")).unwrap();
    project.folder.write(".drivers/shout/shout.sh", script.replace("exit 3", ":"));
    let result = project.json("run flow.md", 0);
    let (_, told) = given(&project, result["run_id"].as_str().unwrap());
    assert!(told[0].contains("`report` cannot be put into the workspace"), "{told:?}");
    assert_eq!(project.read("out"), "in the way");
}

/// The engine is killed at each moment between the end of the work and the end of the run.
#[test]
fn a_kill_between_the_end_and_the_files_gives_them_whole() {
    let project = project("");
    let large = "words and words\n".repeat(200_000);
    project.folder.write("in/flow.txt", &large);
    let script = fs::read_to_string(project.path(".drivers/shout/shout.sh")).unwrap();
    let waits = "echo $$ > \"$OLDPWD/begun\"; cat \"$OLDPWD/go\" > /dev/null\nprintf";
    project.folder.write(".drivers/shout/shout.sh", script.replace("printf", waits));
    let mut killed = 0;
    for moment in ["\"step_ended\"", "\"run_decided\"", "\"publication_ended\"", "\"closed\""] {
        let going = project.begin("run flow.md --format jsonl");
        let run = going.run();
        project.begun();
        project.go();
        going.until(moment);
        going.signal(Signal::KILL);
        killed += u32::from(going.end().0.is_none());
        if project.json(&format!("runs {run}"), 0)["finished_at"].is_null() || project.status(&run) != "succeeded" {
            let resumed = project.skein(&format!("resume {run} --format json"));
            assert!([0, 5].contains(&resumed.code), "{}{}", resumed.out, resumed.err);
        } else {
            // The run is over, and perhaps not everything was published.
            project.skein(&format!("resume {run}"));
        }
        let (text, told) = given(&project, &run);
        assert_eq!(text.len(), large.len(), "{moment}: {told:?}");
        assert!(text == large.to_uppercase(), "{moment}: it is whole");
        assert_eq!(told, ["the run made no file `extra`"], "{moment}: told once");
        project.ended_once(&run);
    }
    assert!(killed > 0, "nothing was killed in time");
}

#[test]
fn a_run_that_is_tried_again_has_its_files_anew() {
    let project =
        project("test -e data || exit 9; if test ! -e \"$OLDPWD/again\"; then touch \"$OLDPWD/again\"; exit 3; fi");
    let text = fs::read_to_string(project.path("flow.md")).unwrap();
    let retry = "retry: { max_attempts: 2, backoff: fixed, initial_ms: 1 }\nsteps:";
    project.folder.write("flow.md", text.replace("steps:", retry));
    let result = project.json("run flow.md", 0);
    let run = result["run_id"].as_str().unwrap();
    assert!(run.ends_with("-2"), "{result}");
    assert!(result["outputs"]["root"].as_str().unwrap().contains(run), "{result}");
    assert_eq!(given(&project, run).0, "SOME WORDS\n");
    // A fork has its own files, too.
    let forked = project.json(&format!("fork {run} --from one"), 0);
    let fork = forked["run_id"].as_str().unwrap();
    assert!(forked["outputs"]["root"].as_str().unwrap().contains(fork), "{forked}");
    assert_eq!(given(&project, fork).0, "SOME WORDS\n");
    assert!(!left(&project, run), "what is over keeps no files");
}
