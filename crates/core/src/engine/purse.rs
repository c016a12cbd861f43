//! Out of whose budgets an attempt is paid: its step's own, those of all that is around it, and the run's.
//!
//! Owns what each of them has spent. What a spent budget does is the engine's matter, and the host's.

use std::borrow::Cow;

use super::{Cost, Part, RunState, StepAt};
use crate::{ir::Budget, plan::Plan};

/// A budget, and what was spent of it.
#[derive(Debug, Clone)]
pub struct Purse<'a> {
    /// Such as `the step's`; `budget` follows.
    pub whose: Cow<'static, str>,
    pub budget: &'a Budget,
    pub spent: Cost,
}

/// The budgets that an attempt of a step is paid out of, the nearest first.
pub fn purses<'a>(plan: &'a Plan, state: &RunState, at: StepAt) -> Vec<Purse<'a>> {
    let mut purses = Vec::new();
    let mut add = |whose: &dyn Fn() -> Cow<'static, str>, budget: Option<&'a Budget>, spent: Cost| {
        purses.extend(budget.map(|budget| Purse { whose: whose(), budget, spent }));
    };
    let step = |at: StepAt| plan.definition.scope(state.instance(at.0).scope).step(at.1);
    let own = state.more(at).map_or_else(Cost::default, |more| more.cost);
    add(&|| "the step's".into(), step(at).policy.budget.as_ref(), own);
    let mut ix = at.0;
    while let Some(holder) = state.instance(ix).parent {
        let inside = state.more(holder).map_or_else(Cost::default, |more| more.inside);
        let instance = state.instance(ix);
        if instance.part == Some(Part::Call) {
            let called = &plan.definition.workflow_of(instance.scope).workflow;
            let whose = || Cow::from(format!("the called workflow `{}`'s", called.id));
            add(&whose, called.budget.as_ref(), inside);
        }
        let around = step(holder);
        add(&|| format!("the step `{}`'s", around.id).into(), around.policy.budget.as_ref(), inside);
        ix = holder.0;
    }
    add(&|| "the run's".into(), plan.definition.root().workflow.budget.as_ref(), state.spent);
    purses
}
