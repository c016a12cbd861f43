//! Dead letters: inserted with the row that records the failure, and settled once.

use rusqlite::{Connection, OptionalExtension, params};

use super::to_sql_int;
use crate::store::{DeadLetterId, DeadLetterRow, DeadLetterSettlement, StoreError};

pub(super) fn insert_dead_letters(db: &Connection, run: i64, dead: &[DeadLetterRow]) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached("INSERT INTO dead (run, number, row) VALUES (?1, ?2, ?3)")?;
    for row in dead {
        let json = serde_json::to_string(row).expect("dead letters serialise to JSON");
        insert.execute(params![run, to_sql_int(row.number), json])?;
    }
    Ok(())
}

/// Marks the unsettled dead letters of a run as covered by its retry, or takes the mark back.
pub(super) fn mark_retried(db: &Connection, run: i64, retried: bool) -> rusqlite::Result<()> {
    let left = encode_settlement(&DeadLetterSettlement::RETRIED);
    let sql = match retried {
        true => "UPDATE dead SET settled = ?2 WHERE run = ?1 AND settled IS NULL",
        false => "UPDATE dead SET settled = NULL WHERE run = ?1 AND settled = ?2",
    };
    db.prepare_cached(sql)?.execute(params![run, left])?;
    Ok(())
}

/// Returns the settlement of a dead letter, if it has one.
pub(super) fn find_settlement(
    db: &Connection,
    id: &DeadLetterId,
) -> rusqlite::Result<Result<Option<DeadLetterSettlement>, StoreError>> {
    let found: Option<Option<String>> = db
        .prepare_cached("SELECT settled FROM dead WHERE run = (SELECT key FROM runs WHERE run = ?1) AND number = ?2")?
        .query_row(params![id.run.as_str(), to_sql_int(id.number)], |row| row.get(0))
        .optional()?;
    Ok(match found {
        None => Err(StoreError::Failed(format!("there is no dead letter `{id}`"))),
        Some(None) => Ok(None),
        Some(Some(text)) => serde_json::from_str(&text).map(Some).map_err(|error| {
            StoreError::Damaged(format!("the settlement of dead letter `{id}` cannot be read: {error}"))
        }),
    })
}

/// Settles a dead letter unless it is settled. Returns the earlier settlement.
pub(crate) fn settle_dead_letter(
    db: &Connection,
    id: &DeadLetterId,
    now: &DeadLetterSettlement,
) -> rusqlite::Result<Result<Option<DeadLetterSettlement>, StoreError>> {
    let before = find_settlement(db, id)?;
    if before == Ok(None) {
        db.prepare_cached(
            "UPDATE dead SET settled = ?3 WHERE run = (SELECT key FROM runs WHERE run = ?1) AND number = ?2",
        )?
        .execute(params![id.run.as_str(), to_sql_int(id.number), encode_settlement(now)])?;
    }
    Ok(before)
}

fn encode_settlement(settled: &DeadLetterSettlement) -> String {
    serde_json::to_string(settled).expect("settlements serialise to JSON")
}
