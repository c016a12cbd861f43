//! How fast it is, beside SQLite alone on the same disk at the same time.
//!
//! Run with `cargo test --release -p skein-host -- --ignored --nocapture speed`.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};
use skein_core::plan::Hash;
use skein_host::store::{NewRun, Sqlite, Store};

use super::super::support::{LONG, Log, new_run};

const ROWS: u32 = 500;

/// One row and one sync at a time, with SQLite alone.
fn raw_commits(path: &Path, text: &str) -> Duration {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE IF NOT EXISTS journal (row INTEGER PRIMARY KEY, run, seq, records);
         CREATE UNIQUE INDEX IF NOT EXISTS journal_seq ON journal (run, seq)",
    )
    .unwrap();
    let from: u32 = db.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap();
    let begun = Instant::now();
    for n in from..from + ROWS {
        db.prepare_cached("INSERT INTO journal (run, seq, records) VALUES (1, ?1, ?2)")
            .unwrap()
            .execute(params![n, text])
            .unwrap();
    }
    begun.elapsed() / ROWS
}

#[test]
#[ignore = "a measurement"]
fn one_append_costs_about_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(dir.path().join("state")).unwrap();
    let mut log = Log::create(&store, "r");
    let text = "x".repeat(240);
    for _ in 0..5 {
        let raw = raw_commits(&dir.path().join("raw.db"), &text);
        let begun = Instant::now();
        for _ in 0..ROWS {
            log.append(&store, &[&text]).unwrap();
        }
        let ours = begun.elapsed() / ROWS;
        println!("raw commit {raw:?}, append {ours:?}: {:.2} times", ours.as_secs_f64() / raw.as_secs_f64());
    }
}

/// A run that appends its next row as soon as the one before it is durable.
fn go_on(store: Arc<Sqlite>, mut log: Log, left: Arc<AtomicU64>, text: Arc<str>, ended: mpsc::Sender<()>) {
    if left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_err() {
        ended.send(()).unwrap();
        return;
    }
    let row = log.row(&[&text]);
    log.wrote(&row.batch.clone());
    let next = Arc::clone(&store);
    store.append(
        row,
        Box::new(move |outcome| {
            outcome.unwrap();
            go_on(next, log, left, text, ended);
        }),
    );
}

/// So many runs append so many rows in all, each its next as soon as it may.
fn append_all(dir: &Path, runs: usize, rows: u64, text: &str) -> (Duration, u64) {
    let store = Arc::new(Sqlite::open(dir).unwrap());
    let logs: Vec<_> = (0..runs).map(|n| Log::create(&*store, &format!("r{n}"))).collect();
    let left = Arc::new(AtomicU64::new(rows));
    let (ended, ends) = mpsc::channel();
    let text: Arc<str> = text.into();
    let begun = Instant::now();
    for log in logs {
        go_on(Arc::clone(&store), log, Arc::clone(&left), Arc::clone(&text), ended.clone());
    }
    for _ in 0..runs {
        ends.recv_timeout(10 * LONG).unwrap();
    }
    (begun.elapsed(), std::fs::metadata(dir.join("skein.db-wal")).unwrap().len())
}

#[test]
#[ignore = "a measurement"]
fn a_thousand_runs_share_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let rows = 300_000;
    let (took, log) = append_all(dir.path(), 1_000, rows, &"x".repeat(240));
    println!("{rows} rows in {took:?}: {:.0} a second, log {log} bytes", rows as f64 / took.as_secs_f64());
}

#[test]
fn the_log_begins_anew_though_someone_writes_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..25_u8 {
                    let frozen: Arc<[u8]> = vec![n; 1 << 20].into();
                    let (run, definition) = (format!("r{thread}-{n}"), Hash::of(&[thread, n]));
                    store.create(&[NewRun { definition, frozen, ..new_run(&run) }]).unwrap();
                }
            });
        }
    });
    let log = std::fs::metadata(dir.path().join("skein.db-wal")).unwrap().len();
    assert!(log < 140 << 20, "200 MiB were written, and the log has {log} bytes");
}
