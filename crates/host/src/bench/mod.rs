//! Benchmarks of this machine and of the host on it. Each result is a time, measured in a given folder.
//!
//! Owns the work that is measured: synthetic plans, an executor that does nothing, and the same operations without a
//! host. Does not know which result is good enough, and how results are shown.

mod baseline;
mod null_executor;
mod plans;
mod recovery;
mod runs;

use std::io;

pub use baseline::{time_commits, time_make, time_spawns, time_syncs};
pub use null_executor::NullExecutor;
pub use plans::{
    chain_plan, checked_plan, fan_out_plan, function_plan as of_functions, gated_plan, items_plan, parallel_plan,
};
pub use recovery::{UnfinishedRuns, leave_unfinished, time_resume};
pub use runs::{build_runs, time_functions, time_programs, time_runs};

use crate::{executor::ExecutorError, host::ResumeError, store::StoreError, store::StoreOpenError};

/// A worker for every step: the steps do no work.
const WORKERS: u32 = 10_000;

/// The reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error(transparent)]
    Crew(#[from] ExecutorError),
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error("{0}")]
    Failed(String),
}
