//! Conflicts that a step settles: whose they are, and what the ends of both do.

use skein_core::{
    engine::{Outcome, Skip, StepAt},
    ir::{Effect, ErrorClass, Shape},
};

use super::{Acceptor, book::At, ends::effect_of};

impl Acceptor {
    /// The step that settles what this one cannot merge, by name in the plan.
    pub(super) fn settler_of(&self, at: StepAt) -> Option<u32> {
        let entry = self.entry(at.0);
        let by = entry.step(at.1).policy.settled_by.as_ref()?;
        let place = entry.scope.steps.iter().position(|step| step.id == *by)?;
        u32::try_from(place).ok()
    }

    fn settled_by(&self, at: StepAt) -> Vec<StepAt> {
        let steps = 0..u32::try_from(self.entry(at.0).scope.steps.len()).unwrap_or(u32::MAX);
        let of = steps.map(|step| StepAt(at.0, step));
        of.filter(|of| self.settler_of(*of) == Some(at.1)).collect()
    }

    pub(super) fn is_settler(&self, at: StepAt) -> bool {
        !self.settled_by(at).is_empty()
    }

    /// The steps whose conflicts this one has to settle.
    pub(super) fn unsettled(&self, at: StepAt) -> Result<Vec<StepAt>, String> {
        let mut unsettled = Vec::new();
        for of in self.settled_by(at) {
            let st = self.st(of)?;
            if st.at == At::Over && st.settler.is_some() {
                unsettled.push(of);
            }
        }
        Ok(unsettled)
    }

    /// What this end does, and to whom a conflict goes.
    pub(super) fn right_effect(
        &self,
        at: StepAt,
        outcome: Outcome,
        code: Option<&str>,
    ) -> Result<(Effect, Option<u32>), String> {
        let failed = outcome == Outcome::Failed(ErrorClass::NonRetryable) && code == Some("merge_conflict");
        let conflict = failed && self.st(at)?.unmerged;
        if let Some(by) = self.settler_of(at).filter(|_| conflict) {
            let routed = matches!(self.entry(at.0).scope.shape, Shape::Routed { .. });
            let comes = routed || self.st(StepAt(at.0, by))?.at == At::Pending;
            let inst = self.inst(at.0)?;
            if comes && !inst.is_halted() && inst.must_halt.is_none() {
                return Ok((Effect::GO_ON, Some(by)));
            }
        }
        Ok((self.plain_effect(at, outcome)?, None))
    }

    /// What an end does that goes to nobody else.
    pub(super) fn plain_effect(&self, at: StepAt, outcome: Outcome) -> Result<Effect, String> {
        let plain = effect_of(&self.entry(at.0).step(at.1).policy.effects, outcome);
        let unsettled = self.unsettled(at)?;
        Ok(match outcome {
            Outcome::Succeeded | Outcome::Cancelled => plain,
            Outcome::Skipped(Skip::Condition) if self.is_settler(at) && unsettled.is_empty() => Effect::GO_ON,
            _ => {
                let mut worst = plain;
                for of in unsettled {
                    let effects = &self.entry(of.0).step(of.1).policy.effects;
                    let failed = effect_of(effects, Outcome::Failed(ErrorClass::NonRetryable));
                    worst.then = worst.then.max(failed.then);
                    worst.verdict = worst.verdict.max(failed.verdict);
                    worst.satisfies &= failed.satisfies;
                }
                worst
            }
        })
    }
}
