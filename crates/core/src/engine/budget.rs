//! The budgets that an attempt is charged to: those of its step, of every composite and called workflow around it, and
//! of the run.
//!
//! Owns the spent amount, the limit and the renewal of each budget. Does not enforce them: the engine and the host do.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Cost, InstancePart, RunState, StepAt};
use crate::{
    ir::{Budget, BudgetMode},
    plan::{Plan, group_digits},
};

/// The owner of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetOwner {
    /// A step; for a composite, with everything inside it.
    Step(StepAt),
    /// The workflow that a step calls.
    Called(StepAt),
    Run,
}

/// An approval that renews a budget: the budget then counts from the cost spent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetGrant {
    pub of: BudgetOwner,
    pub from: Cost,
}

/// A budget and the cost charged to it.
#[derive(Debug, Clone)]
pub struct BudgetUsage<'a> {
    pub owner: BudgetOwner,
    /// The owner as text, such as `the step's`; `budget` follows.
    pub whose: Cow<'static, str>,
    pub budget: &'a Budget,
    /// The total cost so far.
    pub spent: Cost,
    /// The total cost at the last renewal.
    from: Cost,
}

impl BudgetUsage<'_> {
    /// Returns the cost since the last renewal.
    fn spent_since_renewal(&self) -> Cost {
        let micro_usd = self.spent.micro_usd.map(|now| now.saturating_sub(self.from.micro_usd.unwrap_or(0)));
        Cost { tokens: self.spent.tokens.saturating_sub(self.from.tokens), micro_usd }
    }

    pub fn is_spent(&self) -> bool {
        let since = self.spent_since_renewal();
        self.budget.is_spent(since.tokens, since.micro_usd)
    }

    pub fn tokens_left(&self) -> Option<u64> {
        self.budget.tokens.map(|most| most.saturating_sub(self.spent_since_renewal().tokens))
    }

    pub fn micro_usd_left(&self) -> Option<u64> {
        self.budget.micro_usd.map(|most| most.saturating_sub(self.spent_since_renewal().micro_usd.unwrap_or(0)))
    }

    /// Describes the cost so far and the allowed total.
    pub fn message(&self) -> String {
        let tokens = self.budget.tokens.map(|most| {
            let allowed = self.from.tokens.saturating_add(most);
            format!("{} of {} tokens", group_digits(self.spent.tokens), group_digits(allowed))
        });
        let usd = self.budget.micro_usd.map(|most| {
            let allowed = self.from.micro_usd.unwrap_or(0).saturating_add(most);
            format!("{} of {}", format_dollars(self.spent.micro_usd.unwrap_or(0)), format_dollars(allowed))
        });
        let used: Vec<String> = tokens.into_iter().chain(usd).collect();
        format!("{} budget is spent: {}", self.whose, used.join(", "))
    }

    /// The message to a person who may renew the budget.
    pub(super) fn renewal_question(&self) -> String {
        let tokens = self.budget.tokens.map(|most| format!("{} tokens", group_digits(most)));
        let more: Vec<String> = tokens.into_iter().chain(self.budget.micro_usd.map(format_dollars)).collect();
        format!("{}; approval grants {} more, then it asks again", self.message(), more.join(" and "))
    }
}

/// Formats millionths of a dollar with four decimals.
fn format_dollars(micro: u64) -> String {
    format!("${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100)
}

/// Returns the budgets that an attempt of a step is charged to, nearest first.
pub fn find_budgets<'a>(plan: &'a Plan, state: &RunState, at: StepAt) -> Vec<BudgetUsage<'a>> {
    let mut usages = Vec::new();
    let mut add = |owner, whose: &dyn Fn() -> Cow<'static, str>, budget: Option<&'a Budget>, spent: Cost| {
        let from = || state.renewed.get(&owner).copied().unwrap_or_default();
        usages.extend(budget.map(|budget| BudgetUsage { owner, whose: whose(), budget, spent, from: from() }));
    };
    let step = |at: StepAt| plan.definition.scope(state.instance(at.0).scope).step(at.1);
    let own = state.visit_state(at).map_or_else(Cost::default, |more| more.cost);
    add(BudgetOwner::Step(at), &|| "the step's".into(), step(at).policy.budget.as_ref(), own);
    let mut ix = at.0;
    while let Some(holder) = state.instance(ix).parent {
        let inside = state.visit_state(holder).map_or_else(Cost::default, |more| more.inside);
        let instance = state.instance(ix);
        if instance.part == Some(InstancePart::Call) {
            let called = &plan.definition.workflow_containing(instance.scope).workflow;
            let whose = || Cow::from(format!("the called workflow `{}`'s", called.id));
            add(BudgetOwner::Called(holder), &whose, called.budget.as_ref(), inside);
        }
        let around = step(holder);
        let whose = || Cow::from(format!("the step `{}`'s", around.id));
        add(BudgetOwner::Step(holder), &whose, around.policy.budget.as_ref(), inside);
        ix = holder.0;
    }
    add(BudgetOwner::Run, &|| "the run's".into(), plan.definition.root().workflow.budget.as_ref(), state.spent);
    usages
}

/// Returns the budgets that an approval of a budget hold renews: the spent ones with mode `pause`. A host that counts
/// costs itself may hold the step before any budget is spent; then all budgets with mode `pause` are renewed.
pub(super) fn find_renewed_budgets(plan: &Plan, state: &RunState, at: StepAt) -> Vec<BudgetGrant> {
    let mut pausing = find_budgets(plan, state, at);
    pausing.retain(|usage| usage.budget.mode == BudgetMode::Pause);
    if pausing.iter().any(BudgetUsage::is_spent) {
        pausing.retain(BudgetUsage::is_spent);
    }
    pausing.iter().map(|usage| BudgetGrant { of: usage.owner, from: usage.spent }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewed_budget_counts_from_what_was_spent_by_then() {
        let budget = Budget { tokens: Some(3_000), micro_usd: Some(20_000), mode: BudgetMode::Pause };
        let cost = |tokens, micro_usd| Cost { tokens, micro_usd: Some(micro_usd) };
        let usage = |spent, from| {
            let whose = "the step's".into();
            BudgetUsage { owner: BudgetOwner::Run, whose, budget: &budget, spent, from }
        };
        let first = usage(cost(11_551, 1_000), Cost::default());
        assert!(first.is_spent());
        assert_eq!((first.tokens_left(), first.micro_usd_left()), (Some(0), Some(19_000)));
        assert_eq!(
            first.renewal_question(),
            "the step's budget is spent: 11,551 of 3,000 tokens, $0.0010 of $0.0200; approval grants 3,000 tokens and \
             $0.0200 more, then it asks again"
        );
        let second = usage(cost(14_550, 1_000), cost(11_551, 1_000));
        assert!(!second.is_spent());
        assert_eq!((second.tokens_left(), second.micro_usd_left()), (Some(1), Some(20_000)));
        let third = usage(cost(14_551, 1_000), cost(11_551, 1_000));
        assert!(third.is_spent());
        assert!(third.message().contains("14,551 of 14,551 tokens, $0.0010 of $0.0210"), "{}", third.message());
    }
}
