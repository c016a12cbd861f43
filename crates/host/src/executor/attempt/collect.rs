//! Collects the results of a program that has ended: its output, its artifacts and the end of the attempt.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, AttemptReport, AttemptRole, Cost, EvidenceResult},
    ir::ErrorClass,
    limits,
};

use super::{PreparedAttempt, failed_attempt, file_failure, non_retryable};
use crate::{
    agent::AgentAnswer,
    executor::{
        ExecutorContext, WorkKey, agent_launch::AgentLaunch, artifacts::keep_artifacts_excluding,
        attempt_recording, attempt_spec::AttemptSpec, check_verdict, fallback, git::GitRunner, sandbox_setup,
        scrub::scrub_attempt, tool, worker_command::ResultProtocol, worker_output, worktree::AttemptContext,
    },
    process::{ProcessOutcome, ProcessReport},
    workspace::{AttemptDir, WorkerObservation, root::FilePathError},
};

/// The maximum number of bytes of an agent's output that are searched for a decision.
const SAID: u64 = 256 * 1024;

/// The number of changed files that are listed in the context folder.
const FILES_OBSERVED: usize = 1_000;

impl PreparedAttempt {
    pub fn spec(&self) -> &AttemptSpec {
        &self.job
    }

    /// Determines the end and the cost of the attempt, after its program has ended.
    pub fn collect(
        &mut self,
        shared: &ExecutorContext,
        key: &WorkKey,
        ended: &ProcessReport,
    ) -> AttemptReport {
        let (end, proofs) = match sandbox_setup::remove_empty_files(&self.made, &self.folder) {
            Ok(()) => self.determine_end(shared, key, ended),
            Err(error) => (file_failure(error), Vec::new()),
        };
        let end = match &self.protected {
            Some((protected, stay)) => protected.judge(end, &self.job, stay.was_alone()),
            None => end,
        };
        // Files that cannot be removed now are removed with the run.
        let _ = (self.files.remove_scratch(), self.run.remove_secrets(self.job.attempt));
        let end =
            fallback::apply_fallback(&self.job, self.files.root(), &shared.redactor, &shared.state, end);
        let cost = self.hired.as_ref().map_or_else(Cost::default, AgentLaunch::cost);
        let report = AttemptReport { end, cost, proofs, by: self.job.relay.substitute_name() };
        let visit = AttemptContext { shared, job: &self.job, run: &self.run, mark: &self.mark };
        let report = self.tree.finish_attempt(visit, &self.files, report);
        let (run, files, folder, mark) = (&self.run, &self.files, Some(&self.base), &self.mark);
        attempt_recording::record_end(
            shared,
            &self.job,
            &attempt_recording::RecordingContext { run, files, folder, mark },
            &report,
        );
        self.write_observation(ended);
        // All files that the attempt left have been read by now.
        scrub_attempt(&self.files, &shared.redactor);
        report
    }

    /// Saves an observation for the context folder: the changed files and the last message.
    fn write_observation(&self, ended: &ProcessReport) {
        if self.job.attempt.role != AttemptRole::Main || self.job.context.is_none() {
            return;
        }
        // An agent prints events; only its last message is meant for people.
        let printed = if self.hired.is_some() { "" } else { ended.tail.as_str() };
        let said = self.last_words.get().map_or(printed, String::as_str).trim();
        let summary =
            (!said.is_empty()).then(|| WorkerObservation::shorten_summary(&self.redactor.redact_str(said)));
        let files_changed = self.tree.changed.iter().take(FILES_OBSERVED).cloned().collect();
        // The attempt is valid without an observation.
        let _ = self.files.save_observation(&WorkerObservation { command: None, files_changed, summary });
    }

    fn attempt_context<'a>(&'a self, shared: &'a ExecutorContext) -> AttemptContext<'a> {
        AttemptContext { shared, job: &self.job, run: &self.run, mark: &self.mark }
    }

    fn determine_end(
        &self,
        shared: &ExecutorContext,
        key: &WorkKey,
        ended: &ProcessReport,
    ) -> (AttemptEnd, Vec<EvidenceResult>) {
        let end = match self.job.attempt.role {
            AttemptRole::Check => self.collect_check(shared, ended),
            AttemptRole::Main => return self.collect_work(shared, key, ended),
            AttemptRole::Summary => self.collect_summary(ended),
            AttemptRole::Undo => self.collect_result(ended),
        };
        (end, Vec::new())
    }

    /// Returns the answer of a worker that succeeded. An agent reports success itself; for others only the exit status
    /// counts.
    fn require_success(&self, ended: &ProcessReport) -> Result<Option<AgentAnswer>, AttemptEnd> {
        let done = match &self.hired {
            Some(hired) => hired.judge(ended, &self.job).map(Some),
            None if ended.how == ProcessOutcome::Exited(0) => Ok(None),
            None => Err(None),
        };
        done.map_err(|end| end.unwrap_or_else(|| self.explain_failure(ended)))
    }

    fn explain_failure(&self, ended: &ProcessReport) -> AttemptEnd {
        match self.files.worker_output() {
            Ok(back) => worker_output::classify_failure(
                ended,
                &back,
                self.job.worker.default_error_class(),
                self.sandboxed,
                &self.redactor,
            ),
            Err(error) => file_failure(error),
        }
    }

    /// Collects the work itself: its result, the evidence for it, and its declared artifacts.
    fn collect_work(
        &self,
        shared: &ExecutorContext,
        key: &WorkKey,
        ended: &ProcessReport,
    ) -> (AttemptEnd, Vec<EvidenceResult>) {
        let end = self.collect_result(ended);
        if !matches!(end, AttemptEnd::Succeeded { .. }) {
            return (end, Vec::new());
        }
        let proofs = match &self.proving {
            Some(proving) => proving.prove_all(shared, &self.job, key),
            None => Some(Vec::new()),
        };
        let Some(proofs) = proofs else { return (AttemptEnd::Stopped, Vec::new()) };
        // Artifacts are kept only if all evidence holds.
        let keeps = !self.job.gives.is_empty() && proofs.iter().all(|proof| proof.holds);
        let kept = || keep_artifacts_excluding(shared, &self.run, &self.job, &self.own_files, &self.without);
        match if keeps { kept() } else { Ok(()) } {
            Ok(()) => (end, proofs),
            Err(end) => (end, proofs),
        }
    }

    /// The result of the worker, if it succeeded.
    fn collect_result(&self, ended: &ProcessReport) -> AttemptEnd {
        if let (Some(tool), ProcessOutcome::Exited(status)) = (self.job.tool(), &ended.how) {
            return match self.read_stdout(limits::VALUE_BYTES as u64) {
                Ok(printed) => tool::judge_exit(tool, *status, &printed, || self.explain_failure(ended)),
                Err(error) => file_failure(error),
            };
        }
        match self.require_success(ended) {
            Ok(done) => {
                if let Some(done) = &done {
                    let _ = self.last_words.set(done.text.clone());
                }
                self.collect_output(done.and_then(|done| done.value))
            }
            Err(end) => end,
        }
    }

    /// The output file's value, or else the answer.
    fn collect_output(&self, answered: Option<Value>) -> AttemptEnd {
        let back = self.files.worker_output().map_err(|error| error.to_string());
        let written = back.and_then(|back| worker_output::read_output(&back, &self.redactor));
        match written {
            Ok(Value::Null) => AttemptEnd::Succeeded { output: Arc::new(answered.unwrap_or_default()) },
            Ok(output) => AttemptEnd::Succeeded { output: Arc::new(output) },
            Err(message) => failed_attempt(ErrorClass::Validation, message),
        }
    }

    /// The summary: the output file's value, or else the last message.
    fn collect_summary(&self, ended: &ProcessReport) -> AttemptEnd {
        match self.require_success(ended) {
            Ok(done) => self.collect_output(Some(Value::from(self.last_message(done).trim()))),
            Err(end) => end,
        }
    }

    fn collect_check(&self, shared: &ExecutorContext, ended: &ProcessReport) -> AttemptEnd {
        let check = self.check.as_deref().unwrap_or_default();
        let file = self.read_decision();
        let verdict = match (&ended.how, self.speaks) {
            (ProcessOutcome::Exited(status), ResultProtocol::File) => {
                check_verdict::read_script_verdict(*status, file.as_deref(), &ended.recent, check)
                    .ok_or_else(|| self.explain_failure(ended))
            }
            _ => self.require_success(ended).map(|done| {
                check_verdict::read_agent_verdict(file.as_deref(), &self.last_message(done), check)
            }),
        };
        verdict.map_or_else(|end| end, |verdict| self.apply_guard(shared, verdict.into_end()))
    }

    /// Applies the convergence guard to a finding, using the list of changed files. Fails if git cannot list them.
    fn apply_guard(&self, shared: &ExecutorContext, end: AttemptEnd) -> AttemptEnd {
        let (Some(guard), Some(workspace)) = (&self.job.guard, &self.workspace) else { return end };
        let own = self.tree.changed_files(self.attempt_context(shared), workspace, &guard.convergence);
        let asked = || {
            let git = GitRunner::new(workspace.path(), self.files.root(), &self.mark);
            git.changed_files(workspace, &guard.convergence)
        };
        match own.unwrap_or_else(asked) {
            Ok(changed) => guard.judge(end, &changed, self.state.strip_prefix(workspace.path()).ok()),
            Err(why) => non_retryable(format!("cannot determine which files were changed: {why}")),
        }
    }

    fn read_decision(&self) -> Option<String> {
        let name = self.job.decision_file.as_ref()?;
        String::from_utf8(self.own_files.read_file(name, limits::DECISION_BYTES).ok()?).ok()
    }

    /// Reads the whole stdout, if it is at most `most` bytes long.
    fn read_stdout(&self, most: u64) -> Result<Vec<u8>, FilePathError> {
        match self.files.root().read_file(AttemptDir::STDOUT, most) {
            Err(error) if error.is_missing() => Ok(Vec::new()),
            other => other,
        }
    }

    /// The agent's last message, or else the end of stdout. Empty if stdout cannot be read.
    fn last_message(&self, done: Option<AgentAnswer>) -> String {
        if let Some(done) = done {
            return done.text;
        }
        String::from_utf8_lossy(&self.files.read_tail(true, SAID).unwrap_or_default()).into_owned()
    }
}
