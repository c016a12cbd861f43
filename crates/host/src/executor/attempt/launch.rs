//! Runs one attempt: prepares it, launches its process, and collects its results.

use std::sync::Arc;

use skein_core::engine::AttemptEnd;

use super::{PrepareOutcome, PreparedAttempt, prepare, replay, spec::AttemptSpec};
use crate::{
    executor::{
        executor_context::{ExecutorContext, WorkKey},
        tools::builtin,
    },
    executor_api::AttemptReporter,
    process::{self, ProcessSpec},
};

impl ExecutorContext {
    /// Runs one attempt from start to end.
    pub(crate) fn run_attempt(self: &Arc<ExecutorContext>, job: AttemptSpec, key: WorkKey, finish: AttemptReporter) {
        if let Some(function) = job.tool().and_then(|tool| tool.function).filter(|one| !one.reaches_out()) {
            return builtin::run_function(self, &job, function, &key, finish);
        }
        if let Some(path) = job.settings.replay.clone() {
            let report = replay::replay_attempt(self, &job, &path, &key);
            return self.finish_attempt(&key, report, finish);
        }
        match prepare::prepare_attempt(self, job) {
            PrepareOutcome::Ready(ready) => {
                let (task, laid) = *ready;
                self.run_prepared(task, laid, key, finish);
            }
            PrepareOutcome::Over(report) => self.finish_attempt(&key, report, finish),
        }
    }

    /// Runs the program, unless it was stopped meanwhile.
    pub(crate) fn run_prepared(
        &self,
        task: ProcessSpec,
        mut laid: PreparedAttempt,
        key: WorkKey,
        finish: AttemptReporter,
    ) {
        if self.is_stopped(&key) {
            return self.finish_without_cost(&key, AttemptEnd::Stopped, finish);
        }
        let ended = match laid.spec().remote_call(self) {
            Some(asking) => asking.run(task, &key),
            None => process::run_process(task, |handle| self.attach_process(&key, handle)),
        };
        let report = laid.collect(self, &key, &ended);
        self.finish_attempt(&key, report, finish);
    }
}
