//! Instances: the arrival of steps (dependencies, the cursor, the count of executions and the condition), halts and
//! ends.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptRole, CursorRoute, HaltReason, InstanceEnd, InstanceIx, SkipReason, StepAt, UndoWalk},
    ir::{
        GateTimeout, OutcomeAction, RunImpact as Worst, RunStatus, ScopeShape, SiblingPolicy, Step, StepKindSpec,
        WaitTimeout,
    },
};

use crate::acceptor::{Acceptor, RuleResult, ensure, state::AcceptorStepPhase};

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

/// The result of an arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AcceptorArrival {
    /// The step may start.
    Ready,
    TooMany,
    SkippedByCondition,
    BadCondition,
}

impl Acceptor {
    /// Checks that new work may start in an instance: neither it nor an enclosing instance has stopped.
    pub(super) fn check_going(&self, ix: InstanceIx) -> RuleResult {
        let inst = self.instance(ix)?;
        ensure!(inst.ended.is_none(), "the instance has ended");
        ensure!(!inst.began_undo, "the instance has begun to undo");
        ensure!(!inst.is_halted(), "the instance is halted");
        ensure!(inst.must_halt.is_none(), "the instance is about to be halted");
        self.check_parents_going(ix)
    }

    /// Checks that every enclosing instance continues, or at least drains (lets running steps finish).
    fn check_parents_going(&self, ix: InstanceIx) -> RuleResult {
        let Some(parent) = self.instance(ix)?.parent else { return Ok(()) };
        let around = self.instance(parent.0)?;
        ensure!(around.ended.is_none() && !around.began_undo, "an outer instance has ended");
        let stopped = around.is_halted() || around.must_halt.is_some();
        ensure!(!stopped || self.is_draining(parent.0), "an outer instance is halted");
        self.check_parents_going(parent.0)
    }

    /// Checks that order allows the step to arrive now.
    fn check_reachable(&self, at: StepAt) -> RuleResult {
        let StepAt(ix, step) = at;
        let entry = self.scope_entry(ix);
        let inst = self.instance(ix)?;
        match entry.scope.shape {
            ScopeShape::Routed { .. } => {
                ensure!(inst.cursor == Some(CursorRoute::Step(step)), "the cursor is at another step");
                let st = self.step_state(at)?;
                ensure!(
                    matches!(st.at, AcceptorStepPhase::Pending | AcceptorStepPhase::Over),
                    "the step has arrived already"
                );
            }
            ScopeShape::Graph => {
                ensure!(self.step_state(at)?.at == AcceptorStepPhase::Pending, "the step has arrived already");
                for id in &entry.step(step).after {
                    let Some(needed) = entry.by_id.get(id) else { continue };
                    // A conflict resolver waits for any end of the steps whose conflicts it resolves.
                    let settles = self.find_conflict_resolver(StepAt(ix, *needed)) == Some(step);
                    let satisfied = inst.steps[*needed as usize].at == AcceptorStepPhase::Over
                        && inst.steps[*needed as usize].effect.is_some_and(|effect| effect.satisfies || settles);
                    ensure!(satisfied, "`{id}`, on which it depends, does not satisfy it");
                }
            }
        }
        Ok(())
    }

    /// Returns the result of an arrival at this moment.
    pub(super) fn evaluate_arrival(&self, at: StepAt) -> RuleResult<AcceptorArrival> {
        self.check_reachable(at)?;
        let home = self.instance(at.0)?.home;
        let most = self.plan.definition.workflow_containing(self.instance(home)?.scope).workflow.scope.max_steps;
        if most.is_some_and(|most| self.instances[home.0 as usize].executed >= most) {
            return Ok(AcceptorArrival::TooMany);
        }
        if self.is_conflict_resolver(at) && self.unresolved_conflicts(at)?.is_empty() {
            return Ok(AcceptorArrival::SkippedByCondition);
        }
        Ok(match self.step_definition(at)?.when.as_ref().map(|when| self.evaluate_condition(at.0, when)) {
            None | Some(Ok(true)) => AcceptorArrival::Ready,
            Some(Ok(false)) => AcceptorArrival::SkippedByCondition,
            Some(Err(_)) => AcceptorArrival::BadCondition,
        })
    }

    /// Makes the step arrive if it has not arrived yet, so that it may act.
    pub(super) fn ensure_arrived(&mut self, at: StepAt) -> RuleResult {
        let inst = self.instance(at.0)?;
        let again = inst.cursor == Some(CursorRoute::Step(at.1)) && self.step_state(at)?.at == AcceptorStepPhase::Over;
        if self.step_state(at)?.at != AcceptorStepPhase::Pending && !again {
            return Ok(());
        }
        self.check_going(at.0)?;
        match self.evaluate_arrival(at)? {
            AcceptorArrival::Ready => self.count_execution(at),
            other => Err(format!("the step cannot do anything on arrival: {other:?}").into()),
        }
    }

    /// Counts an execution and starts a visit.
    pub(super) fn count_execution(&mut self, at: StepAt) -> RuleResult {
        let home = self.instance(at.0)?.home;
        self.instance_mut(home)?.executed += 1;
        self.step_state_mut(at)?.start_visit();
        Ok(())
    }

    pub(super) fn accept_step_ready(&mut self, at: StepAt) -> RuleResult {
        let st = self.step_state(at)?;
        // A step in a cycle may become ready again.
        ensure!(matches!(st.at, AcceptorStepPhase::Pending | AcceptorStepPhase::Over), "the step has arrived already");
        self.check_going(at.0)?;
        ensure!(
            self.evaluate_arrival(at)? == AcceptorArrival::Ready,
            "the arrival does not make it ready: {:?}",
            self.evaluate_arrival(at)?
        );
        self.count_execution(at)
    }

    /// Checks that a skip is justified.
    pub(super) fn check_skip(&mut self, at: StepAt, skip: SkipReason, output: &Value) -> RuleResult {
        self.check_going(at.0)?;
        match skip {
            SkipReason::Condition => {
                let declared = self.scope_entry(at.0).step(at.1).outputs.default_object();
                ensure!(*output == declared, "a skipped step outputs its declared defaults");
                ensure!(
                    self.evaluate_arrival(at)? == AcceptorArrival::SkippedByCondition,
                    "its condition is not false"
                );
                self.count_execution(at)?;
            }
            SkipReason::Upstream(needed) => {
                ensure!(output.is_null(), "a step that never arrived has no output");
                ensure!(self.step_state(at)?.at == AcceptorStepPhase::Pending, "the step has arrived already");
                let entry = self.scope_entry(at.0);
                let depends = entry.step(at.1).after.iter().any(|id| entry.by_id.get(id) == Some(&needed));
                ensure!(depends, "the step does not depend on that one");
                let settles = self.find_conflict_resolver(StepAt(at.0, needed)) == Some(at.1);
                ensure!(!settles, "a conflict resolver is not skipped by a conflict");
                let of = self.step_state(StepAt(at.0, needed))?;
                let blocks = of.at == AcceptorStepPhase::Over && of.effect.is_some_and(|effect| !effect.satisfies);
                ensure!(blocks, "the step that it depends on satisfies it, or has not ended");
            }
        }
        Ok(())
    }

    /// Takes a slot for the step, if the concurrency limit of its instance allows one more.
    pub(super) fn take_slot(&mut self, at: StepAt) -> RuleResult {
        if self.step_state(at)?.slot {
            return Ok(());
        }
        let most = self.scope_entry(at.0).scope.concurrency;
        let taken = self.instance(at.0)?.steps.iter().filter(|st| st.slot).count();
        ensure!(most.is_none_or(|most| taken < most as usize), "{taken} steps are running, which is the limit");
        self.step_state_mut(at)?.slot = true;
        Ok(())
    }

    /// True if the next attempt is the first of the visit; that one always has the main role.
    pub(super) fn is_first_attempt(&self, at: StepAt) -> bool {
        self.step_state(at).is_ok_and(|st| !st.given && st.role == AttemptRole::Main)
    }
}
