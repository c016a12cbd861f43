//! From a name to a descriptor beneath a folder, whoever changes the tree meanwhile.
//!
//! Owns the permitted form of a name, and its resolution. If the kernel supports it, one call resolves a name
//! (`openat2`). Otherwise each part is opened from the previous one and no link is followed at all, which is stricter.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
    sync::OnceLock,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::{self, Errno},
};

use crate::workspace::root::{FilePathError, PathProblem, PathResult};

/// The maximum number of retries because a folder on the path was moved meanwhile.
const AGAIN: u32 = 100;

/// The treatment of links before the last part of a name. The last part is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkPolicy {
    /// Followed as long as they stay beneath.
    Beneath,
    Refused,
}

/// The method by which names are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathResolver {
    Kernel,
    Walk,
}

impl PathResolver {
    /// Detects what this kernel supports. A sandbox may forbid the call, with one of several errors.
    pub(super) fn detect() -> PathResolver {
        static WAY: OnceLock<PathResolver> = OnceLock::new();
        *WAY.get_or_init(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat2(CWD, ".", flags, Mode::empty(), ResolveFlags::BENEATH) {
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => PathResolver::Walk,
                _ => PathResolver::Kernel,
            }
        })
    }

    pub(super) fn open(
        self,
        root: BorrowedFd<'_>,
        name: &RelativePath,
        flags: OFlags,
        links: LinkPolicy,
    ) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self {
            PathResolver::Kernel => resolve_in_kernel(root, name, flags, links),
            PathResolver::Walk => resolve_by_walking(root, name, flags),
        }
    }
}

fn resolve_in_kernel(
    root: BorrowedFd<'_>,
    name: &RelativePath,
    flags: OFlags,
    links: LinkPolicy,
) -> io::Result<OwnedFd> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    resolve.set(ResolveFlags::NO_SYMLINKS, links == LinkPolicy::Refused);
    for _ in 0..AGAIN {
        match openat2(root, name.text(), flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

fn resolve_by_walking(root: BorrowedFd<'_>, name: &RelativePath, flags: OFlags) -> io::Result<OwnedFd> {
    let Some((leaf, folders)) = name.parts().split_last() else {
        return openat(root, ".", flags, Mode::empty());
    };
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for part in folders {
        let from = at.as_ref().map_or(root, AsFd::as_fd);
        at = Some(openat(from, part, step, Mode::empty())?);
    }
    openat(at.as_ref().map_or(root, AsFd::as_fd), leaf, flags, Mode::empty())
}

/// The limits of the kernel.
const PATH_BYTES: usize = 4096;
const PART_BYTES: usize = 255;

/// The normalized parts of a name. Never `..`; none for the folder itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RelativePath {
    parts: Vec<OsString>,
    text: OsString,
}

impl RelativePath {
    /// Parses a name. `a/../b` is `b`, whatever `a` is: a name means the same before and after someone makes `a` a
    /// link.
    pub(super) fn parse(root: &Path, name: &Path) -> PathResult<RelativePath> {
        let refuse = |why| Err(FilePathError::new(root, name, why));
        let bytes = name.as_os_str().as_bytes();
        match bytes {
            [] => return refuse(PathProblem::Empty),
            [b'/', ..] => return refuse(PathProblem::Absolute),
            bytes if bytes.contains(&0) => return refuse(PathProblem::Nul),
            bytes if bytes.len() >= PATH_BYTES => {
                return refuse(PathProblem::TooLong { max: PATH_BYTES - 1 });
            }
            _ => {}
        }
        let mut parts: Vec<OsString> = Vec::new();
        for component in name.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    if parts.pop().is_none() {
                        return refuse(PathProblem::Leaves);
                    }
                }
                Component::Normal(part) if part.len() > PART_BYTES => {
                    return refuse(PathProblem::TooLong { max: PART_BYTES });
                }
                Component::Normal(part) => parts.push(part.to_owned()),
                Component::RootDir | Component::Prefix(_) => return refuse(PathProblem::Absolute),
            }
        }
        Ok(RelativePath::new(parts))
    }

    fn new(parts: Vec<OsString>) -> RelativePath {
        let text = if parts.is_empty() { OsString::from(".") } else { parts.join(OsStr::new("/")) };
        RelativePath { parts, text }
    }

    pub(super) fn parts(&self) -> &[OsString] {
        &self.parts
    }

    /// Returns the path for the kernel: `.` for the folder itself.
    pub(super) fn text(&self) -> &OsStr {
        &self.text
    }

    /// Returns the parent folder and the last part; `None` for the folder itself.
    pub(super) fn split_leaf(&self) -> Option<(RelativePath, &OsStr)> {
        let (leaf, parts) = self.parts.split_last()?;
        Some((RelativePath::new(parts.to_vec()), leaf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<String, String> {
        let parsed = RelativePath::parse(Path::new("/root"), Path::new(name));
        parsed.map(|name| name.text.into_string().unwrap()).map_err(|error| error.why.to_string())
    }

    #[test]
    fn what_changes_nothing_is_left_out() {
        for (name, text) in [
            ("a", "a"),
            ("./a//b/", "a/b"),
            ("a/../b", "b"),
            (".", "."),
            ("a/..", "."),
            ("a..b/...", "a..b/..."),
            ("%2e%2e/x", "%2e%2e/x"),
        ] {
            assert_eq!(parse(name), Ok(text.to_owned()), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_a_place_below_is_refused() {
        for (name, why) in [
            ("", "it is empty"),
            ("/etc/passwd", "it is an absolute path, not one in that folder"),
            ("..", "it leads out of that folder"),
            ("a/../../b", "it leads out of that folder"),
            ("../x", "it leads out of that folder"),
            ("a\0b", "it contains a NUL byte"),
        ] {
            assert_eq!(parse(name), Err(why.to_owned()), "{name:?}");
        }
        let part = "x".repeat(PART_BYTES);
        assert!(parse(&part).is_ok());
        assert_eq!(parse(&format!("{part}x")), Err("it is too long: at most 255 bytes".into()));
        let long = "abc/".repeat(PATH_BYTES / 4);
        assert!(parse(&long[..PATH_BYTES - 1]).is_ok());
        assert_eq!(parse(&long), Err("it is too long: at most 4095 bytes".into()));
    }
}
