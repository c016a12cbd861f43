//! Letters between processes.

use std::time::{Duration, Instant};

use skein_host::store::{Notice, Sqlite, Store};

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
    let store = Sqlite::open(dir.path()).unwrap();
    let child = Child::start("answer", dir.path());
    child.expect("ready");
    let begun = Instant::now();
    for n in 0..20 {
        let letter = store.send(&id("r"), &[n]).unwrap();
        assert_eq!(store.answered(letter, LONG), Ok(Some(vec![n])));
    }
    // Without being woken, each would take about a second.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(rows(&store, "r").len(), 20);
}

#[test]
fn a_letter_whose_sender_died_before_waking_anyone_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    Log::create(&store, "r");
    let (told, notices) = std::sync::mpsc::channel();
    store.watch(std::sync::Arc::new(move |notice| drop(told.send(notice))));
    raw(dir.path())
        .execute("INSERT INTO letters (run, sender, sent, body) VALUES (1, 'gone', 0, x'21')", [])
        .unwrap();
    assert_eq!(notices.recv_timeout(LONG).unwrap(), Notice::Mail);
    assert_eq!(store.letters().unwrap()[0].body, b"!");
}

#[test]
fn old_letters_go_once_they_are_answered() {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(dir.path()).unwrap();
    Log::create(&store, "r");
    let [answered, recent, open] = [b"a", b"b", b"c"].map(|body| store.send(&id("r"), body).unwrap());
    store.answer(answered, b"yes").unwrap();
    store.answer(recent, b"yes").unwrap();
    raw(dir.path()).execute("UPDATE letters SET sent = 0 WHERE id <> ?1", [recent.0 as i64]).unwrap();
    store.send(&id("r"), b"one more").unwrap();
    assert!(store.answered(answered, Duration::ZERO).is_err());
    assert_eq!(store.answered(recent, Duration::ZERO), Ok(Some(b"yes".to_vec())));
    assert_eq!(store.answered(open, Duration::ZERO), Ok(None));
}
