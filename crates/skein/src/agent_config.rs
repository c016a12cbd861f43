//! Who an agent is here: what `skein.toml` says, and where that says nothing, what a file of the project does.
//!
//! Owns what is read of such files: what the agent is told, its model, and how little it may do. Files can only narrow what
//! an agent may do; to let one do more is for `skein.toml`.

use serde_json::Value;
use skein_core::{
    ir::{StepKindSpec, WorkerCapability, WorkerSpec},
    plan::Plan,
};
use skein_dialects::CatalogKind;

use crate::{catalog::CatalogEntry, config, project::DiskProject};

/// The names of tools by which an agent writes files, as files of agents have them.
const EDITS: [&str; 4] = ["Edit", "Write", "MultiEdit", "NotebookEdit"];

/// What a file says of an agent.
#[derive(Debug, Default)]
struct AgentFile {
    told: Option<String>,
    model: Option<String>,
    /// The tools that it may use. None: the file does not say.
    tools: Option<Vec<String>>,
}

/// An agent by its name. None: nothing here says who it is.
pub fn find_agent(name: &str, project: &DiskProject) -> Option<config::AgentConfig> {
    let own = project.config.agents.get(name).cloned();
    let entries = project.shelf(CatalogKind::Agent).find_all(name);
    let said = entries.into_iter().find_map(|entry| read_agent_file(entry, project));
    if own.is_none() && said.is_none() {
        return None;
    }
    let (mut agent, said) = (own.unwrap_or_default(), said.unwrap_or_default());
    agent.instructions = agent.instructions.or(said.told);
    agent.model = agent.model.or(said.model);
    if let (true, Some(tools)) = (agent.capabilities.is_empty(), said.tools) {
        agent.capabilities.push(WorkerCapability::Read);
        let edits = tools.iter().any(|tool| EDITS.contains(&tool.as_str()));
        agent.capabilities.extend(edits.then_some(WorkerCapability::Edit));
    }
    Some(agent)
}

/// The configuration of a project, with all that is known of the agents of a plan.
pub fn resolve_agents(plan: &Plan, project: &DiskProject) -> config::ProjectConfig {
    let mut config = project.config.clone();
    for step in plan.definition.scopes.iter().flat_map(|entry| &entry.scope.steps) {
        let StepKindSpec::Work(work) = &step.kind else { continue };
        let WorkerSpec::Agent { name: Some(name), .. } = &work.worker else { continue };
        if let Some(agent) = find_agent(name, project) {
            config.agents.insert(name.clone(), agent);
        }
    }
    config
}

/// What a file says. None: it is none that says anything.
fn read_agent_file(entry: &CatalogEntry, project: &DiskProject) -> Option<AgentFile> {
    let source = project.read_source(&entry.path).ok()?;
    let said = match entry.path.extension().and_then(|ending| ending.to_str()) {
        Some("md") => {
            let told = skein_dialects::markdown_body(&source).trim().to_owned();
            let head = match skein_dialects::has_front_matter(&source) {
                true => skein_dialects::read_as_json(source.clone()).ok().unwrap_or_default(),
                false => Value::Null,
            };
            AgentFile {
                told: Some(told).filter(|told| !told.is_empty()),
                model: parse_model(&head["model"]),
                tools: parse_tools(&head["tools"]),
            }
        }
        Some("yaml" | "yml") => {
            let resource = skein_dialects::read_as_json(source).ok()?;
            let told = Some(resource_instructions(&resource)).filter(|told| !told.is_empty());
            AgentFile { told, model: parse_model(&resource["spec"]["model"]), tools: None }
        }
        _ => return None,
    };
    (said.told.is_some() || said.model.is_some() || said.tools.is_some()).then_some(said)
}

/// A model that is named. `inherit` is that of whoever starts the agent, which is nobody here.
fn parse_model(value: &Value) -> Option<String> {
    value.as_str().map(str::trim).filter(|model| !model.is_empty() && *model != "inherit").map(str::to_owned)
}

/// A list of tools, or a text with commas. What stands in parentheses narrows a tool.
fn parse_tools(value: &Value) -> Option<Vec<String>> {
    let words: Vec<&str> = match value {
        Value::String(text) => text.split(',').collect(),
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let plain = |word: &&str| word.split('(').next().unwrap_or_default().trim().to_owned();
    Some(words.iter().map(plain).filter(|word| !word.is_empty()).collect())
}

/// What a resource of the kind Agent tells its agent.
fn resource_instructions(resource: &Value) -> String {
    let text = |pointer: &str| resource.pointer(pointer).and_then(Value::as_str).unwrap_or_default().trim();
    if text("/kind") != "Agent" {
        return String::new();
    }
    let mut parts = Vec::new();
    parts.extend(
        Some(text("/metadata/name")).filter(|name| !name.is_empty()).map(|name| format!("You are {name}.")),
    );
    let purpose =
        [text("/spec/purpose"), text("/spec/description")].into_iter().find(|text| !text.is_empty());
    parts.extend(purpose.map(str::to_owned));
    let list = resource.pointer("/spec/constraints").and_then(Value::as_array).into_iter().flatten();
    let list: Vec<String> = list
        .filter_map(|item| item.as_str().or_else(|| item.get("rule").or(item.get("description"))?.as_str()))
        .map(|item| format!("- {}", item.trim()))
        .collect();
    if !list.is_empty() {
        parts.push(format!("Keep to this:\n\n{}", list.join("\n")));
    }
    parts.join("\n\n")
}
