//! The ignore rules of a repository, level by level, as git applies them.
//!
//! Owns their precedence: the rules of the deepest folder count first, then those of the folders around it, then those
//! that the repository keeps outside of its files, then those of the user. Rules are parsed only when names are looked
//! at.

use std::{ffi::OsStr, fs::File, io::Read, os::unix::ffi::OsStrExt, path::Path, sync::OnceLock};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::{
    fd::BorrowedFd,
    fs::{Mode, OFlags, openat},
};

/// The file with the rules of a folder.
pub(super) const RULES_FILE: &str = ".gitignore";

/// The largest file of rules that is read.
const RULES_BYTES: u64 = 8 * 1024 * 1024;

/// The rules of one folder, for names in it and below.
#[derive(Debug)]
pub(super) struct RuleLevel<'a> {
    outer: Option<&'a RuleLevel<'a>>,
    folder: Option<BorrowedFd<'a>>,
    /// The length of the folder's path, with a slash at its end; zero for the root.
    length: usize,
    parsed: OnceLock<Gitignore>,
}

impl<'a> RuleLevel<'a> {
    /// The outermost level: the texts of rules outside of the files, the strongest last.
    pub(super) fn outermost(texts: &[&[u8]]) -> RuleLevel<'static> {
        let level = RuleLevel { outer: None, folder: None, length: 0, parsed: OnceLock::new() };
        let text = texts.join(&b'\n');
        let _ = level.parsed.set(parse_rules(&text));
        level
    }

    /// The level of a folder whose path, with a slash at its end, has this length.
    pub(super) fn inside(outer: &'a RuleLevel<'a>, folder: BorrowedFd<'a>, length: usize) -> RuleLevel<'a> {
        RuleLevel { outer: Some(outer), folder: Some(folder), length, parsed: OnceLock::new() }
    }

    /// True if the rules exclude a path. Its folder is not excluded.
    pub(super) fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        let mut level = Some(self);
        while let Some(here) = level {
            let rules = here.parsed.get_or_init(|| here.read_rules());
            if !rules.is_empty() {
                let below = Path::new(OsStr::from_bytes(&path[here.length..]));
                match rules.matched(below, is_folder) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            level = here.outer;
        }
        false
    }

    fn read_rules(&self) -> Gitignore {
        let Some(folder) = self.folder else { return Gitignore::empty() };
        // Git follows no link here, either.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut text = Vec::new();
        let read = openat(folder, RULES_FILE, flags, Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(|file| File::from(file).take(RULES_BYTES).read_to_end(&mut text));
        if read.is_ok() { parse_rules(&text) } else { Gitignore::empty() }
    }
}

/// Parses rules. A line that is no pattern has no effect, as in git.
fn parse_rules(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
        let _ = builder.add_line(None, &line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
