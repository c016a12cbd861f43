//! The written steps of a context, so that a write for a long run continues instead of starting again.
//!
//! Owns when a step has nothing new to write. Does not read the folder: while a run holds it, only that run writes
//! there.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    engine::{LedgerEntry, StepAt, VisitState},
    ir::{OutcomeEffect, StepKindSpec, StepStatus},
};

use super::{ContextInput, meta::is_over};

/// The steps of a run that have ended and were written.
#[derive(Debug, Default)]
pub struct WrittenSteps {
    /// The number of events of the run.
    events: u64,
    steps: BTreeMap<StepAt, StepSignature>,
}

/// The data from which all metadata of a step is derived.
#[derive(Debug)]
struct StepSignature {
    status: StepStatus,
    effect: Option<OutcomeEffect>,
    more: Option<Arc<VisitState>>,
    told: Option<Arc<LedgerEntry>>,
}

impl WrittenSteps {
    /// True if nothing has been written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// True if a later state was written already: attempts that start together write the context in any order.
    pub(super) fn is_past(&self, story: &ContextInput<'_>) -> bool {
        story.state.events < self.events
    }

    /// Records that this state was written.
    pub(super) fn mark_reached(&mut self, story: &ContextInput<'_>) {
        self.events = story.state.events;
    }

    /// True if a step has not changed since it was written.
    pub(super) fn is_current(&self, story: &ContextInput<'_>, at: StepAt, status: StepStatus) -> bool {
        let now = story.state.step(at);
        self.steps.get(&at).is_some_and(|sign| {
            (sign.status, sign.effect) == (status, now.effect)
                && is_same(sign.more.as_ref(), now.more.as_ref())
                && is_same(sign.told.as_ref(), story.ledger.find_entry(at))
        })
    }

    /// Records that a step was written. A step that is active, has inner steps or waits for a conflict resolver may
    /// have more to write although it does not change itself.
    pub(super) fn add_step(&mut self, story: &ContextInput<'_>, at: StepAt, status: StepStatus) {
        let now = story.state.step(at);
        let kind = &story.plan.definition.scope(story.state.instance(at.0).scope).step(at.1).kind;
        let is_settled = now.more.as_ref().is_some_and(|more| more.settler.is_some());
        if !is_over(status) || is_settled || matches!(kind, StepKindSpec::Call(_)) || !kind.inner_scopes().is_empty() {
            self.steps.remove(&at);
            return;
        }
        let (more, told) = (now.more.clone(), story.ledger.find_entry(at).cloned());
        self.steps.insert(at, StepSignature { status, effect: now.effect, more, told });
    }
}

/// True if both are the same object, which nobody has changed.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
