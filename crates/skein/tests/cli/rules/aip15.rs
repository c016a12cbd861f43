//! Rules of AIP-15.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::{
    catalog::{driver, tool, workflow},
    kept::Project,
};

/// Records each call with its input; `fail` fails until there is `open`, and all others return a booking.
const DESK: &str = "#!/bin/sh\necho \"$1 $(cat)\" >> calls\n\
    if [ \"$1\" = fail ] && [ ! -e open ]; then exit 1; fi\necho '{\"booking\": \"'\"$1\"'-7\"}'\n";

const TOOLS: [&str; 5] = ["book", "pay", "cancel", "refund", "fail"];

/// A project with a tool for each of these, all run by one program.
fn desk(steps: &str) -> Project {
    let project = Project::new();
    let mut implements = String::new();
    for name in TOOLS {
        project.folder.write(&format!(".tools/{name}/TOOL.md"), tool(name, ""));
        implements += &format!("  - {{ tool: {name}, metadata: {{ cli: {{ argv: [{name}] }} }} }}\n");
    }
    let about = format!("kind: cli\nbin: ./desk.sh\nimplements:\n{implements}");
    project.folder.write(".drivers/desk/DRIVER.md", driver("desk", &about)).write(".drivers/desk/desk.sh", DESK);
    let program = project.path(".drivers/desk/desk.sh");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    project.folder.write(".workflows/trip/WORKFLOW.md", workflow("trip", steps));
    project
}

/// The inputs of all calls of one tool.
fn inputs(project: &Project, name: &str) -> Vec<Value> {
    let calls = project.read("calls");
    let of = calls.lines().filter_map(|line| line.split_once(' ')).filter(|(tool, _)| *tool == name);
    of.map(|(_, input)| serde_json::from_str(input).unwrap()).collect()
}

/// The tools in the order in which they were called.
fn order(project: &Project) -> Vec<String> {
    let calls = project.read("calls");
    calls.lines().filter_map(|line| line.split_once(' ')).map(|(tool, _)| tool.to_owned()).collect()
}

#[test]
fn a_workflow_is_found_by_its_id() {
    let project = Project::new();
    let steps = "  - { id: wait, kind: suspend, resume: { on: [go] } }\n";
    project.folder.write(".workflows/folder/WORKFLOW.md", workflow("by-id", steps));
    for name in ["folder", "by-id"] {
        assert_eq!(project.json(&format!("plan {name}"), 0)["workflow"]["id"], "by-id");
    }
    let said = project.ends("plan by-di", 5);
    assert!(said.contains("did you mean `by-id`?"), "{said}");
    // A folder of that name takes precedence, and two files with the same id are reported.
    project.folder.write(".workflows/other/WORKFLOW.md", workflow("by-id", steps));
    let said = project.ends("plan by-id", 5);
    assert!(said.contains("both have that id") && said.contains(".workflows/other/WORKFLOW.md"), "{said}");
    project.folder.write(".workflows/by-id/WORKFLOW.md", workflow("another", steps));
    assert_eq!(project.json("plan by-id", 0)["workflow"]["id"], "another");
}

#[test]
fn a_compensation_without_inputs_is_given_the_outputs_of_its_step() {
    let project = desk(
        "  - { id: room, kind: tool, tool: book, compensation: undo-room }
  - { id: money, kind: tool, tool: pay, compensation: undo-money }
  - { id: break, kind: tool, tool: fail }
  - { id: undo-room, kind: tool, tool: cancel }
  - { id: undo-money, kind: tool, tool: refund, inputs: { id: $steps.money.booking } }
",
    );
    project.json("run trip", 4);
    assert_eq!(inputs(&project, "cancel"), [json!({"booking": "book-7"})]);
    assert_eq!(inputs(&project, "refund"), [json!({"id": "pay-7"})]);
}

#[test]
fn an_event_that_does_not_fit_the_outputs_of_a_suspend_is_refused() {
    let outputs = "{ type: object, properties: { eventPayload: { type: object, required: [amount] } } }";
    let project = desk(&format!(
        "  - {{ id: wait, kind: suspend, resume: {{ on: [paid] }}, outputs: {outputs} }}\n  \
         - {{ id: note, kind: tool, tool: pay, inputs: {{ amount: $steps.wait.eventPayload.amount }} }}\n"
    ));
    let result = project.json("run trip --no-wait", 6);
    let run = result["run_id"].as_str().unwrap();
    for to in ["", " --step wait"] {
        let said = project.ends(&format!("signal {run} paid --payload {{\"sum\":1}}{to}"), 5);
        assert!(said.contains("does not match the declared outputs of `wait`"), "{said}");
        assert!(said.contains("the required property `amount` is missing"), "{said}");
        assert_eq!(project.status(run), "waiting");
    }
    project.ends(&format!("signal {run} paid --payload {{\"amount\":3}}"), 0);
    project.ends(&format!("resume {run}"), 0);
    assert_eq!(inputs(&project, "pay"), [json!({"amount": 3})]);
}

/// An event that comes too early is kept for a wait that it matches, and refused if there is none.
#[test]
fn an_early_event_that_fits_no_wait_is_refused() {
    let wait = |id: &str, field: &str| {
        let payload = format!("{{ type: object, required: [{field}] }}");
        let outputs = format!("{{ type: object, properties: {{ eventPayload: {payload} }} }}");
        format!("  - {{ id: {id}, kind: suspend, resume: {{ on: [{id}, done] }}, outputs: {outputs} }}\n")
    };
    let project = desk(&format!("{}{}", wait("first", "a"), wait("second", "b")));
    let result = project.json("run trip --no-wait", 6);
    let run = result["run_id"].as_str().unwrap();
    let said = project.ends(&format!("signal {run} second --payload {{\"a\":1}}"), 5);
    assert!(said.contains("the declared outputs of `second`"), "{said}");
    project.ends(&format!("signal {run} second --payload {{\"b\":2}}"), 0);
    // The first wait takes the next event, and the second finds the one that was kept.
    project.ends(&format!("signal {run} first --payload {{\"a\":1}}"), 0);
    let result = project.json(&format!("runs {run}"), 0);
    assert_eq!(result["status"], "succeeded");
    assert_eq!(result["steps"][1]["outputs"]["eventPayload"], json!({"b": 2}));
}

#[test]
fn a_decision_that_does_not_fit_the_outputs_of_an_approval_is_refused() {
    let outputs = "{ type: object, properties: { reason: { type: string, minLength: 4 } } }";
    let project = desk(&format!(
        "  - {{ id: ask, kind: approval, prompt: Book it?, approvers: [{{ role: owners }}], outputs: {outputs} }}\n"
    ));
    let result = project.json("run trip --no-wait", 6);
    let run = result["run_id"].as_str().unwrap();
    for reason in ["", " --reason no"] {
        let said = project.ends(&format!("approve {run} ask{reason}"), 5);
        assert!(said.contains("does not match the declared outputs of `ask`"), "{said}");
        assert_eq!(project.status(run), "waiting");
    }
    project.ends(&format!("approve {run} ask --reason cheap"), 0);
    assert_eq!(project.status(run), "succeeded");
}

#[test]
fn a_required_input_of_a_tool_that_is_left_out_is_an_error() {
    let project = desk("  - { id: room, kind: tool, tool: book, inputs: { nights: 2 } }\n");
    let needs =
        "inputs: { type: object, required: [nights, city, currency], properties: { currency: { default: EUR } } }";
    let text = tool("book", "").replace("inputs: { type: object }", needs);
    project.folder.write(".tools/book/TOOL.md", text);
    let said = project.ends("validate .workflows/trip/WORKFLOW.md", 3);
    assert!(
        said.contains("SK0102") && said.contains("`room` leaves out `city`, which the tool `book` requires"),
        "{said}"
    );
    assert!(said.contains(".workflows/trip/WORKFLOW.md:9:"), "{said}");
    assert!(!said.contains("`nights`") && !said.contains("`currency`"), "{said}");
    // An undo without inputs gets the outputs, which are known only then.
    let steps =
        "  - { id: money, kind: tool, tool: pay, compensation: undo }\n  - { id: undo, kind: tool, tool: book }\n";
    project.folder.write(".workflows/trip/WORKFLOW.md", workflow("trip", steps));
    project.ends("validate .workflows/trip/WORKFLOW.md", 0);
}

#[test]
fn a_routine_file_that_is_missing_is_an_error() {
    let project = desk("  - { id: room, kind: tool, tool: book }\n");
    let text = project.read(".workflows/trip/WORKFLOW.md");
    let with = |routines: &str| text.replace("steps:", &format!("routines: {routines}\nsteps:"));
    for routines in ["[./nightly.md]", "[{ file: nightly.md }]"] {
        project.folder.write(".workflows/trip/WORKFLOW.md", with(routines));
        let said = project.ends("validate .workflows/trip/WORKFLOW.md", 3);
        assert!(said.contains("there is no routine file") && said.contains("WORKFLOW.md:8:"), "{said}");
    }
    project.folder.write(".workflows/trip/nightly.md", "---\nschema: routine/v1\n---\n");
    project.ends("validate .workflows/trip/WORKFLOW.md", 0);
}

#[test]
fn a_time_zone_that_does_not_exist_is_an_error() {
    let project = desk("  - { id: room, kind: tool, tool: book }\n");
    let text = project.read(".workflows/trip/WORKFLOW.md");
    let with = |zone: &str| {
        let schedule = format!("{{ kind: cron, cron: \"0 3 * * *\", timezone: {zone} }}");
        text.replace("steps:", &format!("routines: [{{ inline: {{ schedule: {schedule} }} }}]\nsteps:"))
    };
    project.folder.write(".workflows/trip/WORKFLOW.md", with("Europe/Pari"));
    let said = project.ends("validate .workflows/trip/WORKFLOW.md", 3);
    assert!(said.contains("there is no time zone `Europe/Pari`; did you mean `Europe/Paris`?"), "{said}");
    project.folder.write(".workflows/trip/WORKFLOW.md", with("Europe/Paris"));
    project.ends("validate .workflows/trip/WORKFLOW.md", 0);
}

#[test]
fn inputs_that_are_no_schema_are_an_error() {
    let project = desk("  - { id: room, kind: tool, tool: book }\n");
    let text = project.read(".workflows/trip/WORKFLOW.md");
    for inputs in ["{ city: { type: string } }", "{ city: string }", "{ title: { type: string } }"] {
        let wrong = text.replacen("inputs: { type: object }", &format!("inputs: {inputs}"), 1);
        project.folder.write(".workflows/trip/WORKFLOW.md", wrong);
        let said = project.ends("validate .workflows/trip/WORKFLOW.md", 3);
        assert!(said.contains("SK0114") && said.contains("`inputs` is not a JSON Schema"), "{said}");
    }
}

/// The order of undo: the completed steps of a called workflow, latest first, then the steps before the call.
#[test]
fn a_completed_subworkflow_is_undone_by_its_own_compensations() {
    let steps = |more: &str| {
        format!(
            "  - {{ id: room, kind: tool, tool: book, compensation: undo-room }}
  - {{ id: inner, kind: subworkflow, workflow: inner{more} }}
  - {{ id: break, kind: tool, tool: fail }}
  - {{ id: undo-room, kind: tool, tool: cancel }}
  - {{ id: undo-inner, kind: tool, tool: cancel, inputs: {{ whole: true }} }}
"
        )
    };
    let inner = "  - { id: first, kind: tool, tool: pay, inputs: { n: 1 }, compensation: back-first }
  - { id: second, kind: tool, tool: pay, inputs: { n: 2 }, compensation: back-second }
  - { id: back-first, kind: tool, tool: refund, inputs: { n: 1, of: $steps.first.booking } }
  - { id: back-second, kind: tool, tool: refund, inputs: { n: 2, of: $steps.second.booking } }
";
    let project = desk(&steps(""));
    project.folder.write(".workflows/inner/WORKFLOW.md", workflow("inner", inner));
    let result = project.json("run trip", 4);
    assert_eq!(order(&project), ["book", "pay", "pay", "fail", "refund", "refund", "cancel"]);
    let of = json!("pay-7");
    assert_eq!(inputs(&project, "refund"), [json!({"n": 2, "of": of}), json!({"n": 1, "of": of})]);
    assert_eq!(result["status"], "undone");
    assert_eq!(result["undo"]["undone"], json!(["room", "inner/first", "inner/second"]));
    // If the call has its own compensation, only that undoes it.
    std::fs::remove_file(project.path("calls")).unwrap();
    project.folder.write(".workflows/trip/WORKFLOW.md", workflow("trip", &steps(", compensation: undo-inner")));
    project.json("run trip", 4);
    assert_eq!(order(&project), ["book", "pay", "pay", "fail", "cancel", "cancel"]);
    assert_eq!(inputs(&project, "cancel")[0], json!({"whole": true}));
}

/// A step that could not be undone is reported, and its undo is retried.
#[test]
fn what_a_subworkflow_could_not_undo_is_tried_again() {
    let steps = "  - { id: inner, kind: subworkflow, workflow: inner }\n  - { id: break, kind: tool, tool: fail }\n";
    let inner =
        "  - { id: first, kind: tool, tool: pay, compensation: back }\n  - { id: back, kind: tool, tool: fail }\n";
    let project = desk(steps);
    project.folder.write(".workflows/inner/WORKFLOW.md", workflow("inner", inner));
    let result = project.json("run trip", 4);
    assert_eq!(result["status"], "undo_failed");
    assert_eq!(result["undo"]["not_undone"], json!(["inner/first"]));
    let run = result["run_id"].as_str().unwrap();
    project.folder.write("open", "");
    let again = project.json(&format!("resume {run}"), 4);
    assert_eq!((again["status"].as_str(), &again["undo"]["undone"]), (Some("undone"), &json!(["inner/first"])));
}
