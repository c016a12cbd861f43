//! Evidence: steps that claim to be done, and the conditions that must hold before that counts.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kept::{Project, lives};

/// A workflow of one step with this evidence and this worker script.
fn flow(script: &str, evidence: &str) -> String {
    let lines: String = script.lines().map(|line| format!("      {}\n", line.trim())).collect();
    format!(
        "name: proves\nversion: \"1\"\ntimeout: 5m\nsteps:\n  it:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
         timeout: 2m\n    x-skein:\n      evidence: {evidence}\n    instructions: |\n{lines}"
    )
}

/// The result of that step.
fn step(project: &Project, script: &str, evidence: &str, code: i32) -> Value {
    project.folder.write("flow.yaml", flow(script, evidence));
    project.json("run flow.yaml", code)["steps"][0].clone()
}

fn holds(step: &Value) -> Vec<bool> {
    let proofs = step["evidence"].as_array().map_or(&[][..], Vec::as_slice);
    proofs.iter().map(|proof| proof["holds"] == true).collect()
}

/// The same evidence in every format, for scripts, agents and tools.
#[test]
fn every_format_and_worker_is_held_to_it() {
    let agentcore = flow("if test -e allowed; then echo x > out.txt; fi", "[{file: out.txt}]");
    let ioa = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: one}\nspec:\n  description: One.\n  \
        domainsInvolved: [x]\n  timeout: 1h\n  failurePolicy: abort\n  steps:\n    - {name: it, agent: writer, \
        action: Write it., timeout: 10m, x-skein: {evidence: [{file: out.txt}]}}\n";
    let swdl = "workflow: {id: one, name: One, version: \"1.0.0\"}\nstages:\n  - id: it\n    name: It\n    \
        roles: {primary: \"agent:writer\"}\n    error_policy: {retry: {max_attempts: 1}, on_failure: halt}\n    \
        x-skein: {evidence: [{file: out.txt}]}\n";
    let aip15 = "---\nname: One\nid: one\ndescription: One.\nversion: 1.0.0\ninputs: { type: object }\n\
        outputs: { type: object }\ntimeout_ms: 600000\nsteps:\n  - { id: it, kind: tool, tool: write, \
        metadata: { skein: { evidence: [{ file: out.txt }] } } }\n---\n";
    for (file, source) in [("a.yaml", agentcore.as_str()), ("b.yaml", ioa), ("c.yaml", swdl), ("d.md", aip15)] {
        let project = Project::new();
        project.folder.write("skein.toml", AGENT).write(file, source);
        project.folder.write(".tools/write/TOOL.md", TOOL).write(".drivers/pen/DRIVER.md", DRIVER);
        project.folder.write(".drivers/pen/pen.sh", format!("#!/bin/sh\n{WRITES}\necho '{{}}'\n"));
        let pen = project.path(".drivers/pen/pen.sh");
        std::fs::set_permissions(pen, std::fs::Permissions::from_mode(0o755)).unwrap();
        project.folder.write("writes.sh", WRITES);
        let not = project.json(&format!("run {file}"), 4);
        let step = &not["steps"][0];
        assert_eq!((step["error"]["code"].as_str(), holds(step)), (Some("evidence"), vec![false]), "{file}: {not}");
        project.folder.write("allowed", "");
        let done = project.json(&format!("run {file}"), 0);
        assert_eq!(holds(&done["steps"][0]), [true], "{file}: {done}");
    }
}

/// A schema that takes too long to check fails its step and blocks nothing else, although the check runs on the thread
/// that drives all runs of the process.
#[test]
fn a_value_that_is_too_expensive_to_check_fails_its_step() {
    let arm = |name: &str| format!("{{type: object, properties: {{a: {{$ref: \"#/$defs/t\"}}}}, required: [{name}]}}");
    let schema = format!(
        "{{type: object, $defs: {{t: {{anyOf: [{}, {}]}}}}, properties: {{v: {{$ref: \"#/$defs/t\"}}}}}}",
        arm("x"),
        arm("y")
    );
    let value = (0..60).fold("{}".to_owned(), |inner, _| format!("{{\"a\":{inner}}}"));
    let project = Project::new();
    let flow = "---\nname: One\nid: one\ndescription: One.\nversion: 1.0.0\ninputs: { type: object }\n\
        outputs: { type: object }\ntimeout_ms: 600000\nsteps:\n  - { id: it, kind: tool, tool: write }\n---\n";
    let tool = TOOL.replace("outputs: { type: object }", &format!("outputs: {schema}"));
    project.folder.write("skein.toml", AGENT).write("d.md", flow).write(".tools/write/TOOL.md", tool);
    project.folder.write(".drivers/pen/DRIVER.md", DRIVER);
    project.folder.write(".drivers/pen/pen.sh", format!("#!/bin/sh\ncat >/dev/null\necho '{{\"v\": {value}}}'\n"));
    let pen = project.path(".drivers/pen/pen.sh");
    std::fs::set_permissions(pen, std::fs::Permissions::from_mode(0o755)).unwrap();
    let begun = std::time::Instant::now();
    let not = project.json("run d.md", 4);
    let said = not["steps"][0]["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(said.contains("schema too expensive to check in detail: more than 1000000 steps"), "{not}");
    // The same for the parameters of a run.
    let flow = flow.replace("inputs: { type: object }", &format!("inputs: {schema}"));
    project.folder.write("e.md", flow).write("given.json", format!("{{\"v\": {value}}}"));
    let told = project.ends("run e.md --params given.json", 2);
    assert!(told.contains("schema too expensive to check"), "{told}");
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

const WRITES: &str = "cat >/dev/null; if test -e allowed; then echo x > out.txt; fi";
const AGENT: &str = "[agents.writer]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"writes.sh\"]\n";
const TOOL: &str = "---\nname: Write\nid: write\ndescription: Writes.\nversion: 1.0.0\ninputs: { type: object }\n\
    outputs: { type: object }\nidempotent: true\n---\n";
const DRIVER: &str = "---\nname: Pen\nid: pen\ndescription: A pen.\nversion: 1.0.0\nkind: cli\nbin: ./pen.sh\n\
    implements:\n  - tool: write\n    version: ^1.0.0\n    metadata: { cli: { argv: [write] } }\n---\n";

/// A worker is judged by the schema and the files as they were before it started.
#[test]
fn what_it_is_judged_by_is_not_its_own() {
    let project = Project::new();
    project.folder.write("shape.json", "{\"type\": \"object\", \"required\": [\"n\"]}");
    project.folder.write("src/there.txt", "as it was\n");
    let fits = "[{schema: shape.json, of: out.json}]";
    let wrong = step(&project, "echo '{}' > shape.json; echo '{}' > out.json", fits, 4);
    assert!(wrong["evidence"][0]["found"].as_str().unwrap().contains("`n`"), "{wrong}");
    project.folder.write("shape.json", "{\"type\": \"object\", \"required\": [\"n\"]}");
    assert_eq!(holds(&step(&project, "echo '{\"n\": 1}' > out.json", fits, 0)), [true]);
    let changed = "[{changed: \"src/*.txt\"}]";
    let same = step(&project, "echo 'as it was' > src/there.txt; echo x > src/other.md", changed, 4);
    assert_eq!(same["evidence"][0]["found"], "no matching file has changed", "{same}");
    let done = step(&project, "echo new > src/there.txt", changed, 0);
    assert_eq!(done["evidence"][0]["found"], "src/there.txt", "{done}");
}

/// A command gets its arguments unchanged, cannot write more than the step may, and cannot write the step's outputs.
#[test]
fn a_command_is_behind_the_wall_and_is_no_shell() {
    let project = Project::new();
    project.folder.write(
        "try.sh",
        "for f in \"$PWD/../outside/x\" ../.skein/x /usr/skein-proof; do (echo x > $f) 2>/dev/null && exit 7; done\n\
         test -z \"$SKEIN_OUTPUT\" || exit 8\n(echo x >> shielded) 2>/dev/null && exit 9\n\
         echo \"<$1>\"; echo x > inside.txt\n",
    );
    project.folder.write("shielded", "as it was\n");
    let evidence = "[{command: [sh, try.sh, \"a b; touch ran $(touch ran)\"]}]\n      protect: [shielded]";
    let done = step(&project, "true", evidence, 0);
    assert_eq!(done["evidence"][0]["found"], "<a b; touch ran $(touch ran)>", "{done}");
    assert!(project.path("inside.txt").exists() && !project.path("ran").exists());
}

#[test]
fn a_command_that_takes_too_long_proves_nothing() {
    let project = Project::new();
    project
        .folder
        .write("flow.yaml", flow("true", "[{command: [sleep, \"1000\"]}]").replace("timeout: 2m", "timeout: 3s"));
    let step = project.json("run flow.yaml", 4)["steps"][0].clone();
    assert_eq!(step["error"]["code"], "evidence", "{step}");
    assert!(step["error"]["message"].as_str().unwrap().contains("it exceeded its timeout of"), "{step}");
}

/// Evidence is shown everywhere a step is shown.
#[test]
fn proofs_are_shown() {
    let project = Project::new();
    let evidence = "[{command: [\"true\"]}, {file: out.txt}]";
    project.folder.write("flow.yaml", flow("echo x > out.txt", evidence));
    let plan = project.ends("plan flow.yaml", 0);
    assert!(plan.contains("succeeds only if `true` succeeds") && plan.contains("`out.txt` exists"), "{plan}");
    let told = project.ends("run flow.yaml", 0);
    assert!(told.contains("proven") && told.contains("`true` succeeds; `out.txt` exists"), "{told}");
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let shown = project.ends(&format!("runs {run}"), 0);
    assert!(shown.contains("proven that `out.txt` exists"), "{shown}");
    let meta: Value = serde_json::from_str(&project.read("context/it/_meta.json")).unwrap();
    assert_eq!(meta["evidence"][1], json!({"what": "`out.txt` exists", "holds": true, "found": "2 bytes"}));
    let events = project.events(&run);
    let ended = events.iter().find_map(|event| event["event"].get("attempt_ended")).unwrap();
    assert_eq!(ended["proofs"][0]["what"], "`true` succeeds", "{ended}");
}

/// Evidence that waits: its worker has ended, and no success is recorded yet.
const WAITS: &str = "[{command: [sh, -c, \"echo $$ > begun; cat go > went\"]}, {changed: out.txt}]";

/// The engine is killed between the end of a worker and the end of its evidence checks: no success without evidence.
#[test]
fn a_killed_engine_proves_again() {
    let project = Project::new();
    project.folder.write("flow.yaml", flow("test -e out.txt || echo x > out.txt; echo x >> tries", WAITS));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    let proof = project.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    assert_eq!(project.read("tries"), "x\n", "the worker had ended");
    let ended = |events: Vec<Value>| events.iter().any(|event| event["event"].get("step_ended").is_some());
    assert!(!ended(project.events(&run)));
    let resumed = project.begin(&format!("resume {run} --format jsonl"));
    let again = project.begun();
    assert!(proof != again && !lives(&proof), "what was left of the first is gone");
    project.go();
    // The second attempt changed nothing more, but the step did.
    assert_eq!(resumed.end().0, Some(0));
    assert_eq!(project.read("went"), "go\n");
    project.ended_once(&run);
}

#[test]
fn a_run_that_is_cancelled_ends_its_proofs() {
    let project = Project::new();
    project.folder.write("flow.yaml", flow("true", WAITS));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    let proof = project.begun();
    project.ends(&format!("cancel {run}"), 0);
    assert_eq!(going.end().0, Some(4));
    assert!(!lives(&proof));
    assert_eq!(project.status(&run), "cancelled");
}
