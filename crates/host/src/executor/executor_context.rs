//! The context that all attempts of this process share: the state folder, run settings and work in progress.
//!
//! Owns the register of active work: each piece can be stopped, and its end is reported once. Does not know the content
//! of an attempt.

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
    active_work::{ActiveWork, WorkKey},
    attempt::{self, PrepareOutcome, PreparedAttempt},
    attempt_spec::AttemptSpec,
    builtin,
    folder_occupancy::FolderOccupancy,
    replay,
    run_settings::RunSettings,
    scrub::scrub_attempt,
    trusted_programs,
    worktree::WorkspaceRegistry,
};
use crate::{
    executor_api::{ActiveRun, AttemptReporter},
    process::{
        self, OutputFilter, OutputFilterFactory, ProcessHandle, ProcessSpec, ProgressCallback, StateMark,
    },
    redact::Redactor,
    sandbox::{SandboxEnforcement, SandboxLauncher},
    secret::Secrets,
    workspace::{
        ArtifactError, ContextFolder, ContextInput, ContextLocks, KeptSizes, RootFolder, RunDir,
        WrittenArtifacts, root::FilePathError,
    },
};

/// The settings of runs. Runs that start together often have the same settings. These are then parsed once, and the
/// schemas of their tools are compiled once.
#[derive(Default)]
pub(super) struct RunSettingsCache {
    pub(super) of: BTreeMap<RunId, Arc<RunSettings>>,
    pub(super) last: Option<(serde_json::Value, Arc<RunSettings>)>,
}

pub(super) struct ExecutorContext {
    pub(super) state: RootFolder,
    pub(super) mark: StateMark,
    pub(super) secrets: Secrets,
    /// The program that starts workers in sandboxes. Without it there are no sandboxes.
    pub(super) launcher: Option<SandboxLauncher>,
    pub(super) redactor: Redactor,
    pub(super) lines: Option<OutputLineCallback>,
    pub(super) live: Mutex<BTreeMap<WorkKey, ActiveWork>>,
    /// Held while a context folder is written.
    pub(super) telling: Mutex<()>,
    pub(super) contexts: Arc<ContextLocks>,
    /// Runs whose folders are synced to disk.
    pub(super) lasting: Mutex<BTreeSet<RunId>>,
    /// The sizes of each run's kept artifacts.
    pub(super) sizes: Mutex<BTreeMap<RunId, KeptSizes>>,
    pub(super) company: Arc<FolderOccupancy>,
    pub(super) trees: WorkspaceRegistry,
    /// The settings of each run that has started something, parsed once.
    pub(super) abouts: Mutex<RunSettingsCache>,
    /// Held while a workspace is scanned for a recording.
    pub(super) taping: Mutex<()>,
    /// Notified when an entry of `live` is removed or stopped.
    pub(super) left: Condvar,
}

impl ExecutorContext {
    pub(super) fn active_work(&self) -> MutexGuard<'_, BTreeMap<WorkKey, ActiveWork>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run_settings(&self, running: ActiveRun<'_>) -> Result<Arc<RunSettings>, String> {
        let mut abouts = self.settings_cache();
        if let Some(about) = abouts.of.get(running.run) {
            return Ok(Arc::clone(about));
        }
        let same = abouts.last.as_ref().filter(|(value, _)| value == running.about);
        let about = match same.map(|(_, about)| Arc::clone(about)) {
            Some(about) => about,
            None => {
                let about = Arc::new(RunSettings::from_json(running.about)?);
                abouts.last = Some((running.about.clone(), Arc::clone(&about)));
                about
            }
        };
        trusted_programs::note_writable(&about);
        abouts.of.insert(running.run.clone(), Arc::clone(&about));
        Ok(about)
    }

    /// Removes the secret files of runs, including those that an earlier host left.
    pub(super) fn remove_secrets(&self, runs: &[RunId]) {
        for run in runs.iter().filter_map(|run| RunDir::open(&self.state, run).ok()) {
            // Files that cannot be removed now are removed with the run.
            let _ = run.remove_all_secrets();
        }
    }

    /// Removes secrets from the files that attempts of dead processes left.
    pub(super) fn scrub_runs<'a>(&self, runs: impl Iterator<Item = &'a RunId>) {
        if !self.redactor.has_secrets() {
            return;
        }
        for run in runs.filter_map(|run| RunDir::open(&self.state, run).ok()) {
            let attempts = run.list_attempts().unwrap_or_default().into_iter();
            let folders = attempts.filter_map(|attempt| run.find_attempt(attempt).ok().flatten());
            folders.for_each(|files| scrub_attempt(&files, &self.redactor));
        }
    }

    pub(super) fn settings_cache(&self) -> MutexGuard<'_, RunSettingsCache> {
        self.abouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn artifact_sizes(&self) -> MutexGuard<'_, BTreeMap<RunId, KeptSizes>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn synced_runs(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of a run, synced on first use in this process.
    pub(super) fn run_dir(&self, run: &RunId) -> Result<RunDir, FilePathError> {
        if self.synced_runs().contains(run) {
            return RunDir::create(&self.state, run);
        }
        let folder = RunDir::create_synced(&self.state, run)?;
        self.synced_runs().insert(run.clone());
        Ok(folder)
    }

    /// The degree of sandbox enforcement on this machine. `None` if there is none.
    pub(super) fn sandbox_enforcement(&self) -> Option<SandboxEnforcement> {
        self.launcher.as_ref()?.enforcement().as_ref().ok().copied()
    }

    /// Writes the context folder of a run. The files of an earlier run are removed first; a run that is active is not
    /// disturbed.
    pub(super) fn write_context_folder(
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

    pub(super) fn redaction_filter(&self) -> Option<OutputFilterFactory> {
        let redactor = self.redactor.new_stream();
        Some(Arc::new(move || Box::new(redactor.new_stream()) as Box<dyn OutputFilter>))
    }

    pub(super) fn line_callback(&self, job: &AttemptSpec) -> Option<ProgressCallback> {
        let (lines, run, attempt) = (self.lines.clone()?, job.run.clone(), job.attempt);
        Some(Box::new(move |line| lines(&run, attempt, line)))
    }

    /// Runs one attempt from start to end.
    pub(super) fn run_attempt(
        self: &Arc<ExecutorContext>,
        job: AttemptSpec,
        key: WorkKey,
        finish: AttemptReporter,
    ) {
        if let Some(function) = job.tool().and_then(|tool| tool.function).filter(|one| !one.reaches_out()) {
            return builtin::run_function(self, &job, function, &key, finish);
        }
        if let Some(path) = job.about.replay.clone() {
            let report = replay::replay_attempt(self, &job, &path, &key);
            return self.finish_attempt(&key, report, finish);
        }
        match attempt::prepare_attempt(self, job) {
            PrepareOutcome::Ready(ready) => {
                let (task, laid) = *ready;
                self.run_prepared(task, laid, key, finish);
            }
            PrepareOutcome::Over(report) => self.finish_attempt(&key, report, finish),
        }
    }

    /// Runs the program, unless it was stopped meanwhile.
    pub(super) fn run_prepared(
        &self,
        task: ProcessSpec,
        mut laid: PreparedAttempt,
        key: WorkKey,
        finish: AttemptReporter,
    ) {
        if self.is_stopped(&key) {
            return self.finish_without_cost(&key, AttemptEnd::Stopped, finish);
        }
        let ended = match laid.spec().remote_call(self) {
            Some(asking) => asking.run(task, &key),
            None => process::run_process(task, |handle| self.attach_process(&key, handle)),
        };
        let report = laid.collect(self, &key, &ended);
        self.finish_attempt(&key, report, finish);
    }

    /// Attaches the process through which the work is stopped from now on. Stops it at once if that was requested
    /// before.
    pub(super) fn attach_process(&self, key: &WorkKey, handle: ProcessHandle) {
        if let Some(live) = self.active_work().get_mut(key) {
            live.attach_process(handle);
        }
    }

    pub(super) fn is_stopped(&self, key: &WorkKey) -> bool {
        matches!(self.active_work().get(key), Some(ActiveWork::Ahead { stopped: true }))
    }

    /// Removes work that has ended.
    pub(super) fn remove_work(&self, key: &WorkKey) {
        self.active_work().remove(key);
        self.left.notify_all();
    }

    /// Finishes an attempt that ended before it could cost anything.
    pub(super) fn finish_without_cost(&self, key: &WorkKey, end: AttemptEnd, finish: AttemptReporter) {
        self.finish_attempt(key, AttemptReport::new(end, Cost::default()), finish);
    }

    pub(super) fn finish_attempt(&self, key: &WorkKey, report: AttemptReport, finish: AttemptReporter) {
        self.remove_work(key);
        finish.report(self.redact_report(report));
    }

    /// Requests the end of active work.
    pub(super) fn stop_work(&self, key: &WorkKey) {
        if let Some(live) = self.active_work().get_mut(key) {
            live.stop();
        }
        self.left.notify_all();
    }

    /// Waits until work without a program is stopped. Returns true if it was.
    pub(super) fn wait_for_stop(&self, key: &WorkKey, within: Duration) -> bool {
        let goes_on = |live: &mut BTreeMap<WorkKey, ActiveWork>| {
            matches!(live.get(key), Some(ActiveWork::Ahead { stopped: false }))
        };
        let waited = self.left.wait_timeout_while(self.active_work(), within, goes_on);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub(super) fn lock_recording(&self) -> MutexGuard<'_, ()> {
        self.taping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes secrets from a report before it is used or stored.
    pub(super) fn redact_report(&self, report: AttemptReport) -> AttemptReport {
        let AttemptReport { end, cost, mut proofs, by } = report;
        for proof in &mut proofs {
            proof.what = self.redactor.redact_str(&proof.what);
            proof.found = self.redactor.redact_str(&proof.found);
        }
        let by = by.map(|by| self.redactor.redact_str(&by));
        AttemptReport { end: self.redact_end(end), cost, proofs, by }
    }

    pub(super) fn redact_end(&self, end: AttemptEnd) -> AttemptEnd {
        let texts = |texts: Vec<String>| texts.iter().map(|text| self.redactor.redact_str(text)).collect();
        match end {
            AttemptEnd::Succeeded { output } => {
                AttemptEnd::Succeeded { output: self.redactor.redact_shared(output) }
            }
            AttemptEnd::Checked { finding, reasons, fingerprints, output } => AttemptEnd::Checked {
                finding,
                reasons: texts(reasons),
                fingerprints: texts(fingerprints),
                output: output.map(|CheckOutput { status, text }| CheckOutput {
                    status,
                    text: self.redactor.redact_str(&text),
                }),
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

    pub(super) fn for_each_work(&self, run: &RunId, what: impl Fn(&mut ActiveWork)) {
        for ((of, _), live) in self.active_work().iter_mut() {
            if of == run {
                what(live);
            }
        }
    }
}
