//! The errors of names, as messages for people.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use rustix::{fs::FileType, io::Errno};

/// A name in a folder, and the reason why it could not be used.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` in {}: {why}", root.display())]
pub struct FilePathError {
    /// The name in printable form: control characters are escaped, and the middle of a long name is left out.
    pub name: String,
    pub root: PathBuf,
    pub why: PathProblem,
}

#[derive(Debug, thiserror::Error)]
pub enum PathProblem {
    #[error("it is empty")]
    Empty,
    #[error("it contains a NUL byte")]
    Nul,
    #[error("it is too long: at most {max} bytes")]
    TooLong { max: usize },
    #[error("it is an absolute path, not one in that folder")]
    Absolute,
    #[error("it leads out of that folder")]
    Leaves,
    #[error("`{0}` is a symbolic link, and those are not followed here")]
    Link(String),
    #[error(
        "it is a symbolic link that leads out of the artifact; only relative links to something within it are kept"
    )]
    LinkLeaves,
    #[error("there is no such file or folder")]
    Missing,
    #[error("it is {0}, not a regular file")]
    NotAFile(EntryKind),
    #[error("it is {0}, not a folder")]
    NotAFolder(EntryKind),
    #[error("it is {0}; only regular files and folders can be used")]
    Special(EntryKind),
    #[error("it has {size} bytes, and the limit is {max}")]
    TooLarge { size: u64, max: u64 },
    #[error("it has more than {max} files and folders")]
    TooMany { max: usize },
    #[error("its folders are more than {max} levels deep")]
    TooDeep { max: usize },
    #[error("it kept changing while it was being copied; end all writes before the output is collected")]
    Changing,
    #[error("its name is not UTF-8")]
    NotText,
    #[error("it is one of {0}'s own files, which control that program")]
    Control(&'static str),
    #[error("it already exists")]
    Exists,
    #[error("there is no space left on the disk")]
    NoSpace,
    #[error("{0}")]
    Io(io::Error),
}

/// The kind of the entry at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Folder,
    Link,
    Fifo,
    Socket,
    Device,
}

impl EntryKind {
    pub(super) fn from_mode(mode: u32) -> EntryKind {
        match FileType::from_raw_mode(mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            FileType::Symlink => EntryKind::Link,
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
            _ => EntryKind::Device,
        }
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EntryKind::File => "a file",
            EntryKind::Folder => "a folder",
            EntryKind::Link => "a symbolic link",
            EntryKind::Fifo => "a named pipe",
            EntryKind::Socket => "a socket",
            EntryKind::Device => "a device",
        })
    }
}

impl FilePathError {
    pub(crate) fn new(root: &Path, name: &Path, why: impl Into<PathProblem>) -> FilePathError {
        FilePathError { name: printable_name(name), root: root.to_owned(), why: why.into() }
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.why, PathProblem::Missing)
    }

    pub fn is_no_space(&self) -> bool {
        matches!(self.why, PathProblem::NoSpace)
    }
}

impl From<io::Error> for PathProblem {
    fn from(error: io::Error) -> PathProblem {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => PathProblem::Missing,
            Some(Errno::EXIST) => PathProblem::Exists,
            Some(Errno::NOSPC | Errno::DQUOT) => PathProblem::NoSpace,
            Some(Errno::XDEV) => PathProblem::Leaves,
            _ => PathProblem::Io(error),
        }
    }
}

impl From<Errno> for PathProblem {
    fn from(error: Errno) -> PathProblem {
        PathProblem::from(io::Error::from(error))
    }
}

/// Returns an untrusted name in a form that is safe to print.
pub(super) fn printable_name(name: &Path) -> String {
    const ENDS: usize = 100;
    let text = name.to_string_lossy();
    let text: String = if text.chars().count() > 2 * ENDS {
        let tail: Vec<char> = text.chars().rev().take(ENDS).collect();
        text.chars().take(ENDS).chain(['…']).chain(tail.into_iter().rev()).collect()
    } else {
        text.into_owned()
    };
    text.chars().flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_can_be_printed_whatever_the_name() {
        let name = format!("a\u{1b}[31m{}z", "x".repeat(5_000));
        let error = FilePathError::new(Path::new("/r"), Path::new(&name), PathProblem::Leaves).to_string();
        assert!(error.starts_with("`a\\u{1b}[31mxxx") && error.len() < 300, "{error}");
        assert!(error.ends_with("xz` in /r: it leads out of that folder"), "{error}");
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        assert!(FilePathError::new(Path::new("/r"), Path::new("a"), Errno::NOSPC).is_no_space());
        assert!(FilePathError::new(Path::new("/r"), Path::new("a"), Errno::NOENT).is_missing());
    }
}
