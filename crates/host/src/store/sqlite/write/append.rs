//! The append of a journal row. The run's fence moves with it, or nothing is written.

use std::sync::Arc;

use rusqlite::{Connection, params};
use skein_core::{engine::JournalBatch, ids::RunId};

use super::{audit, dead_letter, request, to_sql_int};
use crate::store::{
    AppendCallback, AppendError, JournalAppend, WaitpointRow,
    sqlite::{
        acknowledged_ends::{JournalEnd, fits_entry},
        fault::WriteFault,
        inbox::HeldClaims,
        owner::LocalOwner,
        writer::DatabaseWrite,
    },
};

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
        audit::append_audit(db, &self.append.audit)?;
        dead_letter::insert_dead_letters(db, self.key, &self.append.dead)?;
        if let Some(retried) = self.append.retried {
            dead_letter::mark_retried(db, self.key, retried)?;
        }
        Ok(())
    }
}

/// Returns the end of a journal whose last row is `batch`.
pub(super) fn build_journal_end(run: &RunId, batch: &JournalBatch) -> JournalEnd {
    let events = batch.seq.saturating_add(batch.records.len() as u64);
    JournalEnd { run: run.clone(), events, chain: batch.chain }
}

/// Encodes the events of a row for the database.
pub(super) fn encode_records(batch: &JournalBatch) -> Vec<u8> {
    serde_json::to_vec(&batch.records).expect("records serialise to JSON")
}

pub(super) fn insert_journal_row(
    db: &Connection,
    key: i64,
    batch: &JournalBatch,
    records: &[u8],
) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO journal (run, seq, version, chain, records) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![key, to_sql_int(batch.seq), batch.version, batch.chain.0, records])?;
    Ok(())
}

pub(super) fn insert_waitpoints(db: &Connection, key: i64, open: &[WaitpointRow]) -> rusqlite::Result<()> {
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
            self.senders.extend(request::store_answer(db, *id, answer)?);
        }
        Ok(())
    }

    fn journal_ends(&self) -> Vec<JournalEnd> {
        let written = self.outcome.is_ok() && fits_entry(&self.append.claim.run);
        written.then(|| build_journal_end(&self.append.claim.run, &self.append.batch)).into_iter().collect()
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
