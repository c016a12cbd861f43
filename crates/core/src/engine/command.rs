//! What the world should be doing now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{AttemptId, Given, Mode, Publication};
use crate::time::{Millis, Time};

/// The wanted world. Whatever is in flight and not here is to be stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    pub runs: BTreeMap<AttemptId, Assignment>,
    pub publish: BTreeSet<Publication>,
    pub wake: Option<Time>,
}

/// A worker's task, beside what the plan says of its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    pub given: Arc<Given>,
    pub mode: Mode,
    pub stage: u32,
    /// How long the attempt may take, by a clock that does not jump.
    pub limit: Option<Millis>,
}

impl Commands {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.publish.is_empty() && self.wake.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wish_is_not_nothing() {
        assert!(Commands::default().is_empty());
        let publishes = Commands { publish: [Publication::Files].into(), ..Commands::default() };
        let wakes = Commands { wake: Some(Time(1)), ..Commands::default() };
        assert!(!publishes.is_empty() && !wakes.is_empty());
    }
}
