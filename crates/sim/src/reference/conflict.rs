//! Merge conflicts: the conflict resolver handles them, and they count as failures only if it does not succeed.

use skein_core::{
    ir::{ErrorClass, OutcomeEffect, ScopeShape},
    plan::ScopeEntry,
};

use super::{
    ModelEvaluator, ModelFailure, ModelOutcome, TimingRace,
    frame::{ModelFrame, ModelVisitEnd, find_effect},
};

/// The step that resolves the merge conflicts of another.
pub fn find_conflict_resolver(entry: &ScopeEntry, step: u32) -> Option<u32> {
    let by = entry.step(step).policy.settled_by.as_ref()?;
    let found = (0u32..).zip(&entry.scope.steps).find(|(_, other)| other.id == *by);
    found.map(|(i, _)| i)
}

/// The steps whose conflicts this one resolves.
fn steps_resolved_by(entry: &ScopeEntry, step: u32) -> Vec<u32> {
    (0..entry.len()).filter(|of| find_conflict_resolver(entry, *of) == Some(step)).collect()
}

impl<'a> ModelEvaluator<'a> {
    fn unresolved_conflicts(&self, frame: &ModelFrame<'_, 'a>, step: u32) -> Vec<u32> {
        let mut of = steps_resolved_by(frame.scope_entry(self), step);
        of.retain(|of| frame.steps.borrow()[*of as usize].handed_on);
        of
    }

    pub(super) fn has_no_conflict_to_resolve(&self, frame: &ModelFrame<'_, 'a>, step: u32) -> bool {
        !steps_resolved_by(frame.scope_entry(self), step).is_empty()
            && self.unresolved_conflicts(frame, step).is_empty()
    }

    /// Returns the effect of an end. The flag is true if its conflict is passed to the resolver.
    pub(super) fn determine_effect(
        &self,
        frame: &ModelFrame<'_, 'a>,
        step: u32,
        end: &ModelVisitEnd<'a>,
    ) -> Result<(OutcomeEffect, bool), TimingRace> {
        let entry = frame.scope_entry(self);
        if let Some(by) = find_conflict_resolver(entry, step).filter(|_| end.unmerged) {
            let routed = matches!(entry.scope.shape, ScopeShape::Routed { .. });
            if routed || !frame.steps.borrow()[by as usize].ended {
                return Ok((OutcomeEffect::GO_ON, true));
            }
        }
        let plain = find_effect(&entry.step(step).policy.effects, &end.ending)?;
        let unsettled = self.unresolved_conflicts(frame, step);
        let mut effect = match end.ending {
            ModelOutcome::SkippedByCondition if self.has_no_conflict_to_resolve(frame, step) => OutcomeEffect::GO_ON,
            _ => plain,
        };
        for of in unsettled.into_iter().filter(|_| end.ending != ModelOutcome::Succeeded) {
            let fault = ModelFailure::new(ErrorClass::NonRetryable, "merge_conflict");
            let failed = find_effect(&entry.step(of).policy.effects, &ModelOutcome::Failed(fault))?;
            effect.then = effect.then.max(failed.then);
            effect.verdict = effect.verdict.max(failed.verdict);
            effect.satisfies = effect.satisfies && failed.satisfies;
        }
        Ok((effect, false))
    }
}
