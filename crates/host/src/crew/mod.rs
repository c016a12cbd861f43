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
mod prompt;
mod protect;
mod publish;
mod record;
pub mod relay;
pub mod remote;
pub mod replay;
mod request;
mod surroundings;
mod telemetry;
mod told;
mod tool;
mod tree;
mod verdict;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use skein_core::{
    engine::{Assignment, AttemptEnd, AttemptId, Batch, Cost, Event, Publication, Report},
    ids::RunId,
    limits,
    plan::Plan,
    time::Millis,
};

pub use about::{About, Agent, Grant, Handing, Override, Program, Tool};
pub use briefing::Wanted;
pub use builtin::Function;
pub(crate) use job::worker as worker_of;
pub use job::{tests as tests_of, usual_model};
pub use surroundings::{Asking, Skill, Surroundings};
pub use tree::{Keeping, OnRetry, is_repository, kept_trees};

use self::{
    attempt::{Begun, Laid},
    company::Company,
    job::Job,
    live::{Doing, Live},
    telemetry::Telemetry,
    tree::Trees,
};
use crate::{
    hands::{Finish, Hands, Published, Running},
    redact::{Redactor, TooManySecrets},
    secret::Secrets,
    wall::{self, Kept},
    worker::{self, Filter, Handle, NewFilter, Record, StateMark, Task, Tell, Work},
    workspace::{ArtifactError, Context, Contexts, Root, RunDir, Story, has_files, root::PathError},
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

/// What was settled about runs. Of many that are begun together it is often the same, and then it is read once, and the
/// schemas of their tools are made ready once.
#[derive(Default)]
struct Abouts {
    of: BTreeMap<RunId, Arc<About>>,
    last: Option<(serde_json::Value, Arc<About>)>,
}

struct Shared {
    state: Root,
    mark: StateMark,
    secrets: Secrets,
    /// The program that builds walls around workers. Without it there are none.
    builder: Option<PathBuf>,
    kept: OnceLock<Option<Kept>>,
    redactor: Redactor,
    lines: Option<TellLine>,
    live: Mutex<BTreeMap<Doing, Live>>,
    /// Held by who writes a context folder.
    telling: Mutex<()>,
    contexts: Arc<Contexts>,
    /// Runs whose folders are known to last.
    lasting: Mutex<BTreeSet<RunId>>,
    company: Arc<Company>,
    trees: Trees,
    /// What was settled about each run that something was asked of, read once.
    abouts: Mutex<Abouts>,
    /// Held by who looks at a workspace to record what was changed in it.
    taping: Mutex<()>,
    /// Told when something of `live` is gone or called off.
    left: Condvar,
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
        // Walls are about real paths.
        let state = std::fs::canonicalize(state)?;
        let (root, mark) = (Root::open(&state)?, StateMark::of(&state)?);
        RunDir::prepare(&root).map_err(CrewError::Unsynced)?;
        let shared = Shared {
            state: root,
            mark,
            secrets,
            builder: None,
            kept: OnceLock::new(),
            redactor,
            lines,
            live: Mutex::default(),
            telling: Mutex::default(),
            contexts: Arc::default(),
            lasting: Mutex::default(),
            company: Arc::default(),
            trees: Trees::default(),
            abouts: Mutex::default(),
            taping: Mutex::default(),
            left: Condvar::new(),
        };
        Ok(Crew { shared: Arc::new(shared), telemetry: Telemetry::default(), removing: Vec::new() })
    }

    /// Workers are started behind walls, which this program builds: one that begins with [`crate::wall::enter`].
    pub fn behind_walls(mut self, builder: PathBuf) -> Crew {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.builder = Some(builder);
        }
        self
    }

    /// Which context folders its runs write, so that one can be had before a run begins.
    pub fn contexts(&self) -> Arc<Contexts> {
        Arc::clone(&self.shared.contexts)
    }
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, BTreeMap<Doing, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn about(&self, running: Running<'_>) -> Result<Arc<About>, String> {
        let mut abouts = self.abouts();
        if let Some(about) = abouts.of.get(running.run) {
            return Ok(Arc::clone(about));
        }
        let same = abouts.last.as_ref().filter(|(value, _)| value == running.about);
        let about = match same.map(|(_, about)| Arc::clone(about)) {
            Some(about) => about,
            None => {
                let about = Arc::new(About::read(running.about)?);
                abouts.last = Some((running.about.clone(), Arc::clone(&about)));
                about
            }
        };
        abouts.of.insert(running.run.clone(), Arc::clone(&about));
        Ok(about)
    }

    /// What was handed out as files is taken back, whoever left it.
    fn remove_secrets(&self, runs: &[RunId]) {
        for run in runs.iter().filter_map(|run| RunDir::open(&self.state, run).ok()) {
            // What cannot be removed goes with the run.
            let _ = run.remove_all_secrets();
        }
    }

    fn abouts(&self) -> MutexGuard<'_, Abouts> {
        self.abouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lasting(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of a run, synced the first time that it is asked for here.
    fn run_dir(&self, run: &RunId) -> Result<RunDir, PathError> {
        if self.lasting().contains(run) {
            return RunDir::create(&self.state, run);
        }
        let folder = RunDir::create_synced(&self.state, run)?;
        self.lasting().insert(run.clone());
        Ok(folder)
    }

    /// How far walls are kept here. None: there are none.
    fn kept(&self) -> Option<Kept> {
        *self.kept.get_or_init(|| wall::here(self.builder.as_deref()?).ok())
    }

    /// Writes the context folder of a run. What an earlier run left there goes first; one that goes on is not disturbed.
    fn tell_context(
        &self,
        workspace: &Root,
        directory: &str,
        run: &RunId,
        story: &Story<'_>,
    ) -> Result<Context, ArtifactError> {
        let _one = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let context = Context::open(workspace, directory)?;
        self.contexts.hold(&context, run)?;
        if context.holder()?.is_some_and(|holder| holder.id != run.as_str()) {
            context.clear()?;
        }
        context.write(story)?;
        Ok(context)
    }

    fn filter(&self) -> Option<NewFilter> {
        let redactor = self.redactor.fresh();
        Some(Arc::new(move || Box::new(redactor.fresh()) as Box<dyn Filter>))
    }

    fn tell(&self, job: &Job) -> Option<Tell> {
        let (lines, run, attempt) = (self.lines.clone()?, job.run.clone(), job.attempt);
        Some(Box::new(move |line| lines(&run, attempt, line)))
    }

    /// One attempt, from its beginning to its end.
    fn attempt(self: &Arc<Shared>, job: Job, key: Doing, finish: Finish) {
        if let Some(function) = job.tool().and_then(|tool| tool.function).filter(|one| !one.reaches_out()) {
            return builtin::work(self, &job, function, &key, finish);
        }
        if let Some(path) = job.about.replay.clone() {
            let report = replay::attempt(self, &job, &path, &key);
            return self.finish(&key, report, finish);
        }
        match attempt::lay_out(self, job) {
            Begun::Ready(ready) => {
                let (task, laid) = *ready;
                self.work(task, laid, key, finish);
            }
            Begun::Over(report) => self.finish(&key, report, finish),
        }
    }

    /// Runs the program, unless it was called off meanwhile.
    fn work(&self, task: Task, mut laid: Laid, key: Doing, finish: Finish) {
        if self.is_stopped(&key) {
            return self.end(&key, AttemptEnd::Stopped, finish);
        }
        let ended = match laid.job().asking(self) {
            Some(asking) => asking.run(task, &key),
            None => worker::run(task, |handle| self.started(&key, handle)),
        };
        let report = laid.take_up(self, &key, &ended);
        self.finish(&key, report, finish);
    }

    /// From now on it is stopped by this. It may have been called off before.
    fn started(&self, key: &Doing, handle: Handle) {
        if let Some(live) = self.live().get_mut(key) {
            live.started(handle);
        }
    }

    fn is_stopped(&self, key: &Doing) -> bool {
        matches!(self.live().get(key), Some(Live::Ahead { stopped: true }))
    }

    /// Nothing of it is at work any more.
    fn gone(&self, key: &Doing) {
        self.live().remove(key);
        self.left.notify_all();
    }

    /// An attempt that came to nothing before it could use anything.
    fn end(&self, key: &Doing, end: AttemptEnd, finish: Finish) {
        self.finish(key, Report::new(end, Cost::default()), finish);
    }

    fn finish(&self, key: &Doing, report: Report, finish: Finish) {
        self.gone(key);
        finish.tell(self.without_secrets(report));
    }

    /// Asks for the end of something that has begun.
    fn stop(&self, key: &Doing) {
        if let Some(live) = self.live().get_mut(key) {
            live.stop();
        }
        self.left.notify_all();
    }

    /// Waits until something that has no program is called off. Whether it was.
    fn wait_for_stop(&self, key: &Doing, within: Duration) -> bool {
        let goes_on =
            |live: &mut BTreeMap<Doing, Live>| matches!(live.get(key), Some(Live::Ahead { stopped: false }));
        let waited = self.left.wait_timeout_while(self.live(), within, goes_on);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn taping(&self) -> MutexGuard<'_, ()> {
        self.taping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Secrets are taken out before anything is decided or kept.
    fn without_secrets(&self, report: Report) -> Report {
        let Report { end, cost, mut proofs, by } = report;
        for proof in &mut proofs {
            proof.what = self.redactor.redact_str(&proof.what);
            proof.found = self.redactor.redact_str(&proof.found);
        }
        Report { end: self.end_without_secrets(end), cost, proofs, by }
    }

    fn end_without_secrets(&self, end: AttemptEnd) -> AttemptEnd {
        let texts = |texts: Vec<String>| texts.iter().map(|text| self.redactor.redact_str(text)).collect();
        match end {
            AttemptEnd::Succeeded { output } => {
                AttemptEnd::Succeeded { output: Arc::new(self.redactor.redact_value(&output)) }
            }
            AttemptEnd::Checked { finding, reasons, fingerprints } => {
                AttemptEnd::Checked { finding, reasons: texts(reasons), fingerprints: texts(fingerprints) }
            }
            AttemptEnd::Failed { class, code, message, retry_at } => {
                AttemptEnd::Failed { class, code, message: self.redactor.redact_str(&message), retry_at }
            }
            AttemptEnd::Unmerged { output, message } => AttemptEnd::Unmerged {
                output: Arc::new(self.redactor.redact_value(&output)),
                message: self.redactor.redact_str(&message),
            },
            AttemptEnd::HandedOver { to, message } => {
                AttemptEnd::HandedOver { to, message: self.redactor.redact_str(&message) }
            }
            other => other,
        }
    }

    fn each_of(&self, run: &RunId, what: impl Fn(&mut Live)) {
        for ((of, _), live) in self.live().iter_mut() {
            if of == run {
                what(live);
            }
        }
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
    }

    fn forget(&mut self, run: &RunId) {
        self.shared.each_of(run, Live::kill);
        self.shared.left.notify_all();
        self.shared.contexts.release(run);
        self.shared.remove_secrets(std::slice::from_ref(run));
        self.shared.lasting().remove(run);
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
