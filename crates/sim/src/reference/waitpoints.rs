//! Gates, waits and holds: their answers, and their results without an answer.

use serde_json::{Value, json};
use skein_core::{
    engine::Verdict,
    ir::{ErrorClass, GateSpec, GateTimeout, HoldReason, WaitSpec, WaitTimeout},
};

use super::{
    ModelEvaluator, ModelFailure, ModelOutcome, RaceResult,
    frame::{CompletionLog, ModelFrame, ModelStopReason, ModelVisitEnd, ModelVisitResult},
};
use crate::outcome::{WaitpointIdentity, allowed_actors};

/// The result of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelHoldResult {
    Released,
    Rejected,
    /// No level answered in time.
    Late,
    ForEver,
}

impl<'a> ModelEvaluator<'a> {
    /// Evaluates a hold as the `nth` waitpoint of a visit.
    pub(super) fn evaluate_hold(
        &self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        nth: u32,
        reason: HoldReason,
        timed: bool,
    ) -> ModelHoldResult {
        let asked = self.waitpoint_identity(frame, step, nth);
        let levels = &frame.scope_entry(self).step(step).policy.escalation;
        let governed = reason == HoldReason::Governance;
        let climbs = !levels.is_empty() && levels.iter().all(|level| level.timeout.is_some());
        match self.world.waitpoint_decision(&asked).map(|answer| answer.decision) {
            Some(Verdict::Approve) => ModelHoldResult::Released,
            Some(Verdict::Reject) => ModelHoldResult::Rejected,
            None if governed && climbs => ModelHoldResult::Late,
            None if timed && !governed => ModelHoldResult::Released,
            None => ModelHoldResult::ForEver,
        }
    }

    fn waitpoint_identity<'f>(&self, frame: &'f ModelFrame<'_, 'a>, step: u32, nth: u32) -> WaitpointIdentity<'f>
    where
        'a: 'f,
    {
        let visit = frame.steps.borrow()[step as usize].visits;
        WaitpointIdentity {
            path: &frame.name.identity,
            step: frame.scope_entry(self).step(step).id.as_str(),
            visit,
            nth,
        }
    }

    pub(super) fn evaluate_gate(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        gate: &GateSpec,
    ) -> RaceResult<ModelVisitResult<'a>> {
        let answer = self.world.waitpoint_decision(&self.waitpoint_identity(frame, step, 1));
        let Some(answer) = answer else { return self.evaluate_gate_timeout(frame, gate) };
        let people = allowed_actors(&gate.approvers, gate.quorum);
        let by = people.last().map(|last| last.name.clone()).unwrap_or_default();
        Ok(ModelVisitResult::Ended(self.end_decided_gate(frame, gate, answer.decision, answer.reason.into(), &by)))
    }

    fn end_decided_gate(
        &self,
        frame: &ModelFrame<'_, 'a>,
        gate: &GateSpec,
        decision: Verdict,
        reason: Value,
        by: &str,
    ) -> ModelVisitEnd<'a> {
        let word = if decision == Verdict::Approve { "approve" } else { "reject" };
        let output = json!({"decision": word, "reason": reason, "approver": by});
        let entry = frame.scope_entry(self);
        match (decision, &gate.on_approve, &gate.on_reject) {
            (Verdict::Approve, target, _) => ModelVisitEnd {
                route: target.as_ref().map(|target| entry.resolve_target(target)),
                ..ModelVisitEnd::from_output(output)
            },
            (Verdict::Reject, _, Some(target)) => {
                ModelVisitEnd { route: Some(entry.resolve_target(target)), ..ModelVisitEnd::from_output(output) }
            }
            (Verdict::Reject, _, None) => ModelVisitEnd { unclear: true, ..ModelVisitEnd::new(ModelOutcome::Rejected) },
        }
    }

    fn evaluate_gate_timeout(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        gate: &GateSpec,
    ) -> RaceResult<ModelVisitResult<'a>> {
        if gate.timeout.is_none() {
            return Ok(ModelVisitResult::Waiting);
        }
        let entry = frame.scope_entry(self);
        let late = |decision| {
            // The rules define no reason for a decision by timeout.
            let end = self.end_decided_gate(frame, gate, decision, super::ANYTHING.into(), "system:timeout");
            ModelVisitResult::Ended(ModelVisitEnd { unclear: end.ending != ModelOutcome::Succeeded, ..end })
        };
        Ok(match &gate.on_timeout {
            GateTimeout::Expire => ModelVisitResult::Ended(timed_out_end()),
            GateTimeout::Reject => late(Verdict::Reject),
            GateTimeout::Approve => late(Verdict::Approve),
            GateTimeout::Cancel | GateTimeout::Escalate { .. } => cancelling_visit(),
            GateTimeout::Go(target) => {
                let end = ModelVisitEnd::from_output(Value::Null);
                ModelVisitResult::Ended(ModelVisitEnd {
                    route: Some(entry.resolve_target(target)),
                    unclear: true,
                    ..end
                })
            }
        })
    }

    pub(super) fn evaluate_wait(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        wait: &WaitSpec,
    ) -> RaceResult<ModelVisitResult<'a>> {
        let asked = self.waitpoint_identity(frame, step, 1);
        if let Some(sent) = self.world.wait_signal(&asked, wait) {
            let output = json!({"eventName": sent.name.as_str(), "eventPayload": sent.payload});
            return Ok(ModelVisitResult::Ended(ModelVisitEnd::from_output(output)));
        }
        if wait.timeout.is_none() {
            return Ok(ModelVisitResult::Waiting);
        }
        let nothing = || ModelVisitEnd::from_output(json!({"eventName": null, "eventPayload": null}));
        Ok(match &wait.on_timeout {
            WaitTimeout::Expire => ModelVisitResult::Ended(timed_out_end()),
            WaitTimeout::Cancel => cancelling_visit(),
            WaitTimeout::Continue => ModelVisitResult::Ended(nothing()),
            WaitTimeout::Go(target) => ModelVisitResult::Ended(ModelVisitEnd {
                route: Some(frame.scope_entry(self).resolve_target(target)),
                ..nothing()
            }),
        })
    }
}

fn timed_out_end<'a>() -> ModelVisitEnd<'a> {
    ModelVisitEnd::from_failure(ModelFailure { class: Some(ErrorClass::Timeout), code: None })
}

fn cancelling_visit<'a>() -> ModelVisitResult<'a> {
    ModelVisitResult::Stops { why: ModelStopReason::Cancel, inside: CompletionLog::empty(), yielded: false }
}
