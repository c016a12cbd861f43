//! Taking the state of a folder: every file of it, as git would list them, to the byte.
//!
//! Owns which files belong to a state. Other repositories inside are no part of it, and neither is what git ignores.
//! Nothing of the workspace's index is touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use skein_core::limits;

use super::{
    id,
    shadow::{Call, Shadow},
};
use crate::{
    crew::git::{Question, names},
    workspace::Root,
};

/// A repository in a list of files.
const LINK: &[u8] = b"160000";

/// Files of which a state is taken, and by which rules.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The folder in which names begin.
    pub root: Root,
    /// The part of it that counts; empty for all of it.
    pub prefix: PathBuf,
    pub index: String,
    pub rules: Rules,
    /// Larger files are left out.
    pub largest: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// A repository of the user's: what it has, and what is new and not ignored.
    Repository,
    /// A tree of ours: the same, by the index that we have of it.
    Tree,
    /// No repository: everything, as far as there is not too much of it.
    Plain,
}

/// A state of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taken {
    pub tree: String,
    /// How many files were too large.
    pub left_out: usize,
}

impl Shadow<'_> {
    pub fn take(&self, view: &View) -> Result<Taken, String> {
        self.unlock(&view.index);
        let listed = self.listed(view)?;
        let (there, gone, left_out) = sorted(view, listed)?;
        if !gone.is_empty() {
            self.update(view, &["--force-remove"], &gone)?;
        }
        self.update(view, &["--add", "--remove", "--replace"], &there)?;
        let said = self.ask(self.call(view, "write-tree", &["write-tree"]))?;
        Ok(Taken { tree: id(&said.well()?)?, left_out })
    }

    pub fn call<'b>(&self, view: &'b View, name: &'b str, arguments: &[&str]) -> Call<'b> {
        Call {
            name,
            arguments: arguments.iter().map(OsString::from).collect(),
            files: view.root.path(),
            index: &view.index,
            stdin: Vec::new(),
        }
    }

    /// All names that may belong to the state.
    fn listed(&self, view: &View) -> Result<BTreeSet<Vec<u8>>, String> {
        let mut call = self.call(view, "list", &["ls-files", "-z", "--cached", "--others"]);
        let rules = match view.rules {
            Rules::Repository | Rules::Tree => OsString::from("--exclude-standard"),
            Rules::Plain => {
                let mut file = OsString::from("--exclude-from=");
                file.push(self.folder().join("info/exclude"));
                file
            }
        };
        call.arguments.push(rules);
        call.arguments.extend(within(&view.prefix));
        let mut listed: BTreeSet<Vec<u8>> = names(&self.ask(call)?.well()?).map(<[u8]>::to_vec).collect();
        if view.rules == Rules::Repository {
            let mut arguments = vec![OsString::from("ls-files"), "-z".into(), "--stage".into()];
            arguments.extend(within(&view.prefix));
            let kept = self.said()?;
            let mut question = Question::new("tracked", &arguments);
            question.settings = vec![("GIT_LITERAL_PATHSPECS".into(), "1".into())];
            let said = self.outside(&kept).ask(question)?.well()?;
            listed.extend(names(&said).filter_map(tracked));
        }
        Ok(listed)
    }

    fn update(&self, view: &View, how: &[&str], paths: &[Vec<u8>]) -> Result<(), String> {
        let mut call = self.call(view, "update", &["update-index"]);
        call.arguments.extend(how.iter().map(OsString::from));
        call.arguments.extend(["-z".into(), "--stdin".into()]);
        call.stdin = paths.iter().flat_map(|path| path.iter().copied().chain([0])).collect();
        self.ask(call)?.well().map(drop)
    }
}

fn within(prefix: &Path) -> Vec<OsString> {
    match prefix.as_os_str().is_empty() {
        true => Vec::new(),
        false => vec!["--".into(), prefix.into()],
    }
}

/// The path of `mode id stage⇥path`, unless it is a repository.
fn tracked(line: &[u8]) -> Option<Vec<u8>> {
    let at = line.iter().position(|byte| *byte == b'\t')?;
    (!line.starts_with(LINK)).then(|| line[at + 1..].to_vec())
}

type Sorted = (Vec<Vec<u8>>, Vec<Vec<u8>>, usize);

/// What is there and is a file or a link, what is not, and how many are too large.
fn sorted(view: &View, listed: BTreeSet<Vec<u8>>) -> Result<Sorted, String> {
    let (mut there, mut gone, mut left_out) = (Vec::new(), Vec::new(), 0);
    let mut folders: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let mut bytes = 0u64;
    // A name with a slash at its end is a repository inside.
    for path in listed.into_iter().filter(|path| !path.ends_with(b"/")) {
        let name = Path::new(OsStr::from_bytes(&path));
        let parent = name.parent().unwrap_or(Path::new("")).to_owned();
        // No file is behind a link.
        let real = *folders
            .entry(parent)
            .or_insert_with_key(|parent| parent.as_os_str().is_empty() || view.root.folder(parent).is_ok());
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
    if view.rules == Rules::Plain {
        check_size(view, there.len(), bytes)?;
    }
    Ok((there, gone, left_out))
}

/// Without a repository everything is copied.
fn check_size(view: &View, files: usize, bytes: u64) -> Result<(), String> {
    let folder = view.root.path().display();
    if files > limits::SNAPSHOT_FILES {
        let most = limits::SNAPSHOT_FILES;
        return Err(format!(
            "{folder} has {files} files, and at most {most} are kept of a folder that is no repository"
        ));
    }
    if bytes > limits::SNAPSHOT_BYTES {
        let most = limits::SNAPSHOT_BYTES;
        return Err(format!(
            "the files of {folder} have {bytes} bytes, and at most {most} are kept of a folder that is no repository"
        ));
    }
    Ok(())
}
