//! The behaviour of any store: one function per rule, run on each store.

use std::{
    sync::{Arc, Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

use skein_core::{engine::Waitpoint, ir::RunStatus, plan::ContentHash, time::Timestamp};
use skein_host::store::{
    AppendError, ClaimError, InboxRequestId, JournalAppend, MAX_PENDING_REQUESTS, MAX_REQUEST_BYTES, NewRun, RunClaim,
    RunHead, RunOwner, RunSelection, SqliteStore, Store, StoreError, StoreNotice, WaitpointRow,
};
use skein_testkit::store::{FailingStore, MemoryStore};

use super::audit::{nothing_is_told_of_what_was_not_written, owners_share_one_chain, records_come_with_their_row};
use super::dead::{
    a_dead_letter_is_seen_to_once, a_run_sees_to_dead_letters_as_it_is_made, dead_letters_are_left_to_a_retry_or_not,
    dead_letters_come_with_their_row,
};
use super::support::{LONG, Log, append, head, id, new_run, rows, take, texts};

/// Creates owners that share one store. An owner that is dropped is dead.
pub(super) type World = Box<dyn Fn() -> Arc<dyn Store>>;

fn sqlite() -> World {
    let dir = tempfile::tempdir().unwrap();
    Box::new(move || Arc::new(SqliteStore::open(dir.path().join("state")).unwrap()))
}

fn memory() -> World {
    let first = MemoryStore::new();
    Box::new(move || Arc::new(first.add_owner()))
}

fn failing() -> World {
    let inner = memory();
    Box::new(move || Arc::new(FailingStore::new(inner())))
}

macro_rules! conformance {
    ($($rule:ident)*) => {
        mod sqlite { $( #[test] fn $rule() { super::$rule(&super::sqlite()); } )* }
        mod memory { $( #[test] fn $rule() { super::$rule(&super::memory()); } )* }
        mod failing { $( #[test] fn $rule() { super::$rule(&super::failing()); } )* }
    };
}

conformance! {
    rows_come_back_as_they_were_in_order
    who_waits_for_a_row_is_told_as_well_beside_others
    reading_starts_and_stops_where_it_is_told
    a_run_that_is_not_there_is_unknown
    a_run_is_made_once
    runs_are_made_together_or_not_at_all
    of_several_runs_those_that_are_free_are_had
    the_last_row_lets_the_run_go
    a_claim_that_is_over_cannot_append
    a_row_out_of_place_is_lost
    a_row_without_events_is_none
    a_bad_row_harms_no_other
    a_run_is_taken_from_nobody_or_the_dead
    who_has_a_run_is_told
    only_one_of_many_gets_a_run
    a_death_before_the_first_row_leaves_an_empty_run
    a_run_comes_with_its_first_row
    heads_and_open_rows_change_with_the_row
    nothing_of_a_lost_row_is_seen
    letters_wait_for_an_answer
    an_inbox_has_an_end
    the_first_answer_stands
    an_answer_comes_with_its_row
    owners_and_senders_are_woken
    letters_from_before_the_watch_are_told_of
    waiting_for_an_answer_ends
    a_definition_is_kept_once
    values_are_kept_by_content
    a_snapshot_is_kept_in_place_of_the_one_before
    a_run_that_is_set_aside_is_nobodys
    lists_are_newest_first
    unfinished_and_orphaned_runs_are_found
    dead_letters_come_with_their_row
    a_dead_letter_is_seen_to_once
    dead_letters_are_left_to_a_retry_or_not
    a_run_sees_to_dead_letters_as_it_is_made
    records_come_with_their_row
    nothing_is_told_of_what_was_not_written
    owners_share_one_chain
}

fn rows_come_back_as_they_were_in_order(world: &World) {
    let store = world();
    let mut log = Log::create(&*store, "r");
    let big = "x".repeat(700_000);
    let mut written = Vec::new();
    for n in 0..600 {
        let text = format!("ü {n}");
        let row = match n {
            // Rows that fill a page on their own.
            100..104 => log.row(&[&big, &text]),
            _ => log.row(&[&text]),
        };
        let batch = Arc::clone(&row.batch);
        append(&*store, row).unwrap();
        log.wrote(&batch);
        written.push(batch);
    }
    let read = rows(&*world(), "r");
    assert_eq!(read.len(), written.len());
    assert!(read.iter().zip(&written).all(|(read, written)| *read == **written));
}

fn who_waits_for_a_row_is_told_as_well_beside_others(world: &World) {
    let store = world();
    let mut others = Log::create(&*store, "others");
    let mut log = Log::create(&*store, "r");
    thread::scope(|scope| {
        scope.spawn(|| (0..100).for_each(|n| others.append(&*store, &[&n.to_string()]).unwrap()));
        for n in 0..100 {
            let row = log.row(&[&n.to_string()]);
            let batch = Arc::clone(&row.batch);
            let (told, outcome) = mpsc::channel();
            store.append_and_wait(row, Box::new(move |outcome| told.send(outcome).unwrap()));
            assert_eq!(outcome.recv_timeout(LONG), Ok(Ok(())));
            log.wrote(&batch);
        }
    });
    let all: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(texts(&*world(), "r"), all);
    assert_eq!(texts(&*world(), "others"), all);
}

fn reading_starts_and_stops_where_it_is_told(world: &World) {
    let store = world();
    let mut log = Log::create(&*store, "r");
    log.append(&*store, &["0", "1", "2"]).unwrap();
    log.append(&*store, &["3"]).unwrap();
    log.append(&*store, &["4", "5"]).unwrap();
    let seqs = |from, enough| {
        let mut seqs = Vec::new();
        store
            .read_journal(&id("r"), from, &mut |batch| {
                seqs.push(batch.seq);
                seqs.len() < enough
            })
            .unwrap();
        seqs
    };
    assert_eq!(seqs(0, 9), [0, 3, 4]);
    assert_eq!(seqs(2, 9), [0, 3, 4]);
    assert_eq!(seqs(3, 9), [3, 4]);
    assert_eq!(seqs(5, 9), [4]);
    assert_eq!(seqs(6, 9), [0_u64; 0]);
    assert_eq!(seqs(u64::MAX, 9), [0_u64; 0]);
    assert_eq!(seqs(0, 2), [0, 3]);
}

fn a_run_that_is_not_there_is_unknown(world: &World) {
    let store = world();
    let unknown = Err(StoreError::Unknown(id("r")));
    assert_eq!(take(&*store, &id("r")), Err(ClaimError::Unknown(id("r"))));
    assert_eq!(store.read_journal(&id("r"), 0, &mut |_| true), unknown);
    assert_eq!(store.send_request(&id("r"), b"x").map(drop), unknown);
    assert_eq!(store.pending_requests(), Ok(vec![]));
    assert_eq!(store.quarantine(&id("r"), "why"), unknown);
    assert_eq!(store.find_run(&id("r")), Ok(None));
}

fn a_run_is_made_once(world: &World) {
    let store = world();
    Log::create(&*store, "r");
    assert!(matches!(world().create_runs(&[new_run("r")]), Err(StoreError::Failed(_))));
    assert_eq!(store.select_runs(RunSelection::Newest(9)).unwrap().len(), 1);
}

fn runs_are_made_together_or_not_at_all(world: &World) {
    let store = world();
    Log::create(&*store, "there");
    let twice = [new_run("a"), new_run("b"), new_run("a")];
    let known = [new_run("a"), new_run("there")];
    for refused in [&twice[..], &known[..]] {
        assert!(matches!(store.create_runs(refused), Err(StoreError::Failed(_))));
        assert_eq!(store.find_run(&id("a")), Ok(None));
    }
    let claims = store.create_runs(&[new_run("a"), new_run("b")]).unwrap();
    assert_eq!(claims.iter().map(|claim| &claim.run).collect::<Vec<_>>(), [&id("a"), &id("b")]);
}

fn of_several_runs_those_that_are_free_are_had(world: &World) {
    let (first, second) = (world(), world());
    let claims = first.create_runs(&[new_run("a"), new_run("b")]).unwrap();
    first.release_runs(&claims[..1]).unwrap();
    let had = second.claim_runs(&[id("none"), id("a"), id("b")]).unwrap();
    assert!(matches!(had[0], Err(ClaimError::Unknown(_))));
    assert_eq!(had[1].as_ref().map(|claim| claim.epoch), Ok(2));
    assert!(matches!(had[2], Err(ClaimError::Owned(_))));
}

fn the_last_row_lets_the_run_go(world: &World) {
    let (store, other) = (world(), world());
    let mut log = Log::create(&*store, "r");
    let row = log.row(&["first"]);
    append(&*store, JournalAppend { last: true, ..row }).unwrap();
    assert_eq!(store.find_run(&id("r")).unwrap().unwrap().owner, RunOwner::Nobody);
    log.seq += 1;
    assert_eq!(append(&*store, log.row(&["second"])), Err(AppendError::Lost));
    take(&*other, &id("r")).unwrap();
}

fn a_claim_that_is_over_cannot_append(world: &World) {
    let store = world();
    let mut old = Log::create(&*store, "r");
    old.append(&*store, &["0"]).unwrap();
    store.release_runs(std::slice::from_ref(&old.claim)).unwrap();
    assert_eq!(old.append(&*store, &["1"]), Err(AppendError::Lost));
    let mut new = Log::claim(&*store, "r");
    assert!(new.claim.epoch > old.claim.epoch);
    assert_eq!(old.append(&*store, &["1"]), Err(AppendError::Lost));
    // It has been released already, and so releases nothing.
    store.release_runs(std::slice::from_ref(&old.claim)).unwrap();
    new.append(&*store, &["1"]).unwrap();
    assert_eq!(texts(&*store, "r"), ["0", "1"]);
}

fn a_row_out_of_place_is_lost(world: &World) {
    let store = world();
    let mut log = Log::create(&*store, "r");
    log.append(&*store, &["0", "1"]).unwrap();
    for seq in [0, 1, 3, u64::MAX] {
        let mut wrong = Log { seq, ..log.clone() };
        assert_eq!(wrong.append(&*store, &["wrong"]), Err(AppendError::Lost), "{seq}");
    }
    log.append(&*store, &["2"]).unwrap();
    assert_eq!(texts(&*store, "r"), ["0", "1", "2"]);
}

fn a_row_without_events_is_none(world: &World) {
    let store = world();
    let mut log = Log::create(&*store, "r");
    assert!(matches!(log.append(&*store, &[]), Err(AppendError::Broken(_))));
    log.append(&*store, &["0"]).unwrap();
}

fn a_bad_row_harms_no_other(world: &World) {
    let store = world();
    let logs: Vec<_> = (0..50).map(|n| Log::create(&*store, &format!("r{n}"))).collect();
    let (told, outcomes) = mpsc::channel();
    // Appended at once, so that many wait together.
    for (n, log) in logs.iter().enumerate() {
        let log = if n % 10 == 3 { Log { seq: 7, ..log.clone() } } else { log.clone() };
        let told = told.clone();
        store.append(log.row(&["0"]), Box::new(move |outcome| told.send((n, outcome)).unwrap()));
    }
    for _ in &logs {
        let (n, outcome) = outcomes.recv_timeout(LONG).unwrap();
        assert_eq!(outcome, if n % 10 == 3 { Err(AppendError::Lost) } else { Ok(()) }, "{n}");
    }
    for n in 0..50 {
        assert_eq!(rows(&*store, &format!("r{n}")).len(), usize::from(n % 10 != 3));
    }
}

fn a_run_is_taken_from_nobody_or_the_dead(world: &World) {
    let (first, second) = (world(), world());
    let log = Log::create(&*first, "r");
    assert!(matches!(take(&*first, &id("r")), Err(ClaimError::Owned(_))));
    assert!(matches!(take(&*second, &id("r")), Err(ClaimError::Owned(_))));
    first.release_runs(std::slice::from_ref(&log.claim)).unwrap();
    let mut log = Log::claim(&*second, "r");
    log.append(&*second, &["0"]).unwrap();
    assert!(matches!(take(&*first, &id("r")), Err(ClaimError::Owned(_))));
    drop(second);
    let mut log = Log::claim(&*first, "r");
    log.append(&*first, &["1"]).unwrap();
    assert_eq!(log.claim.epoch, 3);
    assert_eq!(texts(&*first, "r"), ["0", "1"]);
}

fn who_has_a_run_is_told(world: &World) {
    let (first, second) = (world(), world());
    let owner = |store: &Arc<dyn Store>| store.find_run(&id("r")).unwrap().unwrap().owner;
    let mut log = Log::create(&*first, "r");
    assert_eq!(owner(&first), RunOwner::Here);
    assert!(matches!(owner(&second), RunOwner::Other(_)));
    first.release_runs(std::slice::from_ref(&log.claim)).unwrap();
    assert_eq!(owner(&first), RunOwner::Nobody);
    assert_eq!(owner(&second), RunOwner::Nobody);
    log.claim = take(&*first, &id("r")).unwrap();
    log.append(&*first, &["0"]).unwrap();
    drop(first);
    assert!(matches!(owner(&second), RunOwner::Dead(_)));
    // A run that has ended has no owner, even if its owner had no time to release it.
    let third = world();
    log.claim = take(&*third, &id("r")).unwrap();
    let mut last = log.row(&["1"]);
    last.head = Some(head(RunStatus::Succeeded, true));
    append(&*third, last).unwrap();
    drop(third);
    assert_eq!(owner(&second), RunOwner::Nobody);
}

fn only_one_of_many_gets_a_run(world: &World) {
    let owners: Vec<_> = (0..4).map(|_| world()).collect();
    for round in 0..10 {
        let run = format!("r{round}");
        let log = Log::create(&*owners[0], &run);
        owners[0].release_runs(std::slice::from_ref(&log.claim)).unwrap();
        let start = Barrier::new(owners.len());
        let claim = |store: &Arc<dyn Store>| {
            start.wait();
            take(&**store, &id(&run))
        };
        let won = thread::scope(|scope| {
            let claim = &claim;
            let threads: Vec<_> = owners.iter().map(|store| scope.spawn(move || claim(store))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).count()
        });
        assert_eq!(won, 1);
    }
}

fn a_death_before_the_first_row_leaves_an_empty_run(world: &World) {
    let (first, second) = (world(), world());
    Log::create(&*first, "r");
    drop(first);
    assert_eq!(second.select_runs(RunSelection::Orphaned).unwrap().len(), 1);
    assert_eq!(rows(&*second, "r"), []);
    let third = world();
    // A death between a claim and its first row does not change the journal, either.
    take(&*third, &id("r")).unwrap();
    drop(third);
    let mut log = Log::claim(&*second, "r");
    assert_eq!((log.seq, log.claim.epoch), (0, 3));
    log.append(&*second, &["0"]).unwrap();
    assert_eq!(texts(&*second, "r"), ["0"]);
}

fn a_run_comes_with_its_first_row(world: &World) {
    let (store, other) = (world(), world());
    let row = Log { claim: RunClaim { run: id("r"), epoch: 1 }, seq: 0, chain: ContentHash::ZERO }.row(&["0", "1"]);
    let open = WaitpointRow {
        opening: Waitpoint(0),
        step: "gate".into(),
        kind: "gate".into(),
        message: "go on?".into(),
        since: Timestamp(5),
    };
    let new = NewRun { first: Some(Arc::clone(&row.batch)), open: vec![open.clone()], ..new_run("r") };
    let claim = store.create_runs(&[new]).unwrap().remove(0);
    assert_eq!(texts(&*other, "r"), ["0", "1"]);
    assert_eq!(other.find_run(&id("r")).unwrap().unwrap().open, [open]);
    let mut log = Log { claim, seq: 2, chain: row.batch.chain };
    log.append(&*store, &["2"]).unwrap();
    assert_eq!(texts(&*other, "r"), ["0", "1", "2"]);
}

fn open_row(n: u32) -> WaitpointRow {
    WaitpointRow {
        opening: Waitpoint(n),
        step: format!("each[{n}]/review"),
        kind: "gate".into(),
        message: "may it go out?".into(),
        since: Timestamp(5),
    }
}

fn heads_and_open_rows_change_with_the_row(world: &World) {
    let store = world();
    let mut log = Log::create(&*store, "r");
    let seen = || world().find_run(&id("r")).unwrap().unwrap();
    let new = new_run("r");
    assert_eq!((seen().head, seen().about, seen().definition), (new.head, new.about, new.definition));
    assert_eq!(seen().open, []);

    let mut row = log.row(&["0"]);
    row.head = Some(head(RunStatus::Waiting, false));
    row.open = Some(vec![open_row(1), open_row(2)]);
    log.wrote(&row.batch.clone());
    append(&*store, row).unwrap();
    assert_eq!(seen().head, head(RunStatus::Waiting, false));
    assert_eq!(seen().open, [open_row(1), open_row(2)]);

    log.append(&*store, &["1"]).unwrap();
    assert_eq!(seen().head, head(RunStatus::Waiting, false));
    assert_eq!(seen().open.len(), 2);

    let mut row = log.row(&["2"]);
    row.open = Some(vec![open_row(2)]);
    append(&*store, row).unwrap();
    assert_eq!(seen().open, [open_row(2)]);
}

fn nothing_of_a_lost_row_is_seen(world: &World) {
    let store = world();
    let log = Log::create(&*store, "r");
    let letter = store.send_request(&id("r"), b"go").unwrap();
    let mut row = Log { seq: 1, ..log }.row(&["0"]);
    row.head = Some(head(RunStatus::Succeeded, true));
    row.open = Some(vec![open_row(1)]);
    row.answers = vec![(letter, b"done".to_vec())];
    assert_eq!(append(&*store, row), Err(AppendError::Lost));
    let seen = store.find_run(&id("r")).unwrap().unwrap();
    assert_eq!((seen.head, seen.open), (new_run("r").head, Vec::new()));
    assert_eq!(store.pending_requests().unwrap().len(), 1);
    assert_eq!(store.wait_for_answer(letter, Duration::ZERO), Ok(None));
}

fn letters_wait_for_an_answer(world: &World) {
    let (owner, sender) = (world(), world());
    Log::create(&*owner, "r");
    Log::create(&*owner, "too");
    Log::create(&*sender, "other");
    let first = sender.send_request(&id("r"), b"first").unwrap();
    let theirs = owner.send_request(&id("other"), b"for the other owner").unwrap();
    let second = sender.send_request(&id("too"), b"second").unwrap();
    let letters = |store: &dyn Store| -> Vec<_> {
        store.pending_requests().unwrap().into_iter().map(|letter| (letter.id, letter.run, letter.body)).collect()
    };
    let (one, two) = ((first, id("r"), b"first".to_vec()), (second, id("too"), b"second".to_vec()));
    assert_eq!(letters(&*owner), [one, two.clone()], "of all its runs, and of no others");
    assert_eq!(letters(&*sender), [(theirs, id("other"), b"for the other owner".to_vec())]);
    owner.answer_request(first, b"yes").unwrap();
    assert_eq!(letters(&*owner), [two]);
    assert_eq!(sender.wait_for_answer(first, Duration::ZERO), Ok(Some(b"yes".to_vec())));
    assert_eq!(sender.wait_for_answer(second, Duration::ZERO), Ok(None));
    assert!(owner.answer_request(InboxRequestId(999), b"?").is_err());
    assert!(owner.wait_for_answer(InboxRequestId(999), LONG).is_err());
}

fn an_inbox_has_an_end(world: &World) {
    let store = world();
    Log::create(&*store, "r");
    Log::create(&*store, "other");
    assert!(store.send_request(&id("r"), &vec![0; MAX_REQUEST_BYTES + 1]).is_err());
    let first = store.send_request(&id("r"), &vec![0; MAX_REQUEST_BYTES]).unwrap();
    thread::scope(|scope| {
        let send = || (0..(MAX_PENDING_REQUESTS - 1) / 9).for_each(|_| _ = store.send_request(&id("r"), b"x").unwrap());
        for _ in 0..9 {
            scope.spawn(send);
        }
    });
    let told = store.send_request(&id("r"), b"x").unwrap_err().to_string();
    assert!(told.contains("1000 requests to run `r` are pending"), "{told}");
    store.send_request(&id("other"), b"x").unwrap();
    store.answer_request(first, b"yes").unwrap();
    store.send_request(&id("r"), b"x").unwrap();
}

fn the_first_answer_stands(world: &World) {
    let store = world();
    let log = Log::create(&*store, "r");
    let letter = store.send_request(&id("r"), b"go").unwrap();
    store.answer_request(letter, b"first").unwrap();
    store.answer_request(letter, b"second").unwrap();
    let mut row = log.row(&["0"]);
    row.answers = vec![(letter, b"third".to_vec())];
    append(&*store, row).unwrap();
    assert_eq!(store.wait_for_answer(letter, Duration::ZERO), Ok(Some(b"first".to_vec())));
}

fn an_answer_comes_with_its_row(world: &World) {
    let (owner, sender) = (world(), world());
    let log = Log::create(&*owner, "r");
    let letters = [b"a", b"b"].map(|body| sender.send_request(&id("r"), body).unwrap());
    let mut row = log.row(&["0"]);
    row.answers = letters.iter().map(|letter| (*letter, b"done".to_vec())).collect();
    append(&*owner, row).unwrap();
    for letter in letters {
        assert_eq!(sender.wait_for_answer(letter, LONG), Ok(Some(b"done".to_vec())));
    }
    assert_eq!(owner.pending_requests(), Ok(vec![]));
}

fn owners_and_senders_are_woken(world: &World) {
    let (owner, sender) = (world(), world());
    Log::create(&*owner, "r");
    let (told, notices) = mpsc::channel();
    owner.watch(Arc::new(move |notice| drop(told.send(notice))));
    thread::scope(|scope| {
        let owner = &owner;
        let answering = scope.spawn(move || {
            let mut answered = 0;
            while answered < 20 {
                assert_eq!(notices.recv_timeout(LONG).unwrap(), StoreNotice::Requests);
                for letter in owner.pending_requests().unwrap() {
                    owner.answer_request(letter.id, &letter.body).unwrap();
                    answered += 1;
                }
            }
        });
        let begun = Instant::now();
        for n in 0..20 {
            let letter = sender.send_request(&id("r"), &[n]).unwrap();
            assert_eq!(sender.wait_for_answer(letter, LONG), Ok(Some(vec![n])));
        }
        // An owner that only polls every second would need twenty.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        answering.join().unwrap();
    });
}

fn letters_from_before_the_watch_are_told_of(world: &World) {
    let (owner, sender) = (world(), world());
    Log::create(&*owner, "r");
    sender.send_request(&id("r"), b"early").unwrap();
    let (told, notices) = mpsc::channel();
    owner.watch(Arc::new(move |notice| drop(told.send(notice))));
    assert_eq!(notices.recv_timeout(LONG).unwrap(), StoreNotice::Requests);
}

fn waiting_for_an_answer_ends(world: &World) {
    let store = world();
    Log::create(&*store, "r");
    let letter = store.send_request(&id("r"), b"go").unwrap();
    assert_eq!(store.wait_for_answer(letter, Duration::from_millis(20)), Ok(None));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| store.wait_for_answer(letter, Duration::MAX));
        store.answer_request(letter, b"at last").unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(Some(b"at last".to_vec())));
    });
}

fn a_definition_is_kept_once(world: &World) {
    let store = world();
    let first = new_run("a");
    store.create_runs(std::slice::from_ref(&first)).unwrap();
    store.create_runs(&[new_run("b")]).unwrap();
    assert_eq!(world().read_definition(first.definition), Ok(first.frozen.to_vec()));
    assert!(matches!(store.read_definition(ContentHash::ZERO), Err(StoreError::Failed(_))));
}

fn values_are_kept_by_content(world: &World) {
    let store = world();
    let large = vec![7; 300_000];
    let hash = store.put_blob(&large).unwrap();
    assert_eq!(hash, ContentHash::hash_bytes(&large));
    assert_eq!(store.put_blob(&large), Ok(hash));
    assert_eq!(world().get_blob(hash), Ok(large));
    let empty = store.put_blob(b"").unwrap();
    assert_eq!(store.get_blob(empty), Ok(vec![]));
    assert!(matches!(store.get_blob(ContentHash::ZERO), Err(StoreError::Failed(_))));
}

fn a_snapshot_is_kept_in_place_of_the_one_before(world: &World) {
    let store = world();
    let (log, _) = (Log::create(&*store, "r"), Log::create(&*store, "R"));
    assert_eq!((store.read_snapshot(&id("r")), store.read_snapshot(&id("none"))), (None, None));
    store.keep_snapshot(&id("r"), b"first");
    assert_eq!(store.read_snapshot(&id("r")).as_deref(), Some(&b"first"[..]));
    let large = vec![7; 3_000_000];
    store.keep_snapshot(&id("r"), &large);
    // It is for the next owner of the run.
    drop((store, log));
    let next = world();
    assert_eq!(next.read_snapshot(&id("r")), Some(large));
    assert_eq!(next.read_snapshot(&id("R")), None);
}

fn a_run_that_is_set_aside_is_nobodys(world: &World) {
    let (owner, other) = (world(), world());
    let mut log = Log::create(&*owner, "r");
    let (told, notices) = mpsc::channel();
    owner.watch(Arc::new(move |notice| drop(told.send(notice))));
    other.quarantine(&id("r"), "its state is broken").unwrap();
    assert_eq!(notices.recv_timeout(LONG).unwrap(), StoreNotice::Lost(log.claim.clone()));
    assert_eq!(log.append(&*owner, &["0"]), Err(AppendError::Lost));
    other.quarantine(&id("r"), "a later reason").unwrap();
    let why = "its state is broken".to_owned();
    assert_eq!(take(&*owner, &id("r")), Err(ClaimError::Quarantined(why.clone())));
    let row = owner.find_run(&id("r")).unwrap().unwrap();
    assert_eq!((row.quarantined, row.owner), (Some(why), RunOwner::Nobody));
    assert_eq!(owner.select_runs(RunSelection::Unfinished), Ok(vec![]));
    assert_eq!(owner.select_runs(RunSelection::Newest(1)).unwrap().len(), 1);
}

fn names(store: &dyn Store, which: RunSelection) -> Vec<String> {
    store.select_runs(which).unwrap().into_iter().map(|row| row.run.to_string()).collect()
}

fn lists_are_newest_first(world: &World) {
    let store = world();
    for run in ["b", "c", "a"] {
        Log::create(&*store, run);
    }
    assert_eq!(names(&*store, RunSelection::Newest(9)), ["a", "c", "b"]);
    assert_eq!(names(&*store, RunSelection::Newest(2)), ["a", "c"]);
    assert_eq!(names(&*store, RunSelection::Newest(0)), [""; 0]);
    assert_eq!(names(&*store, RunSelection::Unfinished), ["a", "c", "b"]);
    let listed = |limit, wanted: Option<&dyn Fn(&RunHead) -> bool>| {
        let list = store.list_runs(limit, wanted).unwrap();
        (list.rows.iter().map(|row| row.run.to_string()).collect::<Vec<_>>().join(" "), list.more)
    };
    assert_eq!(listed(2, None), ("a c".to_owned(), 1));
    assert_eq!(listed(3, None), ("a c b".to_owned(), 0));
    let running = |head: &RunHead| !head.closed;
    assert_eq!(listed(1, Some(&running)), ("a".to_owned(), 2));
    assert_eq!(listed(9, Some(&|head| !running(head))), (String::new(), 0));
}

fn unfinished_and_orphaned_runs_are_found(world: &World) {
    let (dying, living) = (world(), world());
    for run in ["orphan", "over", "parked", "aside", "second"] {
        let log = Log::create(&*dying, run);
        match run {
            "parked" => dying.release_runs(std::slice::from_ref(&log.claim)).unwrap(),
            "aside" => dying.quarantine(&log.claim.run, "broken").unwrap(),
            "over" => {
                let mut row = log.row(&["0"]);
                row.head = Some(head(RunStatus::Failed, true));
                append(&*dying, row).unwrap();
            }
            _ => {}
        }
    }
    Log::create(&*living, "alive");
    assert_eq!(names(&*living, RunSelection::Orphaned), [""; 0]);
    drop(dying);
    assert_eq!(names(&*living, RunSelection::Orphaned), ["second", "orphan"]);
    assert_eq!(names(&*living, RunSelection::Unfinished), ["alive", "second", "parked", "orphan"]);
    take(&*living, &id("second")).unwrap();
    assert_eq!(names(&*living, RunSelection::Orphaned), ["orphan"]);
}
