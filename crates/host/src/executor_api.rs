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
    pub(crate) fn new(run: &'a RunId, projection: &'a RunProjection, settings: &'a Arc<RunSettings>) -> ActiveRun<'a> {
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
    pub(crate) fn new(error: impl std::error::Error + Send + Sync + 'static) -> RetryFilesError {
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
pub type AttemptReporter = EndReporter<AttemptReport>;

/// Reports that something was published, or why it never will be.
pub type PublicationReporter = EndReporter<Option<String>>;

/// Reports the end of some work exactly once.
pub struct EndReporter<R: MissingReport>(Option<Box<dyn FnOnce(R) + Send>>);

/// A report that has a value for work that ended without one.
pub trait MissingReport {
    fn missing() -> Self;
}

impl MissingReport for AttemptReport {
    fn missing() -> AttemptReport {
        AttemptReport::new(AttemptEnd::Interrupted, Cost::default())
    }
}

impl MissingReport for Option<String> {
    fn missing() -> Option<String> {
        Some("the executor ended before it was published".to_owned())
    }
}

impl<R: MissingReport> EndReporter<R> {
    /// Creates a reporter. `send` is called once.
    pub(crate) fn new(send: impl FnOnce(R) + Send + 'static) -> EndReporter<R> {
        EndReporter(Some(Box::new(send)))
    }

    pub fn report(mut self, report: R) {
        if let Some(send) = self.0.take() {
            send(report);
        }
    }
}

impl<R: MissingReport> fmt::Debug for EndReporter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndReporter").finish_non_exhaustive()
    }
}

impl<R: MissingReport> Drop for EndReporter<R> {
    fn drop(&mut self) {
        if let Some(send) = self.0.take() {
            send(R::missing());
        }
    }
}
