//! The context that all attempts of this process share: the state folder, run settings and work in progress.
//!
//! Owns the register of active work: each piece can be stopped before its process starts, during it, or when it has no
//! process, and its end is reported once. Does not know the content of an attempt.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use skein_core::{
    engine::{AttemptEnd, AttemptReport, CheckOutput, Cost},
    ids::RunId,
};

use super::{
    OutputLineCallback,
    attempt::{spec::AttemptSpec, worker_output::scrub_attempt},
    worktree::{WorkspaceRegistry, workspace_usage::FolderOccupancy},
};
use crate::{
    cancel_token::CancelToken,
    executor_api::AttemptReporter,
    process::{MarkedWork, OutputFilter, OutputFilterFactory, ProcessHandle, ProgressCallback, StateMark},
    redact::Redactor,
    sandbox::{SandboxEnforcement, SandboxLauncher},
    secret::Secrets,
    workspace::{
        ArtifactError, ContextFolder, ContextInput, ContextLocks, KeptSizes, RootFolder, RunDir, WrittenArtifacts,
        root::FilePathError,
    },
};

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

    pub(crate) fn for_each_work(&self, run: &RunId, what: impl Fn(&mut ActiveWork)) {
        for ((of, _), live) in self.active_work().iter_mut() {
            if of == run {
                what(live);
            }
        }
    }
}

/// The key of a piece of work: its run, and its attempt or hook.
pub type WorkKey = (RunId, MarkedWork);

/// An attempt or a hook that has begun.
pub enum ActiveWork {
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
    pub fn attach_process(&mut self, handle: ProcessHandle) {
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

    pub fn stop(&mut self) {
        match self {
            ActiveWork::Ahead { stopped } => *stopped = true,
            ActiveWork::Working { handle, ending } => {
                handle.stop();
                ending.get_or_insert(ProcessHandle::stop);
            }
            ActiveWork::Called(call) => call.cancel(),
        }
    }

    pub fn kill(&mut self) {
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
