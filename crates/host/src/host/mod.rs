//! The host: the runs that this process owns, and the loop that drives them.
//!
//! Owns the order of operations in a process: all messages to its runs arrive in one queue, the inputs of each run are
//! decided together into its next append, and nothing is done before that append is durable. Does not know how work is
//! done ([`Executor`]) or how runs are stored ([`Store`]). Read `host_loop` next, then `owned_run`.

mod audit;
mod host_loop;
mod launch;
mod load_run;
mod owned_run;
mod retry;

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use skein_core::{
    engine::{AttemptId, AttemptReport, JournalBatch, Publication, Refusal, ReusedResult, RunInput, RunStart},
    ids::RunId,
    plan::Plan,
};

use crate::{
    clock::Clock,
    executor_api::{ActiveRun, Executor},
    run_settings::{RunSettings, RunSettingsError},
    store::{AppendError, ClaimError, DeadLetterId, DeadLetterSettlement, Store, StoreError, StoreNotice},
    system,
};

pub use self::load_run::{LoadedRun, RunLoader, RunSnapshot};
pub use launch::{ForkError, ReloadFork, prepare_fork, read_run_parameters};

/// The key of a run that this process owns, valid as long as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnedRunKey(u64);

/// A message to the loop.
#[derive(Debug)]
pub(crate) enum HostMessage {
    Begin {
        begin: Vec<RunLaunch>,
        reply: Sender<Result<(), StoreError>>,
    },
    Resume {
        runs: Vec<RunId>,
        reply: Sender<Vec<Result<u64, ResumeError>>>,
    },
    Input {
        run: RunId,
        input: RunInput,
        reply: Sender<Result<(), Refusal>>,
    },
    /// Releases runs as they are, even if workers are running.
    Leave {
        runs: Vec<RunId>,
        reply: Sender<()>,
    },
    Appended {
        key: OwnedRunKey,
        result: Result<(), AppendError>,
    },
    Finished {
        key: OwnedRunKey,
        attempt: AttemptId,
        report: AttemptReport,
    },
    Published {
        key: OwnedRunKey,
        item: Publication,
        failed: Option<String>,
    },
    Notice(StoreNotice),
    Stop,
}

/// A run to start.
#[derive(Debug)]
pub struct RunLaunch {
    pub plan: Plan,
    pub start: RunStart,
    pub settings: Arc<RunSettings>,
    /// The results that it reuses from the run that it was forked from.
    pub reused: Vec<ReusedResult>,
    /// The dead letters that it repeats, and who requested that.
    pub settles: Vec<(DeadLetterId, DeadLetterSettlement)>,
}

impl RunLaunch {
    /// Creates the launch of a run that is not a fork.
    pub fn new(plan: Plan, start: RunStart, settings: impl Into<Arc<RunSettings>>) -> RunLaunch {
        RunLaunch { plan, start, settings: settings.into(), reused: Vec::new(), settles: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// It cannot be read, and was quarantined.
    #[error("it was set aside: {0}")]
    SetAside(String),
    #[error(transparent)]
    Settings(#[from] RunSettingsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An event about runs, reported as it happens.
#[derive(Debug)]
pub enum HostEvent<'a> {
    /// A row is durable.
    Row { running: ActiveRun<'a>, batch: &'a Arc<JournalBatch> },
    /// The run failed, and another run starts as its retry.
    Retries { run: &'a RunId, by: &'a RunId },
    /// The run is over and wants nothing any more.
    Closed { run: &'a RunId },
    /// Another process owns it now.
    Lost { run: &'a RunId },
    /// Another process asked for its workers to be stopped. It can be resumed.
    Left { run: &'a RunId },
    /// Its state is inconsistent, and it was quarantined.
    SetAside { run: &'a RunId, why: &'a str },
    /// The disk is full. Running work continues; nothing is recorded until there is space.
    NoSpace { run: &'a RunId },
    /// The journal cannot be written any more. The host has stopped.
    Broken { why: &'a str },
}

/// The callback for host events. The loop calls it, so it must be quick.
pub type HostWatcher = Box<dyn FnMut(HostEvent<'_>) + Send>;

/// The limits on concurrent work.
#[derive(Debug, Clone, Copy)]
pub struct WorkerCapacity {
    /// The maximum number of workers over all runs.
    pub workers: u32,
}

/// A handle to the loop, which ends when the handle is dropped.
pub struct Host {
    to: Sender<HostMessage>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    pub fn new(
        store: Arc<dyn Store>,
        executor: Box<dyn Executor>,
        capacity: WorkerCapacity,
        watcher: HostWatcher,
    ) -> Host {
        let (to, inbox) = channel();
        let notices = to.clone();
        store.watch(Arc::new(move |notice| {
            // A loop that has ended needs no notices.
            let _ = notices.send(HostMessage::Notice(notice));
        }));
        let inner = host_loop::HostLoop::new(store, executor, Clock::new(), capacity, watcher, to.clone());
        let body = move || inner.run(&inbox);
        let thread = std::thread::Builder::new().name("host".into()).spawn(body);
        Host { to, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Starts runs, all of them or none. The watcher is told their progress.
    pub fn launch_runs(&self, begin: Vec<RunLaunch>) -> Result<(), StoreError> {
        let answer = self.request(|reply| HostMessage::Begin { begin, reply });
        answer.recv().unwrap_or_else(|_| Err(host_stopped_error()))
    }

    /// Resumes runs that no living process owns. Returns the number of events that each had when it was claimed:
    /// another process may have appended some since the caller last read the run.
    pub fn resume_runs(&self, runs: Vec<RunId>) -> Vec<Result<u64, ResumeError>> {
        let count = runs.len();
        let answer = self.request(|reply| HostMessage::Resume { runs, reply });
        answer.recv().unwrap_or_else(|_| (0..count).map(|_| Err(host_stopped_error().into())).collect())
    }

    /// Sends an input to a run and waits for the answer. None: the run is not owned here, or the host has stopped.
    pub fn send_input(&self, run: &RunId, input: RunInput) -> Option<Result<(), Refusal>> {
        self.request(|reply| HostMessage::Input { run: run.clone(), input, reply }).recv().ok()
    }

    /// Sends an input to a run that is owned here without waiting for the decision. For callers that must not block
    /// whatever the loop and its disk are doing.
    pub fn post_input(&self, run: &RunId, input: RunInput) {
        drop(self.request(|reply| HostMessage::Input { run: run.clone(), input, reply }));
    }

    /// Releases runs: their workers are stopped and not waited for, and the runs can be resumed.
    pub fn leave_runs(&self, runs: &[RunId]) {
        let _ = self.request(|reply| HostMessage::Leave { runs: runs.to_vec(), reply }).recv();
    }

    /// Releases runs as [`Host::leave_runs`] does. Returns false if the loop did not do so in time.
    pub fn leave_runs_within(&self, runs: &[RunId], within: Duration) -> bool {
        let done = self.request(|reply| HostMessage::Leave { runs: runs.to_vec(), reply });
        done.recv_timeout(within) != Err(RecvTimeoutError::Timeout)
    }

    /// Sends a message with a channel for its answer.
    fn request<T>(&self, message: impl FnOnce(Sender<T>) -> HostMessage) -> Receiver<T> {
        let (reply, answer) = channel();
        self.send_message(message(reply));
        answer
    }

    fn send_message(&self, message: HostMessage) {
        // A loop that has ended has told the watcher the reason.
        let _ = self.to.send(message);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.send_message(HostMessage::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn host_stopped_error() -> StoreError {
    StoreError::Failed("the host has stopped".to_owned())
}

/// Returns a random id for a new run, short enough to be typed.
pub fn new_run_id() -> RunId {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    // The store refuses an id that is taken.
    let bytes = system::random_bytes::<10>();
    let text: String = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    RunId::new(text).expect("letters and digits are a name")
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestAnswer {
    Done,
    Refused(Refusal),
    /// The request cannot be read.
    Unreadable(String),
}

impl From<&Result<(), Refusal>> for RequestAnswer {
    fn from(result: &Result<(), Refusal>) -> RequestAnswer {
        match result {
            Ok(()) => RequestAnswer::Done,
            Err(refusal) => RequestAnswer::Refused(refusal.clone()),
        }
    }
}

impl RequestAnswer {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an answer serialises to JSON")
    }
}

/// Parses a request. Accepts only inputs that people and programs may send; those of the host itself are refused.
pub(crate) fn parse_request(body: &[u8]) -> Result<RunInput, String> {
    let input: RunInput = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    match input {
        RunInput::Decide { .. }
        | RunInput::Signal { .. }
        | RunInput::Cancel { .. }
        | RunInput::RetryUndo { .. }
        | RunInput::Tampered { .. } => Ok(input),
        _ => Err("this input is not accepted from outside the host".to_owned()),
    }
}
