//! What of a context is as it was written last, so that telling a long run goes on from there and does not begin again.
//!
//! Owns when a step has nothing new to tell. Refuses to look at the folder: while a run has it, only the run writes there.

use std::{collections::BTreeMap, sync::Arc};

use skein_core::{
    engine::{StepAt, VisitState},
    ir::{OutcomeEffect, StepKindSpec, StepStatus},
};

use super::{ContextInput, ledger::LedgerEntry, meta::is_over};

/// The steps of a run that are over and have been told of.
#[derive(Debug, Default)]
pub struct WrittenSteps {
    /// How many events the run had.
    events: u64,
    steps: BTreeMap<StepAt, StepSignature>,
}

/// All that a step tells of itself comes from these.
#[derive(Debug)]
struct StepSignature {
    status: StepStatus,
    effect: Option<OutcomeEffect>,
    more: Option<Arc<VisitState>>,
    told: Option<Arc<LedgerEntry>>,
}

impl WrittenSteps {
    /// Whether nothing has been told yet.
    pub(super) fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Whether all of this has been told: attempts that begin together tell of the run in any order.
    pub(super) fn is_past(&self, story: &ContextInput<'_>) -> bool {
        story.state.events < self.events
    }

    /// All of this has been told.
    pub(super) fn mark_reached(&mut self, story: &ContextInput<'_>) {
        self.events = story.state.events;
    }

    /// Whether a step is as it was when it was told of.
    pub(super) fn is_current(&self, story: &ContextInput<'_>, at: StepAt, status: StepStatus) -> bool {
        let now = story.state.step(at);
        self.steps.get(&at).is_some_and(|sign| {
            (sign.status, sign.effect) == (status, now.effect)
                && is_same(sign.more.as_ref(), now.more.as_ref())
                && is_same(sign.told.as_ref(), story.ledger.find_entry(at))
        })
    }

    /// A step has been told of. One that goes on, has others inside or is settled by another may have more to tell while
    /// it stays as it is.
    pub(super) fn add_step(&mut self, story: &ContextInput<'_>, at: StepAt, status: StepStatus) {
        let now = story.state.step(at);
        let kind = &story.plan.definition.scope(story.state.instance(at.0).scope).step(at.1).kind;
        let is_settled = now.more.as_ref().is_some_and(|more| more.settler.is_some());
        if !is_over(status)
            || is_settled
            || matches!(kind, StepKindSpec::Call(_))
            || !kind.inner_scopes().is_empty()
        {
            self.steps.remove(&at);
            return;
        }
        let (more, told) = (now.more.clone(), story.ledger.find_entry(at).cloned());
        self.steps.insert(at, StepSignature { status, effect: now.effect, more, told });
    }
}

/// Whether both are one thing, which nobody has changed.
fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}
