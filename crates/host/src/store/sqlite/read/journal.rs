//! The rows of a journal, read in order and in pages, each checked against the previous one.

use rusqlite::{Connection, OptionalExtension, params};
use skein_core::{
    engine::{JournalBatch, JournalError, JournalRecord, VERSION},
    ids::RunId,
    plan::ContentHash,
};

use super::ReaderPool;
use crate::store::{
    StoreError,
    sqlite::write::{find_run_key, to_sql_int},
};

/// The limits of a page. It ends with the row that reaches one of them.
const PAGE_ROWS: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

/// The position of a reader.
struct JournalCursor {
    key: i64,
    /// The number of events read so far, and the chain hash after them.
    events: u64,
    before: ContentHash,
    /// The number of events when reading began. There may be more by now, and never fewer.
    total: u64,
}

struct JournalRow {
    seq: i64,
    version: i64,
    chain: Vec<u8>,
    records: Vec<u8>,
}

/// Reads rows, starting with the one that contains or follows event `from`, until `each` returns false.
pub(crate) fn read_journal(
    readers: &ReaderPool,
    run: &RunId,
    from: u64,
    each: &mut dyn FnMut(JournalBatch) -> bool,
) -> Result<(), StoreError> {
    let start = readers.read_in_transaction(|db| find_start(db, run, from))?;
    let mut at = start.ok_or_else(|| StoreError::Unknown(run.clone()))?;
    loop {
        let page = readers.read_in_transaction(|db| read_journal_page(db, &at))?;
        if page.is_empty() {
            break;
        }
        for row in page {
            let batch = decode_row(run, &row)?;
            batch.check_written(at.events, at.before, &row.records).map_err(|error| journal_read_error(run, error))?;
            at.events = batch.seq.saturating_add(batch.records.len() as u64);
            at.before = batch.chain;
            if at.events > from && !each(batch) {
                return Ok(());
            }
        }
    }
    if at.events < at.total {
        let (found, total) = (at.events, at.total);
        return Err(damaged_error(run, &format!("it ends after {found} of {total} events")));
    }
    Ok(())
}

fn find_start(db: &Connection, run: &RunId, from: u64) -> rusqlite::Result<Option<JournalCursor>> {
    let Some(key) = find_run_key(db, run)? else { return Ok(None) };
    let total: i64 =
        db.prepare_cached("SELECT events FROM fences WHERE run = ?1")?.query_row([key], |row| row.get(0))?;
    let events: Option<i64> = db
        .prepare_cached("SELECT max(seq) FROM journal WHERE run = ?1 AND seq <= ?2")?
        .query_row(params![key, to_sql_int(from)], |row| row.get(0))?;
    let events = events.unwrap_or(0);
    let before: Option<Vec<u8>> = db
        .prepare_cached("SELECT chain FROM journal WHERE run = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT 1")?
        .query_row(params![key, events], |row| row.get(0))
        .optional()?;
    Ok(Some(JournalCursor {
        key,
        events: to_count(events),
        before: before.map_or(ContentHash::ZERO, |chain| to_hash(&chain)),
        total: to_count(total),
    }))
}

fn read_journal_page(db: &Connection, at: &JournalCursor) -> rusqlite::Result<Vec<JournalRow>> {
    let mut statement = db
        .prepare_cached("SELECT seq, version, chain, records FROM journal WHERE run = ?1 AND seq >= ?2 ORDER BY seq")?;
    let mut found = statement.query(params![at.key, to_sql_int(at.events)])?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while rows.len() < PAGE_ROWS
        && bytes < PAGE_BYTES
        && let Some(row) = found.next()?
    {
        let row = JournalRow { seq: row.get(0)?, version: row.get(1)?, chain: row.get(2)?, records: row.get(3)? };
        bytes += row.records.len();
        rows.push(row);
    }
    Ok(rows)
}

fn decode_row(run: &RunId, row: &JournalRow) -> Result<JournalBatch, StoreError> {
    let seq = to_count(row.seq);
    let version = u32::try_from(row.version).unwrap_or(u32::MAX);
    // Rows of a newer version need not have a form that this version can decode.
    if version > VERSION {
        return Err(journal_read_error(run, JournalError::Newer { seq, version }));
    }
    let records: Vec<JournalRecord> = serde_json::from_slice(&row.records)
        .map_err(|error| damaged_error(run, &format!("row {seq} cannot be decoded: {error}")))?;
    Ok(JournalBatch { version, seq, records, chain: to_hash(&row.chain) })
}

fn journal_read_error(run: &RunId, error: JournalError) -> StoreError {
    match error {
        JournalError::Newer { .. } => StoreError::Newer(format!("the journal of run `{run}`: {error}")),
        _ => damaged_error(run, &error.to_string()),
    }
}

fn damaged_error(run: &RunId, what: &str) -> StoreError {
    StoreError::Damaged(format!("the journal of run `{run}` is damaged: {what}"))
}

/// Converts a stored count. A negative one was never written, and matches nothing.
fn to_count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Converts a stored hash. One of another length was never written, and matches nothing.
fn to_hash(bytes: &[u8]) -> ContentHash {
    ContentHash(bytes.try_into().unwrap_or([0xff; 32]))
}
