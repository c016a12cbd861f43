//! How a process ended, in words a person understands.
//!
//! Owns telling the ends apart and what to do about each. Refuses to judge: whether an exit status is a failure is for
//! who knows the work.

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

use super::{Logged, shown};

/// What is left of an attempt's process when nothing of it runs any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub how: How,
    pub took: Millis,
    /// Processes that it left running, and that were ended for it.
    pub leaked: Vec<Leaked>,
    /// Its output was still held open by a process that is none of its own. What that one prints is not kept.
    pub held: bool,
    pub log: Logged,
    /// The file with its standard output alone, if one was asked for.
    pub stdout: Option<Logged>,
    /// The last lines it printed, safe to show, for error messages.
    pub tail: String,
    /// More of the end of what it printed, safe to show, for the worker that goes on with it.
    pub recent: String,
}

impl Ended {
    /// An attempt that never had a process.
    pub fn without_process(how: How, began: Instant) -> Ended {
        let took = Millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
        Ended {
            how,
            took,
            leaked: Vec::new(),
            held: false,
            log: Logged::default(),
            stdout: None,
            tail: String::new(),
            recent: String::new(),
        }
    }
}

/// A process that outlived the one that was to do the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaked {
    pub pid: i32,
    /// The name of its program, safe to show.
    pub name: String,
    /// It could not be ended either: it hangs in the system.
    pub alive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    Exited(i32),
    Signal {
        signal: i32,
        core: bool,
        oom: bool,
    },
    /// There is no such program. Why, in words.
    NotFound(String),
    NotExecutable(String),
    /// The system cannot run the file: another machine's, no program at all, or a script without its interpreter.
    WrongFormat {
        program: String,
        interpreter: Option<String>,
    },
    CannotStart(Refused),
    TimedOut(Which),
    /// It was asked to end, and did or was made to.
    Stopped,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// It took too long in all.
    Total(Millis),
    /// It printed nothing for too long.
    Silence(Millis),
    /// It never printed anything.
    Start(Millis),
    /// One command that it ran took too long.
    Command(Millis),
}

/// Why the system did not start a program that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    Files,
    Processes,
    Memory,
    Arguments,
    /// The program is being written.
    Busy,
    /// Its end could not be seen.
    Unseen,
    /// The directory to work in cannot be used.
    Directory(String),
    Other(String),
}

/// The usual names of signals that end programs.
fn name(signal: i32) -> &'static str {
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

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Total(limit) => write!(f, "it was not done after {limit}"),
            Which::Silence(limit) => write!(f, "it printed nothing for {limit}"),
            Which::Start(limit) => write!(f, "it printed nothing in its first {limit}"),
            Which::Command(limit) => write!(f, "a command that it ran was not done after {limit}"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Files => f.write_str("too many files are open here"),
            Refused::Processes => f.write_str("the system allows no more processes"),
            Refused::Memory => f.write_str("there is not enough memory"),
            Refused::Arguments => f.write_str("its arguments and environment are too long"),
            Refused::Busy => f.write_str("its file is being written at this moment"),
            Refused::Unseen => {
                f.write_str("its end could not be seen, because ends of children are ignored here")
            }
            Refused::Directory(why) | Refused::Other(why) => f.write_str(why),
        }
    }
}

impl How {
    /// What happened, as a sentence about the program.
    pub fn message(&self) -> String {
        match self {
            How::Exited(0) => "it ended with exit status 0".to_owned(),
            How::Exited(status) => format!("it failed with exit status {status}"),
            How::Signal { oom: true, .. } => "it was killed, probably because memory ran out".to_owned(),
            How::Signal { signal, core, .. } => {
                let core = if *core { " and left a core dump" } else { "" };
                format!("it was ended by {} (signal {signal}){core}", name(*signal))
            }
            How::NotFound(why) | How::NotExecutable(why) => why.clone(),
            How::WrongFormat { program, interpreter: Some(interpreter) } => {
                format!("`{program}` needs `{interpreter}` to run, which does not exist")
            }
            How::WrongFormat { program, interpreter: None } => {
                format!("`{program}` is not a program that this machine can run")
            }
            How::CannotStart(why) => format!("it could not be started: {why}"),
            How::TimedOut(which) => format!("it was stopped: {which}"),
            How::Stopped => "it was stopped".to_owned(),
        }
    }

    /// What to do about it, where that can be said.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            How::Exited(126) => "126 often means that a shell found the command but could not execute it",
            How::Exited(127) => "127 often means that a shell did not find the command",
            How::Exited(137) => {
                "137 often means that something in it was killed, for instance because memory ran out"
            }
            How::Exited(_) | How::Stopped => return None,
            How::Signal { oom: true, .. } => "give it more memory, or let fewer workers run at once",
            How::Signal { signal: 4 | 6 | 7 | 8 | 11, .. } => "it crashed; its log may say where",
            How::Signal { .. } => "something outside Skein ended it",
            How::NotFound(_) => "install it, correct its name, or write its path in full",
            How::NotExecutable(_) => "make it executable (chmod +x), or name the program that is to run it",
            How::WrongFormat { interpreter: Some(_), .. } => {
                "install what it needs, or correct its first line"
            }
            How::WrongFormat { .. } => {
                "it may be built for another kind of machine, or be a script without a `#!` line"
            }
            How::CannotStart(why) => return why.hint(),
            How::TimedOut(Which::Total(_)) => "allow it more time, or give it less to do",
            How::TimedOut(Which::Silence(_)) => "it may hang; its log shows what it did last",
            How::TimedOut(Which::Start(_)) => "it may wait for input, a login or the network",
            How::TimedOut(Which::Command(_)) => {
                "its log names the command; allow commands more time, or name a shorter one"
            }
        })
    }
}

impl Refused {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Refused::Files => "raise the limit of open files (ulimit -n), or let fewer workers run at once",
            Refused::Processes => {
                "raise the limit of processes (ulimit -u), or let fewer workers run at once"
            }
            Refused::Memory => "let fewer workers run at once",
            Refused::Arguments => "hand long values over in a file or on standard input",
            Refused::Busy => "try again when it is installed",
            Refused::Unseen => "start Skein without the signal SIGCHLD ignored",
            Refused::Directory(_) => "check that it exists and may be entered",
            Refused::Other(_) => return None,
        })
    }
}

/// What the system meant when it would not start a program.
pub fn refusal(error: &io::Error, program: &Path, directory: &Path) -> How {
    let Some(errno) = Errno::from_io_error(error) else {
        return How::CannotStart(Refused::Other(error.to_string()));
    };
    let path = shown(program.as_os_str().as_encoded_bytes());
    let not_executable = || How::NotExecutable(format!("`{path}` may not be executed"));
    match errno {
        Errno::MFILE | Errno::NFILE => How::CannotStart(Refused::Files),
        Errno::AGAIN => How::CannotStart(Refused::Processes),
        Errno::NOMEM => How::CannotStart(Refused::Memory),
        Errno::TOOBIG => How::CannotStart(Refused::Arguments),
        Errno::TXTBSY => How::CannotStart(Refused::Busy),
        Errno::NOEXEC => How::WrongFormat { program: path, interpreter: None },
        // The system says the same of the directory and of the program.
        _ if access(directory, Access::EXEC_OK).is_err() || !directory.is_dir() => {
            let place = shown(directory.as_os_str().as_encoded_bytes());
            let why = format!("its directory `{place}` cannot be used: {}", plain(error));
            How::CannotStart(Refused::Directory(why))
        }
        Errno::NOENT if program.exists() => {
            let interpreter =
                interpreter(program).unwrap_or_else(|| "a loader for its kind of program".to_owned());
            How::WrongFormat { program: path, interpreter: Some(interpreter) }
        }
        Errno::NOENT | Errno::NOTDIR => How::NotFound(format!("program not found: `{path}`")),
        Errno::ACCESS | Errno::PERM | Errno::ISDIR => not_executable(),
        _ => How::CannotStart(Refused::Other(plain(error))),
    }
}

/// An error of the system without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Who is to run a script, as its first line says.
fn interpreter(script: &Path) -> Option<String> {
    let mut first = Vec::new();
    File::open(script).ok()?.take(256).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?.trim_ascii();
    line.split(|b| b.is_ascii_whitespace()).next().map(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_own_words() {
        let time = Millis::seconds(90);
        let all = [
            How::Exited(0),
            How::Exited(3),
            How::Signal { signal: 9, core: false, oom: false },
            How::Signal { signal: 9, core: false, oom: true },
            How::Signal { signal: 11, core: true, oom: false },
            How::Signal { signal: 40, core: false, oom: false },
            How::NotFound("the program `x` was not found in /bin".to_owned()),
            How::NotExecutable("`/x` may not be executed".to_owned()),
            How::WrongFormat { program: "/x".to_owned(), interpreter: None },
            How::WrongFormat { program: "/x".to_owned(), interpreter: Some("/bin/none".to_owned()) },
            How::CannotStart(Refused::Files),
            How::CannotStart(Refused::Processes),
            How::CannotStart(Refused::Memory),
            How::CannotStart(Refused::Arguments),
            How::CannotStart(Refused::Busy),
            How::CannotStart(Refused::Unseen),
            How::CannotStart(Refused::Directory("its directory `/d` cannot be used".to_owned())),
            How::CannotStart(Refused::Other("something else".to_owned())),
            How::TimedOut(Which::Total(time)),
            How::TimedOut(Which::Silence(time)),
            How::TimedOut(Which::Start(time)),
            How::TimedOut(Which::Command(time)),
            How::Stopped,
        ];
        let messages: std::collections::BTreeSet<String> = all.iter().map(How::message).collect();
        assert_eq!(messages.len(), all.len(), "{messages:#?}");
        let silent: Vec<_> = all.iter().filter(|how| how.hint().is_none()).collect();
        assert!(
            matches!(
                silent[..],
                [How::Exited(0), How::Exited(3), How::CannotStart(Refused::Other(_)), How::Stopped]
            ),
            "{silent:?}"
        );
        assert_eq!(all[4].message(), "it was ended by SIGSEGV (signal 11) and left a core dump");
        assert_eq!(all[20].message(), "it was stopped: it printed nothing in its first 1m30s");
    }

    #[test]
    fn limits_of_the_system_are_told_apart() {
        let why = |errno: Errno| refusal(&errno.into(), Path::new("/bin/sh"), Path::new("/"));
        assert_eq!(why(Errno::MFILE), How::CannotStart(Refused::Files));
        assert_eq!(why(Errno::NFILE), How::CannotStart(Refused::Files));
        assert_eq!(why(Errno::AGAIN), How::CannotStart(Refused::Processes));
        assert_eq!(why(Errno::NOMEM), How::CannotStart(Refused::Memory));
        assert_eq!(why(Errno::TOOBIG), How::CannotStart(Refused::Arguments));
        assert_eq!(why(Errno::TXTBSY), How::CannotStart(Refused::Busy));
        assert!(matches!(why(Errno::LOOP), How::CannotStart(Refused::Other(_))));
    }
}
