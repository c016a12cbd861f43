//! Contract errors between two workflows: reported before a run if possible, otherwise when they happen.

use serde_json::{Value, json};

use super::project;

/// A SWDL workflow with a stage that calls another, with these inputs and outputs.
fn calls(file: &str, inputs: &str, outputs: &str) -> String {
    format!(
        "workflow: {{id: calls, name: Calls}}\nconfig: {{parameters: {{it: {{type: object, required: true}}}}}}\nstages:\n  \
         - id: ask\n    name: Ask\n    x-skein: {{call: {file}}}\n    inputs: {{{inputs}}}\n    outputs: {{{outputs}}}\n"
    )
}

fn codes(report: &Value) -> Vec<&str> {
    let all = report["diagnostics"].as_array().unwrap().iter();
    all.filter(|told| told["severity"] == "error").map(|told| told["code"].as_str().unwrap()).collect()
}

/// A missing or unknown value, or one of another type, in either direction is refused before anything starts, for any
/// origin of the called workflow.
#[test]
fn what_does_not_fit_is_refused_before_a_run() {
    let project = project();
    let who = "who: {type: string, source: ada}";
    for file in ["aip15/WORKFLOW.md", "agentcore.yaml", "ioa.yaml", "swdl.yaml"] {
        let name = format!("workflows/{file}");
        for (inputs, outputs, code) in [
            ("", "", "SK0401"),
            ("who: {type: string, source: ada}, whom: {type: string, source: bo}", "", "SK0303"),
            ("who: {type: integer, source: \"${{ 3 }}\"}", "", "SK0403"),
            (who, "greetings: {type: string}", "SK0403"),
        ] {
            // SWDL leaves additional inputs open, and this AIP-15 workflow leaves additional outputs open.
            let open = [("swdl.yaml", "SK0303"), ("aip15/WORKFLOW.md", "SK0403")].contains(&(file, code));
            if open && (inputs == who || code == "SK0303") {
                continue;
            }
            project.folder.write("workflows/calls.yaml", calls(file, inputs, outputs));
            let report = project.json("validate workflows/calls.yaml", 3);
            assert_eq!(codes(&report), [code], "{file}: {inputs} {outputs}: {report}");
            let told = report["diagnostics"].to_string();
            assert!(told.contains(&name) && told.contains("workflows/calls.yaml"), "both sides: {told}");
            project.ends("run workflows/calls.yaml --param it={}", 3);
        }
    }
    assert_eq!(project.json("runs", 0)["runs"], json!([]), "nothing was started");
}

/// An error that only the values show is reported when they are known, with both sides.
#[test]
fn what_does_not_fit_is_told_when_it_happens() {
    let project = project();
    project.folder.write(
        "workflows/calls.yaml",
        calls("aip15/WORKFLOW.md", "who: {type: object, source: \"${{ parameters.it.x }}\"}", ""),
    );
    let error = |it: &str| {
        let result = project.json(&format!("run workflows/calls.yaml --param it={it}"), 4);
        assert_eq!(result["native_status"], "failed");
        result["steps"][0]["error"].clone()
    };
    let told = error("{\"x\":{\"a\":1}}");
    assert_eq!((told["class"].as_str(), told["code"].as_str()), (Some("validation"), Some("input_invalid")), "{told}");
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("`ask`") && message.contains("`workflows/aip15/WORKFLOW.md`"), "{message}");
}

/// The same for returned values.
#[test]
fn what_comes_back_must_be_what_was_declared() {
    let project = project();
    let who = "who: {type: string, source: ada}";
    for file in ["agentcore.yaml", "ioa.yaml", "swdl.yaml"] {
        project.folder.write("workflows/calls.yaml", calls(file, who, "greeting: {type: integer}"));
        let result = project.json("run workflows/calls.yaml --param it={}", 4);
        let told = &result["steps"][0]["error"];
        assert_eq!(told["code"], "output_invalid", "{file}: {result}");
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("`ask`") && message.contains(&format!("`workflows/{file}`")), "{message}");
    }
}
