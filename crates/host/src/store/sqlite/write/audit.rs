//! Audit records. All processes share one chain, which continues from the end that the transaction finds.

use rusqlite::{Connection, OptionalExtension, params};

use super::to_sql_int;
use crate::audit::{AuditChain, AuditEntry};

pub(crate) fn append_audit(db: &Connection, entries: &[AuditEntry]) -> rusqlite::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut chain = read_chain_end(db)?;
    let mut insert = db.prepare_cached("INSERT INTO audit (seq, line) VALUES (?1, ?2)")?;
    for entry in entries {
        let (seq, line) = chain.seal_entry(entry);
        insert.execute(params![to_sql_int(seq), line.as_bytes()])?;
    }
    Ok(())
}

fn read_chain_end(db: &Connection) -> rusqlite::Result<AuditChain> {
    let last: Option<(i64, Vec<u8>)> = db
        .prepare_cached("SELECT seq, CAST(line AS BLOB) FROM audit ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(last.map_or_else(AuditChain::default, |(seq, line)| {
        AuditChain::from_last_record(u64::try_from(seq).unwrap_or(0), &line)
    }))
}
