//! The host: the runs that this process owns, and the one loop that moves them.
//!
//! Owns the order of things in a process: everything that is said to its runs comes in one queue, each run's inputs
//! are decided together into its next append, and nothing is done before that append is durable. Refuses to know how
//! work is done ([`Executor`]) and how runs are kept ([`Store`]). Read `turn` next, then `owned`.

mod audit;
mod dead_letter;
mod fork;
mod host_loop;
mod launch;
mod load_run;
mod owned_run;
mod request;
mod retry;
mod run_end;
mod skip_replay_delays;
mod snapshot;

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use skein_core::{
    engine::{
        AttemptId, AttemptReport, JournalBatch, Publication, Refusal, ReusedResult, RunInput, RunStart,
    },
    ids::RunId,
    plan::Plan,
};

use crate::{
    clock::Clock,
    executor_api::{ActiveRun, Executor},
    random,
    store::{AppendError, ClaimError, DeadLetterId, DeadLetterSettlement, Store, StoreError, StoreNotice},
};

pub use fork::{ForkError, ReloadFork, prepare_fork, read_run_parameters};
pub use load_run::{LoadedRun, RunLoader};
pub use request::RequestAnswer;
pub use snapshot::RunSnapshot;

/// A run that this process owns, for as long as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedRunKey(u64);

/// Everything that can be said to the loop.
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
    /// Let go of runs as they are, whatever is at work.
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

/// A run to begin.
#[derive(Debug)]
pub struct RunLaunch {
    pub plan: Plan,
    pub start: RunStart,
    /// What those who work for it need to know.
    pub about: serde_json::Value,
    /// What it takes over from the run that it was forked from.
    pub reused: Vec<ReusedResult>,
    /// The dead letters that it does again, and who wants that.
    pub settles: Vec<(DeadLetterId, DeadLetterSettlement)>,
}

impl RunLaunch {
    /// A run that comes from no other.
    pub fn new(plan: Plan, start: RunStart, about: serde_json::Value) -> RunLaunch {
        RunLaunch { plan, start, about, reused: Vec::new(), settles: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// It cannot be read, and has been set aside.
    #[error("it was set aside: {0}")]
    SetAside(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is told of runs as it happens.
#[derive(Debug)]
pub enum HostEvent<'a> {
    /// A row is durable.
    Row { running: ActiveRun<'a>, batch: &'a Arc<JournalBatch> },
    /// The run failed, and another begins that retries it.
    Retries { run: &'a RunId, by: &'a RunId },
    /// Nothing of the run is wanted any more.
    Closed { run: &'a RunId },
    /// Someone else has it now.
    Lost { run: &'a RunId },
    /// Another process asked for its workers to be stopped. It can be resumed.
    Left { run: &'a RunId },
    /// Its state makes no sense; it goes no further.
    SetAside { run: &'a RunId, why: &'a str },
    /// There is no space for the journal. What runs goes on; nothing is recorded until there is.
    NoSpace { run: &'a RunId },
    /// The journal cannot be written any more. The host has stopped.
    Broken { why: &'a str },
}

/// Who is told. Called by the loop: whatever takes long belongs elsewhere.
pub type HostWatcher = Box<dyn FnMut(HostEvent<'_>) + Send>;

/// How much may be done at once.
#[derive(Debug, Clone, Copy)]
pub struct WorkerCapacity {
    /// Workers over all runs.
    pub workers: u32,
}

/// A handle on the loop, which ends when the last handle is gone.
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
        hands: Box<dyn Executor>,
        capacity: WorkerCapacity,
        watcher: HostWatcher,
    ) -> Host {
        let (to, inbox) = channel();
        let notices = to.clone();
        store.watch(Arc::new(move |notice| {
            // A loop that has ended wants no news.
            let _ = notices.send(HostMessage::Notice(notice));
        }));
        let inner = host_loop::HostLoop::new(store, hands, Clock::new(), capacity, watcher, to.clone());
        let body = move || inner.run(&inbox);
        let thread = std::thread::Builder::new().name("host".into()).spawn(body);
        Host { to, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Begins runs, all of them or none. What becomes of them is told to the watcher.
    pub fn launch_runs(&self, begin: Vec<RunLaunch>) -> Result<(), StoreError> {
        let (reply, answer) = channel();
        self.send_message(HostMessage::Begin { begin, reply });
        answer.recv().unwrap_or_else(|_| Err(host_stopped_error()))
    }

    /// Resumes runs that no living process owns. Returns how many events each had when it was claimed: another process may
    /// have appended some since the caller last read the run.
    pub fn resume_runs(&self, runs: Vec<RunId>) -> Vec<Result<u64, ResumeError>> {
        let count = runs.len();
        let (reply, answer) = channel();
        self.send_message(HostMessage::Resume { runs, reply });
        answer.recv().unwrap_or_else(|_| (0..count).map(|_| Err(host_stopped_error().into())).collect())
    }

    /// Says something to a run that is owned here. None: it is not, or the host has stopped.
    pub fn send_input(&self, run: &RunId, input: RunInput) -> Option<Result<(), Refusal>> {
        let (reply, answer) = channel();
        self.send_message(HostMessage::Input { run: run.clone(), input, reply });
        answer.recv().ok()
    }

    /// Passes an input to a run that is owned here, and does not wait until it is decided. For callers that must not
    /// block whatever the loop and its disk are doing.
    pub fn post_input(&self, run: &RunId, input: RunInput) {
        let (reply, _) = channel();
        self.send_message(HostMessage::Input { run: run.clone(), input, reply });
    }

    /// Lets go of runs: their workers are ended and not waited for, and they can be resumed.
    pub fn leave_runs(&self, runs: &[RunId]) {
        let (reply, done) = channel();
        self.send_message(HostMessage::Leave { runs: runs.to_vec(), reply });
        let _ = done.recv();
    }

    /// Lets go of runs as [`Host::leave`] does, and returns whether the loop did so in time.
    pub fn leave_runs_within(&self, runs: &[RunId], within: Duration) -> bool {
        let (reply, done) = channel();
        self.send_message(HostMessage::Leave { runs: runs.to_vec(), reply });
        done.recv_timeout(within) != Err(RecvTimeoutError::Timeout)
    }

    fn send_message(&self, said: HostMessage) {
        // A loop that has ended has told the watcher why.
        let _ = self.to.send(said);
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

/// A name for a new run: short enough to be typed, and not used before.
pub fn new_run_id() -> RunId {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    // A name that is taken is refused.
    let bytes = random::random_bytes::<10>();
    let text: String = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    RunId::new(text).expect("letters and digits are a name")
}
