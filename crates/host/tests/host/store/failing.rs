//! The failing store, and its content after a failure.

use std::sync::{Arc, Mutex};

use skein_host::store::{AppendError, Store};
use skein_testkit::store::{AppendFailure, FailingStore, MemoryStore};

use super::support::{Log, texts};

fn failing(failure: AppendFailure) -> (Arc<MemoryStore>, FailingStore) {
    let inner = Arc::new(MemoryStore::new());
    (Arc::clone(&inner), FailingStore::new(inner).with_failure(failure))
}

#[test]
fn the_nth_append_fails_and_the_next_does_not() {
    let error = AppendError::NoSpace;
    let (inner, store) = failing(AppendFailure { at: 2, onwards: false, written: false, error: error.clone() });
    let mut log = Log::create(&store, "r");
    log.append(&store, &["0"]).unwrap();
    assert_eq!(log.append(&store, &["1"]), Err(error));
    log.append(&store, &["1"]).unwrap();
    assert_eq!(texts(&*inner, "r"), ["0", "1"]);
    assert_eq!(store.append_count(), 3);
}

#[test]
fn every_append_from_the_nth_fails() {
    let error = AppendError::Broken("a failed sync".into());
    let (inner, store) = failing(AppendFailure { at: 2, onwards: true, written: false, error: error.clone() });
    let mut log = Log::create(&store, "r");
    log.append(&store, &["0"]).unwrap();
    for _ in 0..3 {
        assert_eq!(log.append(&store, &["1"]), Err(error.clone()));
    }
    assert_eq!(texts(&*inner, "r"), ["0"]);
}

#[test]
fn a_row_can_be_there_though_its_append_failed() {
    let error = AppendError::Broken("a failed sync".into());
    let (inner, store) = failing(AppendFailure { at: 1, onwards: true, written: true, error: error.clone() });
    let mut log = Log::create(&store, "r");
    assert_eq!(log.append(&store, &["0"]), Err(error));
    assert_eq!(texts(&*inner, "r"), ["0"]);
}

#[test]
fn hooks_are_called_around_each_append() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = |what: &'static str| {
        let (seen, inner) = (Arc::clone(&seen), Arc::clone(&inner));
        Arc::new(move |n| seen.lock().unwrap().push((what, n, texts(&*inner, "r").len())))
    };
    let store = FailingStore::new(Arc::clone(&inner)).with_before_hook(hook("before")).with_after_hook(hook("after"));
    let mut log = Log::create(&store, "r");
    log.append(&store, &["0"]).unwrap();
    log.append(&store, &["1"]).unwrap();
    let expected = [("before", 1, 0), ("after", 1, 1), ("before", 2, 1), ("after", 2, 2)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn one_taken_from_behind_finds_out_at_its_next_append() {
    let slow = MemoryStore::new();
    let mut log = Log::create(&slow, "r");
    log.append(&slow, &["0"]).unwrap();
    let other = slow.add_owner();
    let taken = other.force_claim(&log.claim.run).unwrap();
    assert_eq!(log.append(&slow, &["1"]), Err(AppendError::Lost));
    let mut theirs = Log { claim: taken, ..log };
    theirs.append(&other, &["1"]).unwrap();
}
