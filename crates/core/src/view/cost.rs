//! Costs in the units that people use.

use serde::Serialize;

use crate::engine::Cost;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostView {
    pub tokens: u64,
    /// None if no worker reported a cost in money.
    pub usd: Option<f64>,
}

impl From<Cost> for CostView {
    fn from(cost: Cost) -> CostView {
        // A double is exact to the millionth up to billions of dollars.
        CostView { tokens: cost.tokens, usd: cost.micro_usd.map(|micro| micro as f64 / 1_000_000.0) }
    }
}
