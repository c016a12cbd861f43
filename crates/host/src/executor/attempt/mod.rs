//! One attempt from its start to its end: what it needs is laid out, the program runs, what it left is taken up.

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

/// Everything of an attempt that is needed when its program has ended.
pub(super) struct PreparedAttempt {
    job: Arc<AttemptSpec>,
    run: RunDir,
    files: AttemptDir,
    /// The workspace that it is for, and where it works: there, or in a tree of its own.
    base: RootFolder,
    folder: RootFolder,
    /// Where the files are that it was to write.
    own_files: RootFolder,
    /// The folders that are no part of what it gives.
    without: Vec<FileIdentity>,
    speaks: ResultProtocol,
    /// The coding agent that does it.
    hired: Option<AgentLaunch>,
    check: Option<String>,
    /// The run's workspace, where changed files are looked for.
    workspace: Option<RootFolder>,
    /// What was made in its folder so that it may write it.
    made: Vec<String>,
    /// What it must prove.
    proving: Option<EvidenceCheck>,
    /// What it must leave as it is, and who else works there.
    protected: Option<(WorkspaceProtection, OccupancyGuard)>,
    sandboxed: bool,
    /// The state folder.
    state: PathBuf,
    mark: ProcessMark,
    /// Takes secrets out of what it says.
    redactor: Redactor,
    tree: AttemptWorkspace,
    /// The last words of an agent that ended well.
    last_words: OnceLock<String>,
}

/// An attempt that was laid out.
pub(super) enum PrepareOutcome {
    Ready(Box<(ProcessSpec, PreparedAttempt)>),
    /// It cannot begin, or the work was done before and only its end was not told.
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

/// Trying again would come to the same.
pub(super) fn non_retryable(error: impl ToString) -> AttemptEnd {
    failed_attempt(ErrorClass::NonRetryable, error.to_string())
}

/// Our own files are not as they should be.
pub(super) fn file_failure(error: FilePathError) -> AttemptEnd {
    failed_attempt(ErrorClass::Transient, error.to_string())
}

fn blocked_by_secret(message: String) -> AttemptEnd {
    AttemptEnd::Blocked { reason: HoldReason::Secret, until: None, message }
}
