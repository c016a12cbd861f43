//! The executor: runs the attempts and hooks of runs by starting programs.
//!
//! Owns the path from an attempt to a process and back, and the register of active work: each piece can be stopped
//! before its process starts, during it, or when it has no process, and its end is reported once. Does not know the
//! next step of a run, and does not supervise processes itself ([`crate::process`]). Read `attempt` next.

pub mod agents;
pub mod attempt;
mod evidence;
mod programs;
mod publish;
mod telemetry;
pub mod tools;
mod worktree;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use skein_core::{
    engine::{
        AttemptAssignment, AttemptEnd, AttemptId, AttemptReport, CheckOutput, Cost, Event, JournalBatch, Publication,
    },
    ids::RunId,
    limits,
    plan::Plan,
    time::Millis,
};

use self::{
    attempt::{collect::scrub_attempt, spec::AttemptSpec},
    telemetry::TelemetrySender,
    worktree::{FolderOccupancy, WorkspaceRegistry},
};
use crate::{
    cancel_token::CancelToken,
    executor_api::{ActiveRun, AttemptReporter, Executor, PublicationReporter, RetryFilesError},
    process::{
        self, MarkedWork, OutputFilter, OutputFilterFactory, ProcessHandle, ProcessMark, ProcessRecord,
        ProgressCallback, StateMark,
    },
    redact::{Redactor, TooManySecrets},
    run_settings::RunSettings,
    sandbox::{SandboxEnforcement, SandboxLauncher},
    secret::Secrets,
    workspace::{
        ArtifactError, ContextFolder, ContextInput, ContextLocks, KeptSizes, RootFolder, RunDir, WrittenArtifacts,
        has_files, root::FilePathError,
    },
};

pub(crate) use self::attempt::spec::worker_for_role;
pub use self::{
    agents::prompt::AgentContextRequest,
    attempt::{
        command::{NEEDED as NEEDED_VARIABLES, is_always_passed},
        spec::default_agent_model,
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
            Ok(mut job) => {
                job.workspace.tracked = self.shared.trees.is_tracked(running.run, running.plan);
                job
            }
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
            Publication::Hook(number) => publish::run_hook(&self.shared, running, number, published),
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
        let mut work = self.shared.active_work();
        work.iter_mut().filter(|((of, _), _)| of == run).for_each(|(_, live)| live.kill());
        drop(work);
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

pub(crate) struct ExecutorContext {
    pub(crate) state: RootFolder,
    pub(crate) mark: StateMark,
    pub(crate) secrets: Secrets,
    /// The program that starts workers in sandboxes. Without it there are no sandboxes.
    pub(crate) launcher: Option<SandboxLauncher>,
    pub(crate) redactor: Redactor,
    pub(crate) lines: Option<OutputLineCallback>,
    pub(crate) live: Mutex<BTreeMap<WorkKey, ActiveWork>>,
    /// Held while a context folder is written.
    pub(crate) telling: Mutex<()>,
    pub(crate) contexts: Arc<ContextLocks>,
    /// Runs whose folders are synced to disk.
    pub(crate) lasting: Mutex<BTreeSet<RunId>>,
    /// The sizes of each run's kept artifacts.
    pub(crate) sizes: Mutex<BTreeMap<RunId, KeptSizes>>,
    pub(crate) company: Arc<FolderOccupancy>,
    pub(crate) trees: WorkspaceRegistry,
    /// Held while a workspace is scanned for a recording.
    pub(crate) taping: Mutex<()>,
    /// Notified when an entry of `live` is removed or stopped.
    pub(crate) left: Condvar,
}

impl ExecutorContext {
    pub(crate) fn active_work(&self) -> MutexGuard<'_, BTreeMap<WorkKey, ActiveWork>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the secret files of runs, including those that an earlier host left.
    pub(crate) fn remove_secrets(&self, runs: &[RunId]) {
        for run in runs.iter().filter_map(|run| RunDir::open(&self.state, run).ok()) {
            // Files that cannot be removed now are removed with the run.
            let _ = run.remove_all_secrets();
        }
    }

    /// Removes secrets from the files that attempts of dead processes left.
    pub(crate) fn scrub_runs<'a>(&self, runs: impl Iterator<Item = &'a RunId>) {
        if !self.redactor.has_secrets() {
            return;
        }
        for run in runs.filter_map(|run| RunDir::open(&self.state, run).ok()) {
            let attempts = run.list_attempts().unwrap_or_default().into_iter();
            let folders = attempts.filter_map(|attempt| run.find_attempt(attempt).ok().flatten());
            folders.for_each(|files| scrub_attempt(&files, &self.redactor));
        }
    }

    pub(crate) fn artifact_sizes(&self) -> MutexGuard<'_, BTreeMap<RunId, KeptSizes>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn synced_runs(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn process_mark(&self, run: &RunId, work: MarkedWork) -> ProcessMark {
        ProcessMark { state: self.mark.clone(), run: run.clone(), work }
    }

    /// The folder of a run, synced on first use in this process.
    pub(crate) fn run_dir(&self, run: &RunId) -> Result<RunDir, FilePathError> {
        if self.synced_runs().contains(run) {
            return RunDir::create(&self.state, run);
        }
        let folder = RunDir::create_synced(&self.state, run)?;
        self.synced_runs().insert(run.clone());
        Ok(folder)
    }

    /// The degree of sandbox enforcement on this machine. `None` if there is none.
    pub(crate) fn sandbox_enforcement(&self) -> Option<SandboxEnforcement> {
        self.launcher.as_ref()?.enforcement().as_ref().ok().copied()
    }

    /// Writes the context folder of a run. The files of an earlier run are removed first; a run that is active is not
    /// disturbed.
    pub(crate) fn write_context_folder(
        &self,
        workspace: &RootFolder,
        directory: &str,
        run: &RunId,
        story: &ContextInput<'_>,
    ) -> Result<ContextFolder, ArtifactError> {
        let _one = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let context = ContextFolder::open(workspace, directory)?;
        self.contexts.acquire(&context, run)?;
        let holder = context.read_holder()?.filter(|holder| holder.id != run.as_str());
        let is_others = holder.is_some();
        if let Some(holder) = holder {
            context.clear(&self.read_written_artifacts(&holder.id))?;
        }
        // The context folder of a finished run is written completely, because people read it.
        self.contexts.write_context(&context, story, is_others || story.state.end.is_some())?;
        Ok(context)
    }

    /// The artifacts of the run that wrote a context folder. Empty if that run is no longer kept here.
    fn read_written_artifacts(&self, run: &str) -> WrittenArtifacts {
        let kept = RunId::new(run).ok().and_then(|run| RunDir::open(&self.state, &run).ok());
        kept.and_then(|kept| WrittenArtifacts::read(&kept).ok()).unwrap_or_default()
    }

    pub(crate) fn redaction_filter(&self) -> Option<OutputFilterFactory> {
        let redactor = self.redactor.new_stream();
        Some(Arc::new(move || Box::new(redactor.new_stream()) as Box<dyn OutputFilter>))
    }

    pub(crate) fn line_callback(&self, job: &AttemptSpec) -> Option<ProgressCallback> {
        let (lines, run, attempt) = (self.lines.clone()?, job.run.clone(), job.attempt);
        Some(Box::new(move |line| lines(&run, attempt, line)))
    }

    /// Attaches the process through which the work is stopped from now on. Stops it at once if that was requested
    /// before.
    pub(crate) fn attach_process(&self, key: &WorkKey, handle: ProcessHandle) {
        if let Some(live) = self.active_work().get_mut(key) {
            live.attach_process(handle);
        }
    }

    pub(crate) fn is_stopped(&self, key: &WorkKey) -> bool {
        matches!(self.active_work().get(key), Some(ActiveWork::Ahead { stopped: true }))
    }

    /// Removes work that has ended.
    pub(crate) fn remove_work(&self, key: &WorkKey) {
        self.active_work().remove(key);
        self.left.notify_all();
    }

    /// Finishes an attempt that ended before it could cost anything.
    pub(crate) fn finish_without_cost(&self, key: &WorkKey, end: AttemptEnd, finish: AttemptReporter) {
        self.finish_attempt(key, AttemptReport::new(end, Cost::default()), finish);
    }

    pub(crate) fn finish_attempt(&self, key: &WorkKey, report: AttemptReport, finish: AttemptReporter) {
        self.remove_work(key);
        finish.report(self.redact_report(report));
    }

    /// Requests the end of active work.
    pub(crate) fn stop_work(&self, key: &WorkKey) {
        if let Some(live) = self.active_work().get_mut(key) {
            live.stop();
        }
        self.left.notify_all();
    }

    /// Waits until work without a program is stopped. Returns true if it was.
    pub(crate) fn wait_for_stop(&self, key: &WorkKey, within: Duration) -> bool {
        let goes_on = |live: &mut BTreeMap<WorkKey, ActiveWork>| {
            matches!(live.get(key), Some(ActiveWork::Ahead { stopped: false }))
        };
        let waited = self.left.wait_timeout_while(self.active_work(), within, goes_on);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub(crate) fn lock_recording(&self) -> MutexGuard<'_, ()> {
        self.taping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes secrets from a report before it is used or stored.
    pub(crate) fn redact_report(&self, report: AttemptReport) -> AttemptReport {
        let AttemptReport { end, cost, mut proofs, by } = report;
        for proof in &mut proofs {
            proof.what = self.redactor.redact_str(&proof.what);
            proof.found = self.redactor.redact_str(&proof.found);
        }
        let by = by.map(|by| self.redactor.redact_str(&by));
        AttemptReport { end: self.redact_end(end), cost, proofs, by }
    }

    pub(crate) fn redact_end(&self, end: AttemptEnd) -> AttemptEnd {
        let texts = |texts: Vec<String>| texts.iter().map(|text| self.redactor.redact_str(text)).collect();
        match end {
            AttemptEnd::Succeeded { output } => AttemptEnd::Succeeded { output: self.redactor.redact_shared(output) },
            AttemptEnd::Checked { finding, reasons, fingerprints, output } => AttemptEnd::Checked {
                finding,
                reasons: texts(reasons),
                fingerprints: texts(fingerprints),
                output: output
                    .map(|CheckOutput { status, text }| CheckOutput { status, text: self.redactor.redact_str(&text) }),
            },
            AttemptEnd::Failed { class, code, message, retry_at } => AttemptEnd::Failed {
                class,
                code: code.map(|code| self.redactor.redact_str(&code)),
                message: self.redactor.redact_str(&message),
                retry_at,
            },
            AttemptEnd::Unmerged { output, message } => AttemptEnd::Unmerged {
                output: self.redactor.redact_shared(output),
                message: self.redactor.redact_str(&message),
            },
            AttemptEnd::HandedOver { to, message } => AttemptEnd::HandedOver {
                to: self.redactor.redact_str(&to),
                message: self.redactor.redact_str(&message),
            },
            AttemptEnd::Blocked { reason, until, message } => {
                AttemptEnd::Blocked { reason, until, message: self.redactor.redact_str(&message) }
            }
            end @ (AttemptEnd::Stopped | AttemptEnd::Interrupted | AttemptEnd::TimedOut) => end,
        }
    }
}

/// The key of a piece of work: its run, and its attempt or hook.
pub(crate) type WorkKey = (RunId, MarkedWork);

/// An attempt or a hook that has begun.
pub(crate) enum ActiveWork {
    /// Its program has not been started. If `stopped`, it must not be started any more.
    Ahead { stopped: bool },
    Working {
        handle: ProcessHandle,
        /// The requested way to end it. Programs that are started later for the same work end in the same way.
        ending: Option<fn(&ProcessHandle)>,
    },
    /// It is executed inside the host process.
    Called(Arc<CancelToken>),
}

impl ActiveWork {
    /// Attaches the process through which it is stopped from now on. Ends that process at once if a stop was requested
    /// before.
    pub(crate) fn attach_process(&mut self, handle: ProcessHandle) {
        let ending = match self {
            ActiveWork::Ahead { stopped: true } => Some(ProcessHandle::stop as fn(&ProcessHandle)),
            ActiveWork::Called(call) if call.is_cancelled() => Some(ProcessHandle::stop as fn(&ProcessHandle)),
            ActiveWork::Ahead { stopped: false } | ActiveWork::Called(_) => None,
            ActiveWork::Working { ending, .. } => *ending,
        };
        if let Some(end) = ending {
            end(&handle);
        }
        *self = ActiveWork::Working { handle, ending };
    }

    pub(crate) fn stop(&mut self) {
        match self {
            ActiveWork::Ahead { stopped } => *stopped = true,
            ActiveWork::Working { handle, ending } => {
                handle.stop();
                ending.get_or_insert(ProcessHandle::stop);
            }
            ActiveWork::Called(call) => call.cancel(),
        }
    }

    pub(crate) fn kill(&mut self) {
        match self {
            ActiveWork::Ahead { stopped } => *stopped = true,
            ActiveWork::Working { handle, ending } => {
                handle.kill();
                *ending = Some(ProcessHandle::kill);
            }
            ActiveWork::Called(call) => call.cancel(),
        }
    }
}
