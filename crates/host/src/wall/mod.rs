//! The wall around a worker: what it may write, what it does not see, whether it has a network. The system keeps it, not
//! the worker's good will.
//!
//! Owns what a wall says and how a program is started behind one. A wall can only be built by the process it is for, so
//! a worker is started as this program itself ([`ARGUMENT`]), which builds the wall and then becomes the worker: same
//! process, same parent, nothing in between. Refuses to know steps and capabilities.

mod build;
mod enter;
mod mounts;
mod rules;
mod view;

use std::{ffi::OsString, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use build::Kept;
pub use enter::{ARGUMENT, enter, here};

/// What a worker may do. Everything else of the file system it may read, as far as its user may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wall {
    /// Files and folders that it may write. `/`: all that its user may.
    pub writes: Vec<PathBuf>,
    /// Files and folders that are empty for it.
    pub hides: Vec<PathBuf>,
    /// What it sees all the same of what is hidden, and cannot write.
    pub shows: Vec<PathBuf>,
    pub no_network: bool,
    /// Where the system does not let a wall be built, the worker runs without one.
    pub optional: bool,
}

/// A wall and the program that builds it.
#[derive(Debug, Clone)]
pub struct Behind {
    /// This program.
    pub builder: PathBuf,
    pub wall: Wall,
}

impl Behind {
    /// What the builder is given before the program and its arguments. None where a path is not text.
    pub fn arguments(&self) -> Option<[OsString; 2]> {
        Some([ARGUMENT.into(), serde_json::to_string(&self.wall).ok()?.into()])
    }
}
