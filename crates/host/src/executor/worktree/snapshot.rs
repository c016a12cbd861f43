//! Snapshots of a workspace, in a git folder of the engine for each folder of a run.
//!
//! Owns the isolation from the user's repository: neither its configuration nor its git folder is used, so nothing in
//! it and no file in a workspace makes git run a program. Files are stored byte by byte: no filter, no change of line
//! endings. The objects of the repository are borrowed, so that committed content is not stored twice. A snapshot has all
//! files that git would list; nested repositories and ignored files are not part of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::{
        fd::AsFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Path, PathBuf},
    sync::PoisonError,
};

use serde::{Deserialize, Serialize};
use skein_core::{limits, time::Millis};

use super::{
    WorkspaceRegistry, WorktreeError,
    file_index::{FileIndex, ObjectId, ObjectStore, ScanError, ScanSettings, ScannedTree},
    git::{GitCommand, GitOutput, GitRunner, split_names},
};
use crate::{
    executor::attempt::AttemptContext,
    process::{OutputFilterFactory, ProcessMark},
    workspace::{RootFolder, RunDir},
};

const ORIGIN: &str = "origin.json";
const GIT: &str = "git";
/// The folder of the state folder with a folder for each workspace.
const STORES: &str = "workspaces";
const OBJECTS: &str = "objects";
const OBJECTS_INFO: &str = "objects/info";
/// The file with the tracked files that a rule ignores, and the stamp of the list from which they come.
const TRACKED: &str = "tracked";
/// The largest stored index that is read.
const INDEX_BYTES: u64 = 1024 * 1024 * 1024;
/// The folder for git's output while it is read.
const SAID: &str = "said";
/// Overrides all attributes that a workspace sets for its files.
const ATTRIBUTES: &str = "* -text !eol -ident -filter !working-tree-encoding !diff !merge\n";
const CONFIG: &str = "[core]\n\tquotePath = false\n\tautocrlf = false\n\tattributesFile = /dev/null\n\tfsyncMethod = batch\n\
    \tlooseCompression = 1\n\tlogAllRefUpdates = false\n[gc]\n\tauto = 0\n[merge]\n\tdirectoryRenames = false\n\
    [diff]\n\tignoreSubmodules = all\n[submodule]\n\trecurse = false\n";

pub(crate) struct SnapshotRepo<'a> {
    root: RootFolder,
    /// The folder that all runs in the workspace share: the objects of their snapshots, and the indexes of its files.
    store: RootFolder,
    /// The folder with all files of the workspace: the top of the repository, or the workspace itself.
    pub top: RootFolder,
    pub origin: Option<OriginRepository>,
    pub mark: &'a ProcessMark,
    pub filter: Option<OutputFilterFactory>,
    indexes: &'a WorkspaceRegistry,
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
        attempt: &'a AttemptContext,
        folder: &RootFolder,
        without: &[PathBuf],
    ) -> Result<SnapshotRepo<'a>, WorktreeError> {
        let AttemptContext { shared, run, mark, .. } = attempt;
        let name = blake3::hash(folder.path().as_os_str().as_bytes()).to_hex();
        let name = &name.as_str()[..16];
        let root = match run.find_snapshot_repo(name)? {
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
        let store = open_store(&shared.state, name, origin.as_ref())?;
        Ok(SnapshotRepo { root, store, top, origin, mark, filter: None, indexes: &shared.trees })
    }

    /// Git in the user's repository itself, used only to list names.
    pub(crate) fn origin_git<'b>(&'b self, said: &'b RootFolder) -> GitRunner<'b> {
        GitRunner::new(self.top.path(), said, self.mark)
    }

    /// The folder that contains the git folder and the notes.
    pub(crate) fn root(&self) -> &RootFolder {
        &self.root
    }

    pub(crate) fn output_folder(&self) -> Result<RootFolder, WorktreeError> {
        Ok(self.root.make_folders_unsynced(SAID, true)?)
    }

    pub(crate) fn git_folder(&self) -> PathBuf {
        self.root.path().join(GIT)
    }

    /// The folder of the objects of all snapshots.
    pub(crate) fn objects_folder(&self) -> PathBuf {
        self.store.path().join(OBJECTS)
    }

    /// Makes the objects of snapshots durable, before a durable note names them.
    pub(crate) fn sync_objects(&self) -> Result<(), WorktreeError> {
        Ok(self.store.sync_all()?)
    }

    pub(crate) fn run(&self, call: SnapshotCommand<'_>) -> Result<GitOutput, WorktreeError> {
        self.run_limited(call, None)
    }

    /// Runs a command. With `most`, the output is limited and redacted.
    pub(crate) fn run_limited(&self, call: SnapshotCommand<'_>, most: Option<u64>) -> Result<GitOutput, WorktreeError> {
        let said = self.output_folder()?;
        let git = GitRunner::new(call.files, &said, self.mark);
        let mut question = GitCommand::new(call.name, &call.arguments);
        question.settings = self.git_variables(call.files, call.index);
        question.stdin = call.stdin;
        question.limit = Millis(limits::SNAPSHOT);
        question.writes = Some(self.store.path());
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
            ("GIT_OBJECT_DIRECTORY".into(), self.objects_folder().into()),
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
    let origin = match looks_like_repository(folder.path()) {
        true => OriginRepository::from_git(git)
            .map(Some)
            .or_else(|why| is_no_repository_error(&why).then_some(None).ok_or(why))?,
        false => None,
    };
    let place = pending.path().join(GIT);
    let io = |error| WorktreeError::File { path: place.clone(), error };
    for folder in ["info", "objects", "refs"] {
        fs::create_dir_all(place.join(folder)).map_err(io)?;
    }
    let format = match origin.as_ref().map(|origin| origin.format.as_str()) {
        Some("sha256") => "\trepositoryFormatVersion = 1\n[extensions]\n\tobjectFormat = sha256\n",
        _ => "\trepositoryFormatVersion = 0\n",
    };
    for (name, content) in [
        ("HEAD", b"ref: refs/heads/none\n".to_vec()),
        ("config", format!("[core]\n\tbare = true\n{format}{CONFIG}").into_bytes()),
        ("info/attributes", ATTRIBUTES.into()),
        ("info/exclude", exclude_patterns(origin.as_ref(), folder, without)),
    ] {
        fs::write(place.join(name), content).map_err(io)?;
    }
    let note = serde_json::to_vec(&origin).expect("it is plain data");
    pending.replace_file(ORIGIN, &note)?;
    Ok(run.finish_snapshot_repo(name)?)
}

/// Opens the folder that the snapshots of a workspace share, and creates it if necessary. The objects of the user's
/// repository are borrowed.
fn open_store(state: &RootFolder, name: &str, origin: Option<&OriginRepository>) -> Result<RootFolder, WorktreeError> {
    let place = Path::new(STORES).join(name);
    let store = state.make_folders_unsynced(&place, true)?;
    store.make_folders_unsynced(OBJECTS_INFO, true)?;
    let alternates = Path::new(OBJECTS_INFO).join("alternates");
    let wanted = origin.map(|origin| path_line(&origin.objects)).unwrap_or_default();
    if !store.read_file(&alternates, limits::DECISION_BYTES).is_ok_and(|found| found == wanted) {
        store.replace_unsynced(&alternates, &wanted, false)?;
    }
    Ok(store)
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
    /// For a worktree of the engine: the files that belong to it although a rule ignores them.
    pub tracked: BTreeSet<Vec<u8>>,
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

/// A snapshot of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceSnapshot {
    pub tree: String,
    /// The number of files that were too large.
    pub left_out: usize,
}

impl SnapshotRepo<'_> {
    /// Takes a snapshot. Only files that have changed since the last one of this view are read, and no program is run
    /// unless the list of tracked files has changed.
    pub(crate) fn take_snapshot(&self, view: &SnapshotView) -> Result<WorkspaceSnapshot, WorktreeError> {
        let index = self.indexes.file_index(&self.index_folder(view).path().join(&view.index));
        let mut index = index.lock().unwrap_or_else(PoisonError::into_inner);
        if index.is_empty() {
            *index = self.load_index(view).unwrap_or_default();
        }
        let mut objects = ObjectStore::new(self.objects_folder(), self.object_format());
        if index.is_empty() {
            // If git cannot list them, they are written once more.
            objects.borrow_objects(self.list_committed_objects().unwrap_or_default());
        }
        let mut scanned = self.scan_view(view, &mut index, &objects, false)?;
        if scanned.rules_changed && view.rules == SnapshotRules::Repository {
            scanned = self.scan_view(view, &mut index, &objects, true)?;
        }
        if scanned.changed {
            self.index_folder(view).replace_unsynced(&view.index, &index.to_bytes(), false)?;
        }
        Ok(WorkspaceSnapshot { tree: scanned.tree.to_string(), left_out: scanned.left_out })
    }

    fn load_index(&self, view: &SnapshotView) -> Option<FileIndex> {
        FileIndex::from_bytes(&self.index_folder(view).read_file(&view.index, INDEX_BYTES).ok()?)
    }

    /// The folder with the index of a view: all runs share those of the workspace.
    fn index_folder(&self, view: &SnapshotView) -> &RootFolder {
        if view.rules == SnapshotRules::Tree { &self.root } else { &self.store }
    }

    fn scan_view(
        &self,
        view: &SnapshotView,
        index: &mut FileIndex,
        objects: &ObjectStore,
        new_rules: bool,
    ) -> Result<ScannedTree, WorktreeError> {
        let own_rules = fs::read(self.git_folder().join("info/exclude")).unwrap_or_default();
        let of_person = self.origin.as_ref().and_then(|origin| origin.excludes_file.as_ref());
        let of_person = of_person.and_then(|file| fs::read(file).ok()).unwrap_or_default();
        let forced = match view.rules {
            SnapshotRules::Repository => self.tracked_files(new_rules)?,
            SnapshotRules::Tree => view.tracked.clone(),
            SnapshotRules::Plain => BTreeSet::new(),
        };
        let is_plain = view.rules == SnapshotRules::Plain;
        let settings = ScanSettings {
            // A worktree is compared with the commit of the whole repository.
            prefix: if view.rules == SnapshotRules::Tree { Path::new("") } else { &view.prefix },
            obeys_rules: !is_plain,
            rules: vec![of_person, own_rules],
            forced,
            largest: view.largest,
            limits: is_plain.then_some((limits::SNAPSHOT_FILES, limits::SNAPSHOT_BYTES)),
        };
        index.scan(view.root.as_fd(), &settings, objects).map_err(|error| match error {
            ScanError::OverLimit { files, bytes } => over_limit(view, files, bytes),
            error => error.into(),
        })
    }

    /// The tracked files that a rule ignores. Git lists them if its index of the repository has changed since it did so
    /// last, or if rules have changed.
    pub(crate) fn tracked_files(&self, new_rules: bool) -> Result<BTreeSet<Vec<u8>>, WorktreeError> {
        let Some(origin) = &self.origin else { return Ok(BTreeSet::new()) };
        let stamp = origin.index.as_deref().and_then(|file| describe_stamp(file).ok()).unwrap_or_default();
        let kept = self.store.read_file(TRACKED, INDEX_BYTES).unwrap_or_default();
        let parse = |kept: &[u8]| split_names(kept).skip(1).map(<[u8]>::to_vec).collect();
        if !new_rules && origin.index.is_some() && split_names(&kept).next() == Some(stamp.as_bytes()) {
            return Ok(parse(&kept));
        }
        let said = self.output_folder()?;
        let arguments = ["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"];
        let listed = self.origin_git(&said).run(GitCommand::new("tracked", &arguments))?.into_stdout()?;
        let kept = [stamp.as_bytes(), b"\0", &listed].concat();
        self.store.replace_unsynced(TRACKED, &kept, false)?;
        Ok(parse(&kept))
    }

    /// The objects of the last commit, which need not be stored again.
    fn list_committed_objects(&self) -> Result<Vec<ObjectId>, WorktreeError> {
        if self.origin.is_none() {
            return Ok(Vec::new());
        }
        let said = self.output_folder()?;
        let arguments = ["ls-tree", "-r", "-t", "-z", "--full-tree", "--object-only", "HEAD"];
        let listed = self.origin_git(&said).run(GitCommand::new("committed", &arguments))?.into_stdout()?;
        Ok(split_names(&listed).filter_map(ObjectId::from_hex).collect())
    }

    fn object_format(&self) -> &str {
        self.origin.as_ref().map_or("sha1", |origin| &origin.format)
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
}

/// Describes the metadata of a file, which changes with it.
fn describe_stamp(file: &Path) -> std::io::Result<String> {
    let found = fs::metadata(file)?;
    let (inode, size) = (found.ino(), found.len());
    Ok(format!("{inode} {size} {} {} {} {}", found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()))
}

fn over_limit(view: &SnapshotView, files: usize, bytes: u64) -> WorktreeError {
    let folder = view.root.path().to_owned();
    match files > limits::SNAPSHOT_FILES {
        true => WorktreeError::TooManyFiles { folder, files, most: limits::SNAPSHOT_FILES },
        false => WorktreeError::TooManyBytes { folder, bytes, most: limits::SNAPSHOT_BYTES },
    }
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
    /// Its list of tracked files.
    #[serde(default)]
    pub index: Option<PathBuf>,
    /// The file with the boundary of a shallow history.
    pub shallow: PathBuf,
    pub format: String,
    /// The author that its configuration names.
    pub author: Vec<(String, String)>,
}

/// True if a folder looks like part of a repository. Git has the final word; this only saves calls.
pub(crate) fn looks_like_repository(folder: &Path) -> bool {
    folder.ancestors().map(|folder| folder.join(".git")).any(|git| git.is_file() || git.join("HEAD").exists())
}

impl OriginRepository {
    pub(crate) fn from_git(git: GitRunner<'_>) -> Result<OriginRepository, WorktreeError> {
        let places =
            ["objects", "info/exclude", "shallow", "index"].into_iter().flat_map(|place| ["--git-path", place]);
        let mut arguments = vec!["rev-parse", "--path-format=absolute", "--show-object-format", "--show-toplevel"];
        arguments.extend(places);
        let said = git.run(GitCommand::new("git-origin", &arguments))?.into_stdout()?;
        let lines: Vec<&[u8]> = said.strip_suffix(b"\n").unwrap_or(&said).split(|b| *b == b'\n').collect();
        let [format, top, objects, exclude, shallow, index] = lines[..] else {
            return Err(WorktreeError::UnexpectedOutput("list of repository folders cannot be parsed"));
        };
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        let mut settings = read_settings(git)?;
        Ok(OriginRepository {
            top: path(top),
            objects: path(objects),
            exclude: path(exclude),
            excludes_file: settings.remove("core.excludesfile").map(PathBuf::from).or_else(default_excludes),
            shallow: path(shallow),
            index: Some(path(index)),
            format: String::from_utf8_lossy(format).into_owned(),
            author: settings.into_iter().collect(),
        })
    }
}

/// The commit that is checked out. `None` if there is none yet.
pub(crate) fn read_head(git: GitRunner<'_>) -> Result<Option<String>, WorktreeError> {
    let said = git.run(GitCommand::new("git-head", &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]))?;
    match said.status {
        1 => Ok(None),
        _ => said.into_stdout().and_then(|out| crate::executor::worktree::parse_object_id(&out)).map(Some),
    }
}

/// The default file of the user's global ignore rules, if no file is configured.
fn default_excludes() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let settings = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(settings.join("git/ignore")).filter(|file| file.is_file())
}

/// The settings of a repository and its user that snapshots need: the names in lower case, each with its last value.
fn read_settings(git: GitRunner<'_>) -> Result<BTreeMap<String, String>, WorktreeError> {
    let pattern = r"^(core\.excludesfile|user\.name|user\.email)$";
    let question = GitCommand::new("git-settings", &["config", "-z", "--type=path", "--get-regexp", pattern]);
    let said = git.run(GitCommand { reads_person: true, ..question })?;
    if said.status == 1 {
        return Ok(BTreeMap::new());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pair = |line: &[u8]| {
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b'\n')?);
        Some((text(name), text(&value[1..])))
    };
    Ok(split_names(&said.into_stdout()?).filter_map(pair).collect())
}
