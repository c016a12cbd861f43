//! Agents that a project defines by name: worker, model, instructions and permissions.

use serde_json::Value;

use super::{
    alone::for_each_agent,
    kind::Kind,
    model::{Model, say},
};
use crate::kept::Project;

/// A stage of `keeper`, with a placeholder for the step's model.
const STAGE: &str = "workflow: {id: w, name: W}\nstages:\n  - id: count\n    name: Count\n    roles:\n      primary: {artifact: \
    \"agent:keeper\", instructions: Count the boats.MODEL}\n    error_policy: {retry: {max_attempts: 1}}\n";
const STEP: &str = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: w}\nspec:\n  description: Counts.\n  \
    domainsInvolved: [harbour]\n  timeout: 1h\n  failurePolicy: abort\n  steps:\n    - {name: count, agent: keeper, action: Count \
    the boats., timeout: 10m}\n";

for_each_agent!(
    the_model_is_that_of_the_stage_then_the_agent_then_the_usual,
    an_agent_of_ioa_is_told_its_purpose_and_action
);

/// A project in which a file defines `keeper`, and the project maps it to a worker.
fn project(kind: Kind, model: &Model, more: &str) -> Project {
    let project = Project::new();
    let config = kind.config(&project.folder, model.port);
    project.folder.write("skein.toml", format!("default_worker = \"{}\"\n{config}{more}", kind.word));
    project
}

/// The model and the body of the next request.
fn asked(model: &Model) -> (String, String) {
    let body = model.asked().body;
    let value: Value = serde_json::from_str(&body).expect("a request is JSON");
    (value["model"].as_str().unwrap_or_default().to_owned(), body)
}

fn the_model_is_that_of_the_stage_then_the_agent_then_the_usual(kind: Kind) {
    // Each agent takes its own model names. Of OpenCode, only one model is known here.
    let (stage, agent, usual) = match kind.word {
        "CLAUDE_CODE" => ("claude-of-stage", "claude-of-agent", "opus"),
        "CODEX_CLI" => ("gpt-of-stage", "gpt-of-agent", "m"),
        _ => ("test/m", "test/m", "m"),
    };
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    for (of_stage, of_agent, wanted) in
        [(Some(stage), Some(agent), last(stage)), (None, Some(agent), last(agent)), (None, None, usual.to_owned())]
    {
        let model = Model::new([say("Seven.")]);
        let project = project(kind, &model, "");
        let of_agent = of_agent.map(|model| format!("model: {model}\n")).unwrap_or_default();
        project.folder.write("agents/keeper.md", format!("---\nname: keeper\n{of_agent}---\nYou keep the harbour.\n"));
        let of_stage = of_stage.map(|model| format!(", model: \"{model}\"")).unwrap_or_default();
        project.folder.write("w.yaml", STAGE.replace("MODEL", &of_stage));
        project.ends("run w.yaml", 0);
        let (found, body) = asked(&model);
        match wanted.as_str() {
            "opus" => assert!(found.contains("opus"), "{found}"),
            wanted => assert_eq!(found, wanted),
        }
        assert!(body.contains("You keep the harbour."), "{body}");
        let plan = project.ends("plan w.yaml", 0);
        let planned = match (kind.word, of_stage.is_empty() && of_agent.is_empty()) {
            ("CLAUDE_CODE", true) => "with opus".to_owned(),
            (_, true) => "agent keeper".to_owned(),
            _ => format!("with {}", if of_stage.is_empty() { agent } else { stage }),
        };
        assert!(plan.contains(&planned), "{planned}: {plan}");
    }
}

fn an_agent_of_ioa_is_told_its_purpose_and_action(kind: Kind) {
    let model = Model::new([say("Seven.")]);
    let project = project(kind, &model, "");
    project.folder.write("w.yaml", STEP).write("domains/harbour.yaml", "kind: Domain\nmetadata: {name: harbour}\n").write(
        ".ioa/agents/keeper.yaml",
        "apiVersion: ioa.dev/v0.2\nkind: Agent\nmetadata: {name: keeper}\nspec:\n  domain: harbour\n  purpose: Knows every \
         boat.\n  constraints: [Wakes nobody at night.]\n",
    );
    project.ends("run w.yaml", 0);
    let (found, body) = asked(&model);
    for part in ["You are keeper.", "Knows every boat.", "- Wakes nobody at night.", "Count the boats."] {
        assert!(body.contains(part), "{part}: {body}");
    }
    // Only SWDL has a default model for agents that name none.
    assert!(kind.word == "CLAUDE_CODE" || found == "m", "{found}");
}
