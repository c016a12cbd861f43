//! The state folder: where it is and why there, what it is on, whether it can be written, how much room there is, and
//! who else may look into it.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use skein_host::store::{FileSystem, StateRegistry, inspect_file_system};

use super::{DoctorFinding, TrialFile, format_bytes};
use crate::state::{DATABASE, NAME, acceptance_hint, check_link};

/// Below this there is a problem, and below that a warning.
const LEAST: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;

/// Where runs are kept.
pub struct StateLocation {
    pub path: PathBuf,
    why: &'static str,
    /// The folder itself, or the nearest above that is there.
    pub there: PathBuf,
    /// As it was named, if it was.
    given: Option<PathBuf>,
}

impl StateLocation {
    pub fn locate(given: Option<&Path>, root: &Path) -> StateLocation {
        let (path, why) = match given {
            Some(given) if std::env::var_os("SKEIN_STATE").is_some_and(|said| said == given.as_os_str()) => {
                (given.to_owned(), "as SKEIN_STATE says")
            }
            Some(given) => (given.to_owned(), "as `--state` says"),
            None => (root.join(NAME), "in the project (`--state` or SKEIN_STATE would change that)"),
        };
        let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let there = whole.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned();
        StateLocation { path, why, there, given: given.map(Path::to_owned) }
    }

    pub fn is_present(&self) -> bool {
        self.path.is_dir()
    }

    /// Whether this user made it on this machine or accepted it. Otherwise why it is refused.
    pub fn check_trust(&self) -> Result<(), String> {
        check_link(self.given.as_deref(), &self.path)?;
        StateRegistry::from_environment().check(&self.path).map_err(|error| error.to_string())
    }

    pub fn acceptance_hint(&self) -> String {
        acceptance_hint(self.given.as_deref())
    }

    /// Whether it was ever used.
    pub fn has_journal(&self) -> bool {
        self.path.join(DATABASE).exists()
    }
}

pub fn check_state_folder(home: &StateLocation) -> Vec<DoctorFinding> {
    let none = if home.is_present() { "" } else { "; not there yet, the first run makes it" };
    let mut findings =
        vec![DoctorFinding::ok("place", format!("{}, {}{none}", home.path.display(), home.why))];
    if home.path.exists() && !home.is_present() {
        let message = format!("`{}` is not a folder", home.path.display());
        return vec![DoctorFinding::problem(
            "place",
            message,
            "remove it, or choose a folder with `--state DIR`",
        )];
    }
    match inspect_file_system(&home.there) {
        Ok(found) => findings.extend([
            file_system_finding(&found),
            check_free_space(&found),
            check_writable(home, &found),
        ]),
        Err(error) => {
            let message = format!("`{}` cannot be looked at: {error}", home.there.display());
            findings.push(DoctorFinding::problem("file system", message, ELSEWHERE));
        }
    }
    if home.is_present() {
        findings.extend(check_permissions(home));
    }
    findings
}

const ELSEWHERE: &str = "choose a folder on a local disk with `--state DIR` or SKEIN_STATE";

fn file_system_finding(found: &FileSystem) -> DoctorFinding {
    let kind = &found.kind;
    if found.network {
        let message = format!("{kind}, where locks and syncs cannot be relied on: it is refused");
        return DoctorFinding::problem("file system", message, ELSEWHERE);
    }
    if found.memory {
        let message =
            format!("{kind}, which is memory: it survives `kill -9`, but not the end of the machine");
        return DoctorFinding::warning("file system", message, ELSEWHERE);
    }
    DoctorFinding::ok("file system", kind)
}

fn check_free_space(found: &FileSystem) -> DoctorFinding {
    let message = format!("{} free", format_bytes(found.free));
    match found.free {
        ..LEAST => DoctorFinding::problem(
            "space",
            message,
            "make room: a run that cannot write its journal stands still",
        ),
        LEAST..LITTLE => DoctorFinding::warning("space", message, "make room before long runs"),
        LITTLE.. => DoctorFinding::ok("space", message),
    }
}

/// A file is made, and removed again.
fn check_writable(home: &StateLocation, found: &FileSystem) -> DoctorFinding {
    if found.read_only {
        let message = format!("no, `{}` is mounted read-only", home.there.display());
        return DoctorFinding::problem(
            "writable",
            message,
            "mount it for writing, or choose another with `--state DIR`",
        );
    }
    let trial = TrialFile::new(&home.there);
    match fs::OpenOptions::new().write(true).create_new(true).open(&trial.0) {
        Ok(_) => DoctorFinding::ok("writable", "yes"),
        Err(error) => {
            let message = format!("no, in `{}` nothing can be made: {error}", home.there.display());
            DoctorFinding::problem(
                "writable",
                message,
                "choose a folder that you can write to with `--state DIR`",
            )
        }
    }
}

/// Who else may look into it, or change it.
fn check_permissions(home: &StateLocation) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let me = rustix::process::geteuid().as_raw();
    for (path, what) in [(home.path.clone(), "the folder"), (home.path.join(DATABASE), "the database")] {
        let Ok(about) = fs::metadata(&path) else { continue };
        let mode = about.mode() & 0o777;
        let right = if about.is_dir() { "700" } else { "600" };
        let hint = format!("chmod {right} {}", crate::cli::quote_path(&path.display().to_string()));
        if about.uid() != me {
            let message =
                format!("{what} belongs to user {}, and this is user {me}: it is refused", about.uid());
            findings.push(DoctorFinding::problem(
                "permissions",
                message,
                "work as that user, or choose another with `--state DIR`",
            ));
        } else if mode & 0o022 != 0 {
            let message = format!("others may write to {what} ({mode:03o}): it is refused");
            findings.push(DoctorFinding::problem(
                "permissions",
                message,
                format!("look at what is in it, then {hint}"),
            ));
        } else if mode & 0o077 != 0 {
            let message = format!("others may read {what} ({mode:03o}), with all that workers printed");
            findings.push(DoctorFinding::warning("permissions", message, hint));
        }
    }
    if findings.is_empty() {
        findings.push(DoctorFinding::ok("permissions", "only you may look into it"));
    }
    findings
}
