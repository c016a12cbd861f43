//! Runs of the examples that need only bash: in a copy, with the real store, compared with the whole result.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::{Map, Value};

use crate::session::{Folder, repository, run, skein};

/// A copy of the runnable examples of a format.
pub(crate) fn copy(format: &str) -> Folder {
    copy_of(&format!("{format}/run"))
}

/// A copy of an example that is a project.
pub(crate) fn copy_of(example: &str) -> Folder {
    let folder = Folder::new();
    // The example has its own marker.
    fs::remove_dir_all(folder.0.join(".git")).unwrap();
    copy_below(&repository().join("examples").join(example), &folder.0);
    folder
}

fn copy_below(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_below(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
            fs::set_permissions(&to, fs::metadata(&path).unwrap().permissions()).unwrap();
        }
    }
}

pub(crate) fn git(folder: &Folder, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(&folder.0).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]);
    let done = run(command.args(arguments));
    assert_eq!(done.code, 0, "git {arguments:?}: {}", done.err);
    done.out
}

/// Runs an example and compares its result.
fn trial(folder: &Folder, name: &str, line: &str, code: i32) -> Value {
    let words = line.split_whitespace();
    let done = run(skein(&folder.0).arg("run").args(words).args(["--format", "json"]));
    assert_eq!(done.code, code, "`skein run {line}`:\n{}{}", done.out, done.err);
    let result: Value = serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}", done.out));
    let text = serde_json::to_string_pretty(&masked(&result, &result["run_id"])).unwrap() + "\n";
    crate::session::compare(&format!("run-{name}"), &text);
    result
}

/// Masks the values that differ each time: times, and the id of the run.
fn masked(value: &Value, run: &Value) -> Value {
    let id = run.as_str().unwrap().split('-').next().unwrap();
    match value {
        Value::Object(object) => {
            let field = |(key, value): (&String, &Value)| {
                let time = key.ends_with("_at") || key.ends_with("_ms") || key == "hash" || key == "deadline";
                let value = if time && !value.is_null() { "[masked]".into() } else { masked(value, run) };
                (key.clone(), value)
            };
            Value::Object(object.iter().map(field).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| masked(item, run)).collect(),
        Value::String(text) => Value::from(without_times(&text.replace(id, "[run]"))),
        other => other.clone(),
    }
}

/// Masks each word of a text that is a time.
fn without_times(text: &str) -> String {
    const TIME: &str = "0000-00-00T00:00:00Z";
    let is_time = |word: &str| {
        word.len() == TIME.len() && word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).eq(TIME.chars())
    };
    let words = text.split(' ').map(|word| if is_time(word) { "[masked]" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

fn read(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn agentcore_calls_loops_and_hands_on() {
    let folder = copy("agentcore");
    trial(&folder, "agentcore-assemble", "assemble.yaml", 0);
    assert_eq!(read(&folder, "chair.txt"), "a blue chair of 4 planks\n");
}

#[test]
fn agentcore_retries_times_out_and_does_without() {
    let folder = copy("agentcore");
    trial(&folder, "agentcore-second-try", "second-try.yaml", 0);
    let meta: Value = serde_json::from_str(&read(&folder, "context/fetch/_meta.json")).unwrap();
    assert_eq!(meta["status"], "SUCCEEDED");
}

#[test]
fn agentcore_guards_which_files_are_changed() {
    let folder = copy("agentcore");
    git(&folder, &["init", "--quiet"]);
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message", "begin"]);
    trial(&folder, "agentcore-guarded", "guarded.yaml", 0);
    let scope: Value = serde_json::from_str(&read(&folder, "context/translate/_convergence/scope.json")).unwrap();
    assert_eq!(scope["outsideAllowedPaths"], serde_json::json!(["elsewhere.txt"]));
    assert!(!folder.0.join("elsewhere.txt").exists());
}

/// A worker in a repository can name programs in its configuration. None of them is run.
#[test]
fn asking_git_runs_nothing_of_the_workspace() {
    let folder = copy("agentcore");
    git(&folder, &["init", "--quiet"]);
    folder.write("texts/hello.txt", "hello\n").write(".gitattributes", "*.txt filter=evil diff=evil\n");
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message", "begin"]);
    folder.write("evil.sh", "#!/bin/sh\ntouch \"$(dirname \"$0\")/evil-was-here\"\ncat\n");
    fs::set_permissions(folder.0.join("evil.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let evil = folder.0.join("evil.sh");
    let evil = evil.to_str().unwrap();
    for key in ["filter.evil.clean", "filter.evil.process", "core.fsmonitor", "diff.external", "diff.evil.command"] {
        git(&folder, &["config", key, evil]);
    }
    git(&folder, &["config", "diff.evil.textconv", evil]);
    git(&folder, &["config", "filter.evil.required", "true"]);
    fs::create_dir_all(folder.0.join(".git/hooks")).unwrap();
    fs::copy(evil, folder.0.join(".git/hooks/post-index-change")).unwrap();
    folder.write(".git/info/exclude", "evil*\n.skein\n");
    let done = run(skein(&folder.0).args(["run", "guarded.yaml"]));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(!folder.0.join("evil-was-here").exists());
    assert!(!folder.0.join(".git/hooks/evil-was-here").exists());
}

#[test]
fn where_git_cannot_say_the_check_fails() {
    let folder = copy("agentcore");
    let done = run(skein(&folder.0).args(["run", "guarded.yaml"]));
    assert_eq!(done.code, 4, "{}{}", done.out, done.err);
    assert!(done.out.contains("cannot determine which files were changed"), "{}", done.out);
}

#[test]
fn aip15_maps_calls_branches_and_tries_again() {
    let folder = copy("aip15");
    folder.write("shelves/mug", "5\n").write("shelves/pen", "2\n");
    trial(&folder, "aip15-ship-order", "ship-order --param things=[\"mug\",\"pen\"] --param to=harbour", 0);
    assert_eq!((read(&folder, "shelves/mug"), read(&folder, "sent/parcel")), ("4\n".into(), "harbour\n".into()));
}

#[test]
fn aip15_takes_back_what_was_done() {
    let folder = copy("aip15");
    folder.write("shelves/mug", "5\n").write("shelves/pen", "2\n");
    trial(&folder, "aip15-undone", "ship-order --param things=[\"mug\",\"pen\"] --param to=nowhere", 4);
    assert_eq!((read(&folder, "shelves/mug"), read(&folder, "shelves/pen")), ("5\n".into(), "2\n".into()));
}

#[test]
fn aip15_does_two_things_at_once_and_waits() {
    let folder = copy("aip15");
    folder.write("shelves/mug", "5\n");
    trial(&folder, "aip15-count-shelves", "count-shelves", 0);
}

#[test]
fn aip15_checks_what_a_tool_is_given() {
    let folder = copy("aip15");
    let result = trial(&folder, "aip15-input", "ship-order --param things=[\"NO_SUCH\"] --param to=harbour", 4);
    assert_eq!(result["error"]["code"], "input_invalid");
    let missing = trial(&folder, "aip15-missing", "ship-order --param things=[\"hat\"] --param to=harbour", 4);
    assert_eq!(missing["error"]["code"], "not_found");
}

/// A tool that changes something is held until a person approves it, if a step or the tool itself requires that.
#[test]
fn aip15_asks_before_a_tool_that_changes_something() {
    for (tool, step, held) in [
        ("approval: on-mutate\nmutates: [workspace:shelves]", "", true),
        ("approval: always", "", true),
        ("approval: on-mutate", "approval: always", true),
        ("approval: on-mutate", "", false),
        ("", "approval: on-mutate", false),
        ("", "approval: policy:finance", true),
    ] {
        let folder = copy("aip15");
        let policy = "---\nschema: agentgovernance/v1\ndoctype: policy\nslug: finance\nversion: 1.0.0\n\
                      match: { action: tool.call }\ndecision: escalate\nsigners: [{ role: finance }]\n---\n";
        folder.write(".policies/finance/POLICY.md", policy);
        let path = ".tools/parcel-weigh/TOOL.md";
        folder.write(path, read(&folder, path).replacen("idempotent: true", tool, 1));
        let path = "pack-parcel/WORKFLOW.md";
        let asked = format!("tool: parcel-weigh{}{step} }}", if step.is_empty() { "" } else { ", " });
        folder.write(path, read(&folder, path).replacen("tool: parcel-weigh }", &asked, 1));
        let done = run(skein(&folder.0).args(["run", "pack-parcel", "--no-wait"]));
        assert_eq!(done.code, if held { 6 } else { 0 }, "{tool:?}, {step:?}:\n{}{}", done.out, done.err);
        assert_eq!(folder.0.join("looks").exists(), !held, "{tool:?}, {step:?}");
    }
}

#[test]
fn aip15_tools_that_cannot_be_run_are_told() {
    let path = ".drivers/warehouse/DRIVER.md";
    for (from, to, says) in [
        ("kind: cli", "kind: http", "`warehouse` does not define the request for this tool in `metadata.http`"),
        ("kind: cli", "kind: mcp", "`warehouse` does not name its `server`"),
        ("version: \"*\"", "version: ^2.0.0", "`warehouse` is for other versions of the tool than 1.0.0"),
        ("./warehouse.sh", "./house.sh", "house.sh`"),
        ("./warehouse.sh", "no-such-program-here", "was not found in"),
        ("id: warehouse", "id: Ware House", "`Ware House` cannot be an id"),
    ] {
        let folder = copy("aip15");
        folder.write(path, read(&folder, path).replacen(from, to, 1));
        let done = run(skein(&folder.0).args(["run", "pack-parcel"]));
        assert_eq!(done.code, 5, "{to}: {}{}", done.out, done.err);
        assert!(done.err.contains(says), "{to}: {}", done.err);
    }
    let folder = copy("aip15");
    folder.write(".tools/parcel-weigh/TOOL.md", "---\nname: Weigh\n---\n");
    let done = run(skein(&folder.0).args(["run", "pack-parcel"]));
    assert_eq!(done.code, 3, "{}", done.err);
    assert!(done.err.contains("TOOL.md:2:") && done.err.contains("a tool needs"), "{}", done.err);
}

#[test]
fn ioa_tries_again_skips_and_hands_on() {
    let folder = copy("ioa");
    trial(&folder, "ioa-bread", "bread.yaml", 0);
    assert!(read(&folder, "asked-knead.txt").starts_with("You bake bread.\n\nKnead the dough."));
}

#[test]
fn ioa_takes_back_what_was_done() {
    let folder = copy("ioa");
    trial(&folder, "ioa-trip", "trip.yaml", 4);
    assert_eq!(fs::read_dir(folder.0.join("booked")).unwrap().count(), 0);
}

#[test]
fn ioa_a_run_that_failed_is_tried_once_more() {
    let folder = copy("ioa");
    let result = trial(&folder, "ioa-watch", "watch.yaml", 0);
    assert_eq!((&result["attempt"], &result["outputs"]["ships"]), (&Value::from(2), &Value::Null));
    let first = result["retry_of"].as_str().unwrap();
    assert_eq!(result["run_id"], format!("{first}-2"));
    let runs = fs::read_dir(folder.0.join(".skein/runs")).unwrap().count();
    assert_eq!(runs, 2);
}

#[test]
fn gates_wait() {
    trial(&copy("ioa"), "ioa-sign-off", "sign-off.yaml --no-wait", 6);
    trial(&copy("swdl"), "swdl-gated", "gated.yaml --no-wait", 6);
}

#[test]
fn swdl_fans_out_skips_and_runs_its_hooks() {
    let folder = copy("swdl");
    trial(&folder, "swdl-chart", "chart.yaml", 0);
    assert_eq!(read(&folder, "hooks.txt"), "begins Harbours\nended a chart of the harbours; and more\n");
    assert!(read(&folder, "told/measure.txt").starts_with("You measure harbours.\n\nFind the harbours for Harbours."));
    // Standing instructions come from the agent's own file if the configuration has none.
    assert!(read(&folder, "told/write.txt").starts_with("You write down what others found"));
}

/// Any value is passed on unchanged, and no part of it is executed.
#[test]
fn a_value_is_never_run() {
    let folder = copy("swdl");
    let title = "$(touch evil) `touch evil`; touch evil 'x \"y ${HOME}";
    let done = run(skein(&folder.0).args(["run", "chart.yaml", "--param", &format!("title={title}")]));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(read(&folder, "hooks.txt").starts_with(&format!("begins {title}\n")), "{}", read(&folder, "hooks.txt"));
    assert!(!folder.0.join("evil").exists());
}

#[test]
fn swdl_retries_times_out_and_goes_on() {
    let folder = copy("swdl");
    trial(&folder, "swdl-unlucky", "unlucky.yaml", 4);
    assert_eq!(read(&folder, "hooks.txt"), "unlucky failed\n");
}

/// The failure of a hook is recorded, and does not change the run.
#[test]
fn a_hook_that_fails_does_no_harm() {
    for (hook, says) in [
        ("run: \"false\"", "it failed with exit status 1"),
        ("run: no-such-program-here", "was not found"),
        ("notify: \"chat:#a\"", "`[channels.chat]` is missing in skein.toml"),
    ] {
        let folder = copy("swdl");
        let text = read(&folder, "chart.yaml");
        folder.write("chart.yaml", text.replacen("run: scripts/note.sh begins '${{ parameters.title }}'", hook, 1));
        let done = run(skein(&folder.0).args(["run", "chart.yaml", "--format", "jsonl"]));
        assert_eq!(done.code, 0, "{hook}: {}{}", done.out, done.err);
        let told = done.out.lines().find(|line| line.contains("publication_ended") && line.contains("\"hook\":0"));
        assert!(told.is_some_and(|line| line.contains(says)), "{hook}: {}", done.out);
    }
}

/// The examples at the top of a format's folder that need only bash, too; folders that steps name are created.
#[test]
fn agentcore_examples_of_the_readme() {
    let folder = Folder::new();
    for name in ["hello", "word-count", "countdown"] {
        let file = format!("{name}.yaml");
        fs::copy(repository().join("examples/agentcore").join(&file), folder.0.join(&file)).unwrap();
        trial(&folder, &format!("agentcore-{name}"), &file, 0);
    }
    assert_eq!(read(&folder, "total/total.txt").trim(), "12");
}
