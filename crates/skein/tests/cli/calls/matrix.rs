//! Each format calls each format: sixteen pairs.

use serde_json::{Value, json};

use super::{FORMATS, caller, project};

/// The status word of a successful step in a format.
fn done(format: &str) -> &'static str {
    match format {
        "agentcore" => "SUCCEEDED",
        "aip15" | "ioa" => "completed",
        _ => "success",
    }
}

fn step<'a>(result: &'a Value, path: &str) -> &'a Value {
    let steps = result["steps"].as_array().unwrap();
    steps.iter().find(|step| step["path"] == path).unwrap_or_else(|| panic!("no step {path}: {result}"))
}

/// Values go in and come out, and each level uses the terms of its own format.
#[test]
fn every_format_calls_every_format() {
    let project = project();
    for format in FORMATS {
        for called in FORMATS {
            let (file, text) = caller(format, called);
            project.folder.write(&file, text);
            assert_eq!(project.json(&format!("validate {file}"), 0)["valid"], true, "{format} calls {called}");
            let result = project.json(&format!("run {file} --param name=ada"), 0);
            assert_eq!(result["outputs"], json!({"said": "hello, ada!"}), "{format} calls {called}");
            assert_eq!(result["native_status"], done(format), "{format} calls {called}");
            let (outer, inner) = (step(&result, "ask"), step(&result, "ask/greet"));
            assert_eq!((&outer["kind"], &outer["native_status"]), (&json!("call"), &json!(done(format))));
            assert_eq!(outer["outputs"], json!({"greeting": "hello, ada"}));
            assert_eq!((&inner["kind"], &inner["native_status"]), (&json!("work"), &json!(done(called))));
        }
    }
}

/// The steps of the called workflow are in the caller's plan and drawing.
#[test]
fn a_plan_shows_what_is_called() {
    let project = project();
    for (format, called) in [("swdl", "aip15"), ("ioa", "agentcore"), ("agentcore", "ioa"), ("aip15", "swdl")] {
        let (file, text) = caller(format, called);
        project.folder.write(&file, text);
        let plan = project.ends(&format!("plan {file} --param name=ada"), 0);
        assert!(plan.contains("ask") && plan.contains("greet"), "{format} calls {called}:\n{plan}");
        let graph = project.ends(&format!("graph {file}"), 0);
        assert!(graph.contains("greet"), "{format} calls {called}:\n{graph}");
    }
}

/// A call cycle through all four formats.
#[test]
fn a_circle_through_formats_is_refused() {
    let project = project();
    let folder = &project.folder;
    folder.write("workflows/a.yaml", "name: a\nversion: \"1\"\ntimeout: 5m\nsteps: {ask: {workflow: b.yaml}}\n");
    folder.write(
        "workflows/b.yaml",
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: b}\nspec: {description: B, domainsInvolved: [all], \
         timeout: 5m, steps: [{name: ask, agent: greeter, action: Ask., x-skein: {call: c.yaml}}]}\n",
    );
    folder
        .write("workflows/c.yaml", "workflow: {id: c, name: C}\nstages: [{id: ask, name: Ask, x-skein: {call: d}}]\n");
    folder.write(
        "workflows/d/WORKFLOW.md",
        "---\nname: D\nid: d\ndescription: D.\nversion: 1.0.0\ninputs: {type: object}\noutputs: {}\nsteps:\n  \
         - {id: ask, kind: subworkflow, workflow: a}\n---\n",
    );
    for file in ["a.yaml", "b.yaml", "c.yaml", "d/WORKFLOW.md"] {
        let told = project.ends(&format!("validate workflows/{file}"), 3);
        assert!(told.contains("the workflow calls itself"), "{told}");
        for name in ["a.yaml", "b.yaml", "c.yaml", "d/WORKFLOW.md"] {
            assert!(told.contains(&format!("workflows/{name}")), "{file}: {told}");
        }
    }
}
