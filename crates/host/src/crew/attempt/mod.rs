//! One attempt from its start to its end: what it needs is laid out, the program runs, what it left is taken up.

mod lay;
mod take_up;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use skein_core::{
    engine::{AttemptEnd, Report},
    ir::{ErrorClass, HoldReason},
};

use super::{
    back, command::Speaks, company::Stay, evidence::Proving, hire::Hired, job::Job, protect::Protected,
    tree::Place,
};
use crate::{
    redact::Redactor,
    worker::{Mark, Task},
    workspace::{
        AttemptDir, Root, RunDir,
        root::{Identity, PathError},
    },
};

pub(super) use lay::{lay_out, tell_context};

/// Everything of an attempt that is needed when its program has ended.
pub(super) struct Laid {
    job: Arc<Job>,
    run: RunDir,
    files: AttemptDir,
    /// The workspace that it is for, and where it works: there, or in a tree of its own.
    base: Root,
    folder: Root,
    /// Where the files are that it was to write.
    own_files: Root,
    /// The folders that are no part of what it gives.
    without: Vec<Identity>,
    speaks: Speaks,
    /// The coding agent that does it.
    hired: Option<Hired>,
    check: Option<String>,
    /// The run's workspace, where changed files are looked for.
    workspace: Option<Root>,
    /// What was made in its folder so that it may write it.
    made: Vec<String>,
    /// What it must prove.
    proving: Option<Proving>,
    /// What it must leave as it is, and who else works there.
    protected: Option<(Protected, Stay)>,
    sandboxed: bool,
    /// The state folder.
    state: PathBuf,
    mark: Mark,
    /// Takes secrets out of what it says.
    redactor: Redactor,
    tree: Place,
    /// The last words of an agent that ended well.
    last_words: OnceLock<String>,
}

/// An attempt that was laid out.
pub(super) enum Begun {
    Ready(Box<(Task, Laid)>),
    /// It cannot begin, or the work was done before and only its end was not told.
    Over(Report),
}

pub(super) fn failed(class: ErrorClass, message: String) -> AttemptEnd {
    AttemptEnd::Failed { class, code: None, message: back::cut(message), retry_at: None }
}

/// Trying again would come to the same.
pub(super) fn never(error: impl ToString) -> AttemptEnd {
    failed(ErrorClass::NonRetryable, error.to_string())
}

/// Our own files are not as they should be.
pub(super) fn wrong(error: PathError) -> AttemptEnd {
    failed(ErrorClass::Transient, error.to_string())
}

fn blocked(message: String) -> AttemptEnd {
    AttemptEnd::Blocked { reason: HoldReason::Secret, until: None, message }
}
