//! Hands that do nothing.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, Cost, Publication,
    },
    ids::RunId,
};

use crate::executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter};

/// What checks say.
const NOT_YET: &str = "it is not done yet";

/// Does nothing, and is done with it at once; or never. No check is ever content.
#[derive(Debug, Default)]
pub struct NullExecutor {
    never: bool,
    begun: Vec<AttemptReporter>,
    /// What every step gives.
    output: Arc<Value>,
}

impl NullExecutor {
    /// One who begins everything and ends nothing.
    pub fn new_idle() -> NullExecutor {
        NullExecutor { never: true, ..NullExecutor::default() }
    }

    /// One whose steps all give this.
    pub fn with_output(output: Value) -> NullExecutor {
        NullExecutor { output: Arc::new(output), ..NullExecutor::default() }
    }
}

impl Executor for NullExecutor {
    fn start_attempt(
        &mut self,
        _: ActiveRun<'_>,
        attempt: AttemptId,
        _: &AttemptAssignment,
        finish: AttemptReporter,
    ) {
        if self.never {
            return self.begun.push(finish);
        }
        let end = match attempt.role {
            AttemptRole::Check => AttemptEnd::Checked {
                finding: CheckFinding::Incomplete,
                reasons: vec![NOT_YET.to_owned()],
                output: None,
                fingerprints: Vec::new(),
            },
            _ => AttemptEnd::Succeeded { output: Arc::clone(&self.output) },
        };
        finish.report(AttemptReport::new(end, Cost::default()));
    }

    fn stop_attempt(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: ActiveRun<'_>, _: Publication, published: PublicationReporter) {
        published.report(None);
    }

    fn reap_orphans(&mut self, _: &[RunId]) {}

    fn forget_run(&mut self, _: &RunId) {}
}
