//! Programs that the engine runs for itself, such as git: files that no step can write.
//!
//! A process has one set of paths that its steps may write, which grows with the runs that it resumes. Programs are
//! looked up once for each such set, so that later changes by a step to folders of the search path have no effect.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::run_settings::RunSettings;
use crate::{
    process,
    sandbox::{Sandbox, SandboxLauncher, SandboxPlace, SandboxSpec},
};

#[derive(Debug)]
struct TrustedPrograms {
    /// The program that starts them in sandboxes. `None` if they are started without a sandbox.
    launcher: Option<SandboxLauncher>,
    /// The folders that steps of this process may write, and their projects.
    writable: BTreeSet<PathBuf>,
    found: BTreeMap<String, Result<PathBuf, String>>,
}

static PROGRAMS: Mutex<TrustedPrograms> =
    Mutex::new(TrustedPrograms { launcher: None, writable: BTreeSet::new(), found: BTreeMap::new() });

fn lock_programs() -> MutexGuard<'static, TrustedPrograms> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the engine's programs in sandboxes from now on.
pub(super) fn use_launcher(launcher: &SandboxLauncher) {
    lock_programs().launcher = Some(launcher.clone());
}

/// The sandbox of a program that the engine runs for itself: it reads, writes in one folder of the engine, and has no
/// network. If the machine cannot enforce that, the program runs without a sandbox: no step can write it, and its
/// settings keep it from running other programs.
pub(super) fn build_engine_sandbox(folder: &Path, own: &Path) -> Result<Option<Sandbox>, String> {
    let Some(launcher) = lock_programs().launcher.clone() else { return Ok(None) };
    let place = |path: &Path| {
        let found = std::fs::canonicalize(path).and_then(|real| SandboxPlace::find(&real));
        found.map_err(|error| format!("{}: {error}", path.display()))
    };
    let spec = SandboxSpec {
        writes: vec![place(own)?],
        directory: Some(place(folder)?),
        no_network: true,
        keeps_shared_folders: true,
        optional: true,
        ..SandboxSpec::default()
    };
    Ok(Some(Sandbox { launcher, spec }))
}

/// Adds the paths that the steps of a run may write. If there are new ones, programs are looked up again.
pub(super) fn note_writable(about: &RunSettings) {
    let places = [&about.project, &about.workspace].into_iter().chain(&about.roots).chain(&about.writes);
    let mut programs = lock_programs();
    let before = programs.writable.len();
    programs.writable.extend(places.cloned());
    if programs.writable.len() != before {
        programs.found.clear();
    }
}

/// The file of a program that the engine runs for itself.
pub(super) fn find_program(name: &str) -> Result<PathBuf, String> {
    let mut programs = lock_programs();
    if let Some(found) = programs.found.get(name) {
        return found.clone();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let writable: Vec<PathBuf> = programs.writable.iter().cloned().collect();
    let found =
        process::find_trusted_program(OsStr::new(name), &path, &writable).map_err(|error| error.to_string());
    programs.found.insert(name.to_owned(), found.clone());
    found
}
