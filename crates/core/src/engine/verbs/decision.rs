//! Decision: applies the verdict of a person, or of a timeout, to a gate or a hold.

use std::sync::Arc;

use serde_json::{Value, json};

use super::wait::fit_output;
use crate::{
    engine::{
        DecisionActor, Event, ExecutionError, Refusal, StepAt, StepOutcome, TIMEOUT_ACTOR, Verdict, Waitpoint,
        budget::find_renewed_budgets,
        code,
        decide::{DecideContext, StepEnd},
        state::{WaitpointKind, WaitpointState},
    },
    ir::{Approver, HoldReason},
};

/// A verdict with its actor and reason.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitpointDecision<'a> {
    verdict: Verdict,
    actor: &'a str,
    reason: Option<&'a str>,
}

impl WaitpointDecision<'_> {
    /// Creates the decision that a timeout makes.
    pub(super) fn from_timeout(verdict: Verdict) -> WaitpointDecision<'static> {
        WaitpointDecision { verdict, actor: TIMEOUT_ACTOR, reason: None }
    }

    /// Builds the output of a gate that is decided in this way.
    fn gate_output(self) -> Value {
        let word = match self.verdict {
            Verdict::Approve => "approve",
            Verdict::Reject => "reject",
        };
        json!({"decision": word, "reason": self.reason, "approver": self.actor})
    }
}

impl DecideContext<'_> {
    /// Applies the decision of a person at a gate or a hold.
    pub(in crate::engine) fn answer_waitpoint(
        &mut self,
        opening: Waitpoint,
        verdict: Verdict,
        actor: &DecisionActor,
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
        if self.has_no_approvers(state) || !may_decide(&state.approvers, actor) {
            let step = self.step(state.at).id.to_string();
            let approvers = state.approvers.clone();
            return Err(Refusal::NotAllowed { by: actor.name.clone(), step, approvers });
        }
        let decision = WaitpointDecision { verdict, actor: &actor.name, reason };
        if state.kind == WaitpointKind::Gate {
            self.check_gate_output(state.at, decision)?;
        }
        if verdict == Verdict::Approve && !completes_quorum(state, actor)? {
            let (by, reason) = (actor.name.clone(), reason.map(str::to_owned));
            self.emit(Event::Approved { opening, by, reason });
            return Ok(());
        }
        self.record_decision(opening, decision);
        Ok(())
    }

    /// True if an escalation named no approvers. Without an escalation, an empty list means anyone; after one, it means
    /// nobody.
    fn has_no_approvers(&self, opening: &WaitpointState) -> bool {
        let governed = opening.kind == WaitpointKind::Hold(HoldReason::Governance)
            && !self.step(opening.at).policy.escalation.is_empty();
        opening.approvers.is_empty() && (opening.escalations > 0 || governed)
    }

    /// Refuses a decision whose output does not match the declared outputs of the gate.
    fn check_gate_output(&self, at: StepAt, decision: WaitpointDecision<'_>) -> Result<(), Refusal> {
        // A rejection without a route fails the step, which then has no output.
        if decision.verdict == Verdict::Reject && self.gate(at).on_reject.is_none() {
            return Ok(());
        }
        fit_output(self.step(at), decision.gate_output()).map(drop)
    }

    /// Records the decision of a gate or a hold, by a person or by a timeout, and continues the step.
    pub(super) fn record_decision(&mut self, opening: Waitpoint, decision: WaitpointDecision<'_>) {
        let WaitpointDecision { verdict, actor, reason } = decision;
        let state = self.state.waitpoint(opening).expect("it was looked up");
        let (at, kind) = (state.at, state.kind);
        let renews =
            kind == WaitpointKind::Hold(HoldReason::Budget) && verdict == Verdict::Approve && actor != TIMEOUT_ACTOR;
        let grants = if renews { find_renewed_budgets(self.plan, self.state, at) } else { Vec::new() };
        let (by, reason) = (actor.to_owned(), reason.map(str::to_owned));
        self.emit(Event::Decided { opening, decision: verdict, by, reason, grants });
        match kind {
            WaitpointKind::Hold(_) => self.release_hold(at, decision),
            WaitpointKind::Gate => self.pass_gate(at, decision),
            WaitpointKind::Wait => {}
        }
    }

    fn release_hold(&mut self, at: StepAt, decision: WaitpointDecision<'_>) {
        match decision.verdict {
            Verdict::Approve => {
                let next = self.state.visit_state(at).expect("it is held").next;
                self.emit(Event::StepGoesOn { at, next });
            }
            Verdict::Reject => self.reject_step(at, decision),
        }
    }

    fn pass_gate(&mut self, at: StepAt, decision: WaitpointDecision<'_>) {
        let gate = self.gate(at);
        let target = match decision.verdict {
            Verdict::Approve => gate.on_approve.as_ref(),
            Verdict::Reject => gate.on_reject.as_ref(),
        };
        if decision.verdict == Verdict::Reject && target.is_none() {
            return self.reject_step(at, decision);
        }
        let route = target.map(|target| self.scope_entry(at.0).resolve_target(target).into());
        let output = decision.gate_output();
        let output = fit_output(self.step(at), output.clone()).unwrap_or_else(|_| Arc::new(output));
        self.end_step(at, StepEnd { route, ..StepEnd::from_output(output) });
    }

    fn reject_step(&mut self, at: StepAt, decision: WaitpointDecision<'_>) {
        let reason = decision.reason.map_or(String::new(), |reason| format!(": {reason}"));
        let message = format!("rejected by {}{reason}", decision.actor);
        let error = ExecutionError::non_retryable(code::REJECTED, message);
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

/// True if the approval of this person completes the quorum. The same person cannot approve twice.
fn completes_quorum(waitpoint: &WaitpointState, actor: &DecisionActor) -> Result<bool, Refusal> {
    let given = u32::try_from(waitpoint.approvals.len()).unwrap_or(u32::MAX);
    match waitpoint.approvals.iter().find(|(name, _)| *name == actor.name) {
        Some((by, at)) => {
            let (by, quorum) = (by.clone(), waitpoint.quorum);
            Err(Refusal::ApprovedAlready { by, at: *at, given, quorum })
        }
        None => Ok(given.saturating_add(1) >= waitpoint.quorum),
    }
}
