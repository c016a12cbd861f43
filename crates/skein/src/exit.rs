//! The exit status of a command: a number that scripts may rely on.

use skein_app::app_error::AppErrorKind;

use std::process::ExitCode;

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
