//! Agents of a project: their definitions in `skein.toml` and in files, and the texts that they are given.
//!
//! Owns the reading of these files: an agent's instructions, model and capabilities, and the context modules, skills and
//! commands that a step names. A file can only narrow an agent's capabilities; only `skein.toml` can extend them. A text
//! that is missing or cannot be read does not prevent a run: the log of the step says that the agent was not given it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use skein_core::{
    engine::AttemptRole,
    ir::{Step, StepKindSpec, WorkerCapability, WorkerSpec, Workflow},
    plan::Plan,
};
use skein_dialects::CatalogKind;
use skein_host::{
    executor::AgentContextRequest,
    memory::ContextModule,
    run_settings::{AgentSkill, RunSettings},
};

use crate::project::{DiskProject, catalog::CatalogEntry, config, is_plain_name};

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
pub(crate) fn find_agent(name: &str, project: &DiskProject) -> Option<config::AgentConfig> {
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
pub(crate) fn resolve_agents(plan: &Plan, project: &DiskProject) -> config::ProjectConfig {
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

/// Folders that contain context modules.
const MODULES: [&str; 2] = ["context", ".claude/context"];
/// Folders that contain a folder for each skill, and the file that describes the skill.
const SKILLS: [&str; 2] = ["skills", ".claude/skills"];
const SKILL: &str = "SKILL.md";
/// Folders that contain commands of agents.
const COMMANDS: [&str; 2] = ["commands", ".claude/commands"];
/// The number of bytes of a text that are kept with a run. A longer text does not fit into a prompt.
const MOST: usize = 64 * 1024;

/// The front matter of a context module. Other keys belong to other programs and are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextModuleHeader {
    max_tokens: Option<u32>,
    selectors: ContextModuleSelectors,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContextModuleSelectors {
    memory_types: Vec<String>,
    min_confidence: Option<f64>,
    file_patterns: Vec<String>,
    workflow_stages: Vec<String>,
}

/// Looks up the texts that a step's agent is given.
pub(crate) fn collect_agent_context(
    workflow: &Workflow,
    step: &Step,
    worker: &WorkerSpec,
    project: &DiskProject,
    settings: &mut RunSettings,
) {
    let wanted = AgentContextRequest::from_step(workflow, step, worker, AttemptRole::Main);
    for name in wanted.modules {
        if let Some(module) = read_context_module(project, &name) {
            settings.surroundings.modules.insert(name, module);
        }
    }
    for name in wanted.tools {
        if let Some(skill) = read_skill(project, &name).or_else(|| read_agent_command(project, &name)) {
            settings.surroundings.skills.insert(name, skill);
        }
    }
}

pub(crate) fn read_context_module(project: &DiskProject, reference: &str) -> Option<ContextModule> {
    let name = reference.strip_prefix("ctx:")?;
    let file = find_in_folders(&project.root, &MODULES, &format!("{name}.md"))?;
    let source = project.read_source(&file).ok()?;
    let head = match skein_dialects::has_front_matter(&source) {
        true => skein_dialects::read_as_json(source.clone()).ok().and_then(|head| serde_json::from_value(head).ok()),
        false => None,
    };
    // A module with an unreadable head is treated like one without a head.
    let head: ContextModuleHeader = head.unwrap_or_default();
    let usual = ContextModule::default();
    Some(ContextModule {
        text: truncate_text(skein_dialects::markdown_body(&source)),
        max_tokens: head.max_tokens.unwrap_or(usual.max_tokens),
        workflow_stages: head.selectors.workflow_stages,
        memory_types: head.selectors.memory_types,
        min_confidence: head.selectors.min_confidence,
        file_patterns: head.selectors.file_patterns,
    })
}

fn read_skill(project: &DiskProject, reference: &str) -> Option<AgentSkill> {
    let name = reference.strip_prefix("skill:")?;
    let folder = find_in_folders(&project.root, &SKILLS, name)?;
    let source = project.read_source(&folder.join(SKILL)).ok()?;
    Some(AgentSkill { text: truncate_text(skein_dialects::markdown_body(&source)), folder })
}

/// Reads a command as a skill of one file: its text is the prompt that people would send by it. Skein does not execute
/// it.
fn read_agent_command(project: &DiskProject, reference: &str) -> Option<AgentSkill> {
    let name = reference.strip_prefix("command:")?;
    let file = find_in_folders(&project.root, &COMMANDS, &format!("{name}.md"))?;
    let text = truncate_text(skein_dialects::markdown_body(&*project.read_source(&file).ok()?));
    Some(AgentSkill { text, folder: file.parent()?.to_owned() })
}

/// Finds a file or folder by name in one of these folders. The name must not be a path, and a link that leads out of
/// the project is not followed, because an agent would then be given text from outside the project.
fn find_in_folders(root: &Path, folders: &[&str], name: &str) -> Option<PathBuf> {
    if !is_plain_name(name) {
        return None;
    }
    let within = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|whole| whole.starts_with(root));
    folders.iter().map(|folder| root.join(folder).join(name)).find(within)
}

fn truncate_text(text: &str) -> String {
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim().to_owned()
}
