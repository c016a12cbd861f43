//! The engine's own git folder for one folder of a run: the store of its workspace snapshots.
//!
//! Owns the isolation from the user's repository: neither its configuration nor its git folder is used, so nothing in
//! it and no file in a workspace makes git run a program. Files are stored byte by byte: no filter, no change of line
//! endings. The objects of the repository are borrowed, so that committed content is not stored twice.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use skein_core::{limits, time::Millis};

use super::origin_repository::{self, OriginRepository};
use crate::{
    executor::git::{GitCommand, GitOutput, GitRunner},
    process::{OutputFilterFactory, ProcessMark},
    workspace::{RootFolder, RunDir},
};

const ORIGIN: &str = "origin.json";
const GIT: &str = "git";
/// The folder for git's output while it is read.
const SAID: &str = "said";
/// Overrides all attributes that a workspace sets for its files.
const ATTRIBUTES: &str = "* -text !eol -ident -filter !working-tree-encoding !diff !merge\n";
const CONFIG: &str = "[core]\n\tquotePath = false\n\tautocrlf = false\n\tattributesFile = /dev/null\n\tfsyncMethod = batch\n\
    \tlooseCompression = 1\n\tlogAllRefUpdates = false\n[gc]\n\tauto = 0\n[merge]\n\tdirectoryRenames = false\n\
    [diff]\n\tignoreSubmodules = all\n[submodule]\n\trecurse = false\n";

pub(super) struct SnapshotRepo<'a> {
    root: RootFolder,
    /// The folder with all files of the workspace: the top of the repository, or the workspace itself.
    pub top: RootFolder,
    pub origin: Option<OriginRepository>,
    pub mark: &'a ProcessMark,
    pub filter: Option<OutputFilterFactory>,
}

/// One git command, with a folder of files and an index.
pub(super) struct SnapshotCommand<'a> {
    pub name: &'a str,
    pub arguments: Vec<OsString>,
    pub files: &'a Path,
    pub index: &'a str,
    pub stdin: Vec<u8>,
}

impl<'a> SnapshotRepo<'a> {
    /// Opens the repository of a folder, and creates it if necessary. The paths in `without` are excluded.
    pub fn open(
        run: &RunDir,
        folder: &RootFolder,
        mark: &'a ProcessMark,
        without: &[PathBuf],
    ) -> Result<SnapshotRepo<'a>, String> {
        let name = blake3::hash(folder.path().as_os_str().as_bytes()).to_hex();
        let name = &name.as_str()[..16];
        let said = |error: crate::workspace::root::FilePathError| error.to_string();
        let found = run.find_snapshot_repo(name).map_err(said)?;
        let root = match found {
            Some(root) => root,
            None => create_repo(run, name, folder, mark, without)?,
        };
        let bytes = root.read_file(ORIGIN, limits::DECISION_BYTES).map_err(said)?;
        let origin: Option<OriginRepository> = serde_json::from_slice(&bytes)
            .map_err(|error| format!("the note about its origin cannot be read: {error}"))?;
        let top = match &origin {
            Some(origin) => RootFolder::open(&origin.top).map_err(said)?,
            None => folder.clone(),
        };
        Ok(SnapshotRepo { root, top, origin, mark, filter: None })
    }

    /// Git in the user's repository itself, used only to list names.
    pub fn origin_git<'b>(&'b self, said: &'b RootFolder) -> GitRunner<'b> {
        GitRunner::new(self.top.path(), said, self.mark)
    }

    /// The folder that contains the git folder and the notes.
    pub fn root(&self) -> &RootFolder {
        &self.root
    }

    pub fn output_folder(&self) -> Result<RootFolder, String> {
        self.root.make_folders_unsynced(SAID, true).map_err(|error| error.to_string())
    }

    pub fn git_folder(&self) -> PathBuf {
        self.root.path().join(GIT)
    }

    pub fn run(&self, call: SnapshotCommand<'_>) -> Result<GitOutput, String> {
        self.run_limited(call, None)
    }

    /// Runs a command. With `most`, the output is limited and redacted.
    pub fn run_limited(&self, call: SnapshotCommand<'_>, most: Option<u64>) -> Result<GitOutput, String> {
        let said = self.output_folder()?;
        let git = GitRunner::new(call.files, &said, self.mark);
        let mut question = GitCommand::new(call.name, &call.arguments);
        question.settings = self.git_variables(call.files, call.index);
        question.stdin = call.stdin;
        question.limit = Millis(limits::SNAPSHOT);
        question.most = most;
        question.filter = self.filter.clone().filter(|_| most.is_some());
        git.run(question)
    }

    fn git_variables(&self, files: &Path, index: &str) -> Vec<(OsString, OsString)> {
        let git = self.git_folder();
        let mut settings: Vec<(OsString, OsString)> = vec![
            ("GIT_CONFIG_GLOBAL".into(), "/dev/null".into()),
            ("GIT_ATTR_NOSYSTEM".into(), "1".into()),
            ("GIT_LITERAL_PATHSPECS".into(), "1".into()),
            ("GIT_INDEX_FILE".into(), git.join(index).into()),
            ("GIT_DIR".into(), git.into()),
            ("GIT_WORK_TREE".into(), files.into()),
        ];
        for who in ["AUTHOR", "COMMITTER"] {
            settings.push((format!("GIT_{who}_NAME").into(), "skein".into()));
            settings.push((format!("GIT_{who}_EMAIL").into(), "skein@localhost".into()));
        }
        if let Some(file) = self.origin.as_ref().and_then(|origin| origin.excludes_file.as_ref()) {
            settings.push(("GIT_CONFIG_COUNT".into(), "1".into()));
            settings.push(("GIT_CONFIG_KEY_0".into(), "core.excludesFile".into()));
            settings.push(("GIT_CONFIG_VALUE_0".into(), file.into()));
        }
        settings
    }

    /// Removes the lock that a killed git left. Only one command runs at a time.
    pub fn remove_stale_lock(&self, index: &str) {
        let _ = fs::remove_file(self.git_folder().join(format!("{index}.lock")));
    }
}

/// Creates the repository atomically.
fn create_repo(
    run: &RunDir,
    name: &str,
    folder: &RootFolder,
    mark: &ProcessMark,
    without: &[PathBuf],
) -> Result<RootFolder, String> {
    let said = |error: crate::workspace::root::FilePathError| error.to_string();
    let pending = run.begin_snapshot_repo(name).map_err(said)?;
    let git = GitRunner::new(folder.path(), &pending, mark);
    let origin = match origin_repository::looks_like_repository(folder.path()) {
        true => OriginRepository::from_git(git)
            .map(Some)
            .or_else(|why| is_no_repository_error(&why).then_some(None).ok_or(why))?,
        false => None,
    };
    let format = origin.as_ref().map_or("sha1", |origin| &origin.format);
    let place = pending.path().join(GIT);
    let arguments = [
        "init".into(),
        "--quiet".into(),
        "--bare".into(),
        "--template=".into(),
        OsString::from(format!("--object-format={format}")),
        place.clone().into_os_string(),
    ];
    let mut question = GitCommand::new("init", &arguments);
    question.settings = vec![("GIT_CONFIG_GLOBAL".into(), "/dev/null".into())];
    git.run(question)?.into_stdout()?;
    let io = |error: std::io::Error| format!("{}: {error}", place.display());
    fs::create_dir_all(place.join("info")).map_err(io)?;
    fs::create_dir_all(place.join("objects/info")).map_err(io)?;
    fs::write(place.join("info/attributes"), ATTRIBUTES).map_err(io)?;
    fs::write(place.join("info/exclude"), exclude_patterns(origin.as_ref(), folder, without)).map_err(io)?;
    let config = fs::read_to_string(place.join("config")).map_err(io)?;
    fs::write(place.join("config"), config + CONFIG).map_err(io)?;
    if let Some(origin) = &origin {
        fs::write(place.join("objects/info/alternates"), path_line(&origin.objects)).map_err(io)?;
    }
    let note = serde_json::to_vec(&origin).expect("it is plain data");
    pending.replace_file(ORIGIN, &note).map_err(said)?;
    run.finish_snapshot_repo(name).map_err(said)
}

fn is_no_repository_error(why: &str) -> bool {
    why.contains("not a git repository")
}

/// The repository's own ignore rules, and the paths that are never part of a workspace.
fn exclude_patterns(origin: Option<&OriginRepository>, folder: &RootFolder, without: &[PathBuf]) -> Vec<u8> {
    let mut text = origin.and_then(|origin| fs::read(&origin.exclude).ok()).unwrap_or_default();
    let top = origin.map_or(folder.path(), |origin| &origin.top);
    for path in without.iter().filter_map(|path| path.strip_prefix(top).ok()) {
        if !path.as_os_str().is_empty() {
            text.extend_from_slice(b"\n/");
            text.extend(path.as_os_str().as_bytes().iter().flat_map(|byte| escape_pattern(*byte)));
            text.push(b'\n');
        }
    }
    text
}

/// Escapes a byte for a pattern, so that it matches only itself.
fn escape_pattern(byte: u8) -> impl Iterator<Item = u8> {
    let special = matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'!' | b'#' | b' ');
    special.then_some(b'\\').into_iter().chain([byte])
}

pub(super) fn path_line(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), b"\n"].concat()
}
