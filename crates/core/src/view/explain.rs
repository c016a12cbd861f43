//! Explanations why a step waits, did not run, or did not succeed: one sentence, and a reason code for programs. The
//! cause of a halt is searched from the instance outwards.
//!
//! Owns the sentences. Reads only the plan and the state; details that the state does not keep are not reported.

use serde::Serialize;

use crate::{
    engine::{
        AttemptRole, AttemptStopReason, HaltReason, InstanceIx, InstancePhase, RunState, SkipReason, StepAt,
        StepOutcome, StepPaths, StepPhase, TIMEOUT_ACTOR, UndoWalk, UndoWalkState, VisitState, WaitpointState,
        format_utc,
    },
    ir::{ErrorClass, HoldReason, OutcomeAction, RunStatus, SiblingPolicy, Step, StepKindName, StepKindSpec},
    plan::Plan,
    view::{
        run::{self, UndoProgress, undo_progress},
        words,
    },
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepExplanation {
    pub reason: StepReason,
    /// The full explanation, for people.
    pub text: String,
    /// Paths of the steps that the explanation names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// The people who can change it; empty if anyone can, or nobody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<String>,
    /// The time at which it changes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepReason {
    // Waiting.
    Dependencies,
    Route,
    Slot,
    Worker,
    Retry,
    Decision,
    Signal,
    HeldForApproval,
    HeldForBudget,
    HeldAsBlocked,
    HeldForGovernance,
    HeldAfterInterruption,
    HeldForQuota,
    HeldForSecret,
    Stopping,
    Unwinding,
    // Not run, or stopped early.
    Condition,
    Upstream,
    NotRouted,
    StepFailed,
    SiblingFailed,
    Cancelled,
    TimedOut,
    Limit,
    Quarantined,
    // Not successful.
    Failed,
    Rejected,
    Incomplete,
    Exhausted,
    // Undo.
    Undoing,
    Undone,
    NotUndone,
}

impl StepExplanation {
    fn new(reason: StepReason, text: impl Into<String>) -> StepExplanation {
        StepExplanation { reason, text: text.into(), steps: Vec::new(), who: Vec::new(), until: None }
    }

    /// Builds an explanation from a halt cause; `what` is its effect on the step.
    fn from_cause(what: &str, cause: HaltCause) -> StepExplanation {
        let HaltCause { reason, text, steps } = cause;
        StepExplanation { steps, ..StepExplanation::new(reason, format!("{what}: {text}")) }
    }
}

/// The step to explain and the data that an explanation needs.
struct ExplainContext<'a> {
    plan: &'a Plan,
    state: &'a RunState,
    names: &'a StepPaths,
    at: StepAt,
    step: &'a Step,
    more: Option<&'a VisitState>,
}

/// Explains the status of a step. `None` if it is running or succeeded.
pub(super) fn explain_step(plan: &Plan, state: &RunState, names: &StepPaths, at: StepAt) -> Option<StepExplanation> {
    let step = names.step(at);
    let context = ExplainContext { plan, state, names, at, step, more: state.visit_state(at) };
    let phase = state.step(at).phase;
    if let Some(message) = state.quarantine.as_ref().filter(|_| phase == StepPhase::Pending || phase.is_live()) {
        return Some(StepExplanation::new(StepReason::Quarantined, format!("the run was set aside: {message}")));
    }
    match phase {
        StepPhase::Pending => context.explain_pending(),
        StepPhase::Ready => Some(context.explain_ready()),
        StepPhase::Held | StepPhase::Gated | StepPhase::Waiting => context.explain_waitpoint(),
        StepPhase::Backoff => context.explain_backoff(),
        StepPhase::Stopping => Some(context.explain_stopping()),
        StepPhase::Unwinding => Some(StepExplanation::new(
            StepReason::Unwinding,
            "the completed steps of its failed try are undone before the retry",
        )),
        StepPhase::Running | StepPhase::Checking | StepPhase::Summing | StepPhase::Inside => None,
        StepPhase::Done => context.explain_end(),
        StepPhase::Undoing => Some(context.explain_undo("is being undone", StepReason::Undoing)),
        StepPhase::Undone => Some(context.explain_undo("undone", StepReason::Undone)),
        StepPhase::Stuck => Some(StepExplanation::new(StepReason::NotUndone, "could not be undone: its undo failed")),
    }
}

impl ExplainContext<'_> {
    fn explain_pending(&self) -> Option<StepExplanation> {
        let instance = self.state.instance(self.at.0);
        if let Some(cause) = find_halt_cause(self.state, self.names, self.at.0) {
            return Some(StepExplanation::from_cause("skipped", cause));
        }
        let over = matches!(instance.phase, InstancePhase::Ended { .. });
        if self.plan.definition.scope(instance.scope).is_routed() {
            return Some(if over {
                StepExplanation::new(StepReason::NotRouted, "skipped: no route led here")
            } else {
                StepExplanation::new(StepReason::Route, "no route has led here yet")
            });
        }
        let steps = self.unmet_dependencies();
        (!steps.is_empty()).then(|| {
            let text = format!("waits for {}", words::join_quoted(&steps, "and"));
            StepExplanation { steps, ..StepExplanation::new(StepReason::Dependencies, text) }
        })
    }

    /// Returns the paths of dependencies that have not ended yet.
    fn unmet_dependencies(&self) -> Vec<String> {
        let entry = self.plan.definition.scope(self.names.scope(self.at.0));
        let places = self.step.after.iter().filter_map(|id| entry.by_id.get(id));
        let places = places.map(|step| StepAt(self.at.0, *step));
        let settles = |at: &StepAt| entry.conflict_resolver(at.1) == Some(self.at.1);
        let met = |at: &StepAt| self.state.step(*at).effect.is_some_and(|effect| effect.satisfies || settles(at));
        places.filter(|at| !met(at)).map(|at| self.names.step_path(at)).collect()
    }

    fn explain_ready(&self) -> StepExplanation {
        let instance = self.state.instance(self.at.0);
        let limit = self.plan.definition.scope(instance.scope).scope.concurrency;
        if let Some(limit) = limit.filter(|_| instance.queue.contains(&self.at.1)) {
            let holders = (0..).zip(&instance.steps).filter(|(_, step)| step.slot).take(instance.slots as usize);
            let steps: Vec<String> = holders.map(|(i, _)| self.names.step_path(StepAt(self.at.0, i))).collect();
            let held = words::join_quoted(&steps, "and");
            let text = format!("waits for a slot (`concurrency` {limit}, held by {held})");
            return StepExplanation { steps, ..StepExplanation::new(StepReason::Slot, text) };
        }
        StepExplanation::new(
            StepReason::Worker,
            match self.more.map(|more| more.next.role) {
                Some(AttemptRole::Check) => "its check waits for a worker",
                Some(AttemptRole::Summary) => "its summary waits for a worker",
                _ => "waits for a worker",
            },
        )
    }

    /// Explains an open gate, wait or hold.
    fn explain_waitpoint(&self) -> Option<StepExplanation> {
        let waitpoint = self.state.waitpoint(self.more?.opening?)?;
        let until = waitpoint.deadline.map(format_utc);
        let time = until.as_ref().map_or(String::new(), |until| format!(", until {until}"));
        let who = words::approver_names(&waitpoint.approvers);
        let nobody = if waitpoint.escalations > 0 { "nobody" } else { "anyone" };
        let by = if who.is_empty() { nobody.to_owned() } else { words::join_list(&who, "or") };
        let by = match waitpoint.quorum {
            1 => by,
            quorum => format!("{by} ({})", run::format_progress(waitpoint.approvals.len(), quorum)),
        };
        let (reason, text) = match self.state.step(self.at).phase {
            StepPhase::Gated => (StepReason::Decision, format!("waits for a decision by {by}{time}")),
            StepPhase::Waiting => {
                let signals = words::join_quoted(&run::awaited_signals(waitpoint, self.names), "or");
                (StepReason::Signal, format!("waits for signal {signals}{time}"))
            }
            _ => self.explain_hold(waitpoint, &by, &time),
        };
        Some(StepExplanation { who, until, ..StepExplanation::new(reason, text) })
    }

    fn explain_hold(&self, waitpoint: &WaitpointState, by: &str, time: &str) -> (StepReason, String) {
        let reason = self.more.and_then(|more| more.held).unwrap_or(HoldReason::Approval);
        let message = match waitpoint.message.as_str() {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let text = format!("held for {}{time}{message}; {by} may release it", words::hold_phrase(reason));
        let reason = match reason {
            HoldReason::Approval => StepReason::HeldForApproval,
            HoldReason::Budget => StepReason::HeldForBudget,
            HoldReason::Blocked => StepReason::HeldAsBlocked,
            HoldReason::Governance => StepReason::HeldForGovernance,
            HoldReason::Interruption => StepReason::HeldAfterInterruption,
            HoldReason::Quota => StepReason::HeldForQuota,
            HoldReason::Secret => StepReason::HeldForSecret,
        };
        (reason, text)
    }

    fn explain_backoff(&self) -> Option<StepExplanation> {
        let more = self.more?;
        let error = more.error.as_ref()?;
        let most = self.step.policy.retry.attempts.get(&error.class).map_or(0, |most| most.saturating_sub(1));
        let until = more.due.map(format_utc);
        let due = until.as_deref().unwrap_or("once");
        let text = format!("retry {} of {most} due at {due}: {}", more.tries, error.message);
        Some(StepExplanation { until, ..StepExplanation::new(StepReason::Retry, text) })
    }

    fn explain_stopping(&self) -> StepExplanation {
        if self.more.and_then(|more| more.stopping) == Some(AttemptStopReason::Timeout) {
            return StepExplanation::new(StepReason::Stopping, "stopping: its timeout expired");
        }
        let mut why = self.find_stop_cause().map_or_else(
            || StepExplanation::new(StepReason::Stopping, "stopping: the enclosing scope stopped"),
            |cause| StepExplanation::from_cause("stopping", cause),
        );
        why.reason = StepReason::Stopping;
        why
    }

    /// Returns the cause that stopped the step. In a draining instance, only a cancellation can be the cause.
    fn find_stop_cause(&self) -> Option<HaltCause> {
        let instance = self.state.instance(self.at.0);
        let drains = self.plan.definition.scope(instance.scope).scope.siblings == SiblingPolicy::Drain;
        let cancel = self.state.cancel.as_ref().filter(|_| drains);
        match (instance.halt_reason(), cancel) {
            (Some(HaltReason::Failed { .. }), Some(cancel)) => Some(cancel_cause(self.state, true, &cancel.by)),
            _ => find_halt_cause(self.state, self.names, self.at.0),
        }
    }

    /// Explains a step that has ended and was not undone.
    fn explain_end(&self) -> Option<StepExplanation> {
        let step = self.state.step(self.at);
        let skipped = step.effect.is_some_and(|effect| effect.as_skipped);
        match step.outcome? {
            StepOutcome::Succeeded => self.explain_missed_undo(),
            StepOutcome::Skipped(SkipReason::Condition) => Some(self.explain_condition_skip()),
            StepOutcome::Skipped(SkipReason::Upstream(other)) => {
                Some(self.explain_upstream_skip(StepAt(self.at.0, other)))
            }
            StepOutcome::Cancelled => Some(self.explain_cancelled()),
            StepOutcome::Rejected => Some(self.explain_outcome(StepReason::Rejected, "", skipped)),
            StepOutcome::Incomplete => Some(self.explain_outcome(StepReason::Incomplete, "incomplete: ", skipped)),
            StepOutcome::Exhausted => Some(self.explain_outcome(StepReason::Exhausted, "failed: ", skipped)),
            StepOutcome::Failed(ErrorClass::Timeout) => {
                Some(self.explain_outcome(StepReason::TimedOut, "timed out: ", skipped))
            }
            StepOutcome::Failed(_) => {
                let attempts = self.more.map_or(0, |more| more.attempts[AttemptRole::Main as usize]);
                let after =
                    if attempts > 1 { format!("failed after {attempts} attempts: ") } else { "failed: ".into() };
                Some(self.add_conflict_resolver(self.explain_outcome(StepReason::Failed, &after, skipped)))
            }
        }
    }

    /// Adds the conflict resolver, if the merge conflict of the step has one.
    fn add_conflict_resolver(&self, why: StepExplanation) -> StepExplanation {
        let Some(settler) = self.more.and_then(|more| more.settler) else { return why };
        let settler = StepAt(self.at.0, settler);
        let path = self.names.step_path(settler);
        let text = match self.state.step(settler).outcome {
            Some(StepOutcome::Succeeded) => format!("{}; resolved by `{path}`", why.text),
            Some(_) => format!("{}; `{path}` did not resolve it", why.text),
            None => format!("{}; `{path}` has to resolve it", why.text),
        };
        StepExplanation { text, steps: vec![path], ..why }
    }

    /// Explains a success that an undo walk was to undo and has not reached.
    fn explain_missed_undo(&self) -> Option<StepExplanation> {
        match undo_progress(self.state, self.at) {
            UndoProgress::NotUndone => {
                Some(StepExplanation::new(StepReason::NotUndone, "was not undone: another undo failed before its turn"))
            }
            UndoProgress::ToUndo => {
                Some(StepExplanation::new(StepReason::Undoing, "will be undone when its turn comes"))
            }
            UndoProgress::Undone | UndoProgress::Untouched => None,
        }
    }

    fn explain_condition_skip(&self) -> StepExplanation {
        let entry = self.plan.definition.scope(self.names.scope(self.at.0));
        let of = entry.steps_resolved_by(self.at.1).iter().map(|step| StepAt(self.at.0, *step));
        let (mut of, any) = (of.clone(), of.clone().next().is_some());
        if any && !of.any(|at| self.state.visit_state(at).is_some_and(|more| more.settler.is_some())) {
            return StepExplanation::new(StepReason::Condition, "skipped: there is no conflict to resolve");
        }
        let source = self.step.when.as_ref().map_or("", |when| when.source());
        let text = match source {
            "" => "skipped: its condition is false".to_owned(),
            source => format!("skipped: its condition `{source}` is false"),
        };
        StepExplanation::new(StepReason::Condition, text)
    }

    fn explain_upstream_skip(&self, other: StepAt) -> StepExplanation {
        let path = self.names.step_path(other);
        let ended = self.state.step(other).outcome.map_or("did not satisfy it", words::outcome_phrase);
        let text = format!("skipped: it depends on `{path}`, which {ended}");
        StepExplanation { steps: vec![path], ..StepExplanation::new(StepReason::Upstream, text) }
    }

    fn explain_cancelled(&self) -> StepExplanation {
        match self.find_stop_cause() {
            Some(cause) => StepExplanation::from_cause("cancelled", cause),
            None => StepExplanation::new(StepReason::Cancelled, "cancelled: the enclosing scope stopped"),
        }
    }

    fn explain_outcome(&self, reason: StepReason, what: &str, skipped: bool) -> StepExplanation {
        let skipped = if skipped { "skipped, because it " } else { "" };
        let message = self.more.and_then(|more| more.error.as_ref()).map_or("", |error| &error.message);
        let kind = matches!(self.step.kind, StepKindSpec::Gate(_) | StepKindSpec::Work(_));
        let origin = self.more.and_then(|more| more.error.as_ref()).and_then(|error| error.origin);
        let steps = origin.filter(|_| !kind).map(|at| self.names.step_path(at));
        // The message may already begin with the outcome.
        let what = if message.starts_with(what.trim_end_matches(": ")) { "" } else { what };
        let text = format!("{skipped}{what}{message}");
        StepExplanation { steps: steps.into_iter().collect(), ..StepExplanation::new(reason, text) }
    }

    /// Explains a step that is being undone or was undone: with its workflow, or before a retry of a composite around
    /// it.
    fn explain_undo(&self, what: &str, reason: StepReason) -> StepExplanation {
        let home = self.state.instance(self.at.0).home;
        let with_workflow = self.is_undone_with_workflow();
        let cause = find_halt_cause(self.state, self.names, home).filter(|_| with_workflow);
        let mut why = match cause {
            Some(cause) => StepExplanation::from_cause(what, cause),
            None if with_workflow => StepExplanation::new(reason, what),
            None => StepExplanation::new(reason, format!("{what}: an enclosing step failed and is retried")),
        };
        why.reason = reason;
        if let Some(due) = self.undo_retry_due() {
            why.text.push_str(&format!("; its undo failed and is retried at {due}"));
            why.until = Some(due);
        }
        why
    }

    /// True if the undo walk of its workflow undid the step. A walk that was started again has only the remaining
    /// targets, so a step that no composite around it undid counts too.
    fn is_undone_with_workflow(&self) -> bool {
        let targeted = |of: &UndoWalk| {
            let walk = self.state.walks.get(of);
            walk.map(|walk| walk.targets.iter().any(|target| target.at == self.at))
        };
        let home = self.state.instance(self.at.0).home;
        let mut around = self.state.instance(self.at.0).parent.filter(|_| self.at.0 != home);
        let mut by_composite = false;
        while let Some(composite) = around {
            by_composite |= targeted(&UndoWalk::Composite(composite)) == Some(true);
            around = self.state.instance(composite.0).parent.filter(|_| composite.0 != home);
        }
        targeted(&UndoWalk::Workflow(home)).is_some_and(|targeted| targeted || !by_composite)
    }

    /// Returns the time at which the undo of this step is retried.
    fn undo_retry_due(&self) -> Option<String> {
        let here = |walk: &&UndoWalkState| walk.targets.get(walk.at).is_some_and(|target| target.at == self.at);
        self.state.walks.values().find(here)?.due.map(format_utc)
    }
}

/// The cause that stopped an instance, and the steps that the text names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HaltCause {
    pub reason: StepReason,
    pub text: String,
    pub steps: Vec<String>,
}

impl HaltCause {
    fn new(reason: StepReason, text: impl Into<String>) -> HaltCause {
        HaltCause { reason, text: text.into(), steps: Vec::new() }
    }
}

/// Returns the cause that stopped an instance. `None` while it runs, or if it was not halted.
fn find_halt_cause(state: &RunState, names: &StepPaths, mut ix: InstanceIx) -> Option<HaltCause> {
    loop {
        let instance = state.instance(ix);
        match instance.halt_reason()? {
            HaltReason::Failed { step } => return Some(failure_cause(state, names, StepAt(ix, *step))),
            HaltReason::TimedOut => return Some(timeout_cause(names, instance.parent)),
            HaltReason::Cancelled { by } => return Some(cancel_cause(state, instance.parent.is_none(), by)),
            HaltReason::Limit { error } => {
                return Some(HaltCause::new(StepReason::Limit, error.message.clone()));
            }
            HaltReason::Outer => {
                let parent = instance.parent?;
                if let Some(sibling) = find_failed_sibling(state, parent) {
                    let path = names.instance_path(sibling).to_owned();
                    let text = format!("its sibling `{path}` failed");
                    return Some(HaltCause { steps: vec![path], ..HaltCause::new(StepReason::SiblingFailed, text) });
                }
                ix = parent.0;
            }
        }
    }
}

fn failure_cause(state: &RunState, names: &StepPaths, at: StepAt) -> HaltCause {
    let step = state.step(at);
    let (path, outcome) = (names.step_path(at), step.outcome.unwrap_or(StepOutcome::Cancelled));
    let mut text = format!("`{path}` {}", words::outcome_phrase(outcome));
    // A gate that is not approved stops the workflow regardless of its failure policy.
    if names.step(at).kind.name() != StepKindName::Gate {
        let undoes = step.effect.is_some_and(|effect| effect.then == OutcomeAction::Undo);
        let consequence = match &names.words(at.0).failure {
            Some(clauses) if undoes => &clauses.undo,
            Some(clauses) => &clauses.abort,
            None if undoes => "the workflow is undone",
            None => "the workflow stops",
        };
        text += &format!(" and {consequence}");
    }
    HaltCause { steps: vec![path], ..HaltCause::new(StepReason::StepFailed, text) }
}

fn timeout_cause(names: &StepPaths, parent: Option<StepAt>) -> HaltCause {
    let Some(parent) = parent else {
        return HaltCause::new(StepReason::TimedOut, "the workflow's time was up");
    };
    let path = names.step_path(parent);
    let text = format!("the time of `{path}` was up");
    HaltCause { steps: vec![path], ..HaltCause::new(StepReason::TimedOut, text) }
}

fn cancel_cause(state: &RunState, root: bool, by: &str) -> HaltCause {
    let what = if root { "the run" } else { "the workflow" };
    if by == TIMEOUT_ACTOR {
        let text = format!("{what} was cancelled because nobody answered before the timeout");
        return HaltCause::new(StepReason::Cancelled, text);
    }
    let reason = state.cancel.as_ref().and_then(|cancel| cancel.reason.as_deref()).filter(|_| root);
    let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
    HaltCause::new(StepReason::Cancelled, format!("{what} was cancelled by {by}{reason}"))
}

/// The lane or item whose failure stopped the others.
fn find_failed_sibling(state: &RunState, parent: StepAt) -> Option<InstanceIx> {
    let children = &state.visit_state(parent)?.children;
    let failed = |ix: &&InstanceIx| {
        let sibling = state.instance(**ix);
        sibling.halt_reason() != Some(&HaltReason::Outer)
            && sibling.end().is_some_and(|end| end.status != RunStatus::Succeeded)
    };
    children.iter().find(failed).copied()
}
