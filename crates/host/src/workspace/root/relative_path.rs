//! A relative path: a name from a source, as the path from a folder down to an entry in it.
//!
//! Owns the permitted form of a name. Does not know the disk: links are detected when the name is opened.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

use super::{FilePathError, PathProblem};

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
    pub(super) fn parse(root: &Path, name: &Path) -> Result<RelativePath, FilePathError> {
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
        let text = if parts.is_empty() { OsString::from(".") } else { parts.join(OsStr::new("/")) };
        Ok(RelativePath { parts, text })
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
        let parts = parts.to_vec();
        let text = if parts.is_empty() { OsString::from(".") } else { parts.join(OsStr::new("/")) };
        Some((RelativePath { parts, text }, leaf))
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
