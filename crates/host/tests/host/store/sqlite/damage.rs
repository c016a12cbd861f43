//! Stored data that was damaged.

use std::{
    fs::{self, File},
    sync::mpsc,
};

use rusqlite::params;
use skein_core::plan::ContentHash;
use skein_host::store::{AppendError, RunSelection, SqliteStore, Store, StoreError};

use super::{
    super::support::{LONG, Log, id, new_run, texts},
    raw,
};

fn read(store: &SqliteStore, run: &str) -> Result<(), StoreError> {
    store.read_journal(&id(run), 0, &mut |_| true)
}

fn damaged(store: &SqliteStore, row: &str) {
    let Err(StoreError::Damaged(why)) = read(store, "bad") else { panic!("it was not found: {row}") };
    assert!(why.contains("run `bad`") && why.contains(row), "{why}");
}

/// Two runs, of which one is about to be damaged.
fn two_runs() -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    for run in ["bad", "good"] {
        let mut log = Log::create(&store, run);
        for text in ["0", "1", "2"] {
            log.append(&store, &[text]).unwrap();
        }
    }
    (dir, store)
}

#[test]
fn every_flipped_bit_of_a_row_is_found() {
    let (dir, store) = two_runs();
    let db = raw(dir.path());
    for column in ["records", "chain"] {
        let of_row = format!("SELECT {column} FROM journal WHERE run = 1 AND seq = 1");
        let bytes: Vec<u8> = db.query_row(&of_row, [], |row| row.get(0)).unwrap();
        let mut set = db.prepare(&format!("UPDATE journal SET {column} = ?1 WHERE run = 1 AND seq = 1")).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            set.execute(params![flipped]).unwrap();
            damaged(&store, "row 1");
        }
        set.execute(params![bytes]).unwrap();
        read(&store, "bad").unwrap();
    }
}

#[test]
fn rows_that_are_missing_or_moved_are_found() {
    let (dir, store) = two_runs();
    let db = raw(dir.path());
    let changes = [
        ("DELETE FROM journal WHERE run = 1 AND seq = 2", "it ends after 2 of 3 events"),
        ("UPDATE journal SET seq = 7 WHERE run = 1 AND seq = 1", "row 7 follows event 1"),
        ("DELETE FROM journal WHERE run = 1 AND seq = 0", "row 7 follows event 0"),
    ];
    for (change, told) in changes {
        assert_eq!(db.execute(change, []).unwrap(), 1);
        damaged(&store, told);
    }
    assert_eq!(texts(&store, "good"), ["0", "1", "2"]);
}

#[test]
fn a_row_of_a_newer_version_is_refused_whatever_is_in_it() {
    let (dir, store) = two_runs();
    raw(dir.path()).execute("UPDATE journal SET version = 99, records = x'00' WHERE run = 1 AND seq = 1", []).unwrap();
    let Err(StoreError::Newer(why)) = read(&store, "bad") else { panic!("it was read") };
    assert!(why.contains("run `bad`") && why.contains("row 1"), "{why}");
    assert_eq!(texts(&store, "good"), ["0", "1", "2"]);
}

#[test]
fn a_row_that_is_there_already_is_lost_and_harms_no_other_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let logs: Vec<_> = (0..50).map(|n| Log::create(&store, &format!("r{n}"))).collect();
    let there = "INSERT INTO journal (run, seq, version, chain, records) VALUES (26, 0, 1, x'', x'')";
    raw(dir.path()).execute(there, []).unwrap();
    // Nobody writes until all of them wait.
    let turn = File::open(dir.path().join("now.lock")).unwrap();
    turn.lock().unwrap();
    let (told, outcomes) = mpsc::channel();
    for (n, log) in logs.iter().enumerate() {
        let told = told.clone();
        store.append(log.row(&["0"]), Box::new(move |outcome| told.send((n, outcome)).unwrap()));
    }
    drop(turn);
    for _ in &logs {
        let (n, outcome) = outcomes.recv_timeout(LONG).unwrap();
        assert_eq!(outcome, if n == 25 { Err(AppendError::Lost) } else { Ok(()) }, "{n}");
    }
    for n in (0..50).filter(|n| *n != 25) {
        assert_eq!(texts(&store, &format!("r{n}")), ["0"]);
    }
    // Its fence is unchanged.
    let events: i64 =
        raw(dir.path()).query_row("SELECT events FROM fences WHERE run = 26", [], |row| row.get(0)).unwrap();
    assert_eq!(events, 0);
}

#[test]
fn a_damaged_row_of_a_list_harms_no_other() {
    let changes = ["head = '{'", "about = x'ff'", "run = 'a/b'"];
    for change in changes {
        let (dir, store) = two_runs();
        raw(dir.path()).execute(&format!("UPDATE runs SET {change} WHERE key = 1"), []).unwrap();
        let [good, bad] = &store.select_runs(RunSelection::Newest(9)).unwrap()[..] else { panic!() };
        assert_eq!((good.run.as_str(), &good.quarantined), ("good", &None));
        assert!(bad.quarantined.is_some(), "{change}: {bad:?}");
        assert_eq!(store.select_runs(RunSelection::Unfinished).unwrap().len(), 1);
    }
}

#[test]
fn a_damaged_definition_is_found() {
    let (dir, store) = two_runs();
    raw(dir.path()).execute("UPDATE definitions SET frozen = x'00'", []).unwrap();
    assert!(matches!(store.read_definition(new_run("r").definition), Err(StoreError::Damaged(_))));
}

#[test]
fn a_damaged_value_is_found_and_mended_by_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let hash = store.put_blob(b"value").unwrap();
    let name = ContentHash::hash_bytes(b"value").to_string();
    let path = dir.path().join("blobs").join(&name[..2]).join(&name[2..]);
    fs::write(&path, "valve").unwrap();
    assert!(matches!(store.get_blob(hash), Err(StoreError::Damaged(_))));
    store.put_blob(b"value").unwrap();
    assert_eq!(store.get_blob(hash), Ok(b"value".to_vec()));
}

#[test]
fn a_database_that_is_none_is_told() {
    let (dir, store) = two_runs();
    drop(store);
    fs::remove_file(dir.path().join("skein.db-wal")).unwrap();
    fs::write(dir.path().join("skein.db"), "not a database, but long enough to have a header".repeat(100)).unwrap();
    let told = SqliteStore::open(dir.path()).unwrap_err().to_string();
    assert!(told.contains("skein.db") && told.contains("not a database"), "{told}");
}

#[test]
fn a_look_at_the_database_tells_whether_it_is_whole() {
    let (dir, store) = two_runs();
    let found = store.check_database(LONG).unwrap();
    assert_eq!((found.faults.as_slice(), found.all), (&[][..], true));
    assert!(found.version > 0 && found.bytes > 0, "{found:?}");
    drop(store);
    let db = raw(dir.path());
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(db);
    // The last page belongs to a table or an index.
    let path = dir.path().join("skein.db");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 4096;
    bytes[last..].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let found = SqliteStore::open(dir.path()).unwrap().check_database(LONG).unwrap();
    assert!(!found.faults.is_empty() && found.all, "{found:?}");
}

#[test]
fn a_look_at_the_database_ends_in_time() {
    let (_dir, store) = two_runs();
    // Complete or cut short, the check returns, and reports no fault.
    let found = store.check_database(std::time::Duration::ZERO).unwrap();
    assert!(found.faults.is_empty(), "{found:?}");
}
