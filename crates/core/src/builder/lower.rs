//! From definitions to the IR: the workflow, its lists of steps, and what every step has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value};

use super::{
    ApprovalClass, StepDefinition, StepHandle, StepKind, WorkflowDefinition, aip15,
    ask::ask_first,
    lower_kind,
    undo::{Undos, detours, targeted},
};
use crate::{
    expr::{self, Expr, ParseError, Span},
    ids::{IdError, StepId, WorkflowId},
    ir::{
        ApprovalHold, Binding, Kind, Origin, Schema, Scope, Shape, Step, StepPolicy, Target, Undo, Workflow,
    },
    limits,
    plan::{At, Problem, ProblemCode},
    time::Millis,
};

/// The workflow, or none if a name cannot be one. What is wrong is added to `problems`.
pub(super) fn lower(definition: &WorkflowDefinition, problems: &mut Vec<Problem>) -> Option<Workflow> {
    let id = WorkflowId::new(&definition.id);
    if !aip15::is_id(&definition.id) {
        problems.push(bad_name(At::field("id"), &definition.id));
    }
    let undos = Undos::of(&definition.steps);
    undos.check(problems);
    let mut lower = Lower { undos, definition, problems, broken: id.is_err() };
    let scope = lower.root();
    if lower.broken {
        return None;
    }
    let workflow = Workflow {
        name: definition.name.clone(),
        version: definition.version.clone(),
        description: Some(definition.description.clone()).filter(|text| !text.is_empty()),
        origin: Origin { dialect: aip15::DIALECT.to_owned() },
        inputs: schema(&definition.input_schema),
        words: aip15::words(),
        triggers: definition.triggers.clone(),
        labels: labels(definition),
        ..Workflow::new(id.ok()?, scope)
    };
    Some(workflow)
}

/// A schema that accepts everything is none.
fn schema(document: &Value) -> Schema {
    match document {
        Value::Null | Value::Bool(true) => Schema::default(),
        document => Schema::new(document.clone()),
    }
}

fn labels(definition: &WorkflowDefinition) -> BTreeMap<String, Value> {
    let mut labels = BTreeMap::from([
        ("approval".to_owned(), Value::from(definition.approval.word())),
        ("cost_class".to_owned(), Value::from(definition.cost_class.word())),
    ]);
    if let Some(level) = definition.risk_level {
        labels.insert("risk_level".to_owned(), Value::from(level as u8));
    }
    if !definition.tags.is_empty() {
        labels.insert("tags".to_owned(), Value::from(definition.tags.clone()));
    }
    if !definition.metadata.is_empty() {
        labels.insert("metadata".to_owned(), Value::from(definition.metadata.clone()));
    }
    labels
}

fn bad_name(at: At, name: &str) -> Problem {
    let meant = name.trim().replace(['_', ' ', '.', '/'], "-").to_ascii_lowercase();
    let hint = match aip15::is_id(&meant) {
        true => format!("{}; `{meant}` would do", aip15::ID_FORM),
        false => aip15::ID_FORM.to_owned(),
    };
    Problem::new(ProblemCode::BadName, at, format!("`{name}` cannot be an id")).hint(hint)
}

/// The place of a field of a step.
pub(super) fn at(step: &StepDefinition, field: impl Into<String>) -> At {
    At { step: StepId::new(&step.id).ok(), ..At::field(field) }
}

pub(super) struct Lower<'a> {
    undos: Undos<'a>,
    definition: &'a WorkflowDefinition,
    pub problems: &'a mut Vec<Problem>,
    /// Something could not be made at all, so that there is nothing to check.
    broken: bool,
}

impl<'a> Lower<'a> {
    fn root(&mut self) -> Scope {
        let definition = self.definition;
        let mut scope = self.list(&definition.steps, definition.start.as_deref(), 0);
        scope.timeout = Some(definition.timeout_ms.map_or(aip15::WORKFLOW_TIMEOUT, Millis));
        scope.max_steps = Some(definition.max_steps.unwrap_or(aip15::MAX_STEPS));
        scope.retry = definition.retry.as_ref().map(|retry| retry.of_run());
        scope.outputs = schema(&definition.output_schema);
        scope.result = definition.result.as_ref().and_then(|value| self.value(At::field("result"), value));
        scope
    }

    fn allows_cycles(&self) -> bool {
        let skein = self.definition.metadata.get("skein");
        skein.and_then(|skein| skein.get("allow_cycles")) == Some(&Value::Bool(true))
    }

    /// One list of steps as a scope. Recursion is bounded by the limit on nesting.
    pub fn list(&mut self, steps: &'a [StepHandle], start: Option<&'a str>, depth: usize) -> Scope {
        let targeted = targeted(steps, start);
        let is_forward =
            |step: &StepDefinition| !self.undos.is_undo(&step.id) || targeted.contains(&*step.id);
        let kept: Vec<&StepDefinition> =
            steps.iter().map(StepHandle::definition).filter(|step| is_forward(step)).collect();
        let nexts = self.nexts(&kept);
        let lowered: Vec<_> =
            kept.iter().zip(nexts).filter_map(|(step, next)| self.step(step, next, depth)).collect();
        let mut start = start.and_then(|start| self.id(At::field("start"), start));
        let asked: BTreeSet<&str> =
            kept.iter().filter(|step| self.opens_a_gate(step)).map(|step| &*step.id).collect();
        let lowered = ask_first(lowered, &mut start, &asked);
        let shape = Shape::Routed { start, cycles: self.allows_cycles() };
        Scope { undo: aip15::undo(), ..Scope::new(shape, lowered) }
    }

    /// Where each step goes. Undo steps that are also routed to must not be fallen into, so what would fall into
    /// one is told where to go.
    fn nexts(&mut self, kept: &[&'a StepDefinition]) -> Vec<Option<Target>> {
        let detoured: BTreeSet<&str> = kept.iter().flat_map(|step| detours(&step.kind)).collect();
        let mut following = Target::End;
        let mut fell_into_undo = false;
        let mut nexts = Vec::new();
        for step in kept.iter().rev() {
            nexts.push(match &step.next {
                Some(next) => self.target(step, "next", next),
                None => fell_into_undo.then(|| following.clone()),
            });
            let is_undo = self.undos.is_undo(&step.id);
            if !is_undo && !detoured.contains(&*step.id) {
                fell_into_undo = false;
                following = StepId::new(&step.id).map_or(Target::End, Target::Step);
            }
            fell_into_undo |= is_undo;
        }
        nexts.reverse();
        nexts
    }

    pub fn target(&mut self, step: &StepDefinition, field: &str, next: &str) -> Option<Target> {
        if next == aip15::END {
            return Some(Target::End);
        }
        self.id(at(step, field), next).map(Target::Step)
    }

    fn id(&mut self, at: At, text: &str) -> Option<StepId> {
        let id: Result<StepId, IdError> = StepId::new(text);
        if id.is_err() {
            self.broken = true;
            self.problems.push(bad_name(at, text));
        }
        id.ok()
    }

    fn step(&mut self, step: &'a StepDefinition, next: Option<Target>, depth: usize) -> Option<Step> {
        let id = self.id(at(step, "id"), &step.id)?;
        if !aip15::is_id(&step.id) {
            self.problems.push(bad_name(at(step, "id"), &step.id));
        }
        if depth >= limits::NESTING && !step.kind.lists().is_empty() {
            self.broken = true;
            let message = format!("parallel, map and loop steps nest more than {} deep", limits::NESTING);
            self.problems.push(Problem::new(ProblemCode::TooDeep, at(step, "steps"), message));
            return None;
        }
        let kind = lower_kind::kind(self, step, depth)?;
        Some(Step {
            name: step.name.clone(),
            description: step.description.clone(),
            next,
            inputs: self.bindings(step),
            outputs: step.outputs.as_ref().map(schema).unwrap_or_default(),
            policy: self.policy(step, &kind).into(),
            undo: self.undo(step),
            labels: step_labels(step).into(),
            ..Step::new(id, kind)
        })
    }

    /// Whether a person is asked before each start of a step, by its own class or else the workflow's.
    fn asks(&self, step: &StepDefinition) -> bool {
        *step.approval.as_ref().unwrap_or(&self.definition.approval) == ApprovalClass::Always
    }

    /// Returns true if a gate stands before a step that no worker does. The workflow's class is for its tools and subworkflows; the
    /// steps inside of others are asked about by themselves.
    fn opens_a_gate(&self, step: &StepDefinition) -> bool {
        match step.kind {
            StepKind::Subworkflow(_) => self.asks(step),
            _ => step.approval == Some(ApprovalClass::Always),
        }
    }

    fn policy(&self, step: &StepDefinition, kind: &Kind) -> StepPolicy {
        let is_tool = matches!(kind, Kind::Work(_));
        let waits = matches!(kind, Kind::Gate(_) | Kind::Wait(_));
        StepPolicy {
            // A gate's time is its own.
            timeout: step
                .timeout_ms
                .map(Millis)
                .or(is_tool.then_some(aip15::TOOL_TIMEOUT))
                .filter(|_| !waits),
            retry: step.retry.as_ref().map(|retry| retry.of_step()).unwrap_or_default(),
            effects: aip15::effects(),
            approval: (is_tool && self.asks(step)).then(ApprovalHold::default),
            ..StepPolicy::default()
        }
    }

    fn bindings(&mut self, step: &StepDefinition) -> Vec<Binding> {
        let mut bindings = Vec::new();
        for (name, value) in &step.inputs {
            if let Some(value) = self.value(at(step, format!("inputs.{name}")), value) {
                bindings.push(Binding {
                    name: name.as_str().into(),
                    value,
                    schema: Schema::default(),
                    required: false,
                });
            }
        }
        bindings
    }

    /// None also when it cannot be undone so; that is said of all steps at once.
    fn undo(&mut self, step: &StepDefinition) -> Option<Box<Undo>> {
        let undo = self.undos.get(step.compensation.as_deref()?)?;
        let StepKind::Tool(tool) = &undo.kind else { return None };
        Some(Box::new(Undo {
            id: self.id(at(undo, "id"), &undo.id)?,
            work: lower_kind::work(tool),
            inputs: self.bindings(undo),
            timeout: Some(undo.timeout_ms.map_or(aip15::TOOL_TIMEOUT, Millis)),
            retry: undo.retry.as_ref().map(|retry| retry.of_step()).unwrap_or_default(),
        }))
    }

    pub fn value(&mut self, at: At, value: &Value) -> Option<Expr> {
        self.parsed(at, expr::aip15::value(value))
    }

    pub fn condition(&mut self, at: At, text: &str) -> Option<Expr> {
        self.parsed(at, expr::aip15::condition(text))
    }

    /// A text in which nothing is looked for.
    pub fn text(&mut self, at: At, text: &str) -> Option<Expr> {
        match Expr::literal(text) {
            Ok(expr) => Some(expr),
            Err(error) => {
                self.broken = true;
                self.problems.push(Problem::new(ProblemCode::BadExpression, at, error.to_string()));
                None
            }
        }
    }

    /// What is wrong takes the place of nothing else: null stands for it, and the rest is checked.
    fn parsed(&mut self, mut at: At, parsed: Result<Expr, ParseError>) -> Option<Expr> {
        let error = match parsed {
            Ok(expr) => return Some(expr),
            Err(error) => error,
        };
        at.field.push_str(&error.at.replace('/', "."));
        at.span = (error.span != Span::default()).then_some(error.span);
        let problem = Problem::new(ProblemCode::BadExpression, at, error.to_string());
        self.problems.push(problem.maybe_hint(error.hint().map(str::to_owned)));
        Expr::literal(Value::Null).ok()
    }

    pub fn refuse(
        &mut self,
        step: &StepDefinition,
        field: impl Into<String>,
        message: String,
        code: ProblemCode,
    ) {
        self.problems.push(Problem::new(code, at(step, field), message));
    }

    pub fn broken_name(&mut self, step: &StepDefinition, field: String, name: &str) {
        self.broken = true;
        self.problems.push(bad_name(at(step, field), name));
    }

    /// Whether the workflow has a step of this name.
    pub fn has_step(&self, id: &str) -> bool {
        self.undos.get(id).is_some()
    }

    /// The scope of a list inside a step.
    pub fn inner(&mut self, steps: &'a [StepHandle], depth: usize) -> Arc<Scope> {
        Arc::new(self.list(steps, None, depth + 1))
    }
}

fn step_labels(step: &StepDefinition) -> BTreeMap<String, Value> {
    let mut labels = Map::new();
    if let Some(class) = &step.approval {
        labels.insert("approval".to_owned(), Value::from(class.word()));
    }
    if let Some(level) = step.risk_level {
        labels.insert("risk_level".to_owned(), Value::from(level as u8));
    }
    if !step.metadata.is_empty() {
        labels.insert("metadata".to_owned(), Value::from(step.metadata.clone()));
    }
    labels.into_iter().collect()
}
