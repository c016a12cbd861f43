//! The executor interface: the operations by which the loop starts work for a run.
//!
//! Owns the interface between the loop and the workers: attempts are started and stopped, results are published, and
//! each reports its end exactly once. Does not know the implementation: processes in production, nothing in a
//! benchmark.

use std::{fmt, sync::mpsc::Sender};

use skein_core::{
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, Cost, JournalBatch, Publication, RunState,
    },
    ids::RunId,
    plan::Plan,
    view::StepPaths,
};

use crate::{
    host::{HostMessage, OwnedRunKey},
    workspace::Ledger,
};

/// A run as an executor sees it.
#[derive(Debug, Clone, Copy)]
pub struct ActiveRun<'a> {
    pub run: &'a RunId,
    pub plan: &'a Plan,
    pub state: &'a RunState,
    /// The run settings, as JSON.
    pub about: &'a serde_json::Value,
    pub names: &'a StepPaths,
    pub ledger: &'a Ledger,
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
    fn prepare_retry(&mut self, _: &RunId, plan: &Plan, _about: &serde_json::Value) -> Result<Plan, String> {
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
#[derive(Debug)]
pub struct AttemptReporter {
    to: Option<(Sender<HostMessage>, OwnedRunKey)>,
    attempt: AttemptId,
}

impl AttemptReporter {
    pub(crate) fn new(to: Sender<HostMessage>, key: OwnedRunKey, attempt: AttemptId) -> AttemptReporter {
        AttemptReporter { to: Some((to, key)), attempt }
    }

    pub fn report(mut self, report: AttemptReport) {
        self.send_report(report);
    }

    fn send_report(&mut self, report: AttemptReport) {
        if let Some((to, key)) = self.to.take() {
            // A host that has ended needs no reports.
            let _ = to.send(HostMessage::Finished { key, attempt: self.attempt, report });
        }
    }
}

impl Drop for AttemptReporter {
    fn drop(&mut self) {
        self.send_report(AttemptReport::new(AttemptEnd::Interrupted, Cost::default()));
    }
}

/// Reports that something was published, or why it never will be.
#[derive(Debug)]
pub struct PublicationReporter {
    to: Option<(Sender<HostMessage>, OwnedRunKey)>,
    item: Publication,
}

impl PublicationReporter {
    pub(crate) fn new(to: Sender<HostMessage>, key: OwnedRunKey, item: Publication) -> PublicationReporter {
        PublicationReporter { to: Some((to, key)), item }
    }

    pub fn report(mut self, failed: Option<String>) {
        self.send_report(failed);
    }

    fn send_report(&mut self, failed: Option<String>) {
        if let Some((to, key)) = self.to.take() {
            let _ = to.send(HostMessage::Published { key, item: self.item, failed });
        }
    }
}

impl Drop for PublicationReporter {
    fn drop(&mut self) {
        self.send_report(Some("the executor ended before it was published".to_owned()));
    }
}
