//! Attempts: when one may start, be stopped and end, and what its step says next.

use std::sync::Arc;

use serde_json::{Value, json};
use skein_core::{
    engine::{
        AttemptEnd, AttemptId, BudgetGrant, BudgetOwner, Cost, Decision, Error, Given, Mode, Onward, Opening,
        Outcome, Part, Proof, Role, StepAt, Stop,
    },
    ir::{Backoff, Budget, BudgetMode, ErrorClass, HoldReason, Kind, Per, Step},
    time::{Millis, Time},
};

use super::{
    Acceptor, Verdict,
    book::{At, May, OpenKind, St},
    ensure,
};

impl Acceptor {
    pub(super) fn attempt_started(
        &mut self,
        id: AttemptId,
        mode: Mode,
        given: Option<&Given>,
        deadline: Option<Time>,
    ) -> Verdict {
        if id.role == Role::Undo {
            return self.undo_started(id);
        }
        let at = id.at;
        ensure!(matches!(self.step(at)?.kind, Kind::Work(_)), "only work has attempts");
        ensure!(self.st(at)?.live.is_none(), "another attempt of the step is in flight");
        self.ensure_arrived(at)?;
        self.may_start(at)?;
        let st = self.st(at)?;
        ensure!(id.visit == st.visit, "the visit is {}", st.visit);
        ensure!(id.iteration == st.iteration, "the iteration is {}", st.iteration);
        ensure!(id.role == st.role, "the role is {:?}", st.role);
        let number = st.numbers.get(&id.role).copied().unwrap_or(0) + 1;
        ensure!(id.attempt == number, "the number is {number}");
        self.may_spend(id)?;
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        if self.is_first(at) {
            ensure!(mode == Mode::Fresh, "the first attempt of a visit is fresh");
            let Some(given) = given else { return Err("the first attempt is not given anything".into()) };
            let inputs = self.inputs(at, &step).map_err(|code| format!("its inputs are wrong: {code}"))?;
            ensure!(given.inputs == inputs, "it is given {} instead of {inputs}", given.inputs);
            self.check_deadline(&step, deadline)?;
            self.st_mut(at)?.deadline = deadline;
        }
        self.take_slot(at)?;
        let st = self.st_mut(at)?;
        st.given = true;
        st.numbers.insert(id.role, number);
        st.live = Some(id);
        st.at = At::Working;
        st.may.clear();
        Ok(())
    }

    /// Whether a step that has arrived may start an attempt now.
    fn may_start(&self, at: StepAt) -> Verdict {
        let st = self.st(at)?;
        let drains = self.drains(at.0) && st.given;
        if !drains {
            self.going(at.0)?;
        }
        ensure!(st.stop.is_none(), "the step was told to stop");
        let policy = &self.step(at)?.policy;
        if (policy.approval.is_some() || policy.denied.is_some()) && !st.given {
            ensure!(st.approved, "nobody has approved it");
        }
        match &st.at {
            At::Ready => Ok(()),
            At::Retrying(due) if *due <= self.now => Ok(()),
            At::Between => {
                // What goes on may do so without saying so first.
                let goes = May::GoOn { role: st.role, iteration: st.iteration };
                ensure!(st.may.contains(&goes), "the step is not to go on: {:?}", st.may);
                Ok(())
            }
            other => Err(format!("the step is not ready: {other:?}")),
        }
    }

    fn check_deadline(&self, step: &Step, deadline: Option<Time>) -> Verdict {
        let own = step.policy.timeout.filter(|_| step.policy.timeout_per == Per::Step);
        let right = own.map(|timeout| self.now.after(timeout));
        ensure!(deadline == right, "its time should be up at {right:?}");
        Ok(())
    }

    fn may_spend(&self, id: AttemptId) -> Verdict {
        if id.role != Role::Main {
            return Ok(());
        }
        ensure!(self.spent_mode(id.at)?.is_none(), "a budget is spent");
        Ok(())
    }

    /// Which budget keeps a step's next main attempt from starting.
    pub(super) fn spent_mode(&self, at: StepAt) -> Result<Option<BudgetMode>, String> {
        let mut spent = self.budgets(at)?.into_iter().filter(|(owner, budget, spent)| {
            budget.mode != BudgetMode::Warn && self.is_spent(*owner, budget, *spent)
        });
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

    /// Only who approves a hold for budget renews budgets: those that are spent and pause, or all that pause.
    pub(super) fn renews(
        &mut self,
        opening: Opening,
        decision: Decision,
        by: &str,
        grants: &[BudgetGrant],
    ) -> Verdict {
        let open = self.openings.iter().find(|open| open.number == opening);
        let (at, what) =
            open.map(|open| (open.at, open.what)).ok_or("nothing was opened with this number")?;
        let person = decision == Decision::Approve && !by.starts_with("system:");
        let mut right = Vec::new();
        if what == OpenKind::Hold(HoldReason::Budget) && person {
            let mut pausing = self.budgets(at)?;
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

    /// The budgets that a step is paid out of, the nearest first, and what was spent of each.
    fn budgets(&self, at: StepAt) -> Result<Vec<(BudgetOwner, &Budget, Cost)>, String> {
        let mut budgets =
            vec![(BudgetOwner::Step(at), self.step(at)?.policy.budget.as_ref(), self.st(at)?.spent)];
        let mut ix = at.0;
        while let Some(holder) = self.inst(ix)?.parent {
            let inside = self.st(holder)?.spent;
            if self.inst(ix)?.part == Some(Part::Call) {
                let called = self.plan.definition.workflow_of(self.inst(ix)?.scope);
                budgets.push((BudgetOwner::Called(holder), called.workflow.budget.as_ref(), inside));
            }
            budgets.push((BudgetOwner::Step(holder), self.step(holder)?.policy.budget.as_ref(), inside));
            ix = holder.0;
        }
        budgets.push((BudgetOwner::Run, self.plan.definition.root().workflow.budget.as_ref(), self.spent));
        Ok(budgets.into_iter().filter_map(|(owner, budget, spent)| Some((owner, budget?, spent))).collect())
    }

    /// What a step is given, or the code of what is wrong with it.
    pub(super) fn inputs(&self, at: StepAt, step: &Step) -> Result<Value, &'static str> {
        let mut given = json!({});
        for binding in &step.inputs {
            let value = self.value(at.0, &binding.value).map_err(|_| "expression")?;
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

    pub(super) fn step_overdue(&mut self, at: StepAt) -> Verdict {
        let now = self.now;
        let st = self.st_mut(at)?;
        ensure!(st.is_live() && !st.overdue, "the step is over, or overdue already");
        ensure!(st.deadline.is_some_and(|due| due <= now), "its time is not up");
        st.overdue = true;
        Ok(())
    }

    pub(super) fn stop_asked(&mut self, id: AttemptId, why: Stop) -> Verdict {
        ensure!(id.role != Role::Undo, "an undo is not stopped");
        let now = self.now;
        let halted = self.is_halted_around(id.at.0)?;
        let st = self.st_mut(id.at)?;
        ensure!(st.live == Some(id), "the attempt is not in flight");
        ensure!(st.stop.is_none(), "it was told to stop already");
        match why {
            Stop::Halted => ensure!(halted, "nothing has stopped around it"),
            Stop::Timeout => ensure!(st.is_late(now), "its time is not up"),
        }
        st.stop = Some(why);
        Ok(())
    }

    /// Nothing succeeds without all of its evidence.
    pub(super) fn proven(&self, id: AttemptId, end: &AttemptEnd, proofs: &[Proof]) -> Verdict {
        ensure!(id.role == Role::Main || proofs.is_empty(), "only work is proven");
        if let (Role::Main, AttemptEnd::Succeeded { .. }) = (id.role, end)
            && let Kind::Work(work) = &self.step(id.at)?.kind
        {
            let holds = proofs.iter().filter(|proof| proof.holds).count();
            ensure!(holds == work.evidence.len() && holds == proofs.len(), "a success that is not proven");
        }
        Ok(())
    }

    pub(super) fn attempt_ended(&mut self, id: AttemptId, end: &AttemptEnd, cost: Cost) -> Verdict {
        self.spent.add(cost);
        let mut ix = id.at.0;
        while let Some(holder) = self.inst(ix)?.parent {
            self.st_mut(holder)?.spent.add(cost);
            ix = holder.0;
        }
        if matches!(end, AttemptEnd::Checked { .. }) {
            ensure!(id.role == Role::Check, "only a check has a finding");
        }
        if id.role == Role::Undo {
            return self.undo_attempt_ended(id, end);
        }
        let st = self.st_mut(id.at)?;
        ensure!(st.live == Some(id), "the attempt is not in flight");
        st.live = None;
        st.spent.add(cost);
        self.follow(id.at, id.role, end)
    }

    pub(super) fn step_goes_on(&mut self, at: StepAt, next: Onward) -> Verdict {
        if next.role == Role::Undo {
            return self.undo_goes_on(at);
        }
        let now = self.now;
        let keeps = self.step(at)?.policy.keeps_slot;
        let fresh = self.step(at)?.policy.retry.fresh_per_iteration;
        let drains = self.drains(at.0) && (self.st(at)?.given || self.st(at)?.tries > 0);
        if !drains {
            self.going(at.0)?;
        }
        let st = self.st_mut(at)?;
        match &st.at {
            At::Between => {
                let goes = May::GoOn { role: next.role, iteration: next.iteration };
                ensure!(st.may.contains(&goes), "the step is not to do that next: {:?}", st.may);
            }
            At::Retrying(due) => {
                ensure!(*due <= now, "it is not time to try again");
                ensure!(next.role == Role::Main && next.iteration == st.iteration, "a retry is main again");
            }
            At::Ready => {
                ensure!(st.released, "it goes on already");
                let same = next.role == st.role && next.iteration == st.iteration;
                ensure!(same, "after a hold a step goes on where it stopped");
            }
            other => return Err(format!("nothing ended that it could go on from: {other:?}")),
        }
        ensure!(next.stage == st.stall.2, "the stage is {}", st.stall.2);
        st.onward(next.role, next.iteration, fresh);
        st.slot &= keeps;
        st.at = At::Ready;
        st.released = false;
        st.may.clear();
        Ok(())
    }

    pub(super) fn retry_scheduled(&mut self, at: StepAt, due: Time, error: &Error) -> Verdict {
        if self.walk_of(at).is_some() {
            return self.undo_retry(at, due, error);
        }
        let now = self.now;
        let step = Arc::clone(&self.entry(at.0).scope.steps[at.1 as usize]);
        if self.st(at)?.at == At::Inside {
            return self.composite_retry(at, due, error);
        }
        if !self.drains(at.0) {
            self.going(at.0)?;
        }
        let st = self.st_mut(at)?;
        let allowed = st.may.iter().find_map(|may| match may {
            May::Retry { class, not_before } if *class == error.class => Some(*not_before),
            _ => None,
        });
        let Some(not_before) = allowed else {
            return Err(format!("the policy does not retry this: {:?}", st.may));
        };
        st.retries += 1;
        in_time(&step.policy.retry.backoff, (st.tries, st.retries), not_before, now, due)?;
        st.slot &= step.policy.keeps_slot;
        st.role = Role::Main;
        st.at = At::Retrying(due);
        st.may.clear();
        Ok(())
    }
}

/// Whether a retry is due when the back-off says. Which retry it is can be counted from the last fresh iteration or
/// from the start.
pub fn in_time(
    backoff: &Backoff,
    (low, high): (u32, u32),
    not_before: Option<Time>,
    now: Time,
    due: Time,
) -> Verdict {
    let (a, b) = (backoff.delay(low.max(1)), backoff.delay(high.max(1)));
    let least = if backoff.jitter { Millis(0) } else { a.min(b) };
    let earliest = now.after(least).max(not_before.unwrap_or(now));
    let latest = now.after(a.max(b)).max(not_before.unwrap_or(now));
    ensure!(due >= earliest && due <= latest, "due at {due:?}, not between {earliest:?} and {latest:?}");
    Ok(())
}

impl St {
    /// Moves on to a role of an iteration.
    pub fn onward(&mut self, role: Role, iteration: u32, fresh: bool) {
        if iteration != self.iteration {
            self.numbers.clear();
            if fresh {
                self.tries = 0;
            }
        }
        self.role = role;
        self.iteration = iteration;
    }

    /// Whether this end is among those that may follow.
    pub fn may_end(&self, outcome: Outcome) -> bool {
        self.may.contains(&May::End(outcome))
    }

    /// Whether its own time is up.
    pub fn timed_out(&self, outcome: Outcome, now: Time) -> bool {
        outcome == Outcome::Failed(ErrorClass::Timeout) && self.is_late(now)
    }

    pub fn is_late(&self, now: Time) -> bool {
        self.overdue || self.deadline.is_some_and(|due| due <= now)
    }
}
