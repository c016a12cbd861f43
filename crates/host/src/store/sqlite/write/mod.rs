//! What is written, one file for each noun. Everything here runs in a transaction of the writer.

mod append;
mod audit;
mod dead;
mod letter;
mod run;

pub use append::AppendRow;
pub use audit::note;
pub use dead::settle;
pub use letter::{answer, send};
pub use run::{CreatedRun, Creation, claim, create, quarantine, release};

use rusqlite::{Connection, OptionalExtension};
use skein_core::ids::RunId;

/// The number of a run in this database.
pub fn key(db: &Connection, run: &RunId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT key FROM runs WHERE run = ?1")?
        .query_row([run.as_str()], |row| row.get(0))
        .optional()
}

/// Counts are far below what SQLite's signed numbers hold.
pub fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
