//! Hold: a step is kept from starting or continuing until someone or some time releases it.

use crate::{
    engine::{
        Actor, Decision as Answer, Error, Event, Mode, Onward, Opening, Outcome, Refusal, StepAt, code,
        decide::{Decision, End},
        state::OpeningKind,
        transitions::Phase,
    },
    ir::{Approver, ErrorClass, HoldReason},
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
        let approvers = match &self.step(at).policy.approval {
            Some(approval) if reason == HoldReason::Approval => approval.approvers.clone(),
            _ => Vec::new(),
        };
        let opening = self.next_opening();
        self.emit(Event::StepHeld { at, opening, reason, until, message, approvers, next });
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
        self.hold(at, reason, until, message, Onward { mode: Mode::Again, ..next });
    }

    /// Asks a person before the first attempt.
    pub(in crate::engine) fn ask_approval(&mut self, at: StepAt) {
        let message = "it may start only when a person says so".to_owned();
        self.hold(at, HoldReason::Approval, None, message, Onward::FIRST);
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
        if !may_decide(&state.approvers, by) {
            return Err(Refusal::NotAllowed { approvers: state.approvers.clone() });
        }
        self.decided(opening, decision, &by.name, reason);
        Ok(())
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
        self.emit(Event::Decided { opening, decision, by: by.clone(), reason: reason.clone() });
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
