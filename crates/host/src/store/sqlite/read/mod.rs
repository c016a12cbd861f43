//! The reads, on a few read-only connections in short transactions.
//!
//! An open transaction keeps the log from being emptied, so a long journal is read in pages.

mod audit;
mod dead_letter;
mod journal;
mod request;
mod run;

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use rusqlite::{Connection, OpenFlags, Transaction};

pub(super) use audit::read_audit;
pub(super) use dead_letter::list_dead_letters;
pub(super) use journal::read_journal;
pub(super) use request::{find_answer, has_requests, pending_requests};
pub(super) use run::{find_run, list_runs, read_definition, read_epochs, select_runs};

use super::{fault::to_read_error, state_folder::StateFolder};
use crate::store::StoreError;

/// The maximum number of idle connections that are kept.
const KEPT: usize = 4;

#[derive(Debug)]
pub(super) struct ReaderPool {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(place: &StateFolder) -> ReaderPool {
        ReaderPool { path: place.database_path(), idle: Mutex::default() }
    }

    /// Reads in one transaction.
    pub(super) fn read_in_transaction<T>(
        &self,
        read: impl FnOnce(&Transaction) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut db = idle.map_or_else(|| self.connect(), Ok).map_err(to_read_error)?;
        let tx = db.transaction().map_err(to_read_error)?;
        let answer = read(&tx).map_err(to_read_error)?;
        tx.finish().map_err(to_read_error)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(db);
        }
        Ok(answer)
    }

    /// Opens a read-only connection.
    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&self.path, flags)?;
        db.busy_timeout(super::BUSY)?;
        db.pragma_update(None, "trusted_schema", false)?;
        Ok(db)
    }
}
