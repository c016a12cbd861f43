//! What the world should be doing now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{AttemptId, AttemptInput, AttemptMode, Publication};
use crate::time::{Millis, Timestamp};

/// The wanted world. Whatever is in flight and not here is to be stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedWork {
    pub runs: BTreeMap<AttemptId, AttemptAssignment>,
    pub publish: BTreeSet<Publication>,
    pub wake: Option<Timestamp>,
}

/// A worker's task, beside what the plan says of its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptAssignment {
    pub given: Arc<AttemptInput>,
    pub mode: AttemptMode,
    pub stage: u32,
    /// How long the attempt may take, by a clock that does not jump.
    pub limit: Option<Millis>,
}

impl WantedWork {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.publish.is_empty() && self.wake.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wish_is_not_nothing() {
        assert!(WantedWork::default().is_empty());
        let publishes = WantedWork { publish: [Publication::Files].into(), ..WantedWork::default() };
        let wakes = WantedWork { wake: Some(Timestamp(1)), ..WantedWork::default() };
        assert!(!publishes.is_empty() && !wakes.is_empty());
    }
}
