//! Runs come to be, change hands, and are set aside.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use skein_core::{ids::RunId, plan::Hash};

use super::{
    append::{insert_open, insert_row, journal_end, records},
    audit, dead, int, key,
};
use crate::store::{
    Claim, ClaimError, NewRun, StoreError,
    dead::seen_to,
    sqlite::{
        acknowledged::{JournalEnd, fits},
        owner::{Me, process},
    },
};

/// A run that is to be, and the events of its first row as they are stored.
pub struct Creation {
    new: NewRun,
    records: Vec<u8>,
}

impl Creation {
    pub fn new(new: NewRun) -> Creation {
        Creation { records: new.first.as_deref().map(records).unwrap_or_default(), new }
    }

    pub fn bytes(&self) -> usize {
        self.new.frozen.len() + self.records.len()
    }
}

/// The number of a new run, and the end of its journal.
pub type CreatedRun = (i64, Option<JournalEnd>);

/// New runs, owned by this process, and their numbers. Nothing is written if one of them is there already.
pub fn create(
    db: &Connection,
    me: &Me,
    new: &[Creation],
) -> rusqlite::Result<Result<Vec<CreatedRun>, StoreError>> {
    let mut names = BTreeSet::new();
    for Creation { new, .. } in new {
        if key(db, &new.run)?.is_some() || !names.insert(&new.run) {
            return Ok(Err(StoreError::Failed(format!("there is a run `{}` already", new.run))));
        }
    }
    let letters = || new.iter().flat_map(|new| &new.new.settles);
    for (id, _) in letters() {
        match dead::settled(db, id)? {
            Ok(None) => {}
            Ok(Some(before)) => return Ok(Err(seen_to(id, &before))),
            Err(error) => return Ok(Err(error)),
        }
    }
    for (id, settled) in letters() {
        // Nothing came between, in the same transaction.
        let _ = dead::settle(db, id, settled)?;
    }
    let created = |creation: &Creation| {
        let new = &creation.new;
        let end = new.first.as_ref().filter(|_| fits(&new.run)).map(|row| journal_end(&new.run, row));
        Ok((insert(db, me, creation)?, end))
    };
    Ok(Ok(new.iter().map(created).collect::<rusqlite::Result<_>>()?))
}

fn insert(db: &Connection, me: &Me, Creation { new, records }: &Creation) -> rusqlite::Result<i64> {
    db.prepare_cached("INSERT OR IGNORE INTO definitions (hash, content, frozen) VALUES (?1, ?2, ?3)")?
        .execute(params![new.definition.0, Hash::of(&new.frozen).0, &*new.frozen])?;
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
    db.prepare_cached("INSERT INTO fences (run, owner, epoch, events) VALUES (?1, ?2, 1, ?3)")?
        .execute(params![key, me.id(), int(events)])?;
    if let Some(row) = &new.first {
        insert_row(db, key, row, records)?;
    }
    insert_open(db, key, &new.open)?;
    audit::note(db, &new.audit)?;
    Ok(key)
}

/// Who has a run, as far as the database knows.
struct Held {
    key: i64,
    owner: Option<String>,
    epoch: i64,
    quarantined: Option<String>,
}

fn held(db: &Connection, run: &RunId) -> rusqlite::Result<Option<Held>> {
    db.prepare_cached(
        "SELECT key, owner, epoch, quarantined FROM runs JOIN fences ON fences.run = key WHERE runs.run = ?1",
    )?
    .query_row([run.as_str()], |row| {
        Ok(Held { key: row.get(0)?, owner: row.get(1)?, epoch: row.get(2)?, quarantined: row.get(3)? })
    })
    .optional()
}

/// Takes a run from nobody or from the dead, and gives its number too.
pub fn claim(db: &Connection, me: &Me, run: &RunId) -> rusqlite::Result<Result<(i64, Claim), ClaimError>> {
    let Some(held) = held(db, run)? else { return Ok(Err(ClaimError::Unknown(run.clone()))) };
    if let Some(why) = held.quarantined {
        return Ok(Err(ClaimError::Quarantined(why)));
    }
    match held.owner {
        Some(owner) if owner == me.id() => return Ok(Err(ClaimError::Owned("this process".into()))),
        Some(owner) if me.owners().lives(&owner) => return Ok(Err(ClaimError::Owned(process(&owner)))),
        _ => {}
    }
    let epoch = held.epoch.saturating_add(1);
    db.prepare_cached("UPDATE fences SET owner = ?1, epoch = ?2 WHERE run = ?3")?.execute(params![
        me.id(),
        epoch,
        held.key
    ])?;
    let claim = Claim { run: run.clone(), epoch: u64::try_from(epoch).unwrap_or(0) };
    Ok(Ok((held.key, claim)))
}

pub fn release(db: &Connection, me: &Me, claim: &Claim) -> rusqlite::Result<()> {
    db.prepare_cached(
        "UPDATE fences SET owner = NULL
         WHERE run = (SELECT key FROM runs WHERE run = ?1) AND owner = ?2 AND epoch = ?3",
    )?
    .execute(params![claim.run.as_str(), me.id(), int(claim.epoch)])?;
    Ok(())
}

/// Sets a run aside, and ends the claim to it. Gives who had it, to be told; none if there is no such run.
pub fn quarantine(db: &Connection, run: &RunId, why: &str) -> rusqlite::Result<Option<Option<String>>> {
    let Some(held) = held(db, run)? else { return Ok(None) };
    // The first reason is the one that led to the others.
    db.prepare_cached("UPDATE runs SET quarantined = ifnull(quarantined, ?1) WHERE key = ?2")?
        .execute(params![why, held.key])?;
    db.prepare_cached("UPDATE fences SET owner = NULL, epoch = epoch + 1 WHERE run = ?1")?
        .execute([held.key])?;
    Ok(Some(held.owner))
}
