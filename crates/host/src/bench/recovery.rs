//! Unfinished runs, and their recovery.

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

/// Runs that this process owns and does not continue.
#[derive(Debug)]
pub struct UnfinishedRuns {
    _host: Host,
}

/// Starts `count` runs of a plan and lets them advance as far as they can. If this process is then killed, they are
/// left unfinished. With `idle`, no step of them ends.
pub fn leave_unfinished(state: &Path, plan: &Plan, count: usize, idle: bool) -> Result<UnfinishedRuns, BenchError> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let hands: Box<dyn Executor> = Box::new(if idle { NullExecutor::new_idle() } else { NullExecutor::default() });
    let (tell, told) = std::sync::mpsc::channel();
    let watcher = Box::new(move |news: HostEvent<'_>| {
        if let HostEvent::Row { running, .. } = news
            && (running.state.is_waiting() || (idle && !running.state.in_flight().is_empty()))
        {
            let _ = tell.send(());
        }
    });
    let host = Host::new(store, hands, WorkerCapacity { workers: WORKERS }, watcher);
    host.launch_runs(runs::build_runs(count, plan, state))?;
    for _ in 0..count {
        told.recv().map_err(|_| BenchError::Failed("the host has stopped".into()))?;
    }
    Ok(UnfinishedRuns { _host: host })
}

/// Times the resume of all interrupted runs to their ends. Their steps do no work.
pub fn time_resume(state: &Path) -> Result<(usize, Duration), BenchError> {
    let began = Instant::now();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(state)?);
    let unfinished: Vec<RunId> = store.select_runs(RunSelection::Orphaned)?.into_iter().map(|row| row.run).collect();
    let count = unfinished.len();
    let (host, ended) = runs::start_host(store, Box::<NullExecutor>::default(), WORKERS);
    host.resume_runs(unfinished).into_iter().try_for_each(|resumed| resumed.map(drop))?;
    runs::await_all(&ended, count)?;
    Ok((count, began.elapsed()))
}
