//! Undo: the walk over what was completed, last first.

use skein_core::{
    engine::{AttemptEnd, Role},
    ir::{ErrorClass, Retry, StepStatus, UndoFailure},
};

use super::{
    Eval, Race,
    frame::{Completed, Log},
};
use crate::outcome::Who;

/// What a walk did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Walked {
    pub undone: u32,
    pub failed: bool,
}

impl<'a> Eval<'a> {
    pub(super) fn walk(
        &mut self,
        first: Option<Completed<'a>>,
        log: &Log<'a>,
        if_one_fails: UndoFailure,
    ) -> Result<Walked, Race> {
        let mut targets = Vec::new();
        log.flat(&mut targets)?;
        targets.extend(first);
        let mut walked = Walked::default();
        for target in targets.iter().rev() {
            if self.undo(target)? {
                walked.undone += 1;
                let shown = target.name.step(target.step.id.as_str());
                if let Some(step) = self.steps.get_mut(&shown)
                    && step.status == StepStatus::Succeeded
                {
                    step.status = StepStatus::Undone;
                }
                self.undone.push(shown);
            } else {
                walked.failed = true;
                if if_one_fails == UndoFailure::Stop {
                    break;
                }
            }
        }
        Ok(walked)
    }

    /// Whether it worked in the end.
    fn undo(&mut self, target: &Completed<'a>) -> Result<bool, Race> {
        let Some(undo) = &target.step.undo else { return Err(Race("nothing to undo it with")) };
        let mut attempt = 1;
        loop {
            let who = Who {
                path: &target.name.identity,
                step: target.step.id.as_str(),
                visit: target.visit,
                iteration: 1,
                role: Role::Undo,
                attempt,
            };
            let report = self.world.report(&who, target.step);
            self.pay(report.cost);
            let (class, code) = match report.end {
                AttemptEnd::Succeeded { .. } => return Ok(true),
                AttemptEnd::Failed { class, code, .. } => (class, code),
                AttemptEnd::TimedOut => (ErrorClass::Timeout, None),
                _ => return Err(Race("an undo that ends in an unusual way")),
            };
            if !again(&undo.retry, attempt, class, code.as_deref()) {
                return Ok(false);
            }
            attempt += 1;
        }
    }
}

/// Whether a policy allows another attempt after this many tries.
pub fn again(retry: &Retry, tries: u32, class: ErrorClass, code: Option<&str>) -> bool {
    let most = retry.attempts.get(&class).copied().unwrap_or(0);
    tries < most && !code.is_some_and(|code| retry.never.iter().any(|never| never == code))
}
