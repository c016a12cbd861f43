//! Settle: what a step could not merge goes to the step that settles it, and is a failure only if that one is no success.

use crate::{
    engine::{
        Error, Outcome, Skip, StepAt, code,
        decide::{Decision, End, effect_of},
        transitions::Phase,
    },
    ir::{Effect, ErrorClass},
};

impl Decision<'_> {
    /// What the end of a step does, and who settles it. What is to be told may be more than its own end.
    pub(in crate::engine) fn effect(&self, at: StepAt, end: End) -> (End, Effect, Option<u32>) {
        let effect = effect_of(self.step(at), end.outcome);
        if let Some(settler) = self.takes_over(at, &end) {
            // It was done: whoever reads what it gave can go on.
            return (End { output: self.result(at), ..end }, Effect::GO_ON, Some(settler));
        }
        let left = self.left_to_settle(at);
        match (end.outcome, left.first()) {
            (Outcome::Skipped(Skip::Condition), None) if self.settles_any(at) => (end, Effect::GO_ON, None),
            (Outcome::Succeeded | Outcome::Cancelled, _) | (_, None) => (end, effect, None),
            (_, Some(first)) => {
                let failed =
                    |step: &StepAt| effect_of(self.step(*step), Outcome::Failed(ErrorClass::NonRetryable));
                let effect = left.iter().map(failed).fold(effect, Effect::and);
                let error = Some(self.unsettled(*first, &left, end.error));
                (End { error, ..end }, effect, None)
            }
        }
    }

    /// A step that settles conflicts, of which there are none.
    pub(in crate::engine) fn has_nothing_to_settle(&self, at: StepAt) -> bool {
        self.settles_any(at) && self.left_to_settle(at).is_empty()
    }

    fn settles_any(&self, at: StepAt) -> bool {
        !self.entry(at.0).settles(at.1).is_empty()
    }

    /// The step that settles what this one could not merge. In a graph it may be over, because of another that it
    /// waited for; then the failure is one like any other.
    fn takes_over(&self, at: StepAt, end: &End) -> Option<u32> {
        let settler = self.entry(at.0).settler(at.1)?;
        let failed = matches!(end.outcome, Outcome::Failed(_));
        let conflict =
            end.error.as_ref().is_some_and(|error| error.code.as_deref() == Some(code::MERGE_CONFLICT));
        let unmerged = self.state.more(at).is_some_and(|more| more.unmerged);
        let comes =
            self.entry(at.0).is_routed() || self.state.step(StepAt(at.0, settler)).phase == Phase::Pending;
        let goes = self.state.instance(at.0).is_going();
        (failed && conflict && unmerged && comes && goes).then_some(settler)
    }

    /// The steps whose conflicts this one is to settle.
    fn left_to_settle(&self, at: StepAt) -> Vec<StepAt> {
        let steps = self.entry(at.0).settles(at.1).iter().map(|step| StepAt(at.0, *step));
        let left = |step: &StepAt| self.state.more(*step).is_some_and(|more| more.settler.is_some());
        steps.filter(left).collect()
    }

    /// Why it is not settled, with whose conflict it is.
    fn unsettled(&self, first: StepAt, left: &[StepAt], own: Option<Error>) -> Error {
        let whose: Vec<String> = left.iter().map(|at| format!("`{}`", self.step(*at).id)).collect();
        match own {
            Some(own) => {
                let message = format!("{}; so what {} changed is not merged", own.message, whose.join(", "));
                Error { message, ..own }
            }
            None => {
                let conflict = self.state.more(first).and_then(|more| more.error.clone());
                let message = format!("what {} changed is not merged", whose.join(", "));
                let unknown = || Error::new(ErrorClass::NonRetryable, code::MERGE_CONFLICT, message);
                Error { origin: Some(first), ..conflict.unwrap_or_else(unknown) }
            }
        }
    }
}
