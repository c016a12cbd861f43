//! The choice of a driver for a tool: its explanation in `plan`, and its effect on a run.

use serde_json::Value;

use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
    session::Session,
};

/// A project with one tool, one workflow that uses it, and no driver.
fn project(step: &str) -> Project {
    let project = Project::new();
    project.folder.write(".tools/note/TOOL.md", tool("note", ""));
    project
        .folder
        .write(".workflows/one/WORKFLOW.md", workflow("one", &format!("  - {{ id: only, kind: tool, {step} }}\n")));
    project
}

fn add(project: &Project, id: &str, more: &str) {
    project.folder.write(&format!(".drivers/{id}/DRIVER.md"), driver(id, more));
}

/// A `cli` driver of the tool, with additional fields.
fn cli(more: &str) -> String {
    format!("kind: cli\nbin: cat\n{more}implements: [{{ tool: note }}]\n")
}

#[test]
fn a_plan_says_who_is_chosen_and_why_the_others_are_passed_over() {
    let project = project("tool: note, inputs: { size: 3 }");
    let config = "[drivers]\nregions = [\"EU\"]\nrequire_tags = [\"safe\"]\nforbid_tags = [\"third-party\"]\n";
    project.folder.write("skein.toml", config);
    let safe = "policy_tags: [safe]\n";
    add(&project, "absent", &cli("").replace("bin: cat", "bin: ./no-such-program.sh"));
    add(&project, "cheap", &cli(&format!("{safe}cost_override: {{ cost_units_per_call: 1 }}\n")));
    add(&project, "dear", &cli(&format!("{safe}cost_override: {{ cost_units_per_call: 2.5 }}\n")));
    add(&project, "elsewhere", &cli(&format!("{safe}region: [US]\n")));
    add(&project, "ill", &cli("health_check: { method: exec, cmd: \"false\" }\n"));
    add(&project, "in-process", &cli("").replace("kind: cli\nbin: cat", "kind: sdk"));
    add(&project, "narrow", &cli("").replace("tool: note", "tool: note, schema_narrowing: { drop_inputs: [size] }"));
    add(&project, "new", &cli("").replace("tool: note", "tool: note, version: ^2.0.0"));
    add(
        &project,
        "old",
        &cli("version_check: { cmd: \"echo tool version 1.2.3\", parse: 'tool version (\\S+)', range: '>=2' }\n"),
    );
    add(&project, "protocol", &cli("").replace("kind: cli\nbin: cat", "kind: mcp"));
    add(&project, "slow", &cli("version_check: { cmd: \"sleep 60\", parse: 'v', range: '>=2', timeout_ms: 200 }\n"));
    add(&project, "strange", &cli("policy_tags: [safe, third-party]\n"));
    add(
        &project,
        "unknown",
        &cli(&format!("{safe}auth: {{ state: {{ env: [NO_SUCH_KEY] }}, login: {{ cmd: post login }} }}\n")),
    );
    add(&project, "unsafe", &cli(""));
    let mut session = Session::within(&project.folder.0);
    session.skein("plan one", 0);
    session.is("resolver-plan");
    let plan = project.json("plan one", 0);
    let provided = &plan["batches"][0]["steps"][0]["work"]["provided"];
    assert_eq!(provided["driver"]["id"], "cheap");
    let phases: Vec<&str> =
        provided["passed_over"].as_array().unwrap().iter().map(|one| one["phase"].as_str().unwrap()).collect();
    for phase in ["candidates", "capability", "policy", "rank"] {
        assert!(phases.contains(&phase), "{phases:?}");
    }
}

#[test]
fn a_pin_is_kept_to_or_the_run_is_refused() {
    let project = project("tool: note, pinned_provider: dear");
    add(&project, "cheap", &cli(""));
    add(&project, "dear", &cli("cost_override: { cost_units_per_call: 9 }\n").replace("bin: cat", "bin: echo"));
    let result = project.json("run one", 0);
    assert_eq!(result["outputs"], serde_json::json!({"stdout": ""}), "echo did it, and not cat");
    add(&project, "dear", &cli("").replace("bin: cat", "bin: no-such-program-here"));
    let said = project.ends("run one", 5);
    assert!(said.contains("pinned to the driver `dear`, which cannot be used"), "{said}");
    assert!(said.contains("pinned_provider_unavailable"), "{said}");
    assert_eq!(project.json("runs", 0)["runs"].as_array().unwrap().len(), 1, "nothing was begun");
}

#[test]
fn an_action_is_done_by_a_tool_that_implements_it() {
    let project = project("action: \"note:keep\", inputs: { text: hello }");
    let action = "---\nschema: action/v1\nid: note:keep\ndescription: Keeps a note.\n---\n";
    project.folder.write(".actions/note-keep/ACTION.md", action);
    let said = project.ends("validate .workflows", 0);
    assert!(said.contains("SK0605") && said.contains("no tool here implements the action `note:keep`"), "{said}");
    let said = project.ends("run one", 5);
    assert!(said.contains("no tool here implements the action `note:keep`") && said.contains("no_route"), "{said}");
    project.folder.write(".tools/note/TOOL.md", tool("note", "implements: note:keep\n"));
    project.folder.write(".tools/pad/TOOL.md", tool("pad", "implements: note:keep\n"));
    add(&project, "desk", &cli("cost_override: { cost_units_per_call: 5 }\n"));
    add(
        &project,
        "pad",
        "kind: cli\nbin: cat\nimplements: [{ tool: pad, cost_override: { cost_units_per_call: 1 } }]\n",
    );
    let plan = project.ends("plan one", 0);
    assert!(plan.contains("done by the driver pad as tool pad: it costs 1 per call, and the other 5"), "{plan}");
    assert_eq!(project.json("run one", 0)["outputs"]["text"], "hello");
    // The strictest of the candidates counts.
    project.folder.write(".tools/note/TOOL.md", tool("note", "implements: note:keep\napproval: always\n"));
    project.ends("run one --no-wait", 6);
}

#[test]
fn a_driver_has_its_own_names_statuses_and_login() {
    let project = project("tool: note, inputs: { title: hello, to: ada }");
    project
        .folder
        .write("skein.toml", "[secrets]\nPOST_KEY = { file = \"key.txt\" }\n")
        .write("key.txt", "s3cr3t-of-the-post");
    let script = "#!/bin/sh\nread -r line\ntest -n \"$POST_KEY\" || exit 4\n\
                  printf '{\"got\": %s, \"argument\": \"%s\", \"inner\": 1, \"key\": \"%s\"}' \"$line\" \"$1\" \"$POST_KEY\"\nexit 7\n";
    project.folder.write(".drivers/desk/desk.sh", script);
    let path = project.path(".drivers/desk/desk.sh");
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let more = "kind: cli\nbin: ./desk.sh\nauth: { state: { env: [POST_KEY] }, expiry: { detect: \"exit_code:4\" } }\n\
                output: { exit_codes: { 7: ok } }\nimplements:\n  - tool: note\n    mapping: { title: subject }\n    \
                schema_narrowing: { drop_outputs: [inner] }\n    metadata: { cli: { argv: [\"${input.subject}\"] } }\n";
    add(&project, "desk", more);
    let outputs = project.json("run one", 0)["outputs"].clone();
    assert_eq!(outputs["got"], serde_json::json!({"subject": "hello", "to": "ada"}));
    assert_eq!(outputs["argument"], "hello");
    assert_eq!(outputs.get("inner"), None);
    assert!(!outputs["key"].as_str().unwrap().contains("s3cr3t"), "{outputs}");
    // Without the secret, the driver has no login.
    project.folder.write("skein.toml", "");
    let said = project.ends("run one", 5);
    assert!(said.contains("`desk` has no login"), "{said}");
    // A login that exists and is no longer valid.
    project.folder.write("skein.toml", "pass_env = [\"POST_KEY\"]\n");
    add(&project, "desk", &more.replace("env: [POST_KEY]", "env: [HOME]"));
    project.folder.write("skein.toml", "pass_env = [\"HOME\"]\n");
    let result: Value = project.json("run one", 4);
    assert_eq!(result["error"]["code"], "auth_required", "{result}");
}

#[test]
fn a_step_is_never_wider_than_its_tool() {
    let project = project("tool: note, timeout_ms: 90000, approval: auto, retry: { max_attempts: 5, backoff: fixed }");
    let strict = "timeout_ms: 4000\napproval: always\nretry: { max_attempts: 2, backoff: fixed }\n";
    project.folder.write(".tools/note/TOOL.md", tool("note", strict));
    add(&project, "desk", &cli(""));
    let said = project.ends("validate .workflows", 0);
    assert_eq!(said.matches("SK0604").count(), 3, "{said}");
    project.ends("validate --strict .workflows", 3);
    let plan = project.json("plan one", 0);
    let step = &plan["batches"][0]["steps"][0];
    assert_eq!((&step["timeout_ms"], &step["attempts"]), (&Value::from(4000), &Value::from(2)));
    project.ends("run one --no-wait", 6);
    // The stricter setting counts.
    let narrow = workflow("one", "  - { id: only, kind: tool, tool: note, timeout_ms: 1000, approval: always }\n");
    project.folder.write(".workflows/one/WORKFLOW.md", narrow);
    assert!(!project.ends("validate --strict .workflows", 0).contains("SK0604"));
}
