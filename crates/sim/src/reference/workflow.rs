//! Whole workflows: the run and its calls, their ends, the arrival of every step, and the undo walk over the completed
//! visits, last first.

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptEnd, AttemptRole},
    ir::{ErrorClass, RunImpact, RunStatus, ScopeShape, StepKindSpec, StepRetry, StepStatus, UndoFailurePolicy},
    plan::{Plan, WorkflowEntry},
};

use crate::{
    outcome::{AttemptIdentity, InstancePathPair},
    reference::{
        ExpectedRun, ModelEvaluator, ModelFailure, ModelOutcome, NEVER_DUE, RaceResult, TimingRace,
        frame::{
            CompletionLog, ModelArrival, ModelCompletion, ModelFrame, ModelInstanceResult, ModelStopReason,
            ModelVisitEnd, ModelVisitResult, ModelWorkflow, VerdictTally,
        },
    },
};

/// The result of a workflow.
pub(super) struct ModelWorkflowResult<'a> {
    pub status: RunStatus,
    pub output: Value,
    pub fault: ModelFailure,
    pub degraded: bool,
    pub unclear: bool,
    /// The steps of a successful call that its caller can undo.
    pub log: CompletionLog<'a>,
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_run(&mut self, plan: &'a Plan) -> RaceResult<ExpectedRun> {
        let input = (*plan.parameters).clone();
        let root = self.definition.root();
        let whole = self.evaluate_workflow(root, input, InstancePathPair::default(), false)?;
        let (status, output, degraded) = match whole {
            None if self.has_timeouts() => return Err(TimingRace("a run that waits may reach a timeout")),
            None => (RunStatus::Waiting, Value::Null, false),
            Some(whole) if whole.unclear => (whole.status, super::ANYTHING.into(), whole.degraded),
            Some(whole) => (whole.status, whole.output, whole.degraded),
        };
        let (steps, undone) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.undone));
        Ok(ExpectedRun { status, output, degraded, steps, undone })
    }

    /// True if the plan has any timeout. Even a very long timeout passes in a run that waits forever.
    fn has_timeouts(&self) -> bool {
        let of_step = |step: &std::sync::Arc<skein_core::ir::Step>| {
            step.policy.timeout_per == skein_core::ir::TimeoutScope::Step && step.policy.timeout.is_some()
        };
        let mut scopes = self.definition.scopes.iter();
        scopes.any(|entry| entry.scope.timeout.is_some() || entry.scope.steps.iter().any(of_step))
    }

    /// Evaluates a workflow to its end, including undo. Returns `None` if it waits forever.
    pub(super) fn evaluate_workflow(
        &mut self,
        entry: &'a WorkflowEntry,
        input: Value,
        name: InstancePathPair,
        accompanied: bool,
    ) -> RaceResult<Option<ModelWorkflowResult<'a>>> {
        let mut home = ModelWorkflow { entry, input, env: Value::Null, executed: Default::default(), accompanied };
        let mut env = json!({});
        for (name, expr) in &entry.workflow.env {
            let frame = ModelFrame::new(self, entry.root, InstancePathPair::default(), &home);
            env[name.as_str()] =
                self.evaluate_expr(&frame, expr)?.map_err(|_| TimingRace("an env that has no value"))?;
        }
        home.env = env;
        let frame = ModelFrame::new(self, entry.root, name, &home);
        match self.evaluate_instance(&frame)? {
            ModelInstanceResult::Waiting => {
                frame.close_frame(self, true);
                Ok(None)
            }
            ModelInstanceResult::Stops(why, log) => {
                frame.close_frame(self, false);
                self.stop_workflow(entry, why, &log).map(Some)
            }
            ModelInstanceResult::Ended { result, degraded, log, halted, unclear } => {
                frame.close_frame(self, false);
                let status = match (&result, halted) {
                    (Ok(_), _) => RunStatus::Succeeded,
                    (Err(_), Some((step, true))) => self.undo_after_failure(&frame, step, &log)?,
                    (Err(_), _) => RunStatus::Failed,
                };
                let (output, fault) = match result {
                    Ok(output) => (output, ModelFailure::unknown()),
                    Err(fault) => (Value::Null, fault),
                };
                Ok(Some(ModelWorkflowResult { status, output, fault, degraded, unclear, log }))
            }
        }
    }

    fn stop_workflow(
        &mut self,
        entry: &WorkflowEntry,
        why: ModelStopReason,
        log: &CompletionLog<'a>,
    ) -> RaceResult<ModelWorkflowResult<'a>> {
        let policy = &entry.workflow.scope.undo;
        let (mut status, undoes, fault) = match why {
            ModelStopReason::Cancel => {
                let fault = ModelFailure::new(ErrorClass::NonRetryable, "cancelled");
                (RunStatus::Cancelled, policy.on_cancel, fault)
            }
            // The rules define a code and no class for it.
            ModelStopReason::Limit => {
                let fault = ModelFailure { class: None, code: Some("max_steps".to_owned()) };
                (RunStatus::Failed, policy.on_timeout, fault)
            }
        };
        if undoes {
            let walked = self.run_undo_walk(None, log, policy.if_one_fails)?;
            if walked.failed {
                status = RunStatus::UndoFailed;
            } else if walked.undone > 0 && why == ModelStopReason::Limit {
                status = RunStatus::Undone;
            }
        }
        let log = CompletionLog::empty();
        Ok(ModelWorkflowResult { status, output: Value::Null, fault, degraded: false, unclear: false, log })
    }

    fn undo_after_failure(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        failed: u32,
        log: &CompletionLog<'a>,
    ) -> RaceResult<RunStatus> {
        let policy = &frame.home.entry.workflow.scope.undo;
        let step = frame.scope_entry(self).step(failed);
        let mut first = None;
        if policy.failed_step && step.undo.is_some() {
            let known = frame.steps.borrow()[failed as usize].clone();
            if known.attempts == 0 || !matches!(step.kind, StepKindSpec::Work(_)) {
                return Err(TimingRace("whether a step that did nothing itself is undone"));
            }
            first = Some(ModelCompletion { step, name: frame.name.clone(), visit: known.visits });
        }
        let walked = self.run_undo_walk(first, log, policy.if_one_fails)?;
        Ok(match walked {
            walked if walked.failed => RunStatus::UndoFailed,
            walked if walked.undone > 0 => RunStatus::Undone,
            _ => RunStatus::Failed,
        })
    }

    /// Evaluates a scope instance to its end.
    pub(super) fn evaluate_instance(&mut self, frame: &ModelFrame<'_, 'a>) -> RaceResult<ModelInstanceResult<'a>> {
        let scope = &frame.scope_entry(self).scope;
        if scope.timeout.is_some_and(|timeout| timeout < NEVER_DUE) {
            return Err(TimingRace("a scope may time out"));
        }
        match scope.shape {
            ScopeShape::Graph => self.evaluate_graph(frame),
            ScopeShape::Routed { .. } => self.evaluate_routed(frame),
        }
    }

    /// Ends an instance that was not stopped.
    pub(super) fn conclude_instance(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        tally: VerdictTally,
        last: (Value, bool),
        log: CompletionLog<'a>,
    ) -> RaceResult<ModelInstanceResult<'a>> {
        let scope = &frame.scope_entry(self).scope;
        let (mut output, mut unclear) = last;
        if let Some(result) = &scope.result {
            output = self.evaluate_expr(frame, result)?.map_err(|_| TimingRace("a result that has no value"))?;
            unclear = false;
        }
        let result = match tally.worst {
            RunImpact::Failed => Err(tally.first.unwrap_or_else(ModelFailure::unknown)),
            _ if unclear && !scope.outputs.is_empty() => return Err(TimingRace("an open value is checked")),
            _ if scope.outputs.check(&output).is_err() => Err(ModelFailure::validation("output_invalid")),
            _ => Ok(output),
        };
        let degraded = tally.worst == RunImpact::Degraded && result.is_ok();
        Ok(ModelInstanceResult::Ended { result, degraded, log, halted: None, unclear })
    }

    /// Evaluates the arrival of a step: first the step limit, then the condition.
    pub(super) fn evaluate_arrival(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        alone: bool,
    ) -> RaceResult<ModelArrival<'a>> {
        let home = frame.home;
        if home.entry.workflow.scope.max_steps.is_some_and(|max| home.executed.get() >= max) {
            if frame.concurrent.get() || !alone {
                return Err(TimingRace("which of several steps exceeds the limit"));
            }
            return Ok(ModelArrival::TooMany);
        }
        {
            let known = &mut frame.steps.borrow_mut()[step as usize];
            known.visits += 1;
            known.at_work = true;
        }
        let entry = frame.scope_entry(self);
        let tested = match &entry.step(step).when {
            _ if self.has_no_conflict_to_resolve(frame, step) => Ok(false),
            Some(when) => self.evaluate_condition(frame, when)?,
            None => Ok(true),
        };
        home.executed.set(home.executed.get() + 1);
        Ok(match tested {
            Ok(true) => ModelArrival::Ready,
            Ok(false) => {
                let output = entry.step(step).outputs.default_object();
                ModelArrival::Over(Box::new(ModelVisitEnd {
                    output,
                    ..ModelVisitEnd::new(ModelOutcome::SkippedByCondition)
                }))
            }
            Err(_) => ModelArrival::Over(Box::new(ModelVisitEnd::from_failure(ModelFailure::validation("condition")))),
        })
    }

    /// Evaluates a step that has arrived.
    pub(super) fn perform_step(&mut self, frame: &ModelFrame<'_, 'a>, step: u32) -> RaceResult<ModelVisitResult<'a>> {
        let it = frame.scope_entry(self).step(step);
        if it.policy.timeout_per == skein_core::ir::TimeoutScope::Step
            && it.policy.timeout.is_some_and(|timeout| timeout < NEVER_DUE)
        {
            return Err(TimingRace("a step may time out"));
        }
        match &it.kind {
            StepKindSpec::Work(work) => self.evaluate_work(frame, step, work),
            StepKindSpec::Gate(gate) => self.evaluate_gate(frame, step, gate),
            StepKindSpec::Wait(wait) => self.evaluate_wait(frame, step, wait),
            StepKindSpec::Branch(branch) => self.evaluate_branch(frame, branch),
            StepKindSpec::Parallel(_) | StepKindSpec::Each(_) | StepKindSpec::Loop(_) | StepKindSpec::Call(_) => {
                self.evaluate_composite(frame, step)
            }
        }
    }

    /// Records the end of a step. Returns its effect and the completed visits that can be undone.
    pub(super) fn note_step_end(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        end: &mut ModelVisitEnd<'a>,
    ) -> RaceResult<(skein_core::ir::OutcomeEffect, CompletionLog<'a>)> {
        let it = frame.scope_entry(self).step(step);
        let (effect, handed_on) = self.determine_effect(frame, step, end)?;
        if end.unmerged && !handed_on {
            end.output = Value::Null;
        }
        let failed = matches!(end.ending, ModelOutcome::Failed(_) | ModelOutcome::Exhausted);
        if failed && effect.satisfies && !handed_on && end.output.is_null() {
            end.output = it.outputs.default_object();
        }
        frame.note_visit_end(step, end, effect);
        frame.steps.borrow_mut()[step as usize].handed_on = handed_on;
        let inside = std::mem::replace(&mut end.inside, CompletionLog::empty());
        let visit = frame.steps.borrow()[step as usize].visits;
        let log = if (end.ending == ModelOutcome::Succeeded || handed_on) && it.undo.is_some() {
            let one = ModelCompletion { step: it, name: frame.name.clone(), visit };
            CompletionLog::InOrder(vec![inside, CompletionLog::One(one)])
        } else {
            inside
        };
        Ok((effect, log))
    }
}

/// The result of an undo walk.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ModelWalkResult {
    pub undone: u32,
    pub failed: bool,
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn run_undo_walk(
        &mut self,
        first: Option<ModelCompletion<'a>>,
        log: &CompletionLog<'a>,
        if_one_fails: UndoFailurePolicy,
    ) -> RaceResult<ModelWalkResult> {
        let mut targets = Vec::new();
        log.flatten_into(&mut targets)?;
        targets.extend(first);
        let mut walked = ModelWalkResult::default();
        for target in targets.iter().rev() {
            if self.undo_visit(target)? {
                walked.undone += 1;
                let shown = target.name.step_path(target.step.id.as_str());
                if let Some(step) = self.steps.get_mut(&shown)
                    && step.status == StepStatus::Succeeded
                {
                    step.status = StepStatus::Undone;
                }
                self.undone.push(shown);
            } else {
                walked.failed = true;
                if if_one_fails == UndoFailurePolicy::Stop {
                    break;
                }
            }
        }
        Ok(walked)
    }

    /// Undoes a visit, with retries. Returns true if the undo succeeded in the end.
    fn undo_visit(&mut self, target: &ModelCompletion<'a>) -> RaceResult<bool> {
        let Some(undo) = &target.step.undo else { return Err(TimingRace("the step has no undo")) };
        let mut attempt = 1;
        loop {
            let who = AttemptIdentity {
                path: &target.name.identity,
                step: target.step.id.as_str(),
                visit: target.visit,
                iteration: 1,
                role: AttemptRole::Undo,
                attempt,
            };
            let report = self.world.attempt_report(&who, target.step);
            self.add_cost(report.cost);
            let (class, code) = match report.end {
                AttemptEnd::Succeeded { .. } => return Ok(true),
                AttemptEnd::Failed { class, code, .. } => (class, code),
                AttemptEnd::TimedOut => (ErrorClass::Timeout, None),
                _ => return Err(TimingRace("an undo that ends in an unusual way")),
            };
            if !allows_retry(&undo.retry, attempt, class, code.as_deref()) {
                return Ok(false);
            }
            attempt += 1;
        }
    }
}

/// True if a policy allows another attempt after this many tries.
pub(super) fn allows_retry(retry: &StepRetry, tries: u32, class: ErrorClass, code: Option<&str>) -> bool {
    let most = retry.attempts.get(&class).copied().unwrap_or(0);
    tries < most && !code.is_some_and(|code| retry.never.iter().any(|never| never == code))
}
