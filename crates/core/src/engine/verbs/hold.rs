//! Hold: a step is kept from starting or continuing until someone or some time releases it.

use super::gate::TIME;
use crate::{
    engine::{
        Actor, Decision as Answer, Error, Event, Mode, Onward, Opening, Outcome, Purse, Refusal, StepAt,
        code,
        decide::{Decision, End},
        purse::renewed_by_approval,
        purses,
        state::{OpeningKind, OpeningState},
        transitions::Phase,
    },
    ir::{ApprovalHold, Approver, BudgetMode, ErrorClass, HoldReason},
    time::Time,
};

impl Decision<'_> {
    pub(in crate::engine) fn hold(
        &mut self,
        at: StepAt,
        reason: HoldReason,
        until: Option<Time>,
        message: String,
        next: Onward,
    ) {
        let policy = &self.step(at).policy;
        let first = policy.approval.as_ref().filter(|approval| approval.reason() == reason);
        let governed = reason == HoldReason::Governance;
        let level = policy.escalation.first().filter(|_| governed);
        let asked = level.map(|level| &level.approvers).or(first.map(|approval| &approval.approvers));
        let (approvers, quorum) = (asked.cloned().unwrap_or_default(), first.map_or(1, |first| first.quorum));
        // What governance holds, no time releases: others are asked then.
        let until = match governed {
            true => level.and_then(|level| level.timeout).map(|timeout| self.now.after(timeout)),
            false => until,
        };
        let opening = self.next_opening();
        self.emit(Event::StepHeld { at, opening, reason, until, message, approvers, quorum, next });
    }

    pub(in crate::engine) fn next_opening(&self) -> Opening {
        Opening(u32::try_from(self.state.openings.len()).expect("openings are limited by events"))
    }

    /// Held with the same attempt to come once more.
    pub(in crate::engine) fn hold_again(
        &mut self,
        at: StepAt,
        reason: HoldReason,
        until: Option<Time>,
        message: String,
    ) {
        let next = self.state.more(at).expect("an attempt ended").next;
        let spent = (reason == HoldReason::Budget).then(|| self.spent_pause(at)).flatten();
        let message = spent.map_or(message, |purse| purse.question());
        self.hold(at, reason, until, message, Onward { mode: Mode::Again, ..next });
    }

    /// The nearest budget that is spent and asks a person.
    fn spent_pause(&self, at: StepAt) -> Option<Purse<'_>> {
        let mut purses = purses(self.plan, self.state, at).into_iter();
        purses.find(|purse| purse.budget.mode == BudgetMode::Pause && purse.is_spent())
    }

    /// Asks a person before the first attempt.
    pub(in crate::engine) fn ask_first(&mut self, at: StepAt, approval: &ApprovalHold) {
        let message = match approval.message.as_str() {
            "" => "it may start only when a person says so",
            message => message,
        };
        self.hold(at, approval.reason(), None, message.to_owned(), Onward::FIRST);
    }

    /// It may not start. Where governance holds a step, those who may can let it start all the same.
    pub(in crate::engine) fn deny(&mut self, at: StepAt, why: &str) {
        let error = Error::new(ErrorClass::Governance, code::POLICY_DENIED, why);
        match self.step(at).policy.holds.get(&error.class) {
            Some(reason) => self.hold(at, *reason, None, error.message, Onward::FIRST),
            None => self.fail_step(at, error),
        }
    }

    /// Nobody of a level answered in time: the next one is asked.
    pub(in crate::engine) fn escalate(&mut self, at: StepAt, opening: Opening) {
        let asked = self.state.opening(opening).map_or(0, |opening| opening.escalations) as usize + 1;
        match self.step(at).policy.escalation.get(asked) {
            Some(level) => {
                let deadline = level.timeout.map(|timeout| self.now.after(timeout));
                self.emit(Event::Escalated { opening, deadline, approvers: level.approvers.clone() });
            }
            None => {
                let message = "it is held for governance, and nobody answered in time";
                self.fail_step(at, Error::new(ErrorClass::Timeout, code::TIMEOUT, message));
            }
        }
    }

    /// The host holds a ready step.
    pub(in crate::engine) fn hold_ready(
        &mut self,
        at: StepAt,
        reason: HoldReason,
        until: Option<Time>,
        message: &str,
    ) -> Result<(), Refusal> {
        let step = self.state.find(at).ok_or(Refusal::UnknownStep)?;
        match (&step.more, step.phase) {
            (Some(more), Phase::Ready) => {
                let next = more.next;
                self.hold(at, reason, until, message.to_owned(), next);
                Ok(())
            }
            _ => Err(Refusal::NotReady),
        }
    }

    /// Someone answers a gate or a hold.
    pub(in crate::engine) fn answer(
        &mut self,
        opening: Opening,
        decision: Answer,
        by: &Actor,
        reason: Option<&str>,
    ) -> Result<(), Refusal> {
        let state = self.state.opening(opening).ok_or(Refusal::UnknownOpening)?;
        if let Some((by, at)) = &state.decided {
            return Err(Refusal::AlreadyDecided { by: by.clone(), at: *at });
        }
        if state.kind == OpeningKind::Wait {
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
        if state.kind == OpeningKind::Gate {
            self.check_decision(state.at, decision, &by.name, reason)?;
        }
        if decision == Answer::Approve && !self.is_last(opening, by)? {
            let (by, reason) = (by.name.clone(), reason.map(str::to_owned));
            self.emit(Event::Approved { opening, by, reason });
            return Ok(());
        }
        self.decided(opening, decision, &by.name, reason);
        Ok(())
    }

    /// Returns true if an escalation named no approvers. Before one, an empty list stands for anyone; an escalation opens nothing
    /// to everyone.
    fn asks_nobody(&self, opening: &OpeningState) -> bool {
        let governed = opening.kind == OpeningKind::Hold(HoldReason::Governance)
            && !self.step(opening.at).policy.escalation.is_empty();
        opening.approvers.is_empty() && (opening.escalations > 0 || governed)
    }

    /// Whether this approval is the last that is needed. Nobody gives two.
    fn is_last(&self, opening: Opening, by: &Actor) -> Result<bool, Refusal> {
        let state = self.state.opening(opening).ok_or(Refusal::UnknownOpening)?;
        let given = u32::try_from(state.approvals.len()).unwrap_or(u32::MAX);
        match state.approvals.iter().find(|(who, _)| *who == by.name) {
            Some((by, at)) => {
                let (by, quorum) = (by.clone(), state.quorum);
                Err(Refusal::ApprovedAlready { by, at: *at, given, quorum })
            }
            None => Ok(given.saturating_add(1) >= state.quorum),
        }
    }

    /// A gate or a hold is answered, by a person or by its time.
    pub(in crate::engine) fn decided(
        &mut self,
        opening: Opening,
        decision: Answer,
        by: &str,
        reason: Option<&str>,
    ) {
        let state = self.state.opening(opening).expect("it was looked up");
        let (at, kind) = (state.at, state.kind);
        let (by, reason) = (by.to_owned(), reason.map(str::to_owned));
        let renews =
            kind == OpeningKind::Hold(HoldReason::Budget) && decision == Answer::Approve && by != TIME;
        let grants = if renews { renewed_by_approval(self.plan, self.state, at) } else { Vec::new() };
        self.emit(Event::Decided { opening, decision, by: by.clone(), reason: reason.clone(), grants });
        match kind {
            OpeningKind::Hold(_) => self.release(at, decision, &by, reason.as_deref()),
            OpeningKind::Gate => self.pass_gate(at, decision, &by, reason.as_deref()),
            OpeningKind::Wait => {}
        }
    }

    fn release(&mut self, at: StepAt, decision: Answer, by: &str, reason: Option<&str>) {
        match decision {
            Answer::Approve => {
                let next = self.state.more(at).expect("it is held").next;
                self.emit(Event::StepGoesOn { at, next });
            }
            Answer::Reject => self.rejected(at, by, reason),
        }
    }

    pub(in crate::engine) fn rejected(&mut self, at: StepAt, by: &str, reason: Option<&str>) {
        let why = reason.map_or(String::new(), |reason| format!(": {reason}"));
        let error = Error::new(ErrorClass::NonRetryable, code::REJECTED, format!("rejected by {by}{why}"));
        self.end_step(at, End { error: Some(error), ..End::of(Outcome::Rejected) });
    }
}

fn may_decide(approvers: &[Approver], actor: &Actor) -> bool {
    approvers.is_empty()
        || approvers.iter().any(|approver| match approver {
            Approver::User(user) => *user == actor.name,
            Approver::Role(role) => actor.roles.contains(role),
        })
}
