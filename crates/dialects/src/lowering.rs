//! What every format needs while it lowers: somewhere to say things, the places, and the project around it.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    closest::closest,
    expr::{Expr, ParseError, Span},
    ids::StepId,
    ir::{Policy, Step, Workflow},
};

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    govern::Claims,
    places::{Places, Renames},
    problem::Voice,
    project::{Project, Reference},
    read::Given,
    source::Source,
    yaml::{Field, Node, Tree},
};

/// A format's workflow in the IR, and the way back.
#[derive(Debug)]
pub struct Lowered {
    pub workflow: Workflow,
    pub places: Places,
    pub voice: &'static Voice,
    /// Every source that a call names, under the name that the call has.
    pub calls: Vec<Arc<Source>>,
    /// What the project has put in the place of what the source says.
    pub overridden: Vec<Overridden>,
    /// What sources say of who is asked before steps.
    pub claims: Claims,
}

impl Lowered {
    /// A workflow that nothing was put over, and of whose steps nobody says who is asked.
    pub fn new(
        workflow: Workflow,
        (places, calls): (Places, Vec<Arc<Source>>),
        voice: &'static Voice,
    ) -> Lowered {
        Lowered { workflow, places, voice, calls, overridden: Vec::new(), claims: Claims::new() }
    }
}

/// A value that a project has put in the place of one of a source.
#[derive(Debug, Clone)]
pub struct Overridden {
    /// The field, such as `stages.plan.roles.primary.model`.
    pub field: String,
    pub value: Value,
    /// What it was. None: the source does not say.
    pub before: Option<Value>,
    /// Where it stands.
    pub source: Arc<Source>,
    pub span: Span,
}

/// One lowering.
pub(crate) struct Lowering<'a> {
    pub sink: &'a mut Sink,
    pub project: &'a dyn Project,
    /// Where steps stand; put into the places at the end.
    steps: Vec<(StepId, Span, u32)>,
    calls: Vec<Arc<Source>>,
    /// What the step before had.
    policy: Policy,
    voice: &'static Voice,
}

impl<'a> Lowering<'a> {
    pub fn new(voice: &'static Voice, sink: &'a mut Sink, project: &'a dyn Project) -> Lowering<'a> {
        Lowering { sink, project, steps: Vec::new(), calls: Vec::new(), policy: Policy::default(), voice }
    }

    /// Where everything stands, and the sources that are called.
    pub fn places(self, tree: Tree, workflow: Renames, step: Renames) -> (Places, Vec<Arc<Source>>) {
        (Places::new(tree, self.steps, workflow, step), self.calls)
    }

    /// Makes room for so many steps.
    pub fn reserve(&mut self, steps: usize) {
        self.steps.reserve_exact(steps);
    }

    /// A step that is as the one before it shares what that one has.
    pub fn share(&mut self, step: &mut Step) {
        step.policy.share(&mut self.policy);
    }

    /// Says where a step stands that is a field of a mapping.
    pub fn step_field(&mut self, id: &StepId, field: Field<'_>) {
        self.steps.push((id.clone(), field.key_span, field.value.number()));
    }

    /// Says where a step stands that is an item of a list; its id is the place to show.
    pub fn step_item(&mut self, id: &StepId, node: Node<'_>, key: &str) {
        let head = node.get(key).unwrap_or(node).mark();
        self.steps.push((id.clone(), head, node.number()));
    }

    /// The place to show of a step that has been said.
    pub fn head(&self, id: &StepId) -> Option<Span> {
        self.steps.iter().find(|(of, ..)| of == id).map(|(_, head, _)| *head)
    }

    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
    }

    /// Warns of fields that are there and change nothing.
    pub fn warn_ignored(&mut self, node: Node<'_>, names: &[&str], why: &str) {
        warn_ignored(node, names, why, self.sink);
    }

    /// An expression that was read, or what is wrong with it, at its place.
    pub fn expression(&mut self, node: Node<'_>, read: Result<Expr, ParseError>) -> Option<Expr> {
        let error = match read {
            Ok(expr) => return Some(expr),
            Err(error) => error,
        };
        let node = node.at(&error.at);
        let span = if node.raw().is_some() { node.within(error.span) } else { node.mark() };
        let diagnostic = Diagnostic::new(Code::BadExpression, node.source(), span, error.to_string());
        let hint = error.hint().map(|hint| self.voice.in_words(hint));
        self.sink.push(diagnostic.maybe_hint(hint));
        None
    }

    /// The name under which a called workflow is planned. A workflow that is not there is reported here.
    pub fn call(&mut self, given: Given<'_>, reference: Reference<'_>) -> Option<String> {
        match self.project.workflow(&self.sink.source.clone(), reference) {
            Ok(source) => {
                let name = source.key.clone();
                self.calls.push(source);
                Some(name)
            }
            Err(missing) => {
                let (Reference::Path(named) | Reference::Id(named)) = reference;
                let message = format!("there is no workflow `{named}`: {}", missing.why);
                let near = closest(named, missing.known.iter().map(String::as_str));
                let hint = near.map(|near| format!("did you mean `{near}`?"));
                let node = given.node;
                let diagnostic = Diagnostic::new(Code::UnknownWorkflow, node.source(), node.mark(), message);
                self.sink.push(diagnostic.maybe_hint(hint));
                None
            }
        }
    }
}

/// Warns of fields that are there and change nothing.
pub(crate) fn warn_ignored(node: Node<'_>, names: &[&str], why: &str, sink: &mut Sink) {
    for field in names.iter().filter_map(|name| node.field(name)) {
        let message = format!("`{}` changes nothing: {why}", field.key);
        sink.push(Diagnostic::new(Code::IgnoredField, node.source(), field.key_span, message));
    }
}
