//! The sandbox around every program that runs for a workflow. The kernel enforces it, not the program's good will.
//!
//! Owns the description of a sandbox ([`SandboxSpec`]) and the way a program is started inside one. Refuses to know steps
//! and capabilities. A sandbox has three processes:
//!
//! ```text
//! engine ── monitor ── init ── worker
//!           (this program, twice)
//! ```
//!
//! The *monitor* leaves the engine's namespaces, starts init and reports how the worker ended. *Init* is process 1 of a
//! process namespace: it builds the worker's view of the file system, gives up every privilege, starts the worker and reaps
//! orphans. When init ends, the kernel ends everything in its namespace; init ends with the monitor and the monitor with the
//! engine, so no process of a worker outlives any of them.

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

pub use launcher::SandboxLauncher;
pub use place::{SandboxCover, SandboxPlace};

/// The first argument of a process that this program starts itself as. What follows is the worker's program and arguments.
pub const MONITOR_ARGUMENT: &str = "__sandbox";
pub const INIT_ARGUMENT: &str = "__sandbox-init";

/// The description of a sandbox. A program in it reads everything else that its user may read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// Files and folders that the program may write.
    pub writes: Vec<SandboxPlace>,
    /// The program may write wherever its user may.
    pub writes_everywhere: bool,
    /// Files and folders that are empty for the program.
    pub hides: Vec<SandboxPlace>,
    /// Files and folders that the program sees and cannot write, also inside of hidden ones.
    pub shows: Vec<SandboxPlace>,
    /// Files that others take the place of.
    pub covers: Vec<SandboxCover>,
    /// The folder that is `/tmp` and `/var/tmp` for the program. Without one, these are small and kept in memory.
    pub scratch: Option<SandboxPlace>,
    /// The working directory.
    pub directory: Option<SandboxPlace>,
    pub no_network: bool,
    /// The program sees `/tmp` and `/run` of the machine, for programs that only read, and without a network.
    pub keeps_shared_folders: bool,
    /// Where this machine cannot enforce the sandbox, the program runs without one.
    pub optional: bool,
}

/// How much of a sandbox this machine can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxEnforcement {
    #[serde(rename = "all")]
    Full,
    /// Only writes are confined. A worker can read what should be hidden, and can change what is hidden or protected inside
    /// of a folder that it may write.
    #[serde(rename = "writes")]
    WritesOnly,
}

/// A sandbox and the program that builds it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub launcher: SandboxLauncher,
    pub spec: SandboxSpec,
}

/// Whether a path is below a folder that every sandbox has for itself. What a program in a sandbox is to find there must be
/// shown to it.
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
