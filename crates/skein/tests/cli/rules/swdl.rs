//! Rules of SWDL.

use serde_json::json;

use crate::kept::Project;

/// A project whose agents are shell scripts.
fn project(agents: &[(&str, &str)], workflow: &str) -> Project {
    let project = Project::new();
    let agent = |(name, script): &(&str, &str)| {
        format!("[agents.{name}]\nworker = \"CUSTOM\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n")
    };
    project.folder.write("skein.toml", agents.iter().map(agent).collect::<String>());
    project.folder.write("w.yaml", workflow);
    project
}

const OPTIONAL: &str = "    outputs:
      level: {type: string, required: false, default: low}
      note: {type: string, required: false}
";

const READS: &str = "  - id: b
    name: B
    depends_on: [a]
    roles: {primary: \"agent:reader\"}
    inputs:
      level: {type: string, source: \"${{ stages.a.outputs.level }}\"}
";

const READER: (&str, &str) = ("reader", "cat > told");

#[test]
fn optional_outputs_take_defaults_when_nothing_is_written() {
    let stage = "workflow: {id: w, name: W}\nstages:\n  - id: a\n    name: A\n    roles: {primary: \"agent:mute\"}\n";
    let project = project(&[("mute", "true"), READER], &format!("{stage}{OPTIONAL}{READS}"));
    let result = project.json("run w.yaml", 0);
    assert_eq!(result["steps"][0]["outputs"], json!({"level": "low"}));
    assert!(project.read("told").contains("low"), "{}", project.read("told"));
    // A required output is still reported as missing.
    let required = OPTIONAL.replace("      note: {type: string, required: false}", "      note: {type: string}");
    project.folder.write("w.yaml", format!("{stage}{required}"));
    let result = project.json("run w.yaml", 4);
    let message = result["steps"][0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("`a` wrote no outputs; required output `note` is missing"), "{message}");
}

#[test]
fn optional_outputs_of_a_failed_continue_stage_take_defaults() {
    let stage = "workflow: {id: w, name: W}\nstages:\n  - id: a\n    name: A\n    roles: {primary: \"agent:fails\"}\n    \
                 error_policy: {on_failure: continue, retry: {max_attempts: 1}}\n";
    let project = project(&[("fails", "exit 1"), READER], &format!("{stage}{OPTIONAL}{READS}"));
    let result = project.json("run w.yaml", 0);
    assert_eq!(result["steps"][0]["status"], "failed");
    assert_eq!(result["steps"][0]["outputs"], json!({"level": "low"}));
    assert_eq!(result["steps"][1]["status"], "succeeded");
    assert!(project.read("told").contains("low"), "{}", project.read("told"));
}

const MUTE: &str =
    "workflow: {id: tidy-up, name: W}\nstages:\n  - {id: a, name: A, roles: {primary: \"agent:mute\"}}\n";

#[test]
fn workflows_of_a_collection_are_listed_and_run_by_name() {
    let project = project(&[("mute", "echo done > done.txt")], "");
    project.folder.write("artifacts/workflows/tidy/WORKFLOW.yaml", MUTE);
    let listed = project.json("list", 0);
    assert_eq!(listed["workflows"][0]["name"], "tidy");
    assert_eq!(listed["workflows"][0]["valid"], true);
    for name in ["tidy", "tidy-up"] {
        assert_eq!(project.json(&format!("run {name}"), 0)["workflow"]["id"], "tidy-up");
    }
    assert_eq!(project.read("done.txt"), "done\n");
}

/// The agents are those of the project in which the workflow runs.
#[test]
fn workflows_of_a_collection_elsewhere_run_in_the_project() {
    let project = project(&[("mute", "echo done > done.txt")], "");
    let shared = Project::new();
    shared.folder.write("artifacts/workflows/tidy/WORKFLOW.yaml", MUTE).write("collection.toml", "");
    let config = project.read("skein.toml");
    let named = format!("collection = \"{}\"\n{config}", shared.folder.0.display());
    project.folder.write("skein.toml", named);
    assert_eq!(project.json("list", 0)["workflows"][0]["name"], "tidy");
    project.ends("run tidy", 0);
    assert_eq!(project.read("done.txt"), "done\n");
}

#[test]
fn an_override_may_add_a_skill_and_no_server() {
    let project = project(&[("reader", "cat > told")], &MUTE.replace("agent:mute", "agent:reader"));
    project.folder.write("skills/house-style/SKILL.md", "---\nname: house-style\n---\nWrite short sentences.\n");
    let over =
        |tool: &str| format!("overrides:\n  tidy-up:\n    stages:\n      a: {{roles: {{tools: [\"{tool}\"]}}}}\n");
    project.folder.write(".skillmeat-workflow-overrides.yaml", over("skill:house-style"));
    project.ends("run w.yaml", 0);
    assert!(project.read("told").contains("Write short sentences."), "{}", project.read("told"));
    project.folder.write(".skillmeat-workflow-overrides.yaml", over("mcp:shell"));
    let said = project.ends("run w.yaml", 3);
    assert!(said.contains("SK0801") && said.contains("a server lets its agent do more"), "{said}");
}

const CONTEXT: &str = "workflow: {id: w, name: W}
context: {global_modules: [\"ctx:house-style\"]}
stages:
  - id: a
    name: A
    roles: {primary: \"agent:reader\"}
    inputs:
      layout: {type: object, source: \"${{ context.repo_structure }}\"}
      style: {type: string, source: \"${{ context.house-style }}\"}
";

#[test]
fn context_has_the_files_of_the_project_and_its_modules() {
    let project = project(&[("reader", "cat $SKEIN_INPUTS > inputs.json")], CONTEXT);
    project.folder.write("src/deep/main.txt", "x").write("node_modules/other.txt", "x");
    project.folder.write("context/house-style.md", "Write short sentences.\n");
    assert!(!project.json("validate w.yaml", 0)["diagnostics"].to_string().contains("SK0807"));
    project.ends("run w.yaml", 0);
    let inputs: serde_json::Value = serde_json::from_str(&project.read("inputs.json")).unwrap();
    assert_eq!(inputs["style"], "Write short sentences.");
    let files = inputs["layout"]["files"].as_array().unwrap();
    assert!(files.contains(&json!("src/deep/main.txt")) && !files.contains(&json!("node_modules/other.txt")));
    assert_eq!(inputs["layout"]["truncated"], false);
}

#[test]
fn a_name_below_context_without_a_value_is_a_warning() {
    let project = project(&[READER], &CONTEXT.replace("context.repo_structure", "context.repo_layout"));
    let said = project.ends("validate w.yaml", 0);
    assert!(said.contains("warning[SK0807]: `context.repo_layout` has no value"), "{said}");
    assert!(said.contains("w.yaml:8:"), "{said}");
}

#[test]
fn pattern_is_a_category_of_memories() {
    let categories = "context:\n  memory: {categories: [constraint, pattern, decision]}\n";
    let project = project(
        &[READER],
        &MUTE.replace("agent:mute", "agent:reader").replace("stages:", &format!("{categories}stages:")),
    );
    assert_eq!(project.json("validate --strict w.yaml", 0)["diagnostics"], json!([]));
    let memory = project.json("memory add Retries_live_in_one_place --type pattern", 0);
    assert_eq!(memory["type"], "pattern");
    project.ends("run w.yaml", 0);
    assert!(project.read("told").contains("## Patterns"), "{}", project.read("told"));
}

#[test]
fn large_integers_keep_their_value() {
    let parameters = "config:\n  parameters:\n    n: {type: integer, default: 18446744073709551615}\nstages:";
    let workflow = MUTE.replace("stages:", parameters).replace(
        "}}\n",
        "}, inputs: {n: {type: integer, source: \"${{ parameters.n }}\"}}, outputs: {m: {type: integer}}}\n",
    );
    let script = |m: &str| format!("cat $SKEIN_INPUTS > inputs.json; echo \"{{\\\"m\\\": {m}}}\" > $SKEIN_OUTPUT");
    let large = project(&[("mute", &script("9007199254740993"))], &workflow);
    let result = large.json("run w.yaml", 0);
    assert_eq!(result["steps"][0]["outputs"]["m"], 9_007_199_254_740_993_u64);
    assert_eq!(result["parameters"]["n"], u64::MAX);
    assert!(large.read("inputs.json").contains("18446744073709551615"), "{}", large.read("inputs.json"));
    // A number that would be rounded is refused.
    let said = large.ends("run w.yaml --param n=18446744073709551616", 2);
    assert!(said.contains("18446744073709551616"), "{said}");
    large.folder.write("w.yaml", workflow.replace("18446744073709551615", "18446744073709551616"));
    let said = large.ends("validate w.yaml", 3);
    assert!(said.contains("18446744073709551616"), "{said}");
    let larger = project(&[("mute", &script("18446744073709551616"))], &workflow);
    let result = larger.json("run w.yaml", 4);
    let message = result["steps"][0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("the integer 18446744073709551616 does not fit into 64 bits"), "{message}");
}

#[test]
fn the_object_of_a_run_has_parameters_and_runs_of_agents() {
    let workflow = MUTE.replace("stages:", "config:\n  parameters:\n    who: {type: string, default: Ada}\nstages:");
    let project = project(&[("mute", "echo hello")], &workflow);
    let result = project.json("run w.yaml --param who=Grace", 0);
    assert_eq!(result["parameters"], json!({"who": "Grace"}));
    let run = result["run_id"].as_str().unwrap();
    // The id identifies the log of that attempt.
    let logs = project.json(&format!("logs {run}"), 0);
    assert_eq!(result["steps"][0]["agent_run_id"], logs["logs"][0]["id"]);
    assert_eq!(project.json(&format!("runs {run}"), 0)["steps"][0]["agent_run_id"], logs["logs"][0]["id"]);
}

#[test]
fn runs_shows_the_logs_of_a_run() {
    let project = project(&[("mute", "echo hello")], MUTE);
    let result = project.json("run w.yaml", 0);
    let run = result["run_id"].as_str().unwrap();
    let said = project.ends(&format!("runs {run} --logs"), 0);
    assert!(said.contains("hello") && said.contains("Success in"), "{said}");
    let object = project.json(&format!("runs {run} --logs"), 0);
    assert_eq!(object["logs"], project.json(&format!("logs {run}"), 0)["logs"]);
    assert_eq!(object["status"], "succeeded");
    project.ends("runs --logs", 2);
}
