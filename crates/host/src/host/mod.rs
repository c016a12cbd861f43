//! The host: the runs that this process owns, and the one loop that moves them.
//!
//! Owns the order of things in a process: everything that is said to its runs comes in one queue, each run's inputs
//! are decided together into its next append, and nothing is done before that append is durable. Refuses to know how
//! work is done ([`Hands`]) and how runs are kept ([`Store`]). Read `turn` next, then `owned`.

mod audit;
mod begin;
mod dead;
mod end;
mod fork;
mod hurry;
mod letter;
mod owned;
mod recall;
mod retry;
mod snapshot;
mod turn;

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
    engine::{AttemptId, Batch, Input, Publication, Refusal, Report, Reused, Start},
    ids::RunId,
    plan::Plan,
};

use crate::{
    chance,
    clock::Clock,
    hands::{Hands, Running},
    store::{AppendError, ClaimError, DeadId, Notice, Settled, Store, StoreError},
};

pub use fork::{ForkError, ReloadFork, fork, parameters};
pub use letter::Answer;
pub use recall::{Recall, Recalled};
pub use snapshot::Snapshot;

/// A run that this process owns, for as long as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u64);

/// Everything that can be said to the loop.
#[derive(Debug)]
pub(crate) enum Said {
    Begin {
        begin: Vec<Begin>,
        reply: Sender<Result<(), StoreError>>,
    },
    Resume {
        runs: Vec<RunId>,
        reply: Sender<Vec<Result<u64, ResumeError>>>,
    },
    Input {
        run: RunId,
        input: Input,
        reply: Sender<Result<(), Refusal>>,
    },
    /// Let go of runs as they are, whatever is at work.
    Leave {
        runs: Vec<RunId>,
        reply: Sender<()>,
    },
    Appended {
        key: Key,
        result: Result<(), AppendError>,
    },
    Finished {
        key: Key,
        attempt: AttemptId,
        report: Report,
    },
    Published {
        key: Key,
        item: Publication,
        failed: Option<String>,
    },
    Notice(Notice),
    Stop,
}

/// A run to begin.
#[derive(Debug)]
pub struct Begin {
    pub plan: Plan,
    pub start: Start,
    /// What those who work for it need to know.
    pub about: serde_json::Value,
    /// What it takes over from the run that it was forked from.
    pub reused: Vec<Reused>,
    /// The dead letters that it does again, and who wants that.
    pub settles: Vec<(DeadId, Settled)>,
}

impl Begin {
    /// A run that comes from no other.
    pub fn new(plan: Plan, start: Start, about: serde_json::Value) -> Begin {
        Begin { plan, start, about, reused: Vec::new(), settles: Vec::new() }
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
pub enum Told<'a> {
    /// A row is durable.
    Row { running: Running<'a>, batch: &'a Arc<Batch> },
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
pub type Watcher = Box<dyn FnMut(Told<'_>) + Send>;

/// How much may be done at once.
#[derive(Debug, Clone, Copy)]
pub struct Capacity {
    /// Workers over all runs.
    pub workers: u32,
}

/// A handle on the loop, which ends when the last handle is gone.
pub struct Host {
    to: Sender<Said>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    pub fn new(store: Arc<dyn Store>, hands: Box<dyn Hands>, capacity: Capacity, watcher: Watcher) -> Host {
        let (to, inbox) = channel();
        let notices = to.clone();
        store.watch(Arc::new(move |notice| {
            // A loop that has ended wants no news.
            let _ = notices.send(Said::Notice(notice));
        }));
        let inner = turn::Loop::new(store, hands, Clock::new(), capacity, watcher, to.clone());
        let body = move || inner.run(&inbox);
        let thread = std::thread::Builder::new().name("host".into()).spawn(body);
        Host { to, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Begins runs, all of them or none. What becomes of them is told to the watcher.
    pub fn begin(&self, begin: Vec<Begin>) -> Result<(), StoreError> {
        let (reply, answer) = channel();
        self.send(Said::Begin { begin, reply });
        answer.recv().unwrap_or_else(|_| Err(stopped()))
    }

    /// Resumes runs that no living process owns. Returns how many events each had when it was claimed: another process may
    /// have appended some since the caller last read the run.
    pub fn resume(&self, runs: Vec<RunId>) -> Vec<Result<u64, ResumeError>> {
        let count = runs.len();
        let (reply, answer) = channel();
        self.send(Said::Resume { runs, reply });
        answer.recv().unwrap_or_else(|_| (0..count).map(|_| Err(stopped().into())).collect())
    }

    /// Says something to a run that is owned here. None: it is not, or the host has stopped.
    pub fn say(&self, run: &RunId, input: Input) -> Option<Result<(), Refusal>> {
        let (reply, answer) = channel();
        self.send(Said::Input { run: run.clone(), input, reply });
        answer.recv().ok()
    }

    /// Passes an input to a run that is owned here, and does not wait until it is decided. For callers that must not
    /// block whatever the loop and its disk are doing.
    pub fn tell(&self, run: &RunId, input: Input) {
        let (reply, _) = channel();
        self.send(Said::Input { run: run.clone(), input, reply });
    }

    /// Lets go of runs: their workers are ended and not waited for, and they can be resumed.
    pub fn leave(&self, runs: &[RunId]) {
        let (reply, done) = channel();
        self.send(Said::Leave { runs: runs.to_vec(), reply });
        let _ = done.recv();
    }

    /// Lets go of runs as [`Host::leave`] does, and returns whether the loop did so in time.
    pub fn leave_within(&self, runs: &[RunId], within: Duration) -> bool {
        let (reply, done) = channel();
        self.send(Said::Leave { runs: runs.to_vec(), reply });
        done.recv_timeout(within) != Err(RecvTimeoutError::Timeout)
    }

    fn send(&self, said: Said) {
        // A loop that has ended has told the watcher why.
        let _ = self.to.send(said);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.send(Said::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn stopped() -> StoreError {
    StoreError::Failed("the host has stopped".to_owned())
}

/// A name for a new run: short enough to be typed, and not used before.
pub fn new_id() -> RunId {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    // A name that is taken is refused.
    let bytes = chance::random::<10>();
    let text: String = bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
    RunId::new(text).expect("letters and digits are a name")
}
