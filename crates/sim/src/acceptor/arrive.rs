//! Arrival: dependencies, the cursor, the count of executions and the condition.

use serde_json::Value;
use skein_core::{
    engine::{InstanceIx, Role, Route, Skip, StepAt},
    ir::Shape,
};

use super::{Acceptor, Verdict, book::At, ensure};

/// What arrival comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// It is to be done.
    Ready,
    TooMany,
    SkippedByCondition,
    BadCondition,
}

impl Acceptor {
    /// Whether new things may start in an instance: neither it nor anything around it has stopped.
    pub(super) fn going(&self, ix: InstanceIx) -> Verdict {
        let inst = self.inst(ix)?;
        ensure!(inst.ended.is_none(), "the instance has ended");
        ensure!(!inst.began_undo, "the instance has begun to undo");
        ensure!(!inst.is_halted(), "the instance is halted");
        ensure!(inst.must_halt.is_none(), "the instance is about to be halted");
        self.going_around(ix)
    }

    /// Whether everything around an instance goes on, or at least lets what is at work come to its end.
    fn going_around(&self, ix: InstanceIx) -> Verdict {
        let Some(parent) = self.inst(ix)?.parent else { return Ok(()) };
        let around = self.inst(parent.0)?;
        ensure!(around.ended.is_none() && !around.began_undo, "what is around it has ended");
        let stopped = around.is_halted() || around.must_halt.is_some();
        ensure!(!stopped || self.drains(parent.0), "what is around it is halted");
        self.going_around(parent.0)
    }

    /// Whether the step could arrive now, as far as order goes.
    pub(super) fn reached(&self, at: StepAt) -> Verdict {
        let StepAt(ix, step) = at;
        let entry = self.entry(ix);
        let inst = self.inst(ix)?;
        match entry.scope.shape {
            Shape::Routed { .. } => {
                ensure!(inst.cursor == Some(Route::Step(step)), "the cursor is elsewhere");
                let st = self.st(at)?;
                ensure!(matches!(st.at, At::Pending | At::Over), "the step has arrived already");
            }
            Shape::Graph => {
                ensure!(self.st(at)?.at == At::Pending, "the step has arrived already");
                for id in &entry.step(step).after {
                    let Some(needed) = entry.by_id.get(id) else { continue };
                    // Who settles conflicts waits for an end, and for no particular one.
                    let settles = self.settler_of(StepAt(ix, *needed)) == Some(step);
                    let satisfied = inst.steps[*needed as usize].at == At::Over
                        && inst.steps[*needed as usize]
                            .effect
                            .is_some_and(|effect| effect.satisfies || settles);
                    ensure!(satisfied, "`{id}`, on which it depends, does not satisfy it");
                }
            }
        }
        Ok(())
    }

    /// What arriving now comes to.
    pub(super) fn arrival(&self, at: StepAt) -> Result<Arrival, String> {
        self.reached(at)?;
        let home = self.inst(at.0)?.home;
        let most = self.plan.definition.workflow_of(self.inst(home)?.scope).workflow.scope.max_steps;
        if most.is_some_and(|most| self.instances[home.0 as usize].executed >= most) {
            return Ok(Arrival::TooMany);
        }
        if self.is_settler(at) && self.unsettled(at)?.is_empty() {
            return Ok(Arrival::SkippedByCondition);
        }
        Ok(match self.step(at)?.when.as_ref().map(|when| self.test(at.0, when)) {
            None | Some(Ok(true)) => Arrival::Ready,
            Some(Ok(false)) => Arrival::SkippedByCondition,
            Some(Err(_)) => Arrival::BadCondition,
        })
    }

    /// Lets the step arrive if it has not, so that it may do something.
    pub(super) fn ensure_arrived(&mut self, at: StepAt) -> Verdict {
        let inst = self.inst(at.0)?;
        let again = inst.cursor == Some(Route::Step(at.1)) && self.st(at)?.at == At::Over;
        if self.st(at)?.at != At::Pending && !again {
            return Ok(());
        }
        self.going(at.0)?;
        match self.arrival(at)? {
            Arrival::Ready => self.count(at),
            other => Err(format!("the step cannot do anything on arrival: {other:?}")),
        }
    }

    /// Counts an execution and opens a visit.
    pub(super) fn count(&mut self, at: StepAt) -> Verdict {
        let home = self.inst(at.0)?.home;
        self.inst_mut(home)?.executed += 1;
        self.st_mut(at)?.arrive();
        Ok(())
    }

    pub(super) fn step_ready(&mut self, at: StepAt) -> Verdict {
        let st = self.st(at)?;
        // It may be said again of one that goes on.
        ensure!(matches!(st.at, At::Pending | At::Over), "the step has arrived already");
        self.going(at.0)?;
        ensure!(self.arrival(at)? == Arrival::Ready, "the step is not to be done: {:?}", self.arrival(at)?);
        self.count(at)
    }

    /// Whether a skip is right.
    pub(super) fn skip(&mut self, at: StepAt, skip: Skip, output: &Value) -> Verdict {
        self.going(at.0)?;
        match skip {
            Skip::Condition => {
                let declared = self.entry(at.0).step(at.1).outputs.defaults();
                ensure!(*output == declared, "it gives what is declared for when it gives nothing");
                ensure!(self.arrival(at)? == Arrival::SkippedByCondition, "its condition is not false");
                self.count(at)?;
            }
            Skip::Upstream(needed) => {
                ensure!(output.is_null(), "a step that never arrived gives nothing");
                ensure!(self.st(at)?.at == At::Pending, "the step has arrived already");
                let entry = self.entry(at.0);
                let depends = entry.step(at.1).after.iter().any(|id| entry.by_id.get(id) == Some(&needed));
                ensure!(depends, "the step does not depend on that one");
                let settles = self.settler_of(StepAt(at.0, needed)) == Some(at.1);
                ensure!(!settles, "who settles conflicts is not skipped because of them");
                let of = self.st(StepAt(at.0, needed))?;
                let blocks = of.at == At::Over && of.effect.is_some_and(|effect| !effect.satisfies);
                ensure!(blocks, "the step that it depends on satisfies it, or has not ended");
            }
        }
        Ok(())
    }

    /// Whether one more of this instance's steps may be at work.
    pub(super) fn take_slot(&mut self, at: StepAt) -> Verdict {
        if self.st(at)?.slot {
            return Ok(());
        }
        let most = self.entry(at.0).scope.concurrency;
        let taken = self.inst(at.0)?.steps.iter().filter(|st| st.slot).count();
        ensure!(
            most.is_none_or(|most| taken < most as usize),
            "{taken} steps are at work, and no more may be"
        );
        self.st_mut(at)?.slot = true;
        Ok(())
    }

    /// Whether a first event of this role may come: main before all else.
    pub(super) fn is_first(&self, at: StepAt) -> bool {
        self.st(at).is_ok_and(|st| !st.given && st.role == Role::Main)
    }
}
