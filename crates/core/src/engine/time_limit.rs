//! The time limit of an attempt.

use super::AttemptRole;
use crate::{
    ir::{Step, StepKindSpec, TimeoutScope},
    time::Millis,
};

/// Returns the time limit of one attempt of a step, by role.
pub(super) fn attempt_time_limit(step: &Step, role: AttemptRole) -> Option<Millis> {
    let StepKindSpec::Work(work) = &step.kind else {
        return step.undo.as_ref().and_then(|undo| undo.timeout).filter(|_| role == AttemptRole::Undo);
    };
    match role {
        AttemptRole::Main => step.policy.timeout.filter(|_| step.policy.timeout_per == TimeoutScope::Attempt),
        AttemptRole::Check => work.check.as_ref().and_then(|check| check.timeout),
        AttemptRole::Summary => work.summary.as_ref().and_then(|summary| summary.timeout),
        AttemptRole::Undo => step.undo.as_ref().and_then(|undo| undo.timeout),
    }
}
