//! Checks out a snapshot into a folder: file by file, each atomically, so that a repetition after a crash has the same
//! result.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    WorktreeError,
    snapshot::{SnapshotCommand, SnapshotRepo, SnapshotView},
};
use crate::workspace::{
    RootFolder, RunDir,
    root::{EntryKind, FilePathError},
};

/// A file in a snapshot: its mode and its object id.
pub(crate) type SnapshotEntry = Option<(String, String)>;

/// A file that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotChange {
    pub path: PathBuf,
    pub old: SnapshotEntry,
    pub new: SnapshotEntry,
}

/// The error of a checkout.
#[derive(Debug)]
pub(crate) enum CheckoutError {
    /// These files have neither their old nor their new content.
    Changed(Vec<PathBuf>),
    Failed(WorktreeError),
}

impl From<WorktreeError> for CheckoutError {
    fn from(error: WorktreeError) -> CheckoutError {
        CheckoutError::Failed(error)
    }
}

impl From<FilePathError> for CheckoutError {
    fn from(error: FilePathError) -> CheckoutError {
        CheckoutError::Failed(error.into())
    }
}

/// A folder for checkouts, and the run whose folder stages the files.
pub(crate) struct SnapshotCheckout<'a> {
    pub shadow: &'a SnapshotRepo<'a>,
    pub run: &'a RunDir,
    pub view: &'a SnapshotView,
}

impl SnapshotRepo<'_> {
    pub fn list_changes(&self, from: &str, to: &str) -> Result<Vec<SnapshotChange>, WorktreeError> {
        let arguments = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to];
        let call = SnapshotCommand {
            name: "changes",
            arguments: arguments.iter().map(OsString::from).collect(),
            files: self.top.path(),
            index: "none",
            stdin: Vec::new(),
        };
        parse_changes(&self.run(call)?.into_stdout()?)
            .ok_or(WorktreeError::UnexpectedOutput("list of changes cannot be parsed"))
    }
}

/// Parses `:mode mode id id letter` and the path, each NUL-terminated.
fn parse_changes(said: &[u8]) -> Option<Vec<SnapshotChange>> {
    let mut parts = said.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let Some(line) = parts.next().filter(|line| !line.is_empty()) {
        let line = std::str::from_utf8(line).ok()?.strip_prefix(':')?;
        let [old_mode, new_mode, old, new, _] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let blob = |mode: &str, id: &str| (mode != "000000").then(|| (mode.to_owned(), id.to_owned()));
        let path = PathBuf::from(OsStr::from_bytes(parts.next()?));
        changes.push(SnapshotChange { path, old: blob(old_mode, old), new: blob(new_mode, new) });
    }
    Some(changes)
}

impl SnapshotCheckout<'_> {
    /// Applies the difference of two snapshots to the files. Any of them may already have the new content.
    pub fn apply_changes(&self, from: &str, to: &str) -> Result<(), CheckoutError> {
        let meant: BTreeMap<PathBuf, SnapshotEntry> =
            self.shadow.list_changes(from, to)?.into_iter().map(|change| (change.path, change.old)).collect();
        if meant.is_empty() {
            return Ok(());
        }
        let now = self.shadow.take_snapshot(self.view)?.tree;
        let mut left = self.shadow.list_changes(&now, to)?;
        left.retain(|change| meant.contains_key(&change.path));
        let others = left.iter().filter(|change| meant.get(&change.path) != Some(&change.old));
        let others: Vec<PathBuf> = others.map(|change| change.path.clone()).collect();
        if !others.is_empty() {
            return Err(CheckoutError::Changed(others));
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
        self.shadow.remove_stale_lock(index);
        let _ = fs::remove_file(self.shadow.git_folder().join(index));
        let mut stdin = Vec::new();
        for change in changes {
            if let Some((mode, id)) = &change.new {
                stdin.extend_from_slice(format!("{mode} {id}\t").as_bytes());
                stdin.extend_from_slice(change.path.as_os_str().as_bytes());
                stdin.push(0);
            }
        }
        let ask = |name, arguments: Vec<OsString>, stdin| {
            let files = self.view.root.path();
            self.shadow.run(SnapshotCommand { name, arguments, files, index, stdin })?.into_stdout()
        };
        ask("put", ["update-index", "-z", "--index-info"].map(OsString::from).into(), stdin)?;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(staged.path());
        prefix.push("/");
        ask("lay-out", vec!["checkout-index".into(), "--all".into(), "--force".into(), prefix], Vec::new()).map(drop)
    }
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
