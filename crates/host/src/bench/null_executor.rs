//! An executor that does nothing.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, AttemptRole, CheckFinding, Cost, Publication},
    ids::RunId,
};

use crate::executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter};

/// The finding of every check.
const NOT_YET: &str = "not done yet";

/// Ends every attempt at once without doing anything, or never. No check ever passes.
#[derive(Debug, Default)]
pub struct NullExecutor {
    never: bool,
    begun: Vec<AttemptReporter>,
    /// The output of every step.
    output: Arc<Value>,
}

impl NullExecutor {
    /// Creates an executor that starts every attempt and ends none.
    pub fn new_idle() -> NullExecutor {
        NullExecutor { never: true, ..NullExecutor::default() }
    }

    /// Creates an executor whose steps all have this output.
    pub fn with_output(output: Value) -> NullExecutor {
        NullExecutor { output: Arc::new(output), ..NullExecutor::default() }
    }
}

impl Executor for NullExecutor {
    fn start_attempt(&mut self, _: ActiveRun<'_>, attempt: AttemptId, _: &AttemptAssignment, finish: AttemptReporter) {
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
