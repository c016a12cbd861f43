//! Work: attempts, retries, checks, holds and budgets of one visit.

use serde_json::{Value, json};
use skein_core::{
    engine::{AttemptEnd, Cost, Finding, Report, Role},
    ir::{Budget, BudgetMode, Convergence, ErrorClass, HoldReason, Step, StepPolicy, Work, Worker},
    limits,
};

use super::{
    Ending, Eval, Fault, Race,
    frame::{End, Frame, Visit},
    undo::again,
    waits::Hold,
};
use crate::outcome::Who;

/// One visit of a step that works.
struct Doing<'a> {
    step: u32,
    it: &'a Step,
    policy: &'a StepPolicy,
    work: &'a Work,
    visit: u32,
    iteration: u32,
    /// Attempts of this iteration: main, check.
    attempts: (u32, u32),
    started: u32,
    tries: u32,
    openings: u32,
    /// Its cost when its own budget was last renewed.
    renewed: Cost,
    given: bool,
    undecided: u32,
    stall: Stall,
    spent: Cost,
    yielded: bool,
    /// The last attempt was done, and did not fit.
    unmerged: bool,
    output: Value,
}

/// How the check's findings repeat.
struct Stall {
    last: Option<(bool, Vec<String>)>,
    count: u32,
    stage: u32,
    /// An undecided check came between two findings.
    broken: bool,
}

/// What a visit does next.
enum Then<'a> {
    Main,
    Check,
    Summary,
    Over(Box<Visit<'a>>),
}

impl<'a> Eval<'a> {
    pub(super) fn work(
        &mut self,
        frame: &Frame<'_, 'a>,
        step: u32,
        work: &'a Work,
    ) -> Result<Visit<'a>, Race> {
        let it = frame.entry(self).step(step);
        let visit = frame.steps.borrow()[step as usize].visits;
        let stall = Stall { last: None, count: 0, stage: 1, broken: false };
        let mut doing = Doing {
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
            return Err(Race("whether a budget is for a visit or for all"));
        }
        let governed = it.policy.holds.get(&ErrorClass::Governance);
        let mut then = match (&it.policy.denied, governed, &it.policy.approval) {
            (Some(_), Some(reason), _) => self.held(frame, &mut doing, *reason, false, Then::Main),
            (Some(_), None, _) => doing.failed(Fault::of(ErrorClass::Governance, "policy_denied")),
            (None, _, Some(first)) => self.held(frame, &mut doing, first.reason(), false, Then::Main),
            (None, _, None) => Then::Main,
        };
        loop {
            then = match then {
                Then::Main => self.main(frame, &mut doing)?,
                Then::Check => self.check(frame, &mut doing)?,
                Then::Summary => {
                    self.report(frame, &mut doing, Role::Summary, 1);
                    let output = std::mem::take(&mut doing.output);
                    doing.over(End::with(output))
                }
                Then::Over(visit) => {
                    if !matches!(*visit, Visit::Ended(_)) {
                        let known = &mut frame.steps.borrow_mut()[step as usize];
                        known.attempts += doing.started;
                        known.iterations = doing.iteration;
                    }
                    return Ok(*visit);
                }
            };
        }
    }

    fn held(
        &mut self,
        frame: &Frame<'_, 'a>,
        doing: &mut Doing<'a>,
        reason: HoldReason,
        timed: bool,
        then: Then<'a>,
    ) -> Then<'a> {
        doing.yielded = true;
        doing.openings += 1;
        match self.hold(frame, doing.step, doing.openings, reason, timed) {
            Hold::Released => then,
            Hold::Rejected => doing.over(End::of(Ending::Rejected)),
            Hold::Late => doing.failed(Fault { class: Some(ErrorClass::Timeout), code: None }),
            Hold::ForEver => Then::Over(Box::new(Visit::Waiting)),
        }
    }

    fn report(&mut self, frame: &Frame<'_, 'a>, doing: &mut Doing<'a>, role: Role, attempt: u32) -> Report {
        let (visit, iteration) = (doing.visit, doing.iteration);
        let step = doing.it.id.as_str();
        let who = Who { path: &frame.name.identity, step, visit, iteration, role, attempt };
        let report = self.world.report(&who, doing.it);
        self.pay(report.cost);
        doing.spent.add(report.cost);
        report
    }

    fn main(&mut self, frame: &Frame<'_, 'a>, doing: &mut Doing<'a>) -> Result<Then<'a>, Race> {
        let given = if doing.given { Ok(Value::Null) } else { self.inputs(frame, doing.it)? };
        if let Some(mode) = self.over_budget(frame, doing)? {
            if given.is_err() {
                return Err(Race("whether inputs or budgets are looked at first"));
            }
            if mode == BudgetMode::Stop {
                return Ok(doing.failed(Fault::of(ErrorClass::NonRetryable, "budget")));
            }
            let then = self.held(frame, doing, HoldReason::Budget, false, Then::Main);
            if matches!(then, Then::Main) {
                self.renew(doing);
            }
            return Ok(then);
        }
        if let Err(fault) = given {
            return Ok(doing.failed(fault));
        }
        doing.given = true;
        doing.attempts.0 += 1;
        doing.started += 1;
        let attempt = doing.attempts.0;
        let report = self.report(frame, doing, Role::Main, attempt);
        doing.unmerged = matches!(report.end, AttemptEnd::Unmerged { .. });
        match report.end {
            AttemptEnd::Succeeded { ref output } | AttemptEnd::Unmerged { ref output, .. } => {
                let mut output = (**output).clone();
                doing.it.outputs.complete(&mut output);
                if doing.it.outputs.check(&output).is_err() {
                    doing.unmerged = false;
                    let code = Some("output_invalid".to_owned());
                    return Ok(self.failure(frame, doing, ErrorClass::Validation, code, false, Then::Main));
                }
                if doing.unmerged {
                    doing.output = output;
                    return self.bad_end(frame, doing, report.end, Then::Main);
                }
                let evidence = &doing.work.evidence;
                if report.proofs.iter().filter(|proof| proof.holds).count() != evidence.len() {
                    let class = match doing.work.worker {
                        Worker::Agent { .. } => ErrorClass::AgentError,
                        _ => ErrorClass::Transient,
                    };
                    let code = Some("evidence".to_owned());
                    return Ok(self.failure(frame, doing, class, code, false, Then::Main));
                }
                doing.output = output;
                if doing.work.check.is_none() {
                    return Ok(doing.complete());
                }
                doing.yielded |= !doing.policy.keeps_slot;
                Ok(Then::Check)
            }
            end => self.bad_end(frame, doing, end, Then::Main),
        }
    }

    /// An attempt of main or check that neither succeeded nor found anything.
    fn bad_end(
        &mut self,
        frame: &Frame<'_, 'a>,
        doing: &mut Doing<'a>,
        end: AttemptEnd,
        same: Then<'a>,
    ) -> Result<Then<'a>, Race> {
        Ok(match end {
            AttemptEnd::Failed { class, code, retry_at, .. } => {
                self.failure(frame, doing, class, code, retry_at.is_some(), same)
            }
            AttemptEnd::Unmerged { .. } => {
                let code = Some("merge_conflict".to_owned());
                self.failure(frame, doing, ErrorClass::NonRetryable, code, false, same)
            }
            AttemptEnd::TimedOut => self.failure(frame, doing, ErrorClass::Timeout, None, false, same),
            AttemptEnd::Stopped => {
                let code = Some("stopped".to_owned());
                self.failure(frame, doing, ErrorClass::Transient, code, false, same)
            }
            // Whether releasing it also releases a budget that is spent is not for the reference to say.
            AttemptEnd::Blocked { reason: HoldReason::Budget, .. } if self.has_budget(doing) => {
                return Err(Race("a budget that somebody else keeps"));
            }
            // The same once more, by another, and no try is used up.
            AttemptEnd::HandedOver { .. } => same,
            AttemptEnd::Blocked { reason, until, .. } => {
                self.held(frame, doing, reason, until.is_some(), same)
            }
            _ => return Err(Race("an end that does not fit the attempt")),
        })
    }

    /// `same` is where a hold would go on.
    fn failure(
        &mut self,
        frame: &Frame<'_, 'a>,
        doing: &mut Doing<'a>,
        class: ErrorClass,
        code: Option<String>,
        timed: bool,
        same: Then<'a>,
    ) -> Then<'a> {
        if let Some(reason) = doing.policy.holds.get(&class) {
            return self.held(frame, doing, *reason, timed, same);
        }
        doing.tries += 1;
        if again(&doing.policy.retry, doing.tries, class, code.as_deref()) {
            doing.yielded |= !doing.policy.keeps_slot;
            return Then::Main;
        }
        if doing.unmerged {
            let fault = Fault { class: Some(class), code };
            return doing.over(End { unmerged: true, output: doing.output.clone(), ..End::failed(fault) });
        }
        doing.failed(Fault { class: Some(class), code })
    }

    fn check(&mut self, frame: &Frame<'_, 'a>, doing: &mut Doing<'a>) -> Result<Then<'a>, Race> {
        doing.attempts.1 += 1;
        let attempt = doing.attempts.1;
        let report = self.report(frame, doing, Role::Check, attempt);
        doing.unmerged = matches!(report.end, AttemptEnd::Unmerged { .. });
        let (finding, reasons, fingerprints) = match report.end {
            AttemptEnd::Succeeded { .. } => (Finding::Complete, Vec::new(), Vec::new()),
            AttemptEnd::Checked { finding, reasons, fingerprints, .. } => (finding, reasons, fingerprints),
            end => return self.bad_end(frame, doing, end, Then::Check),
        };
        if finding == Finding::Undecided {
            doing.undecided += 1;
            doing.stall.broken = true;
            if doing.undecided >= limits::UNDECIDED_CHECKS {
                return Ok(doing.failed(Fault::of(ErrorClass::NonRetryable, "check_undecided")));
            }
            return Ok(doing.iterate());
        }
        doing.undecided = 0;
        match finding {
            Finding::Complete => Ok(doing.complete()),
            // Without a next iteration there is nothing to be released for.
            Finding::Blocked if !doing.is_last() => {
                match self.held(frame, doing, HoldReason::Blocked, false, Then::Main) {
                    Then::Main => Ok(doing.iterate()),
                    over => Ok(over),
                }
            }
            Finding::Incomplete => doing.incomplete(reasons, fingerprints),
            Finding::Undecided | Finding::Blocked => Ok(doing.iterate()),
        }
    }

    fn has_budget(&self, doing: &Doing<'a>) -> bool {
        let around = self.around.iter().any(|(budgets, _)| !budgets.is_empty());
        around || doing.policy.budget.is_some() || self.definition.root().workflow.budget.is_some()
    }

    /// Which mode of budget stops the next attempt, if one does.
    fn over_budget(&mut self, frame: &Frame<'_, 'a>, doing: &Doing<'a>) -> Result<Option<BudgetMode>, Race> {
        let run = self.definition.root().workflow.budget.as_ref();
        let around = self.around.iter().flat_map(|(budgets, spent)| {
            budgets.iter().map(|(budget, renewed)| (*budget, since(*spent, *renewed)))
        });
        let shared = around.chain(run.map(|budget| (budget, since(self.spent, self.renewed))));
        let shared: Vec<_> = shared.filter(|(budget, _)| budget.mode != BudgetMode::Warn).collect();
        if !shared.is_empty() && (frame.concurrent.get() || frame.home.accompanied) {
            return Err(Race("a budget is shared by steps at work at the same time"));
        }
        let own = doing.policy.budget.as_ref().map(|budget| (budget, since(doing.spent, doing.renewed)));
        let spent = own.into_iter().chain(shared).filter(|(budget, spent)| is_spent(budget, *spent));
        let modes: Vec<BudgetMode> =
            spent.map(|(budget, _)| budget.mode).filter(|mode| *mode != BudgetMode::Warn).collect();
        match modes.first() {
            Some(first) if modes.iter().any(|mode| mode != first) => {
                Err(Race("two budgets are spent and say different things"))
            }
            first => Ok(first.copied()),
        }
    }

    /// A person approved that more is spent: whatever pauses and is spent counts anew from here.
    fn renew(&mut self, doing: &mut Doing<'a>) {
        let renews = |budget: &Budget, spent: Cost, renewed: &mut Cost| {
            if budget.mode == BudgetMode::Pause && is_spent(budget, since(spent, *renewed)) {
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

    /// What a step is given, as one object.
    pub(super) fn inputs(&mut self, frame: &Frame<'_, 'a>, it: &Step) -> Result<Result<Value, Fault>, Race> {
        let mut given = json!({});
        for binding in &it.inputs {
            let value = match self.value(frame, &binding.value)? {
                Ok(value) => value,
                Err(_) => return Ok(Err(Fault::validation("expression"))),
            };
            if value.is_null() && binding.required {
                return Ok(Err(Fault::validation("input_missing")));
            }
            if binding.schema.check(&value).is_err() {
                if value.is_null() {
                    return Err(Race("whether an optional input that is missing must fit"));
                }
                return Ok(Err(Fault::validation("input_invalid")));
            }
            given[&*binding.name] = value;
        }
        if let skein_core::ir::Kind::Work(work) = &it.kind {
            for expr in work.worker.expressions() {
                if self.value(frame, expr)?.is_err() {
                    return Ok(Err(Fault::validation("expression")));
                }
            }
        }
        Ok(Ok(given))
    }
}

/// Returns the cost after a renewal.
fn since(spent: Cost, renewed: Cost) -> Cost {
    let micro_usd = spent.micro_usd.map(|now| now - renewed.micro_usd.unwrap_or(0));
    Cost { tokens: spent.tokens - renewed.tokens, micro_usd }
}

fn is_spent(budget: &Budget, spent: Cost) -> bool {
    budget.tokens.is_some_and(|most| spent.tokens >= most)
        || budget.micro_usd.is_some_and(|most| spent.micro_usd.unwrap_or(0) >= most)
}

impl<'a> Doing<'a> {
    fn over(&self, end: End<'a>) -> Then<'a> {
        let (iterations, attempts) = (self.iteration, self.started);
        let end = End { iterations, attempts, spent: self.spent, yielded: self.yielded, ..end };
        Then::Over(Box::new(Visit::Ended(end)))
    }

    fn failed(&self, fault: Fault) -> Then<'a> {
        self.over(End::failed(fault))
    }

    fn complete(&mut self) -> Then<'a> {
        if self.work.summary.is_some() {
            return Then::Summary;
        }
        let output = std::mem::take(&mut self.output);
        self.over(End::with(output))
    }

    fn incomplete(&mut self, reasons: Vec<String>, fingerprints: Vec<String>) -> Result<Then<'a>, Race> {
        let convergence = self.work.check.as_ref().and_then(|check| check.convergence.as_ref());
        if let Some(convergence) = convergence
            && self.stall.counts(convergence, reasons, fingerprints)?
        {
            return Ok(self.over(unfinished(Ending::Exhausted)));
        }
        Ok(self.iterate())
    }

    fn is_last(&self) -> bool {
        self.work.check.as_ref().is_none_or(|check| self.iteration >= check.max_iterations)
    }

    /// The next iteration, or the end after the last.
    fn iterate(&mut self) -> Then<'a> {
        let Some(check) = &self.work.check else { return self.failed(Fault::unknown()) };
        if self.iteration >= check.max_iterations {
            if check.incomplete_is_an_end {
                return self.over(unfinished(Ending::Incomplete));
            }
            return self.over(unfinished(Ending::Exhausted));
        }
        self.iteration += 1;
        self.attempts = (0, 0);
        if self.policy.retry.fresh_per_iteration {
            self.tries = 0;
        }
        self.yielded |= !self.policy.keeps_slot;
        Then::Main
    }
}

/// Whether the output of work that is not complete counts is left open.
fn unfinished<'a>(ending: Ending) -> End<'a> {
    End { unclear: true, ..End::of(ending) }
}

impl Stall {
    /// Counts a finding; true when that fails the step.
    fn counts(
        &mut self,
        by: &Convergence,
        reasons: Vec<String>,
        fingerprints: Vec<String>,
    ) -> Result<bool, Race> {
        let by_reasons = fingerprints.is_empty();
        let mut key = if by_reasons { reasons } else { fingerprints };
        key.sort();
        key.dedup();
        if key.is_empty() {
            return Ok(false);
        }
        if std::mem::take(&mut self.broken) && self.last.is_some() {
            return Err(Race("whether an undecided check breaks a row of findings"));
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
