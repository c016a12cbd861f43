//! The inbox.

use rusqlite::{Connection, OptionalExtension};
use skein_core::ids::RunId;

use crate::store::{
    Letter, LetterId,
    sqlite::write::{int, key},
};

/// Letters to a run that are not answered, oldest first; none if there is no such run.
pub fn letters(db: &Connection, run: &RunId) -> rusqlite::Result<Option<Vec<Letter>>> {
    let Some(key) = key(db, run)? else { return Ok(None) };
    db.prepare_cached("SELECT id, body FROM letters WHERE run = ?1 AND answer IS NULL ORDER BY id")?
        .query_map([key], |row| {
            let id = LetterId(u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0));
            Ok(Letter { id, run: run.clone(), body: row.get(1)? })
        })?
        .collect::<rusqlite::Result<_>>()
        .map(Some)
}

/// The answer to a letter, if it has one; none if there is no such letter.
pub fn answer(db: &Connection, letter: LetterId) -> rusqlite::Result<Option<Option<Vec<u8>>>> {
    db.prepare_cached("SELECT answer FROM letters WHERE id = ?1")?
        .query_row([int(letter.0)], |row| row.get(0))
        .optional()
}

/// Whether there are letters for runs of an owner.
pub fn has_mail(db: &Connection, owner: &str) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM letters JOIN fences ON fences.run = letters.run WHERE answer IS NULL AND owner = ?1",
    )?
    .exists([owner])
}
