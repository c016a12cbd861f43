//! From SWDL to the IR.

mod asked;
mod expressions;
mod hooks;
mod policy;
mod schema;
mod stage;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use skein_core::{
    ids::WorkflowId,
    ir::{Context, Origin, Scope, Shape, Workflow},
    plan::ProblemCode,
};

use self::{expressions::Expressions, hooks::Parts, stage::Stages};
use super::{
    defaults, narrow, overrides,
    syntax::{self, Stage},
    words::words,
};
use crate::{
    catalog::{self, Use},
    code::Code,
    detect::Dialect,
    diagnostic::Sink,
    lowering::{Lowered, Lowering},
    places::Renames,
    problem::Voice,
    project::{Project, Sort},
    read::Given,
    yaml::Tree,
};

/// Where the plan's fields of a stage stand. A template of a fan-out has its fields under the same names.
const STEP: Renames = &[
    ("isolation.secrets", "x-skein.secrets"),
    ("settled_by", "x-skein.workspace.conflict"),
    ("after", "depends_on"),
    ("when", "condition"),
    ("inputs.*.schema", "inputs.*.type"),
    ("inputs.*", "inputs.*.source"),
    ("instructions", "roles.primary.instructions"),
    ("summary.instructions", "handoff.summary_prompt"),
    ("policy.timeout", "error_policy.timeout"),
    ("policy.effects", "error_policy.on_failure"),
    ("policy.retry.attempts", "error_policy.retry.max_attempts"),
    ("policy.retry", "error_policy.retry"),
    ("message", "gate.message"),
    ("approvers", "gate.approvers"),
    ("on_timeout", "gate.on_timeout"),
    ("timeout", "gate.timeout"),
    ("over", "fan_out.source"),
    ("scope", "fan_out.stage_template"),
    ("workflow", "x-skein.call"),
];
const WORKFLOW: Renames = &[
    ("inputs", "config.parameters"),
    ("timeout", "config.timeout"),
    ("env", "config.env"),
    ("result", "x-skein.output"),
    ("outputs", "x-skein.output"),
];
const VOICE: Voice = Voice {
    words: &[("step", "stage")],
    hints: &[],
    // A stage gives what it declares, and nothing else can be read of it.
    stricter: &[(ProblemCode::UndeclaredOutput, Code::ReadsUnknownOutput)],
};

pub(crate) fn lower(mut tree: Tree, sink: &mut Sink, project: &dyn Project) -> Option<Lowered> {
    let before = overrides::apply(&mut tree, sink, project);
    let overridden = before.map(|before| overrides::replaced(&tree, before)).unwrap_or_default();
    let mut lowering = Lowering::new(&VOICE, sink, project);
    let (workflow, parts) = lower_workflow(&tree, before, &mut lowering)?;
    let (mut places, calls) = lowering.places(tree, WORKFLOW, STEP);
    parts.into_iter().for_each(|(field, (node, start))| places.part(field, node, start));
    // What is done for each item has its policy from the stage.
    for step in &workflow.scope.steps {
        let inner = step.kind.scopes().into_iter().flat_map(|scope| &scope.steps);
        inner.for_each(|item| places.within(item.id.clone(), step.id.clone()));
    }
    Some(Lowered { overridden, ..Lowered::new(workflow, (places, calls), &VOICE) })
}

/// Reads and lowers the document; `before` is its root without the project's overrides, where there are any.
fn lower_workflow(
    tree: &Tree,
    before: Option<u32>,
    lowering: &mut Lowering<'_>,
) -> Option<(Workflow, Parts)> {
    let mut source = syntax::Workflow::read(tree.root(), lowering.sink)?;
    if let Some(before) = before {
        // What is wrong there is wrong in the whole, too, or is no more.
        let unheard = &mut Sink::new(Arc::clone(tree.source()));
        let before = syntax::Workflow::read(tree.node(before), unheard);
        before.iter().for_each(|before| narrow::check(before, &source, lowering.sink));
    }
    let stages = source.stages.take()?;
    let named = stages.iter().filter_map(|stage| named_agent(stage));
    catalog::check(Sort::Agent, named, lowering.project, lowering.sink);
    let servers = stages.iter().flat_map(|stage| named_tools(stage, "mcp:"));
    catalog::check(Sort::Server, servers, lowering.project, lowering.sink);
    let skills = stages.iter().flat_map(|stage| named_tools(stage, "skill:"));
    catalog::advise(Sort::Skill, skills, lowering.project, lowering.sink);
    let own = stages.iter().filter_map(|stage| stage.asked()).filter_map(|asked| asked.context.as_deref());
    let modules = own.chain([&source.context]).flat_map(|context| &context.modules);
    let modules = modules.map(|(given, module)| used(*given, module, "ctx:"));
    catalog::advise(Sort::Context, modules, lowering.project, lowering.sink);

    let modules = source.context.modules.iter().filter_map(|(_, module)| module.strip_prefix("ctx:"));
    let mut expressions =
        Expressions::new(lowering, source.config.env.iter().map(|(name, _)| *name), modules);
    let env =
        source.config.env.iter().filter_map(|(name, given)| {
            expressions.variable(given.node).map(|expr| ((*name).to_owned(), expr))
        });
    let env = env.collect();
    let (hooks, parts) = hooks::lower(&source.hooks, &mut expressions);
    let steps = Stages { expressions: &mut expressions, source: &source, usual: None }.all(stages);

    let mut scope = Scope::new(Shape::Graph, steps);
    scope.timeout = Some(source.config.timeout.unwrap_or(defaults::TIMEOUT));
    let id = WorkflowId::new(source.about.id.unwrap_or("workflow")).ok()?;
    let mut workflow = Workflow::new(id, scope);
    workflow.name = source.about.name.map(str::to_owned);
    workflow.version = Some(source.about.version.unwrap_or(defaults::VERSION).to_owned());
    workflow.description = source.about.description.map(str::to_owned);
    workflow.origin = Origin { dialect: Dialect::Swdl.as_str().to_owned() };
    workflow.inputs = source.config.parameters.as_deref().map(schema::parameters).unwrap_or_default();
    workflow.budget.clone_from(&source.skein.budget);
    workflow.words = words();
    workflow.env = env;
    workflow.hooks = hooks;
    workflow.context = context(&source);
    workflow.labels = labels(&source);
    let gives = |node| expressions.value(node, skein_core::expr::swdl::Scope::Stage);
    source.border.gives_with(&mut workflow, gives);
    Some((workflow, parts))
}

/// The agent of a stage, and where it is named.
fn named_agent<'a>(stage: &Stage<'a>) -> Option<Use<'a>> {
    let (given, name) = stage.asked()?.roles.agent?;
    Some(used(given, name, ""))
}

/// What of one sort the agent of a stage is given, and where each is named.
fn named_tools<'a>(stage: &Stage<'a>, sort: &str) -> Vec<Use<'a>> {
    let tools = stage.asked().into_iter().flat_map(|asked| &asked.roles.tools);
    let tools = tools.filter(|(_, tool)| tool.starts_with(sort));
    tools.map(|(given, tool)| used(*given, tool, sort)).collect()
}

/// A name without its sort, where it stands.
fn used<'a>(given: Given<'a>, name: &'a str, sort: &str) -> Use<'a> {
    let name = name.strip_prefix(sort).unwrap_or(name);
    Use { name, source: given.node.source(), span: given.span() }
}

fn context(source: &syntax::Workflow<'_>) -> Context {
    Context {
        directory: None,
        modules: source.context.modules.iter().map(|(_, module)| (*module).to_owned()).collect(),
        memory: source.context.memory.as_ref().map(|memory| asked::memory(&[memory])),
    }
}

/// What is kept and not understood.
fn labels(source: &syntax::Workflow<'_>) -> BTreeMap<String, Value> {
    let mut labels = source.others.clone();
    let about = &source.about;
    labels.extend(about.author.map(|author| ("author".to_owned(), Value::from(author))));
    if !about.tags.is_empty() {
        labels.insert("tags".to_owned(), Value::from(about.tags.clone()));
    }
    labels.extend(about.ui.map(|ui| ("ui".to_owned(), ui.node.json())));
    labels
}
