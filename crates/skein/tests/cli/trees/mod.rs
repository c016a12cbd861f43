//! Workspaces of steps: worktrees, the changes of attempts, and the reset of a workspace. With the built program, in
//! repositories and in plain folders.

mod crashes;
mod examples;
mod hostile;
mod merges;
mod plain;
mod retries;
mod settles;

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::{kept::Project, run::git};

/// A project in a repository with one commit and an uncommitted file.
fn repository(workflow: &str) -> Project {
    let project = Project::new();
    git(&project.folder, &["init", "--quiet"]);
    project.folder.write("a.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    project.folder.write(".gitignore", "ignored\nbegun\ngo\n*.log\n");
    git(&project.folder, &["add", "--all"]);
    git(&project.folder, &["commit", "--quiet", "--message", "begin"]);
    project.folder.write("open.txt", "nobody has committed this\n").write("flow.yaml", workflow);
    project
}

/// An AgentCore workflow with these steps.
fn flow(steps: &str) -> String {
    format!("name: flow\nversion: \"1\"\ntimeout: 10m\nsteps:\n{steps}")
}

/// A step that runs a script in its own worktree.
fn apart(name: &str, more: &str, script: &str) -> String {
    step(name, &format!("x-skein: {{workspace: {{isolation: worktree{more}}}}}"), script)
}

fn step(name: &str, more: &str, script: &str) -> String {
    let lines: String = script.lines().map(|line| format!("      {}\n", line.trim())).collect();
    format!("  {name}:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    {more}\n    instructions: |\n{lines}")
}

/// The folder of a run.
fn kept(project: &Project, result: &Value) -> PathBuf {
    let run = result["run_id"].as_str().expect("it has an id");
    project.path(&format!(".skein/runs/{run}"))
}

/// The remaining worktrees of a run.
fn trees(project: &Project, result: &Value) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(kept(project, result).join("trees")) else { return Vec::new() };
    let mut trees: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path().join("files")).filter(|files| files.exists()).collect();
    trees.sort();
    trees
}

/// The stored changes of an attempt.
fn changes(project: &Project, result: &Value, attempt: &str) -> String {
    let file = kept(project, result).join("attempts").join(attempt).join("changes.diff");
    fs::read_to_string(file).unwrap_or_default()
}

/// The JSON object of a step in a result.
fn of<'a>(result: &'a Value, step: &str) -> &'a Value {
    let steps = result["steps"].as_array().expect("it is a list");
    steps.iter().find(|one| one["path"] == step).unwrap_or_else(|| panic!("no `{step}`: {result}"))
}
