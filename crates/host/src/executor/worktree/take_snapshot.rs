//! Takes a snapshot of a folder: all files that git would list, byte by byte.
//!
//! Owns the choice of files in a snapshot. Nested repositories and ignored files are not part of it. The index of the
//! workspace is not touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use skein_core::limits;

use super::{
    parse_object_id,
    snapshot_repo::{SnapshotCommand, SnapshotRepo},
};
use crate::{
    executor::git::{GitCommand, split_names},
    workspace::RootFolder,
};

/// The mode of a nested repository in a list of files.
const LINK: &[u8] = b"160000";

/// The files of a snapshot, and the rules for choosing them.
#[derive(Debug, Clone)]
pub(super) struct SnapshotView {
    /// The folder to which names are relative.
    pub root: RootFolder,
    /// The part of it that is included; empty for all.
    pub prefix: PathBuf,
    pub index: String,
    pub rules: SnapshotRules,
    /// The maximum size of a file. Larger files are skipped.
    pub largest: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotRules {
    /// A repository of the user: tracked files, and new files that are not ignored.
    Repository,
    /// A worktree of the engine: the same, with the engine's index of it.
    Tree,
    /// No repository: all files, up to a limit.
    Plain,
}

/// A snapshot of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkspaceSnapshot {
    pub tree: String,
    /// The number of files that were too large.
    pub left_out: usize,
}

impl SnapshotRepo<'_> {
    pub fn take_snapshot(&self, view: &SnapshotView) -> Result<WorkspaceSnapshot, String> {
        self.remove_stale_lock(&view.index);
        let listed = self.list_names(view)?;
        let (there, gone, left_out) = partition_paths(view, listed)?;
        if !gone.is_empty() {
            self.update_index(view, &["--force-remove"], &gone)?;
        }
        self.update_index(view, &["--add", "--remove", "--replace"], &there)?;
        let said = self.run(self.view_command(view, "write-tree", &["write-tree"]))?;
        Ok(WorkspaceSnapshot { tree: parse_object_id(&said.into_stdout()?)?, left_out })
    }

    pub fn view_command<'b>(
        &self,
        view: &'b SnapshotView,
        name: &'b str,
        arguments: &[&str],
    ) -> SnapshotCommand<'b> {
        SnapshotCommand {
            name,
            arguments: arguments.iter().map(OsString::from).collect(),
            files: view.root.path(),
            index: &view.index,
            stdin: Vec::new(),
        }
    }

    /// All names that may belong to the snapshot.
    fn list_names(&self, view: &SnapshotView) -> Result<BTreeSet<Vec<u8>>, String> {
        let mut call = self.view_command(view, "list", &["ls-files", "-z", "--cached", "--others"]);
        let rules = match view.rules {
            SnapshotRules::Repository | SnapshotRules::Tree => OsString::from("--exclude-standard"),
            SnapshotRules::Plain => {
                let mut file = OsString::from("--exclude-from=");
                file.push(self.git_folder().join("info/exclude"));
                file
            }
        };
        call.arguments.push(rules);
        call.arguments.extend(prefix_arguments(&view.prefix));
        let mut listed: BTreeSet<Vec<u8>> =
            split_names(&self.run(call)?.into_stdout()?).map(<[u8]>::to_vec).collect();
        if view.rules == SnapshotRules::Repository {
            let mut arguments = vec![OsString::from("ls-files"), "-z".into(), "--stage".into()];
            arguments.extend(prefix_arguments(&view.prefix));
            let kept = self.output_folder()?;
            let mut question = GitCommand::new("tracked", &arguments);
            question.settings = vec![("GIT_LITERAL_PATHSPECS".into(), "1".into())];
            let said = self.origin_git(&kept).run(question)?.into_stdout()?;
            listed.extend(split_names(&said).filter_map(parse_tracked_path));
        }
        Ok(listed)
    }

    fn update_index(&self, view: &SnapshotView, how: &[&str], paths: &[Vec<u8>]) -> Result<(), String> {
        let mut call = self.view_command(view, "update", &["update-index"]);
        call.arguments.extend(how.iter().map(OsString::from));
        call.arguments.extend(["-z".into(), "--stdin".into()]);
        call.stdin = paths.iter().flat_map(|path| path.iter().copied().chain([0])).collect();
        self.run(call)?.into_stdout().map(drop)
    }
}

fn prefix_arguments(prefix: &Path) -> Vec<OsString> {
    match prefix.as_os_str().is_empty() {
        true => Vec::new(),
        false => vec!["--".into(), prefix.into()],
    }
}

/// The path in `mode id stage⇥path`, unless it is a nested repository.
fn parse_tracked_path(line: &[u8]) -> Option<Vec<u8>> {
    let at = line.iter().position(|byte| *byte == b'\t')?;
    (!line.starts_with(LINK)).then(|| line[at + 1..].to_vec())
}

type PathPartition = (Vec<Vec<u8>>, Vec<Vec<u8>>, usize);

/// Partitions the names: existing files and links, missing ones, and the number of those that are too large.
fn partition_paths(view: &SnapshotView, listed: BTreeSet<Vec<u8>>) -> Result<PathPartition, String> {
    let (mut there, mut gone, mut left_out) = (Vec::new(), Vec::new(), 0);
    let mut folders: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let mut bytes = 0u64;
    // A name with a slash at its end is a nested repository.
    for path in listed.into_iter().filter(|path| !path.ends_with(b"/")) {
        let name = Path::new(OsStr::from_bytes(&path));
        let parent = name.parent().unwrap_or(Path::new("")).to_owned();
        // Files behind a link are not included.
        let real = *folders.entry(parent).or_insert_with_key(|parent| {
            parent.as_os_str().is_empty() || view.root.open_folder(parent).is_ok()
        });
        let about = real.then(|| fs::symlink_metadata(view.root.path().join(name)).ok()).flatten();
        let about = about.filter(|about| about.is_file() || about.is_symlink());
        match about {
            Some(about) if view.largest.is_some_and(|most| about.len() > most) => {
                left_out += 1;
                gone.push(path);
            }
            Some(about) => {
                bytes = bytes.saturating_add(about.len());
                there.push(path);
            }
            None => gone.push(path),
        }
    }
    if view.rules == SnapshotRules::Plain {
        check_size(view, there.len(), bytes)?;
    }
    Ok((there, gone, left_out))
}

/// Checks the size of a folder without a repository, which is copied as a whole.
fn check_size(view: &SnapshotView, files: usize, bytes: u64) -> Result<(), String> {
    let folder = view.root.path().display();
    if files > limits::SNAPSHOT_FILES {
        let most = limits::SNAPSHOT_FILES;
        return Err(format!(
            "{folder} has {files} files; snapshots of a folder without a git repository are limited to {most}"
        ));
    }
    if bytes > limits::SNAPSHOT_BYTES {
        let most = limits::SNAPSHOT_BYTES;
        return Err(format!(
            "the files of {folder} have {bytes} bytes; snapshots of a folder without a git repository are limited to {most}"
        ));
    }
    Ok(())
}
