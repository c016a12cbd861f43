//! The user's repository that contains a folder, as git describes it.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::executor::git::{GitCommand, GitRunner};

/// The user's repository. Only its objects and lists of names are used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OriginRepository {
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
pub(super) fn looks_like_repository(folder: &Path) -> bool {
    folder.ancestors().map(|folder| folder.join(".git")).any(|git| git.is_file() || git.join("HEAD").exists())
}

impl OriginRepository {
    pub fn from_git(git: GitRunner<'_>) -> Result<OriginRepository, String> {
        let places =
            ["objects", "info/exclude", "shallow"].into_iter().flat_map(|place| ["--git-path", place]);
        let mut arguments =
            vec!["rev-parse", "--path-format=absolute", "--show-object-format", "--show-toplevel"];
        arguments.extend(places);
        let said = git.run(GitCommand::new("git-origin", &arguments))?.into_stdout()?;
        let lines: Vec<&[u8]> = said.strip_suffix(b"\n").unwrap_or(&said).split(|b| *b == b'\n').collect();
        let [format, top, objects, exclude, shallow] = lines[..] else {
            return Err("git's list of repository folders cannot be parsed".to_owned());
        };
        let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        Ok(OriginRepository {
            top: path(top),
            objects: path(objects),
            exclude: path(exclude),
            excludes_file: read_setting(git, "core.excludesFile")?
                .map(PathBuf::from)
                .or_else(default_excludes),
            shallow: path(shallow),
            format: String::from_utf8_lossy(format).into_owned(),
            author: read_author(git)?,
        })
    }
}

/// The commit that is checked out. `None` if there is none yet.
pub(super) fn read_head(git: GitRunner<'_>) -> Result<Option<String>, String> {
    let said =
        git.run(GitCommand::new("git-head", &["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]))?;
    match said.status {
        1 => Ok(None),
        _ => said.into_stdout().and_then(|out| super::parse_object_id(&out)).map(Some),
    }
}

fn read_author(git: GitRunner<'_>) -> Result<Vec<(String, String)>, String> {
    let mut author = Vec::new();
    for name in ["user.name", "user.email"] {
        author.extend(read_setting(git, name)?.map(|value| (name.to_owned(), value)));
    }
    Ok(author)
}

/// The default file of the user's global ignore rules, if no file is configured.
fn default_excludes() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let settings = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(settings.join("git/ignore")).filter(|file| file.is_file())
}

fn read_setting(git: GitRunner<'_>, name: &str) -> Result<Option<String>, String> {
    let question = GitCommand::new("git-setting", &["config", "--type=path", "--get", name]);
    let said = git.run(GitCommand { reads_person: true, ..question })?;
    match said.status {
        1 => Ok(None),
        _ => said
            .into_stdout()
            .map(|out| Some(String::from_utf8_lossy(&out).trim_end_matches('\n').to_owned())),
    }
}
