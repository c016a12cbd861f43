//! Gate: opens a gate and applies the decision or the timeout.

use std::sync::Arc;

use serde_json::{Value, json};

use super::wait::fit_output;
use crate::{
    engine::{
        Event, ExecutionError, HaltReason, Refusal, StepAt, StepOutcome, Verdict as Answer, Waitpoint, code,
        decide::{DecideContext, StepEnd},
    },
    ir::{ErrorClass, GateSpec, GateTimeout, StepKindSpec},
};

/// The name of the actor in decisions that a timeout makes.
pub(super) const TIMEOUT_ACTOR: &str = "system:timeout";

impl DecideContext<'_> {
    pub(in crate::engine) fn open_gate(&mut self, at: StepAt, gate: &GateSpec) {
        let env = self.env(at.0);
        let shown = gate.message.eval(&env).and_then(|message| {
            let shows: Result<Vec<Value>, _> = gate.shows.iter().map(|expr| expr.eval(&env)).collect();
            Ok((message, shows?))
        });
        let (message, shows) = match shown {
            Ok(shown) => shown,
            Err(error) => {
                let message = format!("the values that it shows cannot be evaluated: {error}");
                return self
                    .fail_step(at, ExecutionError::new(ErrorClass::Validation, code::EXPRESSION, message));
            }
        };
        let message = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
        let shows = Arc::new(if shows.is_empty() { Value::Null } else { Value::Array(shows) });
        let deadline = gate.timeout.map(|timeout| self.now.saturating_add(timeout));
        let (opening, approvers) = (self.next_waitpoint(), gate.approvers.clone());
        let quorum = gate.quorum;
        self.emit(Event::Opened { at, opening, deadline, approvers, quorum, message, shows });
    }

    fn gate(&self, at: StepAt) -> &GateSpec {
        let StepKindSpec::Gate(gate) = &self.step(at).kind else { unreachable!("only a gate opens as one") };
        gate
    }

    pub(in crate::engine) fn pass_gate(
        &mut self,
        at: StepAt,
        decision: Answer,
        by: &str,
        reason: Option<&str>,
    ) {
        let gate = self.gate(at);
        let target = match decision {
            Answer::Approve => gate.on_approve.as_ref(),
            Answer::Reject => gate.on_reject.as_ref(),
        };
        if decision == Answer::Reject && target.is_none() {
            return self.reject_step(at, by, reason);
        }
        let route = target.map(|target| self.scope_entry(at.0).resolve_target(target).into());
        let output = decision_output(decision, by, reason);
        let output = fit_output(self.step(at), output.clone()).unwrap_or_else(|_| Arc::new(output));
        self.end_step(at, StepEnd { route, ..StepEnd::from_output(output) });
    }

    /// Refuses a decision whose output does not match the declared outputs of the gate.
    pub(in crate::engine) fn check_decision(
        &self,
        at: StepAt,
        decision: Answer,
        by: &str,
        reason: Option<&str>,
    ) -> Result<(), Refusal> {
        // A rejection without a route fails the step, which then has no output.
        if decision == Answer::Reject && self.gate(at).on_reject.is_none() {
            return Ok(());
        }
        fit_output(self.step(at), decision_output(decision, by, reason)).map(drop)
    }

    pub(in crate::engine) fn time_out_gate(&mut self, at: StepAt, opening: Waitpoint) {
        let gate = self.gate(at);
        match &gate.on_timeout {
            GateTimeout::Expire => {
                let message = "nobody decided in time";
                self.fail_step(at, ExecutionError::new(ErrorClass::Timeout, code::TIMEOUT, message));
            }
            GateTimeout::Reject => self.record_decision(opening, Answer::Reject, TIMEOUT_ACTOR, None),
            GateTimeout::Approve => self.record_decision(opening, Answer::Approve, TIMEOUT_ACTOR, None),
            GateTimeout::Cancel => self.cancel_workflow(at),
            GateTimeout::Go(target) => {
                let route = Some(self.scope_entry(at.0).resolve_target(target).into());
                let output = Arc::new(json!({"decision": null, "reason": null, "approver": TIMEOUT_ACTOR}));
                self.end_step(at, StepEnd { route, ..StepEnd::from_output(output) });
            }
            GateTimeout::Escalate { .. } => {
                let approvers = gate.escalation_approvers().unwrap_or_default().to_vec();
                let escalated = self.state.waitpoint(opening).is_some_and(|opening| opening.escalations > 0);
                match gate.timeout.filter(|_| !escalated) {
                    Some(timeout) => {
                        let deadline = Some(self.now.saturating_add(timeout));
                        self.emit(Event::Escalated { opening, deadline, approvers });
                    }
                    None => self.cancel_workflow(at),
                }
            }
        }
    }

    /// Cancels the workflow that a step belongs to.
    pub(in crate::engine) fn cancel_workflow(&mut self, at: StepAt) {
        // The step ends first, so that none of its deadlines can fire again.
        self.end_step(at, StepEnd::from_outcome(StepOutcome::Cancelled));
        let home = self.state.instance(at.0).home;
        let undo = self.scope_entry(home).scope.undo.on_cancel;
        self.halt_instance(home, HaltReason::Cancelled { by: TIMEOUT_ACTOR.to_owned() }, undo);
    }
}

/// The output of a gate that was decided.
fn decision_output(decision: Answer, by: &str, reason: Option<&str>) -> Value {
    let word = match decision {
        Answer::Approve => "approve",
        Answer::Reject => "reject",
    };
    json!({"decision": word, "reason": reason, "approver": by})
}
