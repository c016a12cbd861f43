//! What an agent is told beside its own instructions and its task: the skills that it may use, and the context pack.
//!
//! Owns the order of these and what is said in the log of what was left out. Never keeps a step from starting.

use skein_core::{
    engine::AttemptRole,
    ir::{self, Step, WorkerSpec, Workflow},
};

use super::{ExecutorContext, attempt_spec::AttemptSpec};
use crate::{
    agent::ToolServer,
    memory::{ContextModule, MemoryEntry, PackRequest, ProjectMemory, build_pack},
};

/// What a step asks to be told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentContextRequest {
    pub stage: String,
    pub modules: Vec<String>,
    pub memory: Option<ir::MemorySelection>,
    /// References to skills and other things that it may use.
    pub tools: Vec<String>,
}

#[derive(Debug, Default)]
pub struct AgentContext {
    pub text: Option<String>,
    /// What was left out, a line each.
    pub notes: Vec<String>,
}

impl AgentContextRequest {
    /// What the workflow says for all, and the step for itself. Only those who do the work are told.
    pub fn from_step(
        workflow: &Workflow,
        step: &Step,
        worker: &WorkerSpec,
        role: AttemptRole,
    ) -> AgentContextRequest {
        let WorkerSpec::Agent { tools, .. } = worker else { return AgentContextRequest::default() };
        if role != AttemptRole::Main {
            return AgentContextRequest::default();
        }
        let own = step.labels.get("context").and_then(|own| serde_json::from_value(own.clone()).ok());
        let own: ir::WorkflowContext = own.unwrap_or_default();
        let mut modules = workflow.context.modules.clone();
        modules.extend(own.modules);
        let mut seen = std::collections::BTreeSet::new();
        modules.retain(|module| seen.insert(module.clone()));
        // What is done for each item of a stage is the stage's.
        let stage = step.labels.get("stage").and_then(|stage| stage.as_str());
        AgentContextRequest {
            stage: stage.unwrap_or(step.id.as_str()).to_owned(),
            modules,
            memory: own.memory.or_else(|| workflow.context.memory.clone()),
            tools: tools.clone(),
        }
    }
}

/// Puts together what is told with a job.
pub(super) fn build_agent_context(shared: &ExecutorContext, job: &AttemptSpec) -> AgentContext {
    let (wanted, around) = (&job.wanted, &job.about.surroundings);
    let mut notes = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    for tool in &wanted.tools {
        match (around.skills.get(tool), tool.strip_prefix(ToolServer::SORT)) {
            (Some(skill), _) => parts.push(skill.render_instructions(tool)),
            (None, Some(_)) if job.uses_coding_agent() => {}
            (None, Some(_)) => {
                notes.push(format!("`{tool}` is given to coding agents alone, and this is none"));
            }
            (None, None) => {
                notes.push(format!("`{tool}` is not here, so the agent is not told how to use it"));
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

/// Everything that is remembered here. What cannot be read is not, and is named.
fn load_memories(shared: &ExecutorContext, notes: &mut Vec<String>) -> Vec<MemoryEntry> {
    match ProjectMemory::open(shared.state.path()).and_then(|memories| memories.load_all()) {
        Ok((all, unread)) => {
            notes.extend(unread.iter().map(ToString::to_string));
            all
        }
        Err(error) => {
            notes.push(format!("what is remembered cannot be read: {error}"));
            Vec::new()
        }
    }
}
