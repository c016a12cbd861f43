//! The short life of a builder: it builds the wall and becomes the program.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use serde_json::json;

use super::{
    Wall,
    build::{Kept, build},
    rules,
};
use crate::worker::{How, refusal, shown};

/// The first argument of a builder. The others are the wall, the program and its arguments.
pub const ARGUMENT: &str = "__wall";

/// In place of a wall: what can be built here?
const ASKS: &str = "?";

/// Where a worker tells why it failed.
const TOLD: &str = "SKEIN_ERROR";

/// As shells end when a command cannot be run.
const FAILED: u8 = 126;

/// Becomes the worker, behind its wall. Comes back only when that cannot be done, having told why where workers do.
pub fn enter(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let first = arguments.next();
    if first.as_deref().is_some_and(|first| first == ASKS) {
        return ask();
    }
    let wall = first.and_then(|text| serde_json::from_str::<Wall>(text.to_str()?).ok());
    let (Some(wall), Some(program)) = (wall, arguments.next()) else {
        return fail(&never("it was not said what to start behind a wall"));
    };
    match build(&wall) {
        Ok(Kept::All) => {}
        Ok(Kept::Writes) => {
            if let Some(open) = rules::open(&wall) {
                eprintln!("[skein: it is not kept out of {}; `--state` can be elsewhere]", open.display());
            }
        }
        Err(why) if wall.optional => eprintln!("[skein: it is not confined: {why}]"),
        Err(why) => return fail(&never(format!("no wall can be built around it here: {why}"))),
    }
    let Ok(directory) = std::env::current_dir() else {
        return fail(&never("the folder it works in is gone"));
    };
    // What is there now is another view of the same folder.
    let error = match std::env::set_current_dir(&directory) {
        Ok(()) => Command::new(&program).args(arguments).exec(),
        Err(error) => error,
    };
    fail(&refusal(&error, Path::new(&program), &directory))
}

/// What trying again would not change.
fn never(why: impl Into<String>) -> How {
    How::NotExecutable(why.into())
}

/// How far workers can be kept to what they may do here, or why they cannot. Only a process that is good for nothing else can
/// find out.
pub fn here(builder: &Path) -> Result<Kept, String> {
    let mut command = Command::new(builder);
    let asked = command.args([ARGUMENT, ASKS]).stdin(Stdio::null()).output();
    let done = asked.map_err(|error| format!("{}: {error}", builder.display()))?;
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| Err(shown(done.stderr.trim_ascii())))
}

/// Finds out, and says so.
fn ask() -> ExitCode {
    println!("{}", json!(build(&Wall::default())));
    ExitCode::SUCCESS
}

/// Tells why where workers do.
fn fail(how: &How) -> ExitCode {
    let message = how.message();
    eprintln!("[skein: {message}]");
    if let Some(told) = std::env::var_os(TOLD) {
        let class = if matches!(how, How::CannotStart(_)) { "transient" } else { "non_retryable" };
        // It is in the log, too.
        let _ = std::fs::write(told, json!({"class": class, "message": message}).to_string());
    }
    ExitCode::from(FAILED)
}
