//! Halts and ends of instances.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{CursorRoute, HaltReason, InstanceEnd, InstanceIx, StepAt, UndoWalk},
    ir::{
        GateTimeout, OutcomeAction, RunImpact as Worst, RunStatus, ScopeShape, SiblingPolicy, Step, StepKindSpec,
        WaitTimeout,
    },
};

use super::{Acceptor, RuleResult, ensure, state::AcceptorStepPhase};

impl Acceptor {
    /// True if a stopped instance lets its running steps finish.
    pub(super) fn is_draining(&self, ix: InstanceIx) -> bool {
        let inst = &self.instances[ix.0 as usize];
        let failed = inst.halts.iter().all(|halt| matches!(halt, HaltReason::Failed { .. }));
        (inst.is_halted() || inst.must_halt.is_some())
            && failed
            && self.scope_entry(ix).scope.siblings == SiblingPolicy::Drain
    }

    /// True if this instance or an enclosing one has been halted.
    pub(super) fn is_halted_around(&self, ix: InstanceIx) -> RuleResult<bool> {
        let inst = self.instance(ix)?;
        match inst.parent {
            _ if inst.is_halted() => Ok(true),
            Some(parent) => self.is_halted_around(parent.0),
            None => Ok(false),
        }
    }

    /// True if the deadline of an enclosing step or workflow has passed.
    fn is_overdue_around(&self, ix: InstanceIx) -> RuleResult<bool> {
        let Some(parent) = self.instance(ix)?.parent else { return Ok(false) };
        let late = self.step_state(parent)?.is_late(self.now)
            || self.instance(parent.0)?.deadline.is_some_and(|due| due <= self.now);
        Ok(late || self.is_overdue_around(parent.0)?)
    }

    pub(super) fn accept_instance_halted(&mut self, ix: InstanceIx, why: &HaltReason, undo: bool) -> RuleResult {
        let now = self.now;
        let inst = self.instance(ix)?;
        ensure!(inst.ended.is_none(), "the instance has ended");
        ensure!(!inst.began_undo, "the instance has begun to undo");
        let first = inst.halts.is_empty();
        let policy = self.plan.definition.workflow_containing(inst.scope).workflow.scope.undo.clone();
        let home = inst.home == ix;
        match why {
            HaltReason::Failed { step } => {
                ensure!(first, "the instance is halted already");
                let effect = self.step_state(StepAt(ix, *step))?.effect;
                let asks = effect.map(|effect| effect.then);
                ensure!(asks.is_some_and(|then| then != OutcomeAction::GoOn), "that step does not halt the instance");
                ensure!(
                    !home || undo == (asks == Some(OutcomeAction::Undo)),
                    "the undo flag contradicts the step's effect"
                );
            }
            HaltReason::TimedOut => {
                let around = self.is_overdue_around(ix)?;
                ensure!(around || inst.deadline.is_some_and(|due| due <= now), "its deadline has not passed");
                ensure!(!home || !first || undo == policy.on_timeout, "the undo flag contradicts the policy");
            }
            HaltReason::Cancelled { .. } => {
                ensure!(self.may_cancel(ix), "nothing requests a cancel");
                ensure!(!home || !first || undo == policy.on_cancel, "the undo flag contradicts the policy");
            }
            HaltReason::Outer => ensure!(self.may_stop(ix)?, "no outer instance stopped"),
            HaltReason::Limit { .. } => {
                let most = self.plan.definition.workflow_containing(inst.scope).workflow.scope.max_steps;
                ensure!(home && most.is_some_and(|most| inst.executed >= most), "the limit is not reached");
                ensure!(!first || undo == policy.on_timeout, "the undo flag contradicts the policy");
            }
        }
        let inst = self.instance_mut(ix)?;
        inst.halts.push(why.clone());
        inst.undo_asked |= undo;
        inst.must_halt = None;
        Ok(())
    }

    /// True if a cancel was requested, or a gate or wait in the same workflow is past its deadline and cancels on
    /// timeout.
    fn may_cancel(&self, ix: InstanceIx) -> bool {
        let late = |open: &super::state::AcceptorWaitpoint| {
            self.instance(open.at.0).is_ok_and(|inst| inst.home == ix)
                && open.deadline.is_some_and(|due| due <= self.now)
                && self.step_definition(open.at).is_ok_and(cancels_on_timeout)
        };
        self.cancel_asked || self.openings.iter().any(late)
    }

    fn may_stop(&self, ix: InstanceIx) -> RuleResult<bool> {
        let Some(parent) = self.instance(ix)?.parent else { return Ok(false) };
        let around = self.instance(parent.0)?;
        let st = self.step_state(parent)?;
        let failed = |child: &InstanceIx| {
            self.instances[child.0 as usize].ended.as_ref().is_some_and(|end| end.status != RunStatus::Succeeded)
        };
        let late = st.is_late(self.now);
        Ok(around.is_halted() || around.must_halt.is_some() || late || st.children.iter().any(failed))
    }

    pub(super) fn accept_instance_ended(&mut self, ix: InstanceIx, end: &InstanceEnd) -> RuleResult {
        let inst = self.instance(ix)?;
        // A retried undo walk ends the instance again.
        ensure!(inst.ended.is_none() || self.status.is_some(), "the instance has ended already");
        self.may_be_over(ix)?;
        self.check_instance_end(ix, end.status, &end.output, end.degraded)?;
        let events = self.events;
        let inst = self.instance_mut(ix)?;
        inst.ended = Some(end.clone());
        inst.ended_as = events;
        Ok(())
    }

    /// Checks that nothing in an instance is live, and that it reached its end or was stopped.
    pub(super) fn may_be_over(&self, ix: InstanceIx) -> RuleResult {
        let inst = self.instance(ix)?;
        ensure!(inst.must_halt.is_none(), "the instance must be halted first");
        for (i, st) in inst.steps.iter().enumerate() {
            let over = !st.is_live() || (inst.is_halted() && st.is_unstarted());
            ensure!(over, "step {i} is still {:?}", st.at);
        }
        if !inst.is_halted() {
            match self.scope_entry(ix).scope.shape {
                ScopeShape::Routed { .. } => {
                    ensure!(inst.cursor == Some(CursorRoute::End), "the cursor is not at the end")
                }
                ScopeShape::Graph => {
                    let open = inst.steps.iter().position(|st| st.at != AcceptorStepPhase::Over);
                    ensure!(open.is_none(), "step {open:?} has not ended");
                }
            }
        }
        if inst.home == ix && inst.undo_asked {
            let walk = self.walks.get(&UndoWalk::Workflow(ix));
            let left = self.undo_targets_in(ix);
            ensure!(walk.is_some_and(|walk| walk.over) || left.is_empty(), "completed steps must be undone first");
        }
        Ok(())
    }

    /// Checks that a status follows from the history of the instance.
    pub(super) fn check_instance_end(
        &self,
        ix: InstanceIx,
        status: RunStatus,
        output: &Value,
        degraded: bool,
    ) -> RuleResult {
        let inst = self.instance(ix)?;
        let walk = self.walks.get(&UndoWalk::Workflow(ix));
        let (undone, stuck) = self.undo_result(ix);
        let plain = match inst.halts.first() {
            None => return self.check_unhalted_end(ix, status, output, degraded),
            Some(HaltReason::Failed { .. } | HaltReason::Limit { .. }) => RunStatus::Failed,
            Some(HaltReason::TimedOut) => RunStatus::TimedOut,
            Some(HaltReason::Cancelled { .. } | HaltReason::Outer) => RunStatus::Cancelled,
        };
        // After several halts for different reasons, any of the reasons may determine the status.
        let several = inst.halts.len() > 1;
        let right = match plain {
            _ if stuck => status == RunStatus::UndoFailed,
            RunStatus::Cancelled if inst.home == ix => status == RunStatus::Cancelled || several,
            RunStatus::Cancelled => status != RunStatus::Succeeded,
            _ if walk.is_some() && undone && inst.undo_asked => status == RunStatus::Undone || several,
            plain => status == plain || several,
        };
        ensure!(right && status != RunStatus::Succeeded, "it cannot end as {status}");
        Ok(())
    }

    fn check_unhalted_end(&self, ix: InstanceIx, status: RunStatus, output: &Value, degraded: bool) -> RuleResult {
        let inst = self.instance(ix)?;
        let scope = Arc::clone(&self.scope_entry(ix).scope);
        let failed = if self.undo_result(ix).1 { RunStatus::UndoFailed } else { RunStatus::Failed };
        if inst.worst == Worst::Failed {
            ensure!(status == failed, "a step failed it, but it ends as {status}");
            return Ok(());
        }
        let gives = match &scope.result {
            Some(result) => self.evaluate_expr(ix, result),
            None => Ok(inst.last_output.clone()),
        };
        match gives {
            Ok(gives) if scope.outputs.check(&gives).is_ok() => {
                ensure!(status == RunStatus::Succeeded, "nothing failed it, but it ends as {status}");
                ensure!(gives == *output, "its output should be {gives}, not {output}");
                ensure!(degraded == (inst.worst == Worst::Degraded), "the degraded flag does not match its steps");
            }
            _ => ensure!(status == failed, "its output is invalid, but it ends as {status}"),
        }
        Ok(())
    }

    /// True if the run waits for a named thing: a decision, a signal, a time, or a running worker.
    pub(super) fn waits_for_something(&self) -> bool {
        self.instances.iter().filter(|inst| inst.ended.is_none()).flat_map(|inst| &inst.steps).any(|st| {
            matches!(
                st.at,
                AcceptorStepPhase::Held(_)
                    | AcceptorStepPhase::Open(_)
                    | AcceptorStepPhase::Working
                    | AcceptorStepPhase::Retrying(_)
                    | AcceptorStepPhase::Ready
            )
        }) || self.walks.values().any(|walk| walk.live.is_some())
    }

    /// Checks that a step may end as cancelled: an enclosing instance stopped, or the step cancels its workflow itself.
    pub(super) fn may_end_cancelled(&self, at: StepAt) -> RuleResult {
        ensure!(self.step_state(at)?.is_live(), "it has not started");
        let own = self.may_cancel(self.instance(at.0)?.home);
        ensure!(own || self.check_going(at.0).is_err(), "no outer instance stopped");
        Ok(())
    }
}

fn cancels_on_timeout(step: &Step) -> bool {
    match &step.kind {
        StepKindSpec::Gate(gate) => {
            matches!(gate.on_timeout, GateTimeout::Cancel | GateTimeout::Escalate { .. })
        }
        StepKindSpec::Wait(wait) => wait.on_timeout == WaitTimeout::Cancel,
        _ => false,
    }
}
