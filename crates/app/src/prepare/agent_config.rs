//! Agent definitions: the settings of `skein.toml`, completed by a file of the project.
//!
//! Owns the reading of such files: the agent's instructions, its model, and its restricted capabilities. A file can
//! only narrow an agent's capabilities; only `skein.toml` can extend them.

use serde_json::Value;
use skein_core::{
    ir::{StepKindSpec, WorkerCapability, WorkerSpec},
    plan::Plan,
};
use skein_dialects::CatalogKind;

use crate::project::{DiskProject, catalog::CatalogEntry, config};

/// Tools that write files, as named in files of agents.
const EDITS: [&str; 4] = ["Edit", "Write", "MultiEdit", "NotebookEdit"];

/// The contents of an agent's file.
#[derive(Debug, Default)]
struct AgentFile {
    instructions: Option<String>,
    model: Option<String>,
    /// The tools that the agent may use. None: the file does not list tools.
    tools: Option<Vec<String>>,
}

/// Finds an agent by its name. None: the agent is defined neither in `skein.toml` nor in a file.
pub fn find_agent(name: &str, project: &DiskProject) -> Option<config::AgentConfig> {
    let own = project.config.agents.get(name).cloned();
    let entries = project.shelf(CatalogKind::Agent).find_all(name);
    let file = entries.into_iter().find_map(|entry| read_agent_file(entry, project));
    if own.is_none() && file.is_none() {
        return None;
    }
    let (mut agent, file) = (own.unwrap_or_default(), file.unwrap_or_default());
    agent.instructions = agent.instructions.or(file.instructions);
    agent.model = agent.model.or(file.model);
    if let (true, Some(tools)) = (agent.capabilities.is_empty(), file.tools) {
        agent.capabilities.push(WorkerCapability::Read);
        let edits = tools.iter().any(|tool| EDITS.contains(&tool.as_str()));
        agent.capabilities.extend(edits.then_some(WorkerCapability::Edit));
    }
    Some(agent)
}

/// Returns the configuration of a project, completed with the definitions of the plan's agents.
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

/// Reads an agent's file. None: the file defines no agent.
fn read_agent_file(entry: &CatalogEntry, project: &DiskProject) -> Option<AgentFile> {
    let source = project.read_source(&entry.path).ok()?;
    let file = match entry.path.extension().and_then(|ending| ending.to_str()) {
        Some("md") => {
            let instructions = skein_dialects::markdown_body(&source).trim().to_owned();
            let head = match skein_dialects::has_front_matter(&source) {
                true => skein_dialects::read_as_json(source.clone()).ok().unwrap_or_default(),
                false => Value::Null,
            };
            AgentFile {
                instructions: Some(instructions).filter(|instructions| !instructions.is_empty()),
                model: parse_model(&head["model"]),
                tools: parse_tools(&head["tools"]),
            }
        }
        Some("yaml" | "yml") => {
            let resource = skein_dialects::read_as_json(source).ok()?;
            let instructions = Some(resource_instructions(&resource)).filter(|instructions| !instructions.is_empty());
            AgentFile { instructions, model: parse_model(&resource["spec"]["model"]), tools: None }
        }
        _ => return None,
    };
    (file.instructions.is_some() || file.model.is_some() || file.tools.is_some()).then_some(file)
}

/// Parses the name of a model. `inherit` means the model of the caller, and no agent has a caller here.
fn parse_model(value: &Value) -> Option<String> {
    value.as_str().map(str::trim).filter(|model| !model.is_empty() && *model != "inherit").map(str::to_owned)
}

/// Parses a list of tools, or a text with commas. The restriction in parentheses after a tool is dropped.
fn parse_tools(value: &Value) -> Option<Vec<String>> {
    let words: Vec<&str> = match value {
        Value::String(text) => text.split(',').collect(),
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let plain = |word: &&str| word.split('(').next().unwrap_or_default().trim().to_owned();
    Some(words.iter().map(plain).filter(|word| !word.is_empty()).collect())
}

/// Returns the instructions in a resource of the kind Agent.
fn resource_instructions(resource: &Value) -> String {
    let text = |pointer: &str| resource.pointer(pointer).and_then(Value::as_str).unwrap_or_default().trim();
    if text("/kind") != "Agent" {
        return String::new();
    }
    let mut parts = Vec::new();
    parts.extend(Some(text("/metadata/name")).filter(|name| !name.is_empty()).map(|name| format!("You are {name}.")));
    let purpose = [text("/spec/purpose"), text("/spec/description")].into_iter().find(|text| !text.is_empty());
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
