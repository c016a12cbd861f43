//! Requests to runs, and their answers. The first answer is kept.

use rusqlite::{Connection, OptionalExtension, params};
use skein_core::{ids::RunId, time::Millis, time::Timestamp};

use super::{find_run_key, to_sql_int};
use crate::store::{InboxRequestId, StoreError, request::request_limit_error, sqlite::owner::LocalOwner};

/// Answered requests are kept this long, for a sender that asks late.
const KEPT: Millis = Millis::from_hours(7 * 24);

/// Inserts a request. Returns its id and the owner of the run.
pub(crate) fn insert_request(
    db: &Connection,
    me: &LocalOwner,
    run: &RunId,
    body: &[u8],
    now: Timestamp,
) -> rusqlite::Result<Result<(InboxRequestId, Option<String>), StoreError>> {
    let Some(key) = find_run_key(db, run)? else { return Ok(Err(StoreError::Unknown(run.clone()))) };
    let waiting: i64 = db
        .prepare_cached("SELECT count(*) FROM letters WHERE run = ?1 AND answer IS NULL")?
        .query_row([key], |row| row.get(0))?;
    if let Some(refusal) = request_limit_error(run, usize::try_from(waiting).unwrap_or(0), body.len()) {
        return Ok(Err(refusal));
    }
    db.prepare_cached("INSERT INTO letters (run, sender, sent, body) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        key,
        me.id(),
        now.0,
        body
    ])?;
    let id = InboxRequestId(u64::try_from(db.last_insert_rowid()).unwrap_or(0));
    drop_old_requests(db, now)?;
    let owner =
        db.prepare_cached("SELECT owner FROM fences WHERE run = ?1")?.query_row([key], |row| row.get(0)).optional()?;
    Ok(Ok((id, owner.flatten())))
}

/// Deletes old answered requests, a few at a time, with each insertion.
fn drop_old_requests(db: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let kept = i64::try_from(KEPT.0).unwrap_or(i64::MAX);
    db.prepare_cached(
        "DELETE FROM letters WHERE id IN
         (SELECT id FROM letters WHERE answer IS NOT NULL AND sent < ?1 ORDER BY sent LIMIT 100)",
    )?
    .execute([now.0.saturating_sub(kept)])?;
    Ok(())
}

/// Answers a request and returns its sender; none if it was answered already or does not exist.
pub(super) fn store_answer(db: &Connection, letter: InboxRequestId, answer: &[u8]) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("UPDATE letters SET answer = ?1 WHERE id = ?2 AND answer IS NULL RETURNING sender")?
        .query_row(params![answer, to_sql_int(letter.0)], |row| row.get(0))
        .optional()
}

/// Answers a request that led to no append. Returns the process to wake, if any; none if there is no such request.
pub(crate) fn answer_request(
    db: &Connection,
    letter: InboxRequestId,
    answer: &[u8],
) -> rusqlite::Result<Option<Option<String>>> {
    if let Some(sender) = store_answer(db, letter, answer)? {
        return Ok(Some(Some(sender)));
    }
    let known = db.prepare_cached("SELECT 1 FROM letters WHERE id = ?1")?.exists([to_sql_int(letter.0)])?;
    Ok(known.then_some(None))
}
