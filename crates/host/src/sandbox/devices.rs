//! The `/dev` of a sandbox: the few devices that every program needs, and its own terminals and shared memory.
//!
//! None of the devices leads to the user's terminal, a disk or another machine. `/dev/tty` is the controlling terminal
//! of the session of the process that opens it; a worker's session has none.

use std::{io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Mode, OFlags, mkdirat, openat, symlinkat},
    io::Errno,
    mount::{UnmountFlags, unmount},
};

use super::{
    mounts,
    view::{attach_mount, clone_descriptor, clone_tree, new_filesystem},
};

/// Devices that are the same for all processes.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The maximum number of copies of `/dev` that are tried.
const COPIES: usize = 100;

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Devices of the machine, held so that they can be mounted in another `/dev`.
#[derive(Debug)]
pub(super) struct DeviceNodes(Vec<(&'static str, OwnedFd)>);

impl DeviceNodes {
    pub(super) fn open() -> io::Result<DeviceNodes> {
        let mut held = Vec::new();
        for name in NODES {
            match clone_tree(&Path::new("/dev").join(name)) {
                Ok(tree) => held.push((name, tree)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(DeviceNodes(held))
    }

    /// Replaces `/dev` in the view of this process.
    pub(super) fn mount(&self) -> io::Result<()> {
        let filled = self.make_dev()?;
        cover_read_only(&filled)?;
        for (name, tree) in &self.0 {
            with_context(name, attach_mount(tree, &Path::new("/dev").join(name)))?;
        }
        let shared_memory = with_context("making shm", new_filesystem("tmpfs", &[("mode", "1777")]))?;
        with_context("shm", attach_mount(&shared_memory, Path::new("/dev/shm")))?;
        let terminals = new_filesystem("devpts", &[("mode", "0620"), ("ptmxmode", "0666")]);
        match terminals {
            Ok(terminals) => with_context("pts", attach_mount(&terminals, Path::new("/dev/pts"))),
            // Some containers provide no terminals. Programs that need one report that.
            Err(error) if is_refusal(&error) => Ok(()),
            Err(error) => with_context("making pts", Err(error)),
        }
    }

    /// Mounts a new `/dev` with mount points for all devices.
    fn make_dev(&self) -> io::Result<OwnedFd> {
        let dev = with_context("making it", new_filesystem("tmpfs", &[("mode", "0755"), ("size", "64k")]))?;
        with_context("attaching it first", attach_mount(&dev, Path::new("/dev")))?;
        for (name, _) in &self.0 {
            openat(&dev, *name, OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, Mode::from(0o444))?;
        }
        for folder in ["pts", "shm"] {
            mkdirat(&dev, folder, Mode::from(0o755))?;
        }
        for (name, target) in LINKS {
            symlinkat(target, &dev, name)?;
        }
        Ok(dev)
    }
}

/// Covers the new `/dev` with a copy of it that is read-only.
///
/// The mount is copied instead of being made read-only itself, because the kernel refuses that for a mount that it
/// counts as being written. Under load it sometimes does so for a mount that nobody wrote to, and for as long as that
/// mount exists. Then another copy is made.
fn cover_read_only(filled: &OwnedFd) -> io::Result<()> {
    for _ in 0..COPIES {
        let copy = with_context("copying it", clone_descriptor(filled))?;
        with_context("attaching it", attach_mount(&copy, Path::new("/dev")))?;
        match mounts::try_make_read_only(&copy) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                with_context("detaching it", unmount("/dev", UnmountFlags::DETACH).map_err(io::Error::from))?;
            }
            done => return with_context("making it read-only", done),
        }
    }
    with_context("making it read-only", Err(Errno::BUSY.into()))
}

/// Adds the operation to an error.
fn with_context<T>(what: &str, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
}

fn is_refusal(error: &io::Error) -> bool {
    let refusals = [Errno::PERM, Errno::ACCESS, Errno::NODEV, Errno::INVAL];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}
