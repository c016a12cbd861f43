//! Results reused from another run: allowed only before any other event, only if the step could have ended that way,
//! and never for a step that failed its run.

use skein_core::{
    engine::{CursorRoute, InstanceIx, InstancePart, InstanceReused, SkipReason, StepAt, StepOutcome, StepReused},
    ir::{OutcomeAction, OutcomeEffect, RunImpact as Worst, ScopeShape, StepKindSpec},
};

use super::{
    Acceptor, RuleResult, ensure,
    state::{AcceptorInstance, AcceptorStepPhase},
};

impl Acceptor {
    pub(super) fn accept_instance_reused(&mut self, reused: &InstanceReused) -> RuleResult {
        let InstanceReused { parent, part, input, env, why, end } = reused;
        ensure!(self.reuses, "a run reuses results only before its first other event");
        if self.step_state(*parent)?.at != AcceptorStepPhase::Inside {
            self.check_is_next(*parent)?;
            self.count_execution(*parent)?;
            self.step_state_mut(*parent)?.at = AcceptorStepPhase::Inside;
        }
        let kind = &self.step_definition(*parent)?.kind;
        let fits = matches!(
            (kind, part),
            (StepKindSpec::Parallel(_), InstancePart::Lane(_))
                | (StepKindSpec::Each(_), InstancePart::Item(_))
                | (StepKindSpec::Loop(_), InstancePart::Pass(_))
                | (StepKindSpec::Call(_), InstancePart::Call)
        );
        ensure!(fits, "the step has no such part");
        let ix = InstanceIx(u32::try_from(self.instances.len()).unwrap_or(u32::MAX));
        let which = if let InstancePart::Lane(lane) = part { *lane } else { 0 };
        let scope = self.scope_entry(parent.0).inner_scope(parent.1, which);
        let entry = self.plan.definition.scope(scope);
        let home = if *part == InstancePart::Call { ix } else { self.instance(parent.0)?.home };
        let mut inst = AcceptorInstance::new(scope, home, entry.scope.steps.len());
        inst.cursor = matches!(entry.scope.shape, ScopeShape::Routed { .. }).then_some(CursorRoute::Step(entry.start));
        (inst.parent, inst.part) = (Some(*parent), Some(*part));
        inst.input = input.as_deref().cloned().unwrap_or_default();
        inst.env = (**env).clone();
        inst.halts.extend(why.clone());
        inst.ended = Some(end.clone());
        self.instances.push(inst);
        self.step_state_mut(*parent)?.children.push(ix);
        Ok(())
    }

    pub(super) fn accept_step_reused(&mut self, reused: &StepReused) -> RuleResult {
        let StepReused { at, outcome, output, error, effect, route, items, settler, .. } = reused;
        ensure!(self.reuses, "a run reuses results only before its first other event");
        self.check_reuse(reused)?;
        if at.0 == InstanceIx::ROOT {
            ensure!(is_reusable_end(*outcome, *effect), "the step failed its run or was cancelled");
        }
        if self.step_state(*at)?.at != AcceptorStepPhase::Inside {
            self.check_is_next(*at)?;
            if !matches!(outcome, StepOutcome::Skipped(SkipReason::Upstream(_))) {
                self.count_execution(*at)?;
            }
        }
        self.step_state_mut(*at)?.items = items.as_deref().cloned();
        let list = items.as_deref().and_then(|items| items.as_array()).cloned().unwrap_or_default();
        for child in self.step_state(*at)?.children.clone() {
            let inst = self.instance_mut(child)?;
            if let Some(InstancePart::Item(i)) = inst.part {
                inst.item = list.get(i as usize).map(|item| (item.clone(), i));
            }
        }
        let routed = self.instance(at.0)?.cursor.is_some();
        self.note_step_end(*at, *outcome, output, error.as_ref(), *effect, *settler)?;
        if routed {
            self.instance_mut(at.0)?.cursor = Some(route.unwrap_or(CursorRoute::End));
        }
        Ok(())
    }

    /// Checks that a reused end has the right effect. A conflict resolver is reused after the steps whose conflicts it
    /// resolves, so their ends are known by then.
    fn check_reuse(&self, reused: &StepReused) -> RuleResult {
        let StepReused { at, outcome, effect, settler, .. } = reused;
        if *outcome == StepOutcome::Cancelled {
            return Ok(());
        }
        if let Some(by) = settler {
            ensure!(self.find_conflict_resolver(*at) == Some(*by), "another step resolves its conflicts");
            ensure!(*effect == OutcomeEffect::GO_ON, "a resolved conflict must not affect the run");
            return Ok(());
        }
        let right = self.plain_effect(*at, *outcome)?;
        ensure!(*effect == right, "the effect should be {right:?}");
        Ok(())
    }

    /// Checks that the step can be the next one to have a result.
    fn check_is_next(&self, at: StepAt) -> RuleResult {
        let inst = self.instance(at.0)?;
        match inst.cursor {
            Some(cursor) => ensure!(cursor == CursorRoute::Step(at.1), "the cursor is at {cursor:?}"),
            None => ensure!(self.step_state(at)?.at == AcceptorStepPhase::Pending, "the step has a result already"),
        }
        Ok(())
    }
}

/// True if a run continues after this end and does not fail because of it.
fn is_reusable_end(outcome: StepOutcome, effect: OutcomeEffect) -> bool {
    outcome != StepOutcome::Cancelled && effect.then == OutcomeAction::GoOn && effect.verdict != Worst::Failed
}
