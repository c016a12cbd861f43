//! Creation, claiming, release and quarantine of runs.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use skein_core::{ids::RunId, plan::ContentHash};

use super::{
    append::{build_journal_end, encode_records, insert_journal_row, insert_waitpoints},
    audit, dead_letter, find_run_key, to_sql_int,
};
use crate::store::{
    ClaimError, NewRun, RunClaim, StoreError,
    dead_letter::already_settled_error,
    sqlite::{
        acknowledged_ends::{JournalEnd, fits_entry},
        owner::{LocalOwner, process_label},
    },
};

/// A run to be created, and the events of its first row as they are stored.
pub(crate) struct RunCreation {
    new: NewRun,
    records: Vec<u8>,
}

impl RunCreation {
    pub(crate) fn new(new: NewRun) -> RunCreation {
        RunCreation { records: new.first.as_deref().map(encode_records).unwrap_or_default(), new }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.new.frozen.len() + self.records.len()
    }
}

/// The key of a new run, and the end of its journal.
pub(crate) type CreatedRun = (i64, Option<JournalEnd>);

/// Creates runs owned by this process and returns their keys. Nothing is written if one of them already exists.
pub(crate) fn create_runs(
    db: &Connection,
    me: &LocalOwner,
    new: &[RunCreation],
) -> rusqlite::Result<Result<Vec<CreatedRun>, StoreError>> {
    let mut names = BTreeSet::new();
    for RunCreation { new, .. } in new {
        if find_run_key(db, &new.run)?.is_some() || !names.insert(&new.run) {
            return Ok(Err(StoreError::Failed(format!("there is a run `{}` already", new.run))));
        }
    }
    let letters = || new.iter().flat_map(|new| &new.new.settles);
    for (id, _) in letters() {
        match dead_letter::find_settlement(db, id)? {
            Ok(None) => {}
            Ok(Some(before)) => return Ok(Err(already_settled_error(id, &before))),
            Err(error) => return Ok(Err(error)),
        }
    }
    for (id, settled) in letters() {
        // In the same transaction, so nothing came between.
        let _ = dead_letter::settle_dead_letter(db, id, settled)?;
    }
    let created = |creation: &RunCreation| {
        let new = &creation.new;
        let end = new.first.as_ref().filter(|_| fits_entry(&new.run)).map(|row| build_journal_end(&new.run, row));
        Ok((insert_run(db, me, creation)?, end))
    };
    Ok(Ok(new.iter().map(created).collect::<rusqlite::Result<_>>()?))
}

fn insert_run(db: &Connection, me: &LocalOwner, RunCreation { new, records }: &RunCreation) -> rusqlite::Result<i64> {
    db.prepare_cached("INSERT OR IGNORE INTO definitions (hash, content, frozen) VALUES (?1, ?2, ?3)")?
        .execute(params![new.definition.0, ContentHash::hash_bytes(&new.frozen).0, &*new.frozen])?;
    let head = serde_json::to_string(&new.head).expect("heads serialise to JSON");
    let started = new.head.started_at.map(|time| time.0);
    db.prepare_cached(
        "INSERT INTO runs (run, definition, about, head, status, closed, started)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        new.run.as_str(),
        new.definition.0,
        new.about.to_string(),
        head,
        new.head.status.as_str(),
        new.head.closed,
        started
    ])?;
    let key = db.last_insert_rowid();
    let events = new.first.as_ref().map_or(0, |row| row.records.len() as u64);
    db.prepare_cached("INSERT INTO fences (run, owner, epoch, events) VALUES (?1, ?2, 1, ?3)")?.execute(params![
        key,
        me.id(),
        to_sql_int(events)
    ])?;
    if let Some(row) = &new.first {
        insert_journal_row(db, key, row, records)?;
    }
    insert_waitpoints(db, key, &new.open)?;
    audit::append_audit(db, &new.audit)?;
    Ok(key)
}

/// The owner of a run, according to the database.
struct FenceRow {
    key: i64,
    owner: Option<String>,
    epoch: i64,
    quarantined: Option<String>,
}

fn read_fence(db: &Connection, run: &RunId) -> rusqlite::Result<Option<FenceRow>> {
    db.prepare_cached(
        "SELECT key, owner, epoch, quarantined FROM runs JOIN fences ON fences.run = key WHERE runs.run = ?1",
    )?
    .query_row([run.as_str()], |row| {
        Ok(FenceRow { key: row.get(0)?, owner: row.get(1)?, epoch: row.get(2)?, quarantined: row.get(3)? })
    })
    .optional()
}

/// Claims a run that has no living owner. Returns its key too.
pub(crate) fn claim_run(
    db: &Connection,
    me: &LocalOwner,
    run: &RunId,
) -> rusqlite::Result<Result<(i64, RunClaim), ClaimError>> {
    let Some(held) = read_fence(db, run)? else { return Ok(Err(ClaimError::Unknown(run.clone()))) };
    if let Some(why) = held.quarantined {
        return Ok(Err(ClaimError::Quarantined(why)));
    }
    match held.owner {
        Some(owner) if owner == me.id() => return Ok(Err(ClaimError::Owned("this process".into()))),
        Some(owner) if me.owners().is_alive(&owner) => {
            return Ok(Err(ClaimError::Owned(process_label(&owner))));
        }
        _ => {}
    }
    let epoch = held.epoch.saturating_add(1);
    db.prepare_cached("UPDATE fences SET owner = ?1, epoch = ?2 WHERE run = ?3")?.execute(params![
        me.id(),
        epoch,
        held.key
    ])?;
    let claim = RunClaim { run: run.clone(), epoch: u64::try_from(epoch).unwrap_or(0) };
    Ok(Ok((held.key, claim)))
}

pub(crate) fn release_run(db: &Connection, me: &LocalOwner, claim: &RunClaim) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE fences SET owner = NULL
         WHERE run = (SELECT key FROM runs WHERE run = ?1) AND owner = ?2 AND epoch = ?3",
    )?
    .execute(params![claim.run.as_str(), me.id(), to_sql_int(claim.epoch)])?;
    Ok(())
}

/// Quarantines a run and ends the claim to it. Returns the former owner, to notify it; none if there is no such run.
pub(crate) fn quarantine_run(db: &Connection, run: &RunId, why: &str) -> rusqlite::Result<Option<Option<String>>> {
    let Some(held) = read_fence(db, run)? else { return Ok(None) };
    // The first reason is the one that led to the others.
    db.prepare_cached("UPDATE runs SET quarantined = ifnull(quarantined, ?1) WHERE key = ?2")?
        .execute(params![why, held.key])?;
    db.prepare_cached("UPDATE fences SET owner = NULL, epoch = epoch + 1 WHERE run = ?1")?.execute([held.key])?;
    Ok(Some(held.owner))
}
