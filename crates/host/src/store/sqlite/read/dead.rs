//! Dead letters as they are listed. One that cannot be read is shown as such, so that it is not forgotten.

use rusqlite::{Connection, Row, params};
use skein_core::{ids::RunId, ir::ErrorClass, time::Time};

use crate::store::{Dead, DeadRow, How, Settled, WhichDead};

const SELECT: &str = "SELECT runs.run, number, row, settled FROM dead JOIN runs ON runs.key = dead.run";

/// Newest first.
pub fn dead(db: &Connection, which: &WhichDead) -> rusqlite::Result<Vec<Dead>> {
    let (clause, run, limit) = match which {
        WhichDead::Open(limit) => ("settled IS NULL", "", i64::from(*limit)),
        WhichDead::Newest(limit) => ("true", "", i64::from(*limit)),
        WhichDead::Of(run) => ("dead.run = (SELECT key FROM runs WHERE run = ?1)", run.as_str(), -1),
    };
    db.prepare_cached(&format!(
        "{SELECT} WHERE ?1 IS NOT NULL AND {clause} ORDER BY dead.run DESC, number DESC LIMIT ?2"
    ))?
    .query_map(params![run, limit], letter)?
    .collect()
}

fn letter(row: &Row) -> rusqlite::Result<Dead> {
    let (run, number): (String, i64) = (row.get(0)?, row.get(1)?);
    let (text, settled): (String, Option<String>) = (row.get(2)?, row.get(3)?);
    let number = u64::try_from(number).unwrap_or_default();
    let run = RunId::new(&run).unwrap_or_else(|_| RunId::new("damaged").expect("letters are a name"));
    let row = serde_json::from_str(&text).unwrap_or_else(|error| DeadRow {
        number,
        step: String::new(),
        class: ErrorClass::Fatal,
        code: None,
        message: format!("what was recorded of it cannot be read: {error}"),
        attempts: 0,
        attempt: None,
        at: Time(0),
    });
    // Something was done, if not to be read what: it is no longer open.
    let settled = settled.map(|text| {
        serde_json::from_str(&text).unwrap_or(Settled {
            how: How::Dropped(Some("it cannot be read why".to_owned())),
            by: None,
            at: None,
        })
    });
    Ok(Dead { run, row, settled })
}
