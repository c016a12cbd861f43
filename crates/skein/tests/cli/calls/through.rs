//! Effects that reach through a call: budgets, cancels, undo, gates, and a killed host.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{FORMATS, caller, project};
use crate::kept::Project;

fn step<'a>(result: &'a Value, path: &str) -> &'a Value {
    let steps = result["steps"].as_array().unwrap();
    steps.iter().find(|step| step["path"] == path).unwrap_or_else(|| panic!("no step {path}: {result}"))
}

/// A project in which each format calls an IOA workflow of this spec.
fn calling(spec: &str) -> Project {
    let project = project();
    let called = format!(
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{name: ioa}}\nspec:\n  description: Works.\n  \
         domainsInvolved: [all]\n  timeout: 5m\n{spec}"
    );
    project.folder.write("workflows/ioa.yaml", called);
    for format in FORMATS {
        let (file, text) = caller(format, "ioa");
        project.folder.write(&file, text);
    }
    project
}

fn file(format: &str) -> String {
    caller(format, "ioa").0
}

const GATE: &str = "  x-skein: {output: {greeting: \"hello, ${{ payload.who }}\"}}\n  steps:\n    \
    - {name: may, agent: greeter, action: \"GATE: May it go on?\", timeout: 3m}\n";

/// A person answers a gate of the called workflow, and the run continues in the caller. While it waits, each level
/// shows that in its own terms.
#[test]
fn a_gate_of_what_is_called_is_answered_through_the_caller() {
    let project = calling(GATE);
    let waiting =
        [("agentcore", "RUNNING"), ("aip15", "suspended"), ("ioa", "blocked"), ("swdl", "waiting_for_approval")];
    for (format, word) in waiting {
        let left = project.json(&format!("run {} --param name=ada --no-wait", file(format)), 6);
        assert_eq!((&left["status"], &left["native_status"]), (&json!("waiting"), &json!(word)), "{format}");
        let run = left["run_id"].as_str().unwrap();
        project.ends(&format!("approve {run} ask/may"), 0);
        // If nothing is left to do, the answer ended the run.
        project.skein(&format!("resume {run}"));
        let result = project.json(&format!("runs {run}"), 0);
        assert_eq!(result["status"], "succeeded", "{format}");
        assert_eq!(result["outputs"], json!({"said": "hello, ada!"}), "{format}");
    }
}

/// A worker of the called workflow is ended with the run, and a killed host resumes at the same point.
const HELD: &str = "  x-skein: {output: {greeting: \"${{ steps.greet.output.greeting }}\"}}\n  steps:\n    \
    - {name: first, agent: noter, action: First.}\n    \
    - {name: greet, agent: holder, action: Greet., dependsOn: [first], \
    x-skein: {input: {who: \"${{ payload.who }}\"}}}\n";

fn held() -> Project {
    let project = calling(HELD);
    project.folder.write("hold.sh", "echo $$ > begun; cat go > /dev/null; exec sh greet.sh < /dev/null\n");
    project.folder.write(
        "skein.toml",
        "[agents.greeter]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"greet.sh\"]\n[agents.holder]\nworker = \"CUSTOM\"\n\
         command = [\"sh\", \"hold.sh\"]\n[agents.noter]\nworker = \"CUSTOM\"\n\
         command = [\"sh\", \"-c\", \"cat > /dev/null; echo $SKEIN_STEP >> done.txt\"]\n",
    );
    project
}

#[test]
fn a_host_that_is_killed_in_the_middle_of_a_call_goes_on_there() {
    let project = held();
    for format in FORMATS {
        let going = project.begin(&format!("run {} --param name=ada --format jsonl", file(format)));
        let run = going.run();
        project.begun();
        going.signal(Signal::KILL);
        assert_eq!(going.end().0, None);
        let resumed = project.begin(&format!("resume {run} --format jsonl"));
        project.begun();
        project.go();
        let (code, lines, errors) = resumed.end();
        assert_eq!(code, Some(0), "{format}: {lines}{errors}");
        let result = project.json(&format!("runs {run}"), 0);
        assert_eq!(result["outputs"], json!({"said": "hello, ada!"}), "{format}");
        assert_eq!(step(&result, "ask/first")["total_attempts"], 1, "what was done is not done again");
        project.ended_once(&run);
    }
    assert_eq!(project.read("done.txt"), "ask/first\n".repeat(4));
}

#[test]
fn a_cancel_reaches_what_is_called() {
    let project = held();
    for (format, word) in [("agentcore", "CANCELLED"), ("aip15", "cancelled"), ("ioa", "failed"), ("swdl", "cancelled")]
    {
        let going = project.begin(&format!("run {} --param name=ada --format jsonl", file(format)));
        let run = going.run();
        let worker = project.begun();
        project.ends(&format!("cancel {run}"), 0);
        let (code, lines, errors) = going.end();
        assert_eq!(code, Some(4), "{format}: {lines}{errors}");
        assert!(!crate::kept::lives(&worker));
        let result = project.json(&format!("runs {run}"), 0);
        assert_eq!(result["status"], "cancelled");
        assert_eq!(step(&result, "ask")["native_status"], word, "{format}");
        assert_eq!(step(&result, "ask/greet")["native_status"], "failed", "in the words of IOA");
    }
}

/// A called workflow that fails undoes its steps; the caller then handles the failure as its own format defines.
#[test]
fn what_is_called_takes_back_what_it_did_and_then_the_caller_does() {
    let undoing = "  failurePolicy: compensate\n  steps:\n    - {name: book, agent: noter, action: Book.}\n    \
        - {name: pay, agent: refuser, action: Pay., dependsOn: [book]}\n  \
        compensation:\n    - {step: book, action: Cancel it.}\n";
    let project = calling(undoing);
    project.folder.write(
        "skein.toml",
        "[agents.greeter]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"greet.sh\"]\n[agents.noter]\nworker = \"CUSTOM\"\n\
         command = [\"sh\", \"-c\", \"echo $SKEIN_STEP $(grep -c Cancel) >> done.txt\"]\n\
         [agents.refuser]\nworker = \"CUSTOM\"\ncommand = [\"false\"]\n",
    );
    // The caller has booked something itself, and undoes that, too.
    project.folder.write(
        "workflows/trip.yaml",
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: trip}\nspec:\n  description: Books.\n  \
         domainsInvolved: [all]\n  timeout: 5m\n  failurePolicy: compensate\n  steps:\n    \
         - {name: train, agent: noter, action: Book.}\n    \
         - {name: ask, agent: noter, action: Ask., dependsOn: [train], x-skein: {call: ioa}}\n  \
         compensation:\n    - {step: train, action: Cancel it.}\n    - {step: ask, action: Cancel it.}\n",
    );
    let result = project.json("run workflows/trip.yaml", 4);
    assert_eq!((&result["status"], &result["native_status"]), (&json!("undone"), &json!("completed")));
    assert_eq!(project.read("done.txt"), "train 0\nask/book 0\nask/book 1\ntrain 1\n", "last first, each once");
    assert_eq!(step(&result, "ask/book")["status"], "undone");
    assert_eq!(step(&result, "train")["status"], "undone");
    for (format, word) in [("agentcore", "FAILED"), ("aip15", "failed"), ("swdl", "failed")] {
        fs::remove_file(project.path("done.txt")).unwrap();
        let (path, text) = caller(format, "ioa");
        // The call returns nothing, and nothing reads it.
        let text = text.replace("greeting}}", "x}}").replace("    outputs: {greeting: {type: string}}\n", "");
        project
            .folder
            .write(&path, text.replace("x-skein: {output: {said: \"${{ stages.ask.outputs.greeting }}!\"}}\n", ""));
        let result = project.json(&format!("run {path} --param name=ada"), 4);
        assert_eq!((&result["native_status"], &step(&result, "ask")["native_status"]), (&json!(word), &json!(word)));
        assert_eq!(project.read("done.txt"), "ask/book 0\nask/book 1\n", "{format}");
    }
}
