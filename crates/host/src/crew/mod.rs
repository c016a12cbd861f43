//! The crew: does what runs want in earnest, by starting programs.
//!
//! Owns the way from an attempt to a process and back: what it is given, what it may see, what its end means. Refuses
//! to decide what follows, and to watch processes itself ([`crate::worker`]). Read `attempt` next.

mod about;
mod artifacts;
mod attempt;
mod back;
mod before;
mod briefing;
mod builtin;
mod command;
mod company;
mod confine;
mod environment;
mod evidence;
mod git;
mod guard;
mod handoff;
mod hire;
mod hook;
mod job;
mod live;
mod overlay;
mod pinned;
mod prompt;
mod protect;
mod publish;
mod record;
pub mod relay;
pub mod remote;
pub mod replay;
mod request;
mod scrub;
mod shared;
mod surroundings;
mod telemetry;
mod told;
mod tool;
mod tree;
mod trusted;
mod verdict;

use std::{
    collections::BTreeSet,
    fmt, io,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use skein_core::{
    engine::{Assignment, AttemptId, Batch, Event, Publication},
    ids::RunId,
    limits,
    plan::Plan,
    time::Millis,
};

pub use about::{About, Agent, DefinitionFiles, Grant, Handing, Override, Program, Tool};
pub use briefing::Wanted;
pub use builtin::Function;
pub use environment::NEEDED as NEEDED_VARIABLES;
pub use environment::is_always_passed;
pub(crate) use job::worker as worker_of;
pub use job::{tests as tests_of, usual_model};
pub use pinned::PinnedProgram;
pub use surroundings::{Asking, Skill, Surroundings};
pub use tree::{Keeping, OnRetry, is_repository, kept_trees};

use self::{
    job::Job,
    live::{Doing, Live},
    shared::Shared,
    telemetry::Telemetry,
    tree::Trees,
};
use crate::{
    hands::{Finish, Hands, Published, Running},
    redact::{Redactor, TooManySecrets},
    sandbox::Launcher,
    secret::Secrets,
    worker::{self, Filter, Record, StateMark, Work},
    workspace::{Contexts, Root, RunDir, has_files, root::PathError},
};

/// How long what an earlier life left may take to end.
const GRACE: Millis = Millis(limits::STOP_GRACE_DEFAULT);
/// How long what is killed may take to be gone.
const LEAVING: Duration = Duration::from_secs(5);

/// Told the last line that a worker printed, safe to show.
pub type TellLine = Arc<dyn Fn(&RunId, AttemptId, &str) + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum CrewError {
    #[error("the journal cannot be written: its folder cannot be synced: {0}")]
    Unsynced(PathError),
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("the state folder cannot be looked at: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Secrets(#[from] TooManySecrets),
}

pub struct Crew {
    shared: Arc<Shared>,
    telemetry: Telemetry,
    /// Who takes away the files of runs that are over.
    removing: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("state", &self.shared.state).finish_non_exhaustive()
    }
}

impl Crew {
    /// For the runs that are kept in a state folder.
    pub fn new(state: &Path, secrets: Secrets, lines: Option<TellLine>) -> Result<Crew, CrewError> {
        let lent = hire::lent();
        let redactor = Redactor::new(secrets.all().chain(&lent))?;
        // Sandboxes are about real paths.
        let state = std::fs::canonicalize(state)?;
        let (root, mark) = (Root::open(&state)?, StateMark::of(&state)?);
        RunDir::prepare(&root).map_err(CrewError::Unsynced)?;
        let shared = Shared {
            state: root,
            mark,
            secrets,
            launcher: None,
            redactor,
            lines,
            live: Mutex::default(),
            telling: Mutex::default(),
            contexts: Arc::default(),
            lasting: Mutex::default(),
            sizes: Mutex::default(),
            company: Arc::default(),
            trees: Trees::default(),
            abouts: Mutex::default(),
            taping: Mutex::default(),
            left: Condvar::new(),
        };
        Ok(Crew { shared: Arc::new(shared), telemetry: Telemetry::default(), removing: Vec::new() })
    }

    /// Starts workers in sandboxes, by a program that begins with [`crate::sandbox::enter`].
    pub fn sandboxed(mut self, launcher: Launcher) -> Crew {
        trusted::use_launcher(&launcher);
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.launcher = Some(launcher);
        }
        self
    }

    /// Which context folders its runs write, so that one can be had before a run begins.
    pub fn contexts(&self) -> Arc<Contexts> {
        Arc::clone(&self.shared.contexts)
    }
}

impl Hands for Crew {
    fn start(&mut self, running: Running<'_>, attempt: AttemptId, task: &Assignment, finish: Finish) {
        let about = self.shared.about(running);
        let done = about
            .as_ref()
            .ok()
            .and_then(|about| builtin::at_once(&self.shared, running, attempt, task, about));
        if let Some(report) = done {
            return finish.tell(report);
        }
        let key = (running.run.clone(), Work::Attempt(attempt));
        let job = about.and_then(|about| Job::of(running, attempt, task, about));
        let job = match job {
            Ok(job) => Job { watched: self.shared.trees.is_watched(running.run, running.plan), ..job },
            Err(why) => return self.shared.end(&key, attempt::never(why), finish),
        };
        self.shared.live().insert(key.clone(), Live::Ahead { stopped: false });
        let shared = Arc::clone(&self.shared);
        let body = move || shared.attempt(job, key, finish);
        // Without a thread the attempt is dropped, and so told to be lost.
        let _ = std::thread::Builder::new().name("attempt".into()).spawn(body);
    }

    fn stop(&mut self, run: &RunId, attempt: AttemptId) {
        self.shared.stop(&(run.clone(), Work::Attempt(attempt)));
    }

    fn renew(&mut self, run: &RunId, plan: &Plan, about: &serde_json::Value) -> Result<Plan, String> {
        publish::renew(&self.shared, run, plan, about)
    }

    fn publish(&mut self, running: Running<'_>, item: Publication, published: Published) {
        match item {
            Publication::Hook(number) => hook::run(&self.shared, running, number, published),
            other => publish::publish(&self.shared, running, other, published),
        }
    }

    fn told(&mut self, running: Running<'_>, batch: &Batch) {
        self.telemetry.hear(&self.shared, running, batch);
        let closed = || batch.records.iter().any(|record| record.event == Event::Closed);
        if has_files(&running.plan.definition.root().workflow) && closed() {
            self.removing.retain(|thread| !thread.is_finished());
            self.removing.extend(publish::close(&self.shared, running.run));
        }
    }

    fn clear(&mut self, runs: &[RunId]) {
        let state = &self.shared.state;
        self.shared.remove_secrets(runs);
        // Without its folder a run has no records, and the marks in the environment must do.
        let folders = runs.iter().filter_map(|run| RunDir::open(state, run).ok());
        let records: Vec<Record> =
            folders.flat_map(|run| worker::records(run.path())).map(|(_, record)| record).collect();
        let runs: BTreeSet<&RunId> = runs.iter().collect();
        worker::reap(&self.shared.mark, &records, |mark| runs.contains(&mark.run), GRACE);
        // Whoever was killed could not do it.
        self.shared.scrub(runs.iter().copied());
    }

    fn forget(&mut self, run: &RunId) {
        self.shared.each_of(run, Live::kill);
        self.shared.left.notify_all();
        self.shared.contexts.release(run);
        self.shared.remove_secrets(std::slice::from_ref(run));
        self.shared.lasting().remove(run);
        self.shared.sizes().remove(run);
        self.shared.trees.forget(run);
        self.shared.abouts().of.remove(run);
        self.telemetry.forget(run);
    }
}

impl Drop for Crew {
    /// Nothing outlives the host that it could still end.
    fn drop(&mut self) {
        self.telemetry.finish();
        for thread in self.removing.drain(..) {
            let _ = thread.join();
        }
        let mut live = self.shared.live();
        live.values_mut().for_each(Live::kill);
        self.shared.left.notify_all();
        // Who ends them does so in this process, which may be about to end, too.
        let _ = self.shared.left.wait_timeout_while(live, LEAVING, |live| !live.is_empty());
    }
}

impl Filter for Redactor {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        Redactor::push(self, bytes, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        Redactor::finish(self, out);
    }
}
