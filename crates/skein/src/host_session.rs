//! Owning runs in this process: the host with a crew, what it tells, and the signals of the terminal.
//!
//! The one place where `run`, `resume` and `cancel` come by a host. What is shown of it is `watch`'s.

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
use skein_core::{engine::RunInput, ids::RunId, limits};
use skein_host::{
    executor::{ProcessExecutor, RunSettings},
    host::{Host, ResumeError, WorkerCapacity},
    secret::{self, Secrets},
    store::{ClaimError, Store, is_shortened},
    workspace::ContextLocks,
};

use crate::{
    config::{self, ProjectConfig},
    enforcement,
    exit::Exit,
    file_limit, orphans,
    output::CliOutput,
    prompt::{self, TerminalPrompt},
    recording::RecordingThread,
    send_input,
    state::{self, StateHandle},
    watch::{self, FollowEnd, FollowEvent, FollowInbox, RunFollowEvent},
};

/// How long the loop may take to let go of its runs when the process is told to leave.
const LEAVING: Duration = Duration::from_secs(2);

/// A host for some runs, and what it tells.
#[derive(Debug)]
pub struct HostSession {
    pub host: Arc<Host>,
    pub told: FollowInbox,
    /// The context folders of its runs.
    pub contexts: Arc<ContextLocks>,
    /// What is recorded and replayed beside them.
    pub taping: RecordingThread,
    notes: Sender<RunFollowEvent>,
    /// The state folder.
    state: PathBuf,
    /// The runs that signals are for.
    runs: Arc<Mutex<Vec<RunId>>>,
    /// Whether someone at the terminal asked for the end.
    stopped: Arc<AtomicBool>,
}

impl HostSession {
    pub fn new(
        state: &StateHandle,
        secrets: Secrets,
        workers: u32,
        output: CliOutput,
    ) -> Result<HostSession, Exit> {
        let workers = file_limit::raise_file_limit(workers).map_err(|why| {
            output.refuse(Exit::Refused, &why, Some("raise it, for example with `ulimit -n 4096`"))
        })?;
        let (notes, told) = channel();
        let lines = notes.clone();
        let tell = Arc::new(move |run: &RunId, attempt, line: &str| {
            let _ = lines.send((Some(run.clone()), FollowEvent::Line(attempt, line.to_owned())));
        });
        let crew = ProcessExecutor::new(&state.path, secrets, Some(tell))
            .map_err(|error| output.refuse(Exit::Store, &error.to_string(), None))?;
        let launcher = enforcement::launcher().as_ref();
        let launcher = launcher.map_err(|why| output.refuse(Exit::Broken, why, None))?;
        let crew = crew.with_launcher(launcher.clone());
        enforcement::warn_unenforced(output);
        let (store, contexts): (Arc<dyn Store>, _) = (state.store.clone(), crew.contexts());
        let (taping, watcher, inbox) = RecordingThread::new(watch::new_watcher(notes.clone()));
        let host =
            Arc::new(Host::new(Arc::clone(&store), Box::new(crew), WorkerCapacity { workers }, watcher));
        inbox.serve_tasks(store, Arc::downgrade(&host), prompt::is_interactive(output), output);
        let told = FollowInbox::new(told);
        let (state, runs, stopped) = (state.path.clone(), Arc::default(), Arc::default());
        Ok(HostSession { host, told, contexts, taping, notes, state, runs, stopped })
    }

    /// From now on, Ctrl-C asks these runs to stop; a second one, or another signal, leaves them as they are.
    pub fn handle_signals(&self, runs: Vec<RunId>, user: &str, output: CliOutput) -> Result<(), Exit> {
        runs.into_iter().for_each(|run| self.add_run(run));
        self.spawn_signal_thread(user.to_owned())
            .map_err(|error| output.refuse(Exit::Broken, &format!("signals cannot be heard: {error}"), None))
    }

    /// Signals are for this run, too.
    pub fn add_run(&self, run: RunId) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    fn spawn_signal_thread(&self, user: String) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let (host, notes) = (Arc::downgrade(&self.host), self.notes.clone());
        let (runs, stopped) = (Arc::clone(&self.runs), Arc::clone(&self.stopped));
        let state = self.state.clone();
        // This thread waits for nothing without a limit, so that a signal is heard whatever the loop and its disk do.
        let body = move || {
            let mut left = false;
            for (n, signal) in signals.forever().enumerate() {
                let Some(host) = host.upgrade() else { return };
                stopped.store(true, Ordering::Release);
                let runs = runs.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A machine that goes down and a terminal that is closed say nothing about the run.
                if n == 0 && signal == SIGINT {
                    cancel_runs(&host, &runs, &user);
                    runs.into_iter().for_each(|run| drop(notes.send((Some(run), FollowEvent::Cancelling))));
                    continue;
                }
                if std::mem::replace(&mut left, true) || !host.leave_runs_within(&runs, LEAVING) {
                    exit_at_once(&state, &runs);
                }
                // Whoever hears of this ends the host, and with it all that it started; it must be the last to have it.
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

    /// Asks whoever is at the terminal what the run waits for, if there is someone who may be asked.
    pub fn open_prompt(
        &self,
        state: &StateHandle,
        run: &RunId,
        about: &RunSettings,
        output: CliOutput,
    ) -> Option<TerminalPrompt> {
        // A worker's terminal is no person's.
        if !prompt::is_interactive(output) || !send_input::is_person(state) {
            return None;
        }
        TerminalPrompt::new(Arc::clone(&self.host), run.clone(), about.clone(), self.notes.clone()).ok()
    }

    /// Takes one run over, and returns how many events it had then.
    pub fn resume_run(&self, run: &RunId, output: CliOutput) -> Result<u64, Exit> {
        let result = self.host.resume_runs(vec![run.clone()]).pop();
        result.unwrap_or(Ok(0)).map_err(|error| refuse_claim(run, &error, output))
    }
}

impl Drop for HostSession {
    /// What people decided is recorded before the process can end.
    fn drop(&mut self) {
        self.taping.flush();
    }
}

/// Asks runs to stop. Does not wait until they have taken note.
fn cancel_runs(host: &Host, runs: &[RunId], user: &str) {
    for run in runs {
        let reason = Some("stopped at the terminal".to_owned());
        host.post_input(run, RunInput::Cancel { by: user.to_owned(), reason });
    }
}

/// Ends the process though its loop does not answer, and before that the workers of its runs. The runs can be resumed.
fn exit_at_once(state: &Path, runs: &[RunId]) -> ! {
    let _ = orphans::end_workers(state, runs);
    let named: Vec<String> = runs.iter().map(|run| format!("`skein resume {run}`")).collect();
    eprintln!("warning: skein left at once, its loop does not respond; {} goes on", named.join(", "));
    std::process::exit(Exit::Stopped as i32)
}

/// What to say of a run that cannot be had.
pub fn refuse_claim(run: &RunId, error: &ResumeError, output: CliOutput) -> Exit {
    match error {
        ResumeError::Claim(ClaimError::Owned(who)) => output.refuse(
            Exit::Refused,
            &format!("run `{run}` is being run by {who}"),
            Some(&format!("`skein runs {run} --follow` shows it")),
        ),
        ResumeError::Claim(ClaimError::Store(error)) | ResumeError::Store(error) => {
            crate::state::refuse_store_error(error, output)
        }
        ResumeError::Claim(ClaimError::Quarantined(why)) => {
            refuse_quarantined(state::quarantine_exit(why), run, why, output)
        }
        // It was found out now.
        ResumeError::SetAside(why) => refuse_quarantined(Exit::Store, run, why, output),
        ResumeError::Claim(error @ ClaimError::Unknown(_)) => {
            output.refuse(Exit::Refused, &error.to_string(), None)
        }
    }
}

fn refuse_quarantined(exit: Exit, run: &RunId, why: &str, output: CliOutput) -> Exit {
    let hint = match is_shortened(why) {
        true => state::shortened_hint(run),
        false => format!("`skein events {run}` tells what happened"),
    };
    output.refuse(exit, &format!("run `{run}` was set aside: {why}"), Some(&hint))
}

/// The secrets of a run, all of them.
pub fn load_secrets(
    from: &BTreeMap<String, secret::SecretSource>,
    output: CliOutput,
) -> Result<Secrets, Exit> {
    Secrets::load(from).map_err(|errors| {
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        output.refuse(Exit::Refused, &told.join("; "), None)
    })
}

/// How many workers the project of a run may have.
pub fn read_max_workers(project: &Path) -> u32 {
    // A project whose configuration has become wrong since does not keep its runs from ending.
    let path = project.join(config::NAME);
    let config = ProjectConfig::load(&path, config::NAME).unwrap_or_default();
    config.max_workers.unwrap_or(limits::WORKERS_DEFAULT)
}
