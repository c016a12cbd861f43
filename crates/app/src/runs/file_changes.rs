//! Notifications about changed files, for commands that follow another process.
//!
//! Uses inotify instead of polling. Because a file system may not report changes, it also polls every second.

use std::{io, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, Reader, WatchFlags},
};

/// Maximum time that a change stays unnoticed if the system does not report it.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

#[derive(Debug)]
pub struct FileChangeWatcher {
    inotify_fd: OwnedFd,
}

impl FileChangeWatcher {
    pub fn new() -> io::Result<FileChangeWatcher> {
        Ok(FileChangeWatcher { inotify_fd: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)? })
    }

    /// Watches the journal of a state folder.
    pub fn watch_journal(state: &Path) -> io::Result<FileChangeWatcher> {
        FileChangeWatcher::watch_folder(state)
    }

    /// Watches the files in a folder.
    pub fn watch_folder(folder: &Path) -> io::Result<FileChangeWatcher> {
        let changes = FileChangeWatcher::new()?;
        changes.add_folder(folder);
        Ok(changes)
    }

    /// Also watches the files in this folder. A folder that cannot be watched is polled every second.
    pub fn add_folder(&self, folder: &Path) {
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        let _ = inotify::add_watch(&self.inotify_fd, folder, flags);
    }

    /// Waits until something changes, or until the next poll.
    pub fn wait_for_change(&self) {
        let mut polled = [PollFd::new(&self.inotify_fd, PollFlags::IN)];
        if poll(&mut polled, Some(&LOOK)).is_err() {
            return;
        }
        let mut bytes = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.inotify_fd, &mut bytes);
        while events.next().is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_write_is_heard_at_once_and_only_once() {
        let folder = std::env::temp_dir().join(format!("skein-changes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let changes = FileChangeWatcher::watch_journal(&folder).unwrap();
        let is_told = || {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&changes.inotify_fd, PollFlags::IN)], Some(&at_once)).unwrap() > 0
        };
        assert!(!is_told());
        fs::write(folder.join("file"), "x").unwrap();
        assert!(is_told(), "there is nothing to wait for");
        changes.wait_for_change();
        assert!(!is_told(), "what was heard is not heard again");
        fs::remove_dir_all(&folder).unwrap();
    }
}
