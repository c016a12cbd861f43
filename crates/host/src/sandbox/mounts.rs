//! The mounts of this process as `/proc` lists them, and functions to make them read-only.
//!
//! Owns the parsing of that list. Does not know the purpose of a sandbox.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{AtFlags, StatVfsMountFlags, StatxFlags, fstatvfs, statx},
    io::Errno,
    mount::{MountFlags, mount_remount},
};

use super::place::{descriptor_path, resolve_path};

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
