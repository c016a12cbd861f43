//! What an agent is asked: the work itself, what it is given and gives, and what is kept beside it.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Value, json};
use skein_core::{
    expr::swdl::Scope,
    ids::StepId,
    ir::{Binding, Capability, Context, Kind, Labels, Memory, Step, Summary, Work, Worker},
};

use super::{schema, stage::Stages};
use crate::swdl::{
    defaults,
    syntax::{Asked, Input, MemoryDef, StageContext},
};

impl<'a> Stages<'_, 'a, '_> {
    /// A step in which an agent does what is asked.
    pub fn asked(&mut self, id: &StepId, asked: &Asked<'a>, scope: Scope) -> Step {
        let kind = Kind::Work(Box::new(self.work(asked, scope)));
        let mut step = Step::new(id.clone(), kind);
        step.inputs = self.inputs(&asked.inputs, scope);
        step.outputs = schema::given(asked.outputs.as_deref());
        step.labels = self.labels(asked);
        step
    }

    pub fn inputs(&mut self, inputs: &[Input<'a>], scope: Scope) -> Vec<Binding> {
        let mut bindings = Vec::new();
        for input in inputs {
            let value = input.source.and_then(|given| self.expressions.value(given.node, scope));
            bindings.extend(value.map(|value| Binding {
                name: input.name.into(),
                value,
                schema: schema::input(input),
                required: input.required,
            }));
        }
        bindings
    }

    fn work(&mut self, asked: &Asked<'a>, scope: Scope) -> Work {
        let roles = &asked.roles;
        let instructions = roles.instructions.and_then(|given| self.expressions.text(given.node, scope));
        let agent = |instructions, capabilities, tools| Worker::Agent {
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
        let mut work = Work::new(agent(instructions, Vec::new(), tools));
        let summary = asked.handoff.summary_prompt.map(|given| Summary {
            worker: agent(self.expressions.text(given.node, scope), vec![Capability::Read], Vec::new()),
            timeout: Some(defaults::SUMMARY_TIMEOUT),
        });
        work.summary = summary.map(Box::new);
        work
    }

    /// What the host tells the agent and those after it; what is as usual is not said.
    fn labels(&self, asked: &Asked<'a>) -> Labels {
        static DEFAULT_MODEL: LazyLock<Labels> = LazyLock::new(|| {
            BTreeMap::from([("default_model".to_owned(), Value::from(defaults::MODEL))]).into()
        });
        let mut labels = match asked.roles.model {
            Some(_) => Labels::default(),
            None => DEFAULT_MODEL.clone(),
        };
        if let Some(own) = &asked.context
            && let Ok(context) = serde_json::to_value(context(&self.source.context, own))
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

/// The stage's own modules, which come after the workflow's; and its memory over the workflow's.
fn context(all: &StageContext<'_>, own: &StageContext<'_>) -> Context {
    let modules = own.modules.iter().map(|(_, module)| (*module).to_owned()).collect();
    let sources: Vec<&MemoryDef<'_>> = own.memory.iter().chain(&all.memory).collect();
    Context { directory: None, modules, memory: (!sources.is_empty()).then(|| memory(&sources)) }
}

/// What is remembered, by the first of these that says something, field by field.
pub(super) fn memory(sources: &[&MemoryDef<'_>]) -> Memory {
    let scope = sources.iter().find_map(|memory| memory.project_scope);
    let categories = sources.iter().find_map(|memory| memory.categories.clone()).unwrap_or_default();
    let confidence = sources.iter().find_map(|memory| memory.min_confidence);
    let tokens = sources.iter().find_map(|memory| memory.max_tokens);
    Memory {
        scope: scope.unwrap_or(defaults::MEMORY_SCOPE).to_owned(),
        min_confidence: confidence.unwrap_or(defaults::MEMORY_MIN_CONFIDENCE),
        categories: categories.into_iter().map(str::to_owned).collect(),
        max_tokens: tokens.unwrap_or(defaults::MEMORY_MAX_TOKENS),
    }
}
