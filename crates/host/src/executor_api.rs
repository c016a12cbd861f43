//! The executor interface: the operations by which the loop starts work for a run.
//!
//! Owns the interface between the loop and the workers: attempts are started and stopped, results are published, and
//! each reports its end exactly once. Does not know the implementation: processes in production, nothing in a
//! benchmark.

use std::{fmt, sync::Arc};

use skein_core::{
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, Cost, JournalBatch, Publication, RunLedger,
        RunProjection, RunState, StepPaths,
    },
    ids::RunId,
    plan::Plan,
};

use crate::run_settings::RunSettings;

/// A run as an executor sees it.
#[derive(Debug, Clone, Copy)]
pub struct ActiveRun<'a> {
    pub run: &'a RunId,
    pub plan: &'a Plan,
    pub state: &'a RunState,
    pub settings: &'a Arc<RunSettings>,
    pub names: &'a StepPaths,
    pub ledger: &'a RunLedger,
}

impl<'a> ActiveRun<'a> {
    pub fn new(run: &'a RunId, projection: &'a RunProjection, settings: &'a Arc<RunSettings>) -> ActiveRun<'a> {
        ActiveRun {
            run,
            plan: projection.plan(),
            state: projection.state(),
            settings,
            names: projection.names(),
            ledger: projection.ledger(),
        }
    }
}

/// The files of a run that repeats another one could not be prepared.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RetryFilesError(Box<dyn std::error::Error + Send + Sync>);

impl RetryFilesError {
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> RetryFilesError {
        RetryFilesError(Box::new(error))
    }
}

/// Executes the work of runs. The loop calls it, so no method may take long: slow work is moved to a thread.
pub trait Executor: Send + fmt::Debug {
    /// Starts an attempt. Its end is always reported through `finish`.
    fn start_attempt(
        &mut self,
        running: ActiveRun<'_>,
        attempt: AttemptId,
        task: &AttemptAssignment,
        finish: AttemptReporter,
    );

    /// Stops an attempt early. Its end is still reported.
    fn stop_attempt(&mut self, run: &RunId, attempt: AttemptId);

    /// Prepares the files of a run that repeats another one under a new id. Returns its plan, or the reason why it
    /// cannot run.
    fn prepare_retry(&mut self, _: &RunId, plan: &Plan, _: &RunSettings) -> Result<Plan, RetryFilesError> {
        Ok(plan.clone())
    }

    /// Publishes something outside of the run. May be called again after a crash.
    fn publish(&mut self, running: ActiveRun<'_>, item: Publication, published: PublicationReporter);

    /// Observes rows of a run that are durable now, for example to export telemetry.
    fn observe_batch(&mut self, _: ActiveRun<'_>, _: &JournalBatch) {}

    /// Ends the processes that earlier host processes left of these runs, before anything of them is started again.
    fn reap_orphans(&mut self, runs: &[RunId]);

    /// Forgets a run: nothing more of it will be requested.
    fn forget_run(&mut self, run: &RunId);
}

/// Reports the end of an attempt. If it is dropped without a report, the attempt counts as interrupted.
pub struct AttemptReporter(Option<Box<dyn FnOnce(AttemptReport) + Send>>);

impl AttemptReporter {
    /// Creates the reporter of one attempt. `send` is called once.
    pub fn new(send: impl FnOnce(AttemptReport) + Send + 'static) -> AttemptReporter {
        AttemptReporter(Some(Box::new(send)))
    }

    pub fn report(mut self, report: AttemptReport) {
        self.send_report(report);
    }

    fn send_report(&mut self, report: AttemptReport) {
        if let Some(send) = self.0.take() {
            send(report);
        }
    }
}

impl fmt::Debug for AttemptReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptReporter").finish_non_exhaustive()
    }
}

impl Drop for AttemptReporter {
    fn drop(&mut self) {
        self.send_report(AttemptReport::new(AttemptEnd::Interrupted, Cost::default()));
    }
}

/// Reports that something was published, or why it never will be.
pub struct PublicationReporter(Option<Box<dyn FnOnce(Option<String>) + Send>>);

impl PublicationReporter {
    /// Creates the reporter of one publication. `send` is called once, with the reason of a failure.
    pub fn new(send: impl FnOnce(Option<String>) + Send + 'static) -> PublicationReporter {
        PublicationReporter(Some(Box::new(send)))
    }

    pub fn report(mut self, failed: Option<String>) {
        self.send_report(failed);
    }

    fn send_report(&mut self, failed: Option<String>) {
        if let Some(send) = self.0.take() {
            send(failed);
        }
    }
}

impl fmt::Debug for PublicationReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicationReporter").finish_non_exhaustive()
    }
}

impl Drop for PublicationReporter {
    fn drop(&mut self) {
        self.send_report(Some("the executor ended before it was published".to_owned()));
    }
}
