//! Runs that are taken from their host, and journals that are slow, damaged or of a later version.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::Connection;
use skein_core::{
    engine::{Event, RunInput},
    ir::RunStatus,
    time::Millis,
};
use skein_host::{
    host::ResumeError,
    store::{ClaimError, RunOwner, SqliteStore, Store, is_shortened},
};
use skein_testkit::store::{FailingStore, MemoryStore};

use super::{
    hands::{Asked, Does, all_good, bad, good, scripted},
    kit::{graph, plan, retried, work},
    stage::{Note, Stage, events, id, starts, status},
};

#[test]
fn a_run_that_was_taken_is_let_go_and_its_workers_are_stopped() {
    let store = Arc::new(MemoryStore::new());
    let other = store.add_owner();
    let (hands, control) = scripted(|run, _, _| if run.as_str() == "r" { Does::Waits } else { Does::Ends(good()) });
    let stage = Stage::new(Arc::clone(&store) as Arc<dyn Store>, hands, 1);
    let one = plan(graph(vec![work("a")]));
    stage.begin(&[("r", &one)]);
    let (_, _, attempt) = control.started();
    other.force_claim(&id("r")).unwrap();
    stage.until(|note| matches!(note, Note::Lost(run) if run.as_str() == "r").then_some(()));
    assert_eq!(control.next(), Asked::Stop { run: id("r"), attempt });
    assert_eq!(control.next(), Asked::Forget { run: id("r") });
    assert_eq!(stage.host.send_input(&id("r"), RunInput::Wake), None);
    // Its worker is free for others.
    stage.begin(&[("s", &one)]);
    stage.closed(&["s"]);
}

#[test]
fn a_run_that_was_taken_on_disk_is_lost_at_the_next_append_at_the_latest() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let (hands, control) = scripted(|_, _, _| Does::Waits);
    let stage = Stage::new(Arc::clone(&store) as Arc<dyn Store>, hands, 2);
    stage.begin(&[("r", &plan(graph(vec![work("a"), work("b")])))]);
    let (run, _, first) = control.started();
    let (_, _, second) = control.started();
    let db = Connection::open(dir.path().join("skein.db")).unwrap();
    db.execute("UPDATE fences SET owner = NULL, epoch = epoch + 1", []).unwrap();
    control.end(&run, first, good());
    stage.until(|note| matches!(note, Note::Lost(_)).then_some(()));
    let stop = Asked::Stop { run, attempt: second };
    while control.next() != stop {}
    assert_eq!(starts(&events(&*store, "r")).len(), 2);
}

#[test]
fn a_time_that_comes_while_a_row_is_written_does_not_write_it_twice() {
    let dir = tempfile::tempdir().unwrap();
    let inner: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let (appends, held) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, seen) = (Arc::clone(&appends), Arc::clone(&held));
    let before = Arc::new(move |n| count.store(n, Ordering::Release));
    // The writer thread is blocked for longer than the retry delay of the run.
    let after_row = Arc::new(move |n| {
        if n == 3 {
            std::thread::sleep(Duration::from_millis(400));
            seen.store(appends.load(Ordering::Acquire), Ordering::Release);
        }
    });
    let store = FailingStore::new(Arc::clone(&inner)).with_before_hook(before).with_after_hook(after_row);
    let (hands, control) = scripted(|_, step, attempt| match (step, attempt.attempt) {
        ("late", 1) => Does::Ends(bad()),
        ("x", _) => Does::Waits,
        _ => Does::Ends(good()),
    });
    let stage = Stage::new(Arc::new(store), hands, 4);
    let mut late = retried(work("late"), 2);
    late.policy.retry.backoff.initial = Millis(150);
    late.policy.retry.backoff.max = Millis(150);
    stage.begin(&[("r", &plan(graph(vec![late, work("x")])))]);
    let (run, attempt) = loop {
        let (run, step, attempt) = control.started();
        if step == "x" {
            break (run, attempt);
        }
    };
    stage.event("r", |event| matches!(event, Event::RetryScheduled { .. }));
    control.end(&run, attempt, good());
    stage.closed(&["r"]);
    assert_eq!(held.load(Ordering::Acquire), 3, "a row was given to the store twice");
    assert_eq!(status(&*inner, "r"), RunStatus::Succeeded);
}

#[test]
fn a_run_whose_journal_is_damaged_is_set_aside_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["good-1", "bad", "good-2", "empty"];
    {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
        let (hands, control) = scripted(|_, _, _| Does::Waits);
        let stage = Stage::new(store, hands, 4);
        let one = plan(graph(vec![work("a")]));
        stage.begin(&names.map(|name| (name, &one)));
        for _ in names {
            control.started();
        }
    }
    let db = Connection::open(dir.path().join("skein.db")).unwrap();
    let of = "run = (SELECT key FROM runs WHERE run = ?1)";
    let damage = format!(
        "UPDATE journal SET records = CAST(replace(CAST(records AS TEXT), '\"at\":1', '\"at\":2') AS BLOB) WHERE {of}"
    );
    assert_eq!(db.execute(&damage, ["bad"]).unwrap(), 2);
    db.execute(&format!("DELETE FROM journal WHERE {of}"), ["empty"]).unwrap();
    db.execute(&format!("UPDATE fences SET events = 0 WHERE {of}"), ["empty"]).unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let (hands, _control) = scripted(all_good);
    let stage = Stage::new(Arc::clone(&store), hands, 4);
    let resumed = stage.host.resume_runs(names.map(id).to_vec());
    for (name, resumed) in names.iter().zip(resumed) {
        match resumed {
            Ok(_) => assert!(name.starts_with("good"), "{name}"),
            Err(ResumeError::SetAside(why)) => {
                assert!(why.contains(&format!("`{name}`")), "{why}");
                let row = store.find_run(&id(name)).unwrap().unwrap();
                assert_eq!((row.quarantined, row.owner), (Some(why), RunOwner::Nobody));
            }
            // Its rows were acknowledged, so their loss is noticed when the store is opened.
            Err(ResumeError::Claim(ClaimError::Quarantined(why))) => {
                assert!(*name == "empty" && is_shortened(&why), "{name}: {why}");
            }
            other => panic!("{other:?}"),
        }
    }
    stage.closed(&["good-1", "good-2"]);
    // It is not loaded at the next start, either.
    let refused = stage.host.resume_runs(vec![id("bad")]).remove(0).unwrap_err();
    assert!(refused.to_string().contains("it was set aside"), "{refused}");
}

#[test]
fn a_row_of_a_newer_version_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let one = plan(graph(vec![work("a")]));
    {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
        let (hands, control) = scripted(|_, _, _| Does::Waits);
        let stage = Stage::new(store, hands, 4);
        stage.begin(&[("r", &one)]);
        control.started();
    }
    let db = Connection::open(dir.path().join("skein.db")).unwrap();
    db.execute("UPDATE journal SET version = 99", []).unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let (hands, _control) = scripted(all_good);
    let stage = Stage::new(Arc::clone(&store), hands, 4);
    let refused = stage.host.resume_runs(vec![id("r")]).remove(0).unwrap_err();
    assert!(refused.to_string().contains("a newer version"), "{refused}");
    let row = store.find_run(&id("r")).unwrap().unwrap();
    assert_eq!((row.quarantined, row.owner), (None, RunOwner::Nobody));
    let rows: i64 = db.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 2);
}
