//! Who does in the world what a run wants.
//!
//! Owns the seam between the loop and the workers: attempts are started and stopped, things are published, and each
//! reports its end exactly once. Refuses to know how: processes do it in earnest, and in a benchmark nothing does.

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

/// A run as those who work for it see it.
#[derive(Debug, Clone, Copy)]
pub struct ActiveRun<'a> {
    pub run: &'a RunId,
    pub plan: &'a Plan,
    pub state: &'a RunState,
    /// What the host noted when it was begun.
    pub about: &'a serde_json::Value,
    pub names: &'a StepPaths,
    pub ledger: &'a Ledger,
}

/// Does the work. Called by the loop, so nothing here may take long: what does is handed to a thread.
pub trait Executor: Send + fmt::Debug {
    /// Begins an attempt. It is over when `finish` is told so, which happens whatever becomes of it.
    fn start_attempt(
        &mut self,
        running: ActiveRun<'_>,
        attempt: AttemptId,
        task: &AttemptAssignment,
        finish: AttemptReporter,
    );

    /// Ends an attempt early. Its end is still told.
    fn stop_attempt(&mut self, run: &RunId, attempt: AttemptId);

    /// Makes ready what a run needs that is the same as another but for its name. The plan that it has then; why not.
    fn prepare_retry(&mut self, _: &RunId, plan: &Plan, _about: &serde_json::Value) -> Result<Plan, String> {
        Ok(plan.clone())
    }

    /// Makes something known outside. May be asked again after a crash.
    fn publish(&mut self, running: ActiveRun<'_>, item: Publication, published: PublicationReporter);

    /// What is now durable of a run. Whoever tells others of runs hears it here.
    fn observe_batch(&mut self, _: ActiveRun<'_>, _: &JournalBatch) {}

    /// Ends what earlier lives of the host left of runs, before anything of them is started again.
    fn reap_orphans(&mut self, runs: &[RunId]);

    /// The run is over here: nothing of it will be asked for any more.
    fn forget_run(&mut self, run: &RunId);
}

/// Where the end of an attempt is told. One that is dropped untold tells that the attempt was lost.
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
            // A host that is gone needs no reports.
            let _ = to.send(HostMessage::Finished { key, attempt: self.attempt, report });
        }
    }
}

impl Drop for AttemptReporter {
    fn drop(&mut self) {
        self.send_report(AttemptReport::new(AttemptEnd::Interrupted, Cost::default()));
    }
}

/// Where it is told that something was published, or why it never will be.
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
        self.send_report(Some("who was to do it is gone".to_owned()));
    }
}
