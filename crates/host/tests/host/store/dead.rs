//! The behaviour of any store with dead letters. `conformance` runs each of these on each store.

use skein_core::{ir::ErrorClass, time::Timestamp};
use skein_host::store::{
    AppendError, DeadLetter, DeadLetterId, DeadLetterRow, DeadLetterSelection, DeadLetterSettlement, NewRun,
    SettlementKind, Store, StoreError,
};

use super::{
    conformance::World,
    support::{Log, append, id, new_run},
};

fn row(number: u64, step: &str) -> DeadLetterRow {
    DeadLetterRow {
        number,
        step: step.into(),
        class: ErrorClass::Transient,
        code: Some("E1".into()),
        message: "it broke".into(),
        attempts: 3,
        attempt: Some("0.1.1.1.main.3".parse().unwrap()),
        at: Timestamp(5),
    }
}

/// Appends a row with dead letters.
fn dies(store: &dyn Store, log: &mut Log, letters: &[(u64, &str)], retried: Option<bool>) {
    let mut next = log.row(&["x"]);
    next.dead = letters.iter().map(|(number, step)| row(*number, step)).collect();
    next.retried = retried;
    let batch = next.batch.clone();
    append(store, next).unwrap();
    log.wrote(&batch);
}

fn names(letters: &[DeadLetter]) -> Vec<String> {
    letters.iter().map(|dead| dead.id().to_string()).collect()
}

fn open(store: &dyn Store) -> Vec<String> {
    names(&store.list_dead_letters(&DeadLetterSelection::Open(9)).unwrap())
}

fn dropped() -> DeadLetterSettlement {
    DeadLetterSettlement {
        how: SettlementKind::Dropped(Some("old".into())),
        by: Some("ada".into()),
        at: Some(Timestamp(9)),
    }
}

pub(crate) fn dead_letters_come_with_their_row(world: &World) {
    let store = world();
    let (mut first, mut second) = (Log::create(&*store, "a"), Log::create(&*store, "b"));
    assert_eq!(open(&*store), [""; 0]);
    dies(&*store, &mut first, &[(1, "x"), (4, "y[2]/z")], None);
    dies(&*store, &mut second, &[(2, "x")], None);
    let other = world();
    let all = other.list_dead_letters(&DeadLetterSelection::Newest(9)).unwrap();
    assert_eq!(names(&all), ["b.2", "a.4", "a.1"], "the newest first");
    assert_eq!(all[1], DeadLetter { run: id("a"), row: row(4, "y[2]/z"), settled: None });
    assert_eq!(names(&other.list_dead_letters(&DeadLetterSelection::Open(2)).unwrap()), ["b.2", "a.4"]);
    assert_eq!(names(&other.list_dead_letters(&DeadLetterSelection::InRun(id("a"))).unwrap()), ["a.4", "a.1"]);
    assert_eq!(names(&other.list_dead_letters(&DeadLetterSelection::InRun(id("none"))).unwrap()), [""; 0]);
    // Nothing of a lost row is visible.
    let mut lost = first.row(&["x"]);
    lost.claim.epoch += 1;
    lost.dead = vec![row(9, "lost")];
    assert_eq!(append(&*store, lost), Err(AppendError::Lost));
    assert_eq!(open(&*store), ["b.2", "a.4", "a.1"]);
}

pub(crate) fn a_dead_letter_is_seen_to_once(world: &World) {
    let store = world();
    dies(&*store, &mut Log::create(&*store, "a"), &[(1, "x"), (2, "y")], None);
    let letter = DeadLetterId { run: id("a"), number: 1 };
    assert_eq!(store.settle_dead_letter(&letter, &dropped()), Ok(None));
    let again = DeadLetterSettlement { how: SettlementKind::Dropped(None), ..dropped() };
    assert_eq!(world().settle_dead_letter(&letter, &again), Ok(Some(dropped())), "the first stands");
    assert_eq!(open(&*store), ["a.2"]);
    let all = store.list_dead_letters(&DeadLetterSelection::Newest(9)).unwrap();
    assert_eq!(all[1].settled, Some(dropped()), "it stays recorded");
    for unknown in [DeadLetterId { run: id("a"), number: 7 }, DeadLetterId { run: id("none"), number: 1 }] {
        assert!(matches!(store.settle_dead_letter(&unknown, &dropped()), Err(StoreError::Failed(_))));
    }
}

pub(crate) fn dead_letters_are_left_to_a_retry_or_not(world: &World) {
    let store = world();
    let mut log = Log::create(&*store, "a");
    dies(&*store, &mut log, &[(1, "x"), (2, "y")], None);
    store.settle_dead_letter(&DeadLetterId { run: id("a"), number: 1 }, &dropped()).unwrap();
    dies(&*store, &mut log, &[(3, "z")], Some(true));
    assert_eq!(open(&*store), [""; 0], "also those of the same row");
    let settled = |store: &dyn Store| -> Vec<Option<DeadLetterSettlement>> {
        store
            .list_dead_letters(&DeadLetterSelection::InRun(id("a")))
            .unwrap()
            .into_iter()
            .map(|dead| dead.settled)
            .collect()
    };
    let left = Some(DeadLetterSettlement::RETRIED);
    assert_eq!(settled(&*store), [left.clone(), left, Some(dropped())]);
    dies(&*store, &mut log, &[], Some(false));
    assert_eq!(settled(&*world()), [None, None, Some(dropped())]);
}

pub(crate) fn a_run_sees_to_dead_letters_as_it_is_made(world: &World) {
    let store = world();
    dies(&*store, &mut Log::create(&*store, "a"), &[(1, "x"), (2, "y")], None);
    let rerun = |run: &str, number| {
        let settled = DeadLetterSettlement { how: SettlementKind::Rerun(id(run)), by: None, at: None };
        NewRun { settles: vec![(DeadLetterId { run: id("a"), number }, settled)], ..new_run(run) }
    };
    store.create_runs(&[rerun("b", 1)]).unwrap();
    assert_eq!(open(&*store), ["a.2"]);
    // Of two runs that would rerun it, one does; and nothing of the other is stored.
    let refused = world().create_runs(&[rerun("c", 2), rerun("d", 1)]).unwrap_err();
    assert!(refused.to_string().contains("`a.1` is rerun by run b"), "{refused}");
    assert_eq!(open(&*store), ["a.2"]);
    assert!(store.find_run(&id("c")).unwrap().is_none() && store.find_run(&id("d")).unwrap().is_none());
    assert!(store.create_runs(&[rerun("e", 7)]).is_err());
}
