//! The writes: runs, appends to journals, requests, dead letters and audit records. Everything here runs in a
//! transaction of the [`writer`](super::writer).
//!
//! An append moves the fence of its run, or nothing is written. All processes share one chain of audit records, which
//! continues from the end that the transaction finds.

use std::{collections::BTreeSet, sync::Arc};

use rusqlite::{Connection, OptionalExtension, params};
use skein_core::{
    engine::JournalBatch,
    ids::RunId,
    plan::ContentHash,
    time::{Millis, Timestamp},
};

use crate::{
    audit::{AuditChain, AuditEntry},
    store::{
        AppendCallback, AppendError, ClaimError, DeadLetterId, DeadLetterRow, DeadLetterSettlement, InboxRequestId,
        JournalAppend, NewRun, RunClaim, StoreError, WaitpointRow, already_settled_error, request_limit_error,
        sqlite::{
            acknowledged_ends::{JournalEnd, fits_entry},
            error::WriteFault,
            inbox::HeldClaims,
            owner::{LocalOwner, process_label},
            writer::{DatabaseWrite, JournalChanges},
        },
    },
};

/// Returns the key of a run in this database.
pub(super) fn find_run_key(db: &Connection, run: &RunId) -> rusqlite::Result<Option<i64>> {
    db.prepare_cached("SELECT key FROM runs WHERE run = ?1")?.query_row([run.as_str()], |row| row.get(0)).optional()
}

/// Converts a count, which is far below the range of SQLite's signed integers.
pub(super) fn to_sql_int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) struct AppendWrite {
    append: JournalAppend,
    /// The key of the run in this database.
    key: i64,
    me: Arc<LocalOwner>,
    held: Arc<HeldClaims>,
    records: Vec<u8>,
    outcome: Result<(), AppendError>,
    /// The processes that wait for the answers.
    senders: Vec<String>,
    done: AppendCallback,
}

impl AppendWrite {
    pub(crate) fn new(
        append: JournalAppend,
        key: i64,
        me: Arc<LocalOwner>,
        held: Arc<HeldClaims>,
        done: AppendCallback,
    ) -> AppendWrite {
        let records = encode_records(&append.batch);
        if append.last {
            // The claim is forgotten first, so that it is not reported as lost.
            held.remove(&append.claim);
        }
        AppendWrite { append, key, me, held, records, outcome: Ok(()), senders: Vec::new(), done }
    }

    /// Moves the fence past this row. Returns false if the run has another owner, epoch or number of events.
    fn pass_fence(&self, db: &Connection) -> rusqlite::Result<bool> {
        let batch = &self.append.batch;
        let next = batch.seq.saturating_add(batch.records.len() as u64);
        let moved = db
            .prepare_cached(
                "UPDATE fences SET events = ?1, owner = ?6
                 WHERE run = ?2 AND epoch = ?3 AND events = ?4 AND owner = ?5",
            )?
            .execute(params![
                to_sql_int(next),
                self.key,
                to_sql_int(self.append.claim.epoch),
                to_sql_int(batch.seq),
                self.me.id(),
                (!self.append.last).then(|| self.me.id()),
            ])?;
        Ok(moved == 1)
    }

    fn write_projections(&self, db: &Connection) -> rusqlite::Result<()> {
        if let Some(head) = &self.append.head {
            let json = serde_json::to_string(head).expect("heads serialise to JSON");
            let started = head.started_at.map(|time| time.0);
            db.prepare_cached("UPDATE runs SET head = ?1, status = ?2, closed = ?3, started = ?4 WHERE key = ?5")?
                .execute(params![json, head.status.as_str(), head.closed, started, self.key])?;
        }
        if let Some(open) = &self.append.open {
            db.prepare_cached("DELETE FROM openings WHERE run = ?1")?.execute([self.key])?;
            insert_waitpoints(db, self.key, open)?;
        }
        append_audit(db, &self.append.audit)?;
        insert_dead_letters(db, self.key, &self.append.dead)?;
        if let Some(retried) = self.append.retried {
            mark_retried(db, self.key, retried)?;
        }
        Ok(())
    }
}

/// Returns the end of a journal whose last row is `batch`.
fn build_journal_end(run: &RunId, batch: &JournalBatch) -> JournalEnd {
    let events = batch.seq.saturating_add(batch.records.len() as u64);
    JournalEnd { run: run.clone(), events, chain: batch.chain }
}

/// Encodes the events of a row for the database.
fn encode_records(batch: &JournalBatch) -> Vec<u8> {
    serde_json::to_vec(&batch.records).expect("records serialise to JSON")
}

fn insert_journal_row(db: &Connection, key: i64, batch: &JournalBatch, records: &[u8]) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO journal (run, seq, version, chain, records) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![key, to_sql_int(batch.seq), batch.version, batch.chain.0, records])?;
    Ok(())
}

fn insert_waitpoints(db: &Connection, key: i64, open: &[WaitpointRow]) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached("INSERT INTO openings (run, place, row) VALUES (?1, ?2, ?3)")?;
    for (place, row) in (0_i64..).zip(open) {
        let json = serde_json::to_string(row).expect("open rows serialise to JSON");
        insert.execute(params![key, place, json])?;
    }
    Ok(())
}

impl DatabaseWrite for AppendWrite {
    fn bytes(&self) -> usize {
        self.records.len()
    }

    fn is_urgent(&self) -> bool {
        self.append.urgent
    }

    fn write(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if !self.pass_fence(db)? {
            self.outcome = Err(AppendError::Lost);
            return Ok(());
        }
        self.outcome = Ok(());
        insert_journal_row(db, self.key, &self.append.batch, &self.records)?;
        self.write_projections(db)?;
        self.senders.clear();
        for (id, answer) in &self.append.answers {
            self.senders.extend(store_answer(db, *id, answer)?);
        }
        Ok(())
    }

    fn journal_changes(&self) -> JournalChanges {
        let written = self.outcome.is_ok() && fits_entry(&self.append.claim.run);
        let end = written.then(|| build_journal_end(&self.append.claim.run, &self.append.batch));
        JournalChanges { ends: end.into_iter().collect(), accepted: None }
    }

    fn complete(self: Box<Self>, outcome: Result<(), WriteFault>) {
        let AppendWrite { append, key, me, held, outcome: own, senders, done, .. } = *self;
        let outcome = outcome.map_err(AppendError::from).and(own);
        if append.last && outcome == Err(AppendError::NoSpace) {
            // The append will be submitted again.
            held.insert(key, &append.claim);
        }
        if outcome.is_ok() {
            senders.iter().for_each(|sender| me.owners().wake(sender));
        }
        // The callback may drop the store, and then nothing here must keep its lock.
        drop((me, held));
        done(outcome);
    }
}

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

fn insert_dead_letters(db: &Connection, run: i64, dead: &[DeadLetterRow]) -> rusqlite::Result<()> {
    let mut insert = db.prepare_cached("INSERT INTO dead (run, number, row) VALUES (?1, ?2, ?3)")?;
    for row in dead {
        let json = serde_json::to_string(row).expect("dead letters serialise to JSON");
        insert.execute(params![run, to_sql_int(row.number), json])?;
    }
    Ok(())
}

/// Marks the unsettled dead letters of a run as covered by its retry, or takes the mark back.
fn mark_retried(db: &Connection, run: i64, retried: bool) -> rusqlite::Result<()> {
    let left = encode_settlement(&DeadLetterSettlement::RETRIED);
    let sql = match retried {
        true => "UPDATE dead SET settled = ?2 WHERE run = ?1 AND settled IS NULL",
        false => "UPDATE dead SET settled = NULL WHERE run = ?1 AND settled = ?2",
    };
    db.prepare_cached(sql)?.execute(params![run, left])?;
    Ok(())
}

/// Returns the settlement of a dead letter, if it has one.
fn find_settlement(
    db: &Connection,
    id: &DeadLetterId,
) -> rusqlite::Result<Result<Option<DeadLetterSettlement>, StoreError>> {
    let found: Option<Option<String>> = db
        .prepare_cached("SELECT settled FROM dead WHERE run = (SELECT key FROM runs WHERE run = ?1) AND number = ?2")?
        .query_row(params![id.run.as_str(), to_sql_int(id.number)], |row| row.get(0))
        .optional()?;
    Ok(match found {
        None => Err(StoreError::Failed(format!("there is no dead letter `{id}`"))),
        Some(None) => Ok(None),
        Some(Some(text)) => serde_json::from_str(&text).map(Some).map_err(|error| {
            StoreError::Damaged(format!("the settlement of dead letter `{id}` cannot be read: {error}"))
        }),
    })
}

/// Settles a dead letter unless it is settled. Returns the earlier settlement.
pub(crate) fn settle_dead_letter(
    db: &Connection,
    id: &DeadLetterId,
    now: &DeadLetterSettlement,
) -> rusqlite::Result<Result<Option<DeadLetterSettlement>, StoreError>> {
    let before = find_settlement(db, id)?;
    if before == Ok(None) {
        db.prepare_cached(
            "UPDATE dead SET settled = ?3 WHERE run = (SELECT key FROM runs WHERE run = ?1) AND number = ?2",
        )?
        .execute(params![id.run.as_str(), to_sql_int(id.number), encode_settlement(now)])?;
    }
    Ok(before)
}

fn encode_settlement(settled: &DeadLetterSettlement) -> String {
    serde_json::to_string(settled).expect("settlements serialise to JSON")
}

/// Answered requests are kept this long, for a sender that asks late.
const KEPT: Millis = Millis::from_hours(7 * 24);

/// Inserts a request. Returns its id and the owner of the run.
pub(crate) fn insert_request(
    db: &Connection,
    me: &LocalOwner,
    run: &RunId,
    body: &[u8],
    now: Timestamp,
) -> rusqlite::Result<Result<(InboxRequestId, Option<String>), StoreError>> {
    let Some(key) = find_run_key(db, run)? else { return Ok(Err(StoreError::Unknown(run.clone()))) };
    let waiting: i64 = db
        .prepare_cached("SELECT count(*) FROM letters WHERE run = ?1 AND answer IS NULL")?
        .query_row([key], |row| row.get(0))?;
    if let Some(refusal) = request_limit_error(run, usize::try_from(waiting).unwrap_or(0), body.len()) {
        return Ok(Err(refusal));
    }
    db.prepare_cached("INSERT INTO letters (run, sender, sent, body) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
        key,
        me.id(),
        now.0,
        body
    ])?;
    let id = InboxRequestId(u64::try_from(db.last_insert_rowid()).unwrap_or(0));
    drop_old_requests(db, now)?;
    let owner =
        db.prepare_cached("SELECT owner FROM fences WHERE run = ?1")?.query_row([key], |row| row.get(0)).optional()?;
    Ok(Ok((id, owner.flatten())))
}

/// Deletes old answered requests, a few at a time, with each insertion.
fn drop_old_requests(db: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let kept = i64::try_from(KEPT.0).unwrap_or(i64::MAX);
    db.prepare_cached(
        "DELETE FROM letters WHERE id IN
         (SELECT id FROM letters WHERE answer IS NOT NULL AND sent < ?1 ORDER BY sent LIMIT 100)",
    )?
    .execute([now.0.saturating_sub(kept)])?;
    Ok(())
}

/// Answers a request and returns its sender; none if it was answered already or does not exist.
fn store_answer(db: &Connection, request: InboxRequestId, answer: &[u8]) -> rusqlite::Result<Option<String>> {
    db.prepare_cached("UPDATE letters SET answer = ?1 WHERE id = ?2 AND answer IS NULL RETURNING sender")?
        .query_row(params![answer, to_sql_int(request.0)], |row| row.get(0))
        .optional()
}

/// Answers a request that led to no append. Returns the process to wake, if any; none if there is no such request.
pub(crate) fn answer_request(
    db: &Connection,
    request: InboxRequestId,
    answer: &[u8],
) -> rusqlite::Result<Option<Option<String>>> {
    if let Some(sender) = store_answer(db, request, answer)? {
        return Ok(Some(Some(sender)));
    }
    let known = db.prepare_cached("SELECT 1 FROM letters WHERE id = ?1")?.exists([to_sql_int(request.0)])?;
    Ok(known.then_some(None))
}

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
    let settlements = || new.iter().flat_map(|new| &new.new.settles);
    for (id, _) in settlements() {
        match find_settlement(db, id)? {
            Ok(None) => {}
            Ok(Some(before)) => return Ok(Err(already_settled_error(id, &before))),
            Err(error) => return Ok(Err(error)),
        }
    }
    for (id, settled) in settlements() {
        // In the same transaction, so nothing came between.
        let _ = settle_dead_letter(db, id, settled)?;
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
    append_audit(db, &new.audit)?;
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
