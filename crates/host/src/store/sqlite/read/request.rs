//! Reads of the request inbox.

use rusqlite::{Connection, OptionalExtension};
use skein_core::ids::RunId;

use crate::store::{InboxRequest, InboxRequestId, sqlite::write::to_sql_int};

/// Returns the unanswered requests to the runs of an owner, oldest first.
pub(crate) fn pending_requests(db: &Connection, owner: &str) -> rusqlite::Result<Vec<InboxRequest>> {
    db.prepare_cached(
        "SELECT id, runs.run, body FROM letters
         JOIN fences ON fences.run = letters.run JOIN runs ON runs.key = letters.run
         WHERE answer IS NULL AND owner = ?1 ORDER BY id",
    )?
    .query_map([owner], |row| {
        let id = InboxRequestId(u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0));
        let run: String = row.get(1)?;
        Ok(RunId::new(run).ok().map(|run| (id, run)).zip(Some(row.get(2)?)))
    })?
    .filter_map(|row| row.map(|row| row.map(|((id, run), body)| InboxRequest { id, run, body })).transpose())
    .collect()
}

/// Returns the answer to a request, if it has one; none if there is no such request.
pub(crate) fn find_answer(db: &Connection, letter: InboxRequestId) -> rusqlite::Result<Option<Option<Vec<u8>>>> {
    db.prepare_cached("SELECT answer FROM letters WHERE id = ?1")?
        .query_row([to_sql_int(letter.0)], |row| row.get(0))
        .optional()
}

/// True if there are unanswered requests for runs of an owner.
pub(crate) fn has_requests(db: &Connection, owner: &str) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM letters JOIN fences ON fences.run = letters.run WHERE answer IS NULL AND owner = ?1",
    )?
    .exists([owner])
}
