//! How long it takes to have a long run again: from its journal alone, and from a snapshot with the rows after it.
//!
//! Times are those that the processor spent on it, so that they mean something on a machine that does other things, too.

use std::{fs, path::Path, sync::Arc, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use skein_core::{engine::RunProjection, plan::Plan};
use skein_host::{
    bench,
    host::{RunLoader, RunSnapshot},
    store::{RunRow, RunSelection, SqliteStore, Store},
};

/// How long this thread has been at work.
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("no time is negative")
}

fn took(what: impl FnOnce()) -> Duration {
    let began = worked();
    what();
    worked() - began
}

fn best(mut what: impl FnMut()) -> Duration {
    (0..5).map(|_| took(&mut what)).min().expect("five of them")
}

/// Keeps a snapshot of the run as it was after so many of its events, and says how long that took and how large it is.
fn keep(store: &dyn Store, row: &RunRow, plan: &Plan, events: u64) -> (Duration, usize) {
    let mut run = RunProjection::new(plan.clone());
    let read = store.read_journal(&row.run, 0, &mut |batch| {
        run.apply_row(&batch).expect("a journal");
        run.state().events < events
    });
    read.expect("a journal");
    let mut bytes = 0;
    let took = took(|| {
        let written = RunSnapshot::new(&row.run, &run).to_bytes().expect("it is not too large");
        store.keep_snapshot(&row.run, &written);
        bytes = written.len();
    });
    (took, bytes)
}

fn reopen(folder: &Path, name: &str, plan: &Plan) {
    let state = folder.join(name);
    bench::time_runs(&state, plan, 1).expect("it runs");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&state).expect("a store"));
    let row = store.select_runs(RunSelection::Newest(1)).expect("rows").remove(0);
    let recall = || RunLoader::new(&*store).load_run(&row).expect("it can be read").projection.state().events;
    let _ = fs::remove_dir_all(state.join("snapshots"));
    let events = recall();
    let whole = best(|| assert_eq!(recall(), events));
    println!("{name}: {events} events, from the journal {whole:.1?}");
    for part in [events * 4 / 5, events] {
        let (took, bytes) = keep(&*store, &row, plan, part);
        let time = best(|| assert_eq!(recall(), events));
        let ratio = whole.as_secs_f64() / time.as_secs_f64();
        println!(
            "  with a snapshot of {part} events ({} KiB, made in {took:.1?}): {time:.1?}, {ratio:.1} times as fast",
            bytes / 1024
        );
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    for count in [100, 1_000, 10_000] {
        reopen(folder.path(), &format!("{count} steps in a row"), &bench::chain_plan(count));
        reopen(folder.path(), &format!("two steps for each of {count} items"), &bench::items_plan(count));
    }
    reopen(folder.path(), "20 steps, each done 1000 times", &bench::checked_plan(20));
}
