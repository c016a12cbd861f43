//! How long an attempt may take.

use super::Role;
use crate::{
    ir::{Kind, Per, Step},
    time::Millis,
};

/// The time limit of one attempt of a step, by what it is for.
pub(super) fn of(step: &Step, role: Role) -> Option<Millis> {
    let Kind::Work(work) = &step.kind else {
        return step.undo.as_ref().and_then(|undo| undo.timeout).filter(|_| role == Role::Undo);
    };
    match role {
        Role::Main => step.policy.timeout.filter(|_| step.policy.timeout_per == Per::Attempt),
        Role::Check => work.check.as_ref().and_then(|check| check.timeout),
        Role::Summary => work.summary.as_ref().and_then(|summary| summary.timeout),
        Role::Undo => step.undo.as_ref().and_then(|undo| undo.timeout),
    }
}
