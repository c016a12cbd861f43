//! Collects the results of a program that has ended: its output, its artifacts and the end of the attempt.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{AttemptEnd, AttemptReport, AttemptRole, Cost, EvidenceResult},
    ir::ErrorClass,
    limits,
};

use super::{
    PreparedAttempt,
    command::ResultProtocol,
    failed_attempt,
    handoff::keep_artifacts_excluding,
    non_retryable, recording, sandbox_setup,
    spec::AttemptSpec,
    worker_output::{self, scrub_attempt},
};
use crate::{
    executor::{
        agents::{AgentAnswer, agent_launch::AgentLaunch, fallback},
        attempt::{StageError, recording::RecordingContext, worker_output::OutputError},
        evidence::check,
        executor_context::{ExecutorContext, WorkKey},
        tools,
        worktree::{AttemptContext, git::GitRunner},
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

    /// The stages after the process, in their order. Each one may change the end that it is given:
    ///
    /// - The end of the process becomes the end of the attempt: its output, its evidence, its artifacts.
    /// - Protected files are compared and restored before anything else reads the workspace.
    /// - Temporary files and secrets are removed before the workspace is compared with its snapshot.
    /// - Another agent may take over a failure, so its record is written before the end is recorded or reported.
    /// - The workspace is finished with the end as it is then: only complete work is merged.
    /// - The recording has the final report, and the workspace as it is after the merge.
    /// - Secrets are removed from the attempt's files last: the stages before read them.
    pub fn collect(&mut self, shared: &ExecutorContext, key: &WorkKey, ended: &ProcessReport) -> AttemptReport {
        let (end, proofs) = self.determine_end(shared, key, ended);
        let end = self.check_protected_files(end);
        self.remove_temporary_files();
        let end = self.hand_over(shared, end);
        let report = self.build_report(end, proofs);
        let report = self.finish_workspace(shared, report);
        self.record_end(shared, &report);
        self.write_observation(ended);
        scrub_attempt(&self.files, &shared.redactor);
        report
    }

    fn check_protected_files(&self, end: AttemptEnd) -> AttemptEnd {
        match &self.protected {
            Some((protected, occupancy)) => protected.judge(end, &self.job, occupancy.was_alone()),
            None => end,
        }
    }

    fn remove_temporary_files(&self) {
        // Files that cannot be removed now are removed with the run.
        let _ = (self.files.remove_scratch(), self.run.remove_secrets(self.job.attempt));
    }

    fn hand_over(&self, shared: &ExecutorContext, end: AttemptEnd) -> AttemptEnd {
        fallback::apply_fallback(&self.job, self.files.root(), &shared.redactor, &shared.state, end)
    }

    fn build_report(&self, end: AttemptEnd, proofs: Vec<EvidenceResult>) -> AttemptReport {
        let cost = self.agent.as_ref().map_or_else(Cost::default, AgentLaunch::cost);
        AttemptReport { end, cost, proofs, by: self.job.relay.substitute_name() }
    }

    /// Records the changes in the workspace, and merges those of a step worktree.
    fn finish_workspace(&mut self, shared: &ExecutorContext, report: AttemptReport) -> AttemptReport {
        let visit = AttemptContext { shared, job: &self.job, run: &self.run, mark: &self.mark };
        self.tree.finish_attempt(visit, &self.files, report)
    }

    fn record_end(&self, shared: &ExecutorContext, report: &AttemptReport) {
        let (run, files, folder, mark) = (&self.run, &self.files, Some(&self.base), &self.mark);
        recording::record_end(shared, &self.job, &RecordingContext { run, files, folder, mark }, report);
    }

    /// Saves an observation for the context folder: the changed files and the last message.
    fn write_observation(&self, ended: &ProcessReport) {
        if self.job.attempt.role != AttemptRole::Main || self.job.context.is_none() {
            return;
        }
        // An agent prints events; only its last message is meant for people.
        let printed = if self.agent.is_some() { "" } else { ended.tail.as_str() };
        let said = self.last_message.get().map_or(printed, String::as_str).trim();
        let summary = (!said.is_empty()).then(|| WorkerObservation::shorten_summary(&self.redactor.redact_str(said)));
        let files_changed = self.tree.changed.iter().take(FILES_OBSERVED).cloned().collect();
        // The attempt is valid without an observation.
        let _ = self.files.save_observation(&WorkerObservation { command: None, files_changed, summary });
    }

    fn determine_end(
        &self,
        shared: &ExecutorContext,
        key: &WorkKey,
        ended: &ProcessReport,
    ) -> (AttemptEnd, Vec<EvidenceResult>) {
        let mut proofs = Vec::new();
        let end = self.collect_end(shared, key, ended, &mut proofs);
        (end.unwrap_or_else(AttemptEnd::from), proofs)
    }

    fn collect_end(
        &self,
        shared: &ExecutorContext,
        key: &WorkKey,
        ended: &ProcessReport,
        proofs: &mut Vec<EvidenceResult>,
    ) -> Result<AttemptEnd, StageError> {
        sandbox_setup::remove_empty_files(&self.made, &self.folder)?;
        match self.job.attempt.role {
            AttemptRole::Check => self.collect_check(shared, ended),
            AttemptRole::Main => self.collect_work(shared, key, ended, proofs),
            AttemptRole::Summary => self.collect_summary(ended),
            AttemptRole::Undo => self.collect_result(ended),
        }
    }

    /// Returns the answer of a worker that succeeded. An agent reports success itself; for others only the exit status
    /// counts.
    fn require_success(&self, ended: &ProcessReport) -> Result<Option<AgentAnswer>, StageError> {
        let done = match &self.agent {
            Some(agent) => agent.judge(ended, &self.job).map(Some),
            None if ended.how == ProcessOutcome::Exited(0) => Ok(None),
            None => Err(None),
        };
        done.map_err(|end| end.unwrap_or_else(|| self.explain_failure(ended)).into())
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
            Err(error) => StageError::from(error).into(),
        }
    }

    /// Collects the work itself: its result, the evidence for it, and its declared artifacts.
    fn collect_work(
        &self,
        shared: &ExecutorContext,
        key: &WorkKey,
        ended: &ProcessReport,
        proofs: &mut Vec<EvidenceResult>,
    ) -> Result<AttemptEnd, StageError> {
        let end = self.collect_result(ended)?;
        if !matches!(end, AttemptEnd::Succeeded { .. }) {
            return Ok(end);
        }
        if let Some(proving) = &self.proving {
            match proving.prove_all(shared, &self.job, key) {
                Some(proven) => *proofs = proven,
                None => return Ok(AttemptEnd::Stopped),
            }
        }
        // Artifacts are kept only if all evidence holds.
        if !self.job.gives.is_empty() && proofs.iter().all(|proof| proof.holds) {
            keep_artifacts_excluding(shared, &self.run, &self.job, &self.own_files, &self.without)?;
        }
        Ok(end)
    }

    /// The result of the worker, if it succeeded.
    fn collect_result(&self, ended: &ProcessReport) -> Result<AttemptEnd, StageError> {
        if let (Some(tool), ProcessOutcome::Exited(status)) = (self.job.tool(), &ended.how) {
            let printed = self.read_stdout(limits::VALUE_BYTES as u64)?;
            return Ok(tools::judge_exit(tool, *status, &printed, || self.explain_failure(ended)));
        }
        let done = self.require_success(ended)?;
        if let Some(done) = &done {
            let _ = self.last_message.set(done.text.clone());
        }
        self.collect_output(done.and_then(|done| done.value))
    }

    /// The output file's value, or else the answer.
    fn collect_output(&self, answered: Option<Value>) -> Result<AttemptEnd, StageError> {
        let written = self.files.worker_output().map_err(OutputError::from);
        let written = written.and_then(|back| worker_output::read_output(&back, &self.redactor));
        let output = match written.map_err(|error| failed_attempt(ErrorClass::Validation, error.to_string()))? {
            Value::Null => answered.unwrap_or_default(),
            output => output,
        };
        Ok(AttemptEnd::Succeeded { output: Arc::new(output) })
    }

    /// The summary: the output file's value, or else the last message.
    fn collect_summary(&self, ended: &ProcessReport) -> Result<AttemptEnd, StageError> {
        let done = self.require_success(ended)?;
        self.collect_output(Some(Value::from(self.final_text(done).trim())))
    }

    fn collect_check(&self, shared: &ExecutorContext, ended: &ProcessReport) -> Result<AttemptEnd, StageError> {
        let check = self.check.as_deref().unwrap_or_default();
        let file = self.read_decision();
        let verdict = match (&ended.how, self.speaks) {
            (ProcessOutcome::Exited(status), ResultProtocol::File) => {
                check::read_script_verdict(*status, file.as_deref(), &ended.recent, check)
                    .ok_or_else(|| self.explain_failure(ended))?
            }
            _ => {
                let answer = self.final_text(self.require_success(ended)?);
                check::read_agent_verdict(file.as_deref(), &answer, check)
            }
        };
        self.apply_guard(shared, verdict.into_end())
    }

    /// Applies the convergence guard to a finding, using the list of changed files. Fails if git cannot list them.
    fn apply_guard(&self, shared: &ExecutorContext, end: AttemptEnd) -> Result<AttemptEnd, StageError> {
        let (Some(guard), Some(workspace)) = (&self.job.guard, &self.guarded) else { return Ok(end) };
        let visit = AttemptContext { shared, job: &self.job, run: &self.run, mark: &self.mark };
        let changed = match self.tree.changed_files(visit, workspace, &guard.convergence) {
            Some(changed) => changed,
            None => GitRunner::new(workspace.path(), self.files.root(), &self.mark)
                .changed_files(workspace, &guard.convergence),
        };
        let changed =
            changed.map_err(|why| non_retryable(format!("cannot determine which files were changed: {why}")))?;
        Ok(guard.judge(end, &changed, self.state.strip_prefix(workspace.path()).ok()))
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
    fn final_text(&self, done: Option<AgentAnswer>) -> String {
        if let Some(done) = done {
            return done.text;
        }
        String::from_utf8_lossy(&self.files.read_tail(true, SAID).unwrap_or_default()).into_owned()
    }
}
