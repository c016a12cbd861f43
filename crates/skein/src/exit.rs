//! The exit status of a command: a number that scripts may rely on.

use std::process::ExitCode;

use skein_app::{
    app_error::AppErrorKind,
    runs::{follow::ExecutionEnd, start::RunOutcome},
};

/// The exit status. The numbers are part of the command line's contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Done = 0,
    /// A bug of Skein, or `doctor` or `demo` found a problem.
    Broken = 1,
    /// A bad flag, a missing or mistyped parameter.
    Usage = 2,
    /// A source is invalid.
    Invalid = 3,
    /// The run failed, timed out, was cancelled by someone else, or was undone.
    Failed = 4,
    /// Not allowed, or a name that does not resolve.
    Refused = 5,
    /// The run waits for input, and the command was told not to wait.
    Waiting = 6,
    /// The store failed.
    Store = 8,
    /// Stopped by a signal from the terminal.
    Stopped = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl From<AppErrorKind> for Exit {
    fn from(kind: AppErrorKind) -> Exit {
        match kind {
            AppErrorKind::Bug => Exit::Broken,
            AppErrorKind::Usage => Exit::Usage,
            AppErrorKind::InvalidSource => Exit::Invalid,
            AppErrorKind::RunFailed => Exit::Failed,
            AppErrorKind::Refused => Exit::Refused,
            AppErrorKind::Store => Exit::Store,
            AppErrorKind::Stopped => Exit::Stopped,
        }
    }
}

impl From<ExecutionEnd> for Exit {
    fn from(end: ExecutionEnd) -> Exit {
        match end {
            ExecutionEnd::Succeeded => Exit::Done,
            ExecutionEnd::Failed => Exit::Failed,
            ExecutionEnd::Stopped => Exit::Stopped,
            ExecutionEnd::Waiting => Exit::Waiting,
        }
    }
}

impl From<&RunOutcome> for Exit {
    fn from(outcome: &RunOutcome) -> Exit {
        match outcome {
            RunOutcome::Ended { end, .. } => Exit::from(*end),
            RunOutcome::Queued(_) => Exit::Waiting,
            RunOutcome::Detached(_) => Exit::Done,
        }
    }
}

impl Exit {
    /// Returns the most severe exit status of several runs.
    pub fn worst(all: &[Exit]) -> Exit {
        let order = [Exit::Store, Exit::Stopped, Exit::Failed, Exit::Refused, Exit::Waiting];
        order.into_iter().find(|exit| all.contains(exit)).unwrap_or(Exit::Done)
    }
}
