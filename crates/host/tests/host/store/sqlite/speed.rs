//! The speed of the store, compared with SQLite alone on the same disk at the same time.
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
use skein_core::plan::ContentHash;
use skein_host::store::{NewRun, RunSelection, SqliteStore, Store};

use super::super::support::{LONG, Log, new_run};

/// A table like the journal's, written with SQLite alone.
fn raw_table(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE journal (row INTEGER PRIMARY KEY, run, seq, records);
         CREATE UNIQUE INDEX journal_seq ON journal (run, seq)",
    )
    .unwrap();
    db
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement"]
fn one_append_costs_about_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("state")).unwrap();
    let mut log = Log::create(&store, "r");
    let db = raw_table(&dir.path().join("raw.db"));
    let text = "x".repeat(240);
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    // Alternating, so that other disk activity slows both.
    for n in 0..3_000 {
        let begun = Instant::now();
        let insert = "INSERT INTO journal (run, seq, records) VALUES (1, ?1, ?2)";
        db.prepare_cached(insert).unwrap().execute(params![n, text]).unwrap();
        raw.push(begun.elapsed());
        let begun = Instant::now();
        log.append(&store, &[&text]).unwrap();
        ours.push(begun.elapsed());
    }
    let (raw, ours) = (median(&mut raw), median(&mut ours));
    println!("raw commit {raw:?}, append {ours:?}: {:.2} times", ours.as_secs_f64() / raw.as_secs_f64());
}

/// A run that appends its next row as soon as the previous one is durable.
fn go_on(store: Arc<SqliteStore>, mut log: Log, left: Arc<AtomicU64>, text: Arc<str>, ended: mpsc::Sender<()>) {
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

/// Appends `rows` rows in total to `runs` runs, each as soon as possible.
fn append_all(dir: &Path, runs: usize, rows: u64, text: &str) -> (Duration, u64) {
    let store = Arc::new(SqliteStore::open(dir).unwrap());
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

/// A13: many runs in the store slow down neither opening it nor listing them.
#[test]
#[ignore = "a measurement"]
fn ten_thousand_runs_are_opened_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let runs: Vec<NewRun> = (0..10_000).map(|n| new_run(&format!("r{n}"))).collect();
    store.create_runs(&runs).unwrap();
    drop(store);
    let begun = Instant::now();
    let store = SqliteStore::open(dir.path()).unwrap();
    let opened = begun.elapsed();
    let newest = store.select_runs(RunSelection::Newest(20)).unwrap().len();
    let listed = begun.elapsed() - opened;
    let all = store.select_runs(RunSelection::Newest(u32::MAX)).unwrap().len();
    let took = begun.elapsed() - opened - listed;
    println!("opened in {opened:?}, {newest} listed in {listed:?}, {all} in {took:?}");
    assert_eq!((newest, all), (20, 10_000));
}

#[test]
fn the_log_begins_anew_though_someone_writes_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..25_u8 {
                    let frozen: Arc<[u8]> = vec![n; 1 << 20].into();
                    let (run, definition) = (format!("r{thread}-{n}"), ContentHash::hash_bytes(&[thread, n]));
                    store.create_runs(&[NewRun { definition, frozen, ..new_run(&run) }]).unwrap();
                }
            });
        }
    });
    let log = std::fs::metadata(dir.path().join("skein.db-wal")).unwrap().len();
    assert!(log < 140 << 20, "200 MiB were written, and the log has {log} bytes");
}
