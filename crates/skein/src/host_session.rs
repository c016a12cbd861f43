//! Owning runs in this process: the host with its executor, its messages, and the signals of the terminal.
//!
//! The only place where `run`, `resume` and `cancel` get a host. Display is the task of `watch`.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use skein_app::{
    app_error::{AppError, AppErrorKind},
    config::{self, ProjectConfig},
    enforcement, file_limit,
    state::StateHandle,
};
use skein_core::{engine::RunInput, ids::RunId, limits};
use skein_host::{
    executor::{ProcessExecutor, RunSettings},
    host::{Host, WorkerCapacity},
    secret::{self, Secrets},
    store::Store,
    workspace::ContextLocks,
};

use crate::{
    exit::Exit,
    orphans,
    output::CliOutput,
    prompt::{self, TerminalPrompt},
    recording::RecordingThread,
    send_input,
    watch::{self, FollowEnd, FollowEvent, FollowInbox, RunFollowEvent},
};

/// Time that the loop has to release its runs when the process is told to exit.
const LEAVING: Duration = Duration::from_secs(2);

/// A host for some runs, and its messages.
#[derive(Debug)]
pub struct HostSession {
    pub host: Arc<Host>,
    pub told: FollowInbox,
    /// The context folders of its runs.
    pub contexts: Arc<ContextLocks>,
    /// The thread that records and replays its runs.
    pub taping: RecordingThread,
    notes: Sender<RunFollowEvent>,
    /// The state folder.
    state: PathBuf,
    /// The runs that signals affect.
    runs: Arc<Mutex<Vec<RunId>>>,
    /// True if a signal asked the process to stop.
    stopped: Arc<AtomicBool>,
}

impl HostSession {
    pub fn new(
        state: &StateHandle,
        secrets: Secrets,
        workers: u32,
        output: CliOutput,
    ) -> Result<HostSession, AppError> {
        let workers = file_limit::raise_file_limit(workers).map_err(|why| {
            AppError::new(AppErrorKind::Refused, &why, Some("raise it, for example with `ulimit -n 4096`"))
        })?;
        let (notes, told) = channel();
        let lines = notes.clone();
        let tell = Arc::new(move |run: &RunId, attempt, line: &str| {
            let _ = lines.send((Some(run.clone()), FollowEvent::Line(attempt, line.to_owned())));
        });
        let crew = ProcessExecutor::new(&state.path, secrets, Some(tell))
            .map_err(|error| AppError::new(AppErrorKind::Store, &error.to_string(), None))?;
        let launcher = enforcement::launcher().as_ref();
        let launcher = launcher.map_err(|why| AppError::new(AppErrorKind::Bug, why, None))?;
        let crew = crew.with_launcher(launcher.clone());
        if let Some(warning) = enforcement::unenforced_warning() {
            output.warn(&warning);
        }
        let (store, contexts): (Arc<dyn Store>, _) = (state.store.clone(), crew.contexts());
        let (taping, watcher, inbox) = RecordingThread::new(watch::new_watcher(notes.clone()));
        let host =
            Arc::new(Host::new(Arc::clone(&store), Box::new(crew), WorkerCapacity { workers }, watcher));
        inbox.serve_tasks(store, Arc::downgrade(&host), prompt::is_interactive(output), output);
        let told = FollowInbox::new(told);
        let (state, runs, stopped) = (state.path.clone(), Arc::default(), Arc::default());
        Ok(HostSession { host, told, contexts, taping, notes, state, runs, stopped })
    }

    /// Installs signal handlers: the first Ctrl-C cancels these runs; a second one, or another signal, leaves them
    /// interrupted.
    pub fn handle_signals(&self, runs: Vec<RunId>, user: &str) -> Result<(), AppError> {
        runs.into_iter().for_each(|run| self.add_run(run));
        self.spawn_signal_thread(user.to_owned()).map_err(|error| {
            AppError::new(AppErrorKind::Bug, &format!("cannot install signal handlers: {error}"), None)
        })
    }

    /// Adds a run that signals affect.
    pub fn add_run(&self, run: RunId) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    fn spawn_signal_thread(&self, user: String) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let (host, notes) = (Arc::downgrade(&self.host), self.notes.clone());
        let (runs, stopped) = (Arc::clone(&self.runs), Arc::clone(&self.stopped));
        let state = self.state.clone();
        // This thread never waits without a limit, so that signals are handled even if the loop or its disk hangs.
        let body = move || {
            let mut left = false;
            for (n, signal) in signals.forever().enumerate() {
                let Some(host) = host.upgrade() else { return };
                stopped.store(true, Ordering::Release);
                let runs = runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // SIGTERM and SIGHUP, at a shutdown or when a terminal is closed, do not mean that the run should be
                // cancelled.
                if n == 0 && signal == SIGINT {
                    cancel_runs(&host, &runs, &user);
                    runs.into_iter().for_each(|run| drop(notes.send((Some(run), FollowEvent::Cancelling))));
                    continue;
                }
                if std::mem::replace(&mut left, true) || !host.leave_runs_within(&runs, LEAVING) {
                    exit_at_once(&state, &runs);
                }
                // The receiver of this message drops the host, and with it all that it started; it must hold the last
                // reference.
                drop(host);
                let left = runs.into_iter().map(|run| (Some(run), FollowEvent::Over(FollowEnd::Left)));
                left.for_each(|of| drop(notes.send(of)));
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(body).map(drop)
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Asks the person at the terminal for the decisions that the run waits for, if the terminal is interactive.
    pub fn open_prompt(
        &self,
        state: &StateHandle,
        run: &RunId,
        about: &RunSettings,
        output: CliOutput,
    ) -> Option<TerminalPrompt> {
        // The terminal of a worker does not belong to a person.
        if !prompt::is_interactive(output) || !send_input::is_person(state) {
            return None;
        }
        TerminalPrompt::new(Arc::clone(&self.host), run.clone(), about.clone(), self.notes.clone()).ok()
    }

    /// Takes one run over, and returns the number of events that it had then.
    pub fn resume_run(&self, run: &RunId) -> Result<u64, AppError> {
        let result = self.host.resume_runs(vec![run.clone()]).pop();
        result.unwrap_or(Ok(0)).map_err(|error| skein_app::state::refuse_claim(run, &error))
    }
}

impl Drop for HostSession {
    /// Records the decisions of people before the process can end.
    fn drop(&mut self) {
        self.taping.flush();
    }
}

/// Cancels runs. Does not wait until they have processed the request.
fn cancel_runs(host: &Host, runs: &[RunId], user: &str) {
    for run in runs {
        let reason = Some("stopped at the terminal".to_owned());
        host.post_input(run, RunInput::Cancel { by: user.to_owned(), reason });
    }
}

/// Ends the process although its loop does not answer, and before that the workers of its runs. The runs can be
/// resumed.
fn exit_at_once(state: &Path, runs: &[RunId]) -> ! {
    let _ = orphans::end_workers(state, runs);
    let named: Vec<String> = runs.iter().map(|run| format!("`skein resume {run}`")).collect();
    eprintln!(
        "warning: skein exited at once because its loop does not respond; resume with {}",
        named.join(", ")
    );
    std::process::exit(Exit::Stopped as i32)
}

/// Loads all secrets of a run.
pub fn load_secrets(from: &BTreeMap<String, secret::SecretSource>) -> Result<Secrets, AppError> {
    Secrets::load(from).map_err(|errors| {
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        AppError::new(AppErrorKind::Refused, &told.join("; "), None)
    })
}

/// Returns the maximum number of workers of a run's project.
pub fn read_max_workers(project: &Path) -> u32 {
    // A configuration that has become invalid since must not prevent the project's runs from ending.
    let path = project.join(config::NAME);
    let config = ProjectConfig::load(&path, config::NAME).unwrap_or_default();
    config.max_workers.unwrap_or(limits::WORKERS_DEFAULT)
}
