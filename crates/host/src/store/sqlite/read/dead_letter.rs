//! Lists of dead letters. An unreadable one is listed as such, so that it is not forgotten.

use rusqlite::{Connection, Row, params};
use skein_core::{ids::RunId, ir::ErrorClass, time::Timestamp};

use crate::store::{DeadLetter, DeadLetterRow, DeadLetterSelection, DeadLetterSettlement, SettlementKind};

const SELECT: &str = "SELECT runs.run, number, row, settled FROM dead JOIN runs ON runs.key = dead.run";

/// Returns dead letters, newest first.
pub(crate) fn list_dead_letters(db: &Connection, which: &DeadLetterSelection) -> rusqlite::Result<Vec<DeadLetter>> {
    let (clause, run, limit) = match which {
        DeadLetterSelection::Open(limit) => ("settled IS NULL", "", i64::from(*limit)),
        DeadLetterSelection::Newest(limit) => ("true", "", i64::from(*limit)),
        DeadLetterSelection::InRun(run) => ("dead.run = (SELECT key FROM runs WHERE run = ?1)", run.as_str(), -1),
    };
    db.prepare_cached(&format!(
        "{SELECT} WHERE ?1 IS NOT NULL AND {clause} ORDER BY dead.run DESC, number DESC LIMIT ?2"
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
