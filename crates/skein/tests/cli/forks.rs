//! Forks and dead letters from outside: the steps that run again, the reused steps, and the effects of removing the
//! first run.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    kept::Project,
    run::copy,
    session::{repository, skein},
};

/// Fails at `build`, after two attempts, until there is a file `ok`.
const FLOW: &str = r#"name: flow
version: "1"
timeout: 10m
steps:
  plan:
    worker: CUSTOM
    capabilities: [READ, EDIT]
    instructions: 'echo plan >> done.txt; echo a plan > notes.txt'
    outputs: [{name: notes, path: notes.txt, type: doc}]
  beside:
    worker: CUSTOM
    capabilities: [READ, EDIT]
    instructions: 'echo beside >> done.txt'
  build:
    worker: CUSTOM
    depends_on: [plan, beside]
    capabilities: [READ, EDIT]
    inputs: [{from: plan, artifact: notes}]
    on_failure: retry
    max_retries: 1
    instructions: 'echo build >> done.txt; cat notes/notes.txt; test -e ok || { echo not ok; exit 3; }'
  ship:
    worker: CUSTOM
    depends_on: [build]
    capabilities: [READ, EDIT]
    instructions: 'echo ship >> done.txt'
"#;

fn project() -> Project {
    let project = Project::new();
    project.folder.write("flow.yaml", FLOW);
    project
}

/// The id of a failed run of the flow.
fn failed(project: &Project) -> String {
    let result = project.json("run flow.yaml", 4);
    result["run_id"].as_str().unwrap().to_owned()
}

fn step<'a>(result: &'a Value, path: &str) -> &'a Value {
    let steps = result["steps"].as_array().unwrap();
    steps.iter().find(|step| step["path"] == path).unwrap_or_else(|| panic!("no {path}: {result}"))
}

#[test]
fn a_fork_does_a_step_and_what_comes_after_it() {
    let project = project();
    let run = failed(&project);
    let shown = project.ends(&format!("runs {run}"), 0);
    assert!(shown.contains(&format!("skein fork {run} --from build")), "{shown}");
    for name in ["done.txt", "notes.txt"] {
        fs::remove_file(project.path(name)).unwrap();
    }
    fs::remove_dir_all(project.path("notes")).unwrap();
    project.folder.write("ok", "");
    let result = project.json(&format!("fork {run} --from build"), 0);
    assert_eq!(project.read("done.txt"), "build\nship\n", "nothing else was done");
    assert_eq!(result["forked_from"], json!({"run": run, "step": "build"}));
    for (path, reused) in [("plan", true), ("beside", true), ("build", false), ("ship", false)] {
        let step = step(&result, path);
        assert_eq!((&step["status"], step["reused"] == true), (&json!("succeeded"), reused), "{path}");
    }
    let forked = result["run_id"].as_str().unwrap();
    assert_eq!(project.ends(&format!("logs {forked} build"), 0), "a plan\n", "it was given the artifact");
    let said = project.ends(&format!("logs {forked} plan"), 5);
    assert!(said.contains(&format!("`skein logs {run} plan` shows")), "{said}");
    let listed = project.json("runs", 0);
    assert_eq!(listed["runs"][0]["forked_from"]["run"], json!(run));
    assert!(project.ends("runs", 0).contains(&format!("forked from {run}")));
    let shown = project.ends(&format!("runs {forked}"), 0);
    assert!(shown.contains("reused") && shown.contains(&format!("2 reused from run {run}")), "{shown}");
    project.ended_once(forked);
}

/// The fork has its own copy of everything: the first run can be removed, and the fork can be forked in turn.
#[test]
fn a_fork_needs_nothing_of_the_run_it_comes_from() {
    let project = project();
    let run = failed(&project);
    let again = project.json(&format!("fork {run} --from build"), 4);
    let second = again["run_id"].as_str().unwrap();
    let kept = project.path(".skein/runs");
    fs::remove_dir_all(kept.join(&run)).unwrap();
    let notes = kept.join(second).join("artifacts/0.0.1.1.main.1/files/notes/notes.txt");
    assert!(!notes.is_symlink() && notes.is_file(), "it is a copy");
    project.folder.write("ok", "");
    fs::remove_file(project.path("done.txt")).unwrap();
    project.json(&format!("fork {second} --from ship"), 0);
    assert_eq!(project.read("done.txt"), "build\nship\n", "what failed is done again, too");
    // The outputs of the first run are gone, so no fork that needs them is possible.
    let refused = project.ends(&format!("fork {run} --from build"), 5);
    assert!(refused.contains("the artifacts of `plan` no longer exist"), "{refused}");
    let left: Vec<_> = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no folder is left of it: {left:?}");
}

#[test]
fn a_fork_is_refused_where_there_is_none() {
    let project = project();
    let run = failed(&project);
    let refused = |line: &str, part: &str| {
        let said = project.ends(line, 5);
        assert!(said.contains(part), "`{line}` should say `{part}`: {said}");
    };
    refused(&format!("fork {run} --from biuld"), "did you mean `build`?");
    refused(&format!("fork {run} --from nothing"), "it can be forked from plan, beside, build, ship");
    refused("fork none --from build", "there is no run `none`");
    let waiting = project.left("gated.yaml");
    refused(&format!("fork {waiting} --from publish"), "has not ended");
    let error = project.json(&format!("fork {run} --from biuld"), 5);
    assert_eq!(error["error"]["hint"], "did you mean `build`?");
    assert_eq!(project.skein(&format!("fork {run}")).code, 2);
}

/// The id of a successful run of the flow.
fn succeeded(project: &Project) -> String {
    project.folder.write("ok", "");
    let run = project.json("run flow.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    fs::remove_file(project.path("done.txt")).unwrap();
    run
}

/// With `--reload` the workflow is read again. Steps are identified by their ids: a new first step changes all numbers.
#[test]
fn a_reloaded_fork_reuses_steps_that_did_not_change() {
    let project = project();
    let run = succeeded(&project);
    let first = "steps:\n  fresh:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    instructions: 'echo fresh >> done.txt'\n";
    let changed = FLOW.replace("steps:\n", first).replace("'echo build >>", "'echo rebuilt >>");
    project.folder.write("flow.yaml", changed);
    let line = format!("fork {run} --reload");
    let planned = project.json(&format!("{line} --plan"), 0);
    let mut reused: Vec<&str> = planned["reused"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    reused.sort_unstable();
    assert_eq!(reused, ["beside", "plan"], "{planned}");
    let because = |step: &str, why: &str| json!({"step": step, "because": why});
    let runs = json!([because("fresh", "new"), because("build", "changed"), because("ship", "after")]);
    assert_eq!((&planned["runs"], &planned["removed"]), (&runs, &json!([])), "{planned}");
    assert!(!project.path("done.txt").exists(), "only what would be is shown");
    let result = project.json(&line, 0);
    let mut done: Vec<String> = project.read("done.txt").lines().map(str::to_owned).collect();
    done.sort();
    assert_eq!(done, ["fresh", "rebuilt", "ship"]);
    for (path, reused) in [("plan", true), ("beside", true), ("build", false), ("ship", false), ("fresh", false)] {
        let step = step(&result, path);
        assert_eq!((&step["status"], step["reused"] == true), (&json!("succeeded"), reused), "{path}");
    }
    let forked = result["run_id"].as_str().unwrap();
    assert_eq!(project.ends(&format!("logs {forked} build"), 0), "a plan\n", "the artifact came with its step");
    project.ended_once(forked);
    // It can be reloaded in turn, and nothing is left to do.
    let refused = project.ends(&format!("fork {forked} --reload"), 5);
    assert!(refused.contains("no step changed since run"), "{refused}");
    let named = project.ends(&format!("fork {forked} --reload --from ship --plan"), 0);
    assert!(named.contains("reused    build") && named.contains("runs      ship: it was requested"), "{named}");
}

/// The failed step runs again, and a step that was removed from the workflow is named.
#[test]
fn a_reloaded_fork_of_a_failed_run_repairs_it() {
    let project = project();
    let run = failed(&project);
    let repaired = FLOW.replace("test -e ok || { echo not ok; exit 3; }", "true").replace("  ship:\n", "  send:\n");
    project.folder.write("flow.yaml", repaired);
    let shown = project.ends(&format!("fork {run} --reload"), 0);
    for line in [
        "reused    plan",
        "runs      build: it made the run fail",
        "runs      send: it is new",
        "removed   ship: it is no longer in the workflow",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let mut done: Vec<String> = project.read("done.txt").lines().map(str::to_owned).collect();
    done.sort();
    assert_eq!(done, ["beside", "build", "build", "build", "plan", "ship"], "twice and once more");
    // An invalid source is reported, and nothing starts.
    project.folder.write("flow.yaml", "name: flow\n");
    assert!(project.ends(&format!("fork {run} --reload"), 3).contains("flow.yaml"));
}

/// With a changed agent configuration or parameter, only the steps that use it run again.
#[test]
fn a_reloaded_fork_minds_agents_and_parameters() {
    let project = Project::new();
    let agent = |name: &str, note: &str| {
        format!(
            "[agents.{name}]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", \"cat >/dev/null; echo {note} >> done.txt\"]\n"
        )
    };
    let stage = |id: &str, who: &str, more: &str| {
        format!("  - id: {id}\n    name: {id}\n    roles: {{primary: \"agent:{who}\"}}\n{more}")
    };
    let reads = "    inputs:\n      to: {type: string, source: \"${{ parameters.to }}\"}\n";
    let flow = format!(
        "workflow: {{id: w, name: W}}\nconfig:\n  parameters:\n    to: {{type: string, default: sea}}\n    \
         old: {{type: string, default: x}}\nstages:\n{}{}{}",
        stage("one", "ada", ""),
        stage("two", "bob", ""),
        stage("three", "ada", reads)
    );
    project.folder.write("w.yaml", &flow).write("skein.toml", agent("ada", "ada") + &agent("bob", "bob"));
    let run = project.json("run w.yaml", 0)["run_id"].as_str().unwrap().to_owned();
    project.folder.write("skein.toml", agent("ada", "ada") + &agent("bob", "robert"));
    let runs = |more: &str| project.json(&format!("fork {run} --reload --plan{more}"), 0)["runs"].clone();
    assert_eq!(runs(""), json!([{"step": "two", "because": "settings"}]));
    assert_eq!(
        runs(" --param to=land"),
        json!([{"step": "two", "because": "settings"}, {"step": "three", "because": "inputs"}])
    );
    // A parameter that no longer exists is left out.
    project.folder.write("w.yaml", flow.replace("    old: {type: string, default: x}\n", ""));
    project.ends(&format!("fork {run} --reload"), 0);
    assert!(project.read("done.txt").ends_with("robert\n"), "{}", project.read("done.txt"));
    let wrong = project.skein(&format!("fork {run} --param to=x --from one"));
    assert_eq!(wrong.code, 2, "{}", wrong.err);
}

/// A composite is reused or repeated as a whole, and a cursor continues only from a step that it has reached.
#[test]
fn a_fork_of_composites_and_routes() {
    let swdl = Project { folder: copy("swdl") };
    let chart = swdl.json("run chart.yaml", 0);
    let run = chart["run_id"].as_str().unwrap();
    let forked = swdl.json(&format!("fork {run} --from write"), 0);
    assert_eq!(forked["outputs"], chart["outputs"]);
    let reused = |result: &Value| -> Vec<String> {
        let steps = result["steps"].as_array().unwrap().iter().filter(|step| step["reused"] == true);
        steps.map(|step| step["path"].as_str().unwrap().to_owned()).collect()
    };
    let all: Vec<&str> = chart["steps"].as_array().unwrap().iter().map(|step| step["path"].as_str().unwrap()).collect();
    assert_eq!(reused(&forked), all.iter().copied().filter(|path| *path != "write").collect::<Vec<_>>());
    let inside = all.iter().find(|path| path.contains('/')).expect("a harbour is sounded");
    let said = swdl.ends(&format!("fork {run} --from {inside}"), 5);
    assert!(said.contains(&format!("`skein fork {run} --from sound` runs all of `sound` again")), "{said}");

    let aip15 = Project { folder: copy("aip15") };
    aip15.folder.write("shelves/mug", "5\n").write("shelves/pen", "2\n");
    let order = aip15.json("run ship-order --param things=[\"mug\",\"pen\"] --param to=harbour", 0);
    let run = order["run_id"].as_str().unwrap();
    let steps = order["steps"].as_array().unwrap();
    let never = steps.iter().find(|step| step["why"]["reason"] == "not_routed").expect("a branch chooses");
    let said = aip15.ends(&format!("fork {run} --from {}", never["path"].as_str().unwrap()), 5);
    assert!(said.contains("never reached"), "{said}");
    let root = |step: &&Value| !step["path"].as_str().unwrap().contains('/') && step["status"] == "succeeded";
    let last = steps.iter().rfind(root).unwrap()["path"].as_str().unwrap();
    let forked = aip15.json(&format!("fork {run} --from {last}"), 0);
    assert_eq!(forked["outputs"], order["outputs"]);
    assert!(!reused(&forked).is_empty() && !reused(&forked).contains(&last.to_owned()), "{forked}");
    // Undone steps run again, and are undone again.
    let undone = aip15.json("run ship-order --param things=[\"mug\",\"pen\"] --param to=nowhere", 4);
    let from = undone["error"]["step"].as_str().expect("a step failed").split(['/', '[']).next().unwrap().to_owned();
    let forked = aip15.json(&format!("fork {} --from {from}", undone["run_id"].as_str().unwrap()), 4);
    assert_eq!(forked["status"], "undone");
    assert_eq!(forked["undo"]["undone"], undone["undo"]["undone"]);
}

/// The decision at a gate is reused, with the person who decided, and nobody is asked again.
#[test]
fn a_fork_takes_over_what_was_decided() {
    let project = project();
    let run = project.left("gated.yaml");
    project.ends(&format!("approve {run} sign-off"), 0);
    project.ends(&format!("resume {run}"), 0);
    let forked = project.begin(&format!("fork {run} --from publish --format jsonl"));
    let line: Value = serde_json::from_str(&forked.until("\"sign-off\"")).unwrap();
    let reused = &line["event"]["step_reused"];
    assert!(reused["decided_by"].is_string() && reused["outcome"] == "succeeded", "{line}");
    assert_eq!(forked.end().0, Some(0));
    assert_eq!(project.read("done.txt"), "draft\npublish\npublish\n");
    // A fork from the gate asks again, and the run can be left there.
    let asks = project.json(&format!("fork {run} --from sign-off --no-wait"), 6);
    assert_eq!(asks["waiting_for"][0]["step"], "sign-off");
    assert_eq!(step(&asks, "draft")["reused"], true);
}

#[test]
fn a_fork_can_be_left_to_the_background() {
    let project = project();
    let run = failed(&project);
    project.folder.write("ok", "");
    let detached = project.json(&format!("fork {run} --from build --detach"), 0);
    let forked = detached["run_id"].as_str().unwrap();
    project.ends(&format!("runs {forked} --follow"), 0);
    assert_eq!(project.status(forked), "succeeded");
    assert_eq!(step(&project.json(&format!("runs {forked}"), 0), "plan")["reused"], true);
}

#[test]
fn a_step_that_failed_for_good_is_a_dead_letter() {
    let project = project();
    assert_eq!(project.json("dlq", 0), json!({"dead_letters": []}));
    assert_eq!(project.ends("dlq", 0), "No dead letters.\n");
    let run = failed(&project);
    let letters = project.json("dlq", 0);
    let [letter] = letters["dead_letters"].as_array().unwrap().as_slice() else { panic!("{letters}") };
    assert_eq!((&letter["run_id"], &letter["step"]), (&json!(run), &json!("build")));
    assert_eq!((&letter["class"], &letter["attempts"]), (&json!("transient"), &json!(2)));
    assert!(letter["message"].as_str().unwrap().contains("exit status 3"), "{letter}");
    assert!(fs::read_to_string(letter["log"].as_str().unwrap()).unwrap().contains("not ok"), "{letter}");
    let id = letter["id"].as_str().unwrap();
    let line = project.ends("dlq", 0);
    assert!(line.starts_with(id) && line.contains("transient, 2 attempts: it failed"), "{line}");
    // By its name, and by its run, which has only this one.
    for named in [id, &run] {
        let shown = project.ends(&format!("dlq show {named}"), 0);
        for part in ["transient, after 2 attempts", "│ not ok", &format!("skein dlq rerun {id}")] {
            assert!(shown.contains(part), "no `{part}`: {shown}");
        }
    }
    assert_eq!(project.json(&format!("dlq show {id}"), 0)["next"][1], format!("skein dlq rerun {id}"));
    let refused = project.ends(&format!("dlq show {run}.999"), 5);
    assert!(refused.contains(&format!("it has {id}")), "{refused}");
    assert!(project.ends("dlq show nothing.1", 5).contains("there is no run `nothing`"));
}

#[test]
fn a_dead_letter_is_done_again_once() {
    let project = project();
    let run = failed(&project);
    project.folder.write("ok", "");
    fs::remove_file(project.path("done.txt")).unwrap();
    let result = project.json(&format!("dlq rerun {run}"), 0);
    assert_eq!(project.read("done.txt"), "build\nship\n");
    assert_eq!(result["forked_from"], json!({"run": run, "step": "build"}));
    assert_eq!(project.json("dlq", 0), json!({"dead_letters": []}));
    let all = project.json("dlq --all", 0);
    assert_eq!(all["dead_letters"][0]["settled"]["run_id"], result["run_id"]);
    let refused = project.ends(&format!("dlq rerun {run}"), 5);
    assert!(refused.contains("is rerun by run"), "{refused}");
    // A manual fork handles the dead letter, too.
    fs::remove_file(project.path("ok")).unwrap();
    let second = failed(&project);
    assert_eq!(project.json("dlq", 0)["dead_letters"][0]["run_id"], json!(second));
    project.ends(&format!("fork {second} --from plan"), 4);
    let left = project.json("dlq", 0);
    assert_ne!(left["dead_letters"][0]["run_id"], json!(second), "{left}");
    assert_eq!(left["dead_letters"].as_array().unwrap().len(), 1, "it failed again: {left}");
}

#[test]
fn a_dead_letter_that_is_dropped_stays_recorded() {
    let project = project();
    let run = failed(&project);
    let dropped = project.json(&format!("dlq drop {run} --reason known"), 0);
    assert_eq!((&dropped["settled"]["how"], &dropped["settled"]["reason"]), (&json!("dropped"), &json!("known")));
    assert_eq!(project.ends("dlq", 0), "No dead letters.\n");
    let all = project.ends("dlq --all", 0);
    assert!(all.contains("(was dropped, requested by ") && all.contains(": known)"), "{all}");
    for line in ["drop", "rerun"] {
        let refused = project.ends(&format!("dlq {line} {run}"), 5);
        assert!(refused.contains("was dropped"), "{refused}");
    }
}

/// The page shows the output of its own example: each line below a command is part of the output.
#[test]
fn the_page_of_forks_shows_what_is_printed() {
    let page = fs::read_to_string(repository().join("docs/forks.md")).unwrap();
    let parts: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let project = Project::new();
    let source = parts.iter().find_map(|part| part.strip_prefix("yaml\n")).expect("it has an example");
    project.folder.write("release.yaml", source);
    let mut runs: Vec<String> = Vec::new();
    let mut sessions = 0;
    for part in parts.iter().filter_map(|part| part.strip_prefix("\n$ ")) {
        for command in part.split("\n$ ") {
            let mut lines = command.lines();
            let line = named(lines.next().unwrap(), &runs);
            let printed = typed(&project, &line);
            let all = project.json("runs", 0);
            let oldest = all["runs"].as_array().unwrap().iter().rev();
            runs = oldest.map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
            for shown in lines.filter(|line| !line.is_empty()) {
                assert!(printed.contains(&named(shown, &runs)), "`{line}` does not print `{shown}`:\n{printed}");
            }
            sessions += 1;
        }
    }
    assert!(sessions >= 5, "the page shows {sessions} commands");
}

/// A text of the page with the ids of the runs.
fn named(text: &str, runs: &[String]) -> String {
    let names = ["FIRST", "SECOND"].iter().zip(runs);
    names.fold(text.to_owned(), |text, (name, run)| text.replace(name, run))
}

/// The output of a command, and its exit status if it is not 0.
fn typed(project: &Project, line: &str) -> String {
    let Some(arguments) = line.strip_prefix("skein ") else {
        let (name, made) = (line.strip_prefix("touch ").expect("only files are made"), "");
        project.folder.write(name, made);
        return String::new();
    };
    let done = crate::session::run(skein(Path::new(&project.folder.0)).args(arguments.split_whitespace()));
    let exit = if done.code == 0 { String::new() } else { format!("[exit {}]", done.code) };
    format!("{}{}{exit}", done.out, done.err)
}
