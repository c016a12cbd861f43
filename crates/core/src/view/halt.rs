//! Why an instance started nothing more: the cause, looked for outwards until it is found.

use super::{Names, Reason, words};
use crate::{
    engine::{Halt, InstanceIx, Outcome, RunState, StepAt},
    ir::{KindName, RunStatus, Then},
};

/// Who decides when nobody does, as the engine calls it.
pub(super) const TIME: &str = "system:timeout";

/// What stopped an instance, and the steps that the text names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    pub reason: Reason,
    pub text: String,
    pub steps: Vec<String>,
}

impl Cause {
    fn new(reason: Reason, text: impl Into<String>) -> Cause {
        Cause { reason, text: text.into(), steps: Vec::new() }
    }
}

/// Why an instance stopped; none while it goes on or when it came to its own end.
pub(super) fn cause(state: &RunState, names: &Names, mut ix: InstanceIx) -> Option<Cause> {
    loop {
        let instance = state.instance(ix);
        match instance.halt()? {
            Halt::Failed { step } => return Some(failed(state, names, StepAt(ix, *step))),
            Halt::TimedOut => return Some(timed_out(names, instance.parent)),
            Halt::Cancelled { by } => return Some(cancelled(state, instance.parent.is_none(), by)),
            Halt::Limit { error } => return Some(Cause::new(Reason::Limit, error.message.clone())),
            Halt::Outer => {
                let parent = instance.parent?;
                if let Some(sibling) = failed_sibling(state, parent) {
                    let path = names.instance(sibling).to_owned();
                    let text = format!("`{path}` beside it failed");
                    return Some(Cause { steps: vec![path], ..Cause::new(Reason::SiblingFailed, text) });
                }
                ix = parent.0;
            }
        }
    }
}

fn failed(state: &RunState, names: &Names, at: StepAt) -> Cause {
    let step = state.step(at);
    let (path, outcome) = (names.step(at), step.outcome.unwrap_or(Outcome::Cancelled));
    let mut text = format!("`{path}` {}", words::ended(outcome));
    // A gate that is not approved stops the workflow whatever its failure policy is.
    if names.step_kind(at) != KindName::Gate {
        let undoes = step.effect.is_some_and(|effect| effect.then == Then::Undo);
        let consequence = match &names.words(at.0).failure {
            Some(clauses) if undoes => &clauses.undo,
            Some(clauses) => &clauses.abort,
            None if undoes => "the workflow is undone",
            None => "the workflow stops",
        };
        text += &format!(" and {consequence}");
    }
    Cause { steps: vec![path], ..Cause::new(Reason::StepFailed, text) }
}

fn timed_out(names: &Names, parent: Option<StepAt>) -> Cause {
    let Some(parent) = parent else {
        return Cause::new(Reason::TimedOut, "the workflow's time was up");
    };
    let path = names.step(parent);
    let text = format!("the time of `{path}` was up");
    Cause { steps: vec![path], ..Cause::new(Reason::TimedOut, text) }
}

pub(super) fn cancelled(state: &RunState, root: bool, by: &str) -> Cause {
    let what = if root { "the run" } else { "the workflow" };
    if by == TIME {
        let text = format!("{what} was cancelled because nobody answered before the timeout");
        return Cause::new(Reason::Cancelled, text);
    }
    let reason = state.cancel.as_ref().and_then(|cancel| cancel.reason.as_deref()).filter(|_| root);
    let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
    Cause::new(Reason::Cancelled, format!("{what} was cancelled by {by}{reason}"))
}

/// The lane or item whose failure stopped the others.
fn failed_sibling(state: &RunState, parent: StepAt) -> Option<InstanceIx> {
    let children = &state.more(parent)?.children;
    let failed = |ix: &&InstanceIx| {
        let sibling = state.instance(**ix);
        sibling.halt() != Some(&Halt::Outer)
            && sibling.end().is_some_and(|end| end.status != RunStatus::Succeeded)
    };
    children.iter().find(failed).copied()
}
