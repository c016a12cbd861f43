//! Arrival: dependencies, the cursor, the count of executions and the condition.

use serde_json::Value;
use skein_core::{
    engine::{AttemptRole, CursorRoute, InstanceIx, SkipReason, StepAt},
    ir::ScopeShape,
};

use super::{Acceptor, RuleResult, ensure, state::AcceptorStepPhase};

/// The result of an arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptorArrival {
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
    pub(super) fn check_reachable(&self, at: StepAt) -> RuleResult {
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
