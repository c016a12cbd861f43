//! The task of an agent: the work itself, its inputs and outputs, and the labels of its step.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Value, json};
use skein_core::{
    expr::swdl::SwdlExprScope,
    ids::StepId,
    ir::{
        InputBinding, MemorySelection, Step, StepKindSpec, StepLabels, SummarySpec, WorkSpec,
        WorkerCapability, WorkerSpec, WorkflowContext,
    },
};

use super::{schema, stage::SwdlStageLowering};
use crate::swdl::{
    defaults,
    syntax::{MemoryDef, StageContext, SwdlAgentTask, SwdlInput},
};

impl<'a> SwdlStageLowering<'_, 'a, '_> {
    /// Lowers a task to a step with an agent.
    pub fn lower_agent_task(&mut self, id: &StepId, asked: &SwdlAgentTask<'a>, scope: SwdlExprScope) -> Step {
        let kind = StepKindSpec::Work(Box::new(self.lower_work(asked, scope)));
        let mut step = Step::new(id.clone(), kind);
        step.inputs = self.lower_inputs(&asked.inputs, scope);
        step.outputs = schema::outputs_schema(asked.outputs.as_deref());
        step.labels = self.build_labels(asked);
        step
    }

    pub fn lower_inputs(&mut self, inputs: &[SwdlInput<'a>], scope: SwdlExprScope) -> Vec<InputBinding> {
        let mut bindings = Vec::new();
        for input in inputs {
            let value = input.source.and_then(|given| self.expressions.lower_value(given.node, scope));
            bindings.extend(value.map(|value| InputBinding {
                name: input.name.into(),
                value,
                schema: schema::input_schema(input),
                required: input.required,
            }));
        }
        bindings
    }

    fn lower_work(&mut self, asked: &SwdlAgentTask<'a>, scope: SwdlExprScope) -> WorkSpec {
        let roles = &asked.roles;
        let instructions =
            roles.instructions.and_then(|given| self.expressions.lower_text(given.node, scope));
        let agent = |instructions, capabilities, tools| WorkerSpec::Agent {
            name: roles.agent.map(|(_, name)| name.to_owned()),
            program: None,
            model: roles.model.map(str::to_owned),
            instructions,
            capabilities,
            tools,
            max_turns: None,
            command_timeout: None,
        };
        let tools = roles.tools.iter().map(|(_, tool)| (*tool).to_owned()).collect();
        let mut work = WorkSpec::new(agent(instructions, Vec::new(), tools));
        let summary = asked.handoff.summary_prompt.map(|given| SummarySpec {
            worker: agent(
                self.expressions.lower_text(given.node, scope),
                vec![WorkerCapability::Read],
                Vec::new(),
            ),
            timeout: Some(defaults::SUMMARY_TIMEOUT),
        });
        work.summary = summary.map(Box::new);
        work
    }

    /// Builds the labels that the host passes to the agent and to later stages. Default values are left out.
    fn build_labels(&self, asked: &SwdlAgentTask<'a>) -> StepLabels {
        static DEFAULT_MODEL: LazyLock<StepLabels> = LazyLock::new(|| {
            BTreeMap::from([("default_model".to_owned(), Value::from(defaults::MODEL))]).into()
        });
        let mut labels = match asked.roles.model {
            Some(_) => StepLabels::default(),
            None => DEFAULT_MODEL.clone(),
        };
        if let Some(own) = &asked.context
            && let Ok(context) = serde_json::to_value(lower_stage_context(&self.source.context, own))
        {
            labels.insert("context".to_owned(), context);
        }
        let (usual, handoff) = (defaults::HANDOFF_FORMATS[0].1, &asked.handoff);
        let (format, log) = (handoff.format.unwrap_or(usual), handoff.include_run_log.unwrap_or_default());
        if format != usual || log {
            let handoff = json!({"format": format, "include_run_log": log});
            labels.insert("handoff".to_owned(), handoff);
        }
        labels
    }
}

/// Lowers the context of a stage: its modules, which follow the workflow's, and its memory merged over the workflow's.
fn lower_stage_context(all: &StageContext<'_>, own: &StageContext<'_>) -> WorkflowContext {
    let modules = own.modules.iter().map(|(_, module)| (*module).to_owned()).collect();
    let sources: Vec<&MemoryDef<'_>> = own.memory.iter().chain(&all.memory).collect();
    WorkflowContext {
        directory: None,
        modules,
        memory: (!sources.is_empty()).then(|| lower_memory(&sources)),
    }
}

/// Lowers the selection of memories. Each field comes from the first source that has it.
pub(super) fn lower_memory(sources: &[&MemoryDef<'_>]) -> MemorySelection {
    let scope = sources.iter().find_map(|memory| memory.project_scope);
    let categories = sources.iter().find_map(|memory| memory.categories.clone()).unwrap_or_default();
    let confidence = sources.iter().find_map(|memory| memory.min_confidence);
    let tokens = sources.iter().find_map(|memory| memory.max_tokens);
    MemorySelection {
        scope: scope.unwrap_or(defaults::MEMORY_SCOPE).to_owned(),
        min_confidence: confidence.unwrap_or(defaults::MEMORY_MIN_CONFIDENCE),
        categories: categories.into_iter().map(str::to_owned).collect(),
        max_tokens: tokens.unwrap_or(defaults::MEMORY_MAX_TOKENS),
    }
}
