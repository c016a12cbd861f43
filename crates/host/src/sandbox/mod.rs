//! The sandbox around every program that runs for a workflow. The kernel enforces it, without the program's
//! cooperation.
//!
//! Owns the description of a sandbox ([`SandboxSpec`]) and the way a program is started inside one, and guarantees that
//! a path means the same to the launcher as to the engine: a worker of another step can rename folders and plant links
//! between the two; then nothing is mounted ([`SandboxPlace`]). Does not know steps and capabilities. A sandbox has three
//! processes:
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

mod init;
mod landlock;
mod launcher;
mod monitor;
mod mounts;
mod seccomp;
mod view;

use std::{
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::ExitCode,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fstat, open, openat2},
    io::Errno,
};
use serde::{Deserialize, Serialize};

pub use self::launcher::{SandboxLauncher, SandboxProbeError};

/// The first argument with which this program starts itself. The worker's program and arguments follow it.
pub(crate) const MONITOR_ARGUMENT: &str = "__sandbox";
pub(crate) const INIT_ARGUMENT: &str = "__sandbox-init";

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
pub(crate) fn is_replaced_folder(path: &Path) -> bool {
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

/// The maximum number of retries because a folder on the path was moved meanwhile.
const RETRIES: u32 = 100;

/// A path without links, and the identity of the file that the engine found there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxPlace {
    pub path: PathBuf,
    device: u64,
    inode: u64,
}

/// A file that replaces the one at a path. The replacement is read-only there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxCover {
    pub source: SandboxPlace,
    pub at: PathBuf,
}

impl SandboxPlace {
    /// Returns the place at a path that has no links in it.
    pub fn find(path: &Path) -> io::Result<SandboxPlace> {
        let found = resolve_path(path)?;
        SandboxPlace::from_descriptor(path, &found)
    }

    /// Returns the place of an open descriptor.
    pub(crate) fn from_descriptor(path: &Path, descriptor: impl std::os::fd::AsFd) -> io::Result<SandboxPlace> {
        let stat = fstat(descriptor)?;
        Ok(SandboxPlace { path: path.to_owned(), device: stat.st_dev, inode: stat.st_ino })
    }

    /// Opens the place as a bare descriptor, if the path still leads to the same file.
    fn open(&self) -> io::Result<OwnedFd> {
        let found = resolve_path(&self.path)?;
        let stat = fstat(&found)?;
        if (stat.st_dev, stat.st_ino) == (self.device, self.inode) {
            return Ok(found);
        }
        let message = format!("{} was replaced while the program was being started", self.path.display());
        Err(io::Error::other(message))
    }
}

/// Opens a path from the root. No part of it may be a link.
fn resolve_path(path: &Path) -> io::Result<OwnedFd> {
    let below = path.strip_prefix("/").map_err(|_| io::Error::from(Errno::INVAL))?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    if below.as_os_str().is_empty() {
        return Ok(root);
    }
    let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RETRIES {
        match openat2(&root, below, flags, Mode::empty(), rules) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::LOOP) => {
                return Err(io::Error::other(format!("{} leads through a symbolic link", path.display())));
            }
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Returns the path of a descriptor of this process, for calls that accept no descriptor.
fn descriptor_path(descriptor: &impl std::os::fd::AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Returns true if a path exists in the view of this process, without following links.
fn path_exists(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_swapped_folder_is_noticed() {
        let dir = tempfile::tempdir().expect("a folder");
        let top = dir.path().canonicalize().expect("a real path");
        fs::create_dir_all(top.join("a/sub")).expect("a folder");
        fs::create_dir_all(top.join("evil/sub")).expect("a folder");
        let place = SandboxPlace::find(&top.join("a/sub")).expect("it is there");
        place.open().expect("nothing changed");
        fs::rename(top.join("a"), top.join("b")).expect("it can be moved");
        symlink(top.join("evil"), top.join("a")).expect("a link");
        let error = place.open().expect_err("the path leads through a link now");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        fs::remove_file(top.join("a")).expect("it can be removed");
        fs::rename(top.join("evil"), top.join("a")).expect("it can be moved");
        let error = place.open().expect_err("another folder has the name now");
        assert!(error.to_string().contains("was replaced"), "{error}");
    }

    #[test]
    fn a_path_with_a_link_or_without_a_root_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        symlink("/etc", dir.path().join("link")).expect("a link");
        assert!(SandboxPlace::find(&dir.path().join("link/passwd")).is_err());
        assert!(SandboxPlace::find(Path::new("etc/passwd")).is_err());
        assert!(SandboxPlace::find(Path::new("/")).is_ok());
    }
}
