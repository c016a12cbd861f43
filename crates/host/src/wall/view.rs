//! Building a wall around this process, by a view of the file system of its own.
//!
//! Owns the order of things: what is to stay as it is is taken aside first, then everything becomes read-only, then what
//! was taken aside is put back over it, outer folders before inner ones. Nothing of this is seen by other processes, and
//! it ends with the last process that has this view. Needs no rights: who has none gets them over a name space of
//! their own, and loses them when the program starts.

use std::{
    ffi::CStr,
    fmt, fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::CWD,
    mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_change,
        move_mount, open_tree,
    },
    process::{getgid, getuid},
    thread::{
        CapabilitySet, UnshareFlags, capabilities, remove_capability_from_bounding_set, set_no_new_privs,
    },
};

use super::{
    Wall,
    mounts::{self, Mount},
};

/// Why there is no wall.
#[derive(Debug)]
pub struct Unbuilt {
    doing: String,
    error: io::Error,
}

impl fmt::Display for Unbuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.error)
    }
}

trait Doing<T> {
    fn doing(self, what: impl fmt::Display) -> Result<T, Unbuilt>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl fmt::Display) -> Result<T, Unbuilt> {
        self.map_err(|error| Unbuilt { doing: what.to_string(), error: error.into() })
    }
}

/// With these a program could undo the wall, or reach around it.
const TAKEN: [CapabilitySet; 13] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::MKNOD,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::PERFMON,
    CapabilitySet::BPF,
    CapabilitySet::CHECKPOINT_RESTORE,
    CapabilitySet::SYSLOG,
];

/// What becomes of one place, put aside before everything else is made read-only.
struct Place<'a> {
    at: &'a Path,
    what: What,
}

enum What {
    Hidden,
    /// Memory that processes share by name, for this view alone.
    Shared,
    Kept {
        tree: OwnedFd,
        writable: bool,
    },
}

/// Builds all of a wall. What was built when it fails is no wall.
pub fn build(wall: &Wall) -> Result<(), Unbuilt> {
    part(wall.no_network)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .doing("a view of its own")?;
    let places = places(wall)?;
    if !wall.writes.iter().any(|path| path == Path::new("/")) {
        protect()?;
    }
    for place in &places {
        place.put()?;
    }
    close(&places)?;
    give_up_rights().doing("giving up rights")
}

/// Leaves the name spaces of the others. Must be done while there is one thread.
fn part(no_network: bool) -> Result<(), Unbuilt> {
    let mut flags = UnshareFlags::NEWNS;
    flags.set(UnshareFlags::NEWNET, no_network);
    let rights = capabilities(None).doing("asking for rights")?;
    let privileged = rights.effective.contains(CapabilitySet::SYS_ADMIN);
    flags.set(UnshareFlags::NEWUSER, !privileged);
    let (user, group) = (getuid(), getgid());
    #[expect(
        deprecated,
        reason = "only sharing of descriptors makes it unsafe, and these flags never ask for that"
    )]
    rustix::thread::unshare(flags).doing("name spaces of its own")?;
    if privileged {
        return Ok(());
    }
    let map = |file: &str, text: String| fs::write(file, text).doing(format!("writing {file}"));
    map("/proc/self/setgroups", "deny".to_owned())?;
    map("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
    map("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))
}

/// Outer places before inner ones. What is not there needs nothing.
fn places(wall: &Wall) -> Result<Vec<Place<'_>>, Unbuilt> {
    let mut places = Vec::new();
    for (paths, writable) in [(&wall.writes, true), (&wall.shows, false)] {
        for at in paths.iter().filter(|path| *path != Path::new("/")) {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE
                | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
            let tree = open_tree(CWD, at, flags).doing(format!("taking {} aside", at.display()))?;
            places.push(Place { at, what: What::Kept { tree, writable } });
        }
    }
    let hidden = wall.hides.iter().filter(|path| path.symlink_metadata().is_ok());
    places.extend(hidden.map(|at| Place { at, what: What::Hidden }));
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        places.push(Place { at: shared, what: What::Shared });
    }
    places.sort_by_key(|place| (place.at.components().count(), place.at));
    Ok(places)
}

/// Nothing can be written any more. Processes are not files: what `/proc` lets one do to itself it still may.
fn protect() -> Result<(), Unbuilt> {
    for mount in mounts::all().doing("listing mounts")? {
        if mount.kind != "proc" {
            mount.protect().doing(format!("making {} read-only", mount.at.display()))?;
        }
    }
    Ok(())
}

impl Place<'_> {
    fn put(&self) -> Result<(), Unbuilt> {
        let at = self.at.display();
        match &self.what {
            What::Shared => empty(self.at, c"mode=1777").doing(format!("memory at {at}")),
            What::Hidden => hide(self.at).doing(format!("hiding {at}")),
            What::Kept { tree, .. } => keep(self.at, tree).doing(format!("letting {at} be seen")),
        }
    }

    fn is_writable(&self) -> bool {
        matches!(self.what, What::Shared | What::Kept { writable: true, .. })
    }
}

/// What is only to be seen cannot be written either, now that it is complete.
fn close(places: &[Place<'_>]) -> Result<(), Unbuilt> {
    let mounts = mounts::all().doing("listing mounts")?;
    let within = |mount: &Mount| places.iter().rev().find(|place| mount.at.starts_with(place.at));
    for mount in mounts.iter().filter(|mount| within(mount).is_some_and(|place| !place.is_writable())) {
        mount.protect().doing(format!("making {} read-only", mount.at.display()))?;
    }
    Ok(())
}

/// An empty folder, or an empty file, in its place.
fn hide(at: &Path) -> io::Result<()> {
    match fs::metadata(at)?.is_dir() {
        true => empty(at, c"mode=0755,size=1m"),
        false => Ok(mount_bind("/dev/null", at)?),
    }
}

fn empty(at: &Path, options: &CStr) -> io::Result<()> {
    Ok(mount("tmpfs", at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options)?)
}

fn keep(at: &Path, tree: &OwnedFd) -> io::Result<()> {
    if at.symlink_metadata().is_err() {
        // It is in what was hidden.
        make_way(at, tree)?;
    }
    Ok(move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Something of the same kind, to put it over.
fn make_way(at: &Path, tree: &OwnedFd) -> io::Result<()> {
    let folder = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode).is_dir();
    let parent: PathBuf = at.parent().unwrap_or(at).to_owned();
    fs::create_dir_all(if folder { at } else { &parent })?;
    if !folder {
        fs::File::create(at)?;
    }
    Ok(())
}

/// What is left is no more than the user may, and cannot become more.
fn give_up_rights() -> io::Result<()> {
    for capability in TAKEN {
        match remove_capability_from_bounding_set(capability) {
            // One that a later system knows and this one does not.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(set_no_new_privs(true)?)
}
