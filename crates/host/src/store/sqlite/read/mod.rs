//! What is read: on a few connections that cannot write, in transactions that are short.
//!
//! A transaction that stays open keeps the log from being emptied, so a long journal is read in pages.

mod audit;
mod dead;
mod journal;
mod letter;
mod run;

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use rusqlite::{Connection, OpenFlags, Transaction};

pub use audit::audit;
pub use dead::dead;
pub use journal::journal;
pub use letter::{answer, has_mail, letters};
pub use run::{definition, epochs, list, run, runs};

use super::{fault::unread, place::Place};
use crate::store::StoreError;

/// Idle connections that are kept.
const KEPT: usize = 4;

#[derive(Debug)]
pub struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub fn of(place: &Place) -> Readers {
        Readers { path: place.database(), idle: Mutex::default() }
    }

    /// Reads in one transaction.
    pub fn with<T>(&self, read: impl FnOnce(&Transaction) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut db = idle.map_or_else(|| self.connect(), Ok).map_err(unread)?;
        let tx = db.transaction().map_err(unread)?;
        let answer = read(&tx).map_err(unread)?;
        tx.finish().map_err(unread)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(db);
        }
        Ok(answer)
    }

    /// A connection that cannot write.
    pub fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(&self.path, flags)?;
        db.busy_timeout(super::BUSY)?;
        db.pragma_update(None, "trusted_schema", false)?;
        Ok(db)
    }
}
