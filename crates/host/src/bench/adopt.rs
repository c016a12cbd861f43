//! Runs that are left unfinished, and going on with them.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use skein_core::{ids::RunId, plan::Plan};

use super::{BenchError, Nobody, WORKERS, runs};
use crate::{
    hands::Hands,
    host::{Capacity, Host, Told},
    store::{Sqlite, Store, Which},
};

/// Runs that this process has and does not go on with.
#[derive(Debug)]
pub struct Left {
    _host: Host,
}

/// Begins so many runs of a plan and brings them as far as they come by themselves. Whoever then kills this process
/// leaves them unfinished. With `idle`, no step of them ends.
pub fn leave(state: &Path, plan: &Plan, count: usize, idle: bool) -> Result<Left, BenchError> {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(state)?);
    let hands: Box<dyn Hands> = Box::new(if idle { Nobody::idle() } else { Nobody::default() });
    let (tell, told) = std::sync::mpsc::channel();
    let watcher = Box::new(move |news: Told<'_>| {
        if let Told::Row { running, .. } = news
            && (running.state.is_waiting() || (idle && !running.state.in_flight().is_empty()))
        {
            let _ = tell.send(());
        }
    });
    let host = Host::new(store, hands, Capacity { workers: WORKERS }, watcher);
    host.begin((0..count).map(|n| runs::start(n, plan, state)).collect())?;
    for _ in 0..count {
        told.recv().map_err(|_| BenchError::Failed("the host has stopped".into()))?;
    }
    Ok(Left { _host: host })
}

/// How long it takes to go on with all that was left, to its end, where nobody has anything to do.
pub fn finish(state: &Path) -> Result<(usize, Duration), BenchError> {
    let began = Instant::now();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(state)?);
    let unfinished: Vec<RunId> = store.runs(Which::Orphaned)?.into_iter().map(|row| row.run).collect();
    let count = unfinished.len();
    let (host, ended) = runs::host(store, Box::<Nobody>::default(), WORKERS);
    host.resume(unfinished).into_iter().try_for_each(|resumed| resumed.map(drop))?;
    runs::await_all(&ended, count)?;
    Ok((count, began.elapsed()))
}
