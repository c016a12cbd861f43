//! Execution of runs in this process: the host with its executor, its events, and the control that a front end has over it.
//!
//! The only place where operations get a host. Also reports the orphaned runs of processes that died, and ends the
//! processes that they left. That claims no run, and ends no process of a live run: the processes are listed before their
//! run is found to be orphaned, and a process that takes the run over starts only new attempts.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skein_core::{
    engine::{RunInput, Verdict, Waitpoint},
    ids::RunId,
    limits,
    plan::Plan,
    time::Millis,
};
use skein_host::{
    executor::ProcessExecutor,
    host::{Host, WorkerCapacity},
    process::{self, ProcessMark, ProcessRecord, StateMark},
    run_settings::RunSettings,
    secret::{SecretSource, Secrets},
    store::{RunRow, RunSelection, Store},
    workspace::{ContextLocks, RootFolder, RunDir},
};

use crate::{
    app::App,
    app_error::AppError,
    prepare::probe,
    project::config::ProjectConfig,
    runs::{
        follow::{self, FollowEnd, FollowEvent, FollowInbox, RunFeed, RunFollowEvent, RunFrontEnd},
        recording::RecordingThread,
        send_input,
    },
    state::{self, StateHandle},
};

/// A host for some runs, and its events.
#[derive(Debug)]
pub(crate) struct HostSession {
    pub host: Arc<Host>,
    pub events: FollowInbox,
    /// The context folders of its runs.
    pub contexts: Arc<ContextLocks>,
    /// The thread that records and replays its runs.
    pub recorder: RecordingThread,
    sender: Sender<RunFollowEvent>,
    /// The state folder.
    state: PathBuf,
    /// The runs that a stop affects.
    runs: Arc<Mutex<Vec<RunId>>>,
    /// True if a person asked the process to stop.
    stopped: Arc<AtomicBool>,
    /// True if a person can answer prompts at a terminal that no worker can reach.
    interactive: bool,
}

impl HostSession {
    pub(crate) fn new(
        app: &App,
        state: &StateHandle,
        secrets: Secrets,
        workers: u32,
        front_end: &dyn RunFrontEnd,
    ) -> Result<HostSession, AppError> {
        let workers = raise_file_limit(workers)?;
        let (sender, events) = channel();
        let lines = sender.clone();
        let on_line = Arc::new(move |run: &RunId, attempt, line: &str| {
            let _ = lines.send((Some(run.clone()), FollowEvent::Line(attempt, line.to_owned())));
        });
        let executor = ProcessExecutor::new(&state.path, secrets, Some(on_line))
            .map_err(|error| AppError::store(error.to_string()))?;
        let launcher = probe::launcher().as_ref().map_err(|why| AppError::bug(why.to_string()))?;
        let executor = executor.with_launcher(launcher.clone());
        if let Some(warning) = probe::unenforced_warning() {
            app.warn(&warning);
        }
        let interactive = front_end.is_interactive() && probe::is_fully_enforced();
        let (store, contexts): (Arc<dyn Store>, _) = (state.store.clone(), executor.contexts());
        let (recorder, watcher, queue) = RecordingThread::new(follow::new_watcher(sender.clone()));
        let host = Arc::new(Host::new(Arc::clone(&store), Box::new(executor), WorkerCapacity { workers }, watcher));
        queue.serve_tasks(store, Arc::downgrade(&host), interactive, Arc::clone(&app.observer));
        let events = FollowInbox::new(events);
        let (state, runs, stopped) = (state.path.clone(), Arc::default(), Arc::default());
        Ok(HostSession { host, events, contexts, recorder, sender, state, runs, stopped, interactive })
    }

    /// Gives the front end control over these runs, in the name of a user.
    pub(crate) fn attach(&self, runs: Vec<RunId>, user: &str, front_end: &dyn RunFrontEnd) -> Result<(), AppError> {
        runs.into_iter().for_each(|run| self.add_run(run));
        front_end.attach(SessionControl {
            host: Arc::downgrade(&self.host),
            sender: self.sender.clone(),
            state: self.state.clone(),
            runs: Arc::clone(&self.runs),
            stopped: Arc::clone(&self.stopped),
            user: user.to_owned(),
        })
    }

    /// Adds a run that a stop affects.
    pub(crate) fn add_run(&self, run: RunId) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns the desk that takes a person's decisions about a run, if prompts are shown to one.
    pub(crate) fn open_desk(&self, state: &StateHandle, run: &RunId, settings: &RunSettings) -> Option<DecisionDesk> {
        // The terminal of a worker does not belong to a person.
        (self.interactive && send_input::is_person(state)).then(|| DecisionDesk {
            host: Arc::clone(&self.host),
            run: run.clone(),
            settings: settings.clone(),
            sender: self.sender.clone(),
        })
    }

    /// Returns the feed of a run of this process, for an operation that does not wait for people.
    pub(crate) fn feed<'a>(
        &'a self,
        state: &'a StateHandle,
        run: &'a RunId,
        plan: Plan,
        settings: &'a RunSettings,
        before: u64,
    ) -> RunFeed<'a> {
        RunFeed {
            run,
            plan,
            workspace: &settings.workspace,
            warnings: &settings.warnings,
            folder: state.run_folder(run),
            before,
            waits: false,
            owned_elsewhere: false,
            desk: None,
            store: &*state.store,
            inbox: Some(&self.events),
            recording: &|| None,
        }
    }

    /// Takes one run over, and returns the number of events that it had then.
    pub(crate) fn resume_run(&self, run: &RunId) -> Result<u64, AppError> {
        let result = self.host.resume_runs(vec![run.clone()]).pop();
        result.unwrap_or(Ok(0)).map_err(|error| state::refuse_claim(run, error))
    }
}

impl Drop for HostSession {
    /// Records the decisions of people before the process can end.
    fn drop(&mut self) {
        self.recorder.flush();
    }
}

/// Control over the runs of a session, for a front end that was asked to stop. No method waits without a limit.
#[derive(Debug)]
pub struct SessionControl {
    host: Weak<Host>,
    sender: Sender<RunFollowEvent>,
    state: PathBuf,
    runs: Arc<Mutex<Vec<RunId>>>,
    stopped: Arc<AtomicBool>,
    user: String,
}

/// The result of leaving the runs of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionLeave {
    Left,
    /// The loop of the host did not release the runs in time.
    Unresponsive,
    /// The session was over before.
    Over,
}

impl SessionControl {
    /// Returns the runs that a stop affects.
    pub fn runs(&self) -> Vec<RunId> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if the session has ended.
    pub fn is_over(&self) -> bool {
        self.host.strong_count() == 0
    }

    /// Cancels the runs, and does not wait until they have processed that. Returns false if the session has ended.
    pub fn cancel_runs(&self) -> bool {
        let Some(host) = self.host.upgrade() else { return false };
        self.stopped.store(true, Ordering::Release);
        for run in self.runs() {
            let reason = Some("stopped at the terminal".to_owned());
            host.post_input(&run, RunInput::Cancel { by: self.user.clone(), reason });
            let _ = self.sender.send((Some(run), FollowEvent::Cancelling));
        }
        true
    }

    /// Leaves the runs interrupted, so that they can be resumed.
    pub fn leave_runs(&self, within: Duration) -> SessionLeave {
        let Some(host) = self.host.upgrade() else { return SessionLeave::Over };
        self.stopped.store(true, Ordering::Release);
        let runs = self.runs();
        if !host.leave_runs_within(&runs, within) {
            return SessionLeave::Unresponsive;
        }
        // Dropped before the session learns of it, so that this is not the last reference.
        drop(host);
        for run in runs {
            let _ = self.sender.send((Some(run), FollowEvent::Over(FollowEnd::Left)));
        }
        SessionLeave::Left
    }

    /// Ends the workers of the runs, for a process that exits although its loop does not respond.
    pub fn end_workers(&self) -> io::Result<()> {
        end_workers(&self.state, &self.runs())
    }
}

/// Takes the decisions of a person who is shown a run of this process.
#[derive(Debug)]
pub struct DecisionDesk {
    host: Arc<Host>,
    run: RunId,
    settings: RunSettings,
    sender: Sender<RunFollowEvent>,
}

impl DecisionDesk {
    /// Returns a function that adds a typed line to the events of the run. It returns false once nobody follows it.
    pub fn typed_line_sender(&self) -> impl Fn(String) -> bool + Send + use<> {
        let sender = self.sender.clone();
        move |line| sender.send((None, FollowEvent::Typed(line))).is_ok()
    }

    /// Submits a decision. Returns a message if it is refused.
    pub fn submit_decision(&self, waitpoint: Waitpoint, verdict: Verdict, reason: Option<String>) -> Option<String> {
        // The roles of the person may have changed since the prompt was shown.
        let by = match send_input::load_current_actor(&self.settings) {
            Ok(by) => by,
            Err(error) => return Some(error.message.clone()),
        };
        let input = RunInput::Decide { opening: waitpoint, decision: verdict, by, reason };
        match self.host.send_input(&self.run, input) {
            Some(Ok(())) | None => None,
            Some(Err(refusal)) => Some(refusal.to_string()),
        }
    }
}

/// Loads all secrets of a run.
pub(crate) fn load_secrets(from: &BTreeMap<String, SecretSource>) -> Result<Secrets, AppError> {
    Secrets::load(from).map_err(|errors| {
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        AppError::refused(messages.join("; "))
    })
}

/// Returns the maximum number of workers of a run's project.
pub(crate) fn read_max_workers(project: &Path) -> u32 {
    ProjectConfig::load_valid(project).max_workers.unwrap_or(limits::WORKERS_DEFAULT)
}

/// Descriptors for the journal and everything else except workers.
const BASE: u64 = 104;
/// Maximum number of descriptors of a running worker.
const EACH: u64 = 8;

/// Raises the limit of open files to the number that this many workers need, as far as the system permits. Returns the
/// number of workers that can run at once under the resulting limit: a process without free descriptors could not write
/// its journal, so workers wait instead.
fn raise_file_limit(wanted: u32) -> Result<u32, AppError> {
    let needed = BASE + EACH * u64::from(wanted);
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return Ok(wanted) };
    let raised = needed.min(limit.maximum.unwrap_or(needed)).max(current);
    // If raising fails, the present limit stays.
    let allowed = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => raised,
        Err(_) => current,
    };
    if wanted > 0 && allowed < BASE + EACH {
        let message = format!("the limit of open files is {allowed}, and a run needs at least {}", BASE + EACH);
        return Err(AppError::refused(message).with_hint("raise it, for example with `ulimit -n 4096`"));
    }
    let possible = u32::try_from(allowed.saturating_sub(BASE) / EACH).unwrap_or(u32::MAX);
    Ok(wanted.min(possible))
}

/// Time that workers have to stop when this process exits at once.
const FORCED_GRACE: Millis = Millis(500);
/// Maximum number of runs that are named.
const NAMED: usize = 5;

/// Warns about orphaned runs, and ends the processes that they left.
pub(crate) fn report_and_reap(app: &App, state: &StateHandle) -> Result<(), AppError> {
    let orphaned = find_orphaned_runs(state)?;
    if orphaned.is_empty() {
        return Ok(());
    }
    for row in orphaned.iter().take(NAMED) {
        let (run, workflow) = (&row.run, &row.head.workflow);
        app.warn(&format!("run {run} of {workflow} was interrupted; `skein resume {run}` resumes it"));
    }
    if let more @ 1.. = orphaned.len().saturating_sub(NAMED) {
        app.warn(&format!("{more} more were interrupted; `skein resume --all` resumes all of them"));
    }
    reap_workers(app, state, &orphaned)
}

/// Ends the workers of runs when this process exits without stopping its host.
pub fn end_workers(state: &Path, runs: &[RunId]) -> io::Result<()> {
    let mark = StateMark::from_directory(state)?;
    let root = RootFolder::open(state).map_err(io::Error::other)?;
    let folders = runs.iter().filter_map(|run| RunDir::open(&root, run).ok());
    let records: Vec<ProcessRecord> =
        folders.flat_map(|run| process::find_records(run.path())).map(|(_, record)| record).collect();
    process::reap_leftovers(&mark, &records, |mark| runs.contains(&mark.run), FORCED_GRACE);
    Ok(())
}

fn find_orphaned_runs(state: &StateHandle) -> Result<Vec<RunRow>, AppError> {
    Ok(state.store.select_runs(RunSelection::Orphaned)?)
}

fn reap_workers(app: &App, state: &StateHandle, orphaned: &[RunRow]) -> Result<(), AppError> {
    let mark = StateMark::from_directory(&state.path).map_err(|error| AppError::store(error.to_string()))?;
    let root = RootFolder::open(&state.path).map_err(|error| AppError::store(error.to_string()))?;
    // A run without its folder has no records; its processes are found by the marks in their environment.
    let folders = orphaned.iter().filter_map(|row| RunDir::open(&root, &row.run).ok());
    let records: Vec<ProcessRecord> =
        folders.flat_map(|run| process::find_records(run.path())).map(|(_, record)| record).collect();
    let runs: BTreeSet<&RunId> = orphaned.iter().map(|row| &row.run).collect();
    let left = process::find_leftovers(&mark, &records, |mark| runs.contains(&mark.run));
    if left.is_empty() {
        return Ok(());
    }
    // Selects the runs again: a process that claimed a run in the meantime may have started workers of its own.
    let still = find_orphaned_runs(state)?;
    let still: BTreeSet<&RunId> = still.iter().map(|row| &row.run).collect();
    let marks: BTreeSet<ProcessMark> =
        left.into_iter().map(|found| found.mark).filter(|mark| still.contains(&mark.run)).collect();
    let reaped =
        process::reap_leftovers(&mark, &records, |mark| marks.contains(mark), Millis(limits::STOP_GRACE_DEFAULT));
    for found in reaped.left {
        app.warn(&format!("process {} ({}) of run {} cannot be ended", found.pid, found.name, found.mark.run));
    }
    Ok(())
}
