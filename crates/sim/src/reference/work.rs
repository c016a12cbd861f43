//! Work: attempts, retries, checks, holds and budgets of one visit.

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptEnd, AttemptReport, AttemptRole, CheckFinding, Cost},
    ir::{Budget, BudgetMode, ConvergencePolicy, ErrorClass, HoldReason, Step, StepPolicy, WorkSpec, WorkerSpec},
    limits,
};

use super::{
    ModelEvaluator, ModelFailure, ModelOutcome, RaceResult, TimingRace,
    frame::{ModelFrame, ModelVisitEnd, ModelVisitResult},
    waitpoints::ModelHoldResult,
    workflow::allows_retry,
};
use crate::outcome::AttemptIdentity;

/// One visit of a work step.
struct ModelWorkVisit<'a> {
    step: u32,
    it: &'a Step,
    policy: &'a StepPolicy,
    work: &'a WorkSpec,
    visit: u32,
    iteration: u32,
    /// The number of attempts in this iteration: main, check.
    attempts: (u32, u32),
    started: u32,
    tries: u32,
    openings: u32,
    /// The cost of the step when its own budget was last renewed.
    renewed: Cost,
    given: bool,
    undecided: u32,
    stall: ModelStall,
    spent: Cost,
    yielded: bool,
    /// True if the last attempt finished but could not be merged.
    unmerged: bool,
    output: Value,
}

/// The repetition of the check's findings.
struct ModelStall {
    last: Option<(bool, Vec<String>)>,
    count: u32,
    stage: u32,
    /// True if an undecided check came between two findings.
    broken: bool,
}

/// The next action of a visit.
enum ModelNextAction<'a> {
    Main,
    Check,
    Summary,
    Over(Box<ModelVisitResult<'a>>),
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_work(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        work: &'a WorkSpec,
    ) -> RaceResult<ModelVisitResult<'a>> {
        let it = frame.scope_entry(self).step(step);
        let visit = frame.steps.borrow()[step as usize].visits;
        let stall = ModelStall { last: None, count: 0, stage: 1, broken: false };
        let mut doing = ModelWorkVisit {
            step,
            it,
            policy: &it.policy,
            work,
            visit,
            iteration: 1,
            attempts: (0, 0),
            started: 0,
            tries: 0,
            openings: 0,
            renewed: Cost::default(),
            given: false,
            undecided: 0,
            stall,
            spent: Cost::default(),
            yielded: false,
            unmerged: false,
            output: Value::Null,
        };
        if visit > 1 && it.policy.budget.is_some() {
            return Err(TimingRace("whether a budget is for a visit or for all"));
        }
        let governed = it.policy.holds.get(&ErrorClass::Governance);
        let mut then = match (&it.policy.denied, governed, &it.policy.approval) {
            (Some(_), Some(reason), _) => {
                self.evaluate_work_hold(frame, &mut doing, *reason, false, ModelNextAction::Main)
            }
            (Some(_), None, _) => doing.end_failed(ModelFailure::new(ErrorClass::Governance, "policy_denied")),
            (None, _, Some(first)) => {
                self.evaluate_work_hold(frame, &mut doing, first.reason(), false, ModelNextAction::Main)
            }
            (None, _, None) => ModelNextAction::Main,
        };
        loop {
            then = match then {
                ModelNextAction::Main => self.run_main(frame, &mut doing)?,
                ModelNextAction::Check => self.run_check(frame, &mut doing)?,
                ModelNextAction::Summary => {
                    self.run_attempt(frame, &mut doing, AttemptRole::Summary, 1);
                    let output = std::mem::take(&mut doing.output);
                    doing.end_visit(ModelVisitEnd::from_output(output))
                }
                ModelNextAction::Over(visit) => {
                    if !matches!(*visit, ModelVisitResult::Ended(_)) {
                        let known = &mut frame.steps.borrow_mut()[step as usize];
                        known.attempts += doing.started;
                        known.iterations = doing.iteration;
                    }
                    return Ok(*visit);
                }
            };
        }
    }

    fn evaluate_work_hold(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelWorkVisit<'a>,
        reason: HoldReason,
        timed: bool,
        then: ModelNextAction<'a>,
    ) -> ModelNextAction<'a> {
        doing.yielded = true;
        doing.openings += 1;
        match self.evaluate_hold(frame, doing.step, doing.openings, reason, timed) {
            ModelHoldResult::Released => then,
            ModelHoldResult::Rejected => doing.end_visit(ModelVisitEnd::new(ModelOutcome::Rejected)),
            ModelHoldResult::Late => doing.end_failed(ModelFailure { class: Some(ErrorClass::Timeout), code: None }),
            ModelHoldResult::ForEver => ModelNextAction::Over(Box::new(ModelVisitResult::Waiting)),
        }
    }

    fn run_attempt(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelWorkVisit<'a>,
        role: AttemptRole,
        attempt: u32,
    ) -> AttemptReport {
        let (visit, iteration) = (doing.visit, doing.iteration);
        let step = doing.it.id.as_str();
        let who = AttemptIdentity { path: &frame.name.identity, step, visit, iteration, role, attempt };
        let report = self.world.attempt_report(&who, doing.it);
        self.add_cost(report.cost);
        doing.spent.add(report.cost);
        report
    }

    fn run_main(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelWorkVisit<'a>,
    ) -> RaceResult<ModelNextAction<'a>> {
        let given = if doing.given { Ok(Value::Null) } else { self.evaluate_inputs(frame, doing.it)? };
        if let Some(mode) = self.spent_budget_mode(frame, doing)? {
            if given.is_err() {
                return Err(TimingRace("whether inputs or budgets are checked first"));
            }
            if mode == BudgetMode::Stop {
                return Ok(doing.end_failed(ModelFailure::new(ErrorClass::NonRetryable, "budget")));
            }
            let then = self.evaluate_work_hold(frame, doing, HoldReason::Budget, false, ModelNextAction::Main);
            if matches!(then, ModelNextAction::Main) {
                self.renew_budgets(doing);
            }
            return Ok(then);
        }
        if let Err(fault) = given {
            return Ok(doing.end_failed(fault));
        }
        doing.given = true;
        doing.attempts.0 += 1;
        doing.started += 1;
        let attempt = doing.attempts.0;
        let report = self.run_attempt(frame, doing, AttemptRole::Main, attempt);
        doing.unmerged = matches!(report.end, AttemptEnd::Unmerged { .. });
        match report.end {
            AttemptEnd::Succeeded { ref output } | AttemptEnd::Unmerged { ref output, .. } => {
                let mut output = (**output).clone();
                doing.it.outputs.complete_output(&mut output);
                if doing.it.outputs.check(&output).is_err() {
                    doing.unmerged = false;
                    let code = Some("output_invalid".to_owned());
                    return Ok(self.handle_failure(
                        frame,
                        doing,
                        ErrorClass::Validation,
                        code,
                        false,
                        ModelNextAction::Main,
                    ));
                }
                if doing.unmerged {
                    doing.output = output;
                    return self.handle_bad_end(frame, doing, report.end, ModelNextAction::Main);
                }
                let evidence = &doing.work.evidence;
                if report.proofs.iter().filter(|proof| proof.holds).count() != evidence.len() {
                    let class = match doing.work.worker {
                        WorkerSpec::Agent { .. } => ErrorClass::AgentError,
                        _ => ErrorClass::Transient,
                    };
                    let code = Some("evidence".to_owned());
                    return Ok(self.handle_failure(frame, doing, class, code, false, ModelNextAction::Main));
                }
                doing.output = output;
                if doing.work.check.is_none() {
                    return Ok(doing.complete_work());
                }
                doing.yielded |= !doing.policy.keeps_slot;
                Ok(ModelNextAction::Check)
            }
            end => self.handle_bad_end(frame, doing, end, ModelNextAction::Main),
        }
    }

    /// Handles a main or check attempt that neither succeeded nor produced a finding.
    fn handle_bad_end(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelWorkVisit<'a>,
        end: AttemptEnd,
        same: ModelNextAction<'a>,
    ) -> RaceResult<ModelNextAction<'a>> {
        Ok(match end {
            AttemptEnd::Failed { class, code, retry_at, .. } => {
                self.handle_failure(frame, doing, class, code, retry_at.is_some(), same)
            }
            AttemptEnd::Unmerged { .. } => {
                let code = Some("merge_conflict".to_owned());
                self.handle_failure(frame, doing, ErrorClass::NonRetryable, code, false, same)
            }
            AttemptEnd::TimedOut => self.handle_failure(frame, doing, ErrorClass::Timeout, None, false, same),
            AttemptEnd::Stopped => {
                let code = Some("stopped".to_owned());
                self.handle_failure(frame, doing, ErrorClass::Transient, code, false, same)
            }
            // The rules leave open if a release of this hold also renews a spent budget.
            AttemptEnd::Blocked { reason: HoldReason::Budget, .. } if self.has_budget(doing) => {
                return Err(TimingRace("a budget that the worker reports"));
            }
            // The same attempt again, by the fallback worker. It does not count as a try.
            AttemptEnd::HandedOver { .. } => same,
            AttemptEnd::Blocked { reason, until, .. } => {
                self.evaluate_work_hold(frame, doing, reason, until.is_some(), same)
            }
            _ => return Err(TimingRace("an end that does not fit the attempt")),
        })
    }

    /// Handles a failure. `same` is the action with which a hold would continue.
    fn handle_failure(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelWorkVisit<'a>,
        class: ErrorClass,
        code: Option<String>,
        timed: bool,
        same: ModelNextAction<'a>,
    ) -> ModelNextAction<'a> {
        if let Some(reason) = doing.policy.holds.get(&class) {
            return self.evaluate_work_hold(frame, doing, *reason, timed, same);
        }
        doing.tries += 1;
        if allows_retry(&doing.policy.retry, doing.tries, class, code.as_deref()) {
            doing.yielded |= !doing.policy.keeps_slot;
            return ModelNextAction::Main;
        }
        if doing.unmerged {
            let fault = ModelFailure { class: Some(class), code };
            return doing.end_visit(ModelVisitEnd {
                unmerged: true,
                output: doing.output.clone(),
                ..ModelVisitEnd::from_failure(fault)
            });
        }
        doing.end_failed(ModelFailure { class: Some(class), code })
    }

    fn run_check(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &mut ModelWorkVisit<'a>,
    ) -> RaceResult<ModelNextAction<'a>> {
        doing.attempts.1 += 1;
        let attempt = doing.attempts.1;
        let report = self.run_attempt(frame, doing, AttemptRole::Check, attempt);
        doing.unmerged = matches!(report.end, AttemptEnd::Unmerged { .. });
        let (finding, reasons, fingerprints) = match report.end {
            AttemptEnd::Succeeded { .. } => (CheckFinding::Complete, Vec::new(), Vec::new()),
            AttemptEnd::Checked { finding, reasons, fingerprints, .. } => (finding, reasons, fingerprints),
            end => return self.handle_bad_end(frame, doing, end, ModelNextAction::Check),
        };
        if finding == CheckFinding::Undecided {
            doing.undecided += 1;
            doing.stall.broken = true;
            if doing.undecided >= limits::UNDECIDED_CHECKS {
                return Ok(doing.end_failed(ModelFailure::new(ErrorClass::NonRetryable, "check_undecided")));
            }
            return Ok(doing.next_iteration());
        }
        doing.undecided = 0;
        match finding {
            CheckFinding::Complete => Ok(doing.complete_work()),
            // After the last iteration, a release would have nothing to continue with.
            CheckFinding::Blocked if !doing.is_last_iteration() => {
                match self.evaluate_work_hold(frame, doing, HoldReason::Blocked, false, ModelNextAction::Main) {
                    ModelNextAction::Main => Ok(doing.next_iteration()),
                    over => Ok(over),
                }
            }
            CheckFinding::Incomplete => doing.handle_incomplete(reasons, fingerprints),
            CheckFinding::Undecided | CheckFinding::Blocked => Ok(doing.next_iteration()),
        }
    }

    fn has_budget(&self, doing: &ModelWorkVisit<'a>) -> bool {
        let around = self.around.iter().any(|(budgets, _)| !budgets.is_empty());
        around || doing.policy.budget.is_some() || self.definition.root().workflow.budget.is_some()
    }

    /// The mode of the budget that stops the next attempt, if any.
    fn spent_budget_mode(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        doing: &ModelWorkVisit<'a>,
    ) -> RaceResult<Option<BudgetMode>> {
        let run = self.definition.root().workflow.budget.as_ref();
        let around = self.around.iter().flat_map(|(budgets, spent)| {
            budgets.iter().map(|(budget, renewed)| (*budget, cost_since(*spent, *renewed)))
        });
        let shared = around.chain(run.map(|budget| (budget, cost_since(self.spent, self.renewed))));
        let shared: Vec<_> = shared.filter(|(budget, _)| budget.mode != BudgetMode::Warn).collect();
        if !shared.is_empty() && (frame.concurrent.get() || frame.home.accompanied) {
            return Err(TimingRace("a budget is shared by steps at work at the same time"));
        }
        let own = doing.policy.budget.as_ref().map(|budget| (budget, cost_since(doing.spent, doing.renewed)));
        let spent = own.into_iter().chain(shared).filter(|(budget, spent)| is_spent(budget, *spent));
        let modes: Vec<BudgetMode> =
            spent.map(|(budget, _)| budget.mode).filter(|mode| *mode != BudgetMode::Warn).collect();
        match modes.first() {
            Some(first) if modes.iter().any(|mode| mode != first) => {
                Err(TimingRace("two spent budgets have different modes"))
            }
            first => Ok(first.copied()),
        }
    }

    /// Renews budgets after an approval by a person: each spent budget with mode `pause` counts from the current cost.
    fn renew_budgets(&mut self, doing: &mut ModelWorkVisit<'a>) {
        let renews = |budget: &Budget, spent: Cost, renewed: &mut Cost| {
            if budget.mode == BudgetMode::Pause && is_spent(budget, cost_since(spent, *renewed)) {
                *renewed = spent;
            }
        };
        if let Some(budget) = &doing.policy.budget {
            renews(budget, doing.spent, &mut doing.renewed);
        }
        for (budgets, spent) in &mut self.around {
            budgets.iter_mut().for_each(|(budget, renewed)| renews(budget, *spent, renewed));
        }
        if let Some(budget) = &self.definition.root().workflow.budget {
            renews(budget, self.spent, &mut self.renewed);
        }
    }

    /// Evaluates the inputs of a step as one object.
    pub(super) fn evaluate_inputs(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        it: &Step,
    ) -> RaceResult<Result<Value, ModelFailure>> {
        let mut given = json!({});
        for binding in &it.inputs {
            let value = match self.evaluate_expr(frame, &binding.value)? {
                Ok(value) => value,
                Err(_) => return Ok(Err(ModelFailure::validation("expression"))),
            };
            if value.is_null() && binding.required {
                return Ok(Err(ModelFailure::validation("input_missing")));
            }
            if binding.schema.check(&value).is_err() {
                if value.is_null() {
                    return Err(TimingRace("whether a missing optional input must match"));
                }
                return Ok(Err(ModelFailure::validation("input_invalid")));
            }
            given[&*binding.name] = value;
        }
        if let skein_core::ir::StepKindSpec::Work(work) = &it.kind {
            for expr in work.worker.expressions() {
                if self.evaluate_expr(frame, expr)?.is_err() {
                    return Ok(Err(ModelFailure::validation("expression")));
                }
            }
        }
        Ok(Ok(given))
    }
}

/// Returns the cost since a renewal.
fn cost_since(spent: Cost, renewed: Cost) -> Cost {
    let micro_usd = spent.micro_usd.map(|now| now - renewed.micro_usd.unwrap_or(0));
    Cost { tokens: spent.tokens - renewed.tokens, micro_usd }
}

fn is_spent(budget: &Budget, spent: Cost) -> bool {
    budget.tokens.is_some_and(|most| spent.tokens >= most)
        || budget.micro_usd.is_some_and(|most| spent.micro_usd.unwrap_or(0) >= most)
}

impl<'a> ModelWorkVisit<'a> {
    fn end_visit(&self, end: ModelVisitEnd<'a>) -> ModelNextAction<'a> {
        let (iterations, attempts) = (self.iteration, self.started);
        let end = ModelVisitEnd { iterations, attempts, spent: self.spent, yielded: self.yielded, ..end };
        ModelNextAction::Over(Box::new(ModelVisitResult::Ended(end)))
    }

    fn end_failed(&self, fault: ModelFailure) -> ModelNextAction<'a> {
        self.end_visit(ModelVisitEnd::from_failure(fault))
    }

    fn complete_work(&mut self) -> ModelNextAction<'a> {
        if self.work.summary.is_some() {
            return ModelNextAction::Summary;
        }
        let output = std::mem::take(&mut self.output);
        self.end_visit(ModelVisitEnd::from_output(output))
    }

    fn handle_incomplete(
        &mut self,
        reasons: Vec<String>,
        fingerprints: Vec<String>,
    ) -> RaceResult<ModelNextAction<'a>> {
        let convergence = self.work.check.as_ref().and_then(|check| check.convergence.as_ref());
        if let Some(convergence) = convergence
            && self.stall.count_finding(convergence, reasons, fingerprints)?
        {
            return Ok(self.end_visit(unfinished_end(ModelOutcome::Exhausted)));
        }
        Ok(self.next_iteration())
    }

    fn is_last_iteration(&self) -> bool {
        self.work.check.as_ref().is_none_or(|check| self.iteration >= check.max_iterations)
    }

    /// Returns the next iteration, or the end after the last one.
    fn next_iteration(&mut self) -> ModelNextAction<'a> {
        let Some(check) = &self.work.check else { return self.end_failed(ModelFailure::unknown()) };
        if self.iteration >= check.max_iterations {
            if check.incomplete_is_an_end {
                return self.end_visit(unfinished_end(ModelOutcome::Incomplete));
            }
            return self.end_visit(unfinished_end(ModelOutcome::Exhausted));
        }
        self.iteration += 1;
        self.attempts = (0, 0);
        if self.policy.retry.fresh_per_iteration {
            self.tries = 0;
        }
        self.yielded |= !self.policy.keeps_slot;
        ModelNextAction::Main
    }
}

/// The end of incomplete work. The rules leave open if its output counts.
fn unfinished_end<'a>(ending: ModelOutcome) -> ModelVisitEnd<'a> {
    ModelVisitEnd { unclear: true, ..ModelVisitEnd::new(ending) }
}

impl ModelStall {
    /// Counts a finding. Returns true if it exhausts the step.
    fn count_finding(
        &mut self,
        by: &ConvergencePolicy,
        reasons: Vec<String>,
        fingerprints: Vec<String>,
    ) -> RaceResult<bool> {
        let by_reasons = fingerprints.is_empty();
        let mut key = if by_reasons { reasons } else { fingerprints };
        key.sort();
        key.dedup();
        if key.is_empty() {
            return Ok(false);
        }
        if std::mem::take(&mut self.broken) && self.last.is_some() {
            return Err(TimingRace("whether an undecided check breaks a row of findings"));
        }
        let key = Some((by_reasons, key));
        self.count = if key == self.last { self.count + 1 } else { 1 };
        self.last = key;
        if self.count < by.stall_threshold {
            return Ok(false);
        }
        self.stage = (self.stage + 1).min(by.max_stage);
        self.count = 0;
        Ok(self.stage >= by.max_stage && by.fail_on_max_stage)
    }
}
