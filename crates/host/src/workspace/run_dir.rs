//! Where the files of a run are: `runs/<run>/…` in the state folder.
//!
//! Owns the layout. Every path is made of ids, which are safe by construction; no other text is ever joined to one.
//! Refuses to know what the files hold.
//!
//! ```text
//! runs/<run>/
//!   attempts/<attempt>/   log stdout.log inputs.json observation.json agent.json relay.json tape.json events.jsonl
//!                         before.json workspace.json changes.diff conflicts.json
//!     back/               output error: what the worker may write
//!     handed/             what steps before it printed, where they hand that on
//!     tmp/                where it leaves what it needs only while it works
//!   artifacts/<attempt>/  what an attempt gave, complete or not there
//!   homes/<step>/<agent>/ what an agent of a step is configured by and remembers
//!   hooks/<number>/       log: what a hook printed
//!   programs/<hash>       programs of the project that the run started, as they were when it began
//!   before/               what files were like before a step, and what was protected of them
//!   telemetry.jsonl       what was told of a run of IOA; telemetry-failed.jsonl what could not be
//!   files/                what the workflow took from its workspace and gives back to it
//!   trees/<step>.<visit>/ note.json files/: a tree that a step works in alone
//!   git/<folder>/         states of a workspace
//!   notes/                which processes work for it
//!   secrets/<attempt>/    secrets as files, while an attempt is at work
//!   pending/              what is not complete
//!   tape/                 how the files of its workspaces looked, for a run that is recorded
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

/// The folder of a run.
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
    /// The folder of a run in the state folder, made where it is not there yet. Only its owner may enter it.
    pub fn create(state: &RootFolder, run: &RunId) -> Result<RunDir, FilePathError> {
        let there = none_if_missing(state.open_folder(run_folder(run)))?;
        let root = there.map_or_else(|| state.make_folders(run_folder(run), true), Ok)?;
        Ok(RunDir { root })
    }

    /// Makes the folder that those of all runs are in. It lasts when this returns.
    pub fn make_runs_folder(state: &RootFolder) -> Result<(), FilePathError> {
        state.make_folders_unsynced(RUNS, true)?;
        state.sync()
    }

    /// The folder of a run, made where it is not there yet. It lasts when this returns, whoever made it: one that was
    /// killed may not have synced it.
    pub fn create_synced(state: &RootFolder, run: &RunId) -> Result<RunDir, FilePathError> {
        let runs = state.make_folders(RUNS, true)?;
        let root = runs.make_folders_unsynced(run.as_str(), true)?;
        runs.sync()?;
        Ok(RunDir { root })
    }

    /// The folder of a run that has one.
    pub fn open(state: &RootFolder, run: &RunId) -> Result<RunDir, FilePathError> {
        Ok(RunDir { root: state.open_folder(run_folder(run))? })
    }

    /// Removes all files of a run. Whether there were any.
    pub fn remove(state: &RootFolder, run: &RunId) -> Result<bool, FilePathError> {
        state.remove(run_folder(run))
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// A file of ours right in it.
    pub fn read_file(&self, name: &str, most: u64) -> Result<Vec<u8>, FilePathError> {
        self.root.read_file(name, most)
    }

    /// Where the folder of a run is, for those who only look into it.
    pub fn run_path(state: &Path, run: &RunId) -> PathBuf {
        state.join(run_folder(run))
    }

    /// Where the log of an attempt is, below the folder of its run.
    pub fn log_path(folder: &Path, attempt: AttemptId) -> PathBuf {
        folder.join(attempt_path(ATTEMPTS, attempt)).join(AttemptDir::LOG)
    }

    /// Where what an attempt changed is told, below the folder of its run.
    pub fn changes_path(folder: &Path, attempt: AttemptId) -> PathBuf {
        folder.join(attempt_path(ATTEMPTS, attempt)).join(AttemptDir::CHANGES)
    }

    /// The name of the diff of a run in one workspace, in the folder of its states.
    pub(crate) const CHANGES: &str = "changes.diff";

    /// The files that tell what a run changed, one for each of its workspaces, below the folder of the run.
    pub fn list_run_changes(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder.join(GIT)).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path().join(Self::CHANGES)).collect();
        files.retain(|file| file.is_file());
        files.sort();
        files
    }

    /// The path of an attempt's prompt, below the folder of its run.
    pub fn prompt_path(folder: &Path, attempt: AttemptId) -> PathBuf {
        folder.join(attempt_path(ATTEMPTS, attempt)).join(AttemptDir::PROMPT)
    }

    /// Where the workflow's files are, below the folder of its run.
    pub fn files_path(folder: &Path) -> PathBuf {
        folder.join(FILES)
    }

    /// Where the notes are of the processes that work for it.
    pub fn notes_path(&self) -> PathBuf {
        self.root.path().join(NOTES)
    }

    /// A new folder for an attempt. It may not last, and need not: an attempt that was cut off is never gone on with, and
    /// the next one has a folder of its own. One that is there is of a row that was lost, and nothing of it counts.
    pub fn create_attempt(&self, attempt: AttemptId) -> Result<AttemptDir, FilePathError> {
        let name = attempt_path(ATTEMPTS, attempt);
        if none_if_missing(self.root.open_folder(&name))?.is_some() {
            self.root.remove(&name)?;
        }
        let root = self.root.make_folders_unsynced(&name, true)?;
        root.make_folders_unsynced(AttemptDir::BACK, true)?;
        Ok(AttemptDir { root })
    }

    /// The folder of an attempt that has one.
    pub fn find_attempt(&self, attempt: AttemptId) -> Result<Option<AttemptDir>, FilePathError> {
        none_if_missing(self.root.open_folder(attempt_path(ATTEMPTS, attempt)))
            .map(|root| root.map(|root| AttemptDir { root }))
    }

    /// How the files of its workspaces looked.
    pub fn recording_folder(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders(TAPE, true)
    }

    /// What an attempt gave. None: nothing was kept of it, or not completely.
    pub(super) fn find_artifacts(&self, attempt: AttemptId) -> Result<Option<RootFolder>, FilePathError> {
        none_if_missing(self.root.open_folder(attempt_path(ARTIFACTS, attempt)))
    }

    /// The attempts of which something is kept.
    pub(super) fn list_kept_attempts(&self) -> Result<Vec<AttemptId>, FilePathError> {
        let Some(folder) = none_if_missing(self.root.open_folder(ARTIFACTS))? else { return Ok(Vec::new()) };
        let names = folder.list_entries(usize::MAX)?;
        Ok(names.iter().filter_map(|entry| entry.name.to_str()?.parse().ok()).collect())
    }

    /// Forgets what an attempt gave: a later one has given it again.
    pub fn remove_artifacts(&self, attempt: AttemptId) -> Result<bool, FilePathError> {
        self.root.remove(attempt_path(ARTIFACTS, attempt))
    }

    /// What an attempt gave that was cut off is what this one gives.
    pub(crate) fn pass_artifacts(&self, from: AttemptId, to: AttemptId) -> Result<(), FilePathError> {
        if self.find_artifacts(from)?.is_none() || self.find_artifacts(to)?.is_some() {
            return Ok(());
        }
        self.root.move_new(attempt_path(ARTIFACTS, from), attempt_path(ARTIFACTS, to))
    }

    /// An empty folder in which what an attempt gave is put together.
    pub(super) fn begin_artifacts(&self, attempt: AttemptId) -> Result<RootFolder, FilePathError> {
        self.root.remove(attempt_path(PENDING, attempt))?;
        self.root.make_folders_unsynced(attempt_path(PENDING, attempt), true)
    }

    /// It is complete: from now on it is what the attempt gave.
    pub(super) fn finish_artifacts(&self, attempt: AttemptId) -> Result<(), FilePathError> {
        self.root.make_folders_unsynced(ARTIFACTS, true)?;
        self.root.move_new(attempt_path(PENDING, attempt), attempt_path(ARTIFACTS, attempt))?;
        // Another attempt may have made the folder of all, and not have come to sync it.
        self.root.sync()
    }

    pub(super) fn drop_artifacts(&self, attempt: AttemptId) -> Result<bool, FilePathError> {
        self.root.remove(attempt_path(PENDING, attempt))
    }

    /// The folder in which an attempt is given secrets as files, made where it is not there yet.
    pub(crate) fn secrets_folder(&self, attempt: AttemptId) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(attempt_path(SECRETS, attempt), true)
    }

    /// An attempt that is over has none of them any more.
    pub(crate) fn remove_secrets(&self, attempt: AttemptId) -> Result<bool, FilePathError> {
        self.root.remove(attempt_path(SECRETS, attempt))
    }

    /// Nor has any, when nothing of the run is at work.
    pub(crate) fn remove_all_secrets(&self) -> Result<bool, FilePathError> {
        self.root.remove(SECRETS)
    }

    /// The scratch folder of the workflow's files. None: there is none, or none any more.
    pub fn find_files(&self) -> Result<Option<RootFolder>, FilePathError> {
        none_if_missing(self.root.open_folder(FILES))
    }

    pub(super) fn recreate_files(&self) -> Result<RootFolder, FilePathError> {
        self.remove_files()?;
        self.root.make_folders(FILES, true)
    }

    /// Removes the scratch folder, once what was to be given back is.
    pub fn remove_files(&self) -> Result<bool, FilePathError> {
        self.root.remove(FILES)
    }

    /// The folder of a hook, made where it is not there yet.
    pub fn hook_folder(&self, number: u32) -> Result<RootFolder, FilePathError> {
        self.root.make_folders(Path::new(HOOKS).join(number.to_string()), true)
    }

    /// The folder of programs that the run was begun with, made where it is not there yet.
    pub fn programs_folder(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(PROGRAMS, true)
    }

    /// The home of a step's agent, made where it is not there yet.
    pub fn agent_home(&self, at: StepAt, agent: &str) -> Result<RootFolder, FilePathError> {
        let StepAt(InstanceIx(instance), step) = at;
        self.root.make_folders(Path::new(HOMES).join(format!("{instance}.{step}")).join(agent), true)
    }

    /// What is remembered of how it was before steps began.
    pub fn baseline_folder(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(BEFORE, true)
    }

    /// The folder of a tree that a step works in alone, made where it is not there yet. Each visit has another.
    pub fn worktree_folder(&self, attempt: AttemptId) -> Result<RootFolder, FilePathError> {
        let StepAt(InstanceIx(instance), step) = attempt.at;
        let name = format!("{instance}.{step}.{}", attempt.visit);
        self.root.make_folders(Path::new(TREES).join(name), true)
    }

    /// The folders of all such trees, below the folder of a run.
    pub fn worktrees_path(folder: &Path) -> PathBuf {
        folder.join(TREES)
    }

    /// Where states of a folder are kept. None: none are.
    pub(crate) fn find_snapshot_repo(&self, name: &str) -> Result<Option<RootFolder>, FilePathError> {
        none_if_missing(self.root.open_folder(Path::new(GIT).join(name)))
    }

    /// An empty folder in which such a place is put together.
    pub(crate) fn begin_snapshot_repo(&self, name: &str) -> Result<RootFolder, FilePathError> {
        let pending = Path::new(PENDING).join(name);
        self.root.remove(&pending)?;
        self.root.make_folders(pending, true)
    }

    /// It is complete.
    pub(crate) fn finish_snapshot_repo(&self, name: &str) -> Result<RootFolder, FilePathError> {
        self.root.make_folders(GIT, true)?;
        let place = Path::new(GIT).join(name);
        self.root.move_new(Path::new(PENDING).join(name), &place)?;
        self.root.open_folder(place)
    }

    /// An empty folder for files on their way into a workspace.
    pub(crate) fn begin_put(&self) -> Result<RootFolder, FilePathError> {
        self.finish_put()?;
        self.root.make_folders_unsynced(Path::new(PENDING).join(PUT), true)
    }

    pub(crate) fn finish_put(&self) -> Result<(), FilePathError> {
        self.root.remove(Path::new(PENDING).join(PUT)).map(drop)
    }

    /// Every attempt that has a folder, in the order of their names.
    pub(crate) fn list_attempts(&self) -> Result<Vec<AttemptId>, FilePathError> {
        let Some(folder) = none_if_missing(self.root.open_folder(ATTEMPTS))? else { return Ok(Vec::new()) };
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
    /// What an attempt found in its workspace and left there.
    pub(crate) const WORKSPACE: &str = "workspace.json";
    /// Its prompt.
    pub(crate) const PROMPT: &str = "prompt";
    /// What it changed.
    pub(crate) const CHANGES: &str = "changes.diff";
    /// What the attempt before it changed.
    pub(crate) const EARLIER: &str = "earlier.diff";
    /// What others could not merge, and it is to settle.
    pub(crate) const CONFLICTS: &str = "conflicts.json";

    /// To read and replace files of it by name.
    pub fn root(&self) -> &RootFolder {
        &self.root
    }

    /// Both its streams, for people to read.
    pub fn log_path(&self) -> PathBuf {
        self.root.path().join(Self::LOG)
    }

    /// Its standard output alone.
    pub fn stdout_path(&self) -> PathBuf {
        self.root.path().join(Self::STDOUT)
    }

    /// Every event of an agent, as it came.
    pub fn events_path(&self) -> PathBuf {
        self.root.path().join(Self::EVENTS)
    }

    /// `SKEIN_INPUTS`.
    pub fn inputs_path(&self) -> PathBuf {
        self.root.path().join(Self::INPUTS)
    }

    /// The one folder of ours in which the worker may write. What it made of it is read through this.
    pub fn worker_output(&self) -> Result<RootFolder, FilePathError> {
        self.root.open_folder(Self::BACK)
    }

    /// The last bytes of what it printed, or of what it printed on its standard output alone.
    pub fn read_tail(&self, stdout: bool, most: u64) -> Result<Vec<u8>, FilePathError> {
        let (mut file, _) = self.root.open_file(if stdout { Self::STDOUT } else { Self::LOG })?;
        let mut bytes = Vec::new();
        // One that cannot be read to its end is told as far as it can.
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(most)));
        let _ = file.take(most).read_to_end(&mut bytes);
        Ok(bytes)
    }

    /// Where the files of other steps are that it may read.
    pub fn handed_path(&self) -> PathBuf {
        self.root.path().join(Self::HANDED)
    }

    /// Gives it a file of another step to read.
    pub fn hand_file(&self, name: &str, bytes: &[u8]) -> Result<(), FilePathError> {
        self.root.make_folders_unsynced(Self::HANDED, true)?.write_new(name, bytes)
    }

    /// `TMPDIR` of a worker that may not write elsewhere.
    pub fn make_scratch(&self) -> Result<RootFolder, FilePathError> {
        self.root.make_folders_unsynced(Self::SCRATCH, true)
    }

    pub fn remove_scratch(&self) -> Result<bool, FilePathError> {
        self.root.remove(Self::SCRATCH)
    }

    /// `SKEIN_CHANGES`.
    pub fn earlier_changes_path(&self) -> PathBuf {
        self.root.path().join(Self::EARLIER)
    }

    /// `SKEIN_CONFLICTS`.
    pub fn conflicts_path(&self) -> PathBuf {
        self.root.path().join(Self::CONFLICTS)
    }

    /// `SKEIN_OUTPUT`.
    pub fn output_path(&self) -> PathBuf {
        self.root.path().join(Self::BACK).join(Self::OUTPUT)
    }

    /// `SKEIN_ERROR`.
    pub fn error_path(&self) -> PathBuf {
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

pub(super) fn none_if_missing<T>(result: Result<T, FilePathError>) -> Result<Option<T>, FilePathError> {
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
        // Again, as after a crash that took the row with it: what was given then is not given now.
        RunDir::create(&state, &one).unwrap().create_attempt(attempt).unwrap();
        let again = run.find_attempt(attempt).unwrap().unwrap();
        assert!(again.worker_output().unwrap().read_file("output", 10).unwrap_err().is_missing());
        for folder in ["runs", "runs/one", "runs/one/attempts", "runs/one/attempts/0.3.1.2.check.1"] {
            let mode = fs::metadata(dir.path().join(folder)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{folder}");
        }
        assert!(RunDir::remove(&state, &one).unwrap());
        assert!(!RunDir::remove(&state, &one).unwrap());
        let left: Vec<_> =
            fs::read_dir(dir.path().join("runs")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["two"]);
    }

    #[test]
    fn of_much_that_was_printed_the_end_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let run =
            RunDir::create(&RootFolder::open(dir.path()).unwrap(), &RunId::new("one").unwrap()).unwrap();
        let files = run.create_attempt("0.0.1.1.main.1".parse().unwrap()).unwrap();
        fs::write(files.stdout_path(), "a".repeat(300) + "COMPLETE").unwrap();
        assert_eq!(files.read_tail(true, 10).unwrap(), b"aaCOMPLETE");
        assert_eq!(files.read_tail(true, 1_000).unwrap().len(), 308);
        assert!(files.read_tail(false, 10).unwrap_err().is_missing());
    }

    /// A run's id can be any name; none of them is a place.
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
