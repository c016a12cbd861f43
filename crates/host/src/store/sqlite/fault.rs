//! What can go wrong under a write, in the few sorts that are handled differently.

use rusqlite::{Error, ErrorCode, ffi};

use crate::store::{AppendError, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full. Nothing was written.
    NoSpace,
    /// What is to be written is there already. Others can be.
    Taken(String),
    /// This write cannot be done; others can.
    Row(String),
    /// Another program keeps the database to itself. Nothing was written.
    Busy,
    /// What was acknowledged stands, and nothing can be any more.
    Broken(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Fault::NoSpace,
            // The index of the log, which is a file too, could not grow.
            Some(_) if extended(&error) == Some(ffi::SQLITE_IOERR_SHMSIZE) => Fault::NoSpace,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Busy,
            Some(ErrorCode::ConstraintViolation) => Fault::Taken(error.to_string()),
            Some(ErrorCode::TooBig | ErrorCode::TypeMismatch) => Fault::Row(error.to_string()),
            // A write or a sync that failed, damage, no memory: it is not known what reached the disk.
            Some(_) => Fault::Broken(told(&error)),
            // Not from SQLite: a value that does not fit what is asked for.
            None => Fault::Row(error.to_string()),
        }
    }
}

/// SQLite's text and the exact number, which says which operation failed.
fn told(error: &Error) -> String {
    match extended(error) {
        Some(code) => format!("{error} (SQLite's code {code})"),
        None => error.to_string(),
    }
}

fn extended(error: &Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

const BUSY: &str = "another program keeps the database locked; end it, and try again";

impl From<Fault> for AppendError {
    fn from(fault: Fault) -> AppendError {
        match fault {
            Fault::NoSpace => AppendError::NoSpace,
            // Someone has appended what this owner does not know of.
            Fault::Taken(_) => AppendError::Lost,
            Fault::Busy => AppendError::Broken(BUSY.into()),
            Fault::Row(why) | Fault::Broken(why) => AppendError::Broken(why),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        match fault {
            Fault::NoSpace => StoreError::NoSpace,
            Fault::Busy => StoreError::Failed(BUSY.into()),
            Fault::Taken(why) | Fault::Row(why) => StoreError::Failed(why),
            Fault::Broken(why) => StoreError::Failed(format!("the journal cannot be written: {why}")),
        }
    }
}

/// Why something could not be read.
pub fn unread(error: Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged(format!("the database is damaged: {}", told(&error)))
        }
        _ => StoreError::Failed(format!("the journal cannot be read: {}", told(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: i32) -> Fault {
        Error::SqliteFailure(ffi::Error::new(code), None).into()
    }

    #[test]
    fn only_a_full_disk_may_be_tried_again_and_a_failed_sync_never() {
        assert_eq!(fault(ffi::SQLITE_FULL), Fault::NoSpace);
        assert_eq!(fault(ffi::SQLITE_IOERR_SHMSIZE), Fault::NoSpace);
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
            assert!(matches!(fault(code), Fault::Broken(_)), "{code}");
        }
        assert!(matches!(fault(ffi::SQLITE_CONSTRAINT_UNIQUE), Fault::Taken(_)));
    }
}
