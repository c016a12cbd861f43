//! The executor: runs the attempts and hooks of runs by starting programs.
//!
//! Owns the path from an attempt to a process and back: its inputs, its permissions and the meaning of its end. Does
//! not know the next step of a run, and does not supervise processes itself ([`crate::process`]). Read `attempt` next.

pub mod agents;
pub mod attempt;
mod evidence;
mod executor_context;
mod hook;
mod programs;
mod publish;
mod telemetry;
pub mod tools;
mod worktree;

use std::{
    collections::BTreeSet,
    fmt, io,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use skein_core::{
    engine::{AttemptAssignment, AttemptId, Event, JournalBatch, Publication},
    ids::RunId,
    limits,
    plan::Plan,
    time::Millis,
};

use self::{
    attempt::spec::AttemptSpec,
    executor_context::{ActiveWork, ExecutorContext},
    telemetry::TelemetrySender,
    worktree::WorkspaceRegistry,
};
use crate::{
    executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter, RetryFilesError},
    process::{self, MarkedWork, OutputFilter, ProcessRecord, StateMark},
    redact::{Redactor, TooManySecrets},
    run_settings::RunSettings,
    sandbox::SandboxLauncher,
    secret::Secrets,
    workspace::{ContextLocks, RootFolder, RunDir, has_files, root::FilePathError},
};

pub use self::{
    agents::agent_context::AgentContextRequest,
    attempt::{
        command::{NEEDED as NEEDED_VARIABLES, is_always_passed},
        spec::{default_agent_model, worker_for_role},
    },
    worktree::{WorkspacePolicy, is_repository, kept_worktrees},
};

/// The time that processes left by an earlier host get to end.
const GRACE: Millis = Millis(limits::STOP_GRACE_DEFAULT);
/// The time to wait until killed processes are gone.
const LEAVING: Duration = Duration::from_secs(5);

/// Receives the last line that a worker printed, safe to show.
pub type OutputLineCallback = Arc<dyn Fn(&RunId, AttemptId, &str) + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    #[error("the journal cannot be written: its folder cannot be synced: {0}")]
    Unsynced(FilePathError),
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error("cannot read the state folder: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Secrets(#[from] TooManySecrets),
}

pub struct ProcessExecutor {
    shared: Arc<ExecutorContext>,
    telemetry: TelemetrySender,
    /// Threads that remove the files of finished runs.
    removing: Vec<JoinHandle<()>>,
}

impl fmt::Debug for ProcessExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessExecutor").field("state", &self.shared.state).finish_non_exhaustive()
    }
}

impl ProcessExecutor {
    /// Creates the executor for the runs in a state folder.
    pub fn new(
        state: &Path,
        secrets: Secrets,
        lines: Option<OutputLineCallback>,
    ) -> Result<ProcessExecutor, ExecutorError> {
        let lent = agents::agent_launch::host_credentials();
        let redactor = Redactor::new(secrets.iter().chain(&lent))?;
        // Sandbox rules refer to real paths.
        let state = std::fs::canonicalize(state)?;
        let (root, mark) = (RootFolder::open(&state)?, StateMark::from_directory(&state)?);
        RunDir::make_runs_folder(&root).map_err(ExecutorError::Unsynced)?;
        let shared = ExecutorContext {
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
            trees: WorkspaceRegistry::default(),
            taping: Mutex::default(),
            left: Condvar::new(),
        };
        Ok(ProcessExecutor { shared: Arc::new(shared), telemetry: TelemetrySender::default(), removing: Vec::new() })
    }

    /// Starts workers in sandboxes, through a program that begins with [`crate::sandbox::enter_sandbox`].
    pub fn with_launcher(mut self, launcher: SandboxLauncher) -> ProcessExecutor {
        programs::use_launcher(&launcher);
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.launcher = Some(launcher);
        }
        self
    }

    /// The locks of the context folders that its runs write. A context folder can be locked before its run begins.
    pub fn contexts(&self) -> Arc<ContextLocks> {
        Arc::clone(&self.shared.contexts)
    }
}

impl Executor for ProcessExecutor {
    fn start_attempt(
        &mut self,
        running: ActiveRun<'_>,
        attempt: AttemptId,
        task: &AttemptAssignment,
        finish: AttemptReporter,
    ) {
        programs::note_writable(running.settings);
        if let Some(report) = tools::builtin::run_inline(&self.shared, running, attempt, task) {
            return finish.report(report);
        }
        let key = (running.run.clone(), MarkedWork::Attempt(attempt));
        let job = match AttemptSpec::new(running, attempt, task) {
            Ok(job) => AttemptSpec { watched: self.shared.trees.is_tracked(running.run, running.plan), ..job },
            Err(why) => {
                return self.shared.finish_without_cost(&key, attempt::non_retryable(why).into(), finish);
            }
        };
        self.shared.active_work().insert(key.clone(), ActiveWork::Ahead { stopped: false });
        let shared = Arc::clone(&self.shared);
        let body = move || shared.run_attempt(job, key, finish);
        // If no thread can be spawned, the attempt's reporter is dropped, which reports the attempt as lost.
        let _ = std::thread::Builder::new().name("attempt".into()).spawn(body);
    }

    fn stop_attempt(&mut self, run: &RunId, attempt: AttemptId) {
        self.shared.stop_work(&(run.clone(), MarkedWork::Attempt(attempt)));
    }

    fn prepare_retry(&mut self, run: &RunId, plan: &Plan, settings: &RunSettings) -> Result<Plan, RetryFilesError> {
        publish::stage_run_files(&self.shared, run, plan, settings).map_err(RetryFilesError::new)
    }

    fn publish(&mut self, running: ActiveRun<'_>, item: Publication, published: PublicationReporter) {
        match item {
            Publication::Hook(number) => hook::run_hook(&self.shared, running, number, published),
            other => publish::publish_item(&self.shared, running, other, published),
        }
    }

    fn observe_batch(&mut self, running: ActiveRun<'_>, batch: &JournalBatch) {
        self.telemetry.record_batch(&self.shared, running, batch);
        let closed = || batch.records.iter().any(|record| record.event == Event::Closed);
        if has_files(&running.plan.definition.root().workflow) && closed() {
            self.removing.retain(|thread| !thread.is_finished());
            self.removing.extend(publish::remove_run_files(&self.shared, running.run));
        }
    }

    fn reap_orphans(&mut self, runs: &[RunId]) {
        let state = &self.shared.state;
        self.shared.remove_secrets(runs);
        // A run without its folder has no process records. Its processes are then found only by the marks in their
        // environment.
        let folders = runs.iter().filter_map(|run| RunDir::open(state, run).ok());
        let records: Vec<ProcessRecord> =
            folders.flat_map(|run| process::find_records(run.path())).map(|(_, record)| record).collect();
        let runs: BTreeSet<&RunId> = runs.iter().collect();
        process::reap_leftovers(&self.shared.mark, &records, |mark| runs.contains(&mark.run), GRACE);
        // A killed host could not scrub these files itself.
        self.shared.scrub_runs(runs.iter().copied());
    }

    fn forget_run(&mut self, run: &RunId) {
        self.shared.for_each_work(run, ActiveWork::kill);
        self.shared.left.notify_all();
        self.shared.contexts.release(run);
        self.shared.remove_secrets(std::slice::from_ref(run));
        self.shared.synced_runs().remove(run);
        self.shared.artifact_sizes().remove(run);
        self.shared.trees.forget(run);
        self.telemetry.forget(run);
    }
}

impl Drop for ProcessExecutor {
    /// Ends everything that the host can still end, so that nothing outlives it.
    fn drop(&mut self) {
        self.telemetry.finish();
        for thread in self.removing.drain(..) {
            let _ = thread.join();
        }
        let mut live = self.shared.active_work();
        live.values_mut().for_each(ActiveWork::kill);
        self.shared.left.notify_all();
        // The threads that end them belong to this process, which may be about to exit.
        let _ = self.shared.left.wait_timeout_while(live, LEAVING, |live| !live.is_empty());
    }
}

impl OutputFilter for Redactor {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        Redactor::push(self, bytes, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        Redactor::finish(self, out);
    }
}
