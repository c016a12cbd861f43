//! A scripted executor that does only what a test says, in this process.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, mpsc},
};

use serde_json::json;
use skein_core::{
    engine::{AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, Cost, Publication},
    ids::RunId,
    ir::ErrorClass,
};
use skein_host::executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter};

use super::stage::LONG;

/// The behaviour of an attempt.
pub(crate) enum Does {
    Ends(AttemptEnd),
    /// Nothing, until the test ends it or it is stopped.
    Waits,
    /// The reporter is dropped without a report.
    IsDropped,
}

/// A call of the executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Start { run: RunId, step: String, attempt: AttemptId },
    Stop { run: RunId, attempt: AttemptId },
    Forget { run: RunId },
}

type Script = Box<dyn Fn(&RunId, &str, AttemptId) -> Does + Send + Sync>;

/// The test's side of the executor.
pub(crate) struct Control {
    shared: Arc<Shared>,
    asked: mpsc::Receiver<Asked>,
}

struct Shared {
    script: Script,
    work: Mutex<Work>,
    /// `None` once the executor is dropped.
    tell: Mutex<Option<mpsc::Sender<Asked>>>,
}

#[derive(Default)]
struct Work {
    now: BTreeMap<(RunId, AttemptId), AttemptReporter>,
    most: usize,
}

pub(crate) struct Scripted(Arc<Shared>);

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

pub(crate) fn scripted(
    script: impl Fn(&RunId, &str, AttemptId) -> Does + Send + Sync + 'static,
) -> (Scripted, Control) {
    let (tell, asked) = mpsc::channel();
    let shared = Arc::new(Shared { script: Box::new(script), work: Mutex::default(), tell: Mutex::new(Some(tell)) });
    (Scripted(Arc::clone(&shared)), Control { shared, asked })
}

pub(crate) fn good() -> AttemptEnd {
    AttemptEnd::Succeeded { output: Arc::new(json!({"n": 1})) }
}

pub(crate) fn bad() -> AttemptEnd {
    AttemptEnd::Failed { class: ErrorClass::Transient, code: None, message: "no".into(), retry_at: None }
}

/// A script in which every attempt succeeds at once.
pub(crate) fn all_good(_: &RunId, _: &str, _: AttemptId) -> Does {
    Does::Ends(good())
}

fn tell(finish: AttemptReporter, end: AttemptEnd) {
    finish.report(AttemptReport::new(end, Cost::default()));
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap()
    }

    fn say(&self, asked: Asked) {
        if let Some(tell) = &*self.tell.lock().unwrap() {
            let _ = tell.send(asked);
        }
    }
}

impl Control {
    /// Returns the next call.
    pub(crate) fn next(&self) -> Asked {
        self.asked.recv_timeout(LONG).expect("something is asked of the hands")
    }

    /// Returns the next start, skipping other calls.
    pub(crate) fn started(&self) -> (RunId, String, AttemptId) {
        loop {
            if let Asked::Start { run, step, attempt } = self.next() {
                return (run, step, attempt);
            }
        }
    }

    /// Returns all calls that were not read yet.
    pub(crate) fn rest(&self) -> Vec<Asked> {
        self.asked.try_iter().collect()
    }

    pub(crate) fn end(&self, run: &RunId, attempt: AttemptId, end: AttemptEnd) {
        let finish = self.shared.work().now.remove(&(run.clone(), attempt)).expect("it is at work");
        tell(finish, end);
    }

    /// Returns the maximum number of concurrent attempts.
    pub(crate) fn most(&self) -> usize {
        self.shared.work().most
    }

    /// Waits until the executor has been dropped.
    pub(crate) fn are_gone(&self) {
        loop {
            match self.asked.recv_timeout(LONG) {
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the hands are still there"),
            }
        }
    }
}

impl Executor for Scripted {
    fn start_attempt(
        &mut self,
        running: ActiveRun<'_>,
        attempt: AttemptId,
        _: &AttemptAssignment,
        finish: AttemptReporter,
    ) {
        let (run, step) = (running.run.clone(), running.names.step_path(attempt.at));
        let does = (self.0.script)(&run, &step, attempt);
        let mut work = self.0.work();
        work.now.insert((run.clone(), attempt), finish);
        work.most = work.most.max(work.now.len());
        match does {
            Does::Ends(end) => tell(work.now.remove(&(run.clone(), attempt)).unwrap(), end),
            Does::Waits => {}
            Does::IsDropped => drop(work.now.remove(&(run.clone(), attempt))),
        }
        drop(work);
        self.0.say(Asked::Start { run, step, attempt });
    }

    fn stop_attempt(&mut self, run: &RunId, attempt: AttemptId) {
        self.0.say(Asked::Stop { run: run.clone(), attempt });
        if let Some(finish) = self.0.work().now.remove(&(run.clone(), attempt)) {
            tell(finish, AttemptEnd::Stopped);
        }
    }

    fn publish(&mut self, _: ActiveRun<'_>, _: Publication, published: PublicationReporter) {
        published.report(None);
    }

    fn reap_orphans(&mut self, _: &[RunId]) {}

    fn forget_run(&mut self, run: &RunId) {
        self.0.say(Asked::Forget { run: run.clone() });
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.0.tell.lock().unwrap().take();
    }
}
