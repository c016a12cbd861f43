//! The reads of journals, requests, dead letters and audit records, and a check of the whole database.
//!
//! Owns the read-only connections. Transactions are short, because an open one keeps the log from being emptied: journals
//! and audit records are read in pages. Each row of a journal is checked against the previous one.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Mutex, PoisonError, mpsc::channel},
    thread,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, params};
use skein_core::{
    engine::{JournalBatch, JournalError, JournalRecord, VERSION},
    ids::RunId,
    ir::ErrorClass,
    plan::ContentHash,
    time::Timestamp,
};

use crate::store::{
    DeadLetter, DeadLetterRow, DeadLetterSelection, DeadLetterSettlement, InboxRequest, InboxRequestId, SettlementKind,
    StoreError, StoredAuditRecord,
    sqlite::{
        error::to_read_error,
        state_folder::StateFolder,
        write::{find_run_key, to_sql_int},
    },
};

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

/// Returns the unanswered requests to the runs of an owner, oldest first.
pub(crate) fn pending_requests(db: &Connection, owner: &str) -> rusqlite::Result<Vec<InboxRequest>> {
    db.prepare_cached(
        "SELECT id, runs.run, body FROM letters
         JOIN fences ON fences.run = letters.run JOIN runs ON runs.key = letters.run
         WHERE answer IS NULL AND owner = ?1 ORDER BY id",
    )?
    .query_map([owner], |row| {
        let (id, run, body): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let id = InboxRequestId(u64::try_from(id).unwrap_or(0));
        Ok(RunId::new(run).ok().map(|run| InboxRequest { id, run, body }))
    })?
    .filter_map(Result::transpose)
    .collect()
}

/// Returns the answer to a request, if it has one; none if there is no such request.
pub(crate) fn find_answer(db: &Connection, request: InboxRequestId) -> rusqlite::Result<Option<Option<Vec<u8>>>> {
    db.prepare_cached("SELECT answer FROM letters WHERE id = ?1")?
        .query_row([to_sql_int(request.0)], |row| row.get(0))
        .optional()
}

/// Returns the claims of an owner, by the key of the run.
pub(crate) fn read_epochs(db: &Connection, owner: &str) -> rusqlite::Result<HashSet<(i64, u64)>> {
    db.prepare_cached("SELECT run, epoch FROM fences WHERE owner = ?1")?
        .query_map([owner], |row| Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0))))?
        .collect()
}

/// True if there are unanswered requests for runs of an owner.
pub(crate) fn has_requests(db: &Connection, owner: &str) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT 1 FROM letters JOIN fences ON fences.run = letters.run WHERE answer IS NULL AND owner = ?1",
    )?
    .exists([owner])
}

const SELECT_DEAD_LETTERS: &str = "SELECT runs.run, number, row, settled FROM dead JOIN runs ON runs.key = dead.run";

/// Returns dead letters, newest first.
pub(crate) fn list_dead_letters(db: &Connection, which: &DeadLetterSelection) -> rusqlite::Result<Vec<DeadLetter>> {
    let (clause, run, limit) = match which {
        DeadLetterSelection::Open(limit) => ("settled IS NULL", "", i64::from(*limit)),
        DeadLetterSelection::Newest(limit) => ("true", "", i64::from(*limit)),
        DeadLetterSelection::InRun(run) => ("dead.run = (SELECT key FROM runs WHERE run = ?1)", run.as_str(), -1),
    };
    db.prepare_cached(&format!(
        "{SELECT_DEAD_LETTERS} WHERE ?1 IS NOT NULL AND {clause} ORDER BY dead.run DESC, number DESC LIMIT ?2"
    ))?
    .query_map(params![run, limit], read_dead_letter)?
    .collect()
}

fn read_dead_letter(row: &Row) -> rusqlite::Result<DeadLetter> {
    let (run, number): (String, i64) = (row.get(0)?, row.get(1)?);
    let (text, settled): (String, Option<String>) = (row.get(2)?, row.get(3)?);
    let number = u64::try_from(number).unwrap_or_default();
    let run = RunId::new(&run).unwrap_or_else(|_| RunId::new("damaged").expect("letters are a name"));
    let row = serde_json::from_str(&text).unwrap_or_else(|error| DeadLetterRow {
        number,
        step: String::new(),
        class: ErrorClass::Fatal,
        code: None,
        message: format!("its record cannot be read: {error}"),
        attempts: 0,
        attempt: None,
        at: Timestamp(0),
    });
    // It is settled, although the settlement cannot be read: it is no longer open.
    let settled = settled.map(|text| {
        serde_json::from_str(&text).unwrap_or(DeadLetterSettlement {
            how: SettlementKind::Dropped(Some("the reason cannot be read".to_owned())),
            by: None,
            at: None,
        })
    });
    Ok(DeadLetter { run, row, settled })
}

/// The maximum number of faults that are reported.
const REPORTED_FAULTS: u32 = 5;

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
    let checked = run_quick_check(&db);
    drop(done);
    if let Ok(clock) = clock {
        let _ = clock.join();
    }
    let (faults, all) = match checked {
        Ok(faults) => (faults, true),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => (Vec::new(), false),
        Err(error) => (vec![error.to_string()], true),
    };
    Ok(DatabaseCheck { version, bytes: u64::try_from(bytes).unwrap_or_default(), faults, all })
}

fn run_quick_check(db: &rusqlite::Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare(&format!("PRAGMA quick_check({REPORTED_FAULTS})"))?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().filter(|row| row != "ok").collect())
}

pub(crate) fn read_audit(
    readers: &ReaderPool,
    from: u64,
    each: &mut dyn FnMut(StoredAuditRecord) -> bool,
) -> Result<(), StoreError> {
    let mut next = from;
    // No records follow a number that SQLite cannot represent.
    while i64::try_from(next).is_ok() {
        let page = readers.read_in_transaction(|db| read_audit_page(db, next))?;
        if page.is_empty() {
            return Ok(());
        }
        for noted in page {
            next = noted.seq.saturating_add(1);
            if !each(noted) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn read_audit_page(db: &Connection, from: u64) -> rusqlite::Result<Vec<StoredAuditRecord>> {
    // Anything in the column is read as bytes, so that the reader can report what is wrong with it.
    let mut statement = db.prepare_cached("SELECT seq, CAST(line AS BLOB) FROM audit WHERE seq >= ?1 ORDER BY seq")?;
    let mut rows = statement.query(params![to_sql_int(from)])?;
    let (mut page, mut bytes) = (Vec::new(), 0);
    while page.len() < PAGE_ROWS
        && bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let (seq, line): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        bytes += line.len();
        page.push(StoredAuditRecord { seq: u64::try_from(seq).unwrap_or(u64::MAX), line });
    }
    Ok(page)
}
