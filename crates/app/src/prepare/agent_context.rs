//! Additional texts for the agents of a project: context modules, skills and commands, each a file that people write.
//!
//! Owns the folders in which they are searched. A file that is missing or cannot be read does not prevent a run: the
//! log of the step says which text the agent was not given.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use skein_core::{
    engine::AttemptRole,
    ir::{Step, WorkerSpec, Workflow},
};
use skein_host::{
    executor::AgentContextRequest,
    memory::ContextModule,
    run_settings::{AgentSkill, RunSettings},
};

use crate::project::{DiskProject, is_plain_name};

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
pub fn collect_agent_context(
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

pub fn read_context_module(project: &DiskProject, reference: &str) -> Option<ContextModule> {
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
