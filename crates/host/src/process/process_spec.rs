//! What to start: all that a supervisor must know of one attempt.
//!
//! Owns the words of the request and how output is changed on its way. Nothing is inherited: what is not here, the
//! program does not get.

use std::{ffi::OsString, fmt, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use skein_core::{limits, time::Millis};

use super::{ProcessMark, deadlines::CommandDeadline};
use crate::sandbox::Sandbox;

/// Changes output before anyone sees it, for instance to take secrets out of it. It sees each byte of one stream once
/// and in order, and may keep some back until it knows more.
pub trait OutputFilter: Send {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>);
    /// The stream is over: gives what was kept back.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Makes a filter for each stream, so that what is cut across pieces of one is not mixed with the other.
pub type OutputFilterFactory = Arc<dyn Fn() -> Box<dyn OutputFilter> + Send + Sync>;

/// Told the last whole line now and then, safe to show. Called by the supervisor, so it must not wait for anything.
pub type ProgressCallback = Box<dyn FnMut(&str) + Send>;

/// Its ends of two pipes, of which the other ends are with who speaks with it.
#[derive(Debug)]
pub struct DialogPipes {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
}

/// A program to run for an attempt.
pub struct ProcessSpec {
    /// In full, or a name to look up in the `PATH` of the environment below. Never taken from the directory.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The sandbox it runs in.
    pub sandbox: Option<Sandbox>,
    /// Where it works.
    pub directory: PathBuf,
    /// All of its environment, beside the mark.
    pub environment: Vec<(OsString, OsString)>,
    /// What it can read. The end of it comes after it.
    pub stdin: Arc<[u8]>,
    /// Someone speaks with it, on its standard input and output. Neither is then fed or kept here.
    pub talk: Option<DialogPipes>,
    /// Where both its streams go, in the order they were written.
    pub log: PathBuf,
    /// Where its standard output goes a second time, alone. The order in the log is then the order of arrival.
    pub stdout: Option<PathBuf>,
    pub mark: ProcessMark,
    /// A folder for the note of its process, if that is not to be beside the log.
    pub notes: Option<PathBuf>,
    /// How long it may take in all, be silent, and take until it first prints something.
    pub limit: Option<Millis>,
    pub idle: Option<Millis>,
    pub start: Option<Millis>,
    /// When the command that it runs is due.
    pub command: CommandDeadline,
    /// Between asking it to end and ending it.
    pub grace: Millis,
    /// What its log begins with: what people should know of how it was started.
    pub preface: Vec<String>,
    pub filter: Option<OutputFilterFactory>,
    pub tell: Option<ProgressCallback>,
}

impl ProcessSpec {
    /// A program without arguments, environment, input or limits.
    pub fn new(
        program: impl Into<PathBuf>,
        directory: impl Into<PathBuf>,
        log: impl Into<PathBuf>,
        mark: ProcessMark,
    ) -> ProcessSpec {
        ProcessSpec {
            program: program.into(),
            arguments: Vec::new(),
            sandbox: None,
            directory: directory.into(),
            environment: Vec::new(),
            stdin: Arc::new([]),
            talk: None,
            log: log.into(),
            stdout: None,
            mark,
            notes: None,
            limit: None,
            idle: None,
            start: None,
            command: CommandDeadline::default(),
            grace: Millis(limits::STOP_GRACE_DEFAULT),
            preface: Vec::new(),
            filter: None,
            tell: None,
        }
    }
}

impl fmt::Debug for ProcessSpec {
    /// Without the environment and the input, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("program", &self.program)
            .field("directory", &self.directory)
            .field("log", &self.log)
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
}
