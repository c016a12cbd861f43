//! One attempt from start to end: prepares its inputs and task, runs the program, collects the results.

pub(crate) mod collect;
pub(crate) mod command;
pub(crate) mod handoff;
pub(crate) mod prepare;
pub(crate) mod recording;
pub(crate) mod sandbox_setup;
pub(crate) mod spec;

use std::sync::{Arc, OnceLock};

use skein_core::{
    engine::{AttemptEnd, AttemptId, AttemptReport},
    ir::{ErrorClass, HoldReason},
};

use self::{command::ResultProtocol, spec::AttemptSpec};
use crate::{
    executor::{
        ExecutorContext, WorkKey,
        agents::{agent_launch::AgentLaunch, prompt::AgentContext},
        evidence::{EvidenceCheck, protect::WorkspaceProtection},
        tools::{builtin, remote::RemoteCall},
        worktree::{AttemptWorkspace, OccupancyGuard},
    },
    executor_api::AttemptReporter,
    process::{self, MarkedWork, ProcessMark, ProcessSpec},
    workspace::{
        ArtifactError, AttemptDir, RootFolder, RunDir,
        root::{FileIdentity, FilePathError},
    },
};

/// One attempt with everything that its stages share: its executor, the folders of its run and of its own files, and
/// the mark of its processes.
pub(crate) struct AttemptContext {
    pub shared: Arc<ExecutorContext>,
    pub job: AttemptSpec,
    pub run: RunDir,
    pub files: AttemptDir,
    pub mark: ProcessMark,
}

impl AttemptContext {
    fn open(shared: &Arc<ExecutorContext>, job: AttemptSpec) -> Result<AttemptContext, FilePathError> {
        let run = shared.run_dir(&job.run)?;
        let files = run.create_attempt(job.attempt)?;
        let mark = shared.process_mark(&job.run, MarkedWork::Attempt(job.attempt));
        Ok(AttemptContext { shared: Arc::clone(shared), job, run, files, mark })
    }

    /// The folders of the earlier attempts at the same work, the latest first.
    pub(crate) fn earlier_attempts(&self) -> impl Iterator<Item = AttemptDir> {
        let id = self.job.attempt;
        let earlier = (1..id.attempt).rev().map(move |attempt| AttemptId { attempt, ..id });
        earlier.filter_map(|id| self.run.find_attempt(id).ok().flatten())
    }

    /// The remote or builtin call that does it, if no program does it alone.
    fn remote_call(&self) -> Option<RemoteCall<'_>> {
        let tool = self.job.tool().filter(|tool| tool.is_remote_or_builtin())?;
        Some(RemoteCall { attempt: self, tool })
    }
}

/// The folder in which the attempt works, after everything is in it that the attempt needs.
pub(crate) struct EnteredWorkspace {
    pub tree: AttemptWorkspace,
    /// The shared workspace, or a step worktree.
    pub folder: RootFolder,
    /// The folder of the files that the attempt is asked to write.
    pub own_files: RootFolder,
    /// The id that only the checker knows.
    pub check: Option<String>,
    /// The text for an agent beside its instructions and its task.
    pub briefing: AgentContext,
    /// Notes for the log about what was left out.
    notes: Vec<String>,
}

/// The state of the files before the process starts, with which they are compared after it.
struct FileBaselines {
    /// The folders that are never part of its artifacts.
    without: Vec<FileIdentity>,
    /// The evidence that it must provide.
    proving: Option<EvidenceCheck>,
    /// The files that it must not change, and a guard that tells who else works in the folder.
    protected: Option<(WorkspaceProtection, OccupancyGuard)>,
    /// The folder where the guard of a check looks for changed files.
    guarded: Option<RootFolder>,
}

/// The state of an attempt that is needed when its program has ended.
pub(crate) struct PreparedAttempt {
    attempt: Arc<AttemptContext>,
    /// The workspace of the step.
    base: RootFolder,
    workspace: EnteredWorkspace,
    baselines: FileBaselines,
    speaks: ResultProtocol,
    /// The coding agent, if one does the work.
    agent: Option<AgentLaunch>,
    /// Empty files that were created in its folder so that the sandboxed worker can write them.
    made: Vec<String>,
    sandboxed: bool,
    /// The last message of an agent that succeeded.
    last_message: OnceLock<String>,
}

/// The result of preparing an attempt.
pub(crate) enum PrepareOutcome {
    Ready(Box<(ProcessSpec, PreparedAttempt)>),
    /// It cannot begin, or an earlier attempt did the work and only the report of its end was lost.
    Over(AttemptReport),
}

pub(crate) fn failed_attempt(class: ErrorClass, message: String) -> StageError {
    StageError(AttemptEnd::Failed { class, code: None, message: collect::truncate_message(message), retry_at: None })
}

/// A failure that a retry would repeat.
pub(crate) fn non_retryable(error: impl ToString) -> StageError {
    failed_attempt(ErrorClass::NonRetryable, error.to_string())
}

/// The failure of a stage, with the end that it gives the attempt: failed, blocked or handed over.
#[derive(Debug, thiserror::Error)]
#[error("{}", end_message(.0))]
pub(crate) struct StageError(AttemptEnd);

impl StageError {
    /// The attempt waits until a secret is available.
    fn blocked_by_secret(error: impl ToString) -> StageError {
        let message = error.to_string();
        StageError(AttemptEnd::Blocked { reason: HoldReason::Secret, until: None, message })
    }
}

fn end_message(end: &AttemptEnd) -> String {
    match end {
        AttemptEnd::Failed { message, .. } => message.clone(),
        other => format!("{other:?}"),
    }
}

impl From<AttemptEnd> for StageError {
    fn from(end: AttemptEnd) -> StageError {
        StageError(end)
    }
}

impl From<StageError> for AttemptEnd {
    fn from(error: StageError) -> AttemptEnd {
        error.0
    }
}

/// Skein's own files may work at the next try.
impl From<FilePathError> for StageError {
    fn from(error: FilePathError) -> StageError {
        failed_attempt(ErrorClass::Transient, error.to_string())
    }
}

/// Only a full disk is worth a retry; other failures of artifacts do not resolve themselves.
impl From<ArtifactError> for StageError {
    fn from(error: ArtifactError) -> StageError {
        match error.is_no_space() {
            true => failed_attempt(ErrorClass::Transient, error.to_string()),
            false => non_retryable(error),
        }
    }
}

impl ExecutorContext {
    /// Runs one attempt from start to end.
    pub(crate) fn run_attempt(self: &Arc<ExecutorContext>, job: AttemptSpec, key: WorkKey, finish: AttemptReporter) {
        if let Some(function) = job.tool().and_then(|tool| tool.function).filter(|one| !one.reaches_out()) {
            return builtin::run_function(self, &job, function, &key, finish);
        }
        if let Some(path) = job.settings.replay.clone() {
            let report = recording::replay_attempt(self, job, &path, &key);
            return self.finish_attempt(&key, report, finish);
        }
        match prepare::prepare_attempt(self, job) {
            PrepareOutcome::Ready(ready) => {
                let (task, prepared) = *ready;
                self.run_prepared(task, prepared, key, finish);
            }
            PrepareOutcome::Over(report) => self.finish_attempt(&key, report, finish),
        }
    }

    /// Runs the program, unless it was stopped meanwhile.
    pub(crate) fn run_prepared(
        &self,
        task: ProcessSpec,
        mut prepared: PreparedAttempt,
        key: WorkKey,
        finish: AttemptReporter,
    ) {
        if self.is_stopped(&key) {
            return self.finish_without_cost(&key, AttemptEnd::Stopped, finish);
        }
        let ended = match prepared.attempt.remote_call() {
            Some(call) => call.run(task, &key),
            None => process::run_process(task, |handle| self.attach_process(&key, handle)),
        };
        let report = prepared.collect(&key, &ended);
        self.finish_attempt(&key, report, finish);
    }
}
