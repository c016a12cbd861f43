//! Halts and ends of instances.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{Halt, InstanceEnd, InstanceIx, Route, StepAt, Walk},
    ir::{GateTimeout, Kind, RunStatus, Shape, Siblings, Step, Then, Verdict as Worst, WaitTimeout},
};

use super::{Acceptor, Verdict, book::At, ensure};

impl Acceptor {
    /// Whether an instance that was stopped lets what is at work come to its end.
    pub(super) fn drains(&self, ix: InstanceIx) -> bool {
        let inst = &self.instances[ix.0 as usize];
        let failed = inst.halts.iter().all(|halt| matches!(halt, Halt::Failed { .. }));
        (inst.is_halted() || inst.must_halt.is_some())
            && failed
            && self.entry(ix).scope.siblings == Siblings::Drain
    }

    /// Whether this instance or one around it has been halted.
    pub(super) fn is_halted_around(&self, ix: InstanceIx) -> Result<bool, String> {
        let inst = self.inst(ix)?;
        match inst.parent {
            _ if inst.is_halted() => Ok(true),
            Some(parent) => self.is_halted_around(parent.0),
            None => Ok(false),
        }
    }

    /// Whether a step around this instance, or a workflow around it, is out of time.
    fn is_overdue_around(&self, ix: InstanceIx) -> Result<bool, String> {
        let Some(parent) = self.inst(ix)?.parent else { return Ok(false) };
        let late = self.st(parent)?.is_late(self.now)
            || self.inst(parent.0)?.deadline.is_some_and(|due| due <= self.now);
        Ok(late || self.is_overdue_around(parent.0)?)
    }

    pub(super) fn instance_halted(&mut self, ix: InstanceIx, why: &Halt, undo: bool) -> Verdict {
        let now = self.now;
        let inst = self.inst(ix)?;
        ensure!(inst.ended.is_none(), "the instance has ended");
        ensure!(!inst.began_undo, "the instance has begun to undo");
        let first = inst.halts.is_empty();
        let policy = self.plan.definition.workflow_of(inst.scope).workflow.scope.undo.clone();
        let home = inst.home == ix;
        match why {
            Halt::Failed { step } => {
                ensure!(first, "the instance is halted already");
                let effect = self.st(StepAt(ix, *step))?.effect;
                let asks = effect.map(|effect| effect.then);
                ensure!(asks.is_some_and(|then| then != Then::GoOn), "that step does not halt anything");
                ensure!(
                    !home || undo == (asks == Some(Then::Undo)),
                    "whether it is undone is not what was said"
                );
            }
            Halt::TimedOut => {
                let around = self.is_overdue_around(ix)?;
                ensure!(around || inst.deadline.is_some_and(|due| due <= now), "its time is not up");
                ensure!(!home || !first || undo == policy.on_timeout, "undo on timeout is not what was said");
            }
            Halt::Cancelled { .. } => {
                ensure!(self.may_cancel(ix), "nobody cancels it");
                ensure!(!home || !first || undo == policy.on_cancel, "undo on cancel is not what was said");
            }
            Halt::Outer => ensure!(self.may_stop(ix)?, "nothing around it stopped"),
            Halt::Limit { .. } => {
                let most = self.plan.definition.workflow_of(inst.scope).workflow.scope.max_steps;
                ensure!(home && most.is_some_and(|most| inst.executed >= most), "there may be more steps");
                ensure!(!first || undo == policy.on_timeout, "undo at a limit is not what was said");
            }
        }
        let inst = self.inst_mut(ix)?;
        inst.halts.push(why.clone());
        inst.undo_asked |= undo;
        inst.must_halt = None;
        Ok(())
    }

    /// Someone asked for it, or a gate or wait in the same workflow is over its time.
    fn may_cancel(&self, ix: InstanceIx) -> bool {
        let late = |open: &super::book::Open| {
            self.inst(open.at.0).is_ok_and(|inst| inst.home == ix)
                && open.deadline.is_some_and(|due| due <= self.now)
                && self.step(open.at).is_ok_and(cancels)
        };
        self.cancel_asked || self.openings.iter().any(late)
    }

    fn may_stop(&self, ix: InstanceIx) -> Result<bool, String> {
        let Some(parent) = self.inst(ix)?.parent else { return Ok(false) };
        let around = self.inst(parent.0)?;
        let st = self.st(parent)?;
        let failed = |child: &InstanceIx| {
            self.instances[child.0 as usize]
                .ended
                .as_ref()
                .is_some_and(|end| end.status != RunStatus::Succeeded)
        };
        let late = st.is_late(self.now);
        Ok(around.is_halted() || around.must_halt.is_some() || late || st.children.iter().any(failed))
    }

    pub(super) fn instance_ended(&mut self, ix: InstanceIx, end: &InstanceEnd) -> Verdict {
        let inst = self.inst(ix)?;
        // A walk that is done again ends the instance anew.
        ensure!(inst.ended.is_none() || self.status.is_some(), "the instance has ended already");
        self.may_be_over(ix)?;
        self.right_end(ix, end.status, &end.output, end.degraded)?;
        let events = self.events;
        let inst = self.inst_mut(ix)?;
        inst.ended = Some(end.clone());
        inst.ended_as = events;
        Ok(())
    }

    /// Whether nothing in an instance is live, and it came to its end or was stopped.
    pub(super) fn may_be_over(&self, ix: InstanceIx) -> Verdict {
        let inst = self.inst(ix)?;
        ensure!(inst.must_halt.is_none(), "it was to be halted");
        for (i, st) in inst.steps.iter().enumerate() {
            let over = !st.is_live() || (inst.is_halted() && st.is_unstarted());
            ensure!(over, "step {i} is still {:?}", st.at);
        }
        if !inst.is_halted() {
            match self.entry(ix).scope.shape {
                Shape::Routed { .. } => {
                    ensure!(inst.cursor == Some(Route::End), "the cursor is not at the end")
                }
                Shape::Graph => {
                    let open = inst.steps.iter().position(|st| st.at != At::Over);
                    ensure!(open.is_none(), "step {open:?} has not ended");
                }
            }
        }
        if inst.home == ix && inst.undo_asked {
            let walk = self.walks.get(&Walk::Workflow(ix));
            let left = self.completed_in(ix);
            ensure!(
                walk.is_some_and(|walk| walk.over) || left.is_empty(),
                "what was completed is to be undone"
            );
        }
        Ok(())
    }

    /// Whether a status follows from what happened.
    pub(super) fn right_end(
        &self,
        ix: InstanceIx,
        status: RunStatus,
        output: &Value,
        degraded: bool,
    ) -> Verdict {
        let inst = self.inst(ix)?;
        let walk = self.walks.get(&Walk::Workflow(ix));
        let (undone, stuck) = self.undo_result(ix);
        let plain = match inst.halts.first() {
            None => return self.right_plain_end(ix, status, output, degraded),
            Some(Halt::Failed { .. } | Halt::Limit { .. }) => RunStatus::Failed,
            Some(Halt::TimedOut) => RunStatus::TimedOut,
            Some(Halt::Cancelled { .. } | Halt::Outer) => RunStatus::Cancelled,
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

    fn right_plain_end(&self, ix: InstanceIx, status: RunStatus, output: &Value, degraded: bool) -> Verdict {
        let inst = self.inst(ix)?;
        let scope = Arc::clone(&self.entry(ix).scope);
        let failed = if self.undo_result(ix).1 { RunStatus::UndoFailed } else { RunStatus::Failed };
        if inst.worst == Worst::Failed {
            ensure!(status == failed, "a step failed it, and it ends as {status}");
            return Ok(());
        }
        let gives = match &scope.result {
            Some(result) => self.value(ix, result),
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
        self.instances
            .iter()
            .filter(|inst| inst.ended.is_none())
            .flat_map(|inst| &inst.steps)
            .any(|st| matches!(st.at, At::Held(_) | At::Open(_) | At::Working | At::Retrying(_) | At::Ready))
            || self.walks.values().any(|walk| walk.live.is_some())
    }

    /// Whether a step may end as cancelled: something around it stopped, or it cancels its workflow itself.
    pub(super) fn may_end_cancelled(&self, at: StepAt) -> Verdict {
        ensure!(self.st(at)?.is_live(), "it has not started");
        let own = self.may_cancel(self.inst(at.0)?.home);
        ensure!(own || self.going(at.0).is_err(), "nothing around it stopped");
        Ok(())
    }
}

fn cancels(step: &Step) -> bool {
    match &step.kind {
        Kind::Gate(gate) => matches!(gate.on_timeout, GateTimeout::Cancel | GateTimeout::Escalate { .. }),
        Kind::Wait(wait) => wait.on_timeout == WaitTimeout::Cancel,
        _ => false,
    }
}
