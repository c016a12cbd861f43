//! Errors of operations. An operation returns them; a front end prints them, and chooses the exit status or the HTTP
//! status by their kind.

use skein_dialects::Diagnostic;
use skein_host::store::StoreError;

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

/// The reason why a driver, a server, a channel or an agent cannot be used, as a part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnusableReason(String);

impl From<String> for UnusableReason {
    fn from(reason: String) -> UnusableReason {
        UnusableReason(reason)
    }
}

impl From<&str> for UnusableReason {
    fn from(reason: &str) -> UnusableReason {
        UnusableReason(reason.to_owned())
    }
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
    pub fn new(kind: AppErrorKind, message: impl Into<String>) -> AppError {
        AppError { kind, message: message.into(), hint: None, diagnostics: Vec::new() }
    }

    pub fn refused(message: impl Into<String>) -> AppError {
        AppError::new(AppErrorKind::Refused, message)
    }

    pub fn usage(message: impl Into<String>) -> AppError {
        AppError::new(AppErrorKind::Usage, message)
    }

    pub fn store(message: impl Into<String>) -> AppError {
        AppError::new(AppErrorKind::Store, message)
    }

    pub fn bug(message: impl Into<String>) -> AppError {
        AppError::new(AppErrorKind::Bug, message)
    }

    /// A source that cannot be used.
    pub(crate) fn invalid_source(diagnostics: Vec<Diagnostic>) -> AppError {
        AppError { diagnostics, ..AppError::new(AppErrorKind::InvalidSource, "") }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> AppError {
        AppError { hint: Some(hint.into()), ..self }
    }

    #[must_use]
    pub fn with_optional_hint(self, hint: Option<String>) -> AppError {
        AppError { hint, ..self }
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> AppError {
        match error {
            StoreError::Unknown(_) => AppError::refused(error.to_string()),
            _ => AppError::store(error.to_string()),
        }
    }
}

impl From<Box<Diagnostic>> for AppError {
    fn from(diagnostic: Box<Diagnostic>) -> AppError {
        AppError::invalid_source(vec![*diagnostic])
    }
}
