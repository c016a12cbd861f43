//! Resolution of a name to a descriptor beneath a folder, whoever changes the tree meanwhile.
//!
//! If the kernel supports it, one call does it (`openat2`). Otherwise each part is opened from the previous one and no
//! link is followed at all, which is stricter.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::{Errno, Result},
};

use super::relative_path::RelativePath;

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
    ) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self {
            PathResolver::Kernel => resolve_in_kernel(root, name, flags, links),
            PathResolver::Walk => resolve_by_walking(root, name, flags),
        }
    }
}

fn resolve_in_kernel(root: BorrowedFd<'_>, name: &RelativePath, flags: OFlags, links: LinkPolicy) -> Result<OwnedFd> {
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

fn resolve_by_walking(root: BorrowedFd<'_>, name: &RelativePath, flags: OFlags) -> Result<OwnedFd> {
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
