//! What this machine can do, and what the host makes of it: each as a time, measured in a folder that is given.
//!
//! Owns the work that is measured: plans of nothing but steps, hands that do nothing, and the same things done without a
//! host. Refuses to know what is good enough, and how it is shown.

mod baseline;
mod null_executor;
mod plans;
mod recovery;
mod runs;

use std::io;

pub use baseline::{time_commits, time_make, time_spawns, time_syncs};
pub use null_executor::NullExecutor;
pub use plans::{
    chain_plan, checked_plan, fan_out_plan, function_plan as of_functions, gated_plan, items_plan,
    parallel_plan,
};
pub use recovery::{UnfinishedRuns, leave_unfinished, time_resume};
pub use runs::{build_run, time_functions, time_programs, time_runs};

use crate::{executor::ExecutorError, host::ResumeError, store::StoreError, store::StoreOpenError};

/// As many as there are steps: nobody does their work.
const WORKERS: u32 = 10_000;

/// Why something could not be measured.
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
