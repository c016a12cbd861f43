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
use skein_core::{engine::Input, ids::RunId, limits};
use skein_host::{
    crew::{About, Crew},
    host::{Capacity, Host, ResumeError},
    secret::{self, Secrets},
    store::{ClaimError, Store, is_shortened},
    workspace::Contexts,
};

use crate::{
    ask::{self, Ask},
    config::{self, Config},
    descriptors, enforcement,
    exit::Exit,
    orphans,
    output::Output,
    say,
    state::{self, State},
    taped::Taping,
    watch::{self, Inbox, Note, Of, Over},
};

/// How long the loop may take to let go of its runs when the process is told to leave.
const LEAVING: Duration = Duration::from_secs(2);

/// A host for some runs, and what it tells.
#[derive(Debug)]
pub struct Own {
    pub host: Arc<Host>,
    pub told: Inbox,
    /// The context folders of its runs.
    pub contexts: Arc<Contexts>,
    /// What is recorded and replayed beside them.
    pub taping: Taping,
    notes: Sender<Of>,
    /// The state folder.
    state: PathBuf,
    /// The runs that signals are for.
    runs: Arc<Mutex<Vec<RunId>>>,
    /// Whether someone at the terminal asked for the end.
    stopped: Arc<AtomicBool>,
}

impl Own {
    pub fn new(state: &State, secrets: Secrets, workers: u32, output: Output) -> Result<Own, Exit> {
        let workers = descriptors::workers(workers).map_err(|why| {
            output.refuse(Exit::Refused, &why, Some("raise it, for example with `ulimit -n 4096`"))
        })?;
        let (notes, told) = channel();
        let lines = notes.clone();
        let tell = Arc::new(move |run: &RunId, attempt, line: &str| {
            let _ = lines.send((Some(run.clone()), Note::Line(attempt, line.to_owned())));
        });
        let crew = Crew::new(&state.path, secrets, Some(tell))
            .map_err(|error| output.refuse(Exit::Store, &error.to_string(), None))?;
        let launcher = enforcement::launcher().as_ref();
        let launcher = launcher.map_err(|why| output.refuse(Exit::Broken, why, None))?;
        let crew = crew.sandboxed(launcher.clone());
        enforcement::warn(output);
        let (store, contexts): (Arc<dyn Store>, _) = (state.store.clone(), crew.contexts());
        let (taping, watcher, inbox) = Taping::new(watch::watcher(notes.clone()));
        let host = Arc::new(Host::new(Arc::clone(&store), Box::new(crew), Capacity { workers }, watcher));
        inbox.serve(store, Arc::downgrade(&host), ask::is_someone_there(output), output);
        let told = Inbox::new(told);
        let (state, runs, stopped) = (state.path.clone(), Arc::default(), Arc::default());
        Ok(Own { host, told, contexts, taping, notes, state, runs, stopped })
    }

    /// From now on, Ctrl-C asks these runs to stop; a second one, or another signal, leaves them as they are.
    pub fn listen(&self, runs: Vec<RunId>, user: &str, output: Output) -> Result<(), Exit> {
        runs.into_iter().for_each(|run| self.also(run));
        self.heard(user.to_owned())
            .map_err(|error| output.refuse(Exit::Broken, &format!("signals cannot be heard: {error}"), None))
    }

    /// Signals are for this run, too.
    pub fn also(&self, run: RunId) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    fn heard(&self, user: String) -> io::Result<()> {
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
                    cancel(&host, &runs, &user);
                    runs.into_iter().for_each(|run| drop(notes.send((Some(run), Note::Cancelling))));
                    continue;
                }
                if std::mem::replace(&mut left, true) || !host.leave_within(&runs, LEAVING) {
                    exit_at_once(&state, &runs);
                }
                // Whoever hears of this ends the host, and with it all that it started; it must be the last to have it.
                drop(host);
                let left = runs.into_iter().map(|run| (Some(run), Note::Over(Over::Left)));
                left.for_each(|of| drop(notes.send(of)));
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(body).map(drop)
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Asks whoever is at the terminal what the run waits for, if there is someone who may be asked.
    pub fn ask(&self, state: &State, run: &RunId, about: &About, output: Output) -> Option<Ask> {
        // A worker's terminal is no person's.
        if !ask::is_someone_there(output) || !say::is_person(state) {
            return None;
        }
        Ask::new(Arc::clone(&self.host), run.clone(), about.clone(), self.notes.clone()).ok()
    }

    /// Takes one run over, and returns how many events it had then.
    pub fn resume(&self, run: &RunId, output: Output) -> Result<u64, Exit> {
        let result = self.host.resume(vec![run.clone()]).pop();
        result.unwrap_or(Ok(0)).map_err(|error| not_had(run, &error, output))
    }
}

impl Drop for Own {
    /// What people decided is recorded before the process can end.
    fn drop(&mut self) {
        self.taping.flush();
    }
}

/// Asks runs to stop. Does not wait until they have taken note.
fn cancel(host: &Host, runs: &[RunId], user: &str) {
    for run in runs {
        let reason = Some("stopped at the terminal".to_owned());
        host.tell(run, Input::Cancel { by: user.to_owned(), reason });
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
pub fn not_had(run: &RunId, error: &ResumeError, output: Output) -> Exit {
    match error {
        ResumeError::Claim(ClaimError::Owned(who)) => output.refuse(
            Exit::Refused,
            &format!("run `{run}` is being run by {who}"),
            Some(&format!("`skein runs {run} --follow` shows it")),
        ),
        ResumeError::Claim(ClaimError::Store(error)) | ResumeError::Store(error) => {
            crate::state::failed(error, output)
        }
        ResumeError::Claim(ClaimError::Quarantined(why)) => {
            set_aside(state::exit_of_quarantine(why), run, why, output)
        }
        // It was found out now.
        ResumeError::SetAside(why) => set_aside(Exit::Store, run, why, output),
        ResumeError::Claim(error @ ClaimError::Unknown(_)) => {
            output.refuse(Exit::Refused, &error.to_string(), None)
        }
    }
}

fn set_aside(exit: Exit, run: &RunId, why: &str, output: Output) -> Exit {
    let hint = match is_shortened(why) {
        true => state::hint_for_shortened(run),
        false => format!("`skein events {run}` tells what happened"),
    };
    output.refuse(exit, &format!("run `{run}` was set aside: {why}"), Some(&hint))
}

/// The secrets of a run, all of them.
pub fn secrets(from: &BTreeMap<String, secret::From>, output: Output) -> Result<Secrets, Exit> {
    Secrets::load(from).map_err(|errors| {
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        output.refuse(Exit::Refused, &told.join("; "), None)
    })
}

/// How many workers the project of a run may have.
pub fn workers(project: &Path) -> u32 {
    // A project whose configuration has become wrong since does not keep its runs from ending.
    let path = project.join(config::NAME);
    let config = Config::load(&path, config::NAME).unwrap_or_default();
    config.max_workers.unwrap_or(limits::WORKERS_DEFAULT)
}
