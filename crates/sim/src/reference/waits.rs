//! Gates, waits and holds: who answers, and what becomes of those that nobody answers.

use serde_json::{Value, json};
use skein_core::{
    engine::Decision,
    ir::{ErrorClass, Gate, GateTimeout, HoldReason, Wait, WaitTimeout},
};

use super::{
    Ending, Eval, Fault, Race,
    frame::{End, Frame, Log, Stop, Visit},
};
use crate::outcome::{Asked, actors};

/// What became of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Released,
    Rejected,
    /// Nobody of any level answered in time.
    Late,
    ForEver,
}

impl<'a> Eval<'a> {
    /// Asks as the `nth` opening of a visit.
    pub(super) fn hold(
        &self,
        frame: &Frame<'_, 'a>,
        step: u32,
        nth: u32,
        reason: HoldReason,
        timed: bool,
    ) -> Hold {
        let asked = self.asked(frame, step, nth);
        let levels = &frame.entry(self).step(step).policy.escalation;
        let governed = reason == HoldReason::Governance;
        let climbs = !levels.is_empty() && levels.iter().all(|level| level.timeout.is_some());
        match self.world.answer(&asked).map(|answer| answer.decision) {
            Some(Decision::Approve) => Hold::Released,
            Some(Decision::Reject) => Hold::Rejected,
            None if governed && climbs => Hold::Late,
            None if timed && !governed => Hold::Released,
            None => Hold::ForEver,
        }
    }

    fn asked<'f>(&self, frame: &'f Frame<'_, 'a>, step: u32, nth: u32) -> Asked<'f>
    where
        'a: 'f,
    {
        let visit = frame.steps.borrow()[step as usize].visits;
        Asked { path: &frame.name.identity, step: frame.entry(self).step(step).id.as_str(), visit, nth }
    }

    pub(super) fn gate(&mut self, frame: &Frame<'_, 'a>, step: u32, gate: &Gate) -> Result<Visit<'a>, Race> {
        let answer = self.world.answer(&self.asked(frame, step, 1));
        let Some(answer) = answer else { return self.gate_timeout(frame, gate) };
        let people = actors(&gate.approvers, gate.quorum);
        let by = people.last().map(|last| last.name.clone()).unwrap_or_default();
        Ok(Visit::Ended(self.decided(frame, gate, answer.decision, answer.reason.into(), &by)))
    }

    fn decided(
        &self,
        frame: &Frame<'_, 'a>,
        gate: &Gate,
        decision: Decision,
        reason: Value,
        by: &str,
    ) -> End<'a> {
        let word = if decision == Decision::Approve { "approve" } else { "reject" };
        let output = json!({"decision": word, "reason": reason, "approver": by});
        let entry = frame.entry(self);
        match (decision, &gate.on_approve, &gate.on_reject) {
            (Decision::Approve, target, _) => {
                End { route: target.as_ref().map(|target| entry.target(target)), ..End::with(output) }
            }
            (Decision::Reject, _, Some(target)) => {
                End { route: Some(entry.target(target)), ..End::with(output) }
            }
            (Decision::Reject, _, None) => End { unclear: true, ..End::of(Ending::Rejected) },
        }
    }

    fn gate_timeout(&mut self, frame: &Frame<'_, 'a>, gate: &Gate) -> Result<Visit<'a>, Race> {
        if gate.timeout.is_none() {
            return Ok(Visit::Waiting);
        }
        let entry = frame.entry(self);
        let late = |decision| {
            // The rules do not give a reason for what a timeout decides.
            let end = self.decided(frame, gate, decision, super::ANYTHING.into(), "system:timeout");
            Visit::Ended(End { unclear: end.ending != Ending::Succeeded, ..end })
        };
        Ok(match &gate.on_timeout {
            GateTimeout::Expire => Visit::Ended(timed_out()),
            GateTimeout::Reject => late(Decision::Reject),
            GateTimeout::Approve => late(Decision::Approve),
            GateTimeout::Cancel | GateTimeout::Escalate { .. } => cancels(),
            GateTimeout::Go(target) => {
                let end = End::with(Value::Null);
                Visit::Ended(End { route: Some(entry.target(target)), unclear: true, ..end })
            }
        })
    }

    pub(super) fn wait(&mut self, frame: &Frame<'_, 'a>, step: u32, wait: &Wait) -> Result<Visit<'a>, Race> {
        let asked = self.asked(frame, step, 1);
        if let Some(sent) = self.world.signal(&asked, wait) {
            let output = json!({"eventName": sent.name.as_str(), "eventPayload": sent.payload});
            return Ok(Visit::Ended(End::with(output)));
        }
        if wait.timeout.is_none() {
            return Ok(Visit::Waiting);
        }
        let nothing = || End::with(json!({"eventName": null, "eventPayload": null}));
        Ok(match &wait.on_timeout {
            WaitTimeout::Expire => Visit::Ended(timed_out()),
            WaitTimeout::Cancel => cancels(),
            WaitTimeout::Continue => Visit::Ended(nothing()),
            WaitTimeout::Go(target) => {
                Visit::Ended(End { route: Some(frame.entry(self).target(target)), ..nothing() })
            }
        })
    }
}

fn timed_out<'a>() -> End<'a> {
    End::failed(Fault { class: Some(ErrorClass::Timeout), code: None })
}

fn cancels<'a>() -> Visit<'a> {
    Visit::Stops { why: Stop::Cancel, inside: Log::empty(), yielded: false }
}
