//! What was spent, as people count it.

use serde::Serialize;

use crate::engine::Cost;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CostView {
    pub tokens: u64,
    /// None where no worker said what it cost.
    pub usd: Option<f64>,
}

impl From<Cost> for CostView {
    fn from(cost: Cost) -> CostView {
        // Exact to the millionth up to billions of dollars, which is what a double holds.
        CostView { tokens: cost.tokens, usd: cost.micro_usd.map(|micro| micro as f64 / 1_000_000.0) }
    }
}
