//! The mark that assigns a process to an attempt: an environment variable that its children inherit.
//!
//! Owns the variable `SKEIN_MARK` and its format. Trusts a mark with nothing but ending a process: a worker can forge a
//! mark, and gains nothing but its own end.

use std::{collections::BTreeSet, fmt, fs, io, os::unix::fs::MetadataExt, path::Path, str::FromStr};

use rustix::process::getpid;
use serde::{Deserialize, Serialize};
use skein_core::{engine::AttemptId, ids::RunId};

use super::process_table;
use crate::sandbox::MARK_VARIABLE;

/// The maximum number of marks of nested engines, the nearest first. Engines can be started by workers of engines.
const NESTED: usize = 8;

/// The identifier of a state directory, unique on this machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct StateMark(String);

/// The run and work that a process belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ProcessMark {
    pub state: StateMark,
    pub run: RunId,
    pub work: MarkedWork,
}

/// The part of a run that a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MarkedWork {
    Attempt(AttemptId),
    /// A hook of the workflow, by its number.
    Hook(u32),
}

/// A text that is not a mark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a Skein process mark", crate::terminal_escape::escape_for_terminal(.0.as_bytes()))]
pub struct MarkError(pub String);

impl StateMark {
    /// Creates a mark from text: 1 to 64 ASCII letters, digits, `-` and `_`.
    pub fn new(text: &str) -> Result<StateMark, MarkError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
            Ok(StateMark(text.to_owned()))
        } else {
            Err(MarkError(text.to_owned()))
        }
    }

    /// Returns the mark of a directory. It is the same by whatever path the directory is reached, until the machine is
    /// rebooted, which is as long as a process can live.
    pub fn from_directory(directory: &Path) -> io::Result<StateMark> {
        let about = fs::metadata(directory)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&about.dev().to_le_bytes());
        hasher.update(&about.ino().to_le_bytes());
        let hex = hasher.finalize().to_hex();
        Ok(StateMark(hex.as_str().chars().take(32).collect()))
    }
}

impl fmt::Display for StateMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StateMark> for String {
    fn from(mark: StateMark) -> String {
        mark.0
    }
}

impl TryFrom<String> for StateMark {
    type Error = MarkError;
    fn try_from(text: String) -> Result<StateMark, MarkError> {
        StateMark::new(&text)
    }
}

impl fmt::Display for MarkedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MarkedWork::Attempt(attempt) => write!(f, "{attempt}"),
            MarkedWork::Hook(number) => write!(f, "hook.{number}"),
        }
    }
}

fn parse_work(text: &str) -> Option<MarkedWork> {
    match text.strip_prefix("hook.") {
        Some(number) => Some(MarkedWork::Hook(number.parse().ok()?)),
        None => Some(MarkedWork::Attempt(text.parse().ok()?)),
    }
}

impl fmt::Display for ProcessMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.state, self.run, self.work)
    }
}

impl FromStr for ProcessMark {
    type Err = MarkError;
    fn from_str(text: &str) -> Result<ProcessMark, MarkError> {
        let read = || {
            // None of the three parts can contain a slash.
            let mut parts = text.split('/');
            let state = StateMark::new(parts.next()?).ok()?;
            let run = RunId::new(parts.next()?).ok()?;
            let work = parse_work(parts.next()?)?;
            parts.next().is_none().then_some(ProcessMark { state, run, work })
        };
        read().ok_or_else(|| MarkError(text.to_owned()))
    }
}

impl From<ProcessMark> for String {
    fn from(mark: ProcessMark) -> String {
        mark.to_string()
    }
}

impl TryFrom<String> for ProcessMark {
    type Error = MarkError;
    fn try_from(text: String) -> Result<ProcessMark, MarkError> {
        text.parse()
    }
}

impl ProcessMark {
    /// Returns the value of the variable for a child of this process: the child's mark, and those that this process
    /// carries as the worker of another engine, so that the other engine still recognises the children when this
    /// process is gone.
    pub(super) fn variable_value(&self, ours: &[ProcessMark]) -> String {
        let all = std::iter::once(self).chain(ours).take(NESTED);
        all.map(ProcessMark::to_string).collect::<Vec<_>>().join("//")
    }
}

/// Parses the marks in the value of the variable. Invalid ones are skipped.
pub(super) fn parse_marks(value: &[u8]) -> Vec<ProcessMark> {
    let Ok(text) = std::str::from_utf8(value) else { return Vec::new() };
    text.split("//").take(NESTED).filter_map(|mark| mark.parse().ok()).collect()
}

/// Returns the marks that a process carries. Empty for a process that cleared its environment, that this process may
/// not inspect, or that has ended.
pub(super) fn read_marks(pid: i32) -> Vec<ProcessMark> {
    let environment = process_table::read_environment(pid).unwrap_or_default();
    process_table::find_variable(&environment, MARK_VARIABLE).map(parse_marks).unwrap_or_default()
}

/// Returns the mark of this process, if it or one of its ancestors is a worker of this state directory.
pub fn find_worker_mark(state: &StateMark) -> Option<ProcessMark> {
    own_ancestry().into_iter().flat_map(read_marks).find(|mark| mark.state == *state)
}

/// Returns the same for any state directory: a process in a sandbox does not see the state directory of its engine.
pub fn find_any_worker_mark() -> Option<ProcessMark> {
    own_ancestry().into_iter().flat_map(read_marks).next()
}

/// Returns the pids of this process and all its ancestors.
pub(crate) fn own_ancestry() -> BTreeSet<i32> {
    process_table::ProcessTable::read().ancestry(getpid().as_raw_nonzero().get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str) -> ProcessMark {
        text.parse().expect("a mark")
    }

    #[test]
    fn a_mark_reads_as_it_is_written() {
        let one = mark("ab12/my run, 2/0.3.1.2.check.1");
        assert_eq!(one.run.as_str(), "my run, 2");
        assert_eq!(mark(&one.to_string()), one);
        assert_eq!(mark("a/b/hook.3").work, MarkedWork::Hook(3));
        assert_eq!(mark("a/b/hook.3").to_string(), "a/b/hook.3");
        for bad in ["", "a", "a/b", "a/b/c", "a b/r/0.3.1.2.main.1", "a/r/0.3.1.2.main.1/x", "a/../0.3.1.2.main.1"] {
            assert!(bad.parse::<ProcessMark>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_child_of_a_worker_carries_the_marks_of_both_engines() {
        let (inner, outer) = (mark("in/r1/0.0.1.1.main.1"), mark("out/r2/0.1.1.1.main.2"));
        let value = inner.variable_value(std::slice::from_ref(&outer));
        assert_eq!(parse_marks(value.as_bytes()), [inner.clone(), outer.clone()]);
        let many = vec![outer; 100];
        assert_eq!(parse_marks(inner.variable_value(&many).as_bytes()).len(), NESTED);
        assert_eq!(parse_marks(b"\xff"), []);
    }

    #[test]
    fn a_directory_has_one_mark_by_whatever_path() {
        let dir = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("again")).expect("a link");
        fs::create_dir(dir.path().join("other")).expect("a directory");
        let one = StateMark::from_directory(dir.path()).expect("it is there");
        assert_eq!(StateMark::from_directory(&dir.path().join("again")).expect("it is there"), one);
        assert_ne!(StateMark::from_directory(&dir.path().join("other")).expect("it is there"), one);
        assert_eq!(StateMark::new(&one.to_string()), Ok(one));
    }
}
