//! The text that an agent gets beside its own instructions and its task: its skills and the context pack.
//!
//! Owns the order of these parts and the log notes about omitted ones. Never keeps a step from starting.

use skein_core::{
    engine::AttemptRole,
    ir::{self, Step, WorkerSpec, Workflow},
};

use crate::run_settings::ToolServer;
use crate::{
    executor::{attempt::spec::AttemptSpec, executor_context::ExecutorContext},
    memory::{ContextModule, MemoryEntry, PackRequest, ProjectMemory, build_pack},
};

/// The skills, context modules and memory that a step requests for its agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentContextRequest {
    pub stage: String,
    pub modules: Vec<String>,
    pub memory: Option<ir::MemorySelection>,
    /// References to skills and other tools that it may use.
    pub tools: Vec<String>,
}

#[derive(Debug, Default)]
pub struct AgentContext {
    pub text: Option<String>,
    /// The omitted parts, one line each.
    pub notes: Vec<String>,
}

impl AgentContextRequest {
    /// Combines the workflow's context with the step's own. Only the main attempt of an agent gets one.
    pub fn from_step(workflow: &Workflow, step: &Step, worker: &WorkerSpec, role: AttemptRole) -> AgentContextRequest {
        let WorkerSpec::Agent { tools, .. } = worker else { return AgentContextRequest::default() };
        if role != AttemptRole::Main {
            return AgentContextRequest::default();
        }
        let step_context = step.extensions.context.clone().unwrap_or_default();
        let mut modules = workflow.context.modules.clone();
        modules.extend(step_context.modules);
        let mut seen = std::collections::BTreeSet::new();
        modules.retain(|module| seen.insert(module.clone()));
        AgentContextRequest {
            stage: step.extensions.stage.as_deref().unwrap_or(step.id.as_str()).to_owned(),
            modules,
            memory: step_context.memory.or_else(|| workflow.context.memory.clone()),
            tools: tools.clone(),
        }
    }
}

/// Builds the context text for an attempt.
pub(crate) fn build_agent_context(shared: &ExecutorContext, job: &AttemptSpec) -> AgentContext {
    let (wanted, around) = (&job.wanted, &job.settings.surroundings);
    let mut notes = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    for tool in &wanted.tools {
        match (around.skills.get(tool), tool.strip_prefix(ToolServer::SORT)) {
            (Some(skill), _) => parts.push(skill.render_instructions(tool)),
            (None, Some(_)) if job.uses_coding_agent() => {}
            (None, Some(_)) => {
                notes.push(format!("`{tool}` is available only to coding agents, and this worker is not one"));
            }
            (None, None) => {
                notes.push(format!("`{tool}` is not configured here, so the agent gets no instructions for it"));
            }
        }
    }
    let modules: Vec<(&str, Option<&ContextModule>)> =
        wanted.modules.iter().map(|name| (name.as_str(), around.modules.get(name))).collect();
    if !modules.is_empty() || wanted.memory.is_some() {
        let memories = load_memories(shared, &mut notes);
        let asked = PackRequest { stage: &wanted.stage, modules: &modules, memory: wanted.memory.as_ref() };
        let packed = build_pack(asked, &memories);
        parts.extend(packed.text);
        notes.extend(packed.notes);
    }
    AgentContext { text: (!parts.is_empty()).then(|| parts.join("\n\n")), notes }
}

/// Loads all entries of the project memory. Unreadable entries are skipped and named in `notes`.
fn load_memories(shared: &ExecutorContext, notes: &mut Vec<String>) -> Vec<MemoryEntry> {
    match ProjectMemory::open(shared.state.path()).and_then(|memories| memories.load_all()) {
        Ok((all, unread)) => {
            notes.extend(unread.iter().map(ToString::to_string));
            all
        }
        Err(error) => {
            notes.push(format!("the project memory cannot be read: {error}"));
            Vec::new()
        }
    }
}
