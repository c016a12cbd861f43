//! What the agents of a project are told besides: context modules, skills and commands, each a file that people write.
//!
//! Owns where they are looked for. What is not there, or cannot be read, keeps nothing from beginning: the log of a step
//! says what it was not told.

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
    executor::{AgentContextRequest, AgentSkill, RunSettings},
    memory::ContextModule,
};

use crate::project::{DiskProject, is_plain_name};

/// Where files are that say what a context module is.
const MODULES: [&str; 2] = ["context", ".claude/context"];
/// Where folders are that say what a skill is, and the file that does.
const SKILLS: [&str; 2] = ["skills", ".claude/skills"];
const SKILL: &str = "SKILL.md";
/// Where files are that say what a command of an agent is.
const COMMANDS: [&str; 2] = ["commands", ".claude/commands"];
/// What of a text is kept with a run. More than that fits into no prompt.
const MOST: usize = 64 * 1024;

/// The front matter of a context module. What else stands there is for others.
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

/// Looks up what a step is told.
pub fn collect_agent_context(
    workflow: &Workflow,
    step: &Step,
    worker: &WorkerSpec,
    project: &DiskProject,
    about: &mut RunSettings,
) {
    let wanted = AgentContextRequest::from_step(workflow, step, worker, AttemptRole::Main);
    for name in wanted.modules {
        if let Some(module) = read_context_module(project, &name) {
            about.surroundings.modules.insert(name, module);
        }
    }
    for name in wanted.tools {
        if let Some(skill) = read_skill(project, &name).or_else(|| read_agent_command(project, &name)) {
            about.surroundings.skills.insert(name, skill);
        }
    }
}

pub fn read_context_module(project: &DiskProject, reference: &str) -> Option<ContextModule> {
    let name = reference.strip_prefix("ctx:")?;
    let file = find_in_folders(&project.root, &MODULES, &format!("{name}.md"))?;
    let source = project.read_source(&file).ok()?;
    let head = match skein_dialects::has_front_matter(&source) {
        true => skein_dialects::read_as_json(source.clone())
            .ok()
            .and_then(|head| serde_json::from_value(head).ok()),
        false => None,
    };
    // One whose head cannot be read is told like one without.
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

/// A command is told like a skill that is one file: what people would say by it. Nothing of it is run by us.
fn read_agent_command(project: &DiskProject, reference: &str) -> Option<AgentSkill> {
    let name = reference.strip_prefix("command:")?;
    let file = find_in_folders(&project.root, &COMMANDS, &format!("{name}.md"))?;
    let text = truncate_text(skein_dialects::markdown_body(&*project.read_source(&file).ok()?));
    Some(AgentSkill { text, folder: file.parent()?.to_owned() })
}

/// A file or folder of a name in one of these folders. A name is no path, and a link that leads out of the project is not
/// followed: an agent would be told what is none of the project's.
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
