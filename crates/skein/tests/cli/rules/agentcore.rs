//! Rules of AgentCore.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use crate::{kept::Project, run::git};

/// A step that runs a script, with additional fields.
fn step(id: &str, script: &str, more: &str) -> String {
    let script: String = script.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "  {id}:\n    worker: CUSTOM\n    capabilities: [READ, EDIT, RUN_COMMANDS]\n    instructions: |\n{script}{more}"
    )
}

fn workflow(steps: &[String]) -> String {
    format!("name: w\nversion: \"1\"\ntimeout: 5m\nsteps:\n{}", steps.concat())
}

fn project(steps: &[String]) -> Project {
    let project = Project::new();
    project.folder.write("w.yaml", workflow(steps));
    project
}

fn meta(project: &Project, step: &str) -> Value {
    serde_json::from_str(&project.read(&format!("context/{step}/_meta.json"))).unwrap()
}

#[test]
fn observations_list_changed_files_and_a_summary() {
    let script = "echo new > added.txt\necho more >> known.txt\necho wrote two files";
    let project = project(&[step("work", script, "")]);
    fs::remove_dir_all(project.path(".git")).unwrap();
    project.folder.write("known.txt", "old\n");
    git(&project.folder, &["init", "--quiet"]);
    git(&project.folder, &["add", "known.txt"]);
    git(&project.folder, &["commit", "--quiet", "--message", "begin"]);
    project.ends("run w.yaml", 0);
    let seen = &meta(&project, "work")["workerResult"]["observations"][0];
    assert_eq!(seen["filesChanged"], json!(["added.txt", "known.txt"]));
    assert_eq!(seen["summary"], "wrote two files");
}

#[test]
fn a_long_summary_keeps_its_beginning_and_its_end() {
    let project = project(&[step("work", "echo first\nseq 1000 9000 | tr '\\n' ' '\necho last", "")]);
    project.ends("run w.yaml", 0);
    let meta = meta(&project, "work");
    let summary = meta["workerResult"]["observations"][0]["summary"].as_str().unwrap();
    assert!(summary.len() <= 4_000 && summary.ends_with("last"), "{summary}");
}

#[test]
fn stage_instructions_reach_scripts() {
    let check = "    completion_check:\n      worker: CUSTOM\n      instructions: |\n        echo '{\"decision\": \"incomplete\", \"fingerprints\": \
                 [\"same\"]}' > decision.json\n        exit 1\n      capabilities: [READ, EDIT]\n      decision_file: decision.json\n    \
                 max_iterations: 4\n    on_iterations_exhausted: continue\n    convergence:\n      enabled: true\n      \
                 stall_threshold: 1\n      max_stage: 3\n      fail_on_max_stage: false\n      stages:\n        \
                 - {stage: 2, append_instructions: Only mend the test.}\n";
    let project = project(&[step("work", "echo \"$SKEIN_STAGE:$SKEIN_STAGE_INSTRUCTIONS\" >> said", check)]);
    project.skein("run w.yaml");
    let said = project.read("said");
    assert!(said.starts_with("1:\n2:Only mend the test.\n3:\n"), "{said}");
}

#[test]
fn a_relative_link_inside_an_output_stays_a_link() {
    let make = "mkdir -p dist/deep\necho one > dist/one.txt\nln -s one.txt dist/two.txt\nln -s ../one.txt dist/deep/up.txt\nln -s deep dist/folder";
    let outputs = "    outputs: [{name: build, path: dist}]\n";
    let take = "    depends_on: [make]\n    workspace: other\n    inputs: [{from: make, artifact: build}]\n";
    let project = project(&[step("make", make, outputs), step("take", "cat build/dist/two.txt > said", take)]);
    fs::create_dir(project.path("other")).unwrap();
    project.ends("run w.yaml", 0);
    for folder in ["other/build/dist", "context/make/build/dist"] {
        let target = |name: &str| fs::read_link(project.path(&format!("{folder}/{name}"))).unwrap();
        assert_eq!(target("two.txt"), Path::new("one.txt"));
        assert_eq!(target("deep/up.txt"), Path::new("../one.txt"));
        assert_eq!(target("folder"), Path::new("deep"));
    }
    assert_eq!(project.read("other/said"), "one\n");
}

#[test]
fn a_link_that_leads_out_of_an_output_is_refused() {
    for target in ["/etc/passwd", "../secret.txt", "deep/../../secret.txt"] {
        let make = format!("mkdir -p dist/deep\nln -s {target} dist/out");
        let project = project(&[step("make", &make, "    outputs: [{name: build, path: dist}]\n")]);
        let result = project.json("run w.yaml", 4);
        let message = result["steps"][0]["error"]["message"].as_str().unwrap();
        assert!(message.contains("leads out of the artifact"), "{target}: {message}");
    }
    // A link that another program left in the way is replaced by the file or refused, and never followed.
    let make = step("make", "mkdir -p dist\necho one > dist/one.txt", "    outputs: [{name: build, path: dist}]\n");
    let take = "    depends_on: [make]\n    workspace: other\n    inputs: [{from: make, artifact: build}]\n";
    let project = project(&[make, step("take", "true", take)]);
    fs::create_dir_all(project.path("other/build")).unwrap();
    fs::create_dir(project.path("elsewhere")).unwrap();
    symlink("../../elsewhere", project.path("other/build/dist")).unwrap();
    project.json("run w.yaml", 4);
    assert!(!project.path("elsewhere/one.txt").exists());
}

#[test]
fn an_output_called_as_its_file_can_be_consumed() {
    let make = step("make", "echo one > plan", "    outputs: [{name: plan, path: plan}]\n");
    let take = "    depends_on: [make]\n    inputs: [{from: make, artifact: plan}]\n";
    let project = project(&[make, step("take", "cat plan > said", take)]);
    project.ends("run w.yaml", 0);
    assert_eq!(project.read("said"), "one\n");
    assert_eq!(project.read("context/make/plan/plan"), "one\n");
}

#[test]
fn patterns_in_paths_of_outputs_are_refused() {
    for path in ["dist/*.js", "**/report.xml", "log?.txt"] {
        let outputs = format!("    outputs: [{{name: build, path: \"{path}\"}}]\n");
        let project = project(&[step("make", "true", &outputs)]);
        let said = project.ends("validate w.yaml", 3);
        assert!(said.contains("SK0111") && said.contains("not a pattern") && said.contains("w.yaml:10:"), "{said}");
    }
    let brackets = "    outputs: [{name: build, path: \"pages/[id].tsx\"}]\n";
    project(&[step("make", "true", brackets)]).ends("validate w.yaml", 0);
}
