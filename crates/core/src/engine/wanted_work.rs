//! The work that the host should be doing now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{AttemptId, AttemptInput, AttemptMode, Publication};
use crate::time::{Millis, Timestamp};

/// The wanted work. The host stops attempts in flight that are not listed here.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedWork {
    pub runs: BTreeMap<AttemptId, AttemptAssignment>,
    pub publish: BTreeSet<Publication>,
    pub wake: Option<Timestamp>,
}

/// The task of a worker, in addition to the definition of its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttemptAssignment {
    pub given: Arc<AttemptInput>,
    pub mode: AttemptMode,
    pub stage: u32,
    /// The time limit of the attempt, measured with a monotonic clock.
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
