//! The mounts of this process as `/proc` lists them, functions to make them read-only, and the `/dev` of a sandbox.
//!
//! Owns the parsing of that list, and the few devices that every program needs, with terminals and shared memory of the
//! sandbox's own. None of the devices leads to the user's terminal, a disk or another machine. `/dev/tty` is the
//! controlling terminal of the session of the process that opens it; a worker's session has none.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxFlags, fstatvfs, mkdirat, openat, statx, symlinkat},
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount_remount, unmount},
};

use crate::sandbox::{
    descriptor_path, resolve_path,
    view::{attach_mount, clone_descriptor, clone_tree, new_filesystem},
};

/// The number of tries to make a mount read-only that the kernel counts as being written.
const BUSY_RETRIES: u32 = 1_000;
/// The time between two such tries.
const BUSY_DELAY: Duration = Duration::from_millis(1);

/// One line of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountEntry {
    id: u64,
    pub at: PathBuf,
    /// Flags that are kept in a remount: a process that may not clear a flag must repeat it.
    pub flags: MountFlags,
    pub kind: String,
}

/// Lists every mount that can be reached by its path. Of several mounts at one path, that is the last.
pub(super) fn list_mounts() -> io::Result<Vec<MountEntry>> {
    let list = fs::read("/proc/self/mountinfo")?;
    let mounts = list.split(|b| *b == b'\n').filter_map(parse_mount);
    let last: BTreeMap<PathBuf, MountEntry> = mounts.map(|mount| (mount.at.clone(), mount)).collect();
    Ok(last.into_values().collect())
}

/// Parses one line: `36 35 98:0 /root /at rw,nosuid shared:1 - ext4 /dev/sda rw`.
fn parse_mount(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|b| *b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let at = PathBuf::from(OsString::from_vec(unescape_field(fields.nth(3)?)));
    let flags = fields.next()?.split(|b| *b == b',').filter_map(parse_flag).collect();
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(MountEntry { id, at, flags, kind: String::from_utf8_lossy(kind).into_owned() })
}

fn parse_flag(word: &[u8]) -> Option<MountFlags> {
    Some(match word {
        b"ro" => MountFlags::RDONLY,
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"noatime" => MountFlags::NOATIME,
        b"nodiratime" => MountFlags::NODIRATIME,
        b"relatime" => MountFlags::RELATIME,
        _ => return None,
    })
}

/// Unescapes a field, in which blanks and similar characters are three octal digits.
fn unescape_field(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match digits {
            Some(digits) => {
                plain.push(digits.iter().fold(0_u8, |byte, digit| byte.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

impl MountEntry {
    /// Makes the mount read-only.
    pub(super) fn make_read_only(&self) -> io::Result<()> {
        match remount_read_only(&self.at, self.flags) {
            // It cannot be reached by its path: another mount covers it, it was removed or moved, or this user has no
            // access. `is_reachable_and_writable` distinguishes these cases when everything is in place.
            Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if a program could still write through this mount by its path.
    pub(super) fn is_reachable_and_writable(&self) -> bool {
        !self.flags.contains(MountFlags::RDONLY)
            && resolve_path(&self.at).is_ok_and(|found| {
                let found = statx(&found, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
                found.is_ok_and(|found| found.stx_mnt_id == self.id)
            })
    }
}

/// Makes the mount whose root is this descriptor read-only, whatever its path is now.
pub(super) fn make_read_only(root: &(impl AsFd + AsRawFd)) -> io::Result<()> {
    make_read_only_by(root, remount_read_only)
}

/// Like [`make_read_only`], but without a retry if the kernel counts the mount as being written.
pub(super) fn try_make_read_only(root: &(impl AsFd + AsRawFd)) -> io::Result<()> {
    make_read_only_by(root, remount_once)
}

fn make_read_only_by(
    root: &(impl AsFd + AsRawFd),
    remount: impl FnOnce(&Path, MountFlags) -> Result<(), Errno>,
) -> io::Result<()> {
    let flags = mount_flags(fstatvfs(root)?.f_flag);
    remount(&descriptor_path(root), flags)?;
    match fstatvfs(root)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Ok(()),
        false => Err(Errno::ROFS.into()),
    }
}

fn remount_once(path: &Path, flags: MountFlags) -> Result<(), Errno> {
    mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | flags, "")
}

/// Makes a mount read-only. For a moment after a file was created in it, the kernel may still count it as being
/// written.
fn remount_read_only(path: &Path, flags: MountFlags) -> Result<(), Errno> {
    for _ in 0..BUSY_RETRIES {
        match remount_once(path, flags) {
            Err(Errno::BUSY) => std::thread::sleep(BUSY_DELAY),
            done => return done,
        }
    }
    Err(Errno::BUSY)
}

fn mount_flags(flags: StatVfsMountFlags) -> MountFlags {
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    pairs.into_iter().filter(|(is, _)| flags.contains(*is)).map(|(_, mount)| mount).collect()
}

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
        match try_make_read_only(&copy) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_is_between() {
        let line =
            br"36 35 98:0 /mnt1 /mnt\0402 ro,nosuid,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let wanted = MountEntry {
            id: 36,
            at: "/mnt 2".into(),
            flags: MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOATIME,
            kind: "ext3".into(),
        };
        assert_eq!(parse_mount(line), Some(wanted));
        let plain = parse_mount(b"22 1 0:21 / /proc rw,relatime - proc proc rw").expect("a line");
        assert_eq!((plain.at, plain.kind.as_str()), ("/proc".into(), "proc"));
        for bad in ["", "1 2 3", "36 35 98:0 / /x rw shared:1 ext3"] {
            assert_eq!(parse_mount(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn names_are_as_they_were() {
        assert_eq!(unescape_field(br"a\011b\134c\04"), b"a\tb\\c\\04");
    }

    #[test]
    fn there_is_a_root() {
        assert!(list_mounts().expect("there is /proc").iter().any(|mount| mount.at == std::path::Path::new("/")));
    }
}
