//! The specification of a process, all that a supervisor needs to run it for an attempt, and the report of its outcome.
//!
//! Owns the fields of both, the distinction of outcomes, and the messages and hints for people. Nothing is inherited:
//! the program gets only what its specification says. Does not judge which exit statuses are failures.

use std::{ffi::OsString, fmt, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Instant};

use skein_core::{limits, time::Millis};

use crate::{
    process::{LogReport, ProcessMark, supervisor::CommandDeadline},
    sandbox::Sandbox,
    start_error::{StartError, StartRefusal},
};

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

/// The report about an attempt's process after no part of it runs any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessReport {
    pub how: ProcessOutcome,
    pub took: Millis,
    /// Processes that it left running, and that the supervisor ended.
    pub leaked: Vec<LeakedProcess>,
    /// True if a foreign process still held its output open. The output of that process is not kept.
    pub held: bool,
    pub log: LogReport,
    /// The file with its standard output alone, if one was requested.
    pub stdout: Option<LogReport>,
    /// The last lines it printed, safe to show, for error messages.
    pub tail: String,
    /// More of the end of its output, safe to show, for the worker that continues its work.
    pub recent: String,
}

impl ProcessReport {
    /// Returns the report of an attempt that never had a process.
    pub(crate) fn without_process(how: ProcessOutcome, began: Instant) -> ProcessReport {
        let took = Millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        ProcessReport {
            how,
            took,
            leaked: Vec::new(),
            held: false,
            log: LogReport::default(),
            stdout: None,
            tail: String::new(),
            recent: String::new(),
        }
    }
}

/// A process that outlived the one that was started for the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakedProcess {
    pub pid: i32,
    /// The name of its program, safe to show.
    pub name: String,
    /// True if it could not be ended either: it hangs in the kernel.
    pub alive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessOutcome {
    Exited(i32),
    Signal {
        signal: i32,
        core: bool,
        oom: bool,
    },
    NotStarted(StartError),
    TimedOut(ExceededLimit),
    /// It was asked to exit, and exited or was killed.
    Stopped,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededLimit {
    /// The total run time.
    Total(Millis),
    /// The time without output.
    Silence(Millis),
    /// The time until the first output.
    Start(Millis),
    /// The run time of one command that it ran.
    Command(Millis),
}

/// The usual names of signals that end programs.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => "a signal",
    }
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExceededLimit::Total(limit) => write!(f, "it exceeded its timeout of {limit}"),
            ExceededLimit::Silence(limit) => write!(f, "it printed nothing for {limit}"),
            ExceededLimit::Start(limit) => write!(f, "it printed nothing in its first {limit}"),
            ExceededLimit::Command(limit) => write!(f, "a command exceeded its timeout of {limit}"),
        }
    }
}

impl From<StartError> for ProcessOutcome {
    fn from(error: StartError) -> ProcessOutcome {
        ProcessOutcome::NotStarted(error)
    }
}

impl From<StartRefusal> for ProcessOutcome {
    fn from(refusal: StartRefusal) -> ProcessOutcome {
        ProcessOutcome::NotStarted(StartError::Refused(refusal))
    }
}

impl ProcessOutcome {
    /// A sentence about the outcome, with the program as its subject.
    pub fn message(&self) -> String {
        match self {
            ProcessOutcome::Exited(0) => "it ended with exit status 0".to_owned(),
            ProcessOutcome::Exited(status) => format!("it failed with exit status {status}"),
            ProcessOutcome::Signal { oom: true, .. } => "it was killed, probably because memory ran out".to_owned(),
            ProcessOutcome::Signal { signal, core, .. } => {
                let core = if *core { " and left a core dump" } else { "" };
                format!("it was killed by {} (signal {signal}){core}", signal_name(*signal))
            }
            ProcessOutcome::NotStarted(error) => error.to_string(),
            ProcessOutcome::TimedOut(which) => format!("it was stopped: {which}"),
            ProcessOutcome::Stopped => "it was stopped".to_owned(),
        }
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            ProcessOutcome::Exited(126) => "126 often means that a shell found the command but could not execute it",
            ProcessOutcome::Exited(127) => "127 often means that a shell did not find the command",
            ProcessOutcome::Exited(137) => {
                "137 often means that something in it was killed, for instance because memory ran out"
            }
            ProcessOutcome::Exited(_) | ProcessOutcome::Stopped => return None,
            ProcessOutcome::Signal { oom: true, .. } => "give it more memory, or let fewer workers run at once",
            ProcessOutcome::Signal { signal: 4 | 6 | 7 | 8 | 11, .. } => "it crashed; its log may say where",
            ProcessOutcome::Signal { .. } => "something outside Skein ended it",
            ProcessOutcome::NotStarted(error) => return error.hint(),
            ProcessOutcome::TimedOut(ExceededLimit::Total(_)) => "allow it more time, or give it less to do",
            ProcessOutcome::TimedOut(ExceededLimit::Silence(_)) => "it may hang; its log shows what it did last",
            ProcessOutcome::TimedOut(ExceededLimit::Start(_)) => "it may wait for input, a login or the network",
            ProcessOutcome::TimedOut(ExceededLimit::Command(_)) => {
                "its log names the command; allow commands more time, or use a shorter one"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_own_words() {
        let time = Millis::from_secs(90);
        let all = [
            ProcessOutcome::Exited(0),
            ProcessOutcome::Exited(3),
            ProcessOutcome::Signal { signal: 9, core: false, oom: false },
            ProcessOutcome::Signal { signal: 9, core: false, oom: true },
            ProcessOutcome::Signal { signal: 11, core: true, oom: false },
            ProcessOutcome::Signal { signal: 40, core: false, oom: false },
            StartError::NotFound("the program `x` was not found in /bin".to_owned()).into(),
            StartError::NotExecutable("`/x` is not executable".to_owned()).into(),
            StartError::WrongFormat { program: "/x".to_owned(), interpreter: None }.into(),
            StartError::WrongFormat { program: "/x".to_owned(), interpreter: Some("/bin/none".to_owned()) }.into(),
            StartRefusal::Files.into(),
            StartRefusal::Processes.into(),
            StartRefusal::Memory.into(),
            StartRefusal::Arguments.into(),
            StartRefusal::Busy.into(),
            StartRefusal::Unseen.into(),
            StartRefusal::Directory("its directory `/d` cannot be used".to_owned()).into(),
            StartRefusal::Other("something else".to_owned()).into(),
            ProcessOutcome::TimedOut(ExceededLimit::Total(time)),
            ProcessOutcome::TimedOut(ExceededLimit::Silence(time)),
            ProcessOutcome::TimedOut(ExceededLimit::Start(time)),
            ProcessOutcome::TimedOut(ExceededLimit::Command(time)),
            ProcessOutcome::Stopped,
        ];
        let messages: std::collections::BTreeSet<String> = all.iter().map(ProcessOutcome::message).collect();
        assert_eq!(messages.len(), all.len(), "{messages:#?}");
        let silent: Vec<_> = all.iter().filter(|how| how.hint().is_none()).collect();
        assert!(
            matches!(
                silent[..],
                [
                    ProcessOutcome::Exited(0),
                    ProcessOutcome::Exited(3),
                    ProcessOutcome::NotStarted(StartError::Refused(StartRefusal::Other(_))),
                    ProcessOutcome::Stopped
                ]
            ),
            "{silent:?}"
        );
        assert_eq!(all[4].message(), "it was killed by SIGSEGV (signal 11) and left a core dump");
        assert_eq!(all[20].message(), "it was stopped: it printed nothing in its first 1m30s");
    }
}
