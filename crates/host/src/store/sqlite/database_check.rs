//! A read-only check of the whole database. Repairs nothing.

use std::{sync::mpsc::channel, thread, time::Duration};

use rusqlite::ErrorCode;

use super::{fault::to_read_error, read::ReaderPool};
use crate::store::StoreError;

/// The maximum number of faults that are reported.
const TOLD: u32 = 5;

/// The result of a check of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseCheck {
    /// The version of its tables.
    pub version: i64,
    pub bytes: u64,
    /// The faults, in SQLite's words. If empty, the checked part is intact.
    pub faults: Vec<String>,
    /// True if there was time to check all of it.
    pub all: bool,
}

pub(super) fn check_database(readers: &ReaderPool, within: Duration) -> Result<DatabaseCheck, StoreError> {
    let db = readers.connect().map_err(to_read_error)?;
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(to_read_error);
    let version = number("user_version")?;
    let bytes = number("page_count")?.saturating_mul(number("page_size")?);
    let (done, waits) = channel::<()>();
    let handle = db.get_interrupt_handle();
    let clock = thread::Builder::new().name("check".to_owned()).spawn(move || {
        if waits.recv_timeout(within) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            handle.interrupt();
        }
    });
    let looked = run_quick_check(&db);
    drop(done);
    if let Ok(clock) = clock {
        let _ = clock.join();
    }
    let (faults, all) = match looked {
        Ok(faults) => (faults, true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => (Vec::new(), false),
        Err(error) => (vec![error.to_string()], true),
    };
    Ok(DatabaseCheck { version, bytes: u64::try_from(bytes).unwrap_or_default(), faults, all })
}

fn run_quick_check(db: &rusqlite::Connection) -> rusqlite::Result<Vec<String>> {
    let mut told = db.prepare(&format!("PRAGMA quick_check({TOLD})"))?;
    let rows = told.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().filter(|row| row != "ok").collect())
}
