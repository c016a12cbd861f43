//! Check for steps that hold secrets and receive text that neither the author nor the person who starts the run wrote.
//!
//! Owns the definition of such text: outputs of agents, tools and actions, signal payloads, and the input of a run that
//! a webhook or an event can start. Not included: parameters from a person, output of the author's commands and
//! scripts, decisions of approvers, and values that are declared to be no free text.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    definition::ScopeIx,
    problem::{FieldPath, FieldRef, FieldRest, PlanField, PlanProblem, ProblemCode, ProblemCollector, ProblemLocation},
    references,
    survey::{ExprReach, ExprSite, ExprSpot, PlanSurvey, step_sites},
};
use crate::{
    expr::{Expr, ExprRead, ReferenceRoot, StepProperty},
    ids::StepId,
    ir::{Schema, Step, StepKindSpec, WorkSpec, WorkerSpec, WorkflowTrigger},
    terms::WorkflowTerms,
};

/// Maximum number of places that are shown for one step.
const SHOWN: usize = 5;

pub(super) fn check_untrusted_text(survey: &PlanSurvey<'_>, problems: &mut ProblemCollector) {
    let mut holders = survey.steps().flat_map(|(scope, i, step)| find_secret_holders(scope, i, step)).peekable();
    if holders.peek().is_none() {
        return;
    }
    let mut origins = OriginTracer { survey, callers: find_callers(survey), known: BTreeMap::new() };
    for holder in holders {
        let terms = survey.terms(holder.scope);
        let found = origins.find_outside_text(&holder);
        if found.is_empty() {
            continue;
        }
        let undo = if holder.undo { PlanField::Undo.into() } else { FieldPath::default() };
        let secrets = undo.join([PlanField::Isolation, PlanField::Secrets]);
        let message = format!("`{}` has secrets and receives untrusted text", holder.id);
        let at = survey.step_location(holder.scope, holder.i, secrets);
        let hint = "check it with a script first, declare it as a number, a boolean, an enum or a \
                    pattern, or remove the secrets";
        let problem = PlanProblem::new(ProblemCode::UntrustedText, at, message).with_hint(hint);
        problems.push(
            found
                .into_iter()
                .take(SHOWN)
                .fold(problem, |problem, (at, origin)| problem.with_related(at, origin.describe_origin(terms))),
        );
    }
}

/// Work that receives secrets.
struct SecretHolder<'a> {
    scope: ScopeIx,
    i: u32,
    step: &'a Step,
    /// Its own id, which an undo can have.
    id: &'a StepId,
    work: &'a WorkSpec,
    /// True if it is the undo of the step.
    undo: bool,
}

impl SecretHolder<'_> {
    /// True if the read is of the step that this work undoes: it could not undo the step without.
    fn reads_undone_step(&self, read: &ExprRead<'_>) -> bool {
        self.undo && matches!(read.root, ReferenceRoot::Step { id, .. } if **id == *self.step.id.as_str())
    }
}

/// Returns the work of a step, and its undo if that has an id of its own: otherwise the undo only receives the inputs
/// and outputs of the step.
fn find_secret_holders(scope: ScopeIx, i: u32, step: &Step) -> Vec<SecretHolder<'_>> {
    let own = match &step.kind {
        StepKindSpec::Work(work) => Some((&step.id, &**work, false)),
        _ => None,
    };
    let undo = step.undo.as_ref().filter(|undo| undo.id != step.id);
    let undo = undo.map(|undo| (&undo.id, &undo.work, true));
    let all = own.into_iter().chain(undo).filter(|(_, work, _)| !work.isolation.secrets.is_empty());
    all.map(|(id, work, undo)| SecretHolder { scope, i, step, id, work, undo }).collect()
}

/// Returns every call of each workflow, by the number of its root.
fn find_callers(survey: &PlanSurvey<'_>) -> BTreeMap<ScopeIx, Vec<(ScopeIx, u32)>> {
    let mut callers: BTreeMap<ScopeIx, Vec<(ScopeIx, u32)>> = BTreeMap::new();
    for (scope, i, step) in survey.steps() {
        if let (StepKindSpec::Call(_), Some(root)) =
            (&step.kind, survey.definition.scope(scope).inner[i as usize].first())
        {
            callers.entry(*root).or_default().push((scope, i));
        }
    }
    callers
}

/// The origin of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TextOrigin {
    Agent(String),
    Tool(String),
    Signal(String),
    Trigger,
}

impl TextOrigin {
    fn describe_origin(&self, terms: &WorkflowTerms) -> String {
        match self {
            TextOrigin::Agent(step) => format!("an agent writes this in `{step}`"),
            TextOrigin::Tool(step) => format!("the tool of `{step}` may fetch this from anywhere"),
            TextOrigin::Signal(step) => {
                format!("the sender of the {} that `{step}` waits for writes this", terms.signal)
            }
            TextOrigin::Trigger => "the sender of the trigger writes this".to_owned(),
        }
    }
}

/// The subject of a query for an origin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum OriginQuery {
    Step(ScopeIx, u32),
    /// One parameter of a workflow, or all.
    Input(ScopeIx, Option<String>),
}

struct OriginTracer<'a> {
    survey: &'a PlanSurvey<'a>,
    callers: BTreeMap<ScopeIx, Vec<(ScopeIx, u32)>>,
    /// Includes queries in progress, so that a workflow that calls itself terminates.
    known: BTreeMap<OriginQuery, Option<TextOrigin>>,
}

impl<'a> OriginTracer<'a> {
    /// Returns all text that a step receives from outside, with its locations.
    fn find_outside_text(&mut self, holder: &SecretHolder<'_>) -> Vec<(ProblemLocation, TextOrigin)> {
        let mut found = Vec::new();
        let sites = step_sites(holder.scope, holder.i, holder.step);
        for site in sites.iter().filter(|site| is_given_to(site, holder)) {
            for read in site.expr.reads().iter().filter(|read| !holder.reads_undone_step(read)) {
                if let Some(origin) = self.trace_read(site.spot, read) {
                    found.push((references::site_location(self.survey, site, &read.at, read.span), origin));
                }
            }
        }
        found.extend(self.trace_artifacts(holder));
        found
    }

    fn trace_artifacts(&mut self, holder: &SecretHolder<'_>) -> Vec<(ProblemLocation, TextOrigin)> {
        let SecretHolder { scope, i, work, undo, .. } = *holder;
        let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Before };
        let mut found = Vec::new();
        for (n, taken) in work.takes.iter().enumerate() {
            let Ok(seen) = self.survey.find_visible_step(spot, taken.from.as_str()) else { continue };
            if let Some(origin) = self.trace_step(seen.scope, seen.step) {
                let field = FieldRef { undo, ..FieldRef::new(PlanField::Takes, FieldRest::Item(n)) };
                found.push((self.survey.step_location(scope, i, field), origin));
            }
        }
        found
    }

    fn trace_read(&mut self, spot: ExprSpot, read: &ExprRead<'_>) -> Option<TextOrigin> {
        let definition = self.survey.definition;
        match read.root {
            ReferenceRoot::Input => {
                let entry = definition.workflow_containing(spot.scope);
                if is_never_text(&entry.workflow.inputs, read.path) {
                    return None;
                }
                self.answer_query(OriginQuery::Input(entry.root, read.path.first().cloned()))
            }
            ReferenceRoot::Step { part: StepProperty::Status, .. } => None,
            ReferenceRoot::Step { id, part } => {
                let seen = self.survey.find_visible_step(spot, id).ok()?;
                let schema = references::output_schema(definition, definition.scope(seen.scope), seen.step);
                if *part == StepProperty::Output && is_never_text(schema, read.path) {
                    return None;
                }
                self.trace_step(seen.scope, seen.step)
            }
            ReferenceRoot::Item => {
                let (scope, i, over) = self.find_surrounding_list(spot.scope)?;
                self.trace_expr(ExprSpot { scope, step: Some(i), reach: ExprReach::Before }, over)
            }
            ReferenceRoot::Index
            | ReferenceRoot::Context
            | ReferenceRoot::Env
            | ReferenceRoot::Run
            | ReferenceRoot::Workflow => None,
        }
    }

    /// Returns the list of the surrounding each.
    fn find_surrounding_list(&self, scope: ScopeIx) -> Option<(ScopeIx, u32, &'a Expr)> {
        let mut at = scope;
        loop {
            let (parent, holder, _) = self.survey.definition.scope(at).parent?;
            if let StepKindSpec::Each(each) = &self.survey.definition.scope(parent).step(holder).kind {
                return Some((parent, holder, &each.over));
            }
            at = parent;
        }
    }

    fn trace_expr(&mut self, spot: ExprSpot, expr: &Expr) -> Option<TextOrigin> {
        expr.reads().iter().find_map(|read| self.trace_read(spot, read))
    }

    fn trace_step(&mut self, scope: ScopeIx, i: u32) -> Option<TextOrigin> {
        self.answer_query(OriginQuery::Step(scope, i))
    }

    fn answer_query(&mut self, query: OriginQuery) -> Option<TextOrigin> {
        if let Some(known) = self.known.get(&query) {
            return known.clone();
        }
        self.known.insert(query.clone(), None);
        let origin = match &query {
            OriginQuery::Step(scope, i) => self.find_step_origin(*scope, *i),
            OriginQuery::Input(root, name) => self.find_input_origin(*root, name.as_deref()),
        };
        self.known.insert(query, origin.clone());
        origin
    }

    fn find_step_origin(&mut self, scope: ScopeIx, i: u32) -> Option<TextOrigin> {
        let entry = self.survey.definition.scope(scope);
        let step = entry.step(i);
        let id = step.id.to_string();
        match &step.kind {
            StepKindSpec::Work(work) => match &work.worker {
                WorkerSpec::Agent { .. } => Some(TextOrigin::Agent(id)),
                // The driver is not known here; without a network, none can fetch.
                WorkerSpec::Tool { .. } | WorkerSpec::Action { .. } => {
                    (!work.isolation.no_network).then_some(TextOrigin::Tool(id))
                }
                WorkerSpec::Command { .. } | WorkerSpec::Script { .. } => None,
            },
            StepKindSpec::Wait(_) => Some(TextOrigin::Signal(id)),
            StepKindSpec::Gate(_) | StepKindSpec::Branch(_) => None,
            StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) | StepKindSpec::Call(_) => {
                entry.inner[i as usize].iter().find_map(|inner| self.trace_scope(*inner))
            }
        }
    }

    /// A scope returns its result, or the outputs of some of its steps.
    fn trace_scope(&mut self, scope: ScopeIx) -> Option<TextOrigin> {
        let entry = self.survey.definition.scope(scope);
        match &entry.scope.result {
            Some(result) => self.trace_expr(ExprSpot { scope, step: None, reach: ExprReach::End }, result),
            None => (0..entry.len()).find_map(|i| self.trace_step(scope, i)),
        }
    }

    /// A run's own parameters come from the caller that starts it; a called workflow's, from the steps that call it.
    fn find_input_origin(&mut self, root: ScopeIx, name: Option<&str>) -> Option<TextOrigin> {
        let definition = self.survey.definition;
        let entry = definition.workflow_containing(root);
        let from_outside = |trigger: &WorkflowTrigger| {
            matches!(trigger, WorkflowTrigger::Webhook { .. } | WorkflowTrigger::Event { .. })
        };
        if entry.name.is_none() && entry.workflow.triggers.iter().any(from_outside) {
            return Some(TextOrigin::Trigger);
        }
        let callers = self.callers.get(&root).cloned().unwrap_or_default();
        callers.into_iter().find_map(|(scope, i)| {
            let spot = ExprSpot { scope, step: Some(i), reach: ExprReach::Before };
            let inputs = definition.scope(scope).step(i).inputs.iter();
            let mut given = inputs.filter(|input| name.is_none_or(|name| *input.name == *name));
            given.find_map(|input| self.trace_expr(spot, &input.value))
        })
    }
}

/// True if an expression provides data to this work. A condition does not.
fn is_given_to(site: &ExprSite<'_>, holder: &SecretHolder<'_>) -> bool {
    !site.field.is_field(PlanField::When) && site.field.undo == holder.undo
}

/// True if the value at a path is declared as a type that cannot contain free text.
fn is_never_text(schema: &Schema, path: &[String]) -> bool {
    let mut at = schema.document();
    for name in path {
        at = at.and_then(|schema| schema.get("properties")?.get(name));
    }
    let Some(schema) = at.and_then(Value::as_object) else { return false };
    let harmless = |word: &Value| matches!(word.as_str(), Some("integer" | "number" | "boolean" | "null"));
    let typed = match schema.get("type") {
        Some(Value::Array(words)) => !words.is_empty() && words.iter().all(harmless),
        Some(word) => harmless(word),
        None => false,
    };
    let pattern = schema.get("pattern").and_then(Value::as_str);
    let shaped = pattern.is_some_and(|pattern| pattern.starts_with('^') && pattern.ends_with('$'));
    typed || shaped || schema.contains_key("enum") || schema.contains_key("const")
}
