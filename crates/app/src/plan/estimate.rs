//! The estimated use of a run: computed from the plan where possible, otherwise based on listed assumptions.

use serde::Serialize;
use skein_core::{ir::WorkerSpec, plan::PlanDefinition};
use skein_host::executor::agents::fallback;

use crate::project::config;

#[derive(Debug, Serialize)]
pub struct CostEstimate {
    /// The maximum number of starts of an agent, including retries and iterations. None: there is no upper bound.
    pub agent_starts_at_most: Option<u64>,
    /// Additional starts for each item of a list whose length is unknown.
    pub per_item: Vec<ItemEstimate>,
    /// Excludes the additional starts for items.
    pub tokens_at_most: Option<u64>,
    /// None if a list of unknown length or a missing price makes it unknown.
    pub usd_at_most: Option<f64>,
    /// The assumptions behind the numbers.
    pub assumes: Vec<String>,
    /// Values that are not known before the run; shown with the other unknowns.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct ItemEstimate {
    pub step: String,
    pub agent_starts: u64,
    pub tokens: u64,
}

impl CostEstimate {
    pub fn from_definition(definition: &PlanDefinition, config: &config::EstimateConfig) -> CostEstimate {
        let starts = definition.count_worker_starts(|worker| matches!(worker, WorkerSpec::Agent { .. }));
        let per_item: Vec<ItemEstimate> = starts
            .items
            .iter()
            .filter(|(_, starts)| **starts > 0)
            .map(|(step, starts)| ItemEstimate {
                step: step.to_string(),
                agent_starts: *starts,
                tokens: starts.saturating_mul(config.tokens_per_attempt),
            })
            .collect();
        let bound = (!starts.endless).then_some(starts.most);
        let tokens = bound.map(|starts| starts.saturating_mul(config.tokens_per_attempt));
        #[allow(clippy::cast_precision_loss, reason = "an estimate")]
        let usd = tokens
            .filter(|_| per_item.is_empty())
            .zip(config.usd_per_million_tokens)
            .map(|(tokens, usd)| tokens as f64 / 1e6 * usd);
        let agents = bound != Some(0) || !per_item.is_empty();
        CostEstimate {
            agent_starts_at_most: bound,
            assumes: if agents { list_assumptions(definition, config) } else { Vec::new() },
            unknown: list_unknowns(starts.endless, &per_item, agents && config.usd_per_million_tokens.is_none()),
            per_item,
            tokens_at_most: tokens,
            usd_at_most: usd,
        }
    }
}

fn list_assumptions(definition: &PlanDefinition, config: &config::EstimateConfig) -> Vec<String> {
    let tokens = skein_core::plan::group_digits(config.tokens_per_attempt);
    let mut assumes = vec![format!("{tokens} tokens each time an agent is started")];
    assumes.extend(config.usd_per_million_tokens.map(|usd| format!("${usd} for a million tokens")));
    let steps = definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let relieved = steps.filter(|step| !fallback::named_agents(step).is_empty()).count();
    assumes.extend((relieved > 0).then(|| "that no agent takes over from another".to_owned()));
    assumes
}

fn list_unknowns(endless: bool, per_item: &[ItemEstimate], no_price: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    if endless {
        unknown.push("how often steps that routes lead back to will run".to_owned());
    }
    unknown.extend(per_item.iter().map(|item| format!("how many items `{}` will have", item.step)));
    if no_price {
        unknown.push("the price: none is set in skein.toml (`[estimate] usd_per_million_tokens`)".to_owned());
    }
    unknown
}
