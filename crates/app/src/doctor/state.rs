//! Checks of the state folder: its place and the reason for it, its file system, whether it is writable, its free
//! space, and its permissions.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use skein_host::store::{FileSystem, StateRegistry, inspect_file_system};

use super::{DoctorFinding, TrialFile, format_bytes};
use crate::{
    shell_words::quote_path,
    state::{DATABASE, NAME, StateAdmissionError, acceptance_hint, check_link},
};

/// The limits of free space for a problem and for a warning.
const LEAST: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;

/// The place of the state folder.
pub struct StateLocation {
    pub path: PathBuf,
    why: &'static str,
    /// The folder itself, or the nearest existing folder above it.
    pub there: PathBuf,
    /// The path as given by the user, if any.
    given: Option<PathBuf>,
}

impl StateLocation {
    pub fn locate(given: Option<&Path>, root: &Path) -> StateLocation {
        let (path, why) = match given {
            Some(given) if std::env::var_os("SKEIN_STATE").is_some_and(|variable| variable == given.as_os_str()) => {
                (given.to_owned(), "set by SKEIN_STATE")
            }
            Some(given) => (given.to_owned(), "set by `--state`"),
            None => (root.join(NAME), "in the project (change it with `--state` or SKEIN_STATE)"),
        };
        let whole = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        let there = whole.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned();
        StateLocation { path, why, there, given: given.map(Path::to_owned) }
    }

    pub fn is_present(&self) -> bool {
        self.path.is_dir()
    }

    /// Checks that this user created it on this machine or accepted it. Err: the reason why it is refused.
    pub fn check_trust(&self) -> Result<(), StateAdmissionError> {
        check_link(self.given.as_deref(), &self.path)?;
        Ok(StateRegistry::from_environment().check(&self.path)?)
    }

    pub fn acceptance_hint(&self) -> String {
        acceptance_hint(self.given.as_deref())
    }

    /// Returns true if it was ever used.
    pub fn has_journal(&self) -> bool {
        self.path.join(DATABASE).exists()
    }
}

pub fn check_state_folder(home: &StateLocation) -> Vec<DoctorFinding> {
    let none = if home.is_present() { "" } else { "; it does not exist yet, the first run creates it" };
    let mut findings = vec![DoctorFinding::ok("place", format!("{}, {}{none}", home.path.display(), home.why))];
    if home.path.exists() && !home.is_present() {
        let message = format!("`{}` is not a folder", home.path.display());
        return vec![DoctorFinding::problem("place", message, "remove it, or choose a folder with `--state DIR`")];
    }
    match inspect_file_system(&home.there) {
        Ok(found) => {
            findings.extend([file_system_finding(&found), check_free_space(&found), check_writable(home, &found)])
        }
        Err(error) => {
            let message = format!("`{}` cannot be inspected: {error}", home.there.display());
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
        let message = format!("{kind}, where locks and syncs are not reliable: it is refused");
        return DoctorFinding::problem("file system", message, ELSEWHERE);
    }
    if found.memory {
        let message = format!("{kind}, which is in memory: it survives `kill -9`, but not a restart of the machine");
        return DoctorFinding::warning("file system", message, ELSEWHERE);
    }
    DoctorFinding::ok("file system", kind)
}

fn check_free_space(found: &FileSystem) -> DoctorFinding {
    let message = format!("{} free", format_bytes(found.free));
    match found.free {
        ..LEAST => {
            DoctorFinding::problem("space", message, "free some space: a run that cannot write its journal is paused")
        }
        LEAST..LITTLE => DoctorFinding::warning("space", message, "free some space before long runs"),
        LITTLE.. => DoctorFinding::ok("space", message),
    }
}

/// Tests it by creating a file, which is removed again.
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
            let message = format!("no, cannot create a file in `{}`: {error}", home.there.display());
            DoctorFinding::problem("writable", message, "choose a folder that you can write to with `--state DIR`")
        }
    }
}

/// Reports other users who can read or change it.
fn check_permissions(home: &StateLocation) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let me = rustix::process::geteuid().as_raw();
    for (path, what) in [(home.path.clone(), "the folder"), (home.path.join(DATABASE), "the database")] {
        let Ok(metadata) = fs::metadata(&path) else { continue };
        let mode = metadata.mode() & 0o777;
        let right = if metadata.is_dir() { "700" } else { "600" };
        let hint = format!("chmod {right} {}", quote_path(&path.display().to_string()));
        if metadata.uid() != me {
            let message = format!("{what} belongs to user {}, and this is user {me}: it is refused", metadata.uid());
            findings.push(DoctorFinding::problem(
                "permissions",
                message,
                "work as that user, or choose another with `--state DIR`",
            ));
        } else if mode & 0o022 != 0 {
            let message = format!("others may write to {what} ({mode:03o}): it is refused");
            findings.push(DoctorFinding::problem("permissions", message, format!("inspect its contents, then {hint}")));
        } else if mode & 0o077 != 0 {
            let message = format!("others may read {what} ({mode:03o}), including the output of workers");
            findings.push(DoctorFinding::warning("permissions", message, hint));
        }
    }
    if findings.is_empty() {
        findings.push(DoctorFinding::ok("permissions", "only you can read it"));
    }
    findings
}
