//! The stored audit records, read in pages.

use rusqlite::{Connection, params};

use super::ReaderPool;
use crate::store::{StoreError, StoredAuditRecord, sqlite::write::to_sql_int};

/// The limits of a page. It ends with the record that reaches one of them.
const PAGE_RECORDS: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;

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
    while page.len() < PAGE_RECORDS
        && bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let (seq, line): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        bytes += line.len();
        page.push(StoredAuditRecord { seq: u64::try_from(seq).unwrap_or(u64::MAX), line });
    }
    Ok(page)
}
