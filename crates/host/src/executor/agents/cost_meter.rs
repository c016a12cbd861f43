//! The spending of an attempt, compared with its budgets.
//!
//! Owns the conversion of the totals that agents report to the cost of one attempt. A cost that no agent reports and no
//! configured price determines stays unknown.

use std::borrow::Cow;

use skein_core::engine::Cost;

use super::{TokenUsage, UsageTotal};
use crate::run_settings::ModelPrice;

impl ModelPrice {
    /// Returns the price in millionths of a dollar: one token at one dollar per million costs one.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "costs are rounded, and no cost exceeds the range of a float"
    )]
    fn price_usage(&self, spent: TokenUsage) -> u64 {
        let cached = self.cached.unwrap_or(self.input);
        let parts = [(spent.input, self.input), (spent.cached, cached), (spent.output, self.output)];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>().round() as u64
    }
}

/// The remaining part of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingBudget {
    /// The owner of the budget, as words for a message.
    pub whose: Cow<'static, str>,
    pub tokens: Option<u64>,
    pub micro_usd: Option<u64>,
    /// True if a person is asked when the budget is spent. Otherwise the step fails.
    pub pause: bool,
}

#[derive(Debug, Default)]
pub struct CostMeter {
    /// The cost of an earlier attempt that was never reported.
    carried: Cost,
    /// The session's usage when this attempt started.
    base: TokenUsage,
    price: Option<ModelPrice>,
    left: Vec<RemainingBudget>,
    run: TokenUsage,
    /// The session's total usage, if the agent reports it.
    total: Option<TokenUsage>,
}

impl CostMeter {
    pub fn new(carried: Cost, base: TokenUsage, price: Option<ModelPrice>, left: Vec<RemainingBudget>) -> CostMeter {
        CostMeter { carried, base, price, left, run: TokenUsage::default(), total: None }
    }

    pub fn record_usage(&mut self, used: UsageTotal) {
        match used {
            UsageTotal::Run(spent) => self.run = spent,
            UsageTotal::Session(spent) => {
                self.total = Some(spent);
                self.run = spent.usage_since(self.base);
            }
        }
    }

    /// Returns the cost of this attempt.
    pub fn cost(&self) -> Cost {
        let told = self.run.micro_usd.or_else(|| self.price.map(|price| price.price_usage(self.run)));
        let mut cost = Cost { tokens: self.run.total_tokens(), micro_usd: told };
        cost.add(self.carried);
        cost
    }

    /// Returns the session's total usage, for the attempt that continues it.
    pub fn session_total(&self) -> TokenUsage {
        self.total.unwrap_or(self.base)
    }

    /// Returns the first budget that is spent, if any.
    pub fn find_spent_budget(&self) -> Option<&RemainingBudget> {
        let cost = self.cost();
        let spent = |left: &&RemainingBudget| {
            left.tokens.is_some_and(|most| cost.tokens >= most)
                || left.micro_usd.zip(cost.micro_usd).is_some_and(|(most, now)| now >= most)
        };
        self.left.iter().find(spent)
    }

    /// Describes the cost so far in a few words. Returns `None` if nothing is known.
    pub fn describe_spending(&self) -> Option<String> {
        let cost = self.cost();
        let usd = cost.micro_usd.map(|micro| format!(", ${}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100));
        (!cost.is_zero()).then(|| format!("{} tokens{}", cost.tokens, usd.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(input: u64, cached: u64, output: u64, micro_usd: Option<u64>) -> TokenUsage {
        TokenUsage { input, cached, output, micro_usd }
    }

    #[test]
    fn totals_of_a_session_are_subtracted_and_what_was_never_told_is_added() {
        let base = spent(1_000, 400, 50, None);
        let mut meter = CostMeter::new(Cost { tokens: 7, micro_usd: None }, base, None, Vec::new());
        meter.record_usage(UsageTotal::Session(spent(2_000, 800, 100, None)));
        assert_eq!(meter.cost(), Cost { tokens: 1_457, micro_usd: None });
        assert_eq!(meter.session_total(), spent(2_000, 800, 100, None));
        let mut meter = CostMeter::new(Cost::default(), TokenUsage::default(), None, Vec::new());
        meter.record_usage(UsageTotal::Run(spent(1, 2, 3, Some(9))));
        meter.record_usage(UsageTotal::Run(spent(2, 2, 4, Some(12))));
        assert_eq!(meter.cost(), Cost { tokens: 8, micro_usd: Some(12) });
    }

    #[test]
    fn money_is_told_or_worked_out_or_unknown() {
        let price = Some(ModelPrice { input: 3.0, cached: Some(0.3), output: 15.0 });
        let mut meter = CostMeter::new(Cost::default(), TokenUsage::default(), price, Vec::new());
        meter.record_usage(UsageTotal::Run(spent(1_000, 400, 50, None)));
        assert_eq!(meter.cost().micro_usd, Some(3_870));
        meter.record_usage(UsageTotal::Run(spent(1_000, 400, 50, Some(5))));
        assert_eq!(meter.cost().micro_usd, Some(5));
        assert_eq!(meter.describe_spending().unwrap(), "1450 tokens, $0.0000");
    }

    #[test]
    fn the_first_budget_that_is_spent_is_named() {
        let left = |whose: &'static str, tokens, micro_usd| RemainingBudget {
            whose: whose.into(),
            tokens,
            micro_usd,
            pause: false,
        };
        let all = vec![left("the step's", Some(100), None), left("the run's", None, Some(10))];
        let mut meter = CostMeter::new(Cost::default(), TokenUsage::default(), None, all);
        meter.record_usage(UsageTotal::Run(spent(50, 0, 49, None)));
        assert_eq!(meter.find_spent_budget(), None);
        meter.record_usage(UsageTotal::Run(spent(50, 0, 49, Some(10))));
        assert_eq!(meter.find_spent_budget().unwrap().whose, "the run's");
        meter.record_usage(UsageTotal::Run(spent(50, 0, 50, Some(10))));
        assert_eq!(meter.find_spent_budget().unwrap().whose, "the step's");
    }
}
