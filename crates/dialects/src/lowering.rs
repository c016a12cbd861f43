//! Shared state of all formats while they lower: the diagnostics, the places of steps, and the project.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    expr::{Expr, ExprParseError, ExprSpan},
    ids::StepId,
    ir::{SharedStepPolicy, Step, Workflow},
    suggest::find_closest_name,
};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, DiagnosticSink},
    dialect_terms::DialectTerms,
    fields::FieldValue,
    policy_lowering::ApprovalClaims,
    project::{Project, WorkflowReference},
    source::SourceFile,
    source_map::{FieldRenames, SourceMap},
    yaml::{YamlField, YamlNode, YamlTree},
};

/// A format's workflow in the IR, and the map back to the source.
#[derive(Debug)]
pub struct LoweredSource {
    pub workflow: Workflow,
    pub places: SourceMap,
    pub voice: &'static DialectTerms,
    /// The source of every call, under the name that the call uses.
    pub calls: Vec<Arc<SourceFile>>,
    /// The values that the project's overrides replace.
    pub overridden: Vec<OverriddenField>,
    /// The approval classes that sources set for steps.
    pub claims: ApprovalClaims,
}

impl LoweredSource {
    /// A workflow without overrides and without approval classes.
    pub fn new(
        workflow: Workflow,
        (places, calls): (SourceMap, Vec<Arc<SourceFile>>),
        voice: &'static DialectTerms,
    ) -> LoweredSource {
        LoweredSource {
            workflow,
            places,
            voice,
            calls,
            overridden: Vec::new(),
            claims: ApprovalClaims::new(),
        }
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
    voice: &'static DialectTerms,
}

impl<'a> LoweringContext<'a> {
    pub fn new(
        voice: &'static DialectTerms,
        sink: &'a mut DiagnosticSink,
        project: &'a dyn Project,
    ) -> LoweringContext<'a> {
        LoweringContext {
            sink,
            project,
            steps: Vec::new(),
            calls: Vec::new(),
            policy: SharedStepPolicy::default(),
            voice,
        }
    }

    /// Returns the map back to the source, and the sources that are called.
    pub fn into_source_map(
        self,
        tree: YamlTree,
        workflow: FieldRenames,
        step: FieldRenames,
    ) -> (SourceMap, Vec<Arc<SourceFile>>) {
        (SourceMap::new(tree, self.steps, workflow, step), self.calls)
    }

    /// Reserves memory for steps.
    pub fn reserve_steps(&mut self, steps: usize) {
        self.steps.reserve_exact(steps);
    }

    /// Shares the policy of the previous step if it is equal.
    pub fn share_policy(&mut self, step: &mut Step) {
        step.policy.share_if_equal(&mut self.policy);
    }

    /// Records the place of a step that is a field of a mapping.
    pub fn add_step_field(&mut self, id: &StepId, field: YamlField<'_>) {
        self.steps.push((id.clone(), field.key_span, field.value.number()));
    }

    /// Records the place of a step that is an item of a list. Diagnostics point at its id.
    pub fn add_step_item(&mut self, id: &StepId, node: YamlNode<'_>, key: &str) {
        let head = node.get(key).unwrap_or(node).first_line_span();
        self.steps.push((id.clone(), head, node.number()));
    }

    /// Returns the place that diagnostics about a recorded step point at.
    pub fn step_span(&self, id: &StepId) -> Option<ExprSpan> {
        self.steps.iter().find(|(of, ..)| of == id).map(|(_, head, _)| *head)
    }

    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
    }

    /// Warns of fields that have no effect.
    pub fn warn_ignored(&mut self, node: YamlNode<'_>, names: &[&str], why: &str) {
        warn_ignored(node, names, why, self.sink);
    }

    /// Returns a parsed expression, or reports its error at its place.
    pub fn accept_expression(
        &mut self,
        node: YamlNode<'_>,
        read: Result<Expr, ExprParseError>,
    ) -> Option<Expr> {
        let error = match read {
            Ok(expr) => return Some(expr),
            Err(error) => error,
        };
        let node = node.node_at(&error.at);
        let span =
            if node.raw_text().is_some() { node.locate_part(error.span) } else { node.first_line_span() };
        let diagnostic = Diagnostic::new(Code::BadExpression, node.source(), span, error.to_string());
        let hint = error.hint().map(|hint| self.voice.translate_terms(hint));
        self.sink.push(diagnostic.with_optional_hint(hint));
        None
    }

    /// Resolves the name under which a called workflow is planned. Reports a workflow that does not exist.
    pub fn resolve_called_workflow(
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
                let diagnostic =
                    Diagnostic::new(Code::UnknownWorkflow, node.source(), node.first_line_span(), message);
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
