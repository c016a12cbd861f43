//! The journal: rows of one run, of several at once, and of a resumed run, while other processes come and go and
//! checkpoint the log.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
};

use skein_core::{
    engine::{Event, JournalBatch},
    plan::ContentHash,
};
use skein_host::store::{SqliteStore, Store};

use super::{
    disk::{Disk, Rest},
    memory,
    trace::{Call, Moment, Trace},
};
use crate::{
    dice::Dice,
    store::{
        say,
        support::{Log, id},
    },
};

const BLOBS: u64 = 6;

/// Below folders that do not exist yet.
fn state(root: &Path) -> PathBuf {
    root.join("new/deep/state")
}

/// Returns the text of a run's row: sometimes short, sometimes several pages long.
fn text(run: &str, n: u64) -> String {
    let long = [10, 300, 3_000, 9_000][(n * 7 + run.len() as u64) as usize % 4];
    format!("{run} {n} {}", "x".repeat(long))
}

fn blob(n: u64) -> Vec<u8> {
    text("blob", n).into_bytes()
}

/// The process that loses power.
pub(crate) fn play(root: &Path) {
    let dir = state(root);
    let store = SqliteStore::open(&dir).unwrap();
    let mut one = begin(&store, "one");
    go_on(&store, "one", &mut one, 20);
    drop(store);

    let store = SqliteStore::open(&dir).unwrap();
    thread::scope(|scope| {
        for run in ["a", "b", "c", "d"] {
            let store = &store;
            scope.spawn(move || {
                let mut log = begin(store, run);
                go_on(store, run, &mut log, 12);
            });
        }
        // A process that leaves checkpoints the log into the database, while others write.
        scope.spawn(|| (0..4).for_each(|_| drop(SqliteStore::open(&dir).unwrap())));
        scope.spawn(|| {
            for n in 0..BLOBS {
                store.put_blob(&blob(n)).unwrap();
                say(&format!("blob {n}"));
            }
        });
    });
    drop(store);

    let store = SqliteStore::open(&dir).unwrap();
    let mut one = Log::claim(&store, "one");
    go_on(&store, "one", &mut one, 8);
}

fn begin(store: &SqliteStore, run: &str) -> Log {
    let log = Log::create(store, run);
    say(&format!("{run} 0"));
    log
}

fn go_on(store: &SqliteStore, run: &str, log: &mut Log, rows: u64) {
    for _ in 0..rows {
        log.append(store, &[&text(run, log.seq)]).unwrap();
        say(&format!("{run} {}", log.seq));
    }
}

/// The acknowledged number of rows of each run.
type Acknowledged = BTreeMap<String, u64>;

/// Opens the remaining state, and compares it with what was acknowledged.
fn look(root: &Path, acknowledged: &Acknowledged) -> Result<(), String> {
    let store = SqliteStore::open(state(root)).map_err(|error| format!("it cannot be opened: {error}"))?;
    let blobs = acknowledged.get("blob").map_or(0, |last| last + 1);
    for n in 0..blobs {
        store.get_blob(ContentHash::hash_bytes(&blob(n))).map_err(|error| format!("a value is gone: {error}"))?;
    }
    for run in ["one", "a", "b", "c", "d"] {
        let (told, there) = (acknowledged.get(run), store.find_run(&id(run)).map_err(|error| error.to_string())?);
        match (told, there) {
            (Some(_), None) => return Err(format!("the run {run} is gone")),
            (_, None) => continue,
            (_, Some(row)) if row.quarantined.is_some() => {
                return Err(format!("the run {run} was set aside"));
            }
            _ => {}
        }
        let (told, found) = (told.copied().unwrap_or(0), rows(&store, run)?);
        // One row more than acknowledged may have been written.
        if !(told..=told + 1).contains(&found) {
            return Err(format!("{run}: {told} rows were acknowledged, and {found} are there"));
        }
    }
    Ok(())
}

/// Returns the number of rows of a run, after checking the content and the order of each.
fn rows(store: &SqliteStore, run: &str) -> Result<u64, String> {
    let mut rows = Vec::new();
    let each = &mut |batch: JournalBatch| {
        rows.push(batch);
        true
    };
    store.read_journal(&id(run), 0, each).map_err(|error| format!("{run}: {error}"))?;
    let mut chain = ContentHash::ZERO;
    for (n, row) in (0..).zip(&rows) {
        let said = row.records.iter().map(|record| &record.event);
        let written = said.eq([&Event::Quarantined { message: text(run, n) }]);
        if !written || JournalBatch::new(n, chain, row.records.clone()).chain != row.chain {
            return Err(format!("{run}: the row {n} is not what was written"));
        }
        chain = row.chain;
    }
    Ok(rows.len() as u64)
}

/// Returns the power losses at a moment, each with the part of the unsynced data that is present.
fn losses(moment: Moment, trace: &Trace, some: u64, dice: &mut Dice) -> Vec<Rest> {
    let mut rests = match (moment, &trace.calls[&moment.number()]) {
        (Moment::Begins(_), Call::Say(_)) => vec![Rest::Nothing],
        (Moment::Begins(_), Call::Sync(_)) => vec![Rest::Some],
        (Moment::Ended(_), Call::Sync(_)) => vec![Rest::Nothing],
        _ => Vec::new(),
    };
    rests.extend((0..some / 100).map(|_| Rest::Some));
    rests.extend((dice.roll(100) < some % 100).then_some(Rest::Some));
    rests.extend((dice.roll(100) < 2).then_some(Rest::All));
    rests
}

/// Loses power at every sync and acknowledgement, and at other moments `some` times in a hundred. Returns the number of
/// losses.
fn lose(some: u64, seed: u64) -> usize {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().canonicalize().unwrap();
    let trace = Trace::of("power-journal", &path, &path);
    let left = memory();
    let left = left.path().join("left");
    let (mut disk, mut dice) = (Disk::new(&path), Dice(seed));
    let (mut acknowledged, mut count) = (Acknowledged::new(), 0);
    for (at, moment) in trace.moments.iter().enumerate() {
        if let Some((what, n)) = disk.follow(*moment, &trace).and_then(|said| said.split_once(' ')) {
            acknowledged.insert(what.to_owned(), n.parse().unwrap());
        }
        for rest in losses(*moment, &trace, some, &mut dice) {
            disk.save(&left, rest, &mut dice);
            if let Err(why) = look(&left, &acknowledged) {
                panic!("moment {at} of {}, {rest:?} of the rest, {acknowledged:?}: {why}", trace.moments.len());
            }
            count += 1;
        }
    }
    disk.is_like(&path);
    println!("the power went {count} times in {} moments", trace.moments.len());
    count
}

#[test]
fn what_was_acknowledged_survives_the_loss_of_power() {
    let count = lose(20, 7);
    assert!(count >= 500, "{count}");
}

#[test]
#[ignore = "takes minutes: many losses"]
fn many_losses_of_power_lose_nothing_that_was_acknowledged() {
    assert!(lose(400, 11) >= 10_000);
}
