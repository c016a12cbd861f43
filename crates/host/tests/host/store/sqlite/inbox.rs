//! Requests between processes.

use std::time::{Duration, Instant};

use skein_host::store::{RunOwner, SqliteStore, Store, StoreNotice};

use super::{
    super::{
        child::Child,
        support::{LONG, Log, id, rows},
    },
    raw,
};

#[test]
fn an_answer_of_another_process_comes_soon() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let child = Child::start("answer", dir.path());
    child.expect("ready");
    let begun = Instant::now();
    for n in 0..20 {
        let letter = store.send_request(&id("r"), &[n]).unwrap();
        assert_eq!(store.wait_for_answer(letter, LONG), Ok(Some(vec![n])));
    }
    // Without a wake-up, each would take about a second.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(rows(&store, "r").len(), 20);
}

#[test]
fn a_letter_whose_sender_died_before_waking_anyone_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    Log::create(&store, "r");
    let (told, notices) = std::sync::mpsc::channel();
    store.watch(std::sync::Arc::new(move |notice| drop(told.send(notice))));
    raw(dir.path()).execute("INSERT INTO letters (run, sender, sent, body) VALUES (1, 'gone', 0, x'21')", []).unwrap();
    assert_eq!(notices.recv_timeout(LONG).unwrap(), StoreNotice::Requests);
    assert_eq!(store.pending_requests().unwrap()[0].body, b"!");
}

#[test]
fn old_letters_go_once_they_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    Log::create(&store, "r");
    let [answered, recent, open] = [b"a", b"b", b"c"].map(|body| store.send_request(&id("r"), body).unwrap());
    store.answer_request(answered, b"yes").unwrap();
    store.answer_request(recent, b"yes").unwrap();
    raw(dir.path()).execute("UPDATE letters SET sent = 0 WHERE id <> ?1", [recent.0 as i64]).unwrap();
    store.send_request(&id("r"), b"one more").unwrap();
    assert!(store.wait_for_answer(answered, Duration::ZERO).is_err());
    assert_eq!(store.wait_for_answer(recent, Duration::ZERO), Ok(Some(b"yes".to_vec())));
    assert_eq!(store.wait_for_answer(open, Duration::ZERO), Ok(None));
}

#[test]
fn another_process_can_ask_for_a_run_to_be_left_without_writing() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    Log::create(&store, "r");
    let (told, notices) = std::sync::mpsc::channel();
    store.watch(std::sync::Arc::new(move |notice| drop(told.send(notice))));
    let other = SqliteStore::open(dir.path()).unwrap();
    let row = other.find_run(&id("r")).unwrap().unwrap();
    let RunOwner::Other(owner) = &row.owner else { panic!("{:?}", row.owner) };
    assert!(other.ask_to_leave(owner, &id("r")));
    assert_eq!(notices.recv_timeout(LONG).unwrap(), StoreNotice::Leave(id("r")));
    // Requests that come at once are all passed on.
    let runs = ["a", "b", "c"].map(id);
    runs.iter().for_each(|run| assert!(other.ask_to_leave(owner, run)));
    let asked: Vec<_> = runs.iter().map(|_| notices.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(asked, runs.map(StoreNotice::Leave));
    assert!(!other.ask_to_leave("1-2-3", &id("r")), "nobody has that name");
}
