//! What does not fit: it goes to the step that settles it, and counts as a failure only if that does not succeed.

use skein_core::{
    ir::{Effect, ErrorClass, Shape},
    plan::ScopeEntry,
};

use super::{
    Ending, Eval, Fault, Race,
    frame::{End, Frame, effect_of},
};

/// The step that settles what another cannot merge.
pub fn settler_of(entry: &ScopeEntry, step: u32) -> Option<u32> {
    let by = entry.step(step).policy.settled_by.as_ref()?;
    let found = (0u32..).zip(&entry.scope.steps).find(|(_, other)| other.id == *by);
    found.map(|(i, _)| i)
}

/// The steps whose conflicts this one settles.
fn settled(entry: &ScopeEntry, step: u32) -> Vec<u32> {
    (0..entry.len()).filter(|of| settler_of(entry, *of) == Some(step)).collect()
}

impl<'a> Eval<'a> {
    fn unsettled(&self, frame: &Frame<'_, 'a>, step: u32) -> Vec<u32> {
        let mut of = settled(frame.entry(self), step);
        of.retain(|of| frame.steps.borrow()[*of as usize].handed_on);
        of
    }

    pub(super) fn has_nothing_to_settle(&self, frame: &Frame<'_, 'a>, step: u32) -> bool {
        !settled(frame.entry(self), step).is_empty() && self.unsettled(frame, step).is_empty()
    }

    /// What an end does, and whether its conflict goes on to another.
    pub(super) fn effect(
        &self,
        frame: &Frame<'_, 'a>,
        step: u32,
        end: &End<'a>,
    ) -> Result<(Effect, bool), Race> {
        let entry = frame.entry(self);
        if let Some(by) = settler_of(entry, step).filter(|_| end.unmerged) {
            let routed = matches!(entry.scope.shape, Shape::Routed { .. });
            if routed || !frame.steps.borrow()[by as usize].ended {
                return Ok((Effect::GO_ON, true));
            }
        }
        let plain = effect_of(&entry.step(step).policy.effects, &end.ending)?;
        let unsettled = self.unsettled(frame, step);
        let mut effect = match end.ending {
            Ending::SkippedByCondition if self.has_nothing_to_settle(frame, step) => Effect::GO_ON,
            _ => plain,
        };
        for of in unsettled.into_iter().filter(|_| end.ending != Ending::Succeeded) {
            let fault = Fault::of(ErrorClass::NonRetryable, "merge_conflict");
            let failed = effect_of(&entry.step(of).policy.effects, &Ending::Failed(fault))?;
            effect.then = effect.then.max(failed.then);
            effect.verdict = effect.verdict.max(failed.verdict);
            effect.satisfies = effect.satisfies && failed.satisfies;
        }
        Ok((effect, false))
    }
}
