//! The rows of runs. An unreadable row is shown as quarantined, so that it harms no other.
//!
//! Rewrites the stored paths of a run whose project was moved together with its state folder. They are absolute, because
//! a worker may start in another folder than the process that started the run.

use std::{collections::HashMap, path::Path};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::Value;
use skein_core::{ids::RunId, ir::RunStatus, plan::ContentHash};

use crate::store::{RunHead, RunList, RunOwner, RunRow, RunSelection, WaitpointRow, sqlite::owner::LocalOwner};

const SELECT: &str = "SELECT key, runs.run, definition, about, head, quarantined, owner, closed
                      FROM runs JOIN fences ON fences.run = key";

pub(crate) fn find_run(db: &Connection, me: &LocalOwner, run: &RunId) -> rusqlite::Result<Option<RunRow>> {
    let found = db
        .prepare_cached(&format!("{SELECT} WHERE runs.run = ?1"))?
        .query_row([run.as_str()], read_stored_run)
        .optional()?;
    found.map(|stored| RunRowBuilder::new(db, me).build_row(stored)).transpose()
}

/// Returns the selected runs, newest first.
pub(crate) fn select_runs(db: &Connection, me: &LocalOwner, which: RunSelection) -> rusqlite::Result<Vec<RunRow>> {
    let (clause, limit) = match which {
        RunSelection::Newest(limit) => ("", i64::from(limit)),
        RunSelection::Unfinished => ("WHERE closed = 0 AND quarantined IS NULL", -1),
        RunSelection::Orphaned => ("WHERE closed = 0 AND quarantined IS NULL AND owner IS NOT NULL", -1),
    };
    let mut statement = db.prepare_cached(&format!("{SELECT} {clause} ORDER BY key DESC LIMIT ?1"))?;
    let mut lister = RunRowBuilder::new(db, me);
    let mut rows = Vec::new();
    for found in statement.query_map([limit], read_stored_run)? {
        let row = lister.build_row(found?)?;
        let wanted = match which {
            RunSelection::Newest(_) => true,
            RunSelection::Unfinished => row.quarantined.is_none(),
            RunSelection::Orphaned => row.quarantined.is_none() && matches!(row.owner, RunOwner::Dead(_)),
        };
        rows.extend(wanted.then_some(row));
    }
    Ok(rows)
}

/// Returns the newest runs, at most `limit`, and the number of further ones.
pub(crate) fn list_runs(
    db: &Connection,
    me: &LocalOwner,
    limit: u32,
    wanted: Option<&dyn Fn(&RunHead) -> bool>,
) -> rusqlite::Result<RunList> {
    let Some(wanted) = wanted else {
        let rows = select_runs(db, me, RunSelection::Newest(limit))?;
        let all: i64 = db.prepare_cached("SELECT count(*) FROM runs")?.query_row([], |row| row.get(0))?;
        let more = u64::try_from(all).unwrap_or(0).saturating_sub(rows.len() as u64);
        return Ok(RunList { rows, more });
    };
    let mut statement = db.prepare_cached(&format!("{SELECT} ORDER BY key DESC"))?;
    let mut found = statement.query([])?;
    let (mut lister, mut list) = (RunRowBuilder::new(db, me), RunList { rows: Vec::new(), more: 0 });
    while let Some(row) = found.next()? {
        // Only the head is read of runs that are not wanted.
        let head = read_lossy_text(row, 4)?.and_then(|head| serde_json::from_str::<RunHead>(&head).ok());
        if !head.is_some_and(|head| wanted(&head)) {
            continue;
        }
        if list.rows.len() < limit as usize {
            list.rows.push(lister.build_row(read_stored_run(row)?)?);
        } else {
            list.more += 1;
        }
    }
    Ok(list)
}

/// Returns the frozen definition, and whether it matches its hash; none if there is none.
pub(crate) fn read_definition(db: &Connection, hash: ContentHash) -> rusqlite::Result<Option<(Vec<u8>, bool)>> {
    db.prepare_cached("SELECT frozen, content FROM definitions WHERE hash = ?1")?
        .query_row(params![hash.0], |row| {
            let (frozen, content): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let whole = ContentHash::hash_bytes(&frozen).0[..] == content;
            Ok((frozen, whole))
        })
        .optional()
}

/// A row as it is in the database.
struct StoredRun {
    key: i64,
    run: String,
    definition: Vec<u8>,
    settings: String,
    head: String,
    quarantined: Option<String>,
    owner: Option<String>,
    closed: bool,
}

fn read_stored_run(row: &Row) -> rusqlite::Result<StoredRun> {
    Ok(StoredRun {
        key: row.get(0)?,
        run: read_lossy_text(row, 1)?.unwrap_or_default(),
        definition: row.get(2)?,
        settings: read_lossy_text(row, 3)?.unwrap_or_default(),
        head: read_lossy_text(row, 4)?.unwrap_or_default(),
        quarantined: read_lossy_text(row, 5)?,
        owner: read_lossy_text(row, 6)?,
        closed: row.get(7)?,
    })
}

/// Reads text that may be invalid UTF-8: a damaged byte must not keep a list from being shown.
fn read_lossy_text(row: &Row, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null()?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// Builds rows for lists, and checks once per owner whether it is alive.
struct RunRowBuilder<'a> {
    db: &'a Connection,
    me: &'a LocalOwner,
    owners: HashMap<String, bool>,
}

impl<'a> RunRowBuilder<'a> {
    fn new(db: &'a Connection, me: &'a LocalOwner) -> RunRowBuilder<'a> {
        RunRowBuilder { db, me, owners: HashMap::new() }
    }

    fn build_row(&mut self, stored: StoredRun) -> rusqlite::Result<RunRow> {
        let owner = self.find_owner(&stored);
        let (mut bad, open) = self.read_waitpoints(stored.key)?;
        let run = RunId::new(&stored.run).unwrap_or_else(|_| {
            bad = Some("its name is damaged".into());
            RunId::new(format!("damaged-{}", stored.key)).expect("letters and digits are a name")
        });
        let head = serde_json::from_str(&stored.head).unwrap_or_else(|error| {
            bad = Some(format!("its list entry cannot be read: {error}"));
            unreadable_head(stored.closed)
        });
        let mut settings = serde_json::from_str(&stored.settings).unwrap_or_else(|error| {
            bad = Some(format!("its run settings cannot be read: {error}"));
            serde_json::Value::Null
        });
        relocate_paths(&mut settings, self.me.owners().state_folder());
        let definition = ContentHash(stored.definition.try_into().unwrap_or([0; 32]));
        Ok(RunRow { run, definition, about: settings, head, owner, open, quarantined: stored.quarantined.or(bad) })
    }

    fn find_owner(&mut self, stored: &StoredRun) -> RunOwner {
        let Some(id) = &stored.owner else { return RunOwner::Nobody };
        if id == self.me.id() {
            return RunOwner::Here;
        }
        let me = self.me;
        match *self.owners.entry(id.clone()).or_insert_with(|| me.owners().is_alive(id)) {
            true => RunOwner::Other(id.clone()),
            // A closed run has no owner, even if its owner had no time to release it.
            false if stored.closed => RunOwner::Nobody,
            false => RunOwner::Dead(id.clone()),
        }
    }

    /// Returns the readable waitpoints, and the error if some cannot be read.
    fn read_waitpoints(&self, key: i64) -> rusqlite::Result<(Option<String>, Vec<WaitpointRow>)> {
        let mut statement = self.db.prepare_cached("SELECT row FROM openings WHERE run = ?1 ORDER BY place")?;
        let (mut bad, mut open) = (None, Vec::new());
        for json in statement.query_map([key], |row| read_lossy_text(row, 0))? {
            match serde_json::from_str(&json?.unwrap_or_default()) {
                Ok(row) => open.push(row),
                Err(error) => bad = Some(format!("its waitpoints cannot be read: {error}")),
            }
        }
        Ok((bad, open))
    }
}

/// Returns the list entry of a run whose own entry is lost.
pub(super) fn unreadable_head(closed: bool) -> RunHead {
    RunHead {
        workflow: "?".into(),
        version: None,
        dialect: "?".into(),
        status: RunStatus::Failed,
        native_status: "?".into(),
        started_at: None,
        finished_at: None,
        closed,
        forked_from: None,
        cost: Default::default(),
    }
}

/// The field with the path of the state folder when the run was started.
const STATE: &str = "state";

/// Rewrites the stored paths of a run if its project is gone from the old place and the state folder was moved along.
fn relocate_paths(settings: &mut Value, state: &Path) {
    let Some(before) = settings.get(STATE).and_then(Value::as_str).map(str::to_owned) else { return };
    let Ok(now) = state.canonicalize() else { return };
    let before = Path::new(&before);
    let (Some(old), Some(new)) = (before.parent(), now.parent()) else { return };
    // A copy of the state folder alone belongs to the project that is still at the old place.
    let is_moved = old != new && before.file_name() == now.file_name() && !old.exists();
    if let (true, Some(old), Some(new)) = (is_moved, old.to_str(), new.to_str()) {
        rewrite_paths(settings, old, new);
    }
}

fn rewrite_paths(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) => {
            if let Some(moved) = moved_path(text, old, new) {
                *text = moved;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite_paths(item, old, new)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| rewrite_paths(field, old, new));
            let paths: Vec<String> = fields.keys().filter(|key| moved_path(key, old, new).is_some()).cloned().collect();
            for path in paths {
                if let (Some(field), Some(moved)) = (fields.remove(&path), moved_path(&path, old, new)) {
                    fields.insert(moved, field);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Maps a path below the old folder to the same path below the new one.
fn moved_path(path: &str, old: &str, new: &str) -> Option<String> {
    let rest = path.strip_prefix(old)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{new}{rest}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(root: &str) -> Value {
        json!({
            "state": format!("{root}/.skein"),
            "workspace": format!("{root}/part"),
            "beside": format!("{root}-other"),
            "pinned": {format!("{root}/tool.sh"): {"size": 3}},
        })
    }

    #[test]
    fn paths_lead_to_where_the_project_was_moved() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().canonicalize().unwrap();
        std::fs::create_dir(new.join(".skein")).unwrap();
        let mut moved = settings("/nowhere/before");
        relocate_paths(&mut moved, &new.join(".skein"));
        let new = new.to_str().unwrap();
        let mut expected = settings(new);
        expected["beside"] = json!("/nowhere/before-other");
        assert_eq!(moved, expected);
    }

    #[test]
    fn a_project_that_is_still_there_stays() {
        let (before, now) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(now.path().join(".skein")).unwrap();
        let mut kept = settings(before.path().to_str().unwrap());
        relocate_paths(&mut kept, &now.path().join(".skein"));
        assert_eq!(kept, settings(before.path().to_str().unwrap()));
    }
}
