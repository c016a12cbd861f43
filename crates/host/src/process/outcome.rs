//! The outcome of a process, with messages for people.
//!
//! Owns the distinction of outcomes and the hints for each. Does not judge which exit statuses are failures.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::Path,
    time::Instant,
};

use rustix::{
    fs::{Access, access},
    io::Errno,
};
use skein_core::time::Millis;

use super::{LogReport, escape_for_terminal};

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
    pub fn without_process(how: ProcessOutcome, began: Instant) -> ProcessReport {
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
    /// There is no such program. Holds the message.
    NotFound(String),
    NotExecutable(String),
    /// The system cannot run the file: it is for another machine, not a program, or a script without its interpreter.
    WrongFormat {
        program: String,
        interpreter: Option<String>,
    },
    CannotStart(StartRefusal),
    TimedOut(ExceededLimit),
    /// It was asked to exit, and exited or was killed.
    Stopped,
}

/// The limit that was exceeded.
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

/// The reason why the system did not start an existing program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartRefusal {
    Files,
    Processes,
    Memory,
    Arguments,
    /// The program file is being written.
    Busy,
    /// Its exit could not be observed.
    Unseen,
    /// The working directory cannot be used.
    Directory(String),
    Other(String),
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

impl fmt::Display for StartRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartRefusal::Files => f.write_str("too many open files"),
            StartRefusal::Processes => f.write_str("the system allows no more processes"),
            StartRefusal::Memory => f.write_str("there is not enough memory"),
            StartRefusal::Arguments => f.write_str("its arguments and environment are too long"),
            StartRefusal::Busy => f.write_str("its file is being written at this moment"),
            StartRefusal::Unseen => {
                f.write_str("its exit cannot be observed, because SIGCHLD is ignored in this process")
            }
            StartRefusal::Directory(why) | StartRefusal::Other(why) => f.write_str(why),
        }
    }
}

impl ProcessOutcome {
    /// A sentence about the outcome, with the program as its subject.
    pub fn message(&self) -> String {
        match self {
            ProcessOutcome::Exited(0) => "it ended with exit status 0".to_owned(),
            ProcessOutcome::Exited(status) => format!("it failed with exit status {status}"),
            ProcessOutcome::Signal { oom: true, .. } => {
                "it was killed, probably because memory ran out".to_owned()
            }
            ProcessOutcome::Signal { signal, core, .. } => {
                let core = if *core { " and left a core dump" } else { "" };
                format!("it was killed by {} (signal {signal}){core}", signal_name(*signal))
            }
            ProcessOutcome::NotFound(why) | ProcessOutcome::NotExecutable(why) => why.clone(),
            ProcessOutcome::WrongFormat { program, interpreter: Some(interpreter) } => {
                format!("`{program}` needs `{interpreter}` to run, which does not exist")
            }
            ProcessOutcome::WrongFormat { program, interpreter: None } => {
                format!("`{program}` is not a program that this machine can run")
            }
            ProcessOutcome::CannotStart(why) => format!("it could not be started: {why}"),
            ProcessOutcome::TimedOut(which) => format!("it was stopped: {which}"),
            ProcessOutcome::Stopped => "it was stopped".to_owned(),
        }
    }

    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            ProcessOutcome::Exited(126) => {
                "126 often means that a shell found the command but could not execute it"
            }
            ProcessOutcome::Exited(127) => "127 often means that a shell did not find the command",
            ProcessOutcome::Exited(137) => {
                "137 often means that something in it was killed, for instance because memory ran out"
            }
            ProcessOutcome::Exited(_) | ProcessOutcome::Stopped => return None,
            ProcessOutcome::Signal { oom: true, .. } => {
                "give it more memory, or let fewer workers run at once"
            }
            ProcessOutcome::Signal { signal: 4 | 6 | 7 | 8 | 11, .. } => "it crashed; its log may say where",
            ProcessOutcome::Signal { .. } => "something outside Skein ended it",
            ProcessOutcome::NotFound(_) => "install it, correct its name, or write its path in full",
            ProcessOutcome::NotExecutable(_) => {
                "make it executable (chmod +x), or name the interpreter that runs it"
            }
            ProcessOutcome::WrongFormat { interpreter: Some(_), .. } => {
                "install the interpreter, or correct the script's first line"
            }
            ProcessOutcome::WrongFormat { .. } => {
                "it may be built for another kind of machine, or be a script without a `#!` line"
            }
            ProcessOutcome::CannotStart(why) => return why.hint(),
            ProcessOutcome::TimedOut(ExceededLimit::Total(_)) => "allow it more time, or give it less to do",
            ProcessOutcome::TimedOut(ExceededLimit::Silence(_)) => {
                "it may hang; its log shows what it did last"
            }
            ProcessOutcome::TimedOut(ExceededLimit::Start(_)) => {
                "it may wait for input, a login or the network"
            }
            ProcessOutcome::TimedOut(ExceededLimit::Command(_)) => {
                "its log names the command; allow commands more time, or use a shorter one"
            }
        })
    }
}

impl StartRefusal {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            StartRefusal::Files => {
                "raise the limit of open files (ulimit -n), or let fewer workers run at once"
            }
            StartRefusal::Processes => {
                "raise the limit of processes (ulimit -u), or let fewer workers run at once"
            }
            StartRefusal::Memory => "let fewer workers run at once",
            StartRefusal::Arguments => "pass long values in a file or on standard input",
            StartRefusal::Busy => "try again when its installation has finished",
            StartRefusal::Unseen => "start Skein without the signal SIGCHLD ignored",
            StartRefusal::Directory(_) => "check that it exists and may be entered",
            StartRefusal::Other(_) => return None,
        })
    }
}

/// Classifies the error of the system for a program that could not be started.
pub fn classify_start_error(error: &io::Error, program: &Path, directory: &Path) -> ProcessOutcome {
    let Some(errno) = Errno::from_io_error(error) else {
        return ProcessOutcome::CannotStart(StartRefusal::Other(error.to_string()));
    };
    let path = escape_for_terminal(program.as_os_str().as_encoded_bytes());
    let not_executable = || ProcessOutcome::NotExecutable(format!("`{path}` is not executable"));
    match errno {
        Errno::MFILE | Errno::NFILE => ProcessOutcome::CannotStart(StartRefusal::Files),
        Errno::AGAIN => ProcessOutcome::CannotStart(StartRefusal::Processes),
        Errno::NOMEM => ProcessOutcome::CannotStart(StartRefusal::Memory),
        Errno::TOOBIG => ProcessOutcome::CannotStart(StartRefusal::Arguments),
        Errno::TXTBSY => ProcessOutcome::CannotStart(StartRefusal::Busy),
        Errno::NOEXEC => ProcessOutcome::WrongFormat { program: path, interpreter: None },
        // The system reports the same errors for the directory and for the program.
        _ if access(directory, Access::EXEC_OK).is_err() || !directory.is_dir() => {
            let place = escape_for_terminal(directory.as_os_str().as_encoded_bytes());
            let why = format!("its directory `{place}` cannot be used: {}", plain_error_text(error));
            ProcessOutcome::CannotStart(StartRefusal::Directory(why))
        }
        Errno::NOENT if program.exists() => {
            let interpreter =
                read_interpreter(program).unwrap_or_else(|| "a loader for its kind of program".to_owned());
            ProcessOutcome::WrongFormat { program: path, interpreter: Some(interpreter) }
        }
        Errno::NOENT | Errno::NOTDIR => ProcessOutcome::NotFound(format!("program not found: `{path}`")),
        Errno::ACCESS | Errno::PERM | Errno::ISDIR => not_executable(),
        _ => ProcessOutcome::CannotStart(StartRefusal::Other(plain_error_text(error))),
    }
}

/// Returns the text of a system error without its number.
fn plain_error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Returns the interpreter named in the first line of a script.
fn read_interpreter(script: &Path) -> Option<String> {
    let mut first = Vec::new();
    File::open(script).ok()?.take(256).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii();
    line.split(|b| b.is_ascii_whitespace()).next().map(escape_for_terminal)
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
            ProcessOutcome::NotFound("the program `x` was not found in /bin".to_owned()),
            ProcessOutcome::NotExecutable("`/x` is not executable".to_owned()),
            ProcessOutcome::WrongFormat { program: "/x".to_owned(), interpreter: None },
            ProcessOutcome::WrongFormat {
                program: "/x".to_owned(),
                interpreter: Some("/bin/none".to_owned()),
            },
            ProcessOutcome::CannotStart(StartRefusal::Files),
            ProcessOutcome::CannotStart(StartRefusal::Processes),
            ProcessOutcome::CannotStart(StartRefusal::Memory),
            ProcessOutcome::CannotStart(StartRefusal::Arguments),
            ProcessOutcome::CannotStart(StartRefusal::Busy),
            ProcessOutcome::CannotStart(StartRefusal::Unseen),
            ProcessOutcome::CannotStart(StartRefusal::Directory(
                "its directory `/d` cannot be used".to_owned(),
            )),
            ProcessOutcome::CannotStart(StartRefusal::Other("something else".to_owned())),
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
                    ProcessOutcome::CannotStart(StartRefusal::Other(_)),
                    ProcessOutcome::Stopped
                ]
            ),
            "{silent:?}"
        );
        assert_eq!(all[4].message(), "it was killed by SIGSEGV (signal 11) and left a core dump");
        assert_eq!(all[20].message(), "it was stopped: it printed nothing in its first 1m30s");
    }

    #[test]
    fn limits_of_the_system_are_told_apart() {
        let why = |errno: Errno| classify_start_error(&errno.into(), Path::new("/bin/sh"), Path::new("/"));
        assert_eq!(why(Errno::MFILE), ProcessOutcome::CannotStart(StartRefusal::Files));
        assert_eq!(why(Errno::NFILE), ProcessOutcome::CannotStart(StartRefusal::Files));
        assert_eq!(why(Errno::AGAIN), ProcessOutcome::CannotStart(StartRefusal::Processes));
        assert_eq!(why(Errno::NOMEM), ProcessOutcome::CannotStart(StartRefusal::Memory));
        assert_eq!(why(Errno::TOOBIG), ProcessOutcome::CannotStart(StartRefusal::Arguments));
        assert_eq!(why(Errno::TXTBSY), ProcessOutcome::CannotStart(StartRefusal::Busy));
        assert!(matches!(why(Errno::LOOP), ProcessOutcome::CannotStart(StartRefusal::Other(_))));
    }
}
