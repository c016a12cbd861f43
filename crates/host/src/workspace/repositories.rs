//! The git repositories in a workspace, and the files by which each of them can make git run a program.
//!
//! Owns how repositories are found: `.git` folders, files and links at any depth, folders that are bare repositories,
//! the repositories of submodules and linked worktrees, and files that configuration names (`core.hooksPath`,
//! `include.path`). One walk over the tree, level by level, with a limit. Does not judge the repositories.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use skein_core::limits;

use crate::system::read_regular_file;

use super::{
    control_files::parse_git_config,
    root::{EntryKind, FileIdentity, FilePathError, FolderEntry, FolderLifetime, PathProblem, RootFolder},
};

/// The maximum size of a configuration file that is parsed.
const CONFIG_BYTES: u64 = 1024 * 1024;
/// The maximum number of files that one configuration may include, directly or through others.
const INCLUDED_FILES: usize = 64;

/// The files in each git folder that determine which programs git runs. An unfinished rebase may have `exec` lines.
const GIT_FOLDER_FILES: [&str; 5] = ["config", "config.worktree", "commondir", "hooks", "rebase-merge/git-rebase-todo"];
/// The same in the folder of a linked worktree. `gitdir` names the location of that worktree.
const LINKED_WORKTREE_FILES: [&str; 6] =
    ["config", "config.worktree", "commondir", "gitdir", "hooks", "rebase-merge/git-rebase-todo"];
/// Entries that together make a folder a repository.
const BARE_PARTS: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// The names of the hooks that git runs.
const HOOK_NAMES: [&str; 28] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "post-index-change",
];

/// The property that makes a path a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GitPlace {
    /// A folder `.git`.
    Folder(FolderLifetime),
    /// A folder of another name that git treats as a repository if it is the working directory.
    Bare(FolderLifetime),
    /// A file `.git`, which names the location of the git folder.
    File,
    /// Anything else that is named `.git`.
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepositoryScan {
    /// By path: `.git`, `vendor/x/.git`, `fixtures/bare`.
    pub places: BTreeMap<String, GitPlace>,
    /// Git folders of submodules and linked worktrees, inside of others.
    pub linked: BTreeSet<String>,
    /// Files and folders in git folders that determine what git runs.
    pub control: BTreeSet<String>,
    /// Files and folders of the workspace that a configuration names: hooks and included files.
    pub named: BTreeSet<String>,
    /// Parts of bare repositories, whether or not the other parts exist.
    pub parts: BTreeSet<String>,
    /// Repositories whose paths are not UTF-8. They cannot be checked.
    pub unreadable: BTreeSet<String>,
    /// The depth to which all names were scanned, if there were too many to scan all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_depth: Option<usize>,
}

impl RepositoryScan {
    /// Finds the repositories in a folder, except for those in some folders of it.
    pub(crate) fn scan_folder(root: &RootFolder, without: &[FileIdentity]) -> Result<RepositoryScan, FilePathError> {
        RepositoryScan::scan_limited(root, without, limits::REPOSITORY_NAMES)
    }

    fn scan_limited(
        root: &RootFolder,
        without: &[FileIdentity],
        names: usize,
    ) -> Result<RepositoryScan, FilePathError> {
        let mut search = RepositorySearch { root, without, names, scan: RepositoryScan::default() };
        search.walk_tree()?;
        let mut scan = search.scan;
        scan.named.extend(RepositoryScan::named_by_configuration(root));
        Ok(scan)
    }

    /// Finds only files that configuration names: that of the workspace, of an enclosing repository, and of the user.
    pub(crate) fn named_by_configuration(root: &RootFolder) -> BTreeSet<String> {
        let mut scan = RepositoryScan::default();
        let (top, configs) = find_outer_configs(root.path());
        for config in configs {
            scan.read_config(root, &config, Some(&top), &mut 0);
        }
        scan.named
    }

    /// Returns true if the search reached the depth of this path.
    pub(crate) fn covers_path(&self, path: &str) -> bool {
        self.complete_depth.is_none_or(|depth| Path::new(path).components().count() <= depth)
    }

    /// Returns the place that contains a path: the longest that is the path or a folder above it.
    pub(crate) fn find_place(&self, path: &str) -> Option<(&str, GitPlace)> {
        let around = Path::new(path).ancestors();
        around
            .filter_map(Path::to_str)
            .find_map(|path| self.places.get_key_value(path).map(|(path, place)| (path.as_str(), *place)))
    }

    /// Records files below the workspace that a configuration file names. `top` is the folder that hooks are relative
    /// to.
    fn read_config(&mut self, root: &RootFolder, config: &Path, top: Option<&Path>, read: &mut usize) {
        if *read == INCLUDED_FILES {
            return;
        }
        *read += 1;
        let Some(bytes) = read_file(config) else { return };
        for entry in parse_git_config(&bytes).0 {
            let hooks = entry.section == "core" && entry.key == "hookspath";
            let include = matches!(entry.section.as_str(), "include" | "includeif") && entry.key == "path";
            if hooks && let Some(top) = top {
                self.note_hooks(root, &absolute_path(top, &entry.value));
            }
            if include && let Some(folder) = config.parent() {
                let file = absolute_path(folder, &entry.value);
                if let Some(name) = relative_path(root.path(), &file) {
                    self.named.insert(name);
                }
                self.read_config(root, &file, top, read);
            }
        }
    }

    fn note_hooks(&mut self, root: &RootFolder, folder: &Path) {
        match relative_path(root.path(), folder) {
            // Not the whole workspace, but the names that would be hooks in it.
            Some(name) if name.is_empty() => self.named.extend(HOOK_NAMES.map(str::to_owned)),
            Some(name) => drop(self.named.insert(name)),
            None => {}
        }
    }
}

/// One walk over a workspace.
struct RepositorySearch<'a> {
    root: &'a RootFolder,
    without: &'a [FileIdentity],
    /// The number of names that may still be read.
    names: usize,
    scan: RepositoryScan,
}

impl RepositorySearch<'_> {
    fn walk_tree(&mut self) -> Result<(), FilePathError> {
        // Level by level, so that the limit is reached at one depth everywhere.
        let mut todo = VecDeque::from([(PathBuf::new(), 0)]);
        while let Some((folder, depth)) = todo.pop_front() {
            match self.visit_folder(&folder, depth, &mut todo) {
                Err(error) if matches!(error.why, PathProblem::TooMany { .. }) => {
                    self.scan.complete_depth = Some(depth);
                    return Ok(());
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn visit_folder(
        &mut self,
        folder: &Path,
        depth: usize,
        todo: &mut VecDeque<(PathBuf, usize)>,
    ) -> Result<(), FilePathError> {
        let Some((entries, lifetime)) = self.list_folder(folder)? else { return Ok(()) };
        if self.without.contains(&lifetime.identity) {
            return Ok(());
        }
        self.note_bare(folder, &entries, lifetime)?;
        for entry in entries {
            let path = folder.join(&entry.name);
            match entry.thing {
                thing if entry.name == ".git" => self.note_git(&path, thing)?,
                EntryKind::Folder => todo.push_back((path, depth + 1)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Lists a folder. Returns `None` if it is gone or cannot be read, which holds for a worker there, too.
    fn list_folder(&mut self, path: &Path) -> Result<Option<(Vec<FolderEntry>, FolderLifetime)>, FilePathError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let Ok(folder) = self.root.open_folder(path) else { return Ok(None) };
        let entries = folder.list_entries(self.names)?;
        self.names -= entries.len();
        Ok(Some((entries, folder.lifetime()?)))
    }

    fn note_bare(
        &mut self,
        path: &Path,
        entries: &[FolderEntry],
        lifetime: FolderLifetime,
    ) -> Result<(), FilePathError> {
        let has = |name: &str, thing: EntryKind| {
            entries.iter().any(|entry| {
                entry.name == name && matches!(entry.thing, found if found == thing || found == EntryKind::Link)
            })
        };
        for name in BARE_PARTS.iter().filter(|name| entries.iter().any(|entry| entry.name == **name)) {
            self.scan.parts.extend(path.join(name).to_str().map(str::to_owned));
        }
        let whole = has("objects", EntryKind::Folder) && has("refs", EntryKind::Folder);
        if !has("HEAD", EntryKind::File) || !whole && !has("commondir", EntryKind::File) {
            return Ok(());
        }
        self.note_place(path, GitPlace::Bare(lifetime));
        self.note_git_folder(path, path)
    }

    /// Records an entry named `.git`.
    fn note_git(&mut self, path: &Path, thing: EntryKind) -> Result<(), FilePathError> {
        let place = match thing {
            EntryKind::Folder => match self.root.open_folder(path).and_then(|folder| folder.lifetime()) {
                Ok(lifetime) => GitPlace::Folder(lifetime),
                Err(_) => GitPlace::Other,
            },
            EntryKind::File => GitPlace::File,
            _ => GitPlace::Other,
        };
        self.note_place(path, place);
        match place {
            GitPlace::Folder(_) => self.note_git_folder(path, path.parent().unwrap_or(Path::new(""))),
            _ => {
                self.scan.control.extend(path.to_str().map(str::to_owned));
                Ok(())
            }
        }
    }

    fn note_place(&mut self, path: &Path, place: GitPlace) {
        match path.to_str() {
            Some(path) => drop(self.scan.places.insert(path.to_owned(), place)),
            None => drop(self.scan.unreadable.insert(path.to_string_lossy().into_owned())),
        }
    }

    fn note_control(&mut self, folder: &Path, names: &[&str]) {
        let paths = names.iter().filter_map(|name| folder.join(name).to_str().map(str::to_owned));
        self.scan.control.extend(paths);
    }

    /// Records a git folder with the git folders in it. `top` is the folder of its checked out files.
    fn note_git_folder(&mut self, path: &Path, top: &Path) -> Result<(), FilePathError> {
        let mut todo = vec![path.to_owned()];
        while let Some(folder) = todo.pop() {
            self.note_control(&folder, &GIT_FOLDER_FILES);
            let top = (folder == path).then(|| self.root.path().join(top));
            for config in ["config", "config.worktree"] {
                // Links on the path are recorded as links.
                if let Ok(config) = self.root.normalize_name(folder.join(config)) {
                    let config = self.root.path().join(config);
                    self.scan.read_config(self.root, &config, top.as_deref(), &mut 0);
                }
            }
            for entry in self.list_subfolders(&folder.join("worktrees"))? {
                self.note_control(&entry, &LINKED_WORKTREE_FILES);
                self.scan.linked.extend(entry.to_str().map(str::to_owned));
            }
            // Names of submodules may contain slashes.
            let mut modules = self.list_subfolders(&folder.join("modules"))?;
            while let Some(module) = modules.pop() {
                match self.root.entry_kind(module.join("HEAD")) {
                    Ok(None) => modules.extend(self.list_subfolders(&module)?),
                    _ => {
                        self.scan.linked.extend(module.to_str().map(str::to_owned));
                        todo.push(module);
                    }
                }
            }
        }
        Ok(())
    }

    /// Lists the folders in a folder, if it is one.
    fn list_subfolders(&mut self, path: &Path) -> Result<Vec<PathBuf>, FilePathError> {
        let Some((entries, _)) = self.list_folder(path)? else { return Ok(Vec::new()) };
        let folders = entries.into_iter().filter(|entry| entry.thing == EntryKind::Folder);
        Ok(folders.map(|entry| path.join(entry.name)).collect())
    }
}

/// Finds the present path of a git folder in a workspace, also inside of other git folders.
pub(crate) fn find_git_folder(root: &RootFolder, wanted: FolderLifetime, without: &[FileIdentity]) -> Option<PathBuf> {
    let mut names = limits::REPOSITORY_NAMES;
    let mut todo = VecDeque::from([PathBuf::new()]);
    while let Some(path) = todo.pop_front() {
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        let Ok(folder) = root.open_folder(name) else { continue };
        let Ok(lifetime) = folder.lifetime() else { continue };
        // Inode numbers are reused, so it must look like a git folder as well.
        if lifetime == wanted && matches!(folder.entry_kind("HEAD"), Ok(Some(_))) {
            return Some(path);
        }
        if without.contains(&lifetime.identity) {
            continue;
        }
        let entries = folder.list_entries(names).ok()?;
        names -= entries.len();
        let folders = entries.into_iter().filter(|entry| entry.thing == EntryKind::Folder);
        todo.extend(folders.map(|entry| path.join(entry.name)));
    }
    None
}

/// Resolves a path that git reads relative to another folder. Returns its path below the root, or `None` if it is
/// outside.
pub(crate) fn resolve_below(root: &Path, from: &Path, text: &str) -> Option<String> {
    relative_path(root, &absolute_path(&root.join(from), text))
}

/// Finds configuration outside of the workspace that applies to it: the user's, and that of an enclosing repository.
/// Returns the folder in which git would look for hooks, and the files.
fn find_outer_configs(workspace: &Path) -> (PathBuf, Vec<PathBuf>) {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let settings = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let settings = settings.or_else(|| home.as_ref().map(|home| home.join(".config")));
    let around = workspace.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok());
    let of_user = [
        Some(PathBuf::from("/etc/gitconfig")),
        settings.map(|folder| folder.join("git/config")),
        home.map(|home| home.join(".gitconfig")),
    ];
    let mut configs: Vec<PathBuf> = of_user.into_iter().flatten().collect();
    if let Some(folder) = around.and_then(find_config_folder) {
        configs.extend([folder.join("config"), folder.join("config.worktree")]);
    }
    (around.unwrap_or(workspace).to_owned(), configs)
}

/// Returns the folder with the configuration of the repository whose files are in a folder.
fn find_config_folder(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    let folder = match read_file(&git) {
        Some(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            absolute_path(top, text.strip_prefix("gitdir:")?.trim())
        }
        None => git,
    };
    match read_file(&folder.join("commondir")) {
        Some(bytes) => Some(absolute_path(&folder, String::from_utf8_lossy(&bytes).trim())),
        None => Some(folder),
    }
}

/// Reads a regular file that is not too large.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    read_regular_file(path, CONFIG_BYTES + 1).ok().filter(|bytes| bytes.len() as u64 <= CONFIG_BYTES)
}

/// Normalizes a path as git writes it.
fn absolute_path(from: &Path, text: &str) -> PathBuf {
    let home = text.strip_prefix("~/").and_then(|rest| Some(PathBuf::from(std::env::var_os("HOME")?).join(rest)));
    let mut whole = PathBuf::new();
    for part in from.join(home.unwrap_or_else(|| PathBuf::from(text))).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
    }
    whole
}

fn relative_path(root: &Path, path: &Path) -> Option<String> {
    path.strip_prefix(root).ok()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new(files: &[(&str, &str)]) -> Place {
            let place = Place(tempfile::tempdir().unwrap());
            for (name, text) in files {
                let path = place.0.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            place
        }

        fn scan(&self, names: usize) -> RepositoryScan {
            RepositoryScan::scan_limited(&RootFolder::open(self.0.path()).unwrap(), &[], names).unwrap()
        }
    }

    #[test]
    fn repositories_are_found_wherever_they_are() {
        let place = Place::new(&[
            (".git/config", "[core]\nhooksPath = .githooks\n[include]\npath = ../more.cfg\n"),
            ("more.cfg", "[includeIf \"gitdir:x\"]\npath = deep/most.cfg\n"),
            ("deep/most.cfg", "[core]\nhooksPath = sub/hooks\n"),
            (".git/modules/libs/a/HEAD", ""),
            (".git/worktrees/w/commondir", "../.."),
            ("libs/a/.git", "gitdir: ../../.git/modules/libs/a"),
            ("vendor/x/.git/HEAD", ""),
            ("bare/HEAD", ""),
            ("bare/objects/x", ""),
            ("bare/refs/x", ""),
            ("half/HEAD", ""),
            ("half/objects/x", ""),
        ]);
        let scan = place.scan(1000);
        let places: Vec<&str> = scan.places.keys().map(String::as_str).collect();
        assert_eq!(places, [".git", "bare", "libs/a/.git", "vendor/x/.git"]);
        assert_eq!(scan.places["libs/a/.git"], GitPlace::File);
        let linked: Vec<&str> = scan.linked.iter().map(String::as_str).collect();
        assert_eq!(linked, [".git/modules/libs/a", ".git/worktrees/w"]);
        let named: Vec<&str> = scan.named.iter().map(String::as_str).collect();
        assert_eq!(named, [".githooks", "deep/most.cfg", "more.cfg", "sub/hooks"]);
        for path in [".git/modules/libs/a/hooks", ".git/worktrees/w/gitdir", "bare/config", "libs/a/.git"] {
            assert!(scan.control.contains(path), "{path}");
        }
        assert!(scan.parts.contains("half/HEAD") && scan.complete_depth.is_none());
        assert_eq!(scan.find_place("vendor/x/.git/config").unwrap().0, "vendor/x/.git");
    }

    #[test]
    fn a_limit_is_reached_at_one_depth() {
        let place = Place::new(&[("a/.git/HEAD", ""), ("b/c/1", ""), ("b/c/2", ""), ("b/c/3", "")]);
        let scan = place.scan(5);
        assert_eq!(scan.complete_depth, Some(2));
        assert!(scan.covers_path("a/.git") && !scan.covers_path("b/c/.git"));
    }

    #[test]
    fn hooks_in_the_workspace_itself_are_known_by_their_names() {
        let place = Place::new(&[(".git/config", "[core]\nhooksPath = .\n")]);
        assert!(place.scan(100).named.contains("pre-commit"));
    }
}
