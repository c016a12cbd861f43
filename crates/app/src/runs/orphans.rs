//! Orphaned runs, whose owning process died: reports them and ends the processes that they left.
//!
//! Claims no run, because resuming is the task of `resume`. No process of a live run is ended: the processes are listed
//! before their run is found to be orphaned, and a process that takes the run over starts only new attempts.

use std::{collections::BTreeSet, io, path::Path};

use skein_core::{ids::RunId, limits, time::Millis};
use skein_host::{
    process::{self, ProcessMark, ProcessRecord, StateMark},
    store::{RunRow, RunSelection, Store},
    workspace::{RootFolder, RunDir},
};

use crate::{app::App, app_error::AppError, state::StateHandle};

/// Time that workers have to stop when this process exits at once.
const FORCED_GRACE: Millis = Millis(500);
/// Maximum number of runs that are named.
const NAMED: usize = 5;

/// Warns about orphaned runs, and ends the processes that they left.
pub fn report_and_reap(app: &App, state: &StateHandle) -> Result<(), AppError> {
    let orphaned = find_orphaned_runs(state)?;
    if orphaned.is_empty() {
        return Ok(());
    }
    for row in orphaned.iter().take(NAMED) {
        let (run, workflow) = (&row.run, &row.head.workflow);
        app.warn(&format!("run {run} of {workflow} was interrupted; `skein resume {run}` resumes it"));
    }
    if let more @ 1.. = orphaned.len().saturating_sub(NAMED) {
        app.warn(&format!("{more} more were interrupted; `skein resume --all` resumes all of them"));
    }
    reap_workers(app, state, &orphaned)
}

/// Ends the workers of runs when this process exits without stopping its host.
pub fn end_workers(state: &Path, runs: &[RunId]) -> io::Result<()> {
    let mark = StateMark::from_directory(state)?;
    let root = RootFolder::open(state).map_err(io::Error::other)?;
    let folders = runs.iter().filter_map(|run| RunDir::open(&root, run).ok());
    let records: Vec<ProcessRecord> =
        folders.flat_map(|run| process::find_records(run.path())).map(|(_, record)| record).collect();
    process::reap_leftovers(&mark, &records, |mark| runs.contains(&mark.run), FORCED_GRACE);
    Ok(())
}

fn find_orphaned_runs(state: &StateHandle) -> Result<Vec<RunRow>, AppError> {
    Ok(state.store.select_runs(RunSelection::Orphaned)?)
}

fn reap_workers(app: &App, state: &StateHandle, orphaned: &[RunRow]) -> Result<(), AppError> {
    let mark = StateMark::from_directory(&state.path).map_err(|error| AppError::store(error.to_string()))?;
    let root = RootFolder::open(&state.path).map_err(|error| AppError::store(error.to_string()))?;
    // A run without its folder has no records; its processes are found by the marks in their environment.
    let folders = orphaned.iter().filter_map(|row| RunDir::open(&root, &row.run).ok());
    let records: Vec<ProcessRecord> =
        folders.flat_map(|run| process::find_records(run.path())).map(|(_, record)| record).collect();
    let runs: BTreeSet<&RunId> = orphaned.iter().map(|row| &row.run).collect();
    let left = process::find_leftovers(&mark, &records, |mark| runs.contains(&mark.run));
    if left.is_empty() {
        return Ok(());
    }
    // Selects the runs again: a process that claimed a run in the meantime may have started workers of its own.
    let still = find_orphaned_runs(state)?;
    let still: BTreeSet<&RunId> = still.iter().map(|row| &row.run).collect();
    let marks: BTreeSet<ProcessMark> =
        left.into_iter().map(|found| found.mark).filter(|mark| still.contains(&mark.run)).collect();
    let reaped =
        process::reap_leftovers(&mark, &records, |mark| marks.contains(mark), Millis(limits::STOP_GRACE_DEFAULT));
    for found in reaped.left {
        app.warn(&format!("process {} ({}) of run {} cannot be ended", found.pid, found.name, found.mark.run));
    }
    Ok(())
}
