//! From IOA to the IR: the resource around the steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};
use skein_core::{
    closest::did_you_mean,
    expr::{Expr, ioa},
    ids::{StepId, WorkflowId},
    ir::{Origin, RunRetry, Schema, Scope, Shape, Trigger, UndoFailure, UndoPolicy, Workflow},
    plan::{ProblemCode, Severity},
};

use super::{
    advice,
    defaults::{self, FailurePolicy},
    step::{Steps, trigger_binding},
    syntax::{self, Compensation, Metadata, Resource, Spec, Step},
    words::words,
};
use crate::{
    catalog::{self, Use},
    code::Code,
    common::{id_like, trigger_not_served},
    detect::Dialect,
    diagnostic::{Diagnostic, Sink},
    duration::Units,
    lowering::{Lowered, Lowering},
    places::Renames,
    problem::Voice,
    project::{Project, Sort},
    read::{Given, Spanned},
    schedule,
    yaml::Tree,
};

/// Where the plan's fields of a step stand.
const STEP: Renames = &[
    ("isolation.secrets", "x-skein.secrets"),
    ("settled_by", "x-skein.workspace.conflict"),
    ("id", "name"),
    ("after", "dependsOn"),
    ("instructions", "action"),
    ("message", "action"),
    ("shows[0]", "x-skein.input"),
    // What a step is given that names nothing: the trigger, and what those before it gave.
    ("inputs.trigger", "x-skein.input.trigger"),
    ("inputs.trigger", "action"),
    ("inputs.steps", "dependsOn"),
    ("inputs.steps", "x-skein.input.steps"),
    ("inputs", "x-skein.input"),
    ("outputs", "x-skein.output"),
    ("workflow", "x-skein.call"),
    ("policy.timeout", "timeout"),
    ("policy.idle_timeout", "x-skein.idle_timeout"),
    ("policy.start_timeout", "x-skein.start_timeout"),
    ("policy.retry.attempts", "retryPolicy.maxRetries"),
    ("undo.retry.attempts", "retryPolicy.maxRetries"),
    ("undo.timeout", "timeout"),
];
const WORKFLOW: Renames = &[
    ("timeout", "spec.timeout"),
    // One that is missing is missing of the workflow, which has a name.
    ("timeout", "metadata.name"),
    ("steps", "spec.steps"),
    ("undo", "spec.compensation"),
    ("triggers[0]", "spec.trigger"),
    ("inputs", "spec.x-skein.input"),
    ("result", "spec.x-skein.output"),
    ("outputs", "spec.x-skein.output"),
];
const VOICE: Voice = Voice {
    words: &[],
    hints: &[(ProblemCode::AnyoneMayApprove, "the format has no field that names who may decide")],
    stricter: &[],
};

pub(crate) fn lower(tree: Tree, sink: &mut Sink, project: &dyn Project) -> Option<Lowered> {
    let mut lowering = Lowering::new(&VOICE, sink, project);
    let workflow = lower_resource(&tree, &mut lowering);
    let back = lowering.places(tree, WORKFLOW, STEP);
    Some(Lowered::new(workflow?, back, &VOICE))
}

fn lower_resource(tree: &Tree, lowering: &mut Lowering<'_>) -> Option<Workflow> {
    let Resource { metadata, mut spec } = Resource::read(tree.root(), lowering.sink)?;
    check_names(&spec, lowering);
    let steps = spec.steps.take()?;
    let undo = compensations(&spec, &steps, lowering.sink);
    let mut advice = Sink::new(lowering.sink.source.clone());
    advice::check(&spec, &steps, &mut advice);
    lowering.reserve(steps.len());
    let mut lower = Steps {
        policy: spec.failure_policy(),
        skein: &spec.skein,
        known: steps.iter().map(|step| step.id.value.clone()).collect(),
        undo,
        usual: None,
        trigger: trigger_binding(),
        lowering,
    };
    let lowered = steps.into_iter().map(|step| lower.step(&step).map(Arc::new)).collect::<Option<_>>();
    let triggers = triggers(&spec.trigger, lowering);
    if !lowering.sink.has_errors() {
        lowering.sink.take_in(advice);
    }
    let mut workflow = described(&metadata, &spec, scope(&spec, lowered?))?;
    workflow.triggers = triggers;
    spec.border.takes(&mut workflow);
    spec.border.gives(&mut workflow, ioa::value, lowering);
    Some(workflow)
}

fn scope(spec: &Spec<'_>, steps: Vec<Arc<skein_core::ir::Step>>) -> Scope {
    let compensates = spec.failure_policy() == FailurePolicy::Compensate;
    let mut scope = Scope::new(Shape::Graph, steps);
    scope.timeout = spec.timeout;
    scope.undo = UndoPolicy {
        on_timeout: compensates,
        on_cancel: compensates,
        failed_step: spec.skein.compensate_failed_step,
        if_one_fails: UndoFailure::Stop,
    };
    let retry = RunRetry { attempts: defaults::RUNS, backoff: defaults::RUN_BACKOFF, on_timeout: true };
    scope.retry = (spec.failure_policy() == FailurePolicy::Retry).then_some(retry);
    scope
}

/// The workflow with its name and all that is only kept.
fn described(metadata: &Metadata<'_>, spec: &Spec<'_>, scope: Scope) -> Option<Workflow> {
    let name = metadata.name.unwrap_or("workflow");
    let mut workflow = Workflow::new(WorkflowId::new(id_like(name)).ok()?, scope);
    workflow.name = Some(name.to_owned());
    workflow.version = metadata.version.map(str::to_owned);
    workflow.description = spec.description.map(str::to_owned);
    workflow.origin = Origin { dialect: Dialect::Ioa.as_str().to_owned() };
    // A run is given the payload of what triggered it, whatever that holds.
    workflow.inputs = Schema::new(json!({"type": "object"}));
    workflow.words = words();
    workflow.budget.clone_from(&spec.skein.budget);
    workflow.labels.clone_from(&metadata.kept);
    let domains: Vec<Value> = spec.domains.iter().map(|domain| domain.value.into()).collect();
    workflow.labels.insert("domainsInvolved".to_owned(), domains.into());
    Some(workflow)
}

/// Agents and domains are defined by the project.
fn check_names(spec: &Spec<'_>, lowering: &mut Lowering<'_>) {
    let source = lowering.sink.source.clone();
    let steps = spec.steps.iter().flatten().filter_map(|step| step.agent.as_ref());
    let agents = steps.chain(spec.compensation.iter().filter_map(|entry| entry.agent.as_ref()));
    let agents = agents.map(|name| Use::new(name, &source));
    catalog::check(Sort::Agent, agents, lowering.project, lowering.sink);
    let domains = spec.domains.iter().map(|name| Use::new(name, &source));
    catalog::check(Sort::Domain, domains, lowering.project, lowering.sink);
}

/// What takes each step back. An entry for a step that is not there is reported.
fn compensations<'a>(
    spec: &'a Spec<'a>,
    steps: &[Box<Step<'_>>],
    sink: &mut Sink,
) -> BTreeMap<&'a StepId, &'a Compensation<'a>> {
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
        sink.push(Diagnostic::new(Code::UnknownStep, &sink.source, *span, message).maybe_hint(hint));
    }
    undo
}

fn triggers(source: &syntax::Trigger<'_>, lowering: &mut Lowering<'_>) -> Vec<Trigger> {
    let mut triggers = Vec::new();
    let condition = source.condition.and_then(|given| condition(given, lowering));
    if let Some(event) = &source.event {
        trigger_not_served(event.span, "an event", lowering.sink);
        triggers.push(Trigger::Event { event: event.value.to_owned(), condition });
    }
    if let Some(given) = source.schedule {
        trigger_not_served(given.node.mark(), "a schedule", lowering.sink);
        triggers.extend(interval_or_cron(given, lowering.sink));
    }
    triggers
}

fn condition(given: Given<'_>, lowering: &mut Lowering<'_>) -> Option<Expr> {
    let text = given.node.raw().unwrap_or_default();
    lowering.expression(given.node, ioa::condition(text))
}

/// A line of cron, or the time from one run to the next. The format only says that it is text, so that one which is
/// neither is no reason to refuse the workflow.
fn interval_or_cron(given: Given<'_>, sink: &mut Sink) -> Option<Trigger> {
    let text = given.node.raw()?.trim();
    if let Ok(every) = Units::All.parse(text) {
        return Some(Trigger::Interval { every });
    }
    let Err(why) = schedule::cron(text) else {
        return Some(Trigger::Cron { cron: text.to_owned(), timezone: None });
    };
    let mut diagnostic = schedule::refuse(given, text, &why);
    diagnostic.severity = Severity::Warning;
    sink.push(diagnostic.hint("write a line of cron such as `0 6 * * 1`, or a length of time such as `24h`"));
    None
}
