//! Gate: opens a gate and applies its timeout.

use std::sync::Arc;

use serde_json::{Value, json};

use super::decision::WaitpointDecision;
use crate::{
    engine::{
        Event, ExecutionError, HaltReason, StepAt, StepOutcome, TIMEOUT_ACTOR, Verdict, Waitpoint, code,
        decide::{DecideContext, StepEnd},
    },
    ir::{GateSpec, GateTimeout, StepKindSpec},
};

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
                return self.fail_step(at, ExecutionError::invalid(code::EXPRESSION, message));
            }
        };
        let message = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
        let shows = Arc::new(if shows.is_empty() { Value::Null } else { Value::Array(shows) });
        let deadline = gate.timeout.map(|timeout| self.now.saturating_add(timeout));
        let (opening, approvers) = (self.next_waitpoint(), gate.approvers.clone());
        let quorum = gate.quorum;
        self.emit(Event::Opened { at, opening, deadline, approvers, quorum, message, shows });
    }

    pub(super) fn gate(&self, at: StepAt) -> &GateSpec {
        let StepKindSpec::Gate(gate) = &self.step(at).kind else { unreachable!("only a gate opens as one") };
        gate
    }

    pub(in crate::engine) fn time_out_gate(&mut self, at: StepAt, opening: Waitpoint) {
        let gate = self.gate(at);
        match &gate.on_timeout {
            GateTimeout::Expire => {
                let message = "nobody decided in time";
                self.fail_step(at, ExecutionError::timeout(message));
            }
            GateTimeout::Reject => self.record_decision(opening, WaitpointDecision::from_timeout(Verdict::Reject)),
            GateTimeout::Approve => self.record_decision(opening, WaitpointDecision::from_timeout(Verdict::Approve)),
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
