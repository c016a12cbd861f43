//! Conflict resolution: the merge conflict of a step goes to the step that resolves it, and is a failure only if that
//! step does not succeed.

use crate::{
    engine::{
        ExecutionError, SkipReason, StepAt, StepOutcome, code,
        decide::{DecideContext, StepEnd, policy_effect},
        transitions::StepPhase,
    },
    ir::{ErrorClass, OutcomeEffect},
};

impl DecideContext<'_> {
    /// Returns the effect of the end of a step, and the step that resolves its merge conflict. The returned end may
    /// have another output or error.
    pub(in crate::engine) fn determine_effect(
        &self,
        at: StepAt,
        end: StepEnd,
    ) -> (StepEnd, OutcomeEffect, Option<u32>) {
        let effect = policy_effect(self.step(at), end.outcome);
        if let Some(settler) = self.find_conflict_resolver(at, &end) {
            // The work was done, so its dependents can continue.
            return (StepEnd { output: self.work_result(at), ..end }, OutcomeEffect::GO_ON, Some(settler));
        }
        let left = self.find_unresolved_conflicts(at);
        match (end.outcome, left.first()) {
            (StepOutcome::Skipped(SkipReason::Condition), None) if self.is_conflict_resolver(at) => {
                (end, OutcomeEffect::GO_ON, None)
            }
            (StepOutcome::Succeeded | StepOutcome::Cancelled, _) | (_, None) => (end, effect, None),
            (_, Some(first)) => {
                let failed =
                    |step: &StepAt| policy_effect(self.step(*step), StepOutcome::Failed(ErrorClass::NonRetryable));
                let effect = left.iter().map(failed).fold(effect, OutcomeEffect::combine);
                let error = Some(self.unresolved_error(*first, &left, end.error));
                (StepEnd { error, ..end }, effect, None)
            }
        }
    }

    /// True if the step resolves conflicts and there are none.
    pub(in crate::engine) fn has_nothing_to_resolve(&self, at: StepAt) -> bool {
        self.is_conflict_resolver(at) && self.find_unresolved_conflicts(at).is_empty()
    }

    fn is_conflict_resolver(&self, at: StepAt) -> bool {
        !self.scope_entry(at.0).steps_resolved_by(at.1).is_empty()
    }

    /// Returns the step that resolves the merge conflict of this one. In a graph, the resolver may have ended already
    /// because of another dependency; then the conflict is an ordinary failure.
    fn find_conflict_resolver(&self, at: StepAt, end: &StepEnd) -> Option<u32> {
        let settler = self.scope_entry(at.0).conflict_resolver(at.1)?;
        let failed = matches!(end.outcome, StepOutcome::Failed(_));
        let conflict = end.error.as_ref().is_some_and(|error| error.code.as_deref() == Some(code::MERGE_CONFLICT));
        let unmerged = self.state.visit_state(at).is_some_and(|more| more.unmerged);
        let comes =
            self.scope_entry(at.0).is_routed() || self.state.step(StepAt(at.0, settler)).phase == StepPhase::Pending;
        let goes = self.state.instance(at.0).is_going();
        (failed && conflict && unmerged && comes && goes).then_some(settler)
    }

    /// Returns the steps whose conflicts this one has to resolve.
    fn find_unresolved_conflicts(&self, at: StepAt) -> Vec<StepAt> {
        let steps = self.scope_entry(at.0).steps_resolved_by(at.1).iter().map(|step| StepAt(at.0, *step));
        let left = |step: &StepAt| self.state.visit_state(*step).is_some_and(|more| more.settler.is_some());
        steps.filter(left).collect()
    }

    /// Returns the error for unresolved conflicts, naming the steps that have them.
    fn unresolved_error(&self, first: StepAt, left: &[StepAt], own: Option<ExecutionError>) -> ExecutionError {
        let whose: Vec<String> = left.iter().map(|at| format!("`{}`", self.step(*at).id)).collect();
        match own {
            Some(own) => {
                let message = format!("{}; the changes of {} are not merged", own.message, whose.join(", "));
                ExecutionError { message, ..own }
            }
            None => {
                let conflict = self.state.visit_state(first).and_then(|more| more.error.clone());
                let message = format!("the changes of {} are not merged", whose.join(", "));
                let unknown = || ExecutionError::non_retryable(code::MERGE_CONFLICT, message);
                ExecutionError { origin: Some(first), ..conflict.unwrap_or_else(unknown) }
            }
        }
    }
}
