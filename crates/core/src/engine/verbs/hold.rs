//! Hold: keeps a step from starting or continuing until a person or a time releases it.

use super::gate::TIMEOUT_ACTOR;
use crate::{
    engine::{
        AttemptMode, BudgetUsage, DecisionActor, Event, ExecutionError, NextAction, Refusal, StepAt,
        StepOutcome, Verdict as Answer, Waitpoint,
        budget::find_renewed_budgets,
        code,
        decide::{DecideContext, StepEnd},
        find_budgets,
        state::{WaitpointKind, WaitpointState},
        transitions::StepPhase,
    },
    ir::{ApprovalHold, Approver, BudgetMode, ErrorClass, HoldReason},
    time::Timestamp,
};

impl DecideContext<'_> {
    pub(in crate::engine) fn hold_step(
        &mut self,
        at: StepAt,
        reason: HoldReason,
        until: Option<Timestamp>,
        message: String,
        next: NextAction,
    ) {
        let policy = &self.step(at).policy;
        let first = policy.approval.as_ref().filter(|approval| approval.reason() == reason);
        let governed = reason == HoldReason::Governance;
        let level = policy.escalation.first().filter(|_| governed);
        let asked = level.map(|level| &level.approvers).or(first.map(|approval| &approval.approvers));
        let (approvers, quorum) = (asked.cloned().unwrap_or_default(), first.map_or(1, |first| first.quorum));
        // A governance hold is never released by time; its deadline escalates it.
        let until = match governed {
            true => level.and_then(|level| level.timeout).map(|timeout| self.now.saturating_add(timeout)),
            false => until,
        };
        let opening = self.next_waitpoint();
        self.emit(Event::StepHeld { at, opening, reason, until, message, approvers, quorum, next });
    }

    pub(in crate::engine) fn next_waitpoint(&self) -> Waitpoint {
        Waitpoint(u32::try_from(self.state.openings.len()).expect("waitpoints are limited by events"))
    }

    /// Holds a step and repeats the same attempt after the release.
    pub(in crate::engine) fn hold_again(
        &mut self,
        at: StepAt,
        reason: HoldReason,
        until: Option<Timestamp>,
        message: String,
    ) {
        let next = self.state.visit_state(at).expect("an attempt ended").next;
        let spent = (reason == HoldReason::Budget).then(|| self.find_pausing_budget(at)).flatten();
        let message = spent.map_or(message, |purse| purse.renewal_question());
        self.hold_step(at, reason, until, message, NextAction { mode: AttemptMode::Again, ..next });
    }

    /// Returns the nearest spent budget with mode `pause`.
    fn find_pausing_budget(&self, at: StepAt) -> Option<BudgetUsage<'_>> {
        let mut purses = find_budgets(self.plan, self.state, at).into_iter();
        purses.find(|purse| purse.budget.mode == BudgetMode::Pause && purse.is_spent())
    }

    /// Holds a step for approval before its first attempt.
    pub(in crate::engine) fn hold_for_approval(&mut self, at: StepAt, approval: &ApprovalHold) {
        let message = match approval.message.as_str() {
            "" => "approval is required before it starts",
            message => message,
        };
        self.hold_step(at, approval.reason(), None, message.to_owned(), NextAction::FIRST);
    }

    /// Fails a step that policy denies. If the step holds governance errors, it is held instead, and its approvers can
    /// release it.
    pub(in crate::engine) fn deny_start(&mut self, at: StepAt, why: &str) {
        let error = ExecutionError::new(ErrorClass::Governance, code::POLICY_DENIED, why);
        match self.step(at).policy.holds.get(&error.class) {
            Some(reason) => self.hold_step(at, *reason, None, error.message, NextAction::FIRST),
            None => self.fail_step(at, error),
        }
    }

    /// Escalates a hold to the next level after a timeout, or fails the step after the last level.
    pub(in crate::engine) fn escalate_hold(&mut self, at: StepAt, opening: Waitpoint) {
        let asked = self.state.waitpoint(opening).map_or(0, |opening| opening.escalations) as usize + 1;
        match self.step(at).policy.escalation.get(asked) {
            Some(level) => {
                let deadline = level.timeout.map(|timeout| self.now.saturating_add(timeout));
                self.emit(Event::Escalated { opening, deadline, approvers: level.approvers.clone() });
            }
            None => {
                let message = "held for governance, and nobody answered before the timeout";
                self.fail_step(at, ExecutionError::new(ErrorClass::Timeout, code::TIMEOUT, message));
            }
        }
    }

    /// Holds a ready step at the request of the host.
    pub(in crate::engine) fn hold_ready_step(
        &mut self,
        at: StepAt,
        reason: HoldReason,
        until: Option<Timestamp>,
        message: &str,
    ) -> Result<(), Refusal> {
        let step = self.state.find_step(at).ok_or(Refusal::UnknownStep)?;
        match (&step.more, step.phase) {
            (Some(more), StepPhase::Ready) => {
                let next = more.next;
                self.hold_step(at, reason, until, message.to_owned(), next);
                Ok(())
            }
            _ => Err(Refusal::NotReady),
        }
    }

    /// Applies the decision of a person at a gate or a hold.
    pub(in crate::engine) fn answer_waitpoint(
        &mut self,
        opening: Waitpoint,
        decision: Answer,
        by: &DecisionActor,
        reason: Option<&str>,
    ) -> Result<(), Refusal> {
        let state = self.state.waitpoint(opening).ok_or(Refusal::UnknownOpening)?;
        if let Some((by, at)) = &state.decided {
            return Err(Refusal::AlreadyDecided { by: by.clone(), at: *at });
        }
        if state.kind == WaitpointKind::Wait {
            return Err(Refusal::NotADecision);
        }
        if state.closed {
            return Err(Refusal::NotOpen);
        }
        if self.asks_nobody(state) || !may_decide(&state.approvers, by) {
            let step = self.step(state.at).id.to_string();
            let approvers = state.approvers.clone();
            return Err(Refusal::NotAllowed { by: by.name.clone(), step, approvers });
        }
        if state.kind == WaitpointKind::Gate {
            self.check_decision(state.at, decision, &by.name, reason)?;
        }
        if decision == Answer::Approve && !self.is_last_approval(opening, by)? {
            let (by, reason) = (by.name.clone(), reason.map(str::to_owned));
            self.emit(Event::Approved { opening, by, reason });
            return Ok(());
        }
        self.record_decision(opening, decision, &by.name, reason);
        Ok(())
    }

    /// True if an escalation named no approvers. Without an escalation, an empty list means anyone; after one, it means
    /// nobody.
    fn asks_nobody(&self, opening: &WaitpointState) -> bool {
        let governed = opening.kind == WaitpointKind::Hold(HoldReason::Governance)
            && !self.step(opening.at).policy.escalation.is_empty();
        opening.approvers.is_empty() && (opening.escalations > 0 || governed)
    }

    /// True if this approval completes the quorum. The same person cannot approve twice.
    fn is_last_approval(&self, opening: Waitpoint, by: &DecisionActor) -> Result<bool, Refusal> {
        let state = self.state.waitpoint(opening).ok_or(Refusal::UnknownOpening)?;
        let given = u32::try_from(state.approvals.len()).unwrap_or(u32::MAX);
        match state.approvals.iter().find(|(who, _)| *who == by.name) {
            Some((by, at)) => {
                let (by, quorum) = (by.clone(), state.quorum);
                Err(Refusal::ApprovedAlready { by, at: *at, given, quorum })
            }
            None => Ok(given.saturating_add(1) >= state.quorum),
        }
    }

    /// Records the decision of a gate or a hold, by a person or by a timeout.
    pub(in crate::engine) fn record_decision(
        &mut self,
        opening: Waitpoint,
        decision: Answer,
        by: &str,
        reason: Option<&str>,
    ) {
        let state = self.state.waitpoint(opening).expect("it was looked up");
        let (at, kind) = (state.at, state.kind);
        let (by, reason) = (by.to_owned(), reason.map(str::to_owned));
        let renews = kind == WaitpointKind::Hold(HoldReason::Budget)
            && decision == Answer::Approve
            && by != TIMEOUT_ACTOR;
        let grants = if renews { find_renewed_budgets(self.plan, self.state, at) } else { Vec::new() };
        self.emit(Event::Decided { opening, decision, by: by.clone(), reason: reason.clone(), grants });
        match kind {
            WaitpointKind::Hold(_) => self.release_hold(at, decision, &by, reason.as_deref()),
            WaitpointKind::Gate => self.pass_gate(at, decision, &by, reason.as_deref()),
            WaitpointKind::Wait => {}
        }
    }

    fn release_hold(&mut self, at: StepAt, decision: Answer, by: &str, reason: Option<&str>) {
        match decision {
            Answer::Approve => {
                let next = self.state.visit_state(at).expect("it is held").next;
                self.emit(Event::StepGoesOn { at, next });
            }
            Answer::Reject => self.reject_step(at, by, reason),
        }
    }

    pub(in crate::engine) fn reject_step(&mut self, at: StepAt, by: &str, reason: Option<&str>) {
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let error =
            ExecutionError::new(ErrorClass::NonRetryable, code::REJECTED, format!("rejected by {by}{why}"));
        self.end_step(at, StepEnd { error: Some(error), ..StepEnd::from_outcome(StepOutcome::Rejected) });
    }
}

fn may_decide(approvers: &[Approver], actor: &DecisionActor) -> bool {
    approvers.is_empty()
        || approvers.iter().any(|approver| match approver {
            Approver::User(user) => *user == actor.name,
            Approver::Role(role) => actor.roles.contains(role),
        })
}
