//! The writes, one file for each noun. Everything here runs in a transaction of the writer.

mod append;
mod audit;
mod dead_letter;
mod request;
mod run;

pub(super) use append::AppendWrite;
pub(super) use audit::append_audit;
pub(super) use dead_letter::settle_dead_letter;
pub(super) use request::{answer_request, insert_request};
pub(super) use run::{CreatedRun, RunCreation, claim_run, create_runs, quarantine_run, release_run};

use rusqlite::{Connection, OptionalExtension};
use skein_core::ids::RunId;

/// Returns the key of a run in this database.
pub(super) fn find_run_key(db: &Connection, run: &RunId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT key FROM runs WHERE run = ?1")?.query_row([run.as_str()], |row| row.get(0)).optional()
}

/// Converts a count, which is far below the range of SQLite's signed integers.
pub(super) fn to_sql_int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
