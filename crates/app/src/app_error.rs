//! Errors of operations. An operation returns them; the command line prints them and chooses the exit status in one
//! place ([`crate::output::CliOutput::report_error`]).

use skein_dialects::Diagnostic;

/// The reason why an operation did not do what was asked.
#[derive(Debug, Clone)]
pub struct AppError {
    pub kind: AppErrorKind,
    /// One line for a person. Empty if the diagnostics say everything.
    pub message: String,
    pub hint: Option<String>,
    /// The diagnostics of an invalid source.
    pub diagnostics: Vec<Diagnostic>,
}

/// The kinds of errors. Each has its exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppErrorKind {
    /// A bug in Skein, or a machine that lacks something.
    Bug,
    /// A bad flag, a missing or mistyped parameter.
    Usage,
    /// A source is invalid.
    InvalidSource,
    /// The run failed.
    RunFailed,
    /// Not allowed, or a name that does not resolve.
    Refused,
    /// The store failed.
    Store,
    /// Stopped at the terminal.
    Stopped,
}

impl AppError {
    pub fn new(kind: AppErrorKind, message: &str, hint: Option<&str>) -> AppError {
        let (message, hint) = (message.to_owned(), hint.map(str::to_owned));
        AppError { kind, message, hint, diagnostics: Vec::new() }
    }

    /// A source that cannot be used.
    pub fn invalid_source(diagnostics: Vec<Diagnostic>) -> AppError {
        AppError { diagnostics, ..AppError::new(AppErrorKind::InvalidSource, "", None) }
    }
}
