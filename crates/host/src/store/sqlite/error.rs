//! Reasons why a state directory cannot be opened, with advice for the user, and the failures of a write, in the few
//! kinds that are handled differently.

use std::{io, path::PathBuf};

use rusqlite::{Error, ErrorCode, ffi};

use crate::store::{AppendError, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error(
        "`{}` is on a file system of type {kind}, on which locks and syncs are not reliable, so a journal there can \
         be lost. Choose a directory on a local disk, with `--state DIR` or `SKEIN_STATE`", .dir.display()
    )]
    Network { dir: PathBuf, kind: &'static str },
    #[error(
        "`{}` is on a file system that is mounted read-only. Mount it for writing, or choose another directory with \
         `--state DIR` or `SKEIN_STATE`", .dir.display()
    )]
    ReadOnly { dir: PathBuf },
    #[error(
        "`{}` belongs to user {owner}, but this is user {me}. Run as that user, or choose another directory with \
         `--state DIR` or `SKEIN_STATE`", .path.display()
    )]
    Foreign { path: PathBuf, owner: u32, me: u32 },
    #[error(
        "other users can write to `{}` (its mode is {mode:04o}), so its content cannot be trusted. Check the content, \
         then run `chmod 700` on it", .dir.display()
    )]
    Open { dir: PathBuf, mode: u32 },
    #[error(
        "`{}` is not a regular file, but a link or something else. Put the database itself there, or remove it",
        .path.display()
    )]
    NotAFile { path: PathBuf },
    #[error("`{}` is not a directory. Remove it, or choose another with `--state DIR` or `SKEIN_STATE`", .dir.display())]
    NotADirectory { dir: PathBuf },
    #[error(
        "`{}` is a database, but not one of Skein's. Choose another directory with `--state DIR` or `SKEIN_STATE`",
        .path.display()
    )]
    NotOurs { path: PathBuf },
    #[error(
        "`{}` was written by a newer Skein (format {found}; this one reads up to {known}). Use that version; nothing \
         was changed", .path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "`{}` is in an older format (format {found}; this one writes {known}), and {others} of an older version use it. \
         Stop them and try again", .path.display()
    )]
    InUse { path: PathBuf, found: i64, known: i64, others: String },
    #[error(
        "the file system of `{}` cannot share memory between processes, which the journal needs. Choose a directory \
         on a local disk, with `--state DIR` or `SKEIN_STATE`", .path.display()
    )]
    NoWal { path: PathBuf },
    #[error("`{}`: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("`{}` cannot be opened: {error}", .path.display())]
    Database { path: PathBuf, error: rusqlite::Error },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteFault {
    /// The disk is full. Nothing was written.
    NoSpace,
    /// The row already exists. Other writes can succeed.
    Taken(String),
    /// This write cannot be done; others can.
    Row(String),
    /// Another program keeps the database locked. Nothing was written.
    Busy,
    /// The journal can no longer be written. Acknowledged rows are safe.
    Broken(String),
}

impl From<Error> for WriteFault {
    fn from(error: Error) -> WriteFault {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => WriteFault::NoSpace,
            // The index of the log, which is also a file, could not grow.
            Some(_) if extended_code(&error) == Some(ffi::SQLITE_IOERR_SHMSIZE) => WriteFault::NoSpace,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => WriteFault::Busy,
            Some(ErrorCode::ConstraintViolation) => WriteFault::Taken(error.to_string()),
            Some(ErrorCode::TooBig | ErrorCode::TypeMismatch) => WriteFault::Row(error.to_string()),
            // A failed write or sync, damage, no memory: it is unknown what reached the disk.
            Some(_) => WriteFault::Broken(error_text(&error)),
            // Not from SQLite: a value of the wrong type or range.
            None => WriteFault::Row(error.to_string()),
        }
    }
}

/// SQLite's text with the extended error code, which identifies the operation that failed.
fn error_text(error: &Error) -> String {
    match extended_code(error) {
        Some(code) => format!("{error} (SQLite's code {code})"),
        None => error.to_string(),
    }
}

fn extended_code(error: &Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

const BUSY: &str = "another program keeps the database locked; stop it and try again";

impl From<WriteFault> for AppendError {
    fn from(fault: WriteFault) -> AppendError {
        match fault {
            WriteFault::NoSpace => AppendError::NoSpace,
            // Another process has appended rows that this owner does not know.
            WriteFault::Taken(_) => AppendError::Lost,
            WriteFault::Busy => AppendError::Broken(BUSY.into()),
            WriteFault::Row(why) | WriteFault::Broken(why) => AppendError::Broken(why),
        }
    }
}

impl From<WriteFault> for StoreError {
    fn from(fault: WriteFault) -> StoreError {
        match fault {
            WriteFault::NoSpace => StoreError::NoSpace,
            WriteFault::Busy => StoreError::Failed(BUSY.into()),
            WriteFault::Taken(why) | WriteFault::Row(why) => StoreError::Failed(why),
            WriteFault::Broken(why) => StoreError::Failed(format!("the journal cannot be written: {why}")),
        }
    }
}

/// Converts an error of a read.
pub(super) fn to_read_error(error: Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged(format!("the database is damaged: {}", error_text(&error)))
        }
        _ => StoreError::Failed(format!("the journal cannot be read: {}", error_text(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: i32) -> WriteFault {
        Error::SqliteFailure(ffi::Error::new(code), None).into()
    }

    #[test]
    fn only_a_full_disk_may_be_tried_again_and_a_failed_sync_never() {
        assert_eq!(fault(ffi::SQLITE_FULL), WriteFault::NoSpace);
        assert_eq!(fault(ffi::SQLITE_IOERR_SHMSIZE), WriteFault::NoSpace);
        let broken = [
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_IOERR_DIR_FSYNC,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOTADB,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_NOMEM,
        ];
        for code in broken {
            assert!(matches!(fault(code), WriteFault::Broken(_)), "{code}");
        }
        assert!(matches!(fault(ffi::SQLITE_CONSTRAINT_UNIQUE), WriteFault::Taken(_)));
    }
}
