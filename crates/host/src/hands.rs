//! Who does in the world what a run wants.
//!
//! Owns the seam between the loop and the workers: attempts are started and stopped, things are published, and each
//! reports its end exactly once. Refuses to know how: processes do it in earnest, and in a benchmark nothing does.

use std::{fmt, sync::mpsc::Sender};

use skein_core::{
    engine::{Assignment, AttemptEnd, AttemptId, Batch, Cost, Publication, Report, RunState},
    ids::RunId,
    plan::Plan,
    view::Names,
};

use crate::{
    host::{Key, Said},
    workspace::Ledger,
};

/// A run as those who work for it see it.
#[derive(Debug, Clone, Copy)]
pub struct Running<'a> {
    pub run: &'a RunId,
    pub plan: &'a Plan,
    pub state: &'a RunState,
    /// What the host noted when it was begun.
    pub about: &'a serde_json::Value,
    pub names: &'a Names,
    pub ledger: &'a Ledger,
}

/// Does the work. Called by the loop, so nothing here may take long: what does is handed to a thread.
pub trait Hands: Send + fmt::Debug {
    /// Begins an attempt. It is over when `finish` is told so, which happens whatever becomes of it.
    fn start(&mut self, running: Running<'_>, attempt: AttemptId, task: &Assignment, finish: Finish);

    /// Ends an attempt early. Its end is still told.
    fn stop(&mut self, run: &RunId, attempt: AttemptId);

    /// Makes ready what a run needs that is the same as another but for its name. The plan that it has then; why not.
    fn renew(&mut self, _: &RunId, plan: &Plan, _about: &serde_json::Value) -> Result<Plan, String> {
        Ok(plan.clone())
    }

    /// Makes something known outside. May be asked again after a crash.
    fn publish(&mut self, running: Running<'_>, item: Publication, published: Published);

    /// What is now durable of a run. Whoever tells others of runs hears it here.
    fn told(&mut self, _: Running<'_>, _: &Batch) {}

    /// Ends what earlier lives of the host left of runs, before anything of them is started again.
    fn clear(&mut self, runs: &[RunId]);

    /// The run is over here: nothing of it will be asked for any more.
    fn forget(&mut self, run: &RunId);
}

/// Where the end of an attempt is told. One that is dropped untold tells that the attempt was lost.
#[derive(Debug)]
pub struct Finish {
    to: Option<(Sender<Said>, Key)>,
    attempt: AttemptId,
}

impl Finish {
    pub(crate) fn new(to: Sender<Said>, key: Key, attempt: AttemptId) -> Finish {
        Finish { to: Some((to, key)), attempt }
    }

    pub fn tell(mut self, report: Report) {
        self.send(report);
    }

    fn send(&mut self, report: Report) {
        if let Some((to, key)) = self.to.take() {
            // A host that is gone needs no reports.
            let _ = to.send(Said::Finished { key, attempt: self.attempt, report });
        }
    }
}

impl Drop for Finish {
    fn drop(&mut self) {
        self.send(Report::new(AttemptEnd::Interrupted, Cost::default()));
    }
}

/// Where it is told that something was published, or why it never will be.
#[derive(Debug)]
pub struct Published {
    to: Option<(Sender<Said>, Key)>,
    item: Publication,
}

impl Published {
    pub(crate) fn new(to: Sender<Said>, key: Key, item: Publication) -> Published {
        Published { to: Some((to, key)), item }
    }

    pub fn tell(mut self, failed: Option<String>) {
        self.send(failed);
    }

    fn send(&mut self, failed: Option<String>) {
        if let Some((to, key)) = self.to.take() {
            let _ = to.send(Said::Published { key, item: self.item, failed });
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.send(Some("who was to do it is gone".to_owned()));
    }
}
