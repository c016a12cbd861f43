//! What a run may use: worked out from the plan where it can be, assumed and labelled where it cannot.

use serde::Serialize;
use skein_core::{ir::Worker, plan::Definition};

use skein_host::crew::relay;

use crate::config;

#[derive(Debug, Serialize)]
pub struct Estimate {
    /// How many times an agent may be started, retries and iterations included. None: there is no upper bound.
    pub agent_starts_at_most: Option<u64>,
    /// Of those, what comes with each item of a list whose length is not known.
    pub per_item: Vec<PerItem>,
    /// Without what comes with items.
    pub tokens_at_most: Option<u64>,
    /// None where a list of unknown length or no price makes it unknown.
    pub usd_at_most: Option<f64>,
    /// What the numbers rest on.
    pub assumes: Vec<String>,
    /// What cannot be told before the run; shown with what else is not known.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct PerItem {
    pub step: String,
    pub agent_starts: u64,
    pub tokens: u64,
}

impl Estimate {
    pub fn of(definition: &Definition, config: &config::Estimate) -> Estimate {
        let starts = definition.starts(|worker| matches!(worker, Worker::Agent { .. }));
        let per_item: Vec<PerItem> = starts
            .items
            .iter()
            .filter(|(_, starts)| **starts > 0)
            .map(|(step, starts)| PerItem {
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
        Estimate {
            agent_starts_at_most: bound,
            assumes: if agents { assumed(definition, config) } else { Vec::new() },
            unknown: unknown(starts.endless, &per_item, agents && config.usd_per_million_tokens.is_none()),
            per_item,
            tokens_at_most: tokens,
            usd_at_most: usd,
        }
    }
}

fn assumed(definition: &Definition, config: &config::Estimate) -> Vec<String> {
    let tokens = skein_core::plan::grouped(config.tokens_per_attempt);
    let mut assumes = vec![format!("{tokens} tokens each time an agent is started")];
    assumes.extend(config.usd_per_million_tokens.map(|usd| format!("${usd} for a million tokens")));
    let steps = definition.scopes.iter().flat_map(|entry| &entry.scope.steps);
    let relieved = steps.filter(|step| !relay::named(step).is_empty()).count();
    assumes.extend((relieved > 0).then(|| "that no agent takes over from another".to_owned()));
    assumes
}

fn unknown(endless: bool, per_item: &[PerItem], no_price: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    if endless {
        unknown.push("how often steps that are routed to again will run".to_owned());
    }
    unknown.extend(per_item.iter().map(|item| format!("how many items `{}` will have", item.step)));
    if no_price {
        unknown.push("the price: none is set in skein.toml (`[estimate] usd_per_million_tokens`)".to_owned());
    }
    unknown
}
