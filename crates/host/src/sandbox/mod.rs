//! The sandbox around every program that runs for a workflow. The kernel enforces it, without the program's
//! cooperation.
//!
//! Owns the description of a sandbox ([`SandboxSpec`]) and the way a program is started inside one. Does not know steps
//! and capabilities. A sandbox has three processes:
//!
//! ```text
//! engine ── monitor ── init ── worker
//!           (this program, twice)
//! ```
//!
//! The *monitor* leaves the engine's namespaces, starts init and reports how the worker ended. *Init* is process 1 of a
//! process namespace: it builds the worker's view of the file system, gives up every privilege, starts the worker and
//! reaps orphans. When init ends, the kernel ends everything in its namespace; init ends with the monitor and the
//! monitor with the engine, so no process of a worker outlives any of them.

mod devices;
mod init;
mod landlock;
mod launch_request;
mod launcher;
mod monitor;
mod mounts;
mod place;
mod privileges;
mod seccomp;
mod view;

use std::{ffi::OsString, path::Path, process::ExitCode};

use serde::{Deserialize, Serialize};

pub use launcher::{SandboxLauncher, SandboxProbeError};
pub use place::{SandboxCover, SandboxPlace};

/// The first argument with which this program starts itself. The worker's program and arguments follow it.
pub const MONITOR_ARGUMENT: &str = "__sandbox";
pub const INIT_ARGUMENT: &str = "__sandbox-init";

/// The variable by which all processes of a worker are found. It passes through the sandbox unchanged.
pub(crate) const MARK_VARIABLE: &str = "SKEIN_MARK";

/// The description of a sandbox. A program in it can read everything else that its user may read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// Files and folders that the program may write.
    pub writes: Vec<SandboxPlace>,
    /// The program may write wherever its user may.
    pub writes_everywhere: bool,
    /// Files and folders that are empty for the program.
    pub hides: Vec<SandboxPlace>,
    /// Files and folders that the program can read and not write, also inside of hidden ones.
    pub shows: Vec<SandboxPlace>,
    /// Files that are replaced by others.
    pub covers: Vec<SandboxCover>,
    /// The folder that is `/tmp` and `/var/tmp` for the program. Without one, these are small and kept in memory.
    pub scratch: Option<SandboxPlace>,
    /// The working directory.
    pub directory: Option<SandboxPlace>,
    pub no_network: bool,
    /// The program sees `/tmp` and `/run` of the machine. For programs that only read and have no network.
    pub keeps_shared_folders: bool,
    /// If this machine cannot enforce the sandbox, the program runs without one.
    pub optional: bool,
}

/// The part of a sandbox that this machine can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxEnforcement {
    #[serde(rename = "all")]
    Full,
    /// Only writes are restricted. A worker can read hidden files, and can change hidden or protected files inside of a
    /// folder that it may write.
    #[serde(rename = "writes")]
    WritesOnly,
}

/// A sandbox and the program that builds it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub launcher: SandboxLauncher,
    pub spec: SandboxSpec,
}

/// Returns true if a path is below a folder that every sandbox replaces by its own. A program in a sandbox finds a file
/// there only if the sandbox shows it.
pub fn is_replaced_folder(path: &Path) -> bool {
    view::SHARED.iter().any(|folder| path.starts_with(folder))
}

/// Continues as the monitor or as the init of a sandbox, if the arguments ask for that.
pub fn enter_sandbox(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let first = arguments.next()?;
    if first == MONITOR_ARGUMENT {
        return Some(monitor::run_monitor(arguments));
    }
    (first == INIT_ARGUMENT).then(|| init::run_init(arguments))
}
