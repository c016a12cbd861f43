//! The behaviour of any store with audit records. `conformance` runs each of these on each store.

use std::thread;

use serde_json::{Value, json};
use skein_core::time::Timestamp;
use skein_host::{
    audit::{AuditActor, AuditChain, AuditEntry, AuditSubject},
    store::{AppendError, NewRun, Store, StoreError, StoredAuditRecord},
};

use super::{
    conformance::World,
    support::{Log, append, id, new_run},
};

pub(crate) fn entry(name: &str) -> AuditEntry {
    AuditEntry {
        at: Timestamp(5),
        actor: AuditActor::from_user("ada"),
        action: "gate.approve",
        subject: AuditSubject { kind: "gate", name: name.into(), path: None },
        input: json!({"event": 1}),
        output: Value::Null,
    }
}

/// Returns the records from a number on, as they are stored.
pub(crate) fn kept(store: &dyn Store, from: u64) -> Vec<StoredAuditRecord> {
    let mut all = Vec::new();
    store
        .read_audit(from, &mut |noted| {
            all.push(noted);
            true
        })
        .unwrap();
    all
}

/// Returns the subjects of the records. The whole chain must be valid.
pub(crate) fn told(store: &dyn Store) -> Vec<String> {
    let mut chain = AuditChain::default();
    let name = |noted: StoredAuditRecord| {
        assert_eq!(noted.seq, chain.count);
        let record = chain.verify_next(&noted.line).unwrap_or_else(|broken| panic!("{broken}"));
        record["subject"]["ref"].as_str().unwrap().to_owned()
    };
    kept(store, 0).into_iter().map(name).collect()
}

pub(crate) fn records_come_with_their_row(world: &World) {
    let store = world();
    assert_eq!(told(&*store), [""; 0]);
    store.create_runs(&[NewRun { audit: vec![entry("start")], ..new_run("b") }]).unwrap();
    let mut log = Log::create(&*store, "a");
    let mut row = log.row(&["x"]);
    row.audit = vec![entry("one"), entry("two")];
    let batch = row.batch.clone();
    append(&*store, row).unwrap();
    log.wrote(&batch);
    log.append(&*store, &["nothing to tell"]).unwrap();
    store.append_audit(&[entry("apart")]).unwrap();
    assert_eq!(told(&*world()), ["start", "one", "two", "apart"]);
    assert_eq!(kept(&*store, 2).iter().map(|noted| noted.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(kept(&*store, u64::MAX), []);
}

pub(crate) fn nothing_is_told_of_what_was_not_written(world: &World) {
    let store = world();
    let log = Log::create(&*store, "a");
    let mut row = Log { seq: 7, ..log }.row(&["x"]);
    row.audit = vec![entry("lost")];
    assert_eq!(append(&*store, row), Err(AppendError::Lost));
    let twice = NewRun { audit: vec![entry("twice")], ..new_run("a") };
    assert!(matches!(store.create_runs(&[twice]), Err(StoreError::Failed(_))));
    assert_eq!(store.find_run(&id("b")), Ok(None));
    assert_eq!(told(&*store), [""; 0]);
}

/// Enough to fill pages, from several owners at once.
pub(crate) fn owners_share_one_chain(world: &World) {
    thread::scope(|scope| {
        for owner in 0..4 {
            let store = world();
            scope.spawn(move || {
                let mut log = Log::create(&*store, &format!("r{owner}"));
                for n in 0..100 {
                    let mut row = log.row(&["x"]);
                    row.audit = vec![entry(&format!("{owner}.{n}")), entry("second")];
                    let batch = row.batch.clone();
                    append(&*store, row).unwrap();
                    log.wrote(&batch);
                }
            });
        }
    });
    let told = told(&*world());
    assert_eq!(told.len(), 800);
    for owner in 0..4 {
        let own: Vec<_> = told.iter().filter_map(|name| name.strip_prefix(&format!("{owner}."))).collect();
        assert_eq!(own, (0..100).map(|n| n.to_string()).collect::<Vec<_>>(), "in their order");
    }
}
