//! What every format needs while it lowers: somewhere to say things, the places, and the project around it.

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

/// A format's workflow in the IR, and the way back.
#[derive(Debug)]
pub struct LoweredSource {
    pub workflow: Workflow,
    pub places: SourceMap,
    pub voice: &'static DialectTerms,
    /// Every source that a call names, under the name that the call has.
    pub calls: Vec<Arc<SourceFile>>,
    /// What the project has put in the place of what the source says.
    pub overridden: Vec<OverriddenField>,
    /// What sources say of who is asked before steps.
    pub claims: ApprovalClaims,
}

impl LoweredSource {
    /// A workflow that nothing was put over, and of whose steps nobody says who is asked.
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

/// A value that a project has put in the place of one of a source.
#[derive(Debug, Clone)]
pub struct OverriddenField {
    /// The field, such as `stages.plan.roles.primary.model`.
    pub field: String,
    pub value: Value,
    /// What it was. None: the source does not say.
    pub before: Option<Value>,
    /// Where it stands.
    pub source: Arc<SourceFile>,
    pub span: ExprSpan,
}

/// One lowering.
pub(crate) struct LoweringContext<'a> {
    pub sink: &'a mut DiagnosticSink,
    pub project: &'a dyn Project,
    /// Where steps stand; put into the places at the end.
    steps: Vec<(StepId, ExprSpan, u32)>,
    calls: Vec<Arc<SourceFile>>,
    /// What the step before had.
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

    /// Where everything stands, and the sources that are called.
    pub fn into_source_map(
        self,
        tree: YamlTree,
        workflow: FieldRenames,
        step: FieldRenames,
    ) -> (SourceMap, Vec<Arc<SourceFile>>) {
        (SourceMap::new(tree, self.steps, workflow, step), self.calls)
    }

    /// Makes room for so many steps.
    pub fn reserve_steps(&mut self, steps: usize) {
        self.steps.reserve_exact(steps);
    }

    /// A step that is as the one before it shares what that one has.
    pub fn share_policy(&mut self, step: &mut Step) {
        step.policy.share_if_equal(&mut self.policy);
    }

    /// Says where a step stands that is a field of a mapping.
    pub fn add_step_field(&mut self, id: &StepId, field: YamlField<'_>) {
        self.steps.push((id.clone(), field.key_span, field.value.number()));
    }

    /// Says where a step stands that is an item of a list; its id is the place to show.
    pub fn add_step_item(&mut self, id: &StepId, node: YamlNode<'_>, key: &str) {
        let head = node.get(key).unwrap_or(node).first_line_span();
        self.steps.push((id.clone(), head, node.number()));
    }

    /// The place to show of a step that has been said.
    pub fn step_span(&self, id: &StepId) -> Option<ExprSpan> {
        self.steps.iter().find(|(of, ..)| of == id).map(|(_, head, _)| *head)
    }

    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
    }

    /// Warns of fields that are there and change nothing.
    pub fn warn_ignored(&mut self, node: YamlNode<'_>, names: &[&str], why: &str) {
        warn_ignored(node, names, why, self.sink);
    }

    /// An expression that was read, or what is wrong with it, at its place.
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

    /// The name under which a called workflow is planned. A workflow that is not there is reported here.
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

/// Warns of fields that are there and change nothing.
pub(crate) fn warn_ignored(node: YamlNode<'_>, names: &[&str], why: &str, sink: &mut DiagnosticSink) {
    for field in names.iter().filter_map(|name| node.field(name)) {
        let message = format!("`{}` changes nothing: {why}", field.key);
        sink.push(Diagnostic::new(Code::IgnoredField, node.source(), field.key_span, message));
    }
}
