//! The canonical statuses, and the words for each in a source's format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

worded_enum! {
    /// The status of a run.
    RunStatus {
        Queued = "queued",
        Running = "running",
        Waiting = "waiting",
        Undoing = "undoing",
        Succeeded = "succeeded",
        Failed = "failed",
        TimedOut = "timed_out",
        Cancelled = "cancelled",
        Undone = "undone",
        UndoFailed = "undo_failed",
    }
}

worded_enum! {
    /// The status of a step.
    StepStatus {
        Pending = "pending",
        Ready = "ready",
        Running = "running",
        Checking = "checking",
        Waiting = "waiting",
        Succeeded = "succeeded",
        Failed = "failed",
        Incomplete = "incomplete",
        Skipped = "skipped",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
        Undone = "undone",
    }
}

/// The words of a source's format. A status without one keeps its canonical word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusWords {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub run: BTreeMap<RunStatus, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub step: BTreeMap<StepStatus, String>,
    /// The word for a step that was skipped because of its own failure, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_by_own_failure: Option<String>,
    /// The consequence of a step's failure, in the words of its format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureWords>,
}

/// Clauses that follow "`step` failed and".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureWords {
    /// The workflow stops.
    pub abort: String,
    /// The workflow is undone.
    pub undo: String,
}

impl StatusWords {
    /// Builds the words from two tables.
    pub fn from_tables(run: fn(RunStatus) -> &'static str, step: fn(StepStatus) -> &'static str) -> StatusWords {
        StatusWords {
            run: RunStatus::ALL.into_iter().map(|status| (status, run(status).to_owned())).collect(),
            step: StepStatus::ALL.into_iter().map(|status| (status, step(status).to_owned())).collect(),
            skipped_by_own_failure: None,
            failure: None,
        }
    }

    /// Adds the clauses for a failure that stops the workflow and for one that undoes it.
    pub fn with_failure_words(self, abort: &str, undo: &str) -> StatusWords {
        StatusWords { failure: Some(FailureWords { abort: abort.to_owned(), undo: undo.to_owned() }), ..self }
    }

    pub fn run_word(&self, status: RunStatus) -> &str {
        self.run.get(&status).map_or(status.as_str(), String::as_str)
    }

    pub fn step_word(&self, status: StepStatus, by_own_failure: bool) -> &str {
        let own = self.skipped_by_own_failure.as_deref().filter(|_| by_own_failure && status == StepStatus::Skipped);
        own.unwrap_or_else(|| self.step.get(&status).map_or(status.as_str(), String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_without_a_word_keeps_its_own() {
        let words = StatusWords {
            step: [(StepStatus::Skipped, "pending".into())].into(),
            skipped_by_own_failure: Some("skipped".into()),
            ..StatusWords::default()
        };
        assert_eq!(words.step_word(StepStatus::Skipped, false), "pending");
        assert_eq!(words.step_word(StepStatus::Skipped, true), "skipped");
        assert_eq!(words.step_word(StepStatus::Failed, true), "failed");
        assert_eq!(words.run_word(RunStatus::UndoFailed), "undo_failed");
    }

    #[test]
    fn the_json_word_is_the_shown_word() {
        for status in StepStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        for status in RunStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
    }
}
