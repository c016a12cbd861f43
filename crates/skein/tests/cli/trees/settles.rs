//! Conflict resolvers: which steps run, their inputs and files, and the result of the run.

use std::fs;

use serde_json::Value;

use super::{
    apart,
    crashes::{held, killed_and_resumed},
    flow, of, repository, step, trees,
};
use crate::kept::Project;

/// The path of the worktree of the step that could not be merged.
const TREE: &str = r#"tree=$(sed -n 's/.*"tree": "\(.*\)",/\1/p' "$SKEIN_CONFLICTS")"#;

/// Each of the two steps has its worktree before the other ends.
const LEFT: &str = "test -e MEET/met || { echo > MEET/one; cat MEET/two; }";
const RIGHT: &str = "test -e MEET/met || { cat MEET/one; echo > MEET/two; }";

/// Two steps that change the same line, and one that depends on both.
fn two(settle: &str, both: &str) -> String {
    let edits = |name: &str, meets: &str| {
        let script = format!("{meets}; sed -i s/one/{name}/ a.txt; echo {name} > {name}.txt");
        apart(name, ", conflict: settle", &script)
    };
    edits("left", LEFT) + &edits("right", RIGHT) + settle + &step("both", "depends_on: [left, right]", both)
}

/// A repository with this workflow, and pipes that synchronize its steps.
fn meeting(workflow: &str) -> Project {
    let project = repository("");
    fs::create_dir(project.path("ignored")).unwrap();
    for name in ["one", "two"] {
        project.pipe(&format!("ignored/{name}"));
    }
    project.folder.write("flow.yaml", placed(&project, workflow));
    project
}

/// Replaces `MEET` by the folder of the pipes.
fn placed(project: &Project, text: &str) -> String {
    text.replace("MEET", &project.path("ignored").display().to_string())
}

/// The step whose changes were not merged, and the one whose changes were.
fn sides(result: &Value) -> (&'static str, &'static str) {
    match of(result, "left")["status"].as_str() {
        Some("failed") => ("left", "right"),
        _ => ("right", "left"),
    }
}

#[test]
fn a_conflict_is_settled_and_what_waits_sees_it() {
    let script = format!(
        "set -e\n{TREE}\ncp \"$SKEIN_CONFLICTS\" told.json\nls left.txt right.txt > saw.txt\n\
         git -C \"$tree\" show \"$(sed -n 's/.*\"base\": \"\\(.*\\)\"/\\1/p' \"$SKEIN_CONFLICTS\"):a.txt\" > base.txt\n\
         ! touch \"$tree/new\" 2>/dev/null\n\
         cat a.txt > both.txt; head -1 \"$tree/a.txt\" >> both.txt; mv both.txt a.txt"
    );
    let both = "set -e\ngrep left a.txt; grep right a.txt; cat left.txt right.txt";
    let project = meeting(&flow(&two(&step("settle", "", &script), both)));
    let result = project.json("run flow.yaml", 0);
    let (lost, won) = sides(&result);
    assert_eq!((&result["status"], &result["degraded"]), (&"succeeded".into(), &false.into()), "{result}");
    let failed = of(&result, lost);
    assert_eq!((&failed["error"]["code"], &failed["settled_by"]), (&"merge_conflict".into(), &"settle".into()));
    assert_eq!(
        (&of(&result, won)["status"], &of(&result, "settle")["status"]),
        (&"succeeded".into(), &"succeeded".into())
    );
    assert_eq!(project.read("a.txt"), format!("{won}\ntwo\nthree\nfour\nfive\nsix\nseven\n{lost}\n"));
    // The changes that merged were there before the resolver ran, and the common base can be read.
    assert_eq!(project.read("saw.txt"), "left.txt\nright.txt\n");
    assert!(project.read("base.txt").starts_with("one\ntwo\n"));
    let told: Value = serde_json::from_str(&project.read("told.json")).unwrap();
    assert_eq!((&told[0]["step"], &told[0]["files"]), (&lost.into(), &serde_json::json!(["a.txt"])), "{told}");
    assert_eq!(told.as_array().map(Vec::len), Some(1));
    let run = result["run_id"].as_str().unwrap();
    let shown = project.ends(&format!("runs {run}"), 0);
    assert!(shown.contains("3 SUCCEEDED, 1 resolved") && shown.contains("and settle resolved it"), "{shown}");
    assert!(!shown.contains("Not merged") && !shown.contains("Failed"), "{shown}");
    assert!(project.json("dlq", 0)["dead"].as_array().is_none_or(Vec::is_empty));
    let events = project.ends(&format!("events {run}"), 0);
    assert!(events.contains("`settle` has to resolve it"), "{events}");
}

#[test]
fn without_a_conflict_it_is_skipped_and_what_waits_goes_on() {
    let other = apart("left", ", conflict: settle", "echo left > left.txt")
        + &apart("right", ", conflict: settle", "echo right > right.txt")
        + &step("settle", "", "touch settled.txt")
        + &step("both", "depends_on: [left, right]", "cat left.txt right.txt && test ! -e settled.txt");
    let project = repository(&flow(&other));
    let result = project.json("run flow.yaml", 0);
    let settle = of(&result, "settle");
    assert_eq!((&settle["status"], &settle["attempts"]), (&"skipped".into(), &0.into()), "{result}");
    assert_eq!(settle["why"]["text"], "skipped: there is no conflict to resolve");
    assert_eq!(of(&result, "both")["status"], "succeeded");
    let plan = project.ends("plan flow.yaml", 0);
    assert!(plan.contains("if its changes conflict with those of others, settle resolves it"), "{plan}");
    assert!(plan.contains("only if the changes of left or right conflict, to resolve that"), "{plan}");
    assert!(plan.contains("after left, right and settle"), "{plan}");
}

#[test]
fn who_cannot_settle_it_fails_the_run_and_both_are_named() {
    let project = meeting(&flow(&two(&step("settle", "on_failure: continue", "echo no; exit 3"), "true")));
    let result = project.json("run flow.yaml", 4);
    let (lost, won) = sides(&result);
    let message = result["error"]["message"].as_str().unwrap();
    assert_eq!(result["error"]["step"], "settle", "{result}");
    assert!(message.contains(&format!("the changes of `{lost}` are not merged")), "{message}");
    assert_eq!(of(&result, "both")["status"], "skipped");
    assert_eq!(trees(&project, &result).len(), 1, "what could not be merged is kept");
    let shown = project.ends(&format!("runs {}", result["run_id"].as_str().unwrap()), 0);
    assert!(shown.contains("Not merged") && shown.contains(&format!("{lost}: its changes conflict")), "{shown}");
    // The unmerged step runs again in a fork. No other change conflicts with it any more.
    project.folder.write("ignored/met", "");
    let forked = project.json(&format!("fork {} --from settle", result["run_id"].as_str().unwrap()), 0);
    assert_eq!((&of(&forked, lost)["status"], &of(&forked, lost)["reused"]), (&"succeeded".into(), &Value::Null));
    assert_eq!((&of(&forked, won)["reused"], &of(&forked, "settle")["status"]), (&true.into(), &"skipped".into()));
}

/// A resolver that is killed gets the same conflicts again, and no other step runs again.
#[test]
fn a_killed_step_that_settles_is_told_the_same_again() {
    let project = meeting("");
    let script = format!(
        "set -e\n{TREE}\ncat \"$SKEIN_CONFLICTS\" >> told.log\necho $SKEIN_ATTEMPT >> tries.txt\nHOLD\n\
         head -1 \"$tree/a.txt\" >> a.txt"
    );
    let settle = step("settle", "", &held(&project, &script));
    let workflow = flow(&two(&settle, "set -e\ngrep left a.txt; grep right a.txt"));
    project.folder.write("flow.yaml", placed(&project, &workflow));
    let (run, _) = killed_and_resumed(&project);
    let result = project.json(&format!("runs {run}"), 0);
    assert_eq!(project.read("tries.txt"), "1\n2\n");
    let told = project.read("told.log");
    let (first, second) = told.split_at(told.len() / 2);
    assert_eq!(first, second, "{told}");
    let (lost, won) = sides(&result);
    assert_eq!((of(&result, lost)["attempts"].as_u64(), of(&result, won)["attempts"].as_u64()), (Some(1), Some(1)));
    assert_eq!(project.read("a.txt").lines().last(), Some(lost));
    project.ended_once(&run);
}

/// A resolver in its own worktree sees the merged changes there, and its result is merged.
#[test]
fn it_can_be_settled_in_a_tree_of_its_own() {
    let script = format!("set -e\n{TREE}\ncat left.txt right.txt; head -1 \"$tree/a.txt\" >> a.txt");
    let project = meeting(&flow(&two(&apart("settle", "", &script), "grep left a.txt && grep right a.txt")));
    let result = project.json("run flow.yaml", 0);
    assert_eq!(of(&result, "both")["status"], "succeeded", "{result}");
    let (lost, _) = sides(&result);
    assert_eq!(project.read("a.txt").lines().last(), Some(lost));
    assert_eq!((project.read("left.txt").as_str(), project.read("right.txt").as_str()), ("left\n", "right\n"));
}

/// A file that one step changed and another removed is in the state of the workspace.
#[test]
fn a_file_that_is_gone_for_one_is_settled_too() {
    let settle = step("settle", "", "cp \"$SKEIN_CONFLICTS\" told.json\nls > saw.txt\necho settled > a.txt");
    let gone = two(&settle, "grep settled a.txt").replace("sed -i s/one/right/ a.txt", "rm a.txt");
    let project = meeting(&flow(&gone));
    let result = project.json("run flow.yaml", 0);
    let (lost, _) = sides(&result);
    let told: Value = serde_json::from_str(&project.read("told.json")).unwrap();
    assert_eq!((&told[0]["step"], &told[0]["files"]), (&lost.into(), &serde_json::json!(["a.txt"])), "{told}");
    let saw = project.read("saw.txt");
    assert_eq!(saw.lines().any(|line| line == "a.txt"), lost == "right", "{lost}: {saw}");
    assert!(saw.contains("left.txt\n") && saw.contains("right.txt\n"), "{saw}");
}

/// An agent gets the conflicts in its prompt, as data.
#[test]
fn an_agent_is_told_what_to_settle() {
    let agent = "cat > prompt.log\nprintf 'left right\\n' > a.txt";
    let stage =
        |id: &str, more: &str| format!("  - {{id: {id}, name: {id}, roles: {{primary: \"agent:{id}\"}}{more}}}\n");
    let tree = ", x-skein: {workspace: {isolation: worktree, conflict: settle}}";
    let stages = stage("left", tree)
        + &stage("right", tree)
        + &stage("settle", "")
        + &stage("both", ", depends_on: [left, right]");
    let project = meeting("");
    project.folder.write("flow.yaml", format!("workflow: {{id: f, name: F, version: 1.0.0}}\nstages:\n{stages}"));
    let edits = |name: &str, meets: &str| placed(&project, &format!("{meets}\nsed -i s/one/{name}/ a.txt"));
    let scripts = [
        ("left", edits("left", LEFT)),
        ("right", edits("right", RIGHT)),
        ("settle", agent.to_owned()),
        ("both", "grep 'left right' a.txt".to_owned()),
    ];
    let mut config = String::new();
    for (name, script) in scripts {
        project.folder.write(&format!("{name}.sh"), script);
        let command = format!("command = [\"bash\", \"{}\"]", project.path(&format!("{name}.sh")).display());
        config += &format!("[agents.{name}]\nworker = \"CUSTOM\"\n{command}\ncapabilities = [\"READ\", \"EDIT\"]\n");
    }
    project.folder.write("skein.toml", &config);
    let result = project.json("run flow.yaml", 0);
    let (lost, _) = sides(&result);
    let prompt = project.read("prompt.log");
    assert!(
        prompt.contains("Resolve the conflicts: change these files")
            && prompt.contains(&format!("\"step\": \"{lost}\"")),
        "{prompt}"
    );
    assert_eq!(
        (of(&result, lost)["native_status"].as_str(), of(&result, "settle")["native_status"].as_str()),
        (Some("failed"), Some("success"))
    );
}

#[test]
fn what_cannot_settle_is_refused() {
    let project = Project::new();
    let tree = "conflict: STEP";
    let cases = [
        ("stettle", "SK0203", "there is no step `stettle`"),
        ("edit", "SK0215", "`edit` cannot resolve its own conflicts"),
        ("first", "SK0215", "`first` must finish before `edit`"),
    ];
    for (named, code, message) in cases {
        let conflict = format!(", {}", tree.replace("STEP", named));
        let edit =
            apart("edit", &conflict, "true").replace("    instructions", "    depends_on: [first]\n    instructions");
        let steps = step("first", "", "true") + &edit + &step("settle", "", "true");
        project.folder.write("flow.yaml", flow(&steps));
        let said = project.json("validate flow.yaml", 3);
        let found = &said["diagnostics"][0];
        assert_eq!(found["code"], code, "{said}");
        assert!(found["message"].as_str().unwrap().contains(message), "{said}");
    }
}
