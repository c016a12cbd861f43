//! Snapshots are a cache: with one, with a damaged one and without, a run is the same.

use std::{fs, sync::Arc};

use serde_json::json;
use skein_core::{
    engine::{
        DecisionActor, Driver, JournalBatch, RunInput, RunProjection, RunState, STATE_VERSION, Verdict, Waitpoint,
    },
    plan::{ContentHash, Plan, PlanDefinition},
    view,
};
use skein_host::{
    bench::{self, NullExecutor},
    host::{LoadedRun, RunLoader, RunSnapshot},
    store::{RunRow, SqliteStore, Store},
};
use skein_testkit::store::MemoryStore;

use super::{
    golden::{folders, golden},
    kit::{after, each, gate, graph, plan, routed, work},
    life::{Place, live},
    reference,
    stage::{Stage, id, rows},
};

fn row(store: &dyn Store, run: &str) -> RunRow {
    store.find_run(&id(run)).unwrap().unwrap()
}

fn recalled(store: &dyn Store, run: &str) -> LoadedRun {
    RunLoader::new(store).load_run(&row(store, run)).unwrap()
}

fn bare(frozen: &str) -> Plan {
    let definition = PlanDefinition::from_frozen_json(frozen).definition.expect("a definition");
    Plan { parameters: Arc::default(), hash: definition.hash(), definition }
}

/// A snapshot of a run after these rows.
fn snapshot(store: &dyn Store, run: &str, rows: &[JournalBatch]) -> Vec<u8> {
    let frozen = String::from_utf8(store.read_definition(row(store, run).definition).unwrap()).unwrap();
    let mut projection = RunProjection::new(bare(&frozen));
    rows.iter().for_each(|row| projection.apply_row(row).unwrap());
    RunSnapshot::new(&id(run), &projection).to_bytes().unwrap()
}

fn is_same(one: &LoadedRun, other: &LoadedRun) {
    assert_eq!(one.projection.state(), other.projection.state());
    assert_eq!(one.projection.chain(), other.projection.chain());
    assert_eq!(one.projection.plan().hash, other.projection.plan().hash);
    assert_eq!(one.projection.ledger(), other.projection.ledger());
    let shown = |it: &LoadedRun| view::view_run(it.projection.plan(), it.projection.state());
    assert_eq!(shown(one), shown(other));
}

#[test]
fn a_snapshot_after_any_row_of_any_reference_run_gives_what_the_journal_does() {
    let snapshots = reference::with_each(|name| {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path());
        fs::create_dir(&place.state).unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        live(&place, &store, Box::new(place.crew()), &[name], None);
        let (whole, rows) = (recalled(&*store, name), rows(&*store, &id(name)));
        assert_eq!(whole.snapshot, 0, "a short run needs none");
        for count in 1..=rows.len() {
            store.keep_snapshot(&id(name), &snapshot(&*store, name, &rows[..count]));
            let from = recalled(&*store, name);
            let last = &rows[count - 1];
            assert_eq!(from.snapshot, last.seq + last.records.len() as u64, "{name}: it was used");
            is_same(&from, &whole);
        }
        rows.len()
    });
    assert!(snapshots > 100, "{snapshots}");
}

/// A run of a chain of steps that has ended, in its own store.
fn ended(run: &str, steps: usize) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let stage = Stage::new(Arc::clone(&store), NullExecutor::default(), 9);
    stage.begin(&[(run, &bench::chain_plan(steps))]);
    stage.closed(&[run]);
    store
}

/// Puts the hash of the content in front, as if it had been written so.
fn hashed(json: &str) -> Vec<u8> {
    [&ContentHash::hash_bytes(json.as_bytes()).0[..], json.as_bytes()].concat()
}

#[test]
fn a_snapshot_that_is_damaged_or_of_something_else_is_not_used() {
    let store = ended("r", 5);
    let (whole, all) = (recalled(&*store, "r"), rows(&*store, &id("r")));
    let good = snapshot(&*store, "r", &all[..3]);
    let json = String::from_utf8(good[32..].to_vec()).unwrap();
    assert_eq!(hashed(&json), good);

    let mut bad: Vec<(String, Vec<u8>)> = Vec::new();
    for at in (0..good.len()).step_by(7) {
        let mut flipped = good.clone();
        flipped[at] ^= 4;
        bad.push((format!("flipped at {at}"), flipped));
        bad.push((format!("torn at {at}"), good[..at].to_vec()));
    }
    let form = |version: u32| format!("\"form\":[\"{}\",{version}]", env!("CARGO_PKG_VERSION"));
    let edited = |from: &str, to: &str| {
        assert_eq!(json.matches(from).count(), 1, "{from}");
        hashed(&json.replacen(from, to, 1))
    };
    bad.push(("newer".into(), edited(&form(STATE_VERSION), &form(STATE_VERSION + 1))));
    bad.push(("another release".into(), edited(&form(STATE_VERSION), "\"form\":[\"9.9.9\",1]")));
    bad.push(("more than is known".into(), edited("{\"form\"", "{\"more\":1,\"form\"")));
    bad.push(("less than is needed".into(), edited("\"completions\":0,", "")));
    let chain = format!("\"chain\":\"{}\"", all[2].chain);
    bad.push((
        "another row".into(),
        edited(&chain, &chain.replace(&all[2].chain.to_string(), &all[1].chain.to_string())),
    ));
    let events = format!("\"events\":{},", all[3].seq);
    bad.push(("not at a row".into(), edited(&events, &format!("\"events\":{},", all[3].seq - 1))));
    bad.push(("of no events".into(), edited(&events, "\"events\":0,")));
    bad.push(("longer than the journal".into(), edited(&events, "\"events\":1000,")));
    let other = ended("other", 5);
    bad.push(("another run".into(), snapshot(&*other, "other", &rows(&*other, &id("other"))[..3])));
    let other = ended("r", 6);
    bad.push(("another plan".into(), snapshot(&*other, "r", &rows(&*other, &id("r"))[..3])));
    let other = ended("r", 5);
    let journal = rows(&*other, &id("r"));
    if journal[2].chain != all[2].chain {
        bad.push(("another journal".into(), snapshot(&*other, "r", &journal[..3])));
    }

    for (what, bytes) in bad {
        store.keep_snapshot(&id("r"), &bytes);
        let from = recalled(&*store, "r");
        assert_eq!(from.snapshot, 0, "{what}");
        is_same(&from, &whole);
    }
    store.keep_snapshot(&id("r"), &good);
    assert!(recalled(&*store, "r").snapshot > 0);
}

#[test]
fn a_long_run_goes_on_from_a_snapshot_and_as_well_without() {
    let items = each("all", json!(vec![1; 600]), 60, routed(vec![work("one")]));
    let plan = plan(graph(vec![items, after(gate("g"), &["all"]), after(work("b"), &["g"])]));
    let dir = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(dir.path().join("state")).unwrap()) };
    let kept = || fs::read_dir(dir.path().join("state/snapshots")).map_or(0, Iterator::count);

    let store = open();
    let stage = Stage::new(Arc::clone(&store), NullExecutor::default(), 99);
    stage.begin(&[("r", &plan)]);
    stage.event("r", |event| matches!(event, skein_core::engine::Event::Opened { .. }));
    stage.host.leave_runs(&[id("r")]);
    drop((stage, store));
    assert_eq!(kept(), 1, "one for each run");

    let store = open();
    let with = recalled(&*store, "r");
    assert!(with.snapshot > 2_000, "it was made on the way");
    let from_all_rows = || {
        fs::remove_dir_all(dir.path().join("state/snapshots")).unwrap();
        recalled(&*store, "r")
    };
    let without = from_all_rows();
    assert_eq!(without.snapshot, 0);
    is_same(&with, &without);

    // Resumed from the snapshot.
    let frozen = String::from_utf8(store.read_definition(row(&*store, "r").definition).unwrap()).unwrap();
    let journal = rows(&*store, &id("r"));
    let driver = Driver::replay(bare(&frozen), &journal).unwrap();
    store.keep_snapshot(&id("r"), &RunSnapshot::new(&id("r"), driver.projection()).to_bytes().unwrap());
    let stage = Stage::new(Arc::clone(&store), NullExecutor::default(), 99);
    assert!(stage.host.resume_runs(vec![id("r")]).iter().all(Result::is_ok));
    let (by, decision) = (DecisionActor { name: "ann".into(), roles: Vec::new() }, Verdict::Approve);
    let yes = RunInput::Decide { opening: Waitpoint(0), decision, by, reason: None };
    assert_eq!(stage.host.send_input(&id("r"), yes), Some(Ok(())));
    stage.closed(&["r"]);
    drop(stage);
    let with = recalled(&*store, "r");
    assert!(with.snapshot > 0);
    is_same(&with, &from_all_rows());
}

/// A change of the meaning of events, or of the state's serialized form, makes earlier snapshots wrong.
#[test]
fn a_state_that_is_written_otherwise_has_another_version() {
    let mut all = Vec::new();
    for folder in folders(&golden()).iter().flat_map(|version| folders(version)) {
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let rows: Vec<JournalBatch> =
            text("journal.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for count in 1..=rows.len() {
            let driver = Driver::replay(bare(&text("plan.json")), &rows[..count]).unwrap();
            let written = serde_json::to_string(driver.state()).unwrap();
            let read: RunState = serde_json::from_str(&written).unwrap();
            assert_eq!(read, *driver.state());
            all.push(written);
        }
    }
    let now = (STATE_VERSION, ContentHash::hash_json(&all).to_string());
    let known = (5, "adc74a84c678c734b96d506efad17d7284a107af05acd9a78969873f4c338517".to_owned());
    assert_eq!(now, known, "raise STATE_VERSION, and write down here what it goes with");
}
