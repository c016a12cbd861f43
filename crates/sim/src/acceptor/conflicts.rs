//! Merge conflicts with a conflict resolver: the steps they belong to, and the effects of both ends.

use skein_core::{
    engine::{SkipReason, StepAt, StepOutcome},
    ir::{ErrorClass, OutcomeEffect, ScopeShape},
};

use super::{Acceptor, RuleResult, state::AcceptorStepPhase, step_ends::find_effect};

impl Acceptor {
    /// The index of the step that resolves this step's merge conflicts, by its name in the plan.
    pub(super) fn find_conflict_resolver(&self, at: StepAt) -> Option<u32> {
        let entry = self.scope_entry(at.0);
        let by = entry.step(at.1).policy.settled_by.as_ref()?;
        let place = entry.scope.steps.iter().position(|step| step.id == *by)?;
        u32::try_from(place).ok()
    }

    fn steps_resolved_by(&self, at: StepAt) -> Vec<StepAt> {
        let steps = 0..u32::try_from(self.scope_entry(at.0).scope.steps.len()).unwrap_or(u32::MAX);
        let of = steps.map(|step| StepAt(at.0, step));
        of.filter(|of| self.find_conflict_resolver(*of) == Some(at.1)).collect()
    }

    pub(super) fn is_conflict_resolver(&self, at: StepAt) -> bool {
        !self.steps_resolved_by(at).is_empty()
    }

    /// The steps whose conflicts this one has to resolve.
    pub(super) fn unresolved_conflicts(&self, at: StepAt) -> RuleResult<Vec<StepAt>> {
        let mut unsettled = Vec::new();
        for of in self.steps_resolved_by(at) {
            let st = self.step_state(of)?;
            if st.at == AcceptorStepPhase::Over && st.settler.is_some() {
                unsettled.push(of);
            }
        }
        Ok(unsettled)
    }

    /// Returns the effect of this end, and the step that has to resolve its conflict, if any.
    pub(super) fn determine_effect(
        &self,
        at: StepAt,
        outcome: StepOutcome,
        code: Option<&str>,
    ) -> RuleResult<(OutcomeEffect, Option<u32>)> {
        let failed = outcome == StepOutcome::Failed(ErrorClass::NonRetryable) && code == Some("merge_conflict");
        let conflict = failed && self.step_state(at)?.unmerged;
        if let Some(by) = self.find_conflict_resolver(at).filter(|_| conflict) {
            let routed = matches!(self.scope_entry(at.0).scope.shape, ScopeShape::Routed { .. });
            let comes = routed || self.step_state(StepAt(at.0, by))?.at == AcceptorStepPhase::Pending;
            let inst = self.instance(at.0)?;
            if comes && !inst.is_halted() && inst.must_halt.is_none() {
                return Ok((OutcomeEffect::GO_ON, Some(by)));
            }
        }
        Ok((self.plain_effect(at, outcome)?, None))
    }

    /// Returns the effect of an end whose conflict is not passed to a resolver.
    pub(super) fn plain_effect(&self, at: StepAt, outcome: StepOutcome) -> RuleResult<OutcomeEffect> {
        let plain = find_effect(&self.scope_entry(at.0).step(at.1).policy.effects, outcome);
        let unsettled = self.unresolved_conflicts(at)?;
        Ok(match outcome {
            StepOutcome::Succeeded | StepOutcome::Cancelled => plain,
            StepOutcome::Skipped(SkipReason::Condition) if self.is_conflict_resolver(at) && unsettled.is_empty() => {
                OutcomeEffect::GO_ON
            }
            _ => {
                let mut worst = plain;
                for of in unsettled {
                    let effects = &self.scope_entry(of.0).step(of.1).policy.effects;
                    let failed = find_effect(effects, StepOutcome::Failed(ErrorClass::NonRetryable));
                    worst.then = worst.then.max(failed.then);
                    worst.verdict = worst.verdict.max(failed.verdict);
                    worst.satisfies &= failed.satisfies;
                }
                worst
            }
        })
    }
}
