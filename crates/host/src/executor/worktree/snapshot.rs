//! Snapshots of a workspace, in a git folder of the engine for each folder of a run.
//!
//! Owns the isolation from the user's repository: neither its configuration nor its git folder is used, so nothing in
//! it and no file in a workspace makes git run a program. Files are stored byte by byte: no filter, no change of line
//! endings. The objects of the repository are borrowed, so that committed content is not stored twice. A snapshot has all
//! files that git would list; nested repositories and ignored files are not part of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::{limits, time::Millis};

use super::{
    WorktreeError,
    git::{GitCommand, GitOutput, GitRunner, split_names, user_config_folder},
    parse_object_id, path_from_bytes,
};
use crate::{
    process::{OutputFilterFactory, ProcessMark},
    workspace::{RootFolder, RunDir},
};

const ORIGIN: &str = "origin.json";
const GIT: &str = "git";
/// The folder for git's output while it is read.
const OUTPUT: &str = "said";
/// Overrides all attributes that a workspace sets for its files.
const ATTRIBUTES: &str = "* -text !eol -ident -filter !working-tree-encoding !diff !merge\n";
const CONFIG: &str = "[core]\n\tquotePath = false\n\tautocrlf = false\n\tattributesFile = /dev/null\n\tfsyncMethod = batch\n\
    \tlooseCompression = 1\n\tlogAllRefUpdates = false\n[gc]\n\tauto = 0\n[merge]\n\tdirectoryRenames = false\n\
    [diff]\n\tignoreSubmodules = all\n[submodule]\n\trecurse = false\n";

pub(crate) struct SnapshotRepo<'a> {
    root: RootFolder,
    /// The folder with all files of the workspace: the top of the repository, or the workspace itself.
    pub top: RootFolder,
    pub origin: Option<OriginRepository>,
    pub mark: &'a ProcessMark,
    pub filter: Option<OutputFilterFactory>,
}

/// One git command, with a folder of files and an index.
pub(crate) struct SnapshotCommand<'a> {
    pub name: &'a str,
    pub arguments: Vec<OsString>,
    pub files: &'a Path,
    pub index: &'a str,
    pub stdin: Vec<u8>,
}

impl<'a> SnapshotRepo<'a> {
    /// Opens the repository of a folder, and creates it if necessary. The paths in `without` are excluded.
    pub(crate) fn open(
        run: &RunDir,
        folder: &RootFolder,
        mark: &'a ProcessMark,
        without: &[PathBuf],
    ) -> Result<SnapshotRepo<'a>, WorktreeError> {
        let name = blake3::hash(folder.path().as_os_str().as_bytes()).to_hex();
        let name = &name.as_str()[..16];
        let found = run.find_snapshot_repo(name)?;
        let root = match found {
            Some(root) => root,
            None => create_repo(run, name, folder, mark, without)?,
        };
        let bytes = root.read_file(ORIGIN, limits::DECISION_BYTES)?;
        let origin: Option<OriginRepository> = serde_json::from_slice(&bytes)
            .map_err(|error| WorktreeError::Note { note: "the note about its origin", error })?;
        let top = match &origin {
            Some(origin) => RootFolder::open(&origin.top)?,
            None => folder.clone(),
        };
        Ok(SnapshotRepo { root, top, origin, mark, filter: None })
    }

    /// Git in the user's repository itself, used only to list names.
    pub(crate) fn origin_git<'b>(&'b self, kept: &'b RootFolder) -> GitRunner<'b> {
        GitRunner::new(self.top.path(), kept, self.mark)
    }

    /// The folder that contains the git folder and the notes.
    pub(crate) fn root(&self) -> &RootFolder {
        &self.root
    }

    pub(crate) fn output_folder(&self) -> Result<RootFolder, WorktreeError> {
        Ok(self.root.make_folders_unsynced(OUTPUT, true)?)
    }

    pub(crate) fn git_folder(&self) -> PathBuf {
        self.root.path().join(GIT)
    }

    pub(crate) fn run(&self, call: SnapshotCommand<'_>) -> Result<GitOutput, WorktreeError> {
        self.run_limited(call, None)
    }

    /// Runs a command on some files with an index of its own, and returns its output.
    pub(crate) fn run_with_index(
        &self,
        (files, index): (&Path, &str),
        name: &str,
        arguments: &[impl AsRef<OsStr>],
        stdin: Vec<u8>,
    ) -> Result<Vec<u8>, WorktreeError> {
        let arguments = arguments.iter().map(OsString::from).collect();
        self.run(SnapshotCommand { name, arguments, files, index, stdin })?.into_stdout()
    }

    /// Runs a command. With `most`, the output is limited and redacted.
    pub(crate) fn run_limited(&self, call: SnapshotCommand<'_>, most: Option<u64>) -> Result<GitOutput, WorktreeError> {
        let kept = self.output_folder()?;
        GitRunner::new(call.files, &kept, self.mark).run(GitCommand {
            settings: self.git_variables(call.files, call.index),
            stdin: call.stdin,
            limit: Millis(limits::SNAPSHOT),
            most,
            filter: self.filter.clone().filter(|_| most.is_some()),
            ..GitCommand::new(call.name, &call.arguments)
        })
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
    pub(crate) fn remove_stale_lock(&self, index: &str) {
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
) -> Result<RootFolder, WorktreeError> {
    let pending = run.begin_snapshot_repo(name)?;
    let git = GitRunner::new(folder.path(), &pending, mark);
    let origin = match is_repository(folder.path()) {
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
    let settings = vec![("GIT_CONFIG_GLOBAL".into(), "/dev/null".into())];
    git.run(GitCommand { settings, ..GitCommand::new("init", &arguments) })?.into_stdout()?;
    let io = |error| WorktreeError::File { path: place.clone(), error };
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
    pending.replace_file(ORIGIN, &note)?;
    Ok(run.finish_snapshot_repo(name)?)
}

fn is_no_repository_error(why: &WorktreeError) -> bool {
    why.to_string().contains("not a git repository")
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

pub(crate) fn path_line(path: &Path) -> Vec<u8> {
    [path.as_os_str().as_bytes(), b"\n"].concat()
}

/// The mode of a nested repository in a list of files.
const LINK: &[u8] = b"160000";

/// The files of a snapshot, and the rules for choosing them.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotView {
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
pub(crate) enum SnapshotRules {
    /// A repository of the user: tracked files, and new files that are not ignored.
    Repository,
    /// A worktree of the engine: the same, with the engine's index of it.
    Tree,
    /// No repository: all files, up to a limit.
    Plain,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceSnapshot {
    pub tree: String,
    /// The number of files that were too large.
    pub left_out: usize,
}

impl SnapshotRepo<'_> {
    pub(crate) fn take_snapshot(&self, view: &SnapshotView) -> Result<WorkspaceSnapshot, WorktreeError> {
        self.remove_stale_lock(&view.index);
        let listed = self.list_names(view)?;
        let (there, gone, left_out) = partition_paths(view, listed)?;
        if !gone.is_empty() {
            self.update_index(view, &["--force-remove"], &gone)?;
        }
        self.update_index(view, &["--add", "--remove", "--replace"], &there)?;
        let output = self.run(self.view_command(view, "write-tree", &["write-tree"]))?;
        Ok(WorkspaceSnapshot { tree: parse_object_id(&output.into_stdout()?)?, left_out })
    }

    pub(crate) fn view_command<'b>(
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
    fn list_names(&self, view: &SnapshotView) -> Result<BTreeSet<Vec<u8>>, WorktreeError> {
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
        let mut listed: BTreeSet<Vec<u8>> = split_names(&self.run(call)?.into_stdout()?).map(<[u8]>::to_vec).collect();
        if view.rules == SnapshotRules::Repository {
            let mut arguments = vec![OsString::from("ls-files"), "-z".into(), "--stage".into()];
            arguments.extend(prefix_arguments(&view.prefix));
            let kept = self.output_folder()?;
            let settings = vec![("GIT_LITERAL_PATHSPECS".into(), "1".into())];
            let command = GitCommand { settings, ..GitCommand::new("tracked", &arguments) };
            let output = self.origin_git(&kept).run(command)?.into_stdout()?;
            listed.extend(split_names(&output).filter_map(parse_tracked_path));
        }
        Ok(listed)
    }

    fn update_index(&self, view: &SnapshotView, how: &[&str], paths: &[Vec<u8>]) -> Result<(), WorktreeError> {
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
fn partition_paths(view: &SnapshotView, listed: BTreeSet<Vec<u8>>) -> Result<PathPartition, WorktreeError> {
    let (mut there, mut gone, mut left_out) = (Vec::new(), Vec::new(), 0);
    let mut folders: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let mut bytes = 0u64;
    // A name with a slash at its end is a nested repository.
    for path in listed.into_iter().filter(|path| !path.ends_with(b"/")) {
        let name = Path::new(OsStr::from_bytes(&path));
        let parent = name.parent().unwrap_or(Path::new("")).to_owned();
        // Files behind a link are not included.
        let real = *folders
            .entry(parent)
            .or_insert_with_key(|parent| parent.as_os_str().is_empty() || view.root.open_folder(parent).is_ok());
        let file = real.then(|| fs::symlink_metadata(view.root.path().join(name)).ok()).flatten();
        match file.filter(|file| file.is_file() || file.is_symlink()) {
            Some(file) if view.largest.is_some_and(|most| file.len() > most) => {
                left_out += 1;
                gone.push(path);
            }
            Some(file) => {
                bytes = bytes.saturating_add(file.len());
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
fn check_size(view: &SnapshotView, files: usize, bytes: u64) -> Result<(), WorktreeError> {
    let folder = || view.root.path().to_owned();
    if files > limits::SNAPSHOT_FILES {
        return Err(WorktreeError::TooManyFiles { folder: folder(), files, most: limits::SNAPSHOT_FILES });
    }
    if bytes > limits::SNAPSHOT_BYTES {
        return Err(WorktreeError::TooManyBytes { folder: folder(), bytes, most: limits::SNAPSHOT_BYTES });
    }
    Ok(())
}

/// The user's repository. Only its objects and lists of names are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OriginRepository {
    /// The top-level folder of its files.
    pub top: PathBuf,
    pub objects: PathBuf,
    /// The file with its ignore rules that are not in the worktree.
    pub exclude: PathBuf,
    pub excludes_file: Option<PathBuf>,
    /// The file with the boundary of a shallow history.
    pub shallow: PathBuf,
    pub format: String,
    /// The author that its configuration names.
    pub author: Vec<(String, String)>,
}

/// True if a folder looks like part of a repository. Git has the final word; this only saves calls.
pub fn is_repository(folder: &Path) -> bool {
    folder.ancestors().map(|folder| folder.join(".git")).any(|git| git.is_file() || git.join("HEAD").exists())
}

impl OriginRepository {
    pub(crate) fn from_git(git: GitRunner<'_>) -> Result<OriginRepository, WorktreeError> {
        let places = ["objects", "info/exclude", "shallow"].into_iter().flat_map(|place| ["--git-path", place]);
        let mut arguments = vec!["rev-parse", "--path-format=absolute", "--show-object-format", "--show-toplevel"];
        arguments.extend(places);
        let output = git.run(GitCommand::new("git-origin", &arguments))?.into_stdout()?;
        let lines: Vec<&[u8]> = output.strip_suffix(b"\n").unwrap_or(&output).split(|b| *b == b'\n').collect();
        let [format, top, objects, exclude, shallow] = lines[..] else {
            return Err(WorktreeError::UnexpectedOutput("list of repository folders cannot be parsed"));
        };
        Ok(OriginRepository {
            top: path_from_bytes(top),
            objects: path_from_bytes(objects),
            exclude: path_from_bytes(exclude),
            excludes_file: read_setting(git, "core.excludesFile")?.map(PathBuf::from).or_else(default_excludes),
            shallow: path_from_bytes(shallow),
            format: String::from_utf8_lossy(format).into_owned(),
            author: read_author(git)?,
        })
    }
}

/// The commit that is checked out. `None` if there is none yet.
pub(crate) fn read_head(git: GitRunner<'_>) -> Result<Option<String>, WorktreeError> {
    let output = git.run(GitCommand::new("git-head", &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]))?;
    output.into_found()?.map(|out| parse_object_id(&out)).transpose()
}

fn read_author(git: GitRunner<'_>) -> Result<Vec<(String, String)>, WorktreeError> {
    let mut author = Vec::new();
    for name in ["user.name", "user.email"] {
        author.extend(read_setting(git, name)?.map(|value| (name.to_owned(), value)));
    }
    Ok(author)
}

/// The default file of the user's global ignore rules, if no file is configured.
fn default_excludes() -> Option<PathBuf> {
    Some(user_config_folder()?.join("git/ignore")).filter(|file| file.is_file())
}

fn read_setting(git: GitRunner<'_>, name: &str) -> Result<Option<String>, WorktreeError> {
    let command = GitCommand::new("git-setting", &["config", "--type=path", "--get", name]);
    let found = git.run(GitCommand { reads_person: true, ..command })?.into_found()?;
    Ok(found.map(|out| String::from_utf8_lossy(&out).trim_end_matches('\n').to_owned()))
}
