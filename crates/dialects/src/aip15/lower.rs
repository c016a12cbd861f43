//! Lowers AIP-15 to the IR: the builder makes the workflow. This module adds Skein's extensions and the map back to the
//! source.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use skein_core::{
    builder::{StepHandle, WorkflowDefinition, define_workflow},
    ids::StepId,
    ir::{OnInterrupted, Schema, SchemaError, Step, StepKindSpec, StepScope, UndoSpec, WorkerSpec, Workflow},
    plan::{PlanField as P, ProblemCode},
    terms::WorkflowTerms,
};

use super::{files, step::Aip15StepReader, workflow::Aip15Workflow};
use crate::{
    catalog::{Aip15Tool, CatalogKind, Project, tool::referenced_tool},
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    extensions::ExtensionBlock,
    lowering::{
        ApprovalClaim, ApprovalClaims, ClaimOrigin, DialectTerms, LoweredSource, LoweringContext, StepApprovalClaims,
        warn_ignored,
    },
    source::{
        FieldRenames,
        PatternSegment::Field as F,
        SourceMap,
        yaml::{YamlNode, YamlTree},
    },
};

/// The source fields that the plan's fields of a step are read from. The builder's problems already name source fields.
const STEP: FieldRenames = &[
    (&[F(P::Isolation), F(P::Secrets)], "metadata.skein.secrets"),
    (&[F(P::SettledBy)], "metadata.skein.workspace.conflict"),
    (&[F(P::Arms)], "branches"),
    (&[F(P::Lanes)], "branches"),
    (&[F(P::Scope), F(P::Steps)], "steps"),
    (&[F(P::Shows)], "artifacts"),
    (&[F(P::Message)], "prompt"),
    (&[F(P::OnApprove)], "on_approve.next"),
    (&[F(P::OnApprove)], "on_approve"),
    (&[F(P::OnReject)], "on_reject.next"),
    (&[F(P::OnReject)], "on_reject"),
    (&[F(P::OnTimeout)], "resume.on_timeout"),
    (&[F(P::OnTimeout)], "on_timeout"),
    (&[F(P::On)], "resume.on"),
    (&[F(P::Timeout)], "resume.timeout_ms"),
    (&[F(P::Timeout)], "timeout_ms"),
    (&[F(P::Max)], "max_iterations"),
    (&[F(P::Policy), F(P::Timeout)], "timeout_ms"),
    (&[F(P::Policy), F(P::Retry), F(P::Attempts)], "retry.max_attempts"),
    (&[F(P::Retry), F(P::Attempts)], "retry.max_attempts"),
];
const WORKFLOW: FieldRenames =
    &[(&[F(P::Timeout)], "timeout_ms"), (&[F(P::Retry), F(P::Attempts)], "retry.max_attempts")];
const TERMS: DialectTerms = DialectTerms {
    words: WorkflowTerms {
        an_each: "a map",
        each: "map",
        lane: "branch",
        lanes: "branches",
        parameter: "input",
        signal: "event",
        ..WorkflowTerms::IR
    },
    hints: &[
        (ProblemCode::Cycle, "use a loop step for repetition, or set `metadata.skein.allow_cycles: true`"),
        // An approval step names its approvers; this problem is about an approval class.
        (ProblemCode::AnyoneMayApprove, "to restrict who may approve, put an approval step with `approvers` before it"),
    ],
    stricter: &[],
};

pub(crate) fn lower(tree: YamlTree, sink: &mut DiagnosticSink, project: &dyn Project) -> Option<LoweredSource> {
    let mut lowering = LoweringContext::new(&TERMS, sink, project);
    let mut steps = Aip15StepReader::new(&mut lowering);
    let source = Aip15Workflow::read(tree.root(), &mut steps);
    let tools = steps.described_tools();
    let Aip15StepReader { skein, undos, broken, .. } = steps;
    let (mut places, calls) = lowering.into_source_map(tree, WORKFLOW, STEP);
    check_undo_schemas(&undos, &places, sink);
    if let Some(source) = &source {
        check_tool_inputs(&source.definition, &tools, &undos, &places, sink);
    }
    undos.into_iter().for_each(|(step, undo)| places.add_undo(step, undo));
    if broken {
        return None;
    }
    let source = source?;
    let claims = collect_claims(&source.definition, &tools);
    let lowered = define_workflow(source.definition).lower_with_terms(&TERMS.words);
    for problem in &lowered.problems {
        sink.push(TERMS.diagnose_problem(problem, &places));
    }
    let mut workflow = lowered.workflow?;
    workflow.budget.clone_from(&source.skein.budget);
    workflow.files_in = source.files_in;
    workflow.files_out = source.files_out;
    if !workflow.files_in.is_empty() || !workflow.files_out.is_empty() {
        files::declare_root(&mut workflow.inputs);
    }
    workflow.extensions.requires = source.requires;
    let routines = source.routines.map(|routines| ("routines".to_owned(), routines));
    workflow.extensions.labels.extend(routines);
    apply_tools(&mut workflow, &tools);
    apply_extensions(&mut workflow, &source.skein, &skein);
    warn_of_undo_fields(&workflow, &places, sink);
    Some(LoweredSource { claims, ..LoweredSource::new(workflow, (places, calls), &TERMS) })
}

/// Checks the output schemas of steps that only undo. No step reads their outputs, so the plan does not check them.
fn check_undo_schemas(undos: &[(StepId, StepId)], places: &SourceMap, sink: &mut DiagnosticSink) {
    for (_, undo) in undos {
        let outputs = places.step_node(undo).and_then(|node| node.get("outputs"));
        let Some(node) = outputs.filter(|node| node.fields().is_some()) else { continue };
        if let Err(error) = Schema::new(node.to_json()).compile() {
            let place = match &error {
                SchemaError::Schema { at, .. } => node.node_at(at),
                SchemaError::Value { .. } => node,
            };
            let message = error.to_string();
            sink.push(Diagnostic::new(Code::BadSchema, node.source(), place.first_line_span(), message));
        }
    }
}

/// Refuses a step without an input that its tool requires. An undo step without inputs is exempt: it receives the
/// outputs of the step that it undoes.
fn check_tool_inputs(
    definition: &WorkflowDefinition,
    tools: &BTreeMap<(CatalogKind, String), Arc<Aip15Tool>>,
    undos: &[(StepId, StepId)],
    places: &SourceMap,
    sink: &mut DiagnosticSink,
) {
    let mut todo: Vec<&[StepHandle]> = vec![&definition.steps];
    while let Some(steps) = todo.pop() {
        for step in steps.iter().map(StepHandle::definition) {
            todo.extend(step.kind.step_lists());
            let is_undo = undos.iter().any(|(_, undo)| undo.as_str() == step.id);
            let Some((CatalogKind::Tool, name)) =
                referenced_tool(step).filter(|_| !(is_undo && step.inputs.is_empty()))
            else {
                continue;
            };
            let Some(tool) = tools.get(&(CatalogKind::Tool, name.to_owned())) else { continue };
            let Some(node) = StepId::new(&step.id).ok().and_then(|id| places.step_node(&id)) else {
                continue;
            };
            let has_default =
                |input: &str| tool.inputs.property(input).is_some_and(|schema| schema.get("default").is_some());
            for input in tool.inputs.required_properties().filter(|input| !step.inputs.contains_key(*input)) {
                if has_default(input) {
                    continue;
                }
                let message = format!("`{}` leaves out `{input}`, which the tool `{name}` requires", step.id);
                let place = node.get("inputs").unwrap_or(node);
                let diagnostic = place.diagnose(Code::MissingField, message);
                sink.push(diagnostic.with_hint(format!("add `{input}` to `inputs`")));
            }
        }
    }
}

/// Warns of fields without effect in a step that only undoes: it has no next step and needs no approval.
fn warn_of_undo_fields(workflow: &Workflow, places: &SourceMap, sink: &mut DiagnosticSink) {
    let (mut steps, mut undos) = (BTreeSet::new(), BTreeSet::new());
    let mut todo: Vec<&StepScope> = vec![&workflow.scope];
    while let Some(scope) = todo.pop() {
        for step in &scope.steps {
            steps.insert(&step.id);
            undos.extend(step.undo.as_ref().map(|undo| &undo.id));
            todo.extend(step.kind.inner_scopes().into_iter().map(|inner| &**inner));
        }
    }
    for node in undos.difference(&steps).filter_map(|undo| places.step_node(undo)) {
        warn_ignored(node, &["next"], "this step only undoes another", sink);
        refuse_approval_of_undo(node, sink);
    }
}

/// Refuses an approval class that asks somebody. An undo runs after a failure, when nobody may be there, so the class
/// would not be honoured.
fn refuse_approval_of_undo(node: YamlNode<'_>, sink: &mut DiagnosticSink) {
    let Some(field) = node.field("approval") else { return };
    if matches!(field.value.raw_text(), Some("auto" | "per-step")) {
        return warn_ignored(node, &["approval"], "this step only undoes another", sink);
    }
    let message = "a step that only undoes another cannot require approval";
    let diagnostic = Diagnostic::new(Code::Misplaced, node.source(), field.key_span, message);
    sink.push(diagnostic.with_hint("remove it; require approval for the step that it undoes"));
}

/// Collects the approval classes of each step that runs a tool: that of the step or else the workflow, that of the
/// tool, and that of the action that it implements.
fn collect_claims(
    definition: &WorkflowDefinition,
    tools: &BTreeMap<(CatalogKind, String), Arc<Aip15Tool>>,
) -> ApprovalClaims {
    let mut found = ApprovalClaims::new();
    let mut todo: Vec<&[StepHandle]> = vec![&definition.steps];
    while let Some(steps) = todo.pop() {
        for step in steps.iter().map(StepHandle::definition) {
            todo.extend(step.kind.step_lists());
            let Some((sort, name)) = referenced_tool(step) else { continue };
            let (class, from) = match &step.approval {
                Some(class) => (class, ClaimOrigin::Step),
                None => (&definition.approval, ClaimOrigin::Workflow),
            };
            let mut claims = vec![ApprovalClaim { class: class.clone(), from }];
            let tool = tools.get(&(sort, name.to_owned()));
            if let Some(tool) = tool {
                let (word, _) = sort.singular_and_plural();
                let from = ClaimOrigin::Named(format!("the {word} `{name}`"));
                let all = std::iter::once(&tool.approval).chain(&tool.others);
                claims.extend(all.map(|class| ApprovalClaim { class: class.clone(), from: from.clone() }));
            }
            let risk = step.risk_level.map(|level| level as u8);
            found.insert(step.id.clone(), StepApprovalClaims { claims, tool: tool.cloned(), risk });
        }
    }
    found
}

/// Applies the declarations of tools to the steps that run them: a person may have to decide about an interrupted
/// attempt.
fn apply_tools(workflow: &mut Workflow, tools: &BTreeMap<(CatalogKind, String), Arc<Aip15Tool>>) {
    workflow.for_each_step_mut(|step| {
        let StepKindSpec::Work(work) = &step.kind else { return };
        let named = match &work.worker {
            WorkerSpec::Tool { tool, .. } => (CatalogKind::Tool, tool.clone()),
            WorkerSpec::Action { action, .. } => (CatalogKind::Action, action.clone()),
            _ => return,
        };
        let Some(tool) = tools.get(&named) else { return };
        if tool.is_unsafe_to_repeat() {
            step.policy.on_interrupted = OnInterrupted::Ask;
        }
    });
}

/// Applies each step's own extension block, merged with the workflow's.
fn apply_extensions(workflow: &mut Workflow, shared: &ExtensionBlock, own: &BTreeMap<StepId, ExtensionBlock>) {
    let of = |id: &StepId| own.get(id).cloned().unwrap_or_default().inherit_from(shared);
    workflow.for_each_step_mut(|step| {
        of(&step.id).apply_to_step(step);
        if let Some(undo) = &mut step.undo {
            apply_extension_to_undo(undo, of(&undo.id));
        }
    });
}

/// Applies an extension block to an undo, which is work without a step.
fn apply_extension_to_undo(undo: &mut UndoSpec, skein: ExtensionBlock) {
    let mut step = Step::new(undo.id.clone(), StepKindSpec::Work(Box::new(undo.work.clone())));
    skein.apply_to_step(&mut step);
    if let StepKindSpec::Work(work) = step.kind {
        undo.work = *work;
    }
}
