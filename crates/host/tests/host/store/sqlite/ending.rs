//! The end of a store, and the misuse by its users that it survives.

use std::{
    fs,
    sync::{Arc, mpsc},
};

use skein_host::store::{AppendError, SqliteStore, Store, StoreNotice};

use super::super::support::{LONG, Log, id, texts};

#[test]
fn what_waits_is_written_before_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let (told, outcomes) = mpsc::channel();
    for n in 0..100 {
        let told = told.clone();
        let row = Log::create(&store, &format!("r{n}")).row(&["0"]);
        store.append(row, Box::new(move |outcome| told.send(outcome).unwrap()));
    }
    drop(store);
    drop(told);
    assert_eq!(outcomes.iter().filter(Result::is_ok).count(), 100);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert!((0..100).all(|n| texts(&store, &format!("r{n}")) == ["0"]));
}

#[test]
fn the_last_process_leaves_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("skein.db-wal");
    let (first, last) = (SqliteStore::open(dir.path()).unwrap(), SqliteStore::open(dir.path()).unwrap());
    Log::create(&first, "a");
    drop(first);
    Log::create(&last, "b");
    assert!(fs::metadata(&log).unwrap().len() > 0);
    drop(last);
    assert_eq!(fs::metadata(&log).map_or(0, |meta| meta.len()), 0);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert!(store.find_run(&id("a")).unwrap().is_some() && store.find_run(&id("b")).unwrap().is_some());
}

#[test]
fn a_store_can_be_dropped_by_its_own_threads() {
    let dir = tempfile::tempdir().unwrap();
    let (told, ended) = mpsc::channel();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let row = Log::create(&*store, "r").row(&["0"]);
    let (last, done) = (Arc::clone(&store), told.clone());
    let (dropped, others) = mpsc::channel::<()>();
    store.append(
        row,
        Box::new(move |_| {
            // The other handle is dropped, so this is the last.
            let _ = others.recv();
            drop(last);
            done.send(()).unwrap();
        }),
    );
    drop(store);
    drop(dropped);
    ended.recv_timeout(LONG).unwrap();

    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    store.claim_runs(&[id("r")]).unwrap().remove(0).unwrap();
    let (last, waiting) = (Arc::clone(&store), Arc::downgrade(&store));
    let holder = std::sync::Mutex::new(Some(last));
    store.watch(Arc::new(move |_| {
        drop(holder.lock().unwrap().take());
        let _ = told.send(());
    }));
    store.send_request(&id("r"), b"wake up").unwrap();
    drop(store);
    ended.recv_timeout(LONG).unwrap();
    drop(waiting);
}

#[test]
fn one_who_panics_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let (told, notices) = mpsc::channel();
    store.watch(Arc::new(move |notice| {
        told.send(notice).unwrap();
        panic!("not the store's fault");
    }));
    let mut log = Log::create(&store, "r");
    let row = log.row(&["0"]);
    log.wrote(&row.batch.clone());
    store.append(row, Box::new(|_| panic!("not the store's fault")));
    log.append(&store, &["1"]).unwrap();
    assert_eq!(texts(&store, "r"), ["0", "1"]);
    store.send_request(&id("r"), b"once").unwrap();
    for _ in 0..2 {
        assert_eq!(notices.recv_timeout(LONG).unwrap(), StoreNotice::Requests);
    }
}

#[test]
fn one_who_is_told_of_an_append_may_write_and_wait() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let mut log = Log::create(&*store, "r");
    let row = log.row(&["0"]);
    log.wrote(&row.batch.clone());
    let (next, (told, outcomes)) = (Arc::clone(&store), mpsc::channel());
    let then = move |_| {
        let released = next.release_runs(std::slice::from_ref(&log.claim));
        next.append(log.row(&["1"]), Box::new(move |outcome| told.send((released, outcome)).unwrap()));
    };
    store.append(row, Box::new(then));
    let (released, appended) = outcomes.recv_timeout(LONG).unwrap();
    assert_eq!(released, Ok(()));
    assert_eq!(appended, Err(AppendError::Lost));
}

#[test]
fn values_that_the_dead_did_not_finish_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(dir.path()).unwrap());
    let unfinished = dir.path().join("blobs").join("unfinished");
    fs::write(unfinished.join("1-2-3.0"), "half").unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store.put_blob(b"whole").unwrap();
    assert_eq!(fs::read_dir(&unfinished).unwrap().count(), 0);
}
