//! The files of a workspace: their signatures, and the changes between two scans.
//!
//! Owns which files of a workspace are recorded, and how much. Links, sockets and empty folders are not recorded, and
//! neither are files that git ignores, if git was asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::RecordingError;
use crate::workspace::{
    RootFolder,
    root::{EntryKind, FilePathError},
};

/// The maximum number of files that are scanned.
const FILES: usize = 100_000;
/// The maximum size of one file, and of all files that one attempt changed.
pub(super) const FILE_BYTES: u64 = 16 * 1024 * 1024;
const ALL_BYTES: u64 = 64 * 1024 * 1024;
/// The folder of git itself is never recorded.
const GIT: &str = ".git";

/// A change to a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedChange {
    pub path: String,
    pub what: RecordedChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedChangeKind {
    File,
    /// An executable file.
    Program,
    Removed,
}

/// Changes, with the contents of the files.
pub type RecordedFiles = Vec<(RecordedChange, Vec<u8>)>;

/// The signatures of files by path. A signature changes when its file changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileSignatures(BTreeMap<String, String>);
#[derive(Debug)]
pub struct WorkspaceScan<'a> {
    pub folder: &'a RootFolder,
    /// Excluded folders and files.
    pub without: Vec<PathBuf>,
    /// The files that git does not ignore. `None` if git was not asked.
    pub known: Option<BTreeSet<String>>,
    /// Files that are recorded even if git ignores them.
    pub also: Vec<String>,
}

impl WorkspaceScan<'_> {
    pub(crate) fn read_signatures(&self) -> Result<FileSignatures, RecordingError> {
        let mut signs = BTreeMap::new();
        match &self.known {
            Some(known) => {
                for name in known.iter().chain(&self.also) {
                    self.walk_files(name, &mut signs)?;
                }
            }
            None => self.walk_files("", &mut signs)?,
        }
        Ok(FileSignatures(signs))
    }

    /// Adds a file, or all files in a folder. Files that have disappeared meanwhile are skipped.
    fn walk_files(&self, name: &str, signs: &mut BTreeMap<String, String>) -> Result<(), RecordingError> {
        let mut open = vec![name.trim_end_matches('/').to_owned()];
        while let Some(name) = open.pop() {
            let path = self.folder.path().join(&name);
            if self.is_left_out(&path) {
                continue;
            }
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_file() {
                if signs.len() >= FILES {
                    return Err(RecordingError::TooManyFiles(FILES));
                }
                signs.insert(name, file_signature(&about));
            } else if about.is_dir() {
                let folder = if name.is_empty() { Ok(self.folder.clone()) } else { self.folder.open_folder(&name) };
                let Ok(entries) = folder.and_then(|folder| folder.list_entries(FILES)) else { continue };
                // A name that is not UTF-8 cannot be recorded.
                let names = entries.iter().filter_map(|entry| entry.name.to_str());
                let whole = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}/{inner}") };
                open.extend(names.map(whole));
            }
        }
        Ok(())
    }

    fn is_left_out(&self, path: &Path) -> bool {
        is_left_out(self.folder, path, &self.without)
    }

    /// Returns the changes, with the contents of the files.
    pub(crate) fn collect_changes(
        &self,
        before: &FileSignatures,
        now: &FileSignatures,
    ) -> Result<RecordedFiles, RecordingError> {
        let mut changes = Vec::new();
        for path in before.0.keys().filter(|path| !now.0.contains_key(*path)) {
            // A file that git has begun to ignore still exists.
            if self.folder.entry_kind(path).is_ok_and(|thing| thing.is_none()) {
                changes.push((RecordedChange { path: path.clone(), what: RecordedChangeKind::Removed }, Vec::new()));
            }
        }
        let changed = now.0.iter().filter(|(path, sign)| before.0.get(*path) != Some(sign));
        self.read_changed(changed.map(|(path, _)| path.as_str()), &mut changes)?;
        changes.sort();
        Ok(changes)
    }

    fn read_changed<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
        changes: &mut RecordedFiles,
    ) -> Result<(), RecordingError> {
        let mut all = 0;
        for path in paths {
            let about = fs::symlink_metadata(self.folder.path().join(path))?;
            if about.len() > FILE_BYTES {
                return Err(RecordingError::FileTooLarge { path: path.to_owned(), mib: FILE_BYTES >> 20 });
            }
            all += about.len();
            if all > ALL_BYTES {
                return Err(RecordingError::TooManyBytes { mib: ALL_BYTES >> 20 });
            }
            let bytes = self.folder.read_file(path, FILE_BYTES)?;
            let what = if about.mode() & 0o111 == 0 { RecordedChangeKind::File } else { RecordedChangeKind::Program };
            changes.push((RecordedChange { path: path.to_owned(), what }, bytes));
        }
        Ok(())
    }

    /// Returns all files of this scan.
    pub(crate) fn collect_all(&self) -> Result<RecordedFiles, RecordingError> {
        self.collect_changes(&FileSignatures::default(), &self.read_signatures()?)
    }
}

fn is_left_out(folder: &RootFolder, path: &Path, without: &[PathBuf]) -> bool {
    let own = path.strip_prefix(folder.path()).unwrap_or(path);
    own.components().any(|part| part.as_os_str() == GIT) || without.iter().any(|out| path.starts_with(out))
}

fn file_signature(about: &fs::Metadata) -> String {
    format!(
        "{} {}.{} {}.{} {} {:o}",
        about.len(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec(),
        about.ino(),
        about.mode()
    )
}

impl RecordedChange {
    /// True if the path is one that is never recorded. Such an entry was not written by a recording.
    pub(crate) fn is_foreign(&self, folder: &RootFolder, without: &[PathBuf]) -> bool {
        is_left_out(folder, &folder.path().join(&self.path), without)
    }

    /// Applies the change to another folder.
    pub fn apply(&self, folder: &RootFolder, bytes: &[u8]) -> Result<(), FilePathError> {
        if self.what == RecordedChangeKind::Removed {
            return folder.remove(&self.path).map(drop);
        }
        if let Some(parent) = Path::new(&self.path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
            folder.make_folders_unsynced(parent, false)?;
        }
        if matches!(folder.entry_kind(&self.path)?, Some(EntryKind::Folder)) {
            folder.remove(&self.path)?;
        }
        folder.replace_unsynced(&self.path, bytes, self.what == RecordedChangeKind::Program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(folder: &RootFolder) -> WorkspaceScan<'_> {
        WorkspaceScan { folder, without: vec![folder.path().join("out")], known: None, also: Vec::new() }
    }

    #[test]
    fn what_changed_is_found_and_can_be_done_elsewhere() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&from, &to] {
            fs::create_dir_all(dir.path().join("src")).unwrap();
            fs::write(dir.path().join("src/a"), "a").unwrap();
            fs::write(dir.path().join("gone"), "x").unwrap();
        }
        let (here, there) = (RootFolder::open(from.path()).unwrap(), RootFolder::open(to.path()).unwrap());
        let before = scan(&here).read_signatures().unwrap();
        fs::write(from.path().join("src/a"), "another").unwrap();
        fs::remove_file(from.path().join("gone")).unwrap();
        fs::create_dir_all(from.path().join("new/deep")).unwrap();
        fs::write(from.path().join("new/deep/run"), "#!").unwrap();
        let run = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(from.path().join("new/deep/run"), run).unwrap();
        for hidden in ["out", ".git"] {
            fs::create_dir_all(from.path().join(hidden)).unwrap();
            fs::write(from.path().join(hidden).join("x"), "").unwrap();
        }
        let now = scan(&here).read_signatures().unwrap();
        let changes = scan(&here).collect_changes(&before, &now).unwrap();
        let told: Vec<(&str, RecordedChangeKind)> = changes.iter().map(|(c, _)| (c.path.as_str(), c.what)).collect();
        assert_eq!(
            told,
            [
                ("gone", RecordedChangeKind::Removed),
                ("new/deep/run", RecordedChangeKind::Program),
                ("src/a", RecordedChangeKind::File)
            ]
        );
        for (change, bytes) in &changes {
            change.apply(&there, bytes).unwrap();
        }
        assert_eq!(fs::read_to_string(to.path().join("src/a")).unwrap(), "another");
        assert!(!to.path().join("gone").exists());
        let mode = fs::metadata(to.path().join("new/deep/run")).unwrap().mode();
        assert_eq!(mode & 0o111, 0o111);
    }

    #[test]
    fn too_much_is_refused_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RootFolder::open(dir.path()).unwrap();
        let large = fs::File::create(dir.path().join("large")).unwrap();
        large.set_len(FILE_BYTES + 1).unwrap();
        let told = scan(&folder).collect_all().unwrap_err();
        assert!(told.to_string().contains("`large` is larger than 16 MiB"), "{told}");
        large.set_len(1).unwrap();
        assert_eq!(scan(&folder).collect_all().unwrap().len(), 1);
    }
}
