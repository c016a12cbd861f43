//! Halts and ends of instances.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{CursorRoute, HaltReason, InstanceEnd, InstanceIx, StepAt, UndoWalk},
    ir::{
        GateTimeout, OutcomeAction, RunImpact as Worst, RunStatus, ScopeShape, SiblingPolicy, Step,
        StepKindSpec, WaitTimeout,
    },
};

use super::{AcceptResult, Acceptor, ensure, state::AcceptorStepPhase};

impl Acceptor {
    /// Whether an instance that was stopped lets what is at work come to its end.
    pub(super) fn is_draining(&self, ix: InstanceIx) -> bool {
        let inst = &self.instances[ix.0 as usize];
        let failed = inst.halts.iter().all(|halt| matches!(halt, HaltReason::Failed { .. }));
        (inst.is_halted() || inst.must_halt.is_some())
            && failed
            && self.scope_entry(ix).scope.siblings == SiblingPolicy::Drain
    }

    /// Whether this instance or one around it has been halted.
    pub(super) fn is_halted_around(&self, ix: InstanceIx) -> Result<bool, String> {
        let inst = self.instance(ix)?;
        match inst.parent {
            _ if inst.is_halted() => Ok(true),
            Some(parent) => self.is_halted_around(parent.0),
            None => Ok(false),
        }
    }

    /// Whether a step around this instance, or a workflow around it, is out of time.
    fn is_overdue_around(&self, ix: InstanceIx) -> Result<bool, String> {
        let Some(parent) = self.instance(ix)?.parent else { return Ok(false) };
        let late = self.step_state(parent)?.is_late(self.now)
            || self.instance(parent.0)?.deadline.is_some_and(|due| due <= self.now);
        Ok(late || self.is_overdue_around(parent.0)?)
    }

    pub(super) fn accept_instance_halted(
        &mut self,
        ix: InstanceIx,
        why: &HaltReason,
        undo: bool,
    ) -> AcceptResult {
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
                ensure!(
                    asks.is_some_and(|then| then != OutcomeAction::GoOn),
                    "that step does not halt anything"
                );
                ensure!(
                    !home || undo == (asks == Some(OutcomeAction::Undo)),
                    "whether it is undone is not what was said"
                );
            }
            HaltReason::TimedOut => {
                let around = self.is_overdue_around(ix)?;
                ensure!(around || inst.deadline.is_some_and(|due| due <= now), "its time is not up");
                ensure!(!home || !first || undo == policy.on_timeout, "undo on timeout is not what was said");
            }
            HaltReason::Cancelled { .. } => {
                ensure!(self.may_cancel(ix), "nobody cancels it");
                ensure!(!home || !first || undo == policy.on_cancel, "undo on cancel is not what was said");
            }
            HaltReason::Outer => ensure!(self.may_stop(ix)?, "nothing around it stopped"),
            HaltReason::Limit { .. } => {
                let most = self.plan.definition.workflow_containing(inst.scope).workflow.scope.max_steps;
                ensure!(home && most.is_some_and(|most| inst.executed >= most), "there may be more steps");
                ensure!(!first || undo == policy.on_timeout, "undo at a limit is not what was said");
            }
        }
        let inst = self.instance_mut(ix)?;
        inst.halts.push(why.clone());
        inst.undo_asked |= undo;
        inst.must_halt = None;
        Ok(())
    }

    /// Someone asked for it, or a gate or wait in the same workflow is over its time.
    fn may_cancel(&self, ix: InstanceIx) -> bool {
        let late = |open: &super::state::AcceptorWaitpoint| {
            self.instance(open.at.0).is_ok_and(|inst| inst.home == ix)
                && open.deadline.is_some_and(|due| due <= self.now)
                && self.step_definition(open.at).is_ok_and(cancels_on_timeout)
        };
        self.cancel_asked || self.openings.iter().any(late)
    }

    fn may_stop(&self, ix: InstanceIx) -> Result<bool, String> {
        let Some(parent) = self.instance(ix)?.parent else { return Ok(false) };
        let around = self.instance(parent.0)?;
        let st = self.step_state(parent)?;
        let failed = |child: &InstanceIx| {
            self.instances[child.0 as usize]
                .ended
                .as_ref()
                .is_some_and(|end| end.status != RunStatus::Succeeded)
        };
        let late = st.is_late(self.now);
        Ok(around.is_halted() || around.must_halt.is_some() || late || st.children.iter().any(failed))
    }

    pub(super) fn accept_instance_ended(&mut self, ix: InstanceIx, end: &InstanceEnd) -> AcceptResult {
        let inst = self.instance(ix)?;
        // A walk that is done again ends the instance anew.
        ensure!(inst.ended.is_none() || self.status.is_some(), "the instance has ended already");
        self.may_be_over(ix)?;
        self.check_instance_end(ix, end.status, &end.output, end.degraded)?;
        let events = self.events;
        let inst = self.instance_mut(ix)?;
        inst.ended = Some(end.clone());
        inst.ended_as = events;
        Ok(())
    }

    /// Whether nothing in an instance is live, and it came to its end or was stopped.
    pub(super) fn may_be_over(&self, ix: InstanceIx) -> AcceptResult {
        let inst = self.instance(ix)?;
        ensure!(inst.must_halt.is_none(), "it was to be halted");
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
            ensure!(
                walk.is_some_and(|walk| walk.over) || left.is_empty(),
                "what was completed is to be undone"
            );
        }
        Ok(())
    }

    /// Whether a status follows from what happened.
    pub(super) fn check_instance_end(
        &self,
        ix: InstanceIx,
        status: RunStatus,
        output: &Value,
        degraded: bool,
    ) -> AcceptResult {
        let inst = self.instance(ix)?;
        let walk = self.walks.get(&UndoWalk::Workflow(ix));
        let (undone, stuck) = self.undo_result(ix);
        let plain = match inst.halts.first() {
            None => return self.check_unhalted_end(ix, status, output, degraded),
            Some(HaltReason::Failed { .. } | HaltReason::Limit { .. }) => RunStatus::Failed,
            Some(HaltReason::TimedOut) => RunStatus::TimedOut,
            Some(HaltReason::Cancelled { .. } | HaltReason::Outer) => RunStatus::Cancelled,
        };
        // Halted again for another reason: any of them may show.
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

    fn check_unhalted_end(
        &self,
        ix: InstanceIx,
        status: RunStatus,
        output: &Value,
        degraded: bool,
    ) -> AcceptResult {
        let inst = self.instance(ix)?;
        let scope = Arc::clone(&self.scope_entry(ix).scope);
        let failed = if self.undo_result(ix).1 { RunStatus::UndoFailed } else { RunStatus::Failed };
        if inst.worst == Worst::Failed {
            ensure!(status == failed, "a step failed it, and it ends as {status}");
            return Ok(());
        }
        let gives = match &scope.result {
            Some(result) => self.evaluate_expr(ix, result),
            None => Ok(inst.last_output.clone()),
        };
        match gives {
            Ok(gives) if scope.outputs.check(&gives).is_ok() => {
                ensure!(status == RunStatus::Succeeded, "nothing failed it, and it ends as {status}");
                ensure!(gives == *output, "it gives {gives}, not {output}");
                ensure!(
                    degraded == (inst.worst == Worst::Degraded),
                    "whether it is degraded is not what its steps say"
                );
            }
            _ => ensure!(status == failed, "what it gives is wrong, and it ends as {status}"),
        }
        Ok(())
    }

    /// Whether something named is waited for: a decision, a signal, a time, a worker that runs.
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

    /// Whether a step may end as cancelled: something around it stopped, or it cancels its workflow itself.
    pub(super) fn may_end_cancelled(&self, at: StepAt) -> AcceptResult {
        ensure!(self.step_state(at)?.is_live(), "it has not started");
        let own = self.may_cancel(self.instance(at.0)?.home);
        ensure!(own || self.check_going(at.0).is_err(), "nothing around it stopped");
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
