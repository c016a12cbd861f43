//! Lowers IOA to the IR: the resource around the steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::json;
use skein_core::{
    expr::{Expr, ioa},
    ids::{StepId, WorkflowId},
    ir::{
        RunRetry, Schema, ScopeShape, StepScope, UndoFailurePolicy, UndoPolicy, Workflow, WorkflowOrigin,
        WorkflowResource, WorkflowTrigger,
    },
    plan::{PlanField as P, ProblemCode, Severity},
    suggest::did_you_mean,
    terms::WorkflowTerms,
};

use crate::{
    catalog::{self, CatalogKind, IoaMetadata, NameUse, Project},
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::{
        DurationUnits, FieldValue, Spanned,
        cron::{self, note_unserved_trigger},
    },
    ioa::{
        advice,
        defaults::{self, IoaFailurePolicy, status_words},
        step::{IoaStepLowering, trigger_binding},
        syntax::{IoaCompensation, IoaResource, IoaSpec, IoaStep, IoaTrigger},
    },
    lowering::{DialectTerms, LoweredSource, LoweringContext, sanitize_id},
    source::{
        Dialect, FieldRenames,
        PatternSegment::{Field as F, Item, Name, NamePrefix},
        yaml::YamlTree,
    },
};

/// The source fields that the plan's fields of a step are read from.
const STEP: FieldRenames = &[
    (&[F(P::Isolation), F(P::Secrets)], "x-skein.secrets"),
    (&[F(P::SettledBy)], "x-skein.workspace.conflict"),
    (&[F(P::Id)], "name"),
    (&[F(P::After)], "dependsOn"),
    (&[F(P::Instructions)], "action"),
    (&[F(P::Message)], "action"),
    (&[F(P::Shows), Item(0)], "x-skein.input"),
    // The default inputs: the trigger, and the outputs of the dependencies.
    (&[F(P::Inputs), Name("trigger")], "x-skein.input.trigger"),
    (&[F(P::Inputs), Name("trigger")], "action"),
    (&[F(P::Inputs), NamePrefix("steps.")], "dependsOn"),
    (&[F(P::Inputs), NamePrefix("steps.")], "x-skein.input"),
    (&[F(P::Inputs)], "x-skein.input"),
    (&[F(P::Outputs)], "x-skein.output"),
    (&[F(P::Workflow)], "x-skein.call"),
    (&[F(P::Policy), F(P::Timeout)], "timeout"),
    (&[F(P::Policy), F(P::IdleTimeout)], "x-skein.idle_timeout"),
    (&[F(P::Policy), F(P::StartTimeout)], "x-skein.start_timeout"),
    (&[F(P::Policy), F(P::Retry), F(P::Attempts)], "retryPolicy.maxRetries"),
    (&[F(P::Undo), F(P::Retry), F(P::Attempts)], "retryPolicy.maxRetries"),
    (&[F(P::Undo), F(P::Timeout)], "timeout"),
];
const WORKFLOW: FieldRenames = &[
    (&[F(P::Timeout)], "spec.timeout"),
    // A missing timeout is reported at the workflow's name.
    (&[F(P::Timeout)], "metadata.name"),
    (&[F(P::Steps)], "spec.steps"),
    (&[F(P::Undo)], "spec.compensation"),
    (&[F(P::Triggers), Item(0)], "spec.trigger"),
    (&[F(P::Inputs)], "spec.x-skein.input"),
    (&[F(P::Result)], "spec.x-skein.output"),
    (&[F(P::Outputs)], "spec.x-skein.output"),
];
const TERMS: DialectTerms = DialectTerms {
    words: WorkflowTerms::IR,
    hints: &[(ProblemCode::AnyoneMayApprove, "the format has no field for approvers")],
    stricter: &[],
};

pub(crate) fn lower(tree: YamlTree, sink: &mut DiagnosticSink, project: &dyn Project) -> Option<LoweredSource> {
    let mut lowering = LoweringContext::new(&TERMS, sink, project);
    let workflow = lower_resource(&tree, &mut lowering);
    let back = lowering.into_source_map(tree, WORKFLOW, STEP);
    Some(LoweredSource::new(workflow?, back, &TERMS))
}

fn lower_resource(tree: &YamlTree, lowering: &mut LoweringContext<'_>) -> Option<Workflow> {
    let IoaResource { metadata, mut spec } = IoaResource::read(tree.root(), lowering.sink)?;
    check_names(&spec, lowering);
    let steps = spec.steps.take()?;
    let undo = collect_compensations(&spec, &steps, lowering.sink);
    let mut advice = DiagnosticSink::new(lowering.sink.source.clone());
    advice::check_advice(&spec, &steps, &mut advice);
    lowering.reserve_steps(steps.len());
    let mut lower = IoaStepLowering {
        policy: spec.failure_policy(),
        skein: &spec.skein,
        known: steps.iter().map(|step| step.id.value.clone()).collect(),
        undo,
        usual: None,
        trigger: trigger_binding(),
        lowering,
    };
    let lowered = steps.into_iter().map(|step| lower.lower_step(&step).map(Arc::new)).collect::<Option<_>>();
    let triggers = lower_triggers(&spec.trigger, lowering);
    if !lowering.sink.has_errors() {
        lowering.sink.extend_from(advice);
    }
    let mut workflow = build_workflow(&metadata, &spec, lower_scope(&spec, lowered?))?;
    workflow.triggers = triggers;
    spec.border.apply_inputs(&mut workflow);
    spec.border.apply_outputs(&mut workflow, ioa::parse_value, lowering);
    Some(workflow)
}

fn lower_scope(spec: &IoaSpec<'_>, steps: Vec<Arc<skein_core::ir::Step>>) -> StepScope {
    let compensates = spec.failure_policy() == IoaFailurePolicy::Compensate;
    let mut scope = StepScope::new(ScopeShape::Graph, steps);
    scope.timeout = spec.timeout;
    scope.undo = UndoPolicy {
        on_timeout: compensates,
        on_cancel: compensates,
        failed_step: spec.skein.compensate_failed_step,
        if_one_fails: UndoFailurePolicy::Stop,
    };
    let retry = RunRetry { attempts: defaults::RUNS, backoff: defaults::RUN_BACKOFF, on_timeout: true };
    scope.retry = (spec.failure_policy() == IoaFailurePolicy::Retry).then_some(retry);
    scope
}

/// Builds the workflow with its name and the fields that are only kept.
fn build_workflow(metadata: &IoaMetadata<'_>, spec: &IoaSpec<'_>, scope: StepScope) -> Option<Workflow> {
    let name = metadata.name.unwrap_or("workflow");
    let mut workflow = Workflow::new(WorkflowId::new(sanitize_id(name)).ok()?, scope);
    workflow.name = Some(name.to_owned());
    workflow.version = metadata.version.map(str::to_owned);
    workflow.description = spec.description.map(str::to_owned);
    workflow.origin = WorkflowOrigin { dialect: Dialect::Ioa.as_str().to_owned() };
    // A run receives the payload of its trigger, whose form is unknown.
    workflow.inputs = Schema::new(json!({"type": "object"}));
    workflow.words = status_words();
    workflow.budget.clone_from(&spec.skein.budget);
    let domains = spec.domains.iter().map(|domain| domain.value.to_owned()).collect();
    workflow.extensions.resource = Some(WorkflowResource { domains });
    workflow.extensions.labels.clone_from(&metadata.kept);
    Some(workflow)
}

/// Checks the names of agents and domains, which the project defines.
fn check_names(spec: &IoaSpec<'_>, lowering: &mut LoweringContext<'_>) {
    let source = lowering.sink.source.clone();
    let steps = spec.steps.iter().flatten().filter_map(|step| step.agent.as_ref());
    let agents = steps.chain(spec.compensation.iter().filter_map(|entry| entry.agent.as_ref()));
    let agents = agents.map(|name| NameUse::new(name, &source));
    catalog::check_names(CatalogKind::Agent, agents, lowering.project, lowering.sink);
    let domains = spec.domains.iter().map(|name| NameUse::new(name, &source));
    catalog::check_names(CatalogKind::Domain, domains, lowering.project, lowering.sink);
}

/// Returns the compensation of each step. Reports an entry for a step that does not exist.
fn collect_compensations<'a>(
    spec: &'a IoaSpec<'a>,
    steps: &[Box<IoaStep<'_>>],
    sink: &mut DiagnosticSink,
) -> BTreeMap<&'a StepId, &'a IoaCompensation<'a>> {
    if spec.compensation.is_empty() {
        return BTreeMap::new();
    }
    let known: BTreeSet<&StepId> = steps.iter().map(|step| &step.id.value).collect();
    let mut undo = BTreeMap::new();
    for entry in &spec.compensation {
        let Spanned { value: id, span } = &entry.step;
        if known.contains(id) {
            undo.entry(id).or_insert(entry);
            continue;
        }
        let message = format!("there is no step `{id}` to compensate");
        let near = || did_you_mean(id.as_str(), known.iter().map(|id| id.as_str()));
        let hint = if sink.is_full(Code::UnknownStep) { None } else { near() };
        sink.push(Diagnostic::new(Code::UnknownStep, &sink.source, *span, message).with_optional_hint(hint));
    }
    undo
}

fn lower_triggers(source: &IoaTrigger<'_>, lowering: &mut LoweringContext<'_>) -> Vec<WorkflowTrigger> {
    let mut triggers = Vec::new();
    let condition = source.condition.and_then(|given| lower_condition(given, lowering));
    if let Some(event) = &source.event {
        note_unserved_trigger(event.span, "an event", lowering.sink);
        triggers.push(WorkflowTrigger::Event { event: event.value.to_owned(), condition });
    }
    if let Some(given) = source.schedule {
        note_unserved_trigger(given.node.first_line_span(), "a schedule", lowering.sink);
        triggers.extend(read_schedule(given, lowering.sink));
    }
    triggers
}

fn lower_condition(given: FieldValue<'_>, lowering: &mut LoweringContext<'_>) -> Option<Expr> {
    let text = given.node.raw_text().unwrap_or_default();
    lowering.accept_expression(given.node, ioa::parse_condition(text))
}

/// Reads a cron expression, or the interval between runs. The format only requires text, so any other text is a warning
/// and not an error.
fn read_schedule(given: FieldValue<'_>, sink: &mut DiagnosticSink) -> Option<WorkflowTrigger> {
    let text = given.node.raw_text()?.trim();
    if let Ok(every) = DurationUnits::All.parse(text) {
        return Some(WorkflowTrigger::Interval { every });
    }
    let Err(why) = cron::check_cron(text) else {
        return Some(WorkflowTrigger::Cron { cron: text.to_owned(), timezone: None });
    };
    let mut diagnostic = cron::diagnose_schedule(given, text, &why);
    diagnostic.severity = Severity::Warning;
    sink.push(diagnostic.with_hint("write a cron expression such as `0 6 * * 1`, or a duration such as `24h`"));
    None
}
