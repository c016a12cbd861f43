//! How a command ends, as a number that scripts may rely on.

use std::process::ExitCode;

/// The exit status. The numbers are part of the command line's contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Done = 0,
    /// Our bug, or what `doctor` or `demo` looks at is not as it should be.
    Broken = 1,
    /// A bad flag, a missing or mistyped parameter.
    Usage = 2,
    /// A source is invalid.
    Invalid = 3,
    /// The run failed, timed out, was cancelled by someone else, or was undone.
    Failed = 4,
    /// Not allowed, or a name that does not resolve.
    Refused = 5,
    /// The run waits, and was not to be waited for.
    Waiting = 6,
    /// The store failed.
    Store = 8,
    /// Stopped at the terminal.
    Stopped = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
