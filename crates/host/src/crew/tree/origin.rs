//! The repository that a folder is in, as git tells of it.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::crew::git::{Git, Question};

/// A repository of someone else, of which nothing but objects and lists of names is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// The folder that holds all of its files.
    pub top: PathBuf,
    pub objects: PathBuf,
    /// What it ignores beside what its files say.
    pub exclude: PathBuf,
    pub excludes_file: Option<PathBuf>,
    /// Where it ends, if it has only a part of its history.
    pub shallow: PathBuf,
    pub format: String,
    /// Who commits there, as it says itself.
    pub author: Vec<(String, String)>,
}

/// Whether a folder looks like one of a repository. What git says counts; this only saves asking.
pub(super) fn is_likely(folder: &Path) -> bool {
    folder.ancestors().map(|folder| folder.join(".git")).any(|git| git.is_file() || git.join("HEAD").exists())
}

impl Origin {
    pub fn of(git: Git<'_>) -> Result<Origin, String> {
        let places =
            ["objects", "info/exclude", "shallow"].into_iter().flat_map(|place| ["--git-path", place]);
        let mut arguments =
            vec!["rev-parse", "--path-format=absolute", "--show-object-format", "--show-toplevel"];
        arguments.extend(places);
        let said = git.ask(Question::new("git-origin", &arguments))?.well()?;
        let lines: Vec<&[u8]> = said.strip_suffix(b"\n").unwrap_or(&said).split(|b| *b == b'\n').collect();
        let [format, top, objects, exclude, shallow] = lines[..] else {
            return Err("the names of its folders cannot be read".to_owned());
        };
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        Ok(Origin {
            top: path(top),
            objects: path(objects),
            exclude: path(exclude),
            excludes_file: setting(git, "core.excludesFile")?.map(PathBuf::from).or_else(usual_excludes),
            shallow: path(shallow),
            format: String::from_utf8_lossy(format).into_owned(),
            author: author(git)?,
        })
    }
}

/// The commit that is checked out. None: there is none yet.
pub(super) fn head(git: Git<'_>) -> Result<Option<String>, String> {
    let said = git.ask(Question::new("git-head", &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]))?;
    match said.status {
        1 => Ok(None),
        _ => said.well().and_then(|out| super::id(&out)).map(Some),
    }
}

fn author(git: Git<'_>) -> Result<Vec<(String, String)>, String> {
    let mut author = Vec::new();
    for name in ["user.name", "user.email"] {
        author.extend(setting(git, name)?.map(|value| (name.to_owned(), value)));
    }
    Ok(author)
}

/// What a person ignores everywhere who names no file for that.
fn usual_excludes() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let settings = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(settings.join("git/ignore")).filter(|file| file.is_file())
}

fn setting(git: Git<'_>, name: &str) -> Result<Option<String>, String> {
    let question = Question::new("git-setting", &["config", "--type=path", "--get", name]);
    let said = git.ask(Question { reads_person: true, ..question })?;
    match said.status {
        1 => Ok(None),
        _ => said.well().map(|out| Some(String::from_utf8_lossy(&out).trim_end_matches('\n').to_owned())),
    }
}
