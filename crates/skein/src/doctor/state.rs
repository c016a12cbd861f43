//! The state folder: where it is and why there, what it is on, whether it can be written, how much room there is, and
//! who else may look into it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use skein_host::store::{FileSystem, StateRegistry, file_system};

use super::{Finding, Trial, bytes};
use crate::state::{DATABASE, NAME, acceptance_hint, check_link};

/// Below this there is a problem, and below that a warning.
const LEAST: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;

/// Where runs are kept.
pub struct Home {
    pub path: PathBuf,
    why: &'static str,
    /// The folder itself, or the nearest above that is there.
    pub there: PathBuf,
    /// As it was named, if it was.
    given: Option<PathBuf>,
}

impl Home {
    pub fn of(given: Option<&Path>, root: &Path) -> Home {
        let (path, why) = match given {
            Some(given) if std::env::var_os("SKEIN_STATE").is_some_and(|said| said == given.as_os_str()) => {
                (given.to_owned(), "as SKEIN_STATE says")
            }
            Some(given) => (given.to_owned(), "as `--state` says"),
            None => (root.join(NAME), "in the project (`--state` or SKEIN_STATE would change that)"),
        };
        let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let there = whole.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned();
        Home { path, why, there, given: given.map(Path::to_owned) }
    }

    pub fn is_there(&self) -> bool {
        self.path.is_dir()
    }

    /// Whether this user made it on this machine or accepted it. Otherwise why it is refused.
    pub fn check_trust(&self) -> Result<(), String> {
        check_link(self.given.as_deref(), &self.path)?;
        StateRegistry::of_user().check(&self.path).map_err(|error| error.to_string())
    }

    pub fn acceptance_hint(&self) -> String {
        acceptance_hint(self.given.as_deref())
    }

    /// Whether it was ever used.
    pub fn has_journal(&self) -> bool {
        self.path.join(DATABASE).exists()
    }
}

pub fn look(home: &Home) -> Vec<Finding> {
    let none = if home.is_there() { "" } else { "; not there yet, the first run makes it" };
    let mut findings = vec![Finding::ok("place", format!("{}, {}{none}", home.path.display(), home.why))];
    if home.path.exists() && !home.is_there() {
        let message = format!("`{}` is not a folder", home.path.display());
        return vec![Finding::problem("place", message, "remove it, or choose a folder with `--state DIR`")];
    }
    match file_system(&home.there) {
        Ok(found) => findings.extend([on(&found), room(&found), writable(home, &found)]),
        Err(error) => {
            let message = format!("`{}` cannot be looked at: {error}", home.there.display());
            findings.push(Finding::problem("file system", message, ELSEWHERE));
        }
    }
    if home.is_there() {
        findings.extend(modes(home));
    }
    findings
}

const ELSEWHERE: &str = "choose a folder on a local disk with `--state DIR` or SKEIN_STATE";

fn on(found: &FileSystem) -> Finding {
    let kind = &found.kind;
    if found.network {
        let message = format!("{kind}, where locks and syncs cannot be relied on: it is refused");
        return Finding::problem("file system", message, ELSEWHERE);
    }
    if found.memory {
        let message =
            format!("{kind}, which is memory: it survives `kill -9`, but not the end of the machine");
        return Finding::warning("file system", message, ELSEWHERE);
    }
    Finding::ok("file system", kind)
}

fn room(found: &FileSystem) -> Finding {
    let message = format!("{} free", bytes(found.free));
    match found.free {
        ..LEAST => {
            Finding::problem("space", message, "make room: a run that cannot write its journal stands still")
        }
        LEAST..LITTLE => Finding::warning("space", message, "make room before long runs"),
        LITTLE.. => Finding::ok("space", message),
    }
}

/// A file is made, and removed again.
fn writable(home: &Home, found: &FileSystem) -> Finding {
    if found.read_only {
        let message = format!("no, `{}` is mounted read-only", home.there.display());
        return Finding::problem(
            "writable",
            message,
            "mount it for writing, or choose another with `--state DIR`",
        );
    }
    let trial = Trial::within(&home.there);
    match fs::OpenOptions::new().write(true).create_new(true).open(&trial.0) {
        Ok(_) => Finding::ok("writable", "yes"),
        Err(error) => {
            let message = format!("no, in `{}` nothing can be made: {error}", home.there.display());
            Finding::problem("writable", message, "choose a folder that you can write to with `--state DIR`")
        }
    }
}

/// Who else may look into it, or change it.
fn modes(home: &Home) -> Vec<Finding> {
    let mut findings = Vec::new();
    let me = rustix::process::geteuid().as_raw();
    for (path, what) in [(home.path.clone(), "the folder"), (home.path.join(DATABASE), "the database")] {
        let Ok(about) = fs::metadata(&path) else { continue };
        let mode = about.mode() & 0o777;
        let right = if about.is_dir() { "700" } else { "600" };
        let hint = format!("chmod {right} {}", crate::cli::quoted(&path.display().to_string()));
        if about.uid() != me {
            let message =
                format!("{what} belongs to user {}, and this is user {me}: it is refused", about.uid());
            findings.push(Finding::problem(
                "permissions",
                message,
                "work as that user, or choose another with `--state DIR`",
            ));
        } else if mode & 0o022 != 0 {
            let message = format!("others may write to {what} ({mode:03o}): it is refused");
            findings.push(Finding::problem(
                "permissions",
                message,
                format!("look at what is in it, then {hint}"),
            ));
        } else if mode & 0o077 != 0 {
            let message = format!("others may read {what} ({mode:03o}), with all that workers printed");
            findings.push(Finding::warning("permissions", message, hint));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("permissions", "only you may look into it"));
    }
    findings
}
