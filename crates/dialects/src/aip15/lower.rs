//! From AIP-15 to the IR: the builder makes the workflow; here it gets what is Skein's own, and the way back to the
//! source.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{
    builder::{StepHandle, WorkflowDefinition, define_workflow},
    ids::StepId,
    ir::{Kind, OnInterrupted, Schema, SchemaError, Scope, Step, Undo, Worker, Workflow},
    plan::ProblemCode,
};

use super::{
    files,
    step::Steps,
    tool::{Tool, named},
    workflow::Source,
};
use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    govern::{By, Claim, Claimed, Claims, each_step},
    lowering::{Lowered, Lowering, warn_ignored},
    places::{Places, Renames},
    problem::Voice,
    project::{Project, Sort},
    xskein::XSkein,
    yaml::{Node, Tree},
};

/// Where the plan's fields of a step stand. The builder's own problems name the source's fields already.
const STEP: Renames = &[
    ("isolation.secrets", "metadata.skein.secrets"),
    ("settled_by", "metadata.skein.workspace.conflict"),
    ("arms", "branches"),
    ("lanes", "branches"),
    ("scope.steps", "steps"),
    ("shows", "artifacts"),
    ("message", "prompt"),
    ("on_approve", "on_approve.next"),
    ("on_approve", "on_approve"),
    ("on_reject", "on_reject.next"),
    ("on_reject", "on_reject"),
    ("on_timeout", "resume.on_timeout"),
    ("on_timeout", "on_timeout"),
    ("on", "resume.on"),
    ("timeout", "resume.timeout_ms"),
    ("timeout", "timeout_ms"),
    ("max", "max_iterations"),
    ("policy.timeout", "timeout_ms"),
    ("policy.retry.attempts", "retry.max_attempts"),
    ("retry.attempts", "retry.max_attempts"),
];
const WORKFLOW: Renames = &[("timeout", "timeout_ms"), ("retry.attempts", "retry.max_attempts")];
const VOICE: Voice = Voice {
    words: &[
        ("an each", "a map"),
        (", each and", ", map and"),
        ("lanes", "branches"),
        ("lane", "branch"),
        ("parameter", "input"),
        ("signal", "event"),
    ],
    hints: &[
        (ProblemCode::Cycle, "use a loop step for repetition, or set `metadata.skein.allow_cycles: true`"),
        // An approval step names somebody; this is about a class.
        (ProblemCode::AnyoneMayApprove, "to say who may, put an approval step with `approvers` before it"),
    ],
    stricter: &[],
};

pub(crate) fn lower(tree: Tree, sink: &mut Sink, project: &dyn Project) -> Option<Lowered> {
    let mut lowering = Lowering::new(&VOICE, sink, project);
    let mut steps = Steps::new(&mut lowering);
    let source = Source::read(tree.root(), &mut steps);
    let tools = steps.tools_described();
    let Steps { skein, undos, broken, .. } = steps;
    let (mut places, calls) = lowering.places(tree, WORKFLOW, STEP);
    check_undo_schemas(&undos, &places, sink);
    if let Some(source) = &source {
        check_tool_inputs(&source.definition, &tools, &undos, &places, sink);
    }
    undos.into_iter().for_each(|(step, undo)| places.undo(step, undo));
    if broken {
        return None;
    }
    let source = source?;
    let claims = claims(&source.definition, &tools);
    let lowered = define_workflow(source.definition).lower();
    for problem in &lowered.problems {
        sink.push(VOICE.diagnostic(problem, &places));
    }
    let mut workflow = lowered.workflow?;
    workflow.budget.clone_from(&source.skein.budget);
    workflow.files_in = source.files_in;
    workflow.files_out = source.files_out;
    if !workflow.files_in.is_empty() || !workflow.files_out.is_empty() {
        files::declare_root(&mut workflow.inputs);
    }
    workflow.labels.extend(source.labels);
    add_tools(&mut workflow, &tools);
    add_skein(&mut workflow, &source.skein, &skein);
    warn_of_undo_fields(&workflow, &places, sink);
    Some(Lowered { claims, ..Lowered::new(workflow, (places, calls), &VOICE) })
}

/// What a step gives that only undoes is read by nobody, so the plan does not see what it says about that.
fn check_undo_schemas(undos: &[(StepId, StepId)], places: &Places, sink: &mut Sink) {
    for (_, undo) in undos {
        let outputs = places.node(undo).and_then(|node| node.get("outputs"));
        let Some(node) = outputs.filter(|node| node.fields().is_some()) else { continue };
        if let Err(error) = Schema::new(node.json()).compile() {
            let place = match &error {
                SchemaError::Schema { at, .. } => node.at(at),
                SchemaError::Value { .. } => node,
            };
            let message = error.to_string();
            sink.push(Diagnostic::new(Code::BadSchema, node.source(), place.mark(), message));
        }
    }
}

/// Refuses a step that leaves out an input that its tool requires. An undo without inputs is given outputs.
fn check_tool_inputs(
    definition: &WorkflowDefinition,
    tools: &BTreeMap<(Sort, String), Arc<Tool>>,
    undos: &[(StepId, StepId)],
    places: &Places,
    sink: &mut Sink,
) {
    let mut todo: Vec<&[StepHandle]> = vec![&definition.steps];
    while let Some(steps) = todo.pop() {
        for step in steps.iter().map(StepHandle::definition) {
            todo.extend(step.kind.lists());
            let is_undo = undos.iter().any(|(_, undo)| undo.as_str() == step.id);
            let Some((Sort::Tool, name)) = named(step).filter(|_| !(is_undo && step.inputs.is_empty()))
            else {
                continue;
            };
            let Some(tool) = tools.get(&(Sort::Tool, name.to_owned())) else { continue };
            let Some(node) = StepId::new(&step.id).ok().and_then(|id| places.node(&id)) else { continue };
            let has_default = |input: &str| {
                tool.inputs.property(input).is_some_and(|schema| schema.get("default").is_some())
            };
            for input in tool.inputs.required().filter(|input| !step.inputs.contains_key(*input)) {
                if has_default(input) {
                    continue;
                }
                let message = format!("`{}` leaves out `{input}`, which the tool `{name}` requires", step.id);
                let place = node.get("inputs").unwrap_or(node);
                let diagnostic = Diagnostic::new(Code::MissingField, place.source(), place.mark(), message);
                sink.push(diagnostic.hint(format!("add `{input}` to `inputs`")));
            }
        }
    }
}

/// A step that only undoes goes nowhere afterwards, and nobody is asked before it.
fn warn_of_undo_fields(workflow: &Workflow, places: &Places, sink: &mut Sink) {
    let (mut steps, mut undos) = (BTreeSet::new(), BTreeSet::new());
    let mut todo: Vec<&Scope> = vec![&workflow.scope];
    while let Some(scope) = todo.pop() {
        for step in &scope.steps {
            steps.insert(&step.id);
            undos.extend(step.undo.as_ref().map(|undo| &undo.id));
            todo.extend(step.kind.scopes().into_iter().map(|inner| &**inner));
        }
    }
    for node in undos.difference(&steps).filter_map(|undo| places.node(undo)) {
        warn_ignored(node, &["next"], "this step only undoes another", sink);
        refuse_approval_of_undo(node, sink);
    }
}

/// An undo runs because something failed, when nobody may be there: a class that asks somebody is a promise that is not kept.
fn refuse_approval_of_undo(node: Node<'_>, sink: &mut Sink) {
    let Some(field) = node.field("approval") else { return };
    if matches!(field.value.raw(), Some("auto" | "per-step")) {
        return warn_ignored(node, &["approval"], "this step only undoes another", sink);
    }
    let message = "nobody is asked before a step that only undoes another";
    let diagnostic = Diagnostic::new(Code::Misplaced, node.source(), field.key_span, message);
    sink.push(diagnostic.hint("leave it out; ask before the step that it undoes"));
}

/// What is said of who is asked before each step that a tool does: by the step or else the workflow, by the tool and by
/// the action that it implements.
fn claims(definition: &WorkflowDefinition, tools: &BTreeMap<(Sort, String), Arc<Tool>>) -> Claims {
    let mut found = Claims::new();
    let mut todo: Vec<&[StepHandle]> = vec![&definition.steps];
    while let Some(steps) = todo.pop() {
        for step in steps.iter().map(StepHandle::definition) {
            todo.extend(step.kind.lists());
            let Some((sort, name)) = named(step) else { continue };
            let (class, from) = match &step.approval {
                Some(class) => (class, By::Step),
                None => (&definition.approval, By::Workflow),
            };
            let mut claims = vec![Claim { class: class.clone(), from }];
            let tool = tools.get(&(sort, name.to_owned()));
            if let Some(tool) = tool {
                let (word, _) = sort.words();
                let from = By::Named(format!("the {word} `{name}`"));
                let all = std::iter::once(&tool.approval).chain(&tool.others);
                claims.extend(all.map(|class| Claim { class: class.clone(), from: from.clone() }));
            }
            let risk = step.risk_level.map(|level| level as u8);
            found.insert(step.id.clone(), Claimed { claims, tool: tool.cloned(), risk });
        }
    }
    found
}

/// Puts what tools say of themselves into the steps that run them: what was cut off may have to be left to a person.
fn add_tools(workflow: &mut Workflow, tools: &BTreeMap<(Sort, String), Arc<Tool>>) {
    each_step(workflow, |step| {
        let Kind::Work(work) = &step.kind else { return };
        let named = match &work.worker {
            Worker::Tool { tool, .. } => (Sort::Tool, tool.clone()),
            Worker::Action { action, .. } => (Sort::Action, action.clone()),
            _ => return,
        };
        let Some(tool) = tools.get(&named) else { return };
        if tool.is_delicate() {
            step.policy.on_interrupted = OnInterrupted::Ask;
        }
    });
}

/// Puts each step's own block, and the workflow's, into the steps.
fn add_skein(workflow: &mut Workflow, shared: &XSkein, own: &BTreeMap<StepId, XSkein>) {
    let of = |id: &StepId| own.get(id).cloned().unwrap_or_default().over(shared);
    each_step(workflow, |step| {
        of(&step.id).apply(step);
        if let Some(undo) = &mut step.undo {
            add_to_undo(undo, of(&undo.id));
        }
    });
}

/// An undo is work without a step around it.
fn add_to_undo(undo: &mut Undo, skein: XSkein) {
    let mut step = Step::new(undo.id.clone(), Kind::Work(Box::new(undo.work.clone())));
    skein.apply(&mut step);
    if let Kind::Work(work) = step.kind {
        undo.work = *work;
    }
}
