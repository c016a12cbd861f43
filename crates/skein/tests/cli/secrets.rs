//! Secrets from outside: access, delivery, and that no written file contains one.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
};

/// A value that differs in each form in which it could be written.
const VALUE: &str = "p@ss/w\"rd+é-1234567";

/// A project whose tools run this script, with a secret that these fields describe.
fn project(script: &str, described: &str) -> Project {
    let project = Project::new();
    for id in ["pay", "look"] {
        let file = tool(id, "idempotent: true\nrequires: { secrets: [bank-token] }\n");
        project.folder.write(&format!(".tools/{id}/TOOL.md"), file);
    }
    let about = "kind: cli\nbin: ./bank.sh\nimplements:\n  - { tool: pay }\n  - { tool: look }\n";
    project.folder.write(".drivers/bank/DRIVER.md", driver("bank", about));
    project.folder.write(".drivers/bank/bank.sh", format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(project.path(".drivers/bank/bank.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    project.folder.write("token.txt", format!("{VALUE}\n"));
    project.folder.write("skein.toml", TOML);
    project
        .folder
        .write("SECRETS.md", format!("---\nname: Ours\nsecrets:\n  - {{ slug: bank-token{described} }}\n---\n"));
    for id in ["pay", "look"] {
        let step = format!("  - {{ id: one, kind: tool, tool: {id} }}\n");
        project.folder.write(&format!("{id}.md"), workflow(id, &step));
    }
    project
}

const TOML: &str = "[roles]\nbookkeeping = [\"nobody-here\"]\n[secrets]\nBANK_TOKEN = { file = \"token.txt\" }\n";

fn records(project: &Project, action: &str) -> Vec<Value> {
    project.json(&format!("audit --action {action}"), 0)["records"].as_array().unwrap().clone()
}

/// A tool that tries every way to reveal its secret.
const TELLS: &str = r#"cat > /dev/null
b=$(printf %s "$BANK_TOKEN" | base64 -w0)
u='p%40ss%2Fw%22rd%2B%C3%A9-1234567'
j='p@ss/w\"rd+\u00e9-1234567'
for form in "$BANK_TOKEN" "$b" "$u" "$j"; do
  echo "here it is: $form" >&2
done
printf '{"ok": false, "error": {"code": "bank.told", "message": "%s and %s and %s", "retryable": true}}\n' "$b" "$u" "$(printf %s "$BANK_TOKEN" | sed 's/"/\\"/')" > told.json
[ -e again ] || { touch again; cat told.json; exit 1; }
printf '{"token": "%s", "more": ["%s", {"x": "%s"}]}\n' "$(printf %s "$BANK_TOKEN" | sed 's/"/\\"/')" "$b" "$u""#;

/// Collects all files below a folder.
fn everything(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            everything(&entry, found);
        } else if entry.is_file() {
            found.push((entry.display().to_string(), fs::read(&entry).unwrap()));
        }
    }
}

#[test]
fn a_secret_of_a_tool_is_in_nothing_that_is_written() {
    let project = project(TELLS, "");
    let step = "  - { id: one, kind: tool, tool: pay, retry: { max_attempts: 2, backoff: fixed, initial_ms: 1 } }\n";
    project.folder.write("pay.md", workflow("pay", step));
    let shown = project.skein("run pay.md --record tape");
    assert_eq!(shown.code, 0, "{}{}", shown.out, shown.err);
    let run = project.json("runs", 0)["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let mut sinks = vec![("terminal".to_owned(), format!("{}{}", shown.out, shown.err).into_bytes())];
    let jsonl = format!("events {run} --format jsonl");
    for line in [
        format!("runs {run} --format json"),
        format!("runs {run}"),
        format!("events {run} --format json"),
        jsonl,
        format!("events {run}"),
        format!("logs {run}"),
        format!("logs {run} one --attempt 1"),
        "audit --format json".to_owned(),
        "audit export".to_owned(),
        "catalog secret".to_owned(),
        format!("fork {run} --from one"),
    ] {
        sinks.push((line.clone(), project.ends(&line, 0).into_bytes()));
    }
    everything(&project.path(".skein"), &mut sinks);
    everything(&project.path("tape"), &mut sinks);
    // The run keeps a copy of its driver, which is a file of the project and contains the secret itself.
    sinks.retain(|(name, _)| !name.contains("/programs/"));
    let wrapped =
        String::from_utf8(sinks.iter().find(|(name, _)| name.starts_with("logs")).unwrap().1.clone()).unwrap();
    assert!(wrapped.matches("here it is: ***").count() >= 4, "it was told, and taken out: {wrapped}");
    let encoded = "cEBzcy93InJkK8OpLTEyMzQ1Njc=";
    let forms =
        [VALUE, encoded, "p%40ss%2Fw%22rd%2B%C3%A9-1234567", "p@ss/w\\\"rd+é-1234567", "p@ss/w\\\"rd+\\u00e9-1234567"];
    for (name, bytes) in &sinks {
        for form in forms {
            let found = bytes.windows(form.len()).any(|window| window == form.as_bytes());
            assert!(!found, "{name} holds {form}");
        }
    }
    let told = fs::read_to_string(project.path("told.json")).unwrap();
    assert!(told.contains(encoded), "the tool had the secret: {told}");
}

#[test]
fn a_secret_is_for_the_tools_and_workflows_that_its_file_names() {
    let project = project("echo '{}'", ", access: { reveal: [{ tool: pay@1 }] }");
    assert_eq!(project.json("run pay.md", 0)["status"], "succeeded");
    let granted = records(&project, "secret.reveal");
    assert_eq!(granted[0]["input"]["granted_by"], "tool:pay");
    assert_eq!(granted[0]["subject"]["ref"], "bank-token");
    let told = project.ends("validate look.md", 3);
    assert!(told.contains("SK0607") && told.contains("`one` may not use the secret `bank-token`"), "{told}");
    project.ends("run look.md", 3);
    assert_eq!(records(&project, "secret.refuse"), [] as [Value; 0], "a source that is wrong is not run");
    // A step that requests the secret itself is no different.
    let own = "  - { id: one, kind: tool, tool: look, metadata: { skein: { secrets: [bank-token] } } }\n";
    project.folder.write("own.md", workflow("own", own));
    assert!(project.ends("validate own.md", 3).contains("SK0607"));
    let allowed = "---\nname: Ours\nsecrets:\n  - { slug: bank-token, access: { reveal: [{ workflow: own }] } }\n---\n";
    project.folder.write("SECRETS.md", allowed);
    assert_eq!(project.json("run own.md", 0)["status"], "succeeded");
    assert_eq!(records(&project, "secret.reveal").last().unwrap()["input"]["granted_by"], "workflow:own");
}

/// Only the run knows its actor.
#[test]
fn a_secret_is_for_the_people_and_roles_that_its_file_names() {
    let project = project("echo '{}'", ", access: { reveal: [{ role: bookkeeping }, { userId: nobody-here }] }");
    assert!(project.ends("validate pay.md", 0).contains("valid"));
    let told = project.ends("run pay.md", 5);
    let why = "SECRETS.md grants it to role:bookkeeping, user:nobody-here";
    assert!(told.contains(&format!("`one` may not have the secret `bank-token`: {why}")), "{told}");
    assert_eq!(project.json("runs", 0)["runs"], json!([]), "nothing began");
    let refused = records(&project, "secret.refuse");
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["subject"], json!({"kind": "secret", "ref": "bank-token"}));
    let context = json!({"workflow": "pay", "step": "one", "tool": "pay"});
    assert_eq!((&refused[0]["input"]["context"], &refused[0]["input"]["why"]), (&context, &json!(why)));
    project.folder.write("skein.toml", TOML.replace("nobody-here", "*"));
    assert_eq!(project.json("run pay.md", 0)["status"], "succeeded");
    assert_eq!(records(&project, "secret.reveal")[0]["input"]["granted_by"], "role:bookkeeping");
    project.json("audit verify", 0);
}

#[test]
fn what_cannot_be_handed_out_or_told_is_refused() {
    let project = project("echo '{}'", ", exposures: [egress-substitute]");
    let told = project.ends("run pay.md", 5);
    assert!(told.contains("its only exposure is `egress-substitute`, which this version does not support"), "{told}");
    project
        .folder
        .write("SECRETS.md", "---\nname: Ours\nsecrets:\n  - { slug: bank-token, value: hunter2-hunter2 }\n---\n");
    let told = project.ends("run pay.md", 5);
    assert!(told.contains("cannot check who may use it: SECRETS.md:4: a secret has no `value`"), "{told}");
    let wrong = project.ends("validate SECRETS.md", 3);
    assert!(wrong.contains("its value is never in a file that describes it"), "{wrong}");
    project.folder.write("SECRETS.md", "---\nname: Ours\nsecrets:\n  - { slug: other-one }\n---\n");
    project.folder.write("skein.toml", "");
    let told = project.ends("run pay.md", 5);
    assert!(told.contains("there is no secret `BANK_TOKEN`"), "{told}");
    let needs = workflow("needs", "  - { id: nap, kind: suspend, resume: { on: [go] } }\n");
    project.folder.write("needs.md", needs.replace("steps:", "requires: { secrets: [other-one] }\nsteps:"));
    let told = project.ends("run needs.md --no-wait", 5);
    assert!(told.contains("the workflow `needs` requires the secret `OTHER_ONE`"), "{told}");
}

/// A file that only its worker can read, and only while it runs.
#[test]
fn a_secret_can_be_a_file_which_is_gone_afterwards() {
    let script = "cat > /dev/null; test -z \"$BANK_TOKEN\" || exit 9\n\
                  stat -c %a \"$BANK_TOKEN_FILE\" > seen; cat \"$BANK_TOKEN_FILE\" >> seen; echo \"$BANK_TOKEN_FILE\" > where\n\
                  echo $$ > begun; cat go > /dev/null; echo '{}'";
    let project = project(script, ", exposures: [file]");
    let going = project.begin("run pay.md --format jsonl");
    let run = going.run();
    project.begun();
    assert_eq!(project.read("seen"), format!("600\n{VALUE}"));
    let first = project.read("where").trim().to_owned();
    assert!(Path::new(&first).is_file(), "{first}");
    going.signal(Signal::KILL);
    assert_eq!(going.end().0, None);
    assert!(Path::new(&first).is_file(), "nobody could take it back");
    let going = project.begin(&format!("resume {run} --format jsonl"));
    project.begun();
    assert!(!Path::new(&first).exists(), "it was taken back before the step began again");
    let second = project.read("where").trim().to_owned();
    assert_ne!(first, second);
    project.go();
    let (code, lines, errors) = going.end();
    assert_eq!(code, Some(0), "{lines}{errors}");
    assert!(!Path::new(&second).exists());
    let mut left = Vec::new();
    everything(&project.path(".skein"), &mut left);
    let holds = |(_, bytes): &&(String, Vec<u8>)| bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes());
    assert_eq!(left.iter().find(holds).map(|(name, _)| name), None);
}

/// The error message of a worker, and the files that contain it.
#[test]
fn a_secret_in_the_error_of_a_worker_is_nowhere_in_the_state_folder() {
    let project = Project::new();
    project.folder.write("token.txt", "hunter2-hunter2\n").write("skein.toml", TOML);
    let flow = |script: &str| {
        format!(
            "name: tells\nversion: \"1\"\ntimeout: 5m\nsteps:\n  it:\n    worker: CUSTOM\n    capabilities: [READ, EDIT]\n    \
             x-skein: {{ secrets: [BANK_TOKEN] }}\n    instructions: '{script}'\n"
        )
    };
    let raw = || {
        let mut left = Vec::new();
        everything(&project.path(".skein"), &mut left);
        let holds = |bytes: &[u8]| bytes.windows(15).any(|window| window == b"hunter2-hunter2");
        left.into_iter().find(|(name, bytes)| name.contains("hunter2") || holds(bytes)).map(|(name, _)| name)
    };
    let told = "echo \"{\\\"code\\\": \\\"c-$BANK_TOKEN\\\", \\\"message\\\": \\\"m $BANK_TOKEN\\\"}\" > $SKEIN_ERROR\n\
        mkdir $(dirname $SKEIN_ERROR)/more; echo $BANK_TOKEN > $(dirname $SKEIN_ERROR)/more/$BANK_TOKEN; exit 3";
    project.folder.write("flow.yaml", flow(&told.replace('\n', "; ")));
    let result = project.json("run flow.yaml", 4);
    let error = &result["steps"][0]["error"];
    assert_eq!((&error["code"], &error["message"]), (&json!("c-***"), &json!("m ***")), "{result}");
    assert_eq!(raw(), None);
    // The beginning of a secret in a truncated line is not shown either.
    let long = "printf \"%070d%s\" 0 $BANK_TOKEN > $SKEIN_OUTPUT";
    project.folder.write("flow.yaml", flow(long));
    let result = project.json("run flow.yaml", 4);
    assert!(!result.to_string().contains("hunter2-"), "{result}");
    assert_eq!(raw(), None);
    // A killed engine leaves the file to the next one.
    let held =
        "test -n \"$SKEIN_INTERRUPTED\" && exit 0; echo \"x=$BANK_TOKEN\" > $SKEIN_OUTPUT; echo $$ > begun; cat go";
    project.folder.write("flow.yaml", flow(held));
    let going = project.begin("run flow.yaml --format jsonl");
    let run = going.run();
    project.begun();
    going.signal(Signal::KILL);
    going.end();
    assert!(raw().is_some(), "nobody could take it out");
    project.ends(&format!("resume {run}"), 0);
    assert_eq!(raw(), None);
}

#[test]
fn secrets_are_in_the_catalog() {
    let project = project("echo '{}'", ", description: Lets its holder pay.");
    let all = project.json("catalog secret", 0);
    let text = all.to_string();
    assert!(
        text.contains("BANK_TOKEN") && text.contains("Lets its holder pay.") && text.contains("SECRETS.md"),
        "{all:#}"
    );
    assert_eq!(text.matches("\"BANK_TOKEN\"").count(), 1, "{all:#}");
}
