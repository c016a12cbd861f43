//! Hold: keeps a step from starting or continuing until a person or a time releases it.

use crate::{
    engine::{
        AttemptMode, BudgetUsage, Event, ExecutionError, NextAction, Refusal, StepAt, Waitpoint, code,
        decide::DecideContext, find_budgets, transitions::StepPhase,
    },
    ir::{ApprovalHold, BudgetMode, ErrorClass, HoldReason},
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
        let approvers = level.map(|level| &level.approvers).or(first.map(|approval| &approval.approvers));
        let (approvers, quorum) = (approvers.cloned().unwrap_or_default(), first.map_or(1, |first| first.quorum));
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
        let message = spent.map_or(message, |usage| usage.renewal_question());
        self.hold_step(at, reason, until, message, NextAction { mode: AttemptMode::Again, ..next });
    }

    /// Returns the nearest spent budget with mode `pause`.
    fn find_pausing_budget(&self, at: StepAt) -> Option<BudgetUsage<'_>> {
        let mut usages = find_budgets(self.plan, self.state, at).into_iter();
        usages.find(|usage| usage.budget.mode == BudgetMode::Pause && usage.is_spent())
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
        let next = self.state.waitpoint(opening).map_or(0, |opening| opening.escalations) as usize + 1;
        match self.step(at).policy.escalation.get(next) {
            Some(level) => {
                let deadline = level.timeout.map(|timeout| self.now.saturating_add(timeout));
                self.emit(Event::Escalated { opening, deadline, approvers: level.approvers.clone() });
            }
            None => {
                let message = "held for governance, and nobody answered before the timeout";
                self.fail_step(at, ExecutionError::timeout(message));
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
}
