//! Shared state of all formats while they lower: the diagnostics, the places of steps, the project, and the approval
//! classes that sources set for steps.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use skein_core::{
    builder::ApprovalClass,
    expr::{Expr, ExprParseError, ExprSpan},
    ids::StepId,
    ir::{OnInterrupted, SharedStepPolicy, Step, StepKindSpec, WorkerCapability, WorkerSpec, Workflow},
    suggest::find_closest_name,
};

use crate::{
    catalog::{Aip15Tool, Project, WorkflowReference},
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile},
    fields::FieldValue,
    lowering::DialectTerms,
    source::{
        FieldRenames, SourceMap,
        yaml::{YamlField, YamlNode, YamlTree},
    },
};

/// A format's workflow in the IR, and the map back to the source.
#[derive(Debug)]
pub(crate) struct LoweredSource {
    pub workflow: Workflow,
    pub places: SourceMap,
    pub terms: &'static DialectTerms,
    /// The source of every call, under the name that the call uses.
    pub calls: Vec<Arc<SourceFile>>,
    /// The values that the project's overrides replace.
    pub overridden: Vec<OverriddenField>,
    /// The approval classes that sources set for steps.
    pub claims: ApprovalClaims,
}

impl LoweredSource {
    /// A workflow without overrides and without approval classes.
    pub(crate) fn new(
        workflow: Workflow,
        (places, calls): (SourceMap, Vec<Arc<SourceFile>>),
        terms: &'static DialectTerms,
    ) -> LoweredSource {
        LoweredSource { workflow, places, terms, calls, overridden: Vec::new(), claims: ApprovalClaims::new() }
    }
}

/// A value of a source that an override of the project replaces.
#[derive(Debug, Clone)]
pub struct OverriddenField {
    /// The field, such as `stages.plan.roles.primary.model`.
    pub field: String,
    pub value: Value,
    /// The previous value. None if the source has none.
    pub before: Option<Value>,
    /// The file of the override.
    pub source: Arc<SourceFile>,
    pub span: ExprSpan,
}

/// The state of one lowering.
pub(crate) struct LoweringContext<'a> {
    pub sink: &'a mut DiagnosticSink,
    pub project: &'a dyn Project,
    /// The places of steps; moved to the source map at the end.
    steps: Vec<(StepId, ExprSpan, u32)>,
    calls: Vec<Arc<SourceFile>>,
    /// The policy of the previous step.
    policy: SharedStepPolicy,
    terms: &'static DialectTerms,
}

impl<'a> LoweringContext<'a> {
    pub(crate) fn new(
        terms: &'static DialectTerms,
        sink: &'a mut DiagnosticSink,
        project: &'a dyn Project,
    ) -> LoweringContext<'a> {
        LoweringContext {
            sink,
            project,
            steps: Vec::new(),
            calls: Vec::new(),
            policy: SharedStepPolicy::default(),
            terms,
        }
    }

    /// Returns the map back to the source, and the sources that are called.
    pub(crate) fn into_source_map(
        self,
        tree: YamlTree,
        workflow: FieldRenames,
        step: FieldRenames,
    ) -> (SourceMap, Vec<Arc<SourceFile>>) {
        (SourceMap::new(tree, self.steps, workflow, step), self.calls)
    }

    /// Reserves memory for steps.
    pub(crate) fn reserve_steps(&mut self, steps: usize) {
        self.steps.reserve_exact(steps);
    }

    /// Shares the policy of the previous step if it is equal.
    pub(crate) fn share_policy(&mut self, step: &mut Step) {
        step.policy.share_if_equal(&mut self.policy);
    }

    /// Records the place of a step that is a field of a mapping.
    pub(crate) fn add_step_field(&mut self, id: &StepId, field: YamlField<'_>) {
        self.steps.push((id.clone(), field.key_span, field.value.number()));
    }

    /// Records the place of a step that is an item of a list. Diagnostics point at its id.
    pub(crate) fn add_step_item(&mut self, id: &StepId, node: YamlNode<'_>, key: &str) {
        let head = node.get(key).unwrap_or(node).first_line_span();
        self.steps.push((id.clone(), head, node.number()));
    }

    /// Returns the place that diagnostics about a recorded step point at.
    pub(crate) fn step_span(&self, id: &StepId) -> Option<ExprSpan> {
        self.steps.iter().find(|(of, ..)| of == id).map(|(_, head, _)| *head)
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
    }

    /// Warns of fields that have no effect.
    pub(crate) fn warn_ignored(&mut self, node: YamlNode<'_>, names: &[&str], why: &str) {
        warn_ignored(node, names, why, self.sink);
    }

    /// Returns a parsed expression, or reports its error at its place.
    pub(crate) fn accept_expression(&mut self, node: YamlNode<'_>, read: Result<Expr, ExprParseError>) -> Option<Expr> {
        let error = match read {
            Ok(expr) => return Some(expr),
            Err(error) => error,
        };
        let node = node.node_at(&error.at);
        let span = if node.raw_text().is_some() { node.locate_part(error.span) } else { node.first_line_span() };
        let diagnostic = Diagnostic::new(Code::BadExpression, node.source(), span, error.to_string());
        let hint = error.hint(&self.terms.words);
        self.sink.push(diagnostic.with_optional_hint(hint));
        None
    }

    /// Resolves the name under which a called workflow is planned. Reports a workflow that does not exist.
    pub(crate) fn resolve_called_workflow(
        &mut self,
        given: FieldValue<'_>,
        reference: WorkflowReference<'_>,
    ) -> Option<String> {
        match self.project.resolve_workflow(&self.sink.source.clone(), reference) {
            Ok(source) => {
                let name = source.key.clone();
                self.calls.push(source);
                Some(name)
            }
            Err(missing) => {
                let (WorkflowReference::Path(named) | WorkflowReference::Id(named)) = reference;
                let message = format!("there is no workflow `{named}`: {}", missing.why);
                let near = find_closest_name(named, missing.known.iter().map(String::as_str));
                let hint = near.map(|near| format!("did you mean `{near}`?"));
                let node = given.node;
                let diagnostic = node.diagnose(Code::UnknownWorkflow, message);
                self.sink.push(diagnostic.with_optional_hint(hint));
                None
            }
        }
    }
}

/// Warns of fields that have no effect.
pub(crate) fn warn_ignored(node: YamlNode<'_>, names: &[&str], why: &str, sink: &mut DiagnosticSink) {
    for field in names.iter().filter_map(|name| node.field(name)) {
        let message = format!("`{}` changes nothing: {why}", field.key);
        sink.push(Diagnostic::new(Code::IgnoredField, node.source(), field.key_span, message));
    }
}

/// The approval classes of steps, by name.
pub(crate) type ApprovalClaims = BTreeMap<String, StepApprovalClaims>;

/// The approval classes of one step.
#[derive(Debug, Clone)]
pub(crate) struct StepApprovalClaims {
    pub claims: Vec<ApprovalClaim>,
    /// The tool of the step, if it has a description.
    pub tool: Option<Arc<Aip15Tool>>,
    pub risk: Option<u8>,
}

/// A class of approval and its origin.
#[derive(Debug, Clone)]
pub(crate) struct ApprovalClaim {
    pub class: ApprovalClass,
    pub from: ClaimOrigin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimOrigin {
    Step,
    Workflow,
    /// A named origin, such as a tool.
    Named(String),
    Host,
}

impl ClaimOrigin {
    pub(crate) fn describe(&self) -> &str {
        match self {
            ClaimOrigin::Step => "the step",
            ClaimOrigin::Workflow => "the workflow",
            ClaimOrigin::Named(name) => name,
            ClaimOrigin::Host => "skein.toml",
        }
    }
}

/// Returns the default reaction to an attempt that was interrupted by the end of the host: it is run again, except that
/// an agent that may edit resumes its session, also where its failures are retried.
pub(crate) fn default_on_interrupted(kind: &StepKindSpec) -> OnInterrupted {
    let StepKindSpec::Work(work) = kind else { return OnInterrupted::Rerun };
    match &work.worker {
        WorkerSpec::Agent { capabilities, .. } if can_edit(capabilities) => OnInterrupted::Resume,
        _ => OnInterrupted::Rerun,
    }
}

/// True if the capabilities include more than reading. An agent without any reads and edits.
fn can_edit(capabilities: &[WorkerCapability]) -> bool {
    capabilities.is_empty() || capabilities.iter().any(|capability| *capability != WorkerCapability::Read)
}

/// Converts a text to an id: characters that a name cannot have become dashes.
pub(crate) fn sanitize_id(text: &str) -> String {
    let dash = |c: char| if c.is_control() || matches!(c, '/' | '\\') { '-' } else { c };
    let mapped: String = text.trim().chars().map(dash).collect();
    let mut id = mapped.trim_start_matches('-').to_owned();
    while id.len() > skein_core::limits::ID_BYTES {
        id.pop();
    }
    match id.trim() {
        "" | "." | ".." => "workflow".to_owned(),
        id => id.to_owned(),
    }
}
