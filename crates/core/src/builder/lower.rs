//! Lowering of definitions to the IR: the workflow, its lists of steps, the fields common to all steps, compensations
//! and approvals. `lower_kind` lowers the kinds of steps.
//!
//! A step that undoes another is stored by value in the step that it undoes. It leaves its own list unless a step
//! routes to it. A step that needs approval and is not work gets a gate before it; the engine itself holds work steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    builder::{
        ApprovalClass, StepDefinition, StepHandle, StepKind, WorkflowDefinition, aip15, lower_kind,
        step::{ApprovalStep, BranchStep, SuspendStep, TimeoutRule},
    },
    expr::{self, Expr, ExprParseError, ExprSpan},
    ids::{StepId, WorkflowId},
    ir::{
        ApprovalHold, GateSpec, GateTimeout, InputBinding, RouteTarget, Schema, ScopeShape, Step, StepExtensions,
        StepKindSpec, StepPolicy, StepScope, UndoSpec, WaitTimeout, Workflow, WorkflowExtensions, WorkflowOrigin,
    },
    limits,
    plan::{FieldPath, PlanField, PlanProblem, ProblemCode, ProblemLocation},
    terms::WorkflowTerms,
    time::Millis,
};

/// Lowers a workflow. Returns none if a name is invalid or steps nest too deep. Adds all problems to `problems`.
pub(super) fn lower_workflow(
    definition: &WorkflowDefinition,
    terms: &WorkflowTerms,
    problems: &mut Vec<PlanProblem>,
) -> Option<Workflow> {
    let id = WorkflowId::new(&definition.id);
    if !aip15::is_valid_id(&definition.id) {
        problems.push(bad_name_problem(ProblemLocation::from_field(PlanField::Id), &definition.id));
    }
    let undos = UndoIndex::new(&definition.steps);
    undos.check_compensations(problems);
    let mut lower = WorkflowLowering { undos, definition, terms, problems, broken: id.is_err() };
    let scope = lower.lower_root();
    if lower.broken {
        return None;
    }
    let workflow = Workflow {
        name: definition.name.clone(),
        version: definition.version.clone(),
        description: Some(definition.description.clone()).filter(|text| !text.is_empty()),
        origin: WorkflowOrigin { dialect: aip15::DIALECT.to_owned() },
        inputs: lower_schema(&definition.input_schema),
        words: aip15::status_words(),
        triggers: definition.triggers.clone(),
        extensions: WorkflowExtensions { labels: lower_labels(definition), ..WorkflowExtensions::default() },
        ..Workflow::new(id.ok()?, scope)
    };
    Some(workflow)
}

/// Lowers a schema. One that accepts everything becomes the empty schema.
fn lower_schema(document: &Value) -> Schema {
    match document {
        Value::Null | Value::Bool(true) => Schema::default(),
        document => Schema::new(document.clone()),
    }
}

fn lower_labels(definition: &WorkflowDefinition) -> BTreeMap<String, Value> {
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

fn bad_name_problem(at: ProblemLocation, name: &str) -> PlanProblem {
    let meant = name.trim().replace(['_', ' ', '.', '/'], "-").to_ascii_lowercase();
    let hint = match aip15::is_valid_id(&meant) {
        true => format!("{}; `{meant}` would do", aip15::ID_FORM),
        false => aip15::ID_FORM.to_owned(),
    };
    PlanProblem::new(ProblemCode::BadName, at, format!("`{name}` cannot be an id")).with_hint(hint)
}

/// Returns the location of a field of a step.
pub(super) fn step_location(step: &StepDefinition, field: impl Into<FieldPath>) -> ProblemLocation {
    ProblemLocation { step: StepId::new(&step.id).ok(), ..ProblemLocation::from_field(field) }
}

pub(super) struct WorkflowLowering<'a> {
    undos: UndoIndex<'a>,
    definition: &'a WorkflowDefinition,
    pub terms: &'a WorkflowTerms,
    pub problems: &'a mut Vec<PlanProblem>,
    /// True if a part could not be lowered at all, so that there is no workflow to check.
    broken: bool,
}

impl<'a> WorkflowLowering<'a> {
    fn lower_root(&mut self) -> StepScope {
        let definition = self.definition;
        let mut scope = self.lower_list(&definition.steps, definition.start.as_deref(), 0);
        scope.timeout = Some(definition.timeout_ms.map_or(aip15::WORKFLOW_TIMEOUT, Millis));
        scope.max_steps = Some(definition.max_steps.unwrap_or(aip15::MAX_STEPS));
        scope.retry = definition.retry.as_ref().map(|retry| retry.to_run_retry());
        scope.outputs = lower_schema(&definition.output_schema);
        scope.result = definition
            .result
            .as_ref()
            .and_then(|value| self.lower_value(ProblemLocation::from_field(PlanField::Result), value));
        scope
    }

    fn allows_cycles(&self) -> bool {
        let skein = self.definition.metadata.get("skein");
        skein.and_then(|skein| skein.get("allow_cycles")) == Some(&Value::Bool(true))
    }

    /// Lowers one list of steps to a scope. Recursion is bounded by the limit on nesting.
    fn lower_list(&mut self, steps: &'a [StepHandle], start: Option<&'a str>, depth: usize) -> StepScope {
        let targeted = find_targeted_steps(steps, start);
        let is_forward = |step: &StepDefinition| !self.undos.is_undo(&step.id) || targeted.contains(&*step.id);
        let kept: Vec<&StepDefinition> =
            steps.iter().map(StepHandle::definition).filter(|step| is_forward(step)).collect();
        let nexts = self.lower_nexts(&kept);
        let lowered: Vec<_> =
            kept.iter().zip(nexts).filter_map(|(step, next)| self.lower_step(step, next, depth)).collect();
        let mut start =
            start.and_then(|start| self.parse_step_id(ProblemLocation::from_field(PlanField::Start), start));
        let gated: BTreeSet<&str> = kept.iter().filter(|step| self.needs_gate(step)).map(|step| &*step.id).collect();
        let lowered = insert_approval_gates(lowered, &mut start, &gated);
        let shape = ScopeShape::Routed { start, cycles: self.allows_cycles() };
        StepScope { undo: aip15::default_undo_policy(), ..StepScope::new(shape, lowered) }
    }

    /// Returns the `next` target of each step. A run must not fall through into an undo step that is also routed to, so
    /// a step before one gets an explicit target.
    fn lower_nexts(&mut self, kept: &[&'a StepDefinition]) -> Vec<Option<RouteTarget>> {
        let detoured: BTreeSet<&str> = kept.iter().flat_map(|step| detour_targets(&step.kind)).collect();
        let mut following = RouteTarget::End;
        let mut fell_into_undo = false;
        let mut nexts = Vec::new();
        for step in kept.iter().rev() {
            nexts.push(match &step.next {
                Some(next) => self.lower_target(step, PlanField::Next, next),
                None => fell_into_undo.then(|| following.clone()),
            });
            let is_undo = self.undos.is_undo(&step.id);
            if !is_undo && !detoured.contains(&*step.id) {
                fell_into_undo = false;
                following = StepId::new(&step.id).map_or(RouteTarget::End, RouteTarget::Step);
            }
            fell_into_undo |= is_undo;
        }
        nexts.reverse();
        nexts
    }

    pub(super) fn lower_target(
        &mut self,
        step: &StepDefinition,
        field: impl Into<FieldPath>,
        next: &str,
    ) -> Option<RouteTarget> {
        if next == aip15::END {
            return Some(RouteTarget::End);
        }
        self.parse_step_id(step_location(step, field), next).map(RouteTarget::Step)
    }

    fn parse_step_id(&mut self, at: ProblemLocation, text: &str) -> Option<StepId> {
        let id = StepId::new(text);
        if id.is_err() {
            self.broken = true;
            self.problems.push(bad_name_problem(at, text));
        }
        id.ok()
    }

    fn lower_step(&mut self, step: &'a StepDefinition, next: Option<RouteTarget>, depth: usize) -> Option<Step> {
        let id = self.parse_step_id(step_location(step, PlanField::Id), &step.id)?;
        if !aip15::is_valid_id(&step.id) {
            self.problems.push(bad_name_problem(step_location(step, PlanField::Id), &step.id));
        }
        if depth >= limits::NESTING && !step.kind.step_lists().is_empty() {
            self.broken = true;
            let message = format!("parallel, map and loop steps nest more than {} deep", limits::NESTING);
            self.problems.push(PlanProblem::new(ProblemCode::TooDeep, step_location(step, PlanField::Steps), message));
            return None;
        }
        let kind = lower_kind::lower_kind(self, step, depth)?;
        Some(Step {
            name: step.name.clone(),
            description: step.description.clone(),
            next,
            inputs: self.lower_inputs(step),
            outputs: step.outputs.as_ref().map(lower_schema).unwrap_or_default(),
            policy: self.lower_policy(step, &kind).into(),
            undo: self.lower_undo(step),
            extensions: StepExtensions { labels: lower_step_labels(step), ..StepExtensions::default() }.into(),
            ..Step::new(id, kind)
        })
    }

    /// True if each start of a step needs approval, by its own class or else the workflow's.
    fn needs_approval(&self, step: &StepDefinition) -> bool {
        *step.approval.as_ref().unwrap_or(&self.definition.approval) == ApprovalClass::Always
    }

    /// True if a step that no worker runs needs a gate before it. The workflow's class applies to tools and
    /// subworkflows; steps inside other steps are approved on their own.
    fn needs_gate(&self, step: &StepDefinition) -> bool {
        match step.kind {
            StepKind::Subworkflow(_) => self.needs_approval(step),
            _ => step.approval == Some(ApprovalClass::Always),
        }
    }

    fn lower_policy(&self, step: &StepDefinition, kind: &StepKindSpec) -> StepPolicy {
        let is_tool = matches!(kind, StepKindSpec::Work(_));
        let waits = matches!(kind, StepKindSpec::Gate(_) | StepKindSpec::Wait(_));
        StepPolicy {
            // A gate or a wait has a timeout of its own.
            timeout: step.timeout_ms.map(Millis).or(is_tool.then_some(aip15::TOOL_TIMEOUT)).filter(|_| !waits),
            retry: step.retry.as_ref().map(|retry| retry.to_step_retry()).unwrap_or_default(),
            effects: aip15::default_effects(),
            approval: (is_tool && self.needs_approval(step)).then(ApprovalHold::default),
            ..StepPolicy::default()
        }
    }

    fn lower_inputs(&mut self, step: &StepDefinition) -> Vec<InputBinding> {
        let mut bindings = Vec::new();
        for (name, value) in &step.inputs {
            let at = step_location(step, FieldPath::from(PlanField::Inputs).name(name));
            let value = self.lower_value(at, value);
            bindings.extend(value.map(|value| InputBinding {
                name: name.as_str().into(),
                value,
                schema: Schema::default(),
                required: false,
            }));
        }
        bindings
    }

    /// Returns none also for an invalid compensation; `check_compensations` reports those of all steps.
    fn lower_undo(&mut self, step: &StepDefinition) -> Option<Box<UndoSpec>> {
        let undo = self.undos.find_step(step.compensation.as_deref()?)?;
        let StepKind::Tool(tool) = &undo.kind else { return None };
        Some(Box::new(UndoSpec {
            id: self.parse_step_id(step_location(undo, PlanField::Id), &undo.id)?,
            work: lower_kind::lower_work(tool),
            inputs: self.lower_inputs(undo),
            timeout: Some(undo.timeout_ms.map_or(aip15::TOOL_TIMEOUT, Millis)),
            retry: undo.retry.as_ref().map(|retry| retry.to_step_retry()).unwrap_or_default(),
        }))
    }

    pub(super) fn lower_value(&mut self, at: ProblemLocation, value: &Value) -> Option<Expr> {
        self.unwrap_or_report(at, expr::aip15::parse_value(value))
    }

    pub(super) fn lower_condition(&mut self, at: ProblemLocation, text: &str) -> Option<Expr> {
        self.unwrap_or_report(at, expr::aip15::parse_condition(text))
    }

    /// Lowers a text that is taken literally.
    pub(super) fn lower_text(&mut self, at: ProblemLocation, text: &str) -> Option<Expr> {
        match Expr::literal(text) {
            Ok(expr) => Some(expr),
            Err(error) => {
                self.broken = true;
                self.problems.push(PlanProblem::new(ProblemCode::BadExpression, at, error.to_string()));
                None
            }
        }
    }

    /// Reports a parse error and returns null in place of the expression, so that the rest can be checked.
    fn unwrap_or_report(&mut self, mut at: ProblemLocation, parsed: Result<Expr, ExprParseError>) -> Option<Expr> {
        let error = match parsed {
            Ok(expr) => return Some(expr),
            Err(error) => error,
        };
        at.field = at.field.pointer(&error.at);
        at.span = (error.span != ExprSpan::default()).then_some(error.span);
        let problem = PlanProblem::new(ProblemCode::BadExpression, at, error.to_string());
        self.problems.push(problem.with_optional_hint(error.hint(self.terms)));
        Expr::literal(Value::Null).ok()
    }

    pub(super) fn report_problem(
        &mut self,
        step: &StepDefinition,
        field: impl Into<FieldPath>,
        message: String,
        code: ProblemCode,
    ) {
        self.problems.push(PlanProblem::new(code, step_location(step, field), message));
    }

    pub(super) fn report_bad_name(&mut self, step: &StepDefinition, field: FieldPath, name: &str) {
        self.broken = true;
        self.problems.push(bad_name_problem(step_location(step, field), name));
    }

    /// True if the workflow has a step with this id.
    pub(super) fn has_step(&self, id: &str) -> bool {
        self.undos.find_step(id).is_some()
    }

    /// Lowers a list inside a step to a scope.
    pub(super) fn lower_inner_list(&mut self, steps: &'a [StepHandle], depth: usize) -> Arc<StepScope> {
        Arc::new(self.lower_list(steps, None, depth + 1))
    }
}

fn lower_step_labels(step: &StepDefinition) -> BTreeMap<String, Value> {
    let mut labels = BTreeMap::new();
    if let Some(class) = &step.approval {
        labels.insert("approval".to_owned(), Value::from(class.word()));
    }
    if let Some(level) = step.risk_level {
        labels.insert("risk_level".to_owned(), Value::from(level as u8));
    }
    if !step.metadata.is_empty() {
        labels.insert("metadata".to_owned(), Value::from(step.metadata.clone()));
    }
    labels
}

/// Every step of a workflow by id, and the ids of those that undo others.
#[derive(Debug)]
struct UndoIndex<'a> {
    steps: BTreeMap<&'a str, &'a StepDefinition>,
    named: BTreeSet<&'a str>,
}

impl<'a> UndoIndex<'a> {
    /// Visits all lists, at any depth, without recursion.
    fn new(steps: &'a [StepHandle]) -> UndoIndex<'a> {
        let mut undos = UndoIndex { steps: BTreeMap::new(), named: BTreeSet::new() };
        let mut todo = vec![steps];
        while let Some(list) = todo.pop() {
            for step in list {
                let step = step.definition();
                undos.steps.insert(&step.id, step);
                todo.extend(step.kind.step_lists());
            }
        }
        // A step that is no valid compensation stays an ordinary step, so that one mistake is reported once.
        let named = undos.steps.values().filter_map(|step| Some((*step, step.compensation.as_deref()?)));
        undos.named = named.filter(|(step, name)| undos.check_undo(step, name).is_ok()).map(|(_, name)| name).collect();
        undos
    }

    fn find_step(&self, id: &str) -> Option<&'a StepDefinition> {
        self.steps.get(id).copied()
    }

    /// Reports invalid compensations, also those of steps that leave their list.
    fn check_compensations(&self, problems: &mut Vec<PlanProblem>) {
        for step in self.steps.values() {
            let Some(name) = &step.compensation else { continue };
            if let Err(message) = self.check_undo(step, name) {
                let at = step_location(step, PlanField::Compensation);
                let problem = PlanProblem::new(ProblemCode::BadUndo, at, message);
                problems.push(match self.find_step(name) {
                    Some(_) => problem,
                    None => problem.with_suggestion(name, self.steps.keys().copied()),
                });
            }
        }
    }

    fn check_undo(&self, step: &StepDefinition, name: &str) -> Result<(), String> {
        let undo = self.find_step(name).ok_or_else(|| format!("there is no step `{name}` to undo with"))?;
        if name == step.id {
            return Err(format!("`{name}` cannot undo itself"));
        }
        if !matches!(undo.kind, StepKind::Tool(_)) {
            return Err(format!("`{name}` is a step of kind {}, and only tools can undo", undo.kind));
        }
        if undo.compensation.is_some() {
            return Err(format!("`{name}` is a compensation and cannot have one itself"));
        }
        Ok(())
    }

    /// True if some step names it as its compensation.
    fn is_undo(&self, id: &str) -> bool {
        self.named.contains(id)
    }
}

/// Returns the steps that a list routes to by name, including by `next`.
fn find_targeted_steps<'a>(steps: &'a [StepHandle], start: Option<&'a str>) -> BTreeSet<&'a str> {
    let routes = steps.iter().flat_map(|step| {
        let step = step.definition();
        detour_targets(&step.kind).into_iter().chain(step.next.as_deref())
    });
    routes.chain(start).collect()
}

/// Returns the steps that a step may route to other than by `next`.
fn detour_targets(kind: &StepKind) -> Vec<&str> {
    match kind {
        StepKind::Branch(BranchStep { branches, default }) => {
            branches.iter().map(|arm| arm.next.as_str()).chain([default.as_str()]).collect()
        }
        StepKind::Suspend(SuspendStep { on_timeout: TimeoutRule::Step(step), .. }) => vec![step],
        StepKind::Approval(ApprovalStep { on_approve, on_reject, on_timeout, .. }) => {
            let late = match on_timeout {
                TimeoutRule::Step(step) => Some(step.as_str()),
                TimeoutRule::Escalate => Some(aip15::ESCALATE),
                TimeoutRule::Cancel | TimeoutRule::Continue => None,
            };
            on_approve.as_deref().into_iter().chain(on_reject.as_deref()).chain(late).collect()
        }
        _ => Vec::new(),
    }
}

/// Inserts a gate before each of these steps. All routes to such a step then lead to its gate.
fn insert_approval_gates(steps: Vec<Step>, start: &mut Option<StepId>, gated: &BTreeSet<&str>) -> Vec<Step> {
    let gates: BTreeMap<StepId, StepId> = steps
        .iter()
        .filter(|step| {
            !matches!(step.kind, StepKindSpec::Work(_) | StepKindSpec::Gate(_)) && gated.contains(step.id.as_str())
        })
        .filter_map(|step| Some((step.id.clone(), aip15::approval_gate_id(&step.id)?)))
        .collect();
    if let Some(gate) = start.as_ref().and_then(|start| gates.get(start)) {
        *start = Some(gate.clone());
    }
    let mut placed = Vec::with_capacity(steps.len() + gates.len());
    for mut step in steps {
        route_targets_mut(&mut step).for_each(|target| {
            if let RouteTarget::Step(id) = target
                && let Some(gate) = gates.get(id)
            {
                *id = gate.clone();
            }
        });
        placed.extend(gates.get(&step.id).and_then(|id| build_gate_before(id.clone(), &step)));
        placed.push(step);
    }
    placed
}

fn build_gate_before(id: StepId, before: &Step) -> Option<Step> {
    let gate = GateSpec {
        message: Expr::literal(format!("May `{}` start?", before.id)).ok()?,
        shows: Vec::new(),
        approvers: Vec::new(),
        quorum: 1,
        timeout: None,
        on_timeout: GateTimeout::Expire,
        on_approve: Some(RouteTarget::Step(before.id.clone())),
        on_reject: None,
    };
    let policy = StepPolicy { effects: aip15::default_effects(), ..StepPolicy::default() };
    Some(Step { policy: policy.into(), ..Step::new(id, StepKindSpec::Gate(Box::new(gate))) })
}

/// Returns every route target of a step.
fn route_targets_mut(step: &mut Step) -> impl Iterator<Item = &mut RouteTarget> {
    let own: Vec<&mut RouteTarget> = match &mut step.kind {
        StepKindSpec::Branch(branch) => {
            branch.arms.iter_mut().map(|arm| &mut arm.next).chain([&mut branch.default]).collect()
        }
        StepKindSpec::Gate(gate) => {
            let late = match &mut gate.on_timeout {
                GateTimeout::Go(target) => Some(target),
                _ => None,
            };
            gate.on_approve.iter_mut().chain(&mut gate.on_reject).chain(late).collect()
        }
        StepKindSpec::Wait(wait) => match &mut wait.on_timeout {
            WaitTimeout::Go(target) => vec![target],
            _ => Vec::new(),
        },
        StepKindSpec::Work(_)
        | StepKindSpec::Parallel(_)
        | StepKindSpec::Each(_)
        | StepKindSpec::Loop(_)
        | StepKindSpec::Call(_) => Vec::new(),
    };
    own.into_iter().chain(&mut step.next)
}
