//! One attempt from start to end: prepare its inputs and task, run the program, collect the results.

mod collect;
mod prepare;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use skein_core::{
    engine::{AttemptEnd, AttemptReport},
    ir::{ErrorClass, HoldReason},
};

use super::{
    agent_launch::AgentLaunch, attempt_spec::AttemptSpec, evidence::EvidenceCheck,
    folder_occupancy::OccupancyGuard, protect::WorkspaceProtection, worker_command::ResultProtocol,
    worker_output, worktree::AttemptWorkspace,
};
use crate::{
    process::{ProcessMark, ProcessSpec},
    redact::Redactor,
    workspace::{
        AttemptDir, RootFolder, RunDir,
        root::{FileIdentity, FilePathError},
    },
};

pub(super) use prepare::{prepare_attempt, update_context_folder};

/// The state of an attempt that is needed when its program has ended.
pub(super) struct PreparedAttempt {
    job: Arc<AttemptSpec>,
    run: RunDir,
    files: AttemptDir,
    /// The workspace of the step. `folder` is the directory where the attempt works: this workspace, or a step
    /// worktree.
    base: RootFolder,
    folder: RootFolder,
    /// The folder of the files that the attempt was asked to write.
    own_files: RootFolder,
    /// The folders that are never part of its artifacts.
    without: Vec<FileIdentity>,
    speaks: ResultProtocol,
    /// The coding agent, if one does the work.
    hired: Option<AgentLaunch>,
    check: Option<String>,
    /// The run's workspace, where changed files are searched.
    workspace: Option<RootFolder>,
    /// Empty files that were created in its folder so that the sandboxed worker can write them.
    made: Vec<String>,
    /// The evidence that it must provide.
    proving: Option<EvidenceCheck>,
    /// The files that it must not change, and a guard that tells who else works in the folder.
    protected: Option<(WorkspaceProtection, OccupancyGuard)>,
    sandboxed: bool,
    /// The state folder.
    state: PathBuf,
    mark: ProcessMark,
    /// Removes secrets from its output.
    redactor: Redactor,
    tree: AttemptWorkspace,
    /// The last message of an agent that succeeded.
    last_words: OnceLock<String>,
}

/// The result of preparing an attempt.
pub(super) enum PrepareOutcome {
    Ready(Box<(ProcessSpec, PreparedAttempt)>),
    /// It cannot begin, or an earlier attempt did the work and only the report of its end was lost.
    Over(AttemptReport),
}

pub(super) fn failed_attempt(class: ErrorClass, message: String) -> AttemptEnd {
    AttemptEnd::Failed {
        class,
        code: None,
        message: worker_output::truncate_message(message),
        retry_at: None,
    }
}

/// A failure that a retry would repeat.
pub(super) fn non_retryable(error: impl ToString) -> AttemptEnd {
    failed_attempt(ErrorClass::NonRetryable, error.to_string())
}

/// A failure of Skein's own files.
pub(super) fn file_failure(error: FilePathError) -> AttemptEnd {
    failed_attempt(ErrorClass::Transient, error.to_string())
}

fn blocked_by_secret(message: String) -> AttemptEnd {
    AttemptEnd::Blocked { reason: HoldReason::Secret, until: None, message }
}
