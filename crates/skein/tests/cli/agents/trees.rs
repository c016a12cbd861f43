//! Agents in worktrees: their changes are merged into the workspace, and their leftovers are reverted.

use super::{
    alone::for_each_agent,
    kind::{CLAUDE, Kind},
    model::{Call, Model, Turn, call, say},
    resumed::{killed, lose_session},
};
use crate::{kept::Project, run::git};

const FLOW: &str = "name: apart\nversion: \"1\"\ntimeout: 10m\nsteps:\n  write:\n    worker: AGENT\n    \
    instructions: Write a note.\n    capabilities: [READ, EDIT, RUN_COMMANDS]\n    \
    x-skein: {workspace: {isolation: worktree}}\n";

for_each_agent!(what_an_agent_changes_in_its_tree_is_merged, an_agent_settles_what_others_could_not_merge);

fn what_an_agent_changes_in_its_tree_is_merged(kind: Kind) {
    let run =
        "pwd > where.txt; git log --format=%s | tail -n 1 > log.txt; echo a note > note.txt; echo more >> open.txt";
    let model = Model::new([call("", [Call::Run(run.into())]), say("It is written.")]);
    let project = kind.project(&model, FLOW);
    git(&project.folder, &["init", "--quiet"]);
    git(&project.folder, &["add", "flow.yaml"]);
    git(&project.folder, &["commit", "--quiet", "--message", "begin"]);
    project.folder.write("open.txt", "nobody has committed this\n");
    let result = project.json("run flow.yaml", 0);
    assert_eq!(project.read("note.txt"), "a note\n", "{result}");
    assert_eq!(project.read("open.txt"), "nobody has committed this\nmore\n");
    assert_eq!(project.read("log.txt"), "begin\n");
    assert!(project.read("where.txt").contains("/.skein/runs/"), "{}", project.read("where.txt"));
    let shown = project.ends(&format!("logs {} --changes", result["run_id"].as_str().unwrap()), 0);
    assert!(shown.contains("+a note\n"), "{shown}");
}

/// Two steps that change the same line once both have their worktrees, and an agent that resolves the conflict.
const SETTLED: &str = "name: settled\nversion: \"1\"\ntimeout: 10m\nsteps:\n  left:\n    worker: CUSTOM\n    \
    instructions: echo > MEET/one; cat MEET/two; echo left > a.txt\n    capabilities: [READ, EDIT]\n    \
    x-skein: {workspace: {isolation: worktree, conflict: settle}}\n  right:\n    worker: CUSTOM\n    \
    instructions: cat MEET/one; echo > MEET/two; echo right > a.txt\n    capabilities: [READ, EDIT]\n    \
    x-skein: {workspace: {isolation: worktree, conflict: settle}}\n  settle:\n    worker: AGENT\n    \
    instructions: Keep both.\n    capabilities: [READ, EDIT, RUN_COMMANDS]\n  both:\n    worker: CUSTOM\n    \
    instructions: grep left a.txt && grep right a.txt\n    capabilities: [READ]\n    depends_on: [left, right]\n";

fn an_agent_settles_what_others_could_not_merge(kind: Kind) {
    let run = "cat .skein/runs/*/trees/*/files/a.txt >> a.txt";
    let model = Model::new([call("", [Call::Run(run.into())]), say("Both are there.")]);
    let project = kind.project(&model, SETTLED);
    git(&project.folder, &["init", "--quiet"]);
    let workflow = project.read("flow.yaml").replace("MEET", &project.path("").display().to_string());
    project.folder.write("flow.yaml", workflow).write("a.txt", "one\n").write(".gitignore", "one\ntwo\nbegun\ngo\n");
    ["one", "two"].iter().for_each(|name| project.pipe(name));
    let result = project.json("run flow.yaml", 0);
    let mut lines: Vec<String> = project.read("a.txt").lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["left", "right"], "{result}");
    let asked = model.all_asked();
    let told =
        asked.iter().any(|asked| asked.body.contains("Resolve the conflicts: change these files in your workspace"));
    assert!(told, "{asked:?}");
}

/// An agent that was interrupted and lost its session finds the original workspace, even after an attempt to continue
/// in between.
#[test]
fn without_its_session_its_workspace_is_put_back() {
    let kind = CLAUDE;
    let project = Project::new();
    git(&project.folder, &["init", "--quiet"]);
    let part = project.path("first.txt").display().to_string();
    let model = Model::new([call("I begin.", [Call::Write(part, "first\n".into())]), Turn::Hold]);
    let run = killed(kind, &model, &project);
    assert_eq!(project.read("first.txt"), "first\n");
    lose_session(kind, &project, &run);
    model.then([say("All parts are written.")]);
    project.json(&format!("resume {run}"), 0);
    let body = model.asked().body;
    assert!(body.contains("was interrupted. Its changes in the workspace were reverted."), "{body}");
    assert!(!project.path("first.txt").exists());
    let shown = project.ends(&format!("logs {run} write --changes"), 0);
    assert!(shown.contains("+first\n"), "what was taken back is still told: {shown}");
    let shown = project.ends(&format!("logs {run} --changes"), 0);
    assert_eq!(shown, "No changes that git would show.\n");
}
