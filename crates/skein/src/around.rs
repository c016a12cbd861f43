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
    engine::Role,
    ir::{Step, Worker, Workflow},
};
use skein_host::{
    crew::{About, Skill, Wanted},
    memory::Module,
};

use crate::project::{OnDisk, is_name};

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
struct Head {
    max_tokens: Option<u32>,
    selectors: Selectors,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Selectors {
    memory_types: Vec<String>,
    min_confidence: Option<f64>,
    file_patterns: Vec<String>,
    workflow_stages: Vec<String>,
}

/// Looks up what a step is told.
pub fn settle(workflow: &Workflow, step: &Step, worker: &Worker, project: &OnDisk, about: &mut About) {
    let wanted = Wanted::of(workflow, step, worker, Role::Main);
    for name in wanted.modules {
        if let Some(module) = module(project, &name) {
            about.surroundings.modules.insert(name, module);
        }
    }
    for name in wanted.tools {
        if let Some(skill) = skill(project, &name).or_else(|| command(project, &name)) {
            about.surroundings.skills.insert(name, skill);
        }
    }
}

pub fn module(project: &OnDisk, reference: &str) -> Option<Module> {
    let name = reference.strip_prefix("ctx:")?;
    let file = found(&project.root, &MODULES, &format!("{name}.md"))?;
    let source = project.source(&file).ok()?;
    let head = match skein_dialects::has_front_matter(&source) {
        true => skein_dialects::data(source.clone()).ok().and_then(|head| serde_json::from_value(head).ok()),
        false => None,
    };
    // One whose head cannot be read is told like one without.
    let head: Head = head.unwrap_or_default();
    let usual = Module::default();
    Some(Module {
        text: beginning(skein_dialects::body(&source)),
        max_tokens: head.max_tokens.unwrap_or(usual.max_tokens),
        workflow_stages: head.selectors.workflow_stages,
        memory_types: head.selectors.memory_types,
        min_confidence: head.selectors.min_confidence,
        file_patterns: head.selectors.file_patterns,
    })
}

fn skill(project: &OnDisk, reference: &str) -> Option<Skill> {
    let name = reference.strip_prefix("skill:")?;
    let folder = found(&project.root, &SKILLS, name)?;
    let source = project.source(&folder.join(SKILL)).ok()?;
    Some(Skill { text: beginning(skein_dialects::body(&source)), folder })
}

/// A command is told like a skill that is one file: what people would say by it. Nothing of it is run by us.
fn command(project: &OnDisk, reference: &str) -> Option<Skill> {
    let name = reference.strip_prefix("command:")?;
    let file = found(&project.root, &COMMANDS, &format!("{name}.md"))?;
    let text = beginning(skein_dialects::body(&*project.source(&file).ok()?));
    Some(Skill { text, folder: file.parent()?.to_owned() })
}

/// A file or folder of a name in one of these folders. A name is no path, and a link that leads out of the project is not
/// followed: an agent would be told what is none of the project's.
fn found(root: &Path, folders: &[&str], name: &str) -> Option<PathBuf> {
    if !is_name(name) {
        return None;
    }
    let within = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|whole| whole.starts_with(root));
    folders.iter().map(|folder| root.join(folder).join(name)).find(within)
}

fn beginning(text: &str) -> String {
    let mut end = text.len().min(MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim().to_owned()
}
