//! The state of an evaluation (workflow instances, scope instances, and the known results of their steps), and the
//! values that expressions read from it.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use serde_json::Value;
use skein_core::{
    engine::Cost,
    expr::{EvalError, Expr, ExprEnv, ReferenceRoot, RootLookup, StepProperty},
    ir::{ErrorClass, OutcomeAction, OutcomeEffect, OutcomeEffects, RunImpact, Step, StepStatus},
    plan::{RelativeStepPath, RouteTargetIx, ScopeEntry, ScopeIx, WorkflowEntry},
};

use crate::{
    outcome::InstancePathPair,
    reference::{ExpectedStep, ModelEvaluator, ModelFailure, ModelOutcome, RaceResult, TimingRace},
};

/// An instance of a workflow: the run itself, or a call.
pub(super) struct ModelWorkflow<'a> {
    pub entry: &'a WorkflowEntry,
    pub input: Value,
    pub env: Value,
    pub executed: Cell<u32>,
    /// True if something outside it may run at the same time.
    pub accompanied: bool,
}

/// An instance of a scope.
pub(super) struct ModelFrame<'f, 'a> {
    pub scope: ScopeIx,
    pub name: InstancePathPair,
    pub outer: Option<&'f ModelFrame<'f, 'a>>,
    pub home: &'f ModelWorkflow<'a>,
    pub item: Option<(Value, u32)>,
    /// True if something else in the same workflow may run at the same time.
    pub concurrent: Cell<bool>,
    pub steps: RefCell<Vec<ModelStep>>,
    /// The last instance of each scope inside a step.
    pub inner: RefCell<BTreeMap<(u32, u32), Rc<ModelFrameRecord>>>,
}

/// The remains of an instance, for expressions that read its steps.
#[derive(Debug)]
pub(super) struct ModelFrameRecord {
    pub steps: Vec<ModelStep>,
    pub inner: BTreeMap<(u32, u32), Rc<ModelFrameRecord>>,
}

/// The known state of a step of an instance.
#[derive(Debug, Clone)]
pub(super) struct ModelStep {
    pub status: StepStatus,
    pub or: Option<StepStatus>,
    pub own_failure: bool,
    pub output: Value,
    /// True if the rules leave the output open.
    pub unclear: bool,
    /// True if its merge conflict is passed to its resolver.
    pub handed_on: bool,
    /// True if it has ended at least once.
    pub ended: bool,
    pub at_work: bool,
    pub attempts: u32,
    pub iterations: u32,
    pub visits: u32,
    pub spent: Cost,
}

impl ModelStep {
    pub(super) fn new() -> ModelStep {
        ModelStep {
            status: StepStatus::Pending,
            or: None,
            own_failure: false,
            output: Value::Null,
            unclear: false,
            handed_on: false,
            ended: false,
            at_work: false,
            attempts: 0,
            iterations: 0,
            visits: 0,
            spent: Cost::default(),
        }
    }
}

/// A visit of a step that has an undo and succeeded.
#[derive(Debug, Clone)]
pub(super) struct ModelCompletion<'a> {
    pub step: &'a Step,
    pub name: InstancePathPair,
    pub visit: u32,
}

/// The completed visits, with as much of their order as is known.
#[derive(Debug, Clone)]
pub(super) enum CompletionLog<'a> {
    One(ModelCompletion<'a>),
    InOrder(Vec<CompletionLog<'a>>),
    /// Completed concurrently.
    AnyOrder(Vec<CompletionLog<'a>>),
}

impl<'a> CompletionLog<'a> {
    pub(super) fn empty() -> CompletionLog<'a> {
        CompletionLog::InOrder(Vec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            CompletionLog::One(_) => false,
            CompletionLog::InOrder(all) | CompletionLog::AnyOrder(all) => all.iter().all(CompletionLog::is_empty),
        }
    }

    /// Appends the completed visits, first completed first, if that order is known.
    pub(super) fn flatten_into(&self, into: &mut Vec<ModelCompletion<'a>>) -> RaceResult<()> {
        match self {
            CompletionLog::One(one) => into.push(one.clone()),
            CompletionLog::AnyOrder(all) if all.iter().filter(|log| !log.is_empty()).count() > 1 => {
                return Err(TimingRace("steps that completed concurrently are to be undone"));
            }
            CompletionLog::InOrder(all) | CompletionLog::AnyOrder(all) => {
                all.iter().try_for_each(|log| log.flatten_into(into))?
            }
        }
        Ok(())
    }
}

/// The result of a visit of a step.
pub(super) enum ModelVisitResult<'a> {
    Ended(ModelVisitEnd<'a>),
    /// It waits, and nobody will answer.
    Waiting,
    /// It stops its workflow. `inside` holds the visits completed inside it, and `yielded` is true if it gave its slot
    /// back.
    Stops {
        why: ModelStopReason,
        inside: CompletionLog<'a>,
        yielded: bool,
    },
}

/// The reason why a step stops the workflow around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelStopReason {
    Cancel,
    /// The step limit is exceeded.
    Limit,
}

/// The result of an arrival.
pub(super) enum ModelArrival<'a> {
    Ready,
    Over(Box<ModelVisitEnd<'a>>),
    TooMany,
}

/// The end of a visit.
pub(super) struct ModelVisitEnd<'a> {
    pub ending: ModelOutcome,
    pub output: Value,
    pub unclear: bool,
    /// True if the work finished but could not be merged with other changes.
    pub unmerged: bool,
    /// The target of the cursor, if it is not the step's `next`.
    pub route: Option<RouteTargetIx>,
    /// The visits completed inside it.
    pub inside: CompletionLog<'a>,
    pub iterations: u32,
    pub attempts: u32,
    pub spent: Cost,
    /// True if it gave its slot back during the visit.
    pub yielded: bool,
    /// True if an instance inside it succeeded but is degraded.
    pub degraded: bool,
}

impl<'a> ModelVisitEnd<'a> {
    pub(super) fn new(ending: ModelOutcome) -> ModelVisitEnd<'a> {
        ModelVisitEnd {
            ending,
            output: Value::Null,
            unclear: false,
            unmerged: false,
            route: None,
            inside: CompletionLog::empty(),
            iterations: 0,
            attempts: 0,
            spent: Cost::default(),
            yielded: false,
            degraded: false,
        }
    }

    pub(super) fn from_output(output: Value) -> ModelVisitEnd<'a> {
        ModelVisitEnd { output, ..ModelVisitEnd::new(ModelOutcome::Succeeded) }
    }

    pub(super) fn from_failure(fault: ModelFailure) -> ModelVisitEnd<'a> {
        ModelVisitEnd::new(ModelOutcome::Failed(fault))
    }
}

/// The result of an instance.
pub(super) enum ModelInstanceResult<'a> {
    Ended {
        result: Result<Value, ModelFailure>,
        degraded: bool,
        log: CompletionLog<'a>,
        /// The step whose failure halted it. The flag is true if the effect asks for undo.
        halted: Option<(u32, bool)>,
        unclear: bool,
    },
    Waiting,
    Stops(ModelStopReason, CompletionLog<'a>),
}

impl<'f, 'a> ModelFrame<'f, 'a> {
    pub(super) fn new(
        eval: &ModelEvaluator<'a>,
        scope: ScopeIx,
        name: InstancePathPair,
        home: &'f ModelWorkflow<'a>,
    ) -> ModelFrame<'f, 'a> {
        let count = eval.definition.scope(scope).scope.steps.len();
        ModelFrame {
            scope,
            name,
            outer: None,
            home,
            item: None,
            concurrent: Cell::new(false),
            steps: RefCell::new(vec![ModelStep::new(); count]),
            inner: RefCell::new(BTreeMap::new()),
        }
    }

    pub(super) fn scope_entry(&self, eval: &ModelEvaluator<'a>) -> &'a ScopeEntry {
        eval.definition.scope(self.scope)
    }

    /// Records the end of a visit and the status that it shows.
    pub(super) fn note_visit_end(&self, step: u32, end: &ModelVisitEnd<'a>, effect: OutcomeEffect) {
        let mut steps = self.steps.borrow_mut();
        let known = &mut steps[step as usize];
        let shown = shown_status(&end.ending);
        let failed = !matches!(
            end.ending,
            ModelOutcome::Succeeded | ModelOutcome::SkippedByCondition | ModelOutcome::SkippedByUpstream
        );
        known.own_failure = failed && effect.as_skipped;
        known.status = if known.own_failure { StepStatus::Skipped } else { shown };
        known.or = None;
        known.output = end.output.clone();
        known.unclear = end.unclear;
        known.ended = true;
        known.at_work = false;
        known.iterations = end.iterations;
        known.attempts += end.attempts;
        known.spent.add(end.spent);
    }

    pub(super) fn set_status(&self, step: u32, status: StepStatus, or: Option<StepStatus>) {
        let known = &mut self.steps.borrow_mut()[step as usize];
        (known.status, known.or) = (status, or);
    }

    /// Closes a frame. Steps that were never reached become skipped in an ended instance, and stay pending in a waiting
    /// one.
    pub(super) fn close_frame(&self, eval: &mut ModelEvaluator<'a>, waits: bool) -> Rc<ModelFrameRecord> {
        let entry = self.scope_entry(eval);
        let mut steps = self.steps.borrow_mut();
        for (step, known) in entry.scope.steps.iter().zip(steps.iter_mut()) {
            if known.status == StepStatus::Pending && !waits {
                known.status = StepStatus::Skipped;
            }
            let expected = ExpectedStep {
                status: known.status,
                or: known.or,
                output: if known.unclear { super::ANYTHING.into() } else { known.output.clone() },
                attempts: known.attempts,
                iterations: known.iterations,
                visits: known.visits,
            };
            eval.steps.insert(self.name.step_path(step.id.as_str()), expected);
        }
        Rc::new(ModelFrameRecord { steps: steps.clone(), inner: self.inner.borrow().clone() })
    }
}

/// The canonical status of an outcome, before its effect.
fn shown_status(ending: &ModelOutcome) -> StepStatus {
    match ending {
        ModelOutcome::Succeeded => StepStatus::Succeeded,
        ModelOutcome::Incomplete => StepStatus::Incomplete,
        ModelOutcome::Failed(ModelFailure { class: Some(ErrorClass::Timeout), .. }) => StepStatus::TimedOut,
        ModelOutcome::Exhausted | ModelOutcome::Failed(_) | ModelOutcome::Rejected => StepStatus::Failed,
        ModelOutcome::SkippedByCondition | ModelOutcome::SkippedByUpstream => StepStatus::Skipped,
    }
}

/// The effect that the table defines for an outcome. Returns an error if it depends on a class that the rules leave
/// open.
pub(super) fn find_effect(effects: &OutcomeEffects, ending: &ModelOutcome) -> RaceResult<OutcomeEffect> {
    Ok(match ending {
        ModelOutcome::Succeeded => effects.succeeded,
        ModelOutcome::Incomplete => effects.incomplete,
        ModelOutcome::Exhausted => effects.exhausted,
        ModelOutcome::Failed(ModelFailure { class: Some(ErrorClass::Timeout), .. }) => effects.timed_out,
        ModelOutcome::Failed(ModelFailure { class: Some(class), .. }) => {
            *effects.failed_by_class.get(class).unwrap_or(&effects.failed)
        }
        ModelOutcome::Failed(ModelFailure { class: None, .. }) => {
            let alike = effects.failed_by_class.values().chain([&effects.timed_out]).all(|e| *e == effects.failed);
            if !alike {
                return Err(TimingRace("the effect depends on a class that is not known"));
            }
            effects.failed
        }
        ModelOutcome::Rejected => effects.rejected,
        ModelOutcome::SkippedByCondition => effects.skipped_by_condition,
        ModelOutcome::SkippedByUpstream => effects.skipped_by_upstream,
    })
}

/// The verdict of an instance so far, and the first failure that counts.
#[derive(Default)]
pub(super) struct VerdictTally {
    pub worst: RunImpact,
    pub first: Option<ModelFailure>,
}

impl VerdictTally {
    pub(super) fn add_end(&mut self, end: &ModelVisitEnd<'_>, effect: OutcomeEffect, in_order: bool) {
        let ending = &end.ending;
        self.worst = self.worst.max(effect.verdict);
        if end.degraded {
            self.worst = self.worst.max(RunImpact::Degraded);
        }
        if effect.verdict != RunImpact::Failed {
            return;
        }
        let fault = match ending {
            ModelOutcome::Failed(fault) => fault.clone(),
            _ => ModelFailure::unknown(),
        };
        match &self.first {
            None => self.first = Some(fault),
            Some(first) if !in_order && *first != fault => self.first = Some(ModelFailure::unknown()),
            Some(_) => {}
        }
    }
}

pub(super) fn halts_instance(effect: OutcomeEffect) -> bool {
    effect.then != OutcomeAction::GoOn
}

/// An instance, as the environment of an expression.
struct ModelEnv<'e, 'f, 'a> {
    eval: &'e ModelEvaluator<'a>,
    frame: &'e ModelFrame<'f, 'a>,
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_expr(
        &self,
        frame: &ModelFrame<'_, 'a>,
        expr: &Expr,
    ) -> RaceResult<Result<Value, EvalError>> {
        let value = expr.eval(&ModelEnv { eval: self, frame });
        self.check_unambiguous().map(|()| value)
    }

    pub(super) fn evaluate_condition(
        &self,
        frame: &ModelFrame<'_, 'a>,
        expr: &Expr,
    ) -> RaceResult<Result<bool, EvalError>> {
        let value = expr.eval_bool(&ModelEnv { eval: self, frame });
        self.check_unambiguous().map(|()| value)
    }

    fn check_unambiguous(&self) -> RaceResult<()> {
        if self.unclear.get() { Err(TimingRace("an expression reads a value that is left open")) } else { Ok(()) }
    }
}

impl ExprEnv for ModelEnv<'_, '_, '_> {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_> {
        match root {
            ReferenceRoot::Input => found_value(self.frame.home.input.clone()),
            ReferenceRoot::Env => found_value(self.frame.home.env.clone()),
            ReferenceRoot::Item => self.enclosing_item().map_or(RootLookup::Absent, |(item, _)| found_value(item)),
            ReferenceRoot::Index => {
                self.enclosing_item().map_or(RootLookup::Absent, |(_, index)| found_value(index.into()))
            }
            ReferenceRoot::Step { id, part } => self.lookup_step(id, *part),
            ReferenceRoot::Context | ReferenceRoot::Run | ReferenceRoot::Workflow => {
                self.eval.unclear.set(true);
                RootLookup::Absent
            }
        }
    }
}

fn found_value(value: Value) -> RootLookup<'static> {
    RootLookup::Found(Cow::Owned(value))
}

impl ModelEnv<'_, '_, '_> {
    fn enclosing_item(&self) -> Option<(Value, u32)> {
        let mut at = Some(self.frame);
        while let Some(frame) = at {
            if frame.item.is_some() {
                return frame.item.clone();
            }
            at = frame.outer;
        }
        None
    }

    fn lookup_step(&self, id: &str, part: StepProperty) -> RootLookup<'static> {
        let Some(place) = self.eval.definition.locate_step(self.frame.scope, id) else {
            return RootLookup::Absent;
        };
        let mut frame = self.frame;
        for _ in 0..place.up {
            match frame.outer {
                Some(outer) => frame = outer,
                None => return RootLookup::Absent,
            }
        }
        match self.descend(frame, &place) {
            Ok(known) => self.read_part(&known, part),
            Err(lookup) => lookup,
        }
    }

    /// Returns the step at a relative path. If the path leads through a scope that has no instance, the lookup is
    /// `NotYet` while its step is running and `Absent` otherwise.
    fn descend(&self, frame: &ModelFrame<'_, '_>, place: &RelativeStepPath) -> Result<ModelStep, RootLookup<'static>> {
        let Some((first, rest)) = place.down.split_first() else {
            return Ok(frame.steps.borrow()[place.step as usize].clone());
        };
        let none = |known: &ModelStep| {
            if known.at_work { RootLookup::NotYet } else { RootLookup::Absent }
        };
        let inner = frame.inner.borrow();
        let holder = &frame.steps.borrow()[first.0 as usize];
        let mut record: Rc<ModelFrameRecord> = inner.get(first).cloned().ok_or_else(|| none(holder))?;
        for down in rest {
            let next = record.inner.get(down).cloned();
            record = next.ok_or_else(|| none(&record.steps[down.0 as usize]))?;
        }
        Ok(record.steps[place.step as usize].clone())
    }

    fn read_part(&self, known: &ModelStep, part: StepProperty) -> RootLookup<'static> {
        match part {
            // A step that the cursor has not reached reads as absent.
            StepProperty::Output if !known.ended => RootLookup::Absent,
            StepProperty::Output => {
                self.eval.unclear.set(self.eval.unclear.get() || known.unclear);
                found_value(known.output.clone())
            }
            StepProperty::Status if known.ended => {
                let words = &self.frame.home.entry.workflow.words;
                found_value(words.step_word(known.status, known.own_failure).into())
            }
            StepProperty::Status | StepProperty::Summary => {
                self.eval.unclear.set(true);
                RootLookup::Absent
            }
        }
    }
}
