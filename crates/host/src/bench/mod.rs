//! What this machine can do, and what the host makes of it: each as a time, measured in a folder that is given.
//!
//! Owns the work that is measured: plans of nothing but steps, hands that do nothing, and the same things done without a
//! host. Refuses to know what is good enough, and how it is shown.

mod adopt;
mod hands;
mod machine;
mod plans;
mod runs;

use std::io;

pub use adopt::{Left, finish, leave};
pub use hands::Nobody;
pub use machine::{commits, make, spawns, syncs};
pub use plans::{chain, checked, fan_out, functions as of_functions, gated, items, side_by_side};
pub use runs::{crew, functions, run, start};

use crate::{crew::CrewError, host::ResumeError, store::OpenError, store::StoreError};

/// As many as there are steps: nobody does their work.
const WORKERS: u32 = 10_000;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Resume(#[from] ResumeError),
    #[error(transparent)]
    Crew(#[from] CrewError),
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error("{0}")]
    Failed(String),
}
