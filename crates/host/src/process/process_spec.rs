//! The specification of a process: all that a supervisor needs to run it for an attempt.
//!
//! Owns the fields of the request and the filtering of output. Nothing is inherited: the program gets only these.

use std::{ffi::OsString, fmt, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use skein_core::{limits, time::Millis};

use super::{ProcessMark, deadlines::CommandDeadline};
use crate::sandbox::Sandbox;

/// Changes output before it is written or shown, for instance to redact secrets. It receives each byte of one stream
/// once and in order, and may hold some back until it knows more.
pub trait OutputFilter: Send {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>);
    /// Ends the stream and returns the bytes that were held back.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Creates a filter for each stream, so that a value split across pieces of one is not mixed with the other.
pub type OutputFilterFactory = Arc<dyn Fn() -> Box<dyn OutputFilter> + Send + Sync>;

/// Called from time to time with the last complete line, safe to show. The supervisor calls it, so it must not block.
pub type ProgressCallback = Box<dyn FnMut(&str) + Send>;

/// The process's ends of two pipes. The code that talks to it has the other ends.
#[derive(Debug)]
pub struct DialogPipes {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
}

/// A program to run for an attempt.
pub struct ProcessSpec {
    /// An absolute path, or a name to look up in the `PATH` of `environment`. Never found in the working directory.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// The sandbox it runs in.
    pub sandbox: Option<Sandbox>,
    /// The working directory.
    pub directory: PathBuf,
    /// The complete environment, except for the mark.
    pub environment: Vec<(OsString, OsString)>,
    /// The standard input, followed by end of file.
    pub stdin: Arc<[u8]>,
    /// Pipes for a dialog on its standard input and output. `stdin` is then not fed, and standard output is not logged.
    pub talk: Option<DialogPipes>,
    /// The log of both streams, in the order they were written.
    pub log: PathBuf,
    /// A second file for standard output alone. The order in the log is then the order of arrival.
    pub stdout: Option<PathBuf>,
    pub mark: ProcessMark,
    /// The folder for the process record, if it is not to be beside the log.
    pub notes: Option<PathBuf>,
    /// Timeouts: in total, of silence, and until the first output.
    pub limit: Option<Millis>,
    pub idle: Option<Millis>,
    pub start: Option<Millis>,
    /// The deadline of the command that it is running.
    pub command: CommandDeadline,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Millis,
    /// The first lines of its log: notes for people about how it was started.
    pub preface: Vec<String>,
    pub filter: Option<OutputFilterFactory>,
    pub tell: Option<ProgressCallback>,
}

impl ProcessSpec {
    /// Creates the spec of a program without arguments, environment, input or limits.
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
    /// Omits the environment and the input, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSpec")
            .field("program", &self.program)
            .field("directory", &self.directory)
            .field("log", &self.log)
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
}
