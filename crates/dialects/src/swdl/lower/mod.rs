//! Lowers SWDL to the IR.

mod expressions;
mod schema;
mod stage;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use skein_core::{
    ids::WorkflowId,
    ir::{ScopeShape, StepScope, Workflow, WorkflowContext, WorkflowExtensions, WorkflowOrigin},
    plan::{PlanField as P, ProblemCode},
    terms::WorkflowTerms,
};

use self::{
    expressions::{HookLocations, SwdlExpressions},
    stage::SwdlStageLowering,
};
use super::{
    defaults::{self, status_words},
    overrides::{self, check_widening},
    syntax::{self, SwdlStage},
};
use crate::{
    catalog::{self, CatalogKind, NameUse, Project},
    diagnostics::{Code, DiagnosticSink},
    fields::FieldValue,
    lowering::{DialectTerms, LoweredSource, LoweringContext},
    source::{
        Dialect, FieldRenames,
        PatternSegment::{AnyName, Field as F},
        yaml::YamlTree,
    },
};

/// The source fields that the plan's fields of a stage are read from. The template of a fan-out has the same field
/// names.
const STEP: FieldRenames = &[
    (&[F(P::Isolation), F(P::Secrets)], "x-skein.secrets"),
    (&[F(P::SettledBy)], "x-skein.workspace.conflict"),
    (&[F(P::After)], "depends_on"),
    (&[F(P::When)], "condition"),
    (&[F(P::Inputs), AnyName, F(P::Schema)], "inputs.*.type"),
    (&[F(P::Inputs), AnyName], "inputs.*.source"),
    (&[F(P::Instructions)], "roles.primary.instructions"),
    (&[F(P::Summary), F(P::Instructions)], "handoff.summary_prompt"),
    (&[F(P::Policy), F(P::Timeout)], "error_policy.timeout"),
    (&[F(P::Policy), F(P::Effects)], "error_policy.on_failure"),
    (&[F(P::Policy), F(P::Retry), F(P::Attempts)], "error_policy.retry.max_attempts"),
    (&[F(P::Policy), F(P::Retry)], "error_policy.retry"),
    (&[F(P::Message)], "gate.message"),
    (&[F(P::Approvers)], "gate.approvers"),
    (&[F(P::OnTimeout)], "gate.on_timeout"),
    (&[F(P::Timeout)], "gate.timeout"),
    (&[F(P::Over)], "fan_out.source"),
    (&[F(P::Scope)], "fan_out.stage_template"),
    (&[F(P::Workflow)], "x-skein.call"),
];
const WORKFLOW: FieldRenames = &[
    (&[F(P::Inputs)], "config.parameters"),
    (&[F(P::Timeout)], "config.timeout"),
    (&[F(P::Env)], "config.env"),
    (&[F(P::Result)], "x-skein.output"),
    (&[F(P::Outputs)], "x-skein.output"),
];
const TERMS: DialectTerms = DialectTerms {
    words: WorkflowTerms { step: "stage", ..WorkflowTerms::IR },
    hints: &[],
    // A stage only has the outputs that it declares.
    stricter: &[(ProblemCode::UndeclaredOutput, Code::ReadsUnknownOutput)],
};

pub(crate) fn lower(mut tree: YamlTree, sink: &mut DiagnosticSink, project: &dyn Project) -> Option<LoweredSource> {
    let before = overrides::apply_overrides(&mut tree, sink, project);
    let overridden = before.map(|before| overrides::list_overridden(&tree, before)).unwrap_or_default();
    let mut lowering = LoweringContext::new(&TERMS, sink, project);
    let (workflow, parts) = lower_workflow(&tree, before, &mut lowering)?;
    let (mut places, calls) = lowering.into_source_map(tree, WORKFLOW, STEP);
    parts.into_iter().for_each(|(field, (node, start))| places.add_text_part(field, node, start));
    // The work for each item has the policy of the stage.
    for step in &workflow.scope.steps {
        let inner = step.kind.inner_scopes().into_iter().flat_map(|scope| &scope.steps);
        inner.for_each(|item| places.add_enclosing_step(item.id.clone(), step.id.clone()));
    }
    Some(LoweredSource { overridden, ..LoweredSource::new(workflow, (places, calls), &TERMS) })
}

/// Reads and lowers the document. `before` is its root without the project's overrides, if there are any.
fn lower_workflow(
    tree: &YamlTree,
    before: Option<u32>,
    lowering: &mut LoweringContext<'_>,
) -> Option<(Workflow, HookLocations)> {
    let mut source = syntax::SwdlWorkflow::read(tree.root(), lowering.sink)?;
    if let Some(before) = before {
        // Errors there are also errors in the merged document, or an override has fixed them.
        let unheard = &mut DiagnosticSink::new(Arc::clone(tree.source()));
        let before = syntax::SwdlWorkflow::read(tree.node(before), unheard);
        before.iter().for_each(|before| check_widening(before, &source, lowering.sink));
    }
    let stages = source.stages.take()?;
    let named = stages.iter().filter_map(|stage| named_agent(stage));
    catalog::check_names(CatalogKind::Agent, named, lowering.project, lowering.sink);
    let servers = stages.iter().flat_map(|stage| named_tools(stage, "mcp:"));
    catalog::check_names(CatalogKind::Server, servers, lowering.project, lowering.sink);
    let skills = stages.iter().flat_map(|stage| named_tools(stage, "skill:"));
    catalog::warn_unknown_names(CatalogKind::Skill, skills, lowering.project, lowering.sink);
    let own = stages.iter().filter_map(|stage| stage.agent_task()).filter_map(|asked| asked.context.as_deref());
    let modules = own.chain([&source.context]).flat_map(|context| &context.modules);
    let modules = modules.map(|(given, module)| name_use(*given, module, "ctx:"));
    catalog::warn_unknown_names(CatalogKind::Context, modules, lowering.project, lowering.sink);

    let modules = source.context.modules.iter().filter_map(|(_, module)| module.strip_prefix("ctx:"));
    let mut expressions = SwdlExpressions::new(lowering, source.config.env.iter().map(|(name, _)| *name), modules);
    let env = source
        .config
        .env
        .iter()
        .filter_map(|(name, given)| expressions.lower_variable(given.node).map(|expr| ((*name).to_owned(), expr)));
    let env = env.collect();
    let (hooks, parts) = expressions::lower_hooks(&source.hooks, &mut expressions);
    let steps = SwdlStageLowering { expressions: &mut expressions, source: &source, usual: None }.lower_stages(stages);

    let mut scope = StepScope::new(ScopeShape::Graph, steps);
    scope.timeout = Some(source.config.timeout.unwrap_or(defaults::TIMEOUT));
    let id = WorkflowId::new(source.about.id.unwrap_or("workflow")).ok()?;
    let mut workflow = Workflow::new(id, scope);
    workflow.name = source.about.name.map(str::to_owned);
    workflow.version = Some(source.about.version.unwrap_or(defaults::VERSION).to_owned());
    workflow.description = source.about.description.map(str::to_owned);
    workflow.origin = WorkflowOrigin { dialect: Dialect::Swdl.as_str().to_owned() };
    workflow.inputs = source.config.parameters.as_deref().map(schema::parameters_schema).unwrap_or_default();
    workflow.budget.clone_from(&source.skein.budget);
    workflow.words = status_words();
    workflow.env = env;
    workflow.hooks = hooks;
    workflow.context = lower_context(&source);
    workflow.extensions.labels = build_labels(&source);
    let gives = |node| expressions.lower_value(node, skein_core::expr::swdl::SwdlExprScope::Stage);
    source.border.apply_outputs_with(&mut workflow, gives);
    Some((workflow, parts))
}

/// Returns the agent of a stage, and the place of its name.
fn named_agent<'a>(stage: &SwdlStage<'a>) -> Option<NameUse<'a>> {
    let (given, name) = stage.agent_task()?.roles.agent?;
    Some(name_use(given, name, ""))
}

/// Returns the tools of one kind that the agent of a stage gets, and the places of their names.
fn named_tools<'a>(stage: &SwdlStage<'a>, sort: &str) -> Vec<NameUse<'a>> {
    let tools = stage.agent_task().into_iter().flat_map(|asked| &asked.roles.tools);
    let tools = tools.filter(|(_, tool)| tool.starts_with(sort));
    tools.map(|(given, tool)| name_use(*given, tool, sort)).collect()
}

/// Makes a name use without the prefix of its kind.
fn name_use<'a>(given: FieldValue<'a>, name: &'a str, sort: &str) -> NameUse<'a> {
    let name = name.strip_prefix(sort).unwrap_or(name);
    NameUse { name, source: given.node.source(), span: given.span() }
}

fn lower_context(source: &syntax::SwdlWorkflow<'_>) -> WorkflowContext {
    WorkflowContext {
        directory: None,
        modules: source.context.modules.iter().map(|(_, module)| (*module).to_owned()).collect(),
        memory: source.context.memory.as_ref().map(|memory| stage::lower_memory(&[memory])),
    }
}

/// Builds labels from the fields that are kept without interpretation.
fn build_labels(source: &syntax::SwdlWorkflow<'_>) -> BTreeMap<String, Value> {
    let mut labels = source.others.clone();
    labels.retain(|name, _| !WorkflowExtensions::is_typed(name));
    let about = &source.about;
    labels.extend(about.author.map(|author| ("author".to_owned(), Value::from(author))));
    if !about.tags.is_empty() {
        labels.insert("tags".to_owned(), Value::from(about.tags.clone()));
    }
    labels.extend(about.ui.map(|ui| ("ui".to_owned(), ui.node.to_json())));
    labels
}
