//! The cause of a halt, searched from the instance outwards.

use super::{StepReason, words};
use crate::{
    engine::{HaltReason, InstanceIx, RunState, StepAt, StepOutcome, StepPaths},
    ir::{OutcomeAction, RunStatus, StepKindName},
};

/// The name of the actor in decisions that a timeout makes, as in the engine.
pub(super) const TIMEOUT_ACTOR: &str = "system:timeout";

/// The cause that stopped an instance, and the steps that the text names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HaltCause {
    pub reason: StepReason,
    pub text: String,
    pub steps: Vec<String>,
}

impl HaltCause {
    fn new(reason: StepReason, text: impl Into<String>) -> HaltCause {
        HaltCause { reason, text: text.into(), steps: Vec::new() }
    }
}

/// Returns the cause that stopped an instance. `None` while it runs, or if it was not halted.
pub(super) fn find_halt_cause(state: &RunState, names: &StepPaths, mut ix: InstanceIx) -> Option<HaltCause> {
    loop {
        let instance = state.instance(ix);
        match instance.halt_reason()? {
            HaltReason::Failed { step } => return Some(failure_cause(state, names, StepAt(ix, *step))),
            HaltReason::TimedOut => return Some(timeout_cause(names, instance.parent)),
            HaltReason::Cancelled { by } => return Some(cancel_cause(state, instance.parent.is_none(), by)),
            HaltReason::Limit { error } => {
                return Some(HaltCause::new(StepReason::Limit, error.message.clone()));
            }
            HaltReason::Outer => {
                let parent = instance.parent?;
                if let Some(sibling) = find_failed_sibling(state, parent) {
                    let path = names.instance_path(sibling).to_owned();
                    let text = format!("its sibling `{path}` failed");
                    return Some(HaltCause { steps: vec![path], ..HaltCause::new(StepReason::SiblingFailed, text) });
                }
                ix = parent.0;
            }
        }
    }
}

fn failure_cause(state: &RunState, names: &StepPaths, at: StepAt) -> HaltCause {
    let step = state.step(at);
    let (path, outcome) = (names.step_path(at), step.outcome.unwrap_or(StepOutcome::Cancelled));
    let mut text = format!("`{path}` {}", words::outcome_phrase(outcome));
    // A gate that is not approved stops the workflow regardless of its failure policy.
    if names.step(at).kind.name() != StepKindName::Gate {
        let undoes = step.effect.is_some_and(|effect| effect.then == OutcomeAction::Undo);
        let consequence = match &names.words(at.0).failure {
            Some(clauses) if undoes => &clauses.undo,
            Some(clauses) => &clauses.abort,
            None if undoes => "the workflow is undone",
            None => "the workflow stops",
        };
        text += &format!(" and {consequence}");
    }
    HaltCause { steps: vec![path], ..HaltCause::new(StepReason::StepFailed, text) }
}

fn timeout_cause(names: &StepPaths, parent: Option<StepAt>) -> HaltCause {
    let Some(parent) = parent else {
        return HaltCause::new(StepReason::TimedOut, "the workflow's time was up");
    };
    let path = names.step_path(parent);
    let text = format!("the time of `{path}` was up");
    HaltCause { steps: vec![path], ..HaltCause::new(StepReason::TimedOut, text) }
}

pub(super) fn cancel_cause(state: &RunState, root: bool, by: &str) -> HaltCause {
    let what = if root { "the run" } else { "the workflow" };
    if by == TIMEOUT_ACTOR {
        let text = format!("{what} was cancelled because nobody answered before the timeout");
        return HaltCause::new(StepReason::Cancelled, text);
    }
    let reason = state.cancel.as_ref().and_then(|cancel| cancel.reason.as_deref()).filter(|_| root);
    let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
    HaltCause::new(StepReason::Cancelled, format!("{what} was cancelled by {by}{reason}"))
}

/// The lane or item whose failure stopped the others.
fn find_failed_sibling(state: &RunState, parent: StepAt) -> Option<InstanceIx> {
    let children = &state.visit_state(parent)?.children;
    let failed = |ix: &&InstanceIx| {
        let sibling = state.instance(**ix);
        sibling.halt_reason() != Some(&HaltReason::Outer)
            && sibling.end().is_some_and(|end| end.status != RunStatus::Succeeded)
    };
    children.iter().find(failed).copied()
}
