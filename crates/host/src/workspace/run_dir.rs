//! The layout of a run's files: `runs/<run>/…` in the state folder.
//!
//! Owns the layout. Every path consists of ids, which are safe by construction; no other text is ever joined to one.
//! Does not know what the files contain.
//!
//! ```text
//! runs/<run>/
//!   attempts/<attempt>/   log stdout.log inputs.json observation.json agent.json relay.json tape.json events.jsonl
//!                         before.json workspace.json changes.diff conflicts.json
//!     back/               output error: files that the worker may write
//!     handed/             the output of earlier steps that pass it on
//!     tmp/                temporary files of the worker
//!   artifacts/<attempt>/  the artifacts of an attempt, complete or absent
//!   homes/<step>/<agent>/ the configuration and sessions of a step's agent
//!   hooks/<number>/       log: the output of a hook
//!   programs/<hash>       copies of the project's programs that the run uses, made when it started
//!   before/               the state of files before a step, and copies of protected files
//!   telemetry.jsonl       the exported telemetry of an IOA run; telemetry-failed.jsonl what could not be exported
//!   files/                files that the workflow takes from its workspace and gives back to it
//!   trees/<step>.<visit>/ note.json files/: a worktree of one step
//!   git/<folder>/         snapshots of a workspace
//!   notes/                the processes that work for the run
//!   secrets/<attempt>/    secrets as files, while an attempt is active
//!   pending/              incomplete files
//!   tape/                 the signatures of its workspaces' files, for a run that is recorded
//! ```

use std::{
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use skein_core::{
    engine::{AttemptId, InstanceIx, StepAt},
    ids::RunId,
};

use super::{RootFolder, root::FilePathError};

const RUNS: &str = "runs";
const ATTEMPTS: &str = "attempts";
const ARTIFACTS: &str = "artifacts";
const BEFORE: &str = "before";
const FILES: &str = "files";
const GIT: &str = "git";
const HOMES: &str = "homes";
const HOOKS: &str = "hooks";
const NOTES: &str = "notes";
const PENDING: &str = "pending";
const PROGRAMS: &str = "programs";
const PUT: &str = "put";
const SECRETS: &str = "secrets";
const TAPE: &str = "tape";
const TREES: &str = "trees";

#[derive(Debug, Clone)]
pub struct RunDir {
    root: RootFolder,
}

/// The files of one attempt.
#[derive(Debug, Clone)]
pub struct AttemptDir {
    root: RootFolder,
}

impl RunDir {
    /// Opens the folder of a run in the state folder, and creates it if necessary. Only its owner may enter it.
    pub fn create(state: &RootFolder, run: &RunId) -> Result<RunDir, FilePathError> {
        let there = none_if_missing(state.open_folder(run_folder(run)))?;
        let root = there.map_or_else(|| state.make_folders(run_folder(run), true), Ok)?;
        Ok(RunDir { root })
    }

    /// Creates the folder that contains those of all runs. It is durable when this returns.
    pub(crate) fn make_runs_folder(state: &RootFolder) -> Result<(), FilePathError> {
        state.make_folders_unsynced(RUNS, true)?;
        state.sync()
    }

    /// Opens the folder of a run, and creates it if necessary. It is durable when this returns, whoever created it: a
    /// process that was killed may not have synced it.
    pub fn create_synced(state: &RootFolder, run: &RunId) -> Result<RunDir, FilePathError> {
        let runs = state.make_folders(RUNS, true)?;
        let root = runs.make_folders_unsynced(run.as_str(), true)?;
        runs.sync()?;
        Ok(RunDir { root })
    }

    /// Opens the existing folder of a run.
    pub fn open(state: &RootFolder, run: &RunId) -> Result<RunDir, FilePathError> {
        Ok(RunDir { root: state.open_folder(run_folder(run))? })
    }

    /// Removes all files of a run. Returns true if there were any.
    pub fn remove(state: &RootFolder, run: &RunId) -> Result<bool, FilePathError> {
        state.remove(run_folder(run))
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Reads a file directly in the folder.
    pub(crate) fn read_file(&self, name: &str, most: u64) -> Result<Vec<u8>, FilePathError> {
        self.root.read_file(name, most)
    }

    /// Returns the path of a run's folder, for callers that only read it.
    pub fn run_path(state: &Path, run: &RunId) -> PathBuf {
        state.join(run_folder(run))
    }

    /// Returns the path of an attempt's log, below the folder of its run.
    pub fn log_path(folder: &Path, attempt: AttemptId) -> PathBuf {
        folder.join(attempt_path(ATTEMPTS, attempt)).join(AttemptDir::LOG)
    }

    /// Returns the path of an attempt's changes, below the folder of its run.
    pub fn changes_path(folder: &Path, attempt: AttemptId) -> PathBuf {
        folder.join(attempt_path(ATTEMPTS, attempt)).join(AttemptDir::CHANGES)
    }

    /// The name of the diff of a run in one workspace, in the folder of its snapshots.
    pub(crate) const CHANGES: &str = "changes.diff";

    /// Lists the diffs of a run, one for each of its workspaces, below the folder of the run.
    pub fn list_run_changes(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder.join(GIT)).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path().join(Self::CHANGES)).collect();
        files.retain(|file| file.is_file());
        files.sort();
        files
    }

    /// Returns the path of an attempt's prompt, below the folder of its run.
    pub fn prompt_path(folder: &Path, attempt: AttemptId) -> PathBuf {
        folder.join(attempt_path(ATTEMPTS, attempt)).join(AttemptDir::PROMPT)
    }

    /// Returns the path of the workflow's files, below the folder of its run.
    pub fn files_path(folder: &Path) -> PathBuf {
        folder.join(FILES)
    }

    /// Returns the path of the notes about the processes that work for the run.
    pub(crate) fn notes_path(&self) -> PathBuf {
        self.root.path().join(NOTES)
    }

    /// Creates the folder of an attempt. It is not durable and need not be: an interrupted attempt is never continued,
    /// and the next one has its own folder. An existing folder belongs to a lost row and is removed.
    pub fn create_attempt(&self, attempt: AttemptId) -> Result<AttemptDir, FilePathError> {
        let name = attempt_path(ATTEMPTS, attempt);
        if none_if_missing(self.root.open_folder(&name))?.is_some() {
            self.root.remove(&name)?;
        }
        let root = self.root.make_folders_unsynced(&name, true)?;
        root.make_folders_unsynced(AttemptDir::BACK, true)?;
        Ok(AttemptDir { root })
    }

    /// Opens the existing folder of an attempt.
    pub(crate) fn find_attempt(&self, attempt: AttemptId) -> Result<Option<AttemptDir>, FilePathError> {
        none_if_missing(self.root.open_folder(attempt_path(ATTEMPTS, attempt)))
            .map(|root| root.map(|root| AttemptDir { root }))
    }

    /// Returns the folder with the signatures of its workspaces' files.
    pub(crate) fn recording_folder(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders(TAPE, true)
    }

    /// Returns the artifacts of an attempt, or `None` if they were not kept, or not completely.
    pub(super) fn find_artifacts(&self, attempt: AttemptId) -> Result<Option<RootFolder>, FilePathError> {
        none_if_missing(self.root.open_folder(attempt_path(ARTIFACTS, attempt)))
    }

    /// Lists the attempts with kept artifacts.
    pub(super) fn list_kept_attempts(&self) -> Result<Vec<AttemptId>, FilePathError> {
        self.list_attempts_in(ARTIFACTS)
    }

    /// Moves the artifacts of an interrupted attempt to this one.
    pub(crate) fn pass_artifacts(&self, from: AttemptId, to: AttemptId) -> Result<(), FilePathError> {
        if self.find_artifacts(from)?.is_none() || self.find_artifacts(to)?.is_some() {
            return Ok(());
        }
        self.root.move_new(attempt_path(ARTIFACTS, from), attempt_path(ARTIFACTS, to))
    }

    /// Creates an empty folder in which the artifacts of an attempt are assembled.
    pub(super) fn begin_artifacts(&self, attempt: AttemptId) -> Result<RootFolder, FilePathError> {
        self.root.remove(attempt_path(PENDING, attempt))?;
        self.root.make_folders_unsynced(attempt_path(PENDING, attempt), true)
    }

    /// Completes the artifacts: from now on they are those of the attempt.
    pub(super) fn finish_artifacts(&self, attempt: AttemptId) -> Result<(), FilePathError> {
        self.root.make_folders_unsynced(ARTIFACTS, true)?;
        self.root.move_new(attempt_path(PENDING, attempt), attempt_path(ARTIFACTS, attempt))?;
        // Another attempt may have created the parent folder without syncing it yet.
        self.root.sync()
    }

    pub(super) fn drop_artifacts(&self, attempt: AttemptId) -> Result<bool, FilePathError> {
        self.root.remove(attempt_path(PENDING, attempt))
    }

    /// Returns the folder with secret files of an attempt, and creates it if necessary.
    pub(crate) fn secrets_folder(&self, attempt: AttemptId) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(attempt_path(SECRETS, attempt), true)
    }

    /// Removes the secret files of an attempt that has ended.
    pub(crate) fn remove_secrets(&self, attempt: AttemptId) -> Result<bool, FilePathError> {
        self.root.remove(attempt_path(SECRETS, attempt))
    }

    /// Removes all secret files, when no attempt of the run is active.
    pub(crate) fn remove_all_secrets(&self) -> Result<bool, FilePathError> {
        self.root.remove(SECRETS)
    }

    /// Returns the scratch folder of the workflow's files, or `None` if it does not exist.
    pub(crate) fn find_files(&self) -> Result<Option<RootFolder>, FilePathError> {
        none_if_missing(self.root.open_folder(FILES))
    }

    pub(super) fn recreate_files(&self) -> Result<RootFolder, FilePathError> {
        self.remove_files()?;
        self.root.make_folders(FILES, true)
    }

    /// Removes the scratch folder, after the files were given back.
    pub(crate) fn remove_files(&self) -> Result<bool, FilePathError> {
        self.root.remove(FILES)
    }

    /// Returns the folder of a hook, and creates it if necessary.
    pub(crate) fn hook_folder(&self, number: u32) -> Result<RootFolder, FilePathError> {
        self.root.make_folders(Path::new(HOOKS).join(number.to_string()), true)
    }

    /// Returns the folder with the programs of the run, and creates it if necessary.
    pub(crate) fn programs_folder(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(PROGRAMS, true)
    }

    /// Returns the home of a step's agent, and creates it if necessary.
    pub(crate) fn agent_home(&self, at: StepAt, agent: &str) -> Result<RootFolder, FilePathError> {
        let StepAt(InstanceIx(instance), step) = at;
        self.root.make_folders(Path::new(HOMES).join(format!("{instance}.{step}")).join(agent), true)
    }

    /// Returns the folder with the state of files before steps.
    pub(crate) fn baseline_folder(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(BEFORE, true)
    }

    /// Returns the folder of a step's worktree, and creates it if necessary. Each visit has another one.
    pub(crate) fn worktree_folder(&self, attempt: AttemptId) -> Result<RootFolder, FilePathError> {
        let StepAt(InstanceIx(instance), step) = attempt.at;
        let name = format!("{instance}.{step}.{}", attempt.visit);
        self.root.make_folders(Path::new(TREES).join(name), true)
    }

    /// Returns the folder of all worktrees, below the folder of a run.
    pub(crate) fn worktrees_path(folder: &Path) -> PathBuf {
        folder.join(TREES)
    }

    /// Returns the snapshot repository of a folder, or `None` if there is none.
    pub(crate) fn find_snapshot_repo(&self, name: &str) -> Result<Option<RootFolder>, FilePathError> {
        none_if_missing(self.root.open_folder(Path::new(GIT).join(name)))
    }

    /// Creates an empty folder in which a snapshot repository is assembled.
    pub(crate) fn begin_snapshot_repo(&self, name: &str) -> Result<RootFolder, FilePathError> {
        let pending = Path::new(PENDING).join(name);
        self.root.remove(&pending)?;
        self.root.make_folders(pending, true)
    }

    pub(crate) fn finish_snapshot_repo(&self, name: &str) -> Result<RootFolder, FilePathError> {
        self.root.make_folders(GIT, true)?;
        let place = Path::new(GIT).join(name);
        self.root.move_new(Path::new(PENDING).join(name), &place)?;
        self.root.open_folder(place)
    }

    /// Creates an empty folder for files that are being moved into a workspace.
    pub(crate) fn begin_put(&self) -> Result<RootFolder, FilePathError> {
        self.finish_put()?;
        self.root.make_folders_unsynced(Path::new(PENDING).join(PUT), true)
    }

    pub(crate) fn finish_put(&self) -> Result<(), FilePathError> {
        self.root.remove(Path::new(PENDING).join(PUT)).map(drop)
    }

    /// Lists every attempt that has a folder, in the order of names.
    pub(crate) fn list_attempts(&self) -> Result<Vec<AttemptId>, FilePathError> {
        self.list_attempts_in(ATTEMPTS)
    }

    fn list_attempts_in(&self, folder: &str) -> Result<Vec<AttemptId>, FilePathError> {
        let Some(folder) = none_if_missing(self.root.open_folder(folder))? else { return Ok(Vec::new()) };
        let names = folder.list_entries(usize::MAX)?;
        Ok(names.iter().filter_map(|entry| entry.name.to_str()?.parse().ok()).collect())
    }
}

impl AttemptDir {
    const LOG: &str = "log";
    pub(crate) const STDOUT: &str = "stdout.log";
    pub(crate) const INPUTS: &str = "inputs.json";
    pub(crate) const BACK: &str = "back";
    pub(crate) const OUTPUT: &str = "output";
    pub(crate) const ERROR: &str = "error";
    const OBSERVATION: &str = "observation.json";
    const HANDED: &str = "handed";
    const SCRATCH: &str = "tmp";
    const EVENTS: &str = "events.jsonl";
    /// The state of the workspace before and after an attempt.
    pub(crate) const WORKSPACE: &str = "workspace.json";
    pub(crate) const PROMPT: &str = "prompt";
    pub(crate) const CHANGES: &str = "changes.diff";
    /// The changes of the previous attempt.
    pub(crate) const EARLIER: &str = "earlier.diff";
    /// The merge conflicts of other steps, for a conflict resolver.
    pub(crate) const CONFLICTS: &str = "conflicts.json";

    /// Returns the folder, for access to files by name.
    pub(crate) fn root(&self) -> &RootFolder {
        &self.root
    }

    /// Returns the path of the log of both streams, for people.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.root.path().join(Self::LOG)
    }

    /// Returns the path of standard output alone.
    pub(crate) fn stdout_path(&self) -> PathBuf {
        self.root.path().join(Self::STDOUT)
    }

    /// Returns the path of the agent's events, as they arrived.
    pub(crate) fn events_path(&self) -> PathBuf {
        self.root.path().join(Self::EVENTS)
    }

    /// The path of `SKEIN_INPUTS`.
    pub(crate) fn inputs_path(&self) -> PathBuf {
        self.root.path().join(Self::INPUTS)
    }

    /// Opens the only folder of Skein in which the worker may write. Its results are read through this.
    pub(crate) fn worker_output(&self) -> Result<RootFolder, FilePathError> {
        self.root.open_folder(Self::BACK)
    }

    /// Reads the last bytes of the log, or of standard output alone.
    pub(crate) fn read_tail(&self, stdout: bool, most: u64) -> Result<Vec<u8>, FilePathError> {
        let (mut file, _) = self.root.open_file(if stdout { Self::STDOUT } else { Self::LOG })?;
        let mut bytes = Vec::new();
        // A file that cannot be read to its end is returned as far as it can be read.
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(most)));
        let _ = file.take(most).read_to_end(&mut bytes);
        Ok(bytes)
    }

    /// Returns the path of the files of other steps that it may read.
    pub(crate) fn handed_path(&self) -> PathBuf {
        self.root.path().join(Self::HANDED)
    }

    /// Passes a file of another step to the attempt.
    pub(crate) fn hand_file(&self, name: &str, bytes: &[u8]) -> Result<(), FilePathError> {
        self.root.make_folders_unsynced(Self::HANDED, true)?.write_new(name, bytes)
    }

    /// Creates `TMPDIR` for a worker that may not write elsewhere.
    pub(crate) fn make_scratch(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(Self::SCRATCH, true)
    }

    pub(crate) fn remove_scratch(&self) -> Result<bool, FilePathError> {
        self.root.remove(Self::SCRATCH)
    }

    /// The path of `SKEIN_CHANGES`.
    pub(crate) fn earlier_changes_path(&self) -> PathBuf {
        self.root.path().join(Self::EARLIER)
    }

    /// The path of `SKEIN_CONFLICTS`.
    pub(crate) fn conflicts_path(&self) -> PathBuf {
        self.root.path().join(Self::CONFLICTS)
    }

    /// The path of `SKEIN_OUTPUT`.
    pub(crate) fn output_path(&self) -> PathBuf {
        self.root.path().join(Self::BACK).join(Self::OUTPUT)
    }

    /// The path of `SKEIN_ERROR`.
    pub(crate) fn error_path(&self) -> PathBuf {
        self.root.path().join(Self::BACK).join(Self::ERROR)
    }

    pub(super) fn read_observation(&self, max: u64) -> Result<Option<Vec<u8>>, FilePathError> {
        none_if_missing(self.root.read_file(Self::OBSERVATION, max))
    }

    pub(super) fn write_observation(&self, bytes: &[u8]) -> Result<(), FilePathError> {
        self.root.replace_file(Self::OBSERVATION, bytes)
    }
}

fn run_folder(run: &RunId) -> PathBuf {
    Path::new(RUNS).join(run.as_str())
}

fn attempt_path(folder: &str, attempt: AttemptId) -> PathBuf {
    Path::new(folder).join(attempt.to_string())
}

/// Returns `None` for the error of a missing file or folder.
pub(crate) fn none_if_missing<T>(result: Result<T, FilePathError>) -> Result<Option<T>, FilePathError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_run_has_a_folder_of_its_own_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = RootFolder::open(dir.path()).unwrap();
        let (one, two) = (RunId::new("one").unwrap(), RunId::new("two").unwrap());
        assert!(RunDir::open(&state, &one).unwrap_err().is_missing());
        let run = RunDir::create(&state, &one).unwrap();
        RunDir::create(&state, &two).unwrap();
        let attempt: AttemptId = "0.3.1.2.check.1".parse().unwrap();
        assert!(run.find_attempt(attempt).unwrap().is_none());
        let files = run.create_attempt(attempt).unwrap();
        assert_eq!(files.output_path(), dir.path().join("runs/one/attempts/0.3.1.2.check.1/back/output"));
        fs::write(files.output_path(), "a=1").unwrap();
        assert_eq!(files.worker_output().unwrap().read_file("output", 10).unwrap(), b"a=1");
        // Created again, as after a crash that lost the row: the earlier output does not count.
        RunDir::create(&state, &one).unwrap().create_attempt(attempt).unwrap();
        let again = run.find_attempt(attempt).unwrap().unwrap();
        assert!(again.worker_output().unwrap().read_file("output", 10).unwrap_err().is_missing());
        for folder in ["runs", "runs/one", "runs/one/attempts", "runs/one/attempts/0.3.1.2.check.1"] {
            let mode = fs::metadata(dir.path().join(folder)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{folder}");
        }
        assert!(RunDir::remove(&state, &one).unwrap());
        assert!(!RunDir::remove(&state, &one).unwrap());
        let left: Vec<_> = fs::read_dir(dir.path().join("runs")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["two"]);
    }

    #[test]
    fn of_much_that_was_printed_the_end_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(&RootFolder::open(dir.path()).unwrap(), &RunId::new("one").unwrap()).unwrap();
        let files = run.create_attempt("0.0.1.1.main.1".parse().unwrap()).unwrap();
        fs::write(files.stdout_path(), "a".repeat(300) + "COMPLETE").unwrap();
        assert_eq!(files.read_tail(true, 10).unwrap(), b"aaCOMPLETE");
        assert_eq!(files.read_tail(true, 1_000).unwrap().len(), 308);
        assert!(files.read_tail(false, 10).unwrap_err().is_missing());
    }

    /// A run's id can be any name; none of them is a path.
    #[test]
    fn removing_a_run_cannot_remove_anything_else() {
        let dir = tempfile::tempdir().unwrap();
        let state = RootFolder::open(dir.path()).unwrap();
        assert!(RunId::new("..").is_err() && RunId::new("a/b").is_err());
        std::os::unix::fs::symlink("/etc", dir.path().join("runs")).unwrap();
        let run = RunId::new("passwd").unwrap();
        assert!(RunDir::remove(&state, &run).unwrap_err().to_string().contains("`runs` is a symbolic link"));
    }
}
