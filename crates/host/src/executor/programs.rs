//! The programs that runs and the engine start.
//!
//! Owns two guarantees. A pinned program, which a project file names (a hook, a channel command, a tool driver, an agent
//! of the project), is the program that existed when the run began: its content is hashed then and compared at every
//! start, and in its sandbox a copy that no step can reach covers the file. A trusted program, which the engine runs for
//! itself (git, the shell), is a file that no step can write. A process has one set of paths that its steps may write,
//! which grows with the runs that it resumes; trusted programs are looked up once for each such set.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use skein_core::{limits, plan::ContentHash};

use crate::{
    notify::NotifyChannel,
    process::{self, ProgramLookupError},
    run_settings::{PinnedProgram, RunSettings},
    sandbox::{Sandbox, SandboxCover, SandboxLauncher, SandboxPlace, SandboxSpec},
    workspace::{RunDir, root::FilePathError},
};

/// Programs that run the file named by their first argument.
const INTERPRETERS: [&str; 14] =
    ["sh", "bash", "dash", "zsh", "ksh", "python", "python3", "node", "deno", "bun", "ruby", "perl", "php", "lua"];

/// The reason why a program is not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error(
        "`{}` has {bytes} bytes; a program inside the project may have at most {}; install it elsewhere",
        path.display(), limits::PROGRAM_BYTES
    )]
    TooLarge { path: PathBuf, bytes: u64 },
    #[error("`{}` cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("`{}` {change}, so it is not started; start a new run to use it as it is now", path.display())]
    Changed { path: PathBuf, change: &'static str },
    #[error(transparent)]
    Copy(#[from] FilePathError),
    #[error("{}: {error}", path.display())]
    Place { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Lookup(#[from] ProgramLookupError),
}

impl RunSettings {
    /// Pins every program that the run may start and that its steps could write, including the programs of these hooks,
    /// resolved from the project and from these working folders of steps. Returns the problems with programs that
    /// cannot be pinned.
    pub fn pin_programs(&mut self, hooks: impl IntoIterator<Item = String>, folders: &[PathBuf]) -> Vec<String> {
        let mut commands: Vec<Vec<OsString>> = hooks.into_iter().map(|program| vec![program.into()]).collect();
        let words = |command: &[String]| command.iter().map(OsString::from).collect();
        commands.extend(self.tools.values().map(|tool| words(&tool.command)));
        commands.extend(self.agents.values().map(|agent| words(&agent.command)));
        commands.extend(self.surroundings.channels.values().filter_map(|channel| match channel {
            NotifyChannel::Command(command) => Some(words(command)),
            _ => None,
        }));
        let folders: Vec<&Path> =
            [self.workspace.as_path()].into_iter().chain(folders.iter().map(PathBuf::as_path)).collect();
        let named = |words: &Vec<OsString>| -> Vec<PathBuf> {
            folders.iter().flat_map(|folder| self.named_files(words, folder)).collect()
        };
        let paths: BTreeSet<PathBuf> = commands.iter().flat_map(named).collect();
        let mut problems = Vec::new();
        for path in paths {
            match read_program(&path) {
                Ok(bytes) => {
                    self.pinned.insert(path, PinnedProgram(bytes.map(|bytes| ContentHash::hash_bytes(&bytes))));
                }
                Err(error) => problems.push(error.to_string()),
            }
        }
        problems
    }

    /// The files that a command runs and that steps may write.
    fn named_files(&self, words: &[OsString], folder: &Path) -> Vec<PathBuf> {
        let bases = [self.project.as_path(), self.workspace.as_path(), folder];
        let mut paths: Vec<PathBuf> = program_words(words)
            .flat_map(|word| bases.map(|base| base.join(word)))
            .filter(|path| self.can_be_written_by_steps(path))
            .collect();
        paths.sort();
        paths.dedup();
        paths
    }

    fn can_be_written_by_steps(&self, path: &Path) -> bool {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.writable_roots().any(|root| real.starts_with(root) || path.starts_with(root))
    }

    /// The folders that steps may write, and their project.
    fn writable_roots(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.project, &self.workspace].into_iter().chain(&self.roots).chain(&self.writes)
    }

    /// Checks that the files that a command runs are unchanged since the run began. Returns the copies that cover them.
    pub(crate) fn check_pinned(
        &self,
        run: &RunDir,
        words: &[OsString],
        folder: &Path,
    ) -> Result<Vec<SandboxCover>, ProgramError> {
        let mut covers = Vec::new();
        for path in self.named_files(words, folder) {
            let Some(PinnedProgram(then)) = self.pinned.get(&path) else { continue };
            let changed = |change| ProgramError::Changed { path: path.clone(), change };
            match (then, read_program(&path)?) {
                (_, None) => {}
                (None, Some(_)) => return Err(changed("did not exist when the run began")),
                (Some(then), Some(bytes)) if ContentHash::hash_bytes(&bytes) != *then => {
                    return Err(changed("was changed since the run began"));
                }
                (Some(then), Some(bytes)) => {
                    covers.push(copy_program(run, &path, *then, &bytes)?);
                }
            }
        }
        Ok(covers)
    }
}

/// The words of a command that name the files it runs: the program, and the script of an interpreter.
fn program_words(words: &[OsString]) -> impl Iterator<Item = &OsString> {
    let program = words.first().filter(|word| word.as_encoded_bytes().contains(&b'/'));
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let interpreter = name.is_some_and(|name| INTERPRETERS.iter().any(|known| name == OsStr::new(known)));
    let script = words.get(1).filter(|word| interpreter && !word.as_encoded_bytes().starts_with(b"-"));
    program.into_iter().chain(script)
}

/// Reads a program's file. `None` if there is no file.
fn read_program(path: &Path) -> Result<Option<Vec<u8>>, ProgramError> {
    let Ok(found) = fs::metadata(path) else { return Ok(None) };
    if !found.is_file() {
        return Ok(None);
    }
    if found.len() > limits::PROGRAM_BYTES {
        return Err(ProgramError::TooLarge { path: path.to_owned(), bytes: found.len() });
    }
    let unreadable = |error| ProgramError::Unreadable { path: path.to_owned(), error };
    fs::read(path).map(Some).map_err(unreadable)
}

/// Keeps a copy of a program that no step can reach, to cover its file in sandboxes.
fn copy_program(run: &RunDir, path: &Path, hash: ContentHash, bytes: &[u8]) -> Result<SandboxCover, FilePathError> {
    // Attempts that start at the same time must use the same file: a sandbox detects a replaced one.
    static COPYING: Mutex<()> = Mutex::new(());
    let _one = COPYING.lock().unwrap_or_else(PoisonError::into_inner);
    let (kept, name) = (run.programs_folder()?, hash.to_string());
    let failed = |error: std::io::Error| FilePathError::new(kept.path(), Path::new(&name), error);
    if kept.entry_kind(&name)?.is_none() {
        kept.replace_unsynced(&name, bytes, true)?;
    }
    let source = SandboxPlace::find(&fs::canonicalize(kept.path().join(&name)).map_err(failed)?);
    let at = fs::canonicalize(path).map_err(failed)?;
    Ok(SandboxCover { source: source.map_err(failed)?, at })
}

#[derive(Debug)]
struct TrustedPrograms {
    /// The program that starts them in sandboxes. `None` if they are started without a sandbox.
    launcher: Option<SandboxLauncher>,
    /// The folders that steps of this process may write, and their projects.
    writable: BTreeSet<PathBuf>,
    found: BTreeMap<String, Result<PathBuf, ProgramLookupError>>,
}

static PROGRAMS: Mutex<TrustedPrograms> =
    Mutex::new(TrustedPrograms { launcher: None, writable: BTreeSet::new(), found: BTreeMap::new() });

fn lock_programs() -> MutexGuard<'static, TrustedPrograms> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the engine's programs in sandboxes from now on.
pub(crate) fn use_launcher(launcher: &SandboxLauncher) {
    lock_programs().launcher = Some(launcher.clone());
}

/// The sandbox of a program that the engine runs for itself: it reads, writes in one folder of the engine, and has no
/// network. If the machine cannot enforce that, the program runs without a sandbox: no step can write it, and its
/// settings keep it from running other programs.
pub(crate) fn build_engine_sandbox<'a>(
    folder: &Path,
    own: impl IntoIterator<Item = &'a Path>,
) -> Result<Option<Sandbox>, ProgramError> {
    let Some(launcher) = lock_programs().launcher.clone() else { return Ok(None) };
    let place = |path: &Path| {
        let found = std::fs::canonicalize(path).and_then(|real| SandboxPlace::find(&real));
        found.map_err(|error| ProgramError::Place { path: path.to_owned(), error })
    };
    let spec = SandboxSpec {
        writes: own.into_iter().map(place).collect::<Result<_, _>>()?,
        directory: Some(place(folder)?),
        no_network: true,
        keeps_shared_folders: true,
        optional: true,
        ..SandboxSpec::default()
    };
    Ok(Some(Sandbox { launcher, spec }))
}

/// Adds the paths that the steps of a run may write. If there are new ones, programs are looked up again.
pub(crate) fn note_writable(settings: &RunSettings) {
    let mut programs = lock_programs();
    let new: Vec<PathBuf> =
        settings.writable_roots().filter(|place| !programs.writable.contains(*place)).cloned().collect();
    if !new.is_empty() {
        programs.writable.extend(new);
        programs.found.clear();
    }
}

/// The file of a program that the engine runs for itself.
pub(crate) fn find_program(name: &str) -> Result<PathBuf, ProgramError> {
    let mut programs = lock_programs();
    if let Some(found) = programs.found.get(name) {
        return Ok(found.clone()?);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let writable: Vec<PathBuf> = programs.writable.iter().cloned().collect();
    let found = process::find_trusted_program(OsStr::new(name), &path, &writable);
    programs.found.insert(name.to_owned(), found.clone());
    Ok(found?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        program_words(&words).map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_program_and_the_script_of_an_interpreter_are_programs() {
        assert_eq!(named(&["scripts/tag.sh", "v1", "notes.md"]), ["scripts/tag.sh"]);
        assert_eq!(named(&["sh", "worker.sh", "data.txt"]), ["worker.sh"]);
        assert_eq!(named(&["/usr/bin/python3", "tool.py"]), ["/usr/bin/python3", "tool.py"]);
        for none in [&["git", "status"][..], &["sh", "-c", "exit"], &["python3", "-m", "x"], &[]] {
            assert_eq!(named(none), Vec::<String>::new(), "{none:?}");
        }
    }
}
