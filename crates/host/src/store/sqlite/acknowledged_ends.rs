//! The last acknowledged end of each journal, kept in a file of its own.
//!
//! SQLite recovers its log up to the first damaged frame and does not report the rest. A flipped bit, a removed log, or
//! a database that was replaced by an older copy would therefore lose acknowledged rows unnoticed. After each commit
//! the ends of the journals that it changed are written to `acknowledged`, in the same turn, and a thread syncs them
//! shortly after. The file is never ahead of the database, because the database is synced first; a file that is ahead
//! means that rows were lost.
//!
//! Commits are recovered in order. So the last entry tells if anything is missing, and only then all are compared.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, OptionalExtension, params};
use skein_core::{ids::RunId, plan::ContentHash};

use super::{
    StoreOpenError,
    run_rows::unreadable_head,
    state_folder::{StateFolder, open_plain_file},
    write,
    writer::{BreakageReason, StoreThread},
};

const MAGIC: &[u8; 24] = b"skein acknowledged 1\n\0\0\0";
/// The header has a page of its own.
const HEADER_BYTES: u64 = 4096;
const ENTRY_BYTES: usize = 128;
/// The longest name of a run that fits an entry. Names that Skein chooses are far shorter.
const NAME_BYTES: usize = 79;
/// The number of entries from which the file is compacted, unless most belong to different runs.
const COMPACT_AT: u64 = 64 * 1024;
/// The minimum time between two syncs of the file, which must not slow those of the database.
const SYNC_PAUSE: Duration = Duration::from_millis(250);

/// The prefix of the quarantine reason of a run whose acknowledged rows are missing.
const SHORTENED: &str = "its journal is shortened";

/// True if a run was quarantined because acknowledged rows of its journal are missing.
pub fn is_shortened(reason: &str) -> bool {
    reason.starts_with(SHORTENED)
}

/// The end of a journal after a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JournalEnd {
    pub run: RunId,
    /// The number of events.
    pub events: u64,
    /// The hash of the last row.
    pub chain: ContentHash,
}

/// The file. Its user holds the write turn, so that no other process uses it.
#[derive(Debug)]
pub(super) struct AcknowledgedEnds {
    file: Arc<File>,
    compact_at: Cell<u64>,
    dirty: Option<SyncSender<()>>,
    syncer: StoreThread,
}

impl AcknowledgedEnds {
    /// Opens the file. If there is none, creates it from the content of the database.
    pub(super) fn open(
        place: &StateFolder,
        db: &Connection,
        broken: BreakageReason,
    ) -> Result<AcknowledgedEnds, StoreOpenError> {
        let path = place.acknowledged_path();
        let io = |error| StoreOpenError::Io { path: path.clone(), error };
        let file = Arc::new(open_plain_file(&path)?);
        let (dirty, woken) = sync_channel(1);
        let synced = Arc::clone(&file);
        let syncer = StoreThread::start("skein-acknowledged", move || sync_when_dirty(&synced, &woken, &broken));
        let ends = AcknowledgedEnds {
            file,
            compact_at: Cell::new(COMPACT_AT),
            dirty: Some(dirty),
            syncer: syncer.map_err(io)?,
        };
        if ends.file.metadata().map_err(io)?.len() == 0 {
            let all =
                read_all_ends(db).map_err(|error| StoreOpenError::Database { path: place.database_path(), error })?;
            ends.record_ends(&all).map_err(io)?;
        }
        Ok(ends)
    }

    /// Adds the journal ends that a durable commit changed. On a full disk nothing is added: then fewer ends are
    /// recorded than were acknowledged, and no run is quarantined for it.
    pub(super) fn record_ends(&self, ends: &[JournalEnd]) -> io::Result<()> {
        let recorded = self.write_entries(ends);
        if let Some(dirty) = &self.dirty {
            // A pending wake-up covers this one too.
            let _ = dirty.try_send(());
        }
        match recorded {
            Err(error) if is_out_of_space(&error) => Ok(()),
            recorded => recorded,
        }
    }

    fn write_entries(&self, ends: &[JournalEnd]) -> io::Result<()> {
        let count = self.entry_count()?;
        let entries: Vec<u8> = (count..).zip(ends).flat_map(|(index, end)| encode_entry(index, end)).collect();
        self.file.write_all_at(&entries, entry_offset(count))?;
        let count = count + ends.len() as u64;
        self.write_count(count)?;
        if count >= self.compact_at.get() {
            self.compact()?;
        }
        Ok(())
    }

    fn write_count(&self, count: u64) -> io::Result<()> {
        self.file.write_all_at(&encode_header(count), 0)
    }

    /// The number of entries. If the header is damaged, the number of valid entries from the beginning on.
    fn entry_count(&self) -> io::Result<u64> {
        let mut header = [0; 40];
        let read = read_at_most(&self.file, &mut header, 0)?;
        if let Some(count) = decode_header(&header[..read]) {
            return Ok(count);
        }
        let bytes = self.file.metadata()?.len().saturating_sub(HEADER_BYTES);
        let most = bytes / ENTRY_BYTES as u64;
        Ok((0..most).find(|index| !matches!(self.read_entry(*index), Ok(Some(_)))).unwrap_or(most))
    }

    fn read_entry(&self, index: u64) -> io::Result<Option<JournalEnd>> {
        let mut bytes = [0; ENTRY_BYTES];
        let read = read_at_most(&self.file, &mut bytes, entry_offset(index))?;
        Ok((read == ENTRY_BYTES).then(|| decode_entry(index, &bytes)).flatten())
    }

    /// The furthest end of each run. Damaged entries are skipped.
    fn furthest_ends(&self) -> io::Result<BTreeMap<RunId, JournalEnd>> {
        let mut furthest: BTreeMap<RunId, JournalEnd> = BTreeMap::new();
        for index in 0..self.entry_count()? {
            let Some(end) = self.read_entry(index)? else { continue };
            match furthest.get(&end.run) {
                Some(known) if known.events >= end.events => {}
                _ => drop(furthest.insert(end.run.clone(), end)),
            }
        }
        Ok(furthest)
    }

    /// Keeps one entry of each run. A crash in the middle leaves duplicate entries.
    fn compact(&self) -> io::Result<()> {
        let furthest = self.furthest_ends()?;
        self.rewrite_entries(furthest.values())
    }

    fn rewrite_entries<'a>(&self, ends: impl Iterator<Item = &'a JournalEnd>) -> io::Result<()> {
        let ends: Vec<&JournalEnd> = ends.collect();
        let entries: Vec<u8> = (0..).zip(&ends).flat_map(|(index, end)| encode_entry(index, end)).collect();
        self.file.write_all_at(&entries, entry_offset(0))?;
        self.file.sync_data()?;
        let count = ends.len() as u64;
        self.write_count(count)?;
        self.compact_at.set(count.saturating_mul(2).max(COMPACT_AT));
        self.file.set_len(entry_offset(count))
    }

    /// Forgets a run, because a person accepts that its journal is shortened.
    pub(super) fn forget_run(&self, run: &RunId) -> io::Result<()> {
        let mut furthest = self.furthest_ends()?;
        furthest.remove(run);
        self.rewrite_entries(furthest.values())
    }

    /// Quarantines the runs whose acknowledged rows are missing. A missing run is first inserted again by name.
    pub(super) fn quarantine_shortened(&self, place: &StateFolder, db: &mut Connection) -> Result<(), StoreOpenError> {
        let io = |error| StoreOpenError::Io { path: place.acknowledged_path(), error };
        let database = |error| StoreOpenError::Database { path: place.database_path(), error };
        let count = self.entry_count().map_err(io)?;
        let last = count.checked_sub(1).map_or(Ok(None), |last| self.read_entry(last)).map_err(io)?;
        if let Some(last) = &last
            && has_journal_end(db, last).map_err(database)?
        {
            return Ok(());
        }
        let mut shortened = Vec::new();
        for acknowledged in self.furthest_ends().map_err(io)?.into_values() {
            let known = is_quarantined(db, &acknowledged.run).map_err(database)?;
            if !known && !has_journal_end(db, &acknowledged).map_err(database)? {
                let found = count_events(db, &acknowledged.run).map_err(database)?;
                shortened.push((acknowledged, found));
            }
        }
        if shortened.is_empty() {
            return Ok(());
        }
        let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(database)?;
        for (acknowledged, found) in &shortened {
            quarantine_journal(&tx, acknowledged, *found).map_err(database)?;
        }
        tx.commit().map_err(database)
    }
}

impl Drop for AcknowledgedEnds {
    fn drop(&mut self) {
        self.dirty = None;
        self.syncer.join();
    }
}

fn sync_when_dirty(file: &File, woken: &Receiver<()>, broken: &BreakageReason) {
    let sync = || {
        if let Err(error) = file.sync_data()
            && !is_out_of_space(&error)
        {
            let _ = broken.set(format!("the file of acknowledged rows cannot be synced: {error}"));
        }
    };
    while woken.recv().is_ok() {
        sync();
        // Entries that arrive meanwhile are synced at the end of the pause, or when the store is closed.
        let mut dirty = false;
        let until = Instant::now() + SYNC_PAUSE;
        let closed = loop {
            match woken.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(()) => dirty = true,
                Err(RecvTimeoutError::Timeout) => break false,
                Err(RecvTimeoutError::Disconnected) => break true,
            }
        };
        if dirty {
            sync();
        }
        if closed {
            return;
        }
    }
}

fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn entry_offset(index: u64) -> u64 {
    HEADER_BYTES + index * ENTRY_BYTES as u64
}

fn read_at_most(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn checksum(parts: &[&[u8]]) -> [u8; 8] {
    let hash = ContentHash::hash_bytes(&parts.concat());
    hash.0[..8].try_into().expect("a hash is longer")
}

fn encode_header(count: u64) -> [u8; 40] {
    let mut header = [0; 40];
    header[..24].copy_from_slice(MAGIC);
    header[24..32].copy_from_slice(&count.to_le_bytes());
    let sum = checksum(&[&header[..32]]);
    header[32..].copy_from_slice(&sum);
    header
}

fn decode_header(header: &[u8]) -> Option<u64> {
    let whole = header.len() == 40 && header.starts_with(MAGIC) && header[32..] == checksum(&[&header[..32]]);
    whole.then(|| header[24..32].try_into().ok().map(u64::from_le_bytes))?
}

/// Encodes an entry. The checksum covers its index, so that an entry left at another index is not accepted for it.
fn encode_entry(index: u64, end: &JournalEnd) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    let name = end.run.as_str().as_bytes();
    let name = &name[..name.len().min(NAME_BYTES)];
    entry[0] = u8::try_from(name.len()).unwrap_or(0);
    entry[1..=name.len()].copy_from_slice(name);
    entry[80..88].copy_from_slice(&end.events.to_le_bytes());
    entry[88..120].copy_from_slice(&end.chain.0);
    let sum = checksum(&[&index.to_le_bytes(), &entry[..120]]);
    entry[120..].copy_from_slice(&sum);
    entry
}

fn decode_entry(index: u64, entry: &[u8; ENTRY_BYTES]) -> Option<JournalEnd> {
    if entry[120..] != checksum(&[&index.to_le_bytes(), &entry[..120]]) {
        return None;
    }
    let name = std::str::from_utf8(entry.get(1..=usize::from(entry[0]))?).ok()?;
    let events = u64::from_le_bytes(entry[80..88].try_into().ok()?);
    Some(JournalEnd { run: RunId::new(name).ok()?, events, chain: ContentHash(entry[88..120].try_into().ok()?) })
}

/// True if the run's name fits an entry.
pub(super) fn fits_entry(run: &RunId) -> bool {
    run.as_str().len() <= NAME_BYTES
}

fn read_all_ends(db: &Connection) -> rusqlite::Result<Vec<JournalEnd>> {
    let mut statement = db.prepare(
        "SELECT runs.run, events, chain FROM runs JOIN fences ON fences.run = key
         JOIN journal ON journal.run = key
         WHERE seq = (SELECT max(seq) FROM journal WHERE run = key) AND quarantined IS NULL ORDER BY key",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut ends = Vec::new();
    for row in rows {
        let (run, events, chain): (String, i64, Vec<u8>) = row?;
        // Rows that are already damaged are reported when they are read.
        let end = RunId::new(run).ok().zip(u64::try_from(events).ok()).zip(chain.try_into().ok());
        ends.extend(end.map(|((run, events), chain)| JournalEnd { run, events, chain: ContentHash(chain) }));
    }
    ends.retain(|end| fits_entry(&end.run));
    Ok(ends)
}

/// True if the journal still contains the row of this end.
fn has_journal_end(db: &Connection, end: &JournalEnd) -> rusqlite::Result<bool> {
    let Some(key) = write::find_run_key(db, &end.run)? else { return Ok(false) };
    let chain: Option<Vec<u8>> = db
        .prepare_cached("SELECT chain FROM journal WHERE run = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT 1")?
        .query_row(params![key, write::to_sql_int(end.events)], |row| row.get(0))
        .optional()?;
    let events = count_events(db, &end.run)?.unwrap_or(0);
    Ok(events >= end.events && (end.events == 0 || chain.is_some_and(|chain| chain == end.chain.0)))
}

fn is_quarantined(db: &Connection, run: &RunId) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT 1 FROM runs WHERE run = ?1 AND quarantined IS NOT NULL")?.exists([run.as_str()])
}

fn count_events(db: &Connection, run: &RunId) -> rusqlite::Result<Option<u64>> {
    let events: Option<i64> = db
        .prepare_cached("SELECT events FROM fences JOIN runs ON runs.key = fences.run WHERE runs.run = ?1")?
        .query_row([run.as_str()], |row| row.get(0))
        .optional()?;
    Ok(events.map(|events| u64::try_from(events).unwrap_or(0)))
}

/// Quarantines a run whose journal has fewer rows than were acknowledged. `found` is the number of its events, or none if
/// the run itself is missing.
fn quarantine_journal(db: &Connection, acknowledged: &JournalEnd, found: Option<u64>) -> rusqlite::Result<()> {
    let JournalEnd { run, events, .. } = acknowledged;
    let why = match found {
        Some(found) if found >= *events => {
            format!("{SHORTENED}: event {events} is not the one that was acknowledged")
        }
        Some(found) => format!("{SHORTENED}: {events} events were acknowledged, but only {found} exist"),
        None => format!("{SHORTENED}: {events} events were acknowledged, but the run is missing"),
    };
    if write::quarantine_run(db, run, &why)?.is_some() {
        return Ok(());
    }
    let head = serde_json::to_string(&unreadable_head(false)).expect("heads serialise to JSON");
    db.execute(
        "INSERT INTO runs (run, definition, about, head, status, closed, quarantined)
         VALUES (?1, zeroblob(32), 'null', ?2, 'failed', 0, ?3)",
        params![run.as_str(), head, why],
    )?;
    db.execute("INSERT INTO fences (run, owner, epoch, events) VALUES (?1, NULL, 0, 0)", [db.last_insert_rowid()])?;
    Ok(())
}

/// Accepts, on a person's decision, that the journal of a run is shortened. Returns true if the run has events to
/// resume from, and none if it was not quarantined for that reason.
pub(super) fn accept_shortened(db: &Connection, run: &RunId) -> rusqlite::Result<Option<bool>> {
    let found: Option<(i64, Option<String>, i64)> = db
        .prepare_cached(
            "SELECT key, quarantined, events FROM runs JOIN fences ON fences.run = key WHERE runs.run = ?1",
        )?
        .query_row([run.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((key, Some(why), events)) = found else { return Ok(None) };
    if !is_shortened(&why) {
        return Ok(None);
    }
    if events == 0 {
        db.execute("DELETE FROM fences WHERE run = ?1", [key])?;
        db.execute("DELETE FROM runs WHERE key = ?1", [key])?;
        return Ok(Some(false));
    }
    db.execute("UPDATE runs SET quarantined = NULL WHERE key = ?1", [key])?;
    Ok(Some(true))
}

/// The runs that are quarantined because their journals are shortened, and the reasons.
pub(super) fn list_shortened(db: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    db.prepare("SELECT run, quarantined FROM runs WHERE quarantined LIKE ?1 || '%' ORDER BY key")?
        .query_map([SHORTENED], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(run: &str, events: u64) -> JournalEnd {
        JournalEnd { run: RunId::new(run).unwrap(), events, chain: ContentHash::hash_bytes(&events.to_le_bytes()) }
    }

    fn place() -> (tempfile::TempDir, StateFolder, Connection) {
        let dir = tempfile::tempdir().unwrap();
        let place = StateFolder::prepare(&dir.path().join("state")).unwrap();
        place.make_database(super::super::schema::create_database).unwrap();
        let db = super::super::schema::connect(&place).unwrap();
        (dir, place, db)
    }

    #[test]
    fn the_furthest_end_of_each_run_is_remembered() {
        let (_dir, place, db) = place();
        let ends = AcknowledgedEnds::open(&place, &db, BreakageReason::default()).unwrap();
        ends.record_ends(&[end("a", 1), end("b", 2)]).unwrap();
        ends.record_ends(&[end("a", 5)]).unwrap();
        let all: Vec<_> = ends.furthest_ends().unwrap().into_values().collect();
        assert_eq!(all, [end("a", 5), end("b", 2)]);
        ends.compact().unwrap();
        assert_eq!(ends.entry_count().unwrap(), 2);
        ends.forget_run(&RunId::new("a").unwrap()).unwrap();
        drop(ends);
        let again = AcknowledgedEnds::open(&place, &db, BreakageReason::default()).unwrap();
        assert_eq!(again.furthest_ends().unwrap().into_values().collect::<Vec<_>>(), [end("b", 2)]);
    }

    #[test]
    fn a_damaged_file_forgets_what_is_damaged_and_nothing_else() {
        let (_dir, place, db) = place();
        let ends = AcknowledgedEnds::open(&place, &db, BreakageReason::default()).unwrap();
        ends.record_ends(&[end("a", 1), end("b", 2), end("c", 3)]).unwrap();
        let path = place.acknowledged_path();
        let whole = std::fs::read(&path).unwrap();
        for at in (0..40).chain(4096..whole.len()) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            std::fs::write(&path, &bytes).unwrap();
            let kept = ends.furthest_ends().unwrap();
            assert!(kept.len() >= 2, "{at}: {kept:?}");
            assert!(kept.values().all(|it| [end("a", 1), end("b", 2), end("c", 3)].contains(it)), "{at}");
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(ends.furthest_ends().unwrap().len(), 2);
    }
}
