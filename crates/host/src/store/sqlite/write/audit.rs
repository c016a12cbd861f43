//! Records of the audit. The chain is one for all processes, and goes on where the transaction finds its end.

use rusqlite::{Connection, OptionalExtension, params};

use super::int;
use crate::audit::{Chain, Entry};

pub fn note(db: &Connection, entries: &[Entry]) -> rusqlite::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut chain = end(db)?;
    let mut insert = db.prepare_cached("INSERT INTO audit (seq, line) VALUES (?1, ?2)")?;
    for entry in entries {
        let (seq, line) = chain.seal(entry);
        insert.execute(params![int(seq), line.as_bytes()])?;
    }
    Ok(())
}

fn end(db: &Connection) -> rusqlite::Result<Chain> {
    let last: Option<(i64, Vec<u8>)> = db
        .prepare_cached("SELECT seq, CAST(line AS BLOB) FROM audit ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(last.map_or_else(Chain::default, |(seq, line)| Chain::after(u64::try_from(seq).unwrap_or(0), &line)))
}
