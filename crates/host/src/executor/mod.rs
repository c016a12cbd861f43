//! The executor: runs the attempts and hooks of runs by starting programs.
//!
//! Owns the path from an attempt to a process and back: its inputs, its permissions and the meaning of its end. Does
//! not know the next step of a run, and does not supervise processes itself ([`crate::process`]). Read `attempt` next.

mod active_work;
mod agent_context;
mod agent_launch;
mod artifacts;
mod attempt;
mod attempt_recording;
mod attempt_spec;
mod builtin;
mod check_verdict;
mod convergence_guard;
mod environment;
mod evidence;
mod executor_context;
pub mod fallback;
mod folder_occupancy;
mod git;
mod handoff;
mod hook;
mod hook_message;
mod pinned_programs;
mod prompt;
mod protect;
mod publish;
mod recorded_request;
pub mod remote;
pub mod replay;
mod run_resources;
mod run_settings;
mod sandbox_setup;
mod scrub;
mod session_carryover;
mod stage_overlay;
mod telemetry;
mod tool;
mod trusted_programs;
mod worker_command;
mod worker_output;
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

pub use agent_context::AgentContextRequest;
pub(crate) use attempt_spec::worker_for_role as worker_of;
pub use attempt_spec::{default_agent_model, test_commands as tests_of};
pub use builtin::BuiltinFunction;
pub use environment::NEEDED as NEEDED_VARIABLES;
pub use environment::is_always_passed;
pub use pinned_programs::PinnedProgram;
pub use run_resources::{AgentSkill, RunResources, TelemetrySubscription};
pub use run_settings::{
    AgentProgram, AgentSettings, DefinitionFiles, RunOverride, RunSettings, SecretDelivery, SecretGrant,
    ToolSettings,
};
pub use worktree::{OnRetry, WorkspacePolicy, is_repository, kept_worktrees};

use self::{
    active_work::{ActiveWork, WorkKey},
    attempt_spec::AttemptSpec,
    executor_context::ExecutorContext,
    telemetry::TelemetrySender,
    worktree::WorkspaceRegistry,
};
use crate::{
    executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter},
    process::{self, MarkedWork, OutputFilter, ProcessRecord, StateMark},
    redact::{Redactor, TooManySecrets},
    sandbox::SandboxLauncher,
    secret::Secrets,
    workspace::{ContextLocks, RootFolder, RunDir, has_files, root::FilePathError},
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
        let lent = agent_launch::host_credentials();
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
            abouts: Mutex::default(),
            taping: Mutex::default(),
            left: Condvar::new(),
        };
        Ok(ProcessExecutor {
            shared: Arc::new(shared),
            telemetry: TelemetrySender::default(),
            removing: Vec::new(),
        })
    }

    /// Starts workers in sandboxes, through a program that begins with [`crate::sandbox::enter`].
    pub fn with_launcher(mut self, launcher: SandboxLauncher) -> ProcessExecutor {
        trusted_programs::use_launcher(&launcher);
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
        let about = self.shared.run_settings(running);
        let done = about
            .as_ref()
            .ok()
            .and_then(|about| builtin::run_inline(&self.shared, running, attempt, task, about));
        if let Some(report) = done {
            return finish.report(report);
        }
        let key = (running.run.clone(), MarkedWork::Attempt(attempt));
        let job = about.and_then(|about| AttemptSpec::new(running, attempt, task, about));
        let job = match job {
            Ok(job) => {
                AttemptSpec { watched: self.shared.trees.is_tracked(running.run, running.plan), ..job }
            }
            Err(why) => return self.shared.finish_without_cost(&key, attempt::non_retryable(why), finish),
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

    fn prepare_retry(&mut self, run: &RunId, plan: &Plan, about: &serde_json::Value) -> Result<Plan, String> {
        publish::stage_run_files(&self.shared, run, plan, about)
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
        self.shared.settings_cache().of.remove(run);
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
