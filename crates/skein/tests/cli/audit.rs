//! The audit log from outside: its records, how they are listed, checked and exported, and the detection of changes.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
};

/// A gate, then a tool that changes something and gets a secret.
fn project() -> Project {
    let project = Project::new();
    let approval = "mutates: [external:bank]\napproval: on-mutate\nidempotent: true\n";
    project.folder.write(".tools/pay/TOOL.md", tool("pay", approval));
    let about = "kind: cli\nbin: ./bank.sh\nauth: { ref: bank, state: { env: [BANK_TOKEN] } }\n\
                 implements:\n  - { tool: pay }\n";
    project.folder.write(".drivers/bank/DRIVER.md", driver("bank", about));
    project.folder.write(".drivers/bank/bank.sh", BANK);
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(project.path(".drivers/bank/bank.sh"), runs).unwrap();
    project.folder.write("token.txt", "a-token-of-the-bank\n");
    let roles = "[roles]\nowners = [\"*\"]\n[secrets]\nBANK_TOKEN = { file = \"token.txt\" }\n";
    project.folder.write("skein.toml", roles);
    project.folder.write("pay.md", workflow("pay", STEPS));
    project
}

const BANK: &str = "#!/bin/sh\necho $$ > begun; cat go > /dev/null\necho '{\"paid\": true}'\n";
const STEPS: &str = "  - { id: sign-off, kind: approval, prompt: \"Pay?\", approvers: [{ role: owners }] }
  - { id: pay-it, kind: tool, tool: pay, inputs: { amount: 7 } }
";

impl Project {
    /// The records that match a filter.
    fn audit(&self, filter: &str) -> Vec<Value> {
        let found = self.json(&format!("audit {filter}"), 0);
        found["records"].as_array().unwrap().clone()
    }
}

fn actions(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["action"].as_str().unwrap()).collect()
}

/// A run that is killed in the middle of its tool, and resumed.
fn paid(project: &Project) -> String {
    let run = project.left("pay.md");
    project.ends(&format!("approve {run} sign-off --reason it-fits"), 0);
    project.ends(&format!("approve {run} pay-it"), 0);
    let going = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    let going = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    project.go();
    let (code, lines, errors) = going.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    run
}

#[test]
fn what_people_and_tools_did_is_recorded_once_also_across_a_kill() {
    let project = project();
    assert_eq!(project.ends("audit", 0), "No records.\n");
    assert_eq!(project.json("audit verify", 0)["records"], 0);
    let run = paid(&project);
    let records = project.audit("");
    let call = ["tool.call", "secret.reveal"];
    let wanted = ["gate.approve", "hold.approve", call[0], call[1], "tool.end", call[0], call[1], "tool.end"];
    assert_eq!(actions(&records), wanted, "{records:#?}");
    let gate = &records[0];
    assert_eq!((&gate["prevHash"], &gate["seq"], &gate["hashAlg"]), (&json!("GENESIS"), &json!(0), &json!("sha256")));
    assert_eq!(gate["subject"], json!({"kind": "gate", "ref": "sign-off", "path": format!("{run}/sign-off")}));
    assert_eq!(gate["input"]["reason"], "it-fits");
    assert_eq!(gate["input"]["plan"], project.json(&format!("runs {run}"), 0)["workflow"]["hash"]);
    let call = &records[2];
    assert_eq!(call["actor"]["role"], "run");
    assert_eq!((&call["subject"]["ref"], &call["input"]["driver"]), (&json!("pay"), &json!("bank")));
    assert_eq!(call["input"]["mutates"], json!(["external:bank"]));
    // The output of `printf '{"amount":7}' | sha256sum`.
    let hash = "fb6632bd6651ff35747457d7d6aab3f5d91ff8521f5a79f7382c412da5ef081b";
    assert_eq!(call["input"]["inputs"], json!({"$redacted": true, "sha256": hash}));
    assert_eq!(records[3]["subject"]["ref"], "bank-token");
    assert_eq!(records[3]["input"]["context"], json!({"workflow": "pay", "run": run, "tool": "pay"}));
    assert_eq!(records[4]["output"], json!({"end": "interrupted"}));
    assert_eq!(records[7]["output"], json!({"end": "succeeded"}));
    // Each record refers to an event of the journal that is about it.
    let events = project.events(&run);
    for record in &records {
        let event = &events[record["input"]["event"].as_u64().unwrap() as usize]["event"];
        let name = event.as_object().unwrap().keys().next().unwrap().as_str();
        let wanted = match record["action"].as_str().unwrap() {
            "gate.approve" | "hold.approve" => "decided",
            "tool.end" => "attempt_ended",
            _ => "attempt_started",
        };
        assert_eq!(name, wanted, "{record}");
    }
}

#[test]
fn records_are_listed_by_run_actor_action_and_time() {
    let project = project();
    let run = paid(&project);
    let other = project.left("asks.md");
    project.ends(&format!("cancel {other} --reason enough"), 0);
    let me = project.audit("")[0]["actor"]["id"].as_str().unwrap().to_owned();
    assert_eq!(actions(&project.audit(&format!("--run {}", &other[..8]))), ["run.cancel"]);
    assert_eq!(project.audit(&format!("--run {run}")).len(), 8);
    assert_eq!(actions(&project.audit("--action gate")), ["gate.approve"]);
    assert_eq!(project.audit("--action tool.end").len(), 2);
    assert_eq!(project.audit("--action too").len(), 0);
    assert_eq!(project.audit(&format!("--actor {me} --since 1h")).len(), 9);
    assert_eq!(project.audit("--actor nobody-here").len(), 0);
    assert_eq!(project.audit("--since 2020-01-01").len(), 9);
    assert_eq!(project.audit("--since 2999-01-01T00:00:00Z").len(), 0);
    assert!(project.ends("audit --since yesterday", 2).contains("`yesterday` is not a valid time"));
    let shown = project.ends("audit --action run", 0);
    assert!(shown.contains(&format!("{me} run.cancel run {other} in {other}: enough")), "{shown}");
    let tool = project.ends("audit --action tool.end", 0);
    assert!(tool.contains("tool.end tool pay in ") && tool.contains(" succeeded\n"), "{tool}");
}

#[test]
fn an_export_is_checked_and_what_was_changed_in_it_is_named() {
    let project = project();
    paid(&project);
    let whole = project.json("audit verify", 0);
    assert_eq!((&whole["whole"], &whole["records"]), (&json!(true), &json!(8)));
    let head = whole["head"].as_str().unwrap().to_owned();
    assert_eq!(project.ends("audit verify", 0), format!("8 records, intact\nhead {head}\n"));
    let export = project.ends("audit export", 0);
    project.folder.write("all.jsonl", &export);
    assert_eq!(project.json("audit verify all.jsonl", 0), whole);
    let starts: Vec<usize> = std::iter::once(0).chain(export.match_indices('\n').map(|(at, _)| at + 1)).collect();
    for record in 0..8 {
        // Some positions in a line, and its end.
        let (from, to) = (starts[record], starts[record + 1]);
        for at in (from..to).step_by(101).chain([to - 1]) {
            let mut changed = export.clone().into_bytes();
            changed[at] ^= 2;
            project.folder.write("changed.jsonl", changed);
            let found = project.json("audit verify changed.jsonl", 4);
            assert_eq!((&found["whole"], &found["broken"]["seq"]), (&json!(false), &json!(record)), "{found}");
        }
    }
    let lines: Vec<&str> = export.lines().collect();
    project.folder.write("gap.jsonl", format!("{}\n{}\n", lines[0], lines[2]));
    let told = project.ends("audit verify gap.jsonl", 4);
    assert!(told.contains("record 1 is missing: record 2 is in its place; the 1 before it are intact"), "{told}");
    project.pipe("pipe");
    for (file, why) in [("none", "No such file"), ("pipe", "not a regular file"), (".", "not a regular file")] {
        let told = project.ends(&format!("audit verify {file}"), 5);
        assert!(told.contains(why), "{told}");
    }
}

/// A gate that opens by itself, with a message that the project overrides.
const GATE: &str = "workflow: {id: opens, name: Opens}\nstages:\n  - id: gate\n    name: Gate\n    type: gate\n    gate: {timeout: 1s, \
                    on_timeout: auto_approve, message: Go on?}\n";
const OVERRIDES: &str = "overrides:\n  opens:\n    stages:\n      gate:\n        gate: {message: May it?}\n";

#[test]
fn what_is_allowed_beyond_the_usual_is_recorded_with_the_run_that_uses_it() {
    let project = Project::new();
    project.folder.write("elsewhere/.keep", "").write("gate.yaml", GATE);
    project.folder.write(".skillmeat-workflow-overrides.yaml", OVERRIDES);
    project.folder.write("skein.toml", "allow_unenforced = true\nallow_auto_approve = true\n");
    let result = project.json("run gate.yaml --allow-root elsewhere", 0);
    let run = result["run_id"].as_str().unwrap();
    let records = project.audit("--action override");
    let used: Vec<_> =
        records.iter().map(|one| (one["subject"]["ref"].as_str().unwrap(), one["input"]["used"].clone())).collect();
    let field = json!([{"field": "stages.gate.gate.message", "file": ".skillmeat-workflow-overrides.yaml"}]);
    let wanted = [
        ("allow-root", json!([project.path("elsewhere")])),
        ("allow-unenforced", json!(["steps"])),
        ("allow-auto-approve", json!(["gate"])),
        ("workflow-overrides", field),
    ];
    assert_eq!(used, wanted, "{records:#?}");
    assert!(records.iter().all(|one| one["subject"]["path"] == run && one["action"] == "override.use"));
    let gates = project.audit("--action gate");
    assert_eq!(actions(&gates), ["gate.approve"]);
    assert_eq!(gates[0]["actor"], json!({"id": "system:timeout", "role": "system"}));
}

/// A decision by timeout is recorded with the timeout as its actor, regardless of its result.
#[test]
fn what_a_time_decided_is_recorded_as_its_doing() {
    let project = Project::new();
    let wanted: [(&str, &[&str]); 3] =
        [("cancel", &["run.cancel"]), ("last", &["gate.expire"]), ("escalate", &["gate.escalate", "run.cancel"])];
    for (on_timeout, told) in wanted {
        let steps = format!(
            "  - {{ id: ask, kind: approval, prompt: \"Go on?\", approvers: [{{ role: owners }}], timeout_ms: 50, \
             on_timeout: {on_timeout}, on_approve: {{ next: last }} }}\n  - {{ id: last, kind: branch, branches: [{{ when: \"true\", next: $end }}] }}\n"
        );
        project.folder.write("asks.md", workflow("asks", &steps));
        let done = project.skein("run asks.md --format json");
        let result: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{}{}", done.out, done.err));
        let records =
            project.audit(&format!("--run {}", result["run_id"].as_str().unwrap_or_else(|| panic!("{result:#}"))));
        assert_eq!(actions(&records), told, "{on_timeout}: {records:#?}");
        assert!(records.iter().all(|one| one["actor"] == json!({"id": "system:timeout", "role": "system"})));
    }
}
