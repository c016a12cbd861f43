//! The worktree of a step: the files of the repository at the step's first start, in a folder of the run, with a git
//! folder of its own.
//!
//! Owns the creation and removal of a worktree. Its base commit is noted durably first, so that a resumed run creates
//! the same worktree. A snapshot is checked out file by file, each atomically, so that a repetition after a crash has
//! the same result. Changes that a worker makes to the git folder inside affect only that worker: the engine never uses
//! it.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::engine::{AttemptId, AttemptReport, StepAt};

use crate::{
    executor::worktree::{
        WorktreeError,
        git::{GitCommand, GitRunner},
        parse_object_id, path_from_bytes,
        snapshot::{self, SnapshotRepo, SnapshotRules, SnapshotView, path_line},
    },
    workspace::{RootFolder, RunDir, root::EntryKind},
};

/// The durable note about a worktree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorktreeNote {
    /// The step's path, for people.
    pub step: String,
    /// The base commit.
    pub commit: String,
    /// The merge of its changes, once they are complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merging: Option<PendingMerge>,
    /// The changes that could not be merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<UnmergedChanges>,
    /// True if its changes are merged, or if there are none.
    #[serde(default)]
    pub done: bool,
}

/// Changes that conflicted at the merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnmergedChanges {
    /// The tree of the worktree at that time.
    pub theirs: String,
    /// The conflicting files, after the clean changes were imported by the conflict resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Vec<String>>,
}

/// A merge that was computed: the change of the workspace, and the report of the attempt that follows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingMerge {
    /// The attempt that made the changes.
    pub attempt: AttemptId,
    pub from: String,
    pub to: String,
    pub report: AttemptReport,
}

/// A worktree that exists.
#[derive(Debug)]
pub(crate) struct StepWorktree {
    place: RootFolder,
    pub note: WorktreeNote,
    pub files: RootFolder,
}

const NOTE: &str = "note.json";
const FILES: &str = "files";
const CONFLICTS: &str = "conflicts";
/// The folder where the files are prepared before they are moved to their place.
const PENDING: &str = "pending";
/// The maximum size of a note.
const NOTE_BYTES: u64 = 64 * 1024 * 1024;

/// The note of a step's worktree, if it has one.
pub(crate) fn read_note(run: &RunDir, attempt: AttemptId) -> Result<Option<WorktreeNote>, WorktreeError> {
    let place = run.worktree_folder(attempt)?;
    match place.read_file(NOTE, NOTE_BYTES) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| WorktreeError::Note { note: "the worktree's note", error }),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The step of a worktree and the path of its files, if they still exist.
pub(crate) fn find_kept_files(place: &Path) -> Option<(String, PathBuf)> {
    let files = place.join(FILES);
    let note: WorktreeNote = serde_json::from_slice(&fs::read(place.join(NOTE)).ok()?).ok()?;
    (!note.done && files.is_dir()).then_some((note.step, files))
}

impl StepWorktree {
    /// The worktree of a step that has one.
    pub(crate) fn find(run: &RunDir, attempt: AttemptId) -> Result<Option<StepWorktree>, WorktreeError> {
        let Some(note) = read_note(run, attempt)? else { return Ok(None) };
        let place = run.worktree_folder(attempt)?;
        match place.entry_kind(FILES)? {
            Some(_) => Ok(Some(StepWorktree { files: place.open_folder(FILES)?, place, note })),
            None => Ok(None),
        }
    }

    /// Opens the worktree of a step, and creates it if necessary.
    pub(crate) fn open(
        repo: &SnapshotRepo<'_>,
        run: &RunDir,
        attempt: AttemptId,
        step: &str,
    ) -> Result<StepWorktree, WorktreeError> {
        let place = run.worktree_folder(attempt)?;
        let note = match read_note(run, attempt)? {
            Some(note) => note,
            None => {
                let (step, commit) = (step.to_owned(), commit_workspace(repo)?);
                let note = WorktreeNote { step, commit, merging: None, unfit: None, done: false };
                write_note(&place, &note)?;
                note
            }
        };
        if place.entry_kind(FILES)?.is_none() {
            create_files(repo, &place, &note.commit)?;
        }
        let files = place.open_folder(FILES)?;
        Ok(StepWorktree { place, note, files })
    }

    pub(crate) fn save(&self) -> Result<(), WorktreeError> {
        write_note(&self.place, &self.note)
    }

    /// Removes its files, which are no longer needed.
    pub(crate) fn remove_files(&self) -> Result<(), WorktreeError> {
        Ok(self.place.remove(FILES).map(drop)?)
    }

    /// Writes the list of conflicting files, for the resolver.
    pub(crate) fn write_conflicts(&self, files: &[PathBuf]) -> Result<(), WorktreeError> {
        let lines: Vec<u8> = files.iter().flat_map(|file| path_line(file)).collect();
        Ok(self.place.replace_file(CONFLICTS, &lines)?)
    }

    pub(crate) fn path(&self) -> &Path {
        self.files.path()
    }

    /// The view of its files, with an index that the engine keeps.
    pub(crate) fn snapshot_view(
        &self,
        repo: &SnapshotRepo<'_>,
        attempt: AttemptId,
        prefix: &Path,
    ) -> Result<SnapshotView, WorktreeError> {
        let (StepAt(instance, step), visit) = (attempt.at, attempt.visit);
        let index = format!("tree.{}.{step}.{visit}", instance.0);
        let view = SnapshotView {
            root: self.files.clone(),
            prefix: prefix.to_owned(),
            index,
            rules: SnapshotRules::Tree,
            largest: None,
        };
        if !repo.git_folder().join(&view.index).exists() {
            repo.remove_stale_lock(&view.index);
            repo.run(repo.view_command(&view, "read-tree", &["read-tree", &self.note.commit]))?.into_stdout()?;
        }
        Ok(view)
    }
}

fn write_note(place: &RootFolder, note: &WorktreeNote) -> Result<(), WorktreeError> {
    let bytes = serde_json::to_vec_pretty(note).expect("a note is plain data");
    Ok(place.replace_file(NOTE, &bytes)?)
}

/// Commits the whole repository in its present state, including uncommitted changes. Only the engine sees the commit.
fn commit_workspace(repo: &SnapshotRepo<'_>) -> Result<String, WorktreeError> {
    let view = super::whole_view(repo);
    let tree = repo.take_snapshot(&view)?.tree;
    let kept = repo.output_folder()?;
    let mut arguments = vec!["commit-tree", "-m", "skein: workspace snapshot", tree.as_str()];
    let head = snapshot::read_head(repo.origin_git(&kept))?;
    arguments.extend(head.iter().flat_map(|head| ["-p", head.as_str()]));
    parse_object_id(&repo.run(repo.view_command(&view, "commit", &arguments))?.into_stdout()?)
}

/// Creates the files atomically.
fn create_files(repo: &SnapshotRepo<'_>, place: &RootFolder, commit: &str) -> Result<(), WorktreeError> {
    place.remove(PENDING)?;
    let files = place.make_folders(PENDING, true)?;
    let place_and_index = (files.path(), "make");
    repo.remove_stale_lock("make");
    repo.run_with_index(place_and_index, "make-read", &["read-tree", commit], Vec::new())?;
    repo.run_with_index(place_and_index, "make-files", &["checkout-index", "--all", "--force"], Vec::new())?;
    create_git_folder(repo, &files, commit)?;
    files.sync_all()?;
    Ok(place.move_new(PENDING, FILES)?)
}

/// Creates a separate git folder with the whole history, in which a worker may do anything.
fn create_git_folder(repo: &SnapshotRepo<'_>, files: &RootFolder, commit: &str) -> Result<(), WorktreeError> {
    let format = repo.origin.as_ref().map_or("sha1", |origin| &origin.format);
    let kept = repo.output_folder()?;
    let git = GitRunner::new(files.path(), &kept, repo.mark);
    let place = files.path().join(".git");
    let run = |name, arguments: &[String]| {
        let mut command = GitCommand::new(name, arguments);
        command.settings = vec![
            ("GIT_CONFIG_GLOBAL".into(), "/dev/null".into()),
            ("GIT_DIR".into(), place.clone().into()),
            ("GIT_WORK_TREE".into(), files.path().into()),
            ("GIT_OPTIONAL_LOCKS".into(), "1".into()),
        ];
        git.run(command)?.into_stdout().map(drop)
    };
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    run("git-init", &words(&["init", "--quiet", "--template=", &format!("--object-format={format}")]))?;
    let mut borrowed = path_line(&repo.git_folder().join("objects"));
    if let Some(origin) = &repo.origin {
        borrowed.extend(path_line(&origin.objects));
        for (name, value) in &origin.author {
            run("git-author", &words(&["config", name, value]))?;
        }
        if origin.shallow.exists() {
            fs::copy(&origin.shallow, place.join("shallow"))?;
        }
    }
    let io = |error| WorktreeError::File { path: place.clone(), error };
    fs::create_dir_all(place.join("objects/info")).map_err(io)?;
    fs::create_dir_all(place.join("hooks")).map_err(io)?;
    fs::write(place.join("objects/info/alternates"), borrowed).map_err(io)?;
    fs::write(place.join("HEAD"), format!("{commit}\n")).map_err(io)?;
    run("git-read", &words(&["read-tree", "HEAD"]))?;
    run("git-refresh", &words(&["update-index", "-q", "--refresh"])).or(Ok(()))
}

/// The folder of the objects that the git folder of a worktree borrows.
pub(crate) fn borrowed_objects(repo: &SnapshotRepo<'_>) -> PathBuf {
    repo.git_folder().join("objects")
}

/// A file in a snapshot: its mode and its object id.
pub(crate) type SnapshotEntry = Option<(String, String)>;

/// A file that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotChange {
    pub path: PathBuf,
    pub old: SnapshotEntry,
    pub new: SnapshotEntry,
}
#[derive(Debug)]
pub(crate) enum CheckoutError {
    /// These files have neither their old nor their new content.
    Changed(Vec<PathBuf>),
    Failed(WorktreeError),
}

impl<E: Into<WorktreeError>> From<E> for CheckoutError {
    fn from(error: E) -> CheckoutError {
        CheckoutError::Failed(error.into())
    }
}

/// A folder for checkouts, and the run whose folder stages the files.
pub(crate) struct SnapshotCheckout<'a> {
    pub repo: &'a SnapshotRepo<'a>,
    pub run: &'a RunDir,
    pub view: &'a SnapshotView,
}

impl SnapshotRepo<'_> {
    pub(crate) fn list_changes(&self, from: &str, to: &str) -> Result<Vec<SnapshotChange>, WorktreeError> {
        let arguments = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to];
        let output = self.run_with_index((self.top.path(), "none"), "changes", &arguments, Vec::new())?;
        parse_changes(&output).ok_or(WorktreeError::UnexpectedOutput("list of changes cannot be parsed"))
    }
}

/// Parses `:mode mode id id letter` and the path, each NUL-terminated.
fn parse_changes(output: &[u8]) -> Option<Vec<SnapshotChange>> {
    let mut parts = output.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let Some(line) = parts.next().filter(|line| !line.is_empty()) {
        let line = std::str::from_utf8(line).ok()?.strip_prefix(':')?;
        let [old_mode, new_mode, old, new, _] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let blob = |mode: &str, id: &str| (mode != "000000").then(|| (mode.to_owned(), id.to_owned()));
        let path = path_from_bytes(parts.next()?);
        changes.push(SnapshotChange { path, old: blob(old_mode, old), new: blob(new_mode, new) });
    }
    Some(changes)
}

impl SnapshotCheckout<'_> {
    /// Applies the difference of two snapshots to the files. Any of them may already have the new content.
    pub(crate) fn apply_changes(&self, from: &str, to: &str) -> Result<(), CheckoutError> {
        let meant: BTreeMap<PathBuf, SnapshotEntry> =
            self.repo.list_changes(from, to)?.into_iter().map(|change| (change.path, change.old)).collect();
        if meant.is_empty() {
            return Ok(());
        }
        let now = self.repo.take_snapshot(self.view)?.tree;
        let mut left = self.repo.list_changes(&now, to)?;
        left.retain(|change| meant.contains_key(&change.path));
        let foreign = left.iter().filter(|change| meant.get(&change.path) != Some(&change.old));
        let foreign: Vec<PathBuf> = foreign.map(|change| change.path.clone()).collect();
        if !foreign.is_empty() {
            return Err(CheckoutError::Changed(foreign));
        }
        self.write_files(&left)?;
        Ok(())
    }

    fn write_files(&self, changes: &[SnapshotChange]) -> Result<(), CheckoutError> {
        let staged = self.run.begin_put()?;
        self.stage_files(changes, &staged)?;
        let root = &self.view.root;
        for change in changes.iter().filter(|change| change.new.is_none()) {
            remove_file(root, &change.path)?;
        }
        for change in changes.iter().filter(|change| change.new.is_some()) {
            place_file(&staged, root, &change.path)?;
        }
        root.sync_all()?;
        self.run.finish_put()?;
        Ok(())
    }

    /// Writes the new files to a folder where nobody else works.
    fn stage_files(&self, changes: &[SnapshotChange], staged: &RootFolder) -> Result<(), WorktreeError> {
        let index = "put";
        self.repo.remove_stale_lock(index);
        let _ = fs::remove_file(self.repo.git_folder().join(index));
        let new = changes.iter().filter_map(|change| Some(index_line(change.new.as_ref()?, &change.path)));
        let place_and_index = (self.view.root.path(), index);
        let arguments = ["update-index", "-z", "--index-info"];
        self.repo.run_with_index(place_and_index, "put", &arguments, new.flatten().collect())?;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(staged.path());
        prefix.push("/");
        let arguments = [OsStr::new("checkout-index"), OsStr::new("--all"), OsStr::new("--force"), &prefix];
        self.repo.run_with_index(place_and_index, "lay-out", &arguments, Vec::new()).map(drop)
    }
}

/// A line of input for `update-index --index-info`: `mode id⇥path` and a NUL.
pub(crate) fn index_line((mode, id): &(String, String), path: &Path) -> Vec<u8> {
    [format!("{mode} {id}\t").as_bytes(), path.as_os_str().as_bytes(), b"\0"].concat()
}

/// Moves one staged file to its place.
fn place_file(staged: &RootFolder, root: &RootFolder, path: &Path) -> Result<(), CheckoutError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        root.make_folders_unsynced(parent, false)?;
    }
    if staged.entry_kind(path)? == Some(EntryKind::Link) {
        let target = fs::read_link(staged.path().join(path)).map_err(WorktreeError::from)?;
        return Ok(root.replace_link(path, &target)?);
    }
    if root.entry_kind(path)? == Some(EntryKind::Link) {
        root.remove(path)?;
    }
    let (mut from, mark) = staged.open_file(path)?;
    let mut pending = root.create_file(path, mark.executable)?;
    io::copy(&mut from, &mut pending).map_err(|error| WorktreeError::File { path: path.to_owned(), error })?;
    Ok(pending.persist_unsynced()?)
}

/// Removes a file and the parent folders that became empty.
fn remove_file(root: &RootFolder, path: &Path) -> Result<(), CheckoutError> {
    root.remove(path)?;
    let around = path.ancestors().skip(1).take_while(|path| !path.as_os_str().is_empty());
    for folder in around {
        match root.open_folder(folder).and_then(|folder| folder.list_entries(1)) {
            Ok(entries) if entries.is_empty() => drop(root.remove(folder)?),
            _ => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_of_changes_is_read() {
        let said = b":100644 000000 aa 00 D\0a b\0:000000 100755 00 bb A\0c\nd\0";
        let changes = parse_changes(said).unwrap();
        assert_eq!(changes[0].path, Path::new("a b"));
        assert_eq!((changes[0].new.clone(), changes[0].old.clone()), (None, Some(("100644".into(), "aa".into()))));
        assert_eq!(changes[1].path, Path::new("c\nd"));
        assert_eq!(changes[1].new, Some(("100755".into(), "bb".into())));
        assert_eq!(parse_changes(b""), Some(Vec::new()));
        assert_eq!(parse_changes(b"nonsense\0x\0"), None);
    }
}
