//! Undo: the walk over the completed visits, last first.

use skein_core::{
    engine::{AttemptEnd, AttemptRole},
    ir::{ErrorClass, StepRetry, StepStatus, UndoFailurePolicy},
};

use super::{
    ModelEvaluator, TimingRace,
    frame::{CompletionLog, ModelCompletion},
};
use crate::outcome::AttemptIdentity;

/// The result of an undo walk.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelWalkResult {
    pub undone: u32,
    pub failed: bool,
}

impl<'a> ModelEvaluator<'a> {
    pub(super) fn run_undo_walk(
        &mut self,
        first: Option<ModelCompletion<'a>>,
        log: &CompletionLog<'a>,
        if_one_fails: UndoFailurePolicy,
    ) -> Result<ModelWalkResult, TimingRace> {
        let mut targets = Vec::new();
        log.flatten_into(&mut targets)?;
        targets.extend(first);
        let mut walked = ModelWalkResult::default();
        for target in targets.iter().rev() {
            if self.undo_visit(target)? {
                walked.undone += 1;
                let shown = target.name.step_path(target.step.id.as_str());
                if let Some(step) = self.steps.get_mut(&shown)
                    && step.status == StepStatus::Succeeded
                {
                    step.status = StepStatus::Undone;
                }
                self.undone.push(shown);
            } else {
                walked.failed = true;
                if if_one_fails == UndoFailurePolicy::Stop {
                    break;
                }
            }
        }
        Ok(walked)
    }

    /// Undoes a visit, with retries. Returns true if the undo succeeded in the end.
    fn undo_visit(&mut self, target: &ModelCompletion<'a>) -> Result<bool, TimingRace> {
        let Some(undo) = &target.step.undo else { return Err(TimingRace("the step has no undo")) };
        let mut attempt = 1;
        loop {
            let who = AttemptIdentity {
                path: &target.name.identity,
                step: target.step.id.as_str(),
                visit: target.visit,
                iteration: 1,
                role: AttemptRole::Undo,
                attempt,
            };
            let report = self.world.attempt_report(&who, target.step);
            self.add_cost(report.cost);
            let (class, code) = match report.end {
                AttemptEnd::Succeeded { .. } => return Ok(true),
                AttemptEnd::Failed { class, code, .. } => (class, code),
                AttemptEnd::TimedOut => (ErrorClass::Timeout, None),
                _ => return Err(TimingRace("an undo that ends in an unusual way")),
            };
            if !allows_retry(&undo.retry, attempt, class, code.as_deref()) {
                return Ok(false);
            }
            attempt += 1;
        }
    }
}

/// True if a policy allows another attempt after this many tries.
pub fn allows_retry(retry: &StepRetry, tries: u32, class: ErrorClass, code: Option<&str>) -> bool {
    let most = retry.attempts.get(&class).copied().unwrap_or(0);
    tries < most && !code.is_some_and(|code| retry.never.iter().any(|never| never == code))
}
