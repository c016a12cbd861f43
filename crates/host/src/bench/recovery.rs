//! Runs that are left unfinished, and going on with them.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use skein_core::{ids::RunId, plan::Plan};

use super::{BenchError, NullExecutor, WORKERS, runs};
use crate::{
    executor_api::Executor,
    host::{Host, HostEvent, WorkerCapacity},
    store::{RunSelection, SqliteStore, Store},
};

/// Runs that this process has and does not go on with.
#[derive(Debug)]
pub struct UnfinishedRuns {
    _host: Host,
}

/// Begins so many runs of a plan and brings them as far as they come by themselves. Whoever then kills this process
/// leaves them unfinished. With `idle`, no step of them ends.
pub fn leave_unfinished(
    state: &Path,
    plan: &Plan,
    count: usize,
    idle: bool,
) -> Result<UnfinishedRuns, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let hands: Box<dyn Executor> =
        Box::new(if idle { NullExecutor::new_idle() } else { NullExecutor::default() });
    let (tell, told) = std::sync::mpsc::channel();
    let watcher = Box::new(move |news: HostEvent<'_>| {
        if let HostEvent::Row { running, .. } = news
            && (running.state.is_waiting() || (idle && !running.state.in_flight().is_empty()))
        {
            let _ = tell.send(());
        }
    });
    let host = Host::new(store, hands, WorkerCapacity { workers: WORKERS }, watcher);
    host.launch_runs((0..count).map(|n| runs::build_run(n, plan, state)).collect())?;
    for _ in 0..count {
        told.recv().map_err(|_| BenchError::Failed("the host has stopped".into()))?;
    }
    Ok(UnfinishedRuns { _host: host })
}

/// How long it takes to go on with all that was left, to its end, where nobody has anything to do.
pub fn time_resume(state: &Path) -> Result<(usize, Duration), BenchError> {
    let began = Instant::now();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let unfinished: Vec<RunId> =
        store.select_runs(RunSelection::Orphaned)?.into_iter().map(|row| row.run).collect();
    let count = unfinished.len();
    let (host, ended) = runs::start_host(store, Box::<NullExecutor>::default(), WORKERS);
    host.resume_runs(unfinished).into_iter().try_for_each(|resumed| resumed.map(drop))?;
    runs::await_all(&ended, count)?;
    Ok((count, began.elapsed()))
}
