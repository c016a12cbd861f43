//! The reasons why a program could not be started, with messages and hints for people.
//!
//! Owns the classification of the system's errors. Does not start anything: `process` does, and `sandbox` inside of a
//! sandbox.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use rustix::{
    fs::{Access, access},
    io::Errno,
};

use crate::terminal_escape::escape_for_terminal;

/// The reason why a program did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// There is no such program. Holds the message.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    NotExecutable(String),
    /// The system cannot run the file: it is for another machine, not a program, or a script without its interpreter.
    #[error("{}", wrong_format_message(.program, .interpreter.as_deref()))]
    WrongFormat { program: String, interpreter: Option<String> },
    #[error("it could not be started: {0}")]
    Refused(StartRefusal),
}

/// The reason why the system did not start an existing program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartRefusal {
    #[error("too many open files")]
    Files,
    #[error("the system allows no more processes")]
    Processes,
    #[error("there is not enough memory")]
    Memory,
    #[error("its arguments and environment are too long")]
    Arguments,
    #[error("its file is being written at this moment")]
    Busy,
    #[error("its exit cannot be observed, because SIGCHLD is ignored in this process")]
    Unseen,
    /// The working directory cannot be used.
    #[error("{0}")]
    Directory(String),
    #[error("{0}")]
    Other(String),
}

fn wrong_format_message(program: &str, interpreter: Option<&str>) -> String {
    match interpreter {
        Some(interpreter) => format!("`{program}` needs `{interpreter}` to run, which does not exist"),
        None => format!("`{program}` is not a program that this machine can run"),
    }
}

impl StartError {
    /// Advice for the user, if there is any.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        Some(match self {
            StartError::NotFound(_) => "install it, correct its name, or write its path in full",
            StartError::NotExecutable(_) => "make it executable (chmod +x), or name the interpreter that runs it",
            StartError::WrongFormat { interpreter: Some(_), .. } => {
                "install the interpreter, or correct the script's first line"
            }
            StartError::WrongFormat { .. } => {
                "it may be built for another kind of machine, or be a script without a `#!` line"
            }
            StartError::Refused(why) => return why.hint(),
        })
    }
}

impl StartRefusal {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            StartRefusal::Files => "raise the limit of open files (ulimit -n), or let fewer workers run at once",
            StartRefusal::Processes => "raise the limit of processes (ulimit -u), or let fewer workers run at once",
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
pub(crate) fn classify_start_error(error: &io::Error, program: &Path, directory: &Path) -> StartError {
    let Some(errno) = Errno::from_io_error(error) else {
        return StartError::Refused(StartRefusal::Other(error.to_string()));
    };
    let path = escape_for_terminal(program.as_os_str().as_encoded_bytes());
    let not_executable = || StartError::NotExecutable(format!("`{path}` is not executable"));
    match errno {
        Errno::MFILE | Errno::NFILE => StartError::Refused(StartRefusal::Files),
        Errno::AGAIN => StartError::Refused(StartRefusal::Processes),
        Errno::NOMEM => StartError::Refused(StartRefusal::Memory),
        Errno::TOOBIG => StartError::Refused(StartRefusal::Arguments),
        Errno::TXTBSY => StartError::Refused(StartRefusal::Busy),
        Errno::NOEXEC => StartError::WrongFormat { program: path, interpreter: None },
        // The system reports the same errors for the directory and for the program.
        _ if access(directory, Access::EXEC_OK).is_err() || !directory.is_dir() => {
            let place = escape_for_terminal(directory.as_os_str().as_encoded_bytes());
            let why = format!("its directory `{place}` cannot be used: {}", plain_error_text(error));
            StartError::Refused(StartRefusal::Directory(why))
        }
        Errno::NOENT if program.exists() => {
            let interpreter =
                read_interpreter(program).unwrap_or_else(|| "a loader for its kind of program".to_owned());
            StartError::WrongFormat { program: path, interpreter: Some(interpreter) }
        }
        Errno::NOENT | Errno::NOTDIR => StartError::NotFound(format!("program not found: `{path}`")),
        Errno::ACCESS | Errno::PERM | Errno::ISDIR => not_executable(),
        _ => StartError::Refused(StartRefusal::Other(plain_error_text(error))),
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
    fn limits_of_the_system_are_told_apart() {
        let why = |errno: Errno| classify_start_error(&errno.into(), Path::new("/bin/sh"), Path::new("/"));
        assert_eq!(why(Errno::MFILE), StartError::Refused(StartRefusal::Files));
        assert_eq!(why(Errno::NFILE), StartError::Refused(StartRefusal::Files));
        assert_eq!(why(Errno::AGAIN), StartError::Refused(StartRefusal::Processes));
        assert_eq!(why(Errno::NOMEM), StartError::Refused(StartRefusal::Memory));
        assert_eq!(why(Errno::TOOBIG), StartError::Refused(StartRefusal::Arguments));
        assert_eq!(why(Errno::TXTBSY), StartError::Refused(StartRefusal::Busy));
        assert!(matches!(why(Errno::LOOP), StartError::Refused(StartRefusal::Other(_))));
    }
}
