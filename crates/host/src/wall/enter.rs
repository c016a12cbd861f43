//! The short life of a builder: it builds the wall and becomes the program.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use serde_json::json;

use super::{Behind, Wall, build::build};
use crate::worker::{How, refusal, shown};

/// The first argument of a builder. The others are the wall, the program and its arguments.
pub const ARGUMENT: &str = "__wall";

/// Where a worker tells why it failed.
const TOLD: &str = "SKEIN_ERROR";

/// As shells end when a command cannot be run.
const FAILED: u8 = 126;

/// Becomes the worker, behind its wall. Comes back only when that cannot be done, having told why where workers do.
pub fn enter(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let wall = arguments.next().and_then(|text| serde_json::from_str::<Wall>(text.to_str()?).ok());
    let (Some(wall), Some(program)) = (wall, arguments.next()) else {
        return fail(&never("it was not said what to start behind a wall"));
    };
    if let Err(why) = build(&wall) {
        if !wall.optional {
            return fail(&never(format!("no wall can be built around it here: {why}")));
        }
        eprintln!("[skein: it is not confined: {why}]");
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

/// Whether a wall can be built here, and if not, why. Only a process that is good for nothing else can find out.
pub fn works(builder: &Path) -> Result<(), String> {
    let behind = Behind { builder: builder.to_owned(), wall: Wall::default() };
    let mut command = Command::new(builder);
    command.args(behind.arguments().into_iter().flatten()).arg(builder).arg("--version");
    let done = command.env_remove(TOLD).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(()),
        false => Err(shown(done.stderr.trim_ascii())),
    }
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
