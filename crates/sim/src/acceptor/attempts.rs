//! Attempts: the rules for starting, stopping and ending one, and the actions that may follow: a retry, a hold, the
//! next role or iteration, or the end.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, AttemptInput, AttemptMode, AttemptRole, AttemptStopReason, BudgetGrant, BudgetOwner,
        CheckFinding, Cost, EvidenceResult, ExecutionError, InstancePart, NextAction, StepAt, StepOutcome, Verdict,
        Waitpoint,
    },
    ir::{
        Backoff, Budget, BudgetMode, CompletionCheck, ErrorClass, HoldReason, OnInterrupted, Step, StepKindSpec,
        StepRetry, TimeoutScope, WorkSpec,
    },
    limits,
    time::{Millis, Timestamp},
};

use crate::acceptor::{
    Acceptor, RuleResult, ensure,
    state::{AcceptorStep, AcceptorStepPhase, AcceptorWaitpointKind, AllowedFollowUp},
};

impl Acceptor {
    pub(super) fn accept_attempt_started(
        &mut self,
        id: AttemptId,
        mode: AttemptMode,
        given: Option<&AttemptInput>,
        deadline: Option<Timestamp>,
    ) -> RuleResult {
        if id.role == AttemptRole::Undo {
            return self.accept_undo_started(id);
        }
        let at = id.at;
        ensure!(matches!(self.step_definition(at)?.kind, StepKindSpec::Work(_)), "only work has attempts");
        ensure!(self.step_state(at)?.live.is_none(), "another attempt of the step is in flight");
        self.ensure_arrived(at)?;
        self.may_start(at)?;
        let st = self.step_state(at)?;
        ensure!(id.visit == st.visit, "the visit is {}", st.visit);
        ensure!(id.iteration == st.iteration, "the iteration is {}", st.iteration);
        ensure!(id.role == st.role, "the role is {:?}", st.role);
        let number = st.numbers.get(&id.role).copied().unwrap_or(0) + 1;
        ensure!(id.attempt == number, "the number is {number}");
        self.may_spend(id)?;
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        if self.is_first_attempt(at) {
            ensure!(mode == AttemptMode::Fresh, "the first attempt of a visit is fresh");
            let Some(given) = given else { return Err("the first attempt has no inputs".into()) };
            let inputs = self.evaluate_inputs(at, &step).map_err(|code| format!("its inputs are wrong: {code}"))?;
            ensure!(given.inputs == inputs, "its inputs are {} instead of {inputs}", given.inputs);
            self.check_deadline(&step, deadline)?;
            self.step_state_mut(at)?.deadline = deadline;
        }
        self.take_slot(at)?;
        let st = self.step_state_mut(at)?;
        st.given = true;
        st.numbers.insert(id.role, number);
        st.live = Some(id);
        st.at = AcceptorStepPhase::Working;
        st.may.clear();
        Ok(())
    }

    /// Checks that a step that has arrived may start an attempt now.
    fn may_start(&self, at: StepAt) -> RuleResult {
        let st = self.step_state(at)?;
        let drains = self.is_draining(at.0) && st.given;
        if !drains {
            self.check_going(at.0)?;
        }
        ensure!(st.stop.is_none(), "the step was asked to stop");
        let policy = &self.step_definition(at)?.policy;
        if (policy.approval.is_some() || policy.denied.is_some()) && !st.given {
            ensure!(st.approved, "nobody has approved it");
        }
        match &st.at {
            AcceptorStepPhase::Ready => Ok(()),
            AcceptorStepPhase::Retrying(due) if *due <= self.now => Ok(()),
            AcceptorStepPhase::Between => {
                // A step may continue without a separate `StepGoesOn` event.
                let goes = AllowedFollowUp::GoOn { role: st.role, iteration: st.iteration };
                ensure!(st.may.contains(&goes), "the step may not continue: {:?}", st.may);
                Ok(())
            }
            other => Err(format!("the step is not ready: {other:?}").into()),
        }
    }

    fn check_deadline(&self, step: &Step, deadline: Option<Timestamp>) -> RuleResult {
        let own = step.policy.timeout.filter(|_| step.policy.timeout_per == TimeoutScope::Step);
        let right = own.map(|timeout| self.now.saturating_add(timeout));
        ensure!(deadline == right, "its deadline should be {right:?}");
        Ok(())
    }

    fn may_spend(&self, id: AttemptId) -> RuleResult {
        if id.role != AttemptRole::Main {
            return Ok(());
        }
        ensure!(self.spent_budget_mode(id.at)?.is_none(), "a budget is spent");
        Ok(())
    }

    /// Returns the mode of the first spent budget that prevents the next main attempt of a step.
    pub(super) fn spent_budget_mode(&self, at: StepAt) -> RuleResult<Option<BudgetMode>> {
        let mut spent = self
            .list_budgets(at)?
            .into_iter()
            .filter(|(owner, budget, spent)| budget.mode != BudgetMode::Warn && self.is_spent(*owner, budget, *spent));
        Ok(spent.next().map(|(_, budget, _)| budget.mode))
    }

    /// Returns true if a budget is spent, counted from when it was last renewed.
    fn is_spent(&self, owner: BudgetOwner, budget: &Budget, spent: Cost) -> bool {
        let from = self.renewed.get(&owner).copied().unwrap_or_default();
        let over = |most: u64, now: u64, from: u64| now >= from + most;
        budget.tokens.is_some_and(|most| over(most, spent.tokens, from.tokens))
            || budget
                .micro_usd
                .is_some_and(|most| over(most, spent.micro_usd.unwrap_or(0), from.micro_usd.unwrap_or(0)))
    }

    /// Checks the grants of a decision. Only a person who approves a budget hold renews budgets: the spent ones with
    /// mode `pause`, or all of that mode if none is spent.
    pub(super) fn check_budget_grants(
        &mut self,
        opening: Waitpoint,
        decision: Verdict,
        by: &str,
        grants: &[BudgetGrant],
    ) -> RuleResult {
        let open = self.openings.iter().find(|open| open.number == opening);
        let (at, what) = open.map(|open| (open.at, open.what)).ok_or("there is no waitpoint with this number")?;
        let person = decision == Verdict::Approve && !by.starts_with("system:");
        let mut right = Vec::new();
        if what == AcceptorWaitpointKind::Hold(HoldReason::Budget) && person {
            let mut pausing = self.list_budgets(at)?;
            pausing.retain(|(_, budget, _)| budget.mode == BudgetMode::Pause);
            let is_spent = |it: &(BudgetOwner, &Budget, Cost)| self.is_spent(it.0, it.1, it.2);
            let any = pausing.iter().any(is_spent);
            let renewed = pausing.iter().filter(|it| !any || is_spent(it));
            right.extend(renewed.map(|(of, _, from)| BudgetGrant { of: *of, from: *from }));
        }
        ensure!(grants == right, "it should renew {right:?}");
        self.renewed.extend(right.iter().map(|grant| (grant.of, grant.from)));
        Ok(())
    }

    /// The budgets that apply to a step, nearest first, with the cost counted against each.
    fn list_budgets(&self, at: StepAt) -> RuleResult<Vec<(BudgetOwner, &Budget, Cost)>> {
        let mut budgets =
            vec![(BudgetOwner::Step(at), self.step_definition(at)?.policy.budget.as_ref(), self.step_state(at)?.spent)];
        let mut ix = at.0;
        while let Some(holder) = self.instance(ix)?.parent {
            let inside = self.step_state(holder)?.spent;
            if self.instance(ix)?.part == Some(InstancePart::Call) {
                let called = self.plan.definition.workflow_containing(self.instance(ix)?.scope);
                budgets.push((BudgetOwner::Called(holder), called.workflow.budget.as_ref(), inside));
            }
            budgets.push((BudgetOwner::Step(holder), self.step_definition(holder)?.policy.budget.as_ref(), inside));
            ix = holder.0;
        }
        budgets.push((BudgetOwner::Run, self.plan.definition.root().workflow.budget.as_ref(), self.spent));
        Ok(budgets.into_iter().filter_map(|(owner, budget, spent)| Some((owner, budget?, spent))).collect())
    }

    /// Evaluates the inputs of a step, or returns an error code.
    pub(super) fn evaluate_inputs(&self, at: StepAt, step: &Step) -> Result<Value, &'static str> {
        let mut given = json!({});
        for binding in &step.inputs {
            let value = self.evaluate_expr(at.0, &binding.value).map_err(|_| "expression")?;
            if value.is_null() && binding.required {
                return Err("input_missing");
            }
            if binding.schema.check(&value).is_err() && !value.is_null() {
                return Err("input_invalid");
            }
            given[&*binding.name] = value;
        }
        Ok(given)
    }

    pub(super) fn accept_step_overdue(&mut self, at: StepAt) -> RuleResult {
        let now = self.now;
        let st = self.step_state_mut(at)?;
        ensure!(st.is_live() && !st.overdue, "the step is over, or overdue already");
        ensure!(st.deadline.is_some_and(|due| due <= now), "its deadline has not passed");
        st.overdue = true;
        Ok(())
    }

    pub(super) fn accept_stop_asked(&mut self, id: AttemptId, why: AttemptStopReason) -> RuleResult {
        ensure!(id.role != AttemptRole::Undo, "an undo cannot be stopped");
        let now = self.now;
        let halted = self.is_halted_around(id.at.0)?;
        let st = self.step_state_mut(id.at)?;
        ensure!(st.live == Some(id), "the attempt is not in flight");
        ensure!(st.stop.is_none(), "it was asked to stop already");
        match why {
            AttemptStopReason::Halted => ensure!(halted, "no outer instance has stopped"),
            AttemptStopReason::Timeout => ensure!(st.is_late(now), "its deadline has not passed"),
        }
        st.stop = Some(why);
        Ok(())
    }

    /// Checks that a success comes with all of its evidence.
    pub(super) fn check_evidence(&self, id: AttemptId, end: &AttemptEnd, proofs: &[EvidenceResult]) -> RuleResult {
        ensure!(id.role == AttemptRole::Main || proofs.is_empty(), "only a main attempt has evidence");
        if let (AttemptRole::Main, AttemptEnd::Succeeded { .. }) = (id.role, end)
            && let StepKindSpec::Work(work) = &self.step_definition(id.at)?.kind
        {
            let holds = proofs.iter().filter(|proof| proof.holds).count();
            ensure!(holds == work.evidence.len() && holds == proofs.len(), "a success without its evidence");
        }
        Ok(())
    }

    pub(super) fn accept_attempt_ended(&mut self, id: AttemptId, end: &AttemptEnd, cost: Cost) -> RuleResult {
        self.spent.add(cost);
        let mut ix = id.at.0;
        while let Some(holder) = self.instance(ix)?.parent {
            self.step_state_mut(holder)?.spent.add(cost);
            ix = holder.0;
        }
        if matches!(end, AttemptEnd::Checked { .. }) {
            ensure!(id.role == AttemptRole::Check, "only a check has a finding");
        }
        if id.role == AttemptRole::Undo {
            return self.accept_undo_attempt_ended(id, end);
        }
        let st = self.step_state_mut(id.at)?;
        ensure!(st.live == Some(id), "the attempt is not in flight");
        st.live = None;
        st.spent.add(cost);
        self.note_attempt_end(id.at, id.role, end)
    }

    pub(super) fn accept_step_goes_on(&mut self, at: StepAt, next: NextAction) -> RuleResult {
        if next.role == AttemptRole::Undo {
            return self.accept_undo_goes_on(at);
        }
        let now = self.now;
        let keeps = self.step_definition(at)?.policy.keeps_slot;
        let fresh = self.step_definition(at)?.policy.retry.fresh_per_iteration;
        let drains = self.is_draining(at.0) && (self.step_state(at)?.given || self.step_state(at)?.tries > 0);
        if !drains {
            self.check_going(at.0)?;
        }
        let st = self.step_state_mut(at)?;
        match &st.at {
            AcceptorStepPhase::Between => {
                let goes = AllowedFollowUp::GoOn { role: next.role, iteration: next.iteration };
                ensure!(st.may.contains(&goes), "the step may not do that next: {:?}", st.may);
            }
            AcceptorStepPhase::Retrying(due) => {
                ensure!(*due <= now, "the retry is not due yet");
                ensure!(next.role == AttemptRole::Main && next.iteration == st.iteration, "a retry has the main role");
            }
            AcceptorStepPhase::Ready => {
                ensure!(st.released, "no hold was released");
                let same = next.role == st.role && next.iteration == st.iteration;
                ensure!(same, "after a hold a step continues where it stopped");
            }
            other => return Err(format!("the step cannot continue from {other:?}").into()),
        }
        ensure!(next.stage == st.stall.2, "the stage is {}", st.stall.2);
        st.advance_to_role(next.role, next.iteration, fresh);
        st.slot &= keeps;
        st.at = AcceptorStepPhase::Ready;
        st.released = false;
        st.may.clear();
        Ok(())
    }

    pub(super) fn accept_retry_scheduled(&mut self, at: StepAt, due: Timestamp, error: &ExecutionError) -> RuleResult {
        if self.find_walk(at).is_some() {
            return self.accept_undo_retry(at, due, error);
        }
        let now = self.now;
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        if self.step_state(at)?.at == AcceptorStepPhase::Inside {
            return self.accept_composite_retry(at, due, error);
        }
        if !self.is_draining(at.0) {
            self.check_going(at.0)?;
        }
        let st = self.step_state_mut(at)?;
        let allowed = st.may.iter().find_map(|may| match may {
            AllowedFollowUp::Retry { class, not_before } if *class == error.class => Some(*not_before),
            _ => None,
        });
        let Some(not_before) = allowed else {
            return Err(format!("the policy does not retry this: {:?}", st.may).into());
        };
        st.retries += 1;
        check_retry_due(&step.policy.retry.backoff, (st.tries, st.retries), not_before, now, due)?;
        st.slot &= step.policy.keeps_slot;
        st.role = AttemptRole::Main;
        st.at = AcceptorStepPhase::Retrying(due);
        st.may.clear();
        Ok(())
    }
}

/// Checks that the due time of a retry matches the back-off. The retry may be counted from the last fresh iteration or
/// from the start.
pub(super) fn check_retry_due(
    backoff: &Backoff,
    (low, high): (u32, u32),
    not_before: Option<Timestamp>,
    now: Timestamp,
    due: Timestamp,
) -> RuleResult {
    let (a, b) = (backoff.retry_delay(low.max(1)), backoff.retry_delay(high.max(1)));
    let least = if backoff.jitter { Millis(0) } else { a.min(b) };
    let earliest = now.saturating_add(least).max(not_before.unwrap_or(now));
    let latest = now.saturating_add(a.max(b)).max(not_before.unwrap_or(now));
    ensure!(due >= earliest && due <= latest, "due at {due:?}, not between {earliest:?} and {latest:?}");
    Ok(())
}

impl AcceptorStep {
    /// Advances to a role of an iteration.
    pub(super) fn advance_to_role(&mut self, role: AttemptRole, iteration: u32, fresh: bool) {
        if iteration != self.iteration {
            self.numbers.clear();
            if fresh {
                self.tries = 0;
            }
        }
        self.role = role;
        self.iteration = iteration;
    }

    /// True if the step may end with this outcome now.
    pub(super) fn may_end(&self, outcome: StepOutcome) -> bool {
        self.may.contains(&AllowedFollowUp::End(outcome))
    }

    /// True if the outcome is a timeout and the step's own deadline has passed.
    pub(super) fn may_end_timed_out(&self, outcome: StepOutcome, now: Timestamp) -> bool {
        outcome == StepOutcome::Failed(ErrorClass::Timeout) && self.is_late(now)
    }

    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.overdue || self.deadline.is_some_and(|due| due <= now)
    }
}

/// True if a policy allows another attempt after this many tries.
pub(super) fn allows_retry(retry: &StepRetry, tries: u32, class: ErrorClass, code: Option<&str>) -> bool {
    let most = retry.attempts.get(&class).copied().unwrap_or(0);
    tries < most && !code.is_some_and(|code| retry.never.iter().any(|never| never == code))
}

impl Acceptor {
    /// Records the end of a main, check or summary attempt, and the actions that may follow it.
    fn note_attempt_end(&mut self, at: StepAt, role: AttemptRole, end: &AttemptEnd) -> RuleResult {
        let step = Arc::clone(&self.scope_entry(at.0).scope.steps[at.1 as usize]);
        let StepKindSpec::Work(work) = &step.kind else { return Err("only work has attempts".into()) };
        let halted = self.check_going(at.0).is_err();
        let st = self.step_state_mut(at)?;
        st.at = AcceptorStepPhase::Between;
        st.blocked = false;
        st.unmerged = matches!(end, AttemptEnd::Unmerged { .. });
        let interrupted_stop = st.stop.is_some();
        let mut may = match role {
            AttemptRole::Main => allowed_after_main(st, &step, work, end),
            AttemptRole::Check => allowed_after_check(st, &step, work, end),
            AttemptRole::Summary => allowed_after_summary(st, end),
            AttemptRole::Undo => return Err("an undo has no follow-up".into()),
        };
        match st.stop {
            Some(why) => {
                // After a stop request only a success with nothing left to do counts; a summary is optional.
                let sums_up =
                    may.iter().any(|may| matches!(may, AllowedFollowUp::GoOn { role: AttemptRole::Summary, .. }));
                may.retain(|may| *may == AllowedFollowUp::End(StepOutcome::Succeeded));
                may.extend(sums_up.then_some(AllowedFollowUp::End(StepOutcome::Succeeded)));
                let cut = if why == AttemptStopReason::Timeout {
                    StepOutcome::Failed(ErrorClass::Timeout)
                } else {
                    StepOutcome::Cancelled
                };
                may.push(AllowedFollowUp::End(cut));
                // A step that timed out may be halted as well.
                may.extend(halted.then_some(AllowedFollowUp::End(StepOutcome::Cancelled)));
            }
            None if halted => may.push(AllowedFollowUp::End(StepOutcome::Cancelled)),
            None => {}
        }
        st.cut_off |= interrupted_stop || matches!(end, AttemptEnd::Interrupted);
        st.may = may;
        Ok(())
    }
}

fn allowed_after_main(st: &mut AcceptorStep, step: &Step, work: &WorkSpec, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    match end {
        AttemptEnd::Succeeded { output } => {
            let mut output: Value = (**output).clone();
            step.outputs.complete_output(&mut output);
            if step.outputs.check(&output).is_err() {
                return allowed_after_failure(st, step, ErrorClass::Validation, Some("output_invalid"), None);
            }
            st.result = output;
            if work.check.is_some() {
                return vec![AllowedFollowUp::GoOn { role: AttemptRole::Check, iteration: st.iteration }];
            }
            allowed_when_complete(st, work)
        }
        AttemptEnd::Unmerged { output, .. } => {
            st.result = (**output).clone();
            allowed_after_bad_end(st, step, end)
        }
        AttemptEnd::Interrupted => allowed_after_interruption(st, step),
        AttemptEnd::HandedOver { .. } => {
            vec![AllowedFollowUp::GoOn { role: AttemptRole::Main, iteration: st.iteration }]
        }
        end => allowed_after_bad_end(st, step, end),
    }
}

fn allowed_when_complete(st: &AcceptorStep, work: &WorkSpec) -> Vec<AllowedFollowUp> {
    if work.summary.is_some() {
        return vec![AllowedFollowUp::GoOn { role: AttemptRole::Summary, iteration: st.iteration }];
    }
    vec![AllowedFollowUp::End(StepOutcome::Succeeded)]
}

fn allowed_after_bad_end(st: &mut AcceptorStep, step: &Step, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    match end {
        AttemptEnd::Failed { class, code, retry_at, .. } => {
            allowed_after_failure(st, step, *class, code.as_deref(), *retry_at)
        }
        AttemptEnd::Unmerged { .. } => {
            allowed_after_failure(st, step, ErrorClass::NonRetryable, Some("merge_conflict"), None)
        }
        AttemptEnd::TimedOut => allowed_after_failure(st, step, ErrorClass::Timeout, None, None),
        AttemptEnd::Stopped => allowed_after_failure(st, step, ErrorClass::Transient, Some("stopped"), None),
        AttemptEnd::Blocked { reason, until, .. } => {
            vec![AllowedFollowUp::Hold { reason: *reason, until: *until }]
        }
        AttemptEnd::Succeeded { .. }
        | AttemptEnd::Checked { .. }
        | AttemptEnd::Interrupted
        | AttemptEnd::HandedOver { .. } => Vec::new(),
    }
}

fn allowed_after_failure(
    st: &mut AcceptorStep,
    step: &Step,
    class: ErrorClass,
    code: Option<&str>,
    retry_at: Option<Timestamp>,
) -> Vec<AllowedFollowUp> {
    if let Some(reason) = step.policy.holds.get(&class) {
        return vec![AllowedFollowUp::Hold { reason: *reason, until: retry_at }];
    }
    st.tries += 1;
    if allows_retry(&step.policy.retry, st.tries, class, code) {
        return vec![AllowedFollowUp::Retry { class, not_before: retry_at }];
    }
    vec![AllowedFollowUp::End(StepOutcome::Failed(class))]
}

fn allowed_after_interruption(st: &mut AcceptorStep, step: &Step) -> Vec<AllowedFollowUp> {
    st.interruptions += 1;
    let again = AllowedFollowUp::GoOn { role: AttemptRole::Main, iteration: st.iteration };
    let ask = AllowedFollowUp::Hold { reason: HoldReason::Interruption, until: None };
    match step.policy.on_interrupted {
        OnInterrupted::Fail => allowed_after_failure(st, step, ErrorClass::Interrupted, None, None),
        _ if st.interruptions >= limits::INTERRUPTIONS => vec![ask],
        OnInterrupted::Ask => vec![ask],
        OnInterrupted::Rerun | OnInterrupted::Resume | OnInterrupted::Restore => vec![again],
    }
}

fn allowed_after_summary(st: &mut AcceptorStep, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    match end {
        AttemptEnd::Interrupted => {
            st.interruptions += 1;
            vec![
                AllowedFollowUp::GoOn { role: AttemptRole::Summary, iteration: st.iteration },
                AllowedFollowUp::Hold { reason: HoldReason::Interruption, until: None },
            ]
        }
        _ => vec![AllowedFollowUp::End(StepOutcome::Succeeded)],
    }
}

fn allowed_after_check(st: &mut AcceptorStep, step: &Step, work: &WorkSpec, end: &AttemptEnd) -> Vec<AllowedFollowUp> {
    let Some(check) = &work.check else { return Vec::new() };
    let (finding, reasons, fingerprints) = match end {
        AttemptEnd::Succeeded { .. } => (CheckFinding::Complete, &[][..], &[][..]),
        AttemptEnd::Checked { finding, reasons, fingerprints, .. } => (*finding, &reasons[..], &fingerprints[..]),
        AttemptEnd::Interrupted => {
            st.interruptions += 1;
            let mut may = vec![AllowedFollowUp::GoOn { role: AttemptRole::Check, iteration: st.iteration }];
            if st.interruptions >= limits::INTERRUPTIONS {
                may.push(AllowedFollowUp::Hold { reason: HoldReason::Interruption, until: None });
            }
            return may;
        }
        AttemptEnd::HandedOver { .. } => {
            return vec![AllowedFollowUp::GoOn { role: AttemptRole::Check, iteration: st.iteration }];
        }
        end => return allowed_after_bad_end(st, step, end),
    };
    if finding == CheckFinding::Undecided {
        st.undecided += 1;
        if st.undecided >= limits::UNDECIDED_CHECKS {
            return vec![AllowedFollowUp::End(StepOutcome::Failed(ErrorClass::NonRetryable))];
        }
        return allowed_next_iteration(st, check);
    }
    st.undecided = 0;
    match finding {
        CheckFinding::Complete => allowed_when_complete(st, work),
        CheckFinding::Blocked if st.iteration < check.max_iterations => {
            st.blocked = true;
            vec![AllowedFollowUp::Hold { reason: HoldReason::Blocked, until: None }]
        }
        CheckFinding::Incomplete => allowed_when_incomplete(st, check, reasons, fingerprints),
        CheckFinding::Undecided | CheckFinding::Blocked => allowed_next_iteration(st, check),
    }
}

/// Returns the follow-ups allowed after a check that finds the work incomplete.
fn allowed_when_incomplete(
    st: &mut AcceptorStep,
    check: &CompletionCheck,
    reasons: &[String],
    fingerprints: &[String],
) -> Vec<AllowedFollowUp> {
    let mut key: Vec<String> = if fingerprints.is_empty() { reasons.to_vec() } else { fingerprints.to_vec() };
    key.sort();
    key.dedup();
    if let Some(by) = &check.convergence
        && !key.is_empty()
    {
        let (last, count, stage) = &mut st.stall;
        *count = if last.as_ref() == Some(&key) { *count + 1 } else { 1 };
        *last = Some(key);
        if *count >= by.stall_threshold {
            *count = 0;
            *stage = (*stage + 1).min(by.max_stage);
            if *stage >= by.max_stage && by.fail_on_max_stage {
                return vec![AllowedFollowUp::End(StepOutcome::Exhausted)];
            }
        }
    }
    allowed_next_iteration(st, check)
}

pub(super) fn allowed_next_iteration(st: &AcceptorStep, check: &CompletionCheck) -> Vec<AllowedFollowUp> {
    if st.iteration < check.max_iterations {
        return vec![AllowedFollowUp::GoOn { role: AttemptRole::Main, iteration: st.iteration + 1 }];
    }
    vec![AllowedFollowUp::End(if check.incomplete_is_an_end {
        StepOutcome::Incomplete
    } else {
        StepOutcome::Exhausted
    })]
}
