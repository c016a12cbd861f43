//! The mounts of this process as `/proc` lists them, and making them read-only.
//!
//! Owns reading that list. Refuses to know what a wall is for.

use std::{collections::BTreeMap, ffi::OsString, fs, io, os::unix::ffi::OsStringExt, path::PathBuf};

use rustix::{
    io::Errno,
    mount::{MountFlags, mount_remount},
};

#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    pub at: PathBuf,
    /// What is kept when it is mounted again: whoever may not take a flag off must give it again.
    pub flags: MountFlags,
    pub kind: String,
}

/// Every mount that can be reached by its name. Of several at one place that is the last.
pub fn all() -> io::Result<Vec<Mount>> {
    let list = fs::read("/proc/self/mountinfo")?;
    let mounts = list.split(|b| *b == b'\n').filter_map(parse);
    let last: BTreeMap<PathBuf, Mount> = mounts.map(|mount| (mount.at.clone(), mount)).collect();
    Ok(last.into_values().collect())
}

/// One line: `36 35 98:0 /root /at rw,nosuid shared:1 - ext4 /dev/sda rw`.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let at = PathBuf::from(OsString::from_vec(unescape(fields.nth(4)?)));
    let flags = fields.next()?.split(|b| *b == b',').filter_map(flag).collect();
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { at, flags, kind: String::from_utf8_lossy(kind).into_owned() })
}

fn flag(word: &[u8]) -> Option<MountFlags> {
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

/// Blanks and the like are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match digits {
            Some(digits) => {
                plain.push(
                    digits.iter().fold(0_u8, |byte, digit| byte.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
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

impl Mount {
    /// Nothing can be written through it from now on.
    pub fn protect(&self) -> io::Result<()> {
        match mount_remount(&self.at, MountFlags::BIND | MountFlags::RDONLY | self.flags, "") {
            // It cannot be reached by its name: another is over it, it was removed, or we may not look there. Whoever
            // comes after us cannot either.
            Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_is_between() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402 ro,nosuid,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let wanted = Mount {
            at: "/mnt 2".into(),
            flags: MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOATIME,
            kind: "ext3".into(),
        };
        assert_eq!(parse(line), Some(wanted));
        let plain = parse(b"22 1 0:21 / /proc rw,relatime - proc proc rw").expect("a line");
        assert_eq!((plain.at, plain.kind.as_str()), ("/proc".into(), "proc"));
        for bad in ["", "1 2 3", "36 35 98:0 / /x rw shared:1 ext3"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn names_are_as_they_were() {
        assert_eq!(unescape(br"a\011b\134c\04"), b"a\tb\\c\\04");
    }

    #[test]
    fn there_is_a_root() {
        assert!(all().expect("there is /proc").iter().any(|mount| mount.at == std::path::Path::new("/")));
    }
}
