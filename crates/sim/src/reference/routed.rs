//! Routed scopes: one cursor visits one step after another. No two steps run at the same time.

use serde_json::Value;
use skein_core::{
    ir::{BranchSpec, OutcomeAction, StepKindSpec, StepStatus},
    plan::RouteTargetIx,
};

use super::{
    ModelEvaluator, ModelFailure, ModelOutcome, TimingRace,
    frame::{
        CompletionLog, ModelArrival, ModelFrame, ModelInstanceResult, ModelStopReason, ModelVisitEnd, ModelVisitResult,
        VerdictTally, halts_instance,
    },
};

impl<'a> ModelEvaluator<'a> {
    pub(super) fn evaluate_routed(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
    ) -> Result<ModelInstanceResult<'a>, TimingRace> {
        let entry = frame.scope_entry(self);
        let mut cursor = RouteTargetIx::Step(entry.start);
        let mut tally = VerdictTally::default();
        let mut log = Vec::new();
        let mut last = (Value::Null, false);
        while let RouteTargetIx::Step(step) = cursor {
            let visit = match self.evaluate_arrival(frame, step, true)? {
                ModelArrival::Over(end) => ModelVisitResult::Ended(*end),
                ModelArrival::Ready => self.perform_step(frame, step)?,
                ModelArrival::TooMany => {
                    return Ok(ModelInstanceResult::Stops(ModelStopReason::Limit, CompletionLog::InOrder(log)));
                }
            };
            let mut end = match visit {
                ModelVisitResult::Ended(end) => end,
                ModelVisitResult::Waiting => {
                    frame.set_status(step, StepStatus::Waiting, None);
                    return Ok(ModelInstanceResult::Waiting);
                }
                ModelVisitResult::Stops { why, inside, .. } => {
                    frame.set_status(step, StepStatus::Cancelled, None);
                    log.push(inside);
                    return Ok(ModelInstanceResult::Stops(why, CompletionLog::InOrder(log)));
                }
            };
            let (effect, completed) = self.note_step_end(frame, step, &mut end)?;
            log.push(completed);
            tally.add_end(&end, effect, true);
            if halts_instance(effect) {
                let result = Err(tally.first.unwrap_or_else(ModelFailure::unknown));
                let halted = Some((step, effect.then == OutcomeAction::Undo));
                let log = CompletionLog::InOrder(log);
                return Ok(ModelInstanceResult::Ended { result, degraded: false, log, halted, unclear: false });
            }
            let branch = matches!(entry.step(step).kind, StepKindSpec::Branch(_));
            if end.ending == ModelOutcome::Succeeded && !branch {
                last = (end.output.clone(), end.unclear);
            }
            cursor = self.next_cursor(frame, step, &end, effect.satisfies)?;
        }
        self.conclude_instance(frame, tally, last, CompletionLog::InOrder(log))
    }

    fn next_cursor(
        &self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        end: &ModelVisitEnd<'a>,
        satisfies: bool,
    ) -> Result<RouteTargetIx, TimingRace> {
        let entry = frame.scope_entry(self);
        let branch = matches!(entry.step(step).kind, StepKindSpec::Branch(_));
        match end.route {
            _ if !satisfies => Ok(RouteTargetIx::End),
            Some(next) => Ok(next),
            None if branch => Err(TimingRace("where a failed branch leads")),
            None => Ok(entry.next[step as usize]),
        }
    }

    pub(super) fn evaluate_branch(
        &mut self,
        frame: &ModelFrame<'_, 'a>,
        branch: &BranchSpec,
    ) -> Result<ModelVisitResult<'a>, TimingRace> {
        let entry = frame.scope_entry(self);
        let mut target = &branch.default;
        for arm in &branch.arms {
            match self.evaluate_condition(frame, &arm.when)? {
                Ok(false) => {}
                Ok(true) => {
                    target = &arm.next;
                    break;
                }
                Err(_) => {
                    return Ok(ModelVisitResult::Ended(ModelVisitEnd::from_failure(ModelFailure::validation(
                        "condition",
                    ))));
                }
            }
        }
        Ok(ModelVisitResult::Ended(ModelVisitEnd {
            route: Some(entry.resolve_target(target)),
            ..ModelVisitEnd::from_output(Value::Null)
        }))
    }
}
