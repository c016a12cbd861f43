//! The folders in which work may happen: the project, the run's workspace, and granted roots.
//!
//! Owns the answer to "may this step work there". Does not know who granted it: roots come from the command line and
//! from `skein.toml`.

use std::path::{Path, PathBuf};

use super::{
    RootFolder,
    root::{FilePathError, PathProblem},
};

/// The folders of a run, each by its real path.
#[derive(Debug, Clone)]
pub struct FolderGrants {
    workspace: PathBuf,
    /// The project, the run's workspace, and every granted root.
    allowed: Vec<PathBuf>,
    /// Skein's own state folder. No step works there.
    state: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error("the folder `{}` cannot be used: {why}", path.display())]
    Unusable { path: PathBuf, why: PathProblem },
    #[error(
        "the workspace `{given}` is {}, which is outside of the project {}; to allow it, give `--allow-root {given}` \
         or add it to `roots` in skein.toml",
        real.display(), project.display()
    )]
    NotGranted { given: String, real: PathBuf, project: PathBuf },
    #[error("the workspace `{given}` is where Skein keeps its own files")]
    Own { given: String },
    #[error(transparent)]
    Path(#[from] FilePathError),
}

impl FolderGrants {
    /// Resolves the folders of a run. Relative roots start in the project, like those of `skein.toml`.
    pub fn new(
        project: &Path,
        workspace: &Path,
        roots: &[PathBuf],
        state: Option<&Path>,
    ) -> Result<FolderGrants, GrantError> {
        let project = real_path(project)?;
        let workspace = real_path(workspace)?;
        let mut allowed = vec![project.clone(), workspace.clone()];
        for root in roots {
            allowed.push(real_path(&project.join(root))?);
        }
        let state = state.map(real_path).transpose()?;
        Ok(FolderGrants { workspace, allowed, state })
    }

    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Opens the folder of a step: the named one, relative to the run's workspace, if it is granted.
    pub fn open_folder(&self, given: Option<&str>) -> Result<RootFolder, GrantError> {
        let given = given.unwrap_or(".");
        if given.is_empty() || given.contains('\0') {
            let why = if given.is_empty() { PathProblem::Empty } else { PathProblem::Nul };
            return Err(GrantError::Unusable { path: given.escape_debug().to_string().into(), why });
        }
        let real = real_path(&self.workspace.join(given))?;
        if self.state.as_ref().is_some_and(|state| real.starts_with(state)) {
            return Err(GrantError::Own { given: given.to_owned() });
        }
        let Some(allowed) = self.allowed.iter().find(|allowed| real.starts_with(allowed)) else {
            let project = self.allowed[0].clone();
            return Err(GrantError::NotGranted { given: given.to_owned(), real, project });
        };
        // A real path has no links. If one appears now, it leads to a folder that was not checked.
        let below = real.strip_prefix(allowed).unwrap_or(Path::new(""));
        let root = RootFolder::open(allowed)?;
        Ok(if below.as_os_str().is_empty() { root } else { root.open_folder(below)? })
    }

    /// Opens the folder of a step, and creates it if it is a missing folder of the workspace.
    pub(crate) fn make_folder(&self, given: Option<&str>) -> Result<RootFolder, GrantError> {
        match (self.open_folder(given), given) {
            (Err(error), Some(name)) if error.is_missing() => {
                Ok(self.open_workspace(name)?.make_folders(name, false)?)
            }
            (found, _) => found,
        }
    }

    /// Checks that a step may work in a folder, which may be missing in the workspace.
    pub fn check_folder(&self, given: Option<&str>) -> Result<(), GrantError> {
        match (self.open_folder(given), given) {
            (Err(error), Some(name)) if error.is_missing() => self.open_workspace(name).map(drop),
            (found, _) => found.map(drop),
        }
    }

    /// Opens the workspace for a name that stays in it and outside of Skein's own files.
    fn open_workspace(&self, name: &str) -> Result<RootFolder, GrantError> {
        let root = RootFolder::open(&self.workspace)?;
        let whole = self.workspace.join(root.normalize_name(name)?);
        if self.state.as_ref().is_some_and(|state| whole.starts_with(state)) {
            return Err(GrantError::Own { given: name.to_owned() });
        }
        Ok(root)
    }
}

impl GrantError {
    fn is_missing(&self) -> bool {
        matches!(self, GrantError::Unusable { why: PathProblem::Missing, .. })
    }
}

fn real_path(path: &Path) -> Result<PathBuf, GrantError> {
    let unusable = |error: std::io::Error| GrantError::Unusable { path: path.to_owned(), why: error.into() };
    std::fs::canonicalize(path).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            for folder in ["project/sub", "project/.skein/runs", "repo-a/src", "repo-b", "elsewhere/x"] {
                fs::create_dir_all(dir.path().join(folder)).unwrap();
            }
            Place(dir)
        }

        fn at(&self, name: &str) -> PathBuf {
            fs::canonicalize(self.0.path()).unwrap().join(name)
        }

        fn grants(&self, workspace: &str, roots: &[&str]) -> FolderGrants {
            let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
            let state = self.at("project/.skein");
            FolderGrants::new(&self.at("project"), &self.at(workspace), &roots, Some(&state)).unwrap()
        }
    }

    fn folder(grants: &FolderGrants, given: &str) -> Result<PathBuf, String> {
        let root = grants.open_folder(Some(given)).map_err(|error| error.to_string())?;
        Ok(root.path().to_owned())
    }

    #[test]
    fn the_project_and_what_is_below_it_need_no_grant() {
        let place = Place::new();
        let grants = place.grants("project", &[]);
        assert_eq!(grants.open_folder(None).unwrap().path(), place.at("project"));
        assert_eq!(folder(&grants, "."), Ok(place.at("project")));
        assert_eq!(folder(&grants, "sub/../sub"), Ok(place.at("project/sub")));
        assert_eq!(folder(&grants, "../project/sub"), Ok(place.at("project/sub")));
        assert!(folder(&grants, "none").unwrap_err().contains("there is no such file or folder"));
    }

    #[test]
    fn a_folder_of_the_workspace_is_made_when_it_is_needed() {
        let place = Place::new();
        let grants = place.grants("project", &[]);
        assert!(grants.check_folder(Some("new/part")).is_ok());
        assert!(!place.at("project").join("new").exists(), "looking makes nothing");
        let made = grants.make_folder(Some("new/part")).unwrap();
        assert_eq!(made.path(), place.at("project/new/part"));
        assert!(grants.make_folder(Some("new/part")).is_ok(), "it is there now");
        symlink("../elsewhere", place.at("project/away")).unwrap();
        for given in ["../none", "/none/at/all", ".skein/none", "new/../../none", "away/none"] {
            assert!(grants.make_folder(Some(given)).is_err(), "{given}");
        }
        for given in ["../none", "/none/at/all", ".skein/none", "new/../../none"] {
            assert!(grants.check_folder(Some(given)).is_err(), "{given}");
        }
        let left = ["none", "elsewhere/none", "project/.skein/none"];
        assert!(left.iter().all(|name| !place.0.path().join(name).exists()));
    }

    #[test]
    fn what_is_outside_must_be_granted() {
        let place = Place::new();
        let grants = place.grants("project", &[]);
        for given in ["../repo-a", "..", "/", "../repo-a/src"] {
            let error = folder(&grants, given).unwrap_err();
            assert!(error.contains(&format!("`--allow-root {given}`")), "{error}");
        }
        let grants = place.grants("project", &["../repo-a"]);
        assert_eq!(folder(&grants, "../repo-a/src"), Ok(place.at("repo-a/src")));
        assert!(folder(&grants, "../repo-b").is_err());
        // A folder whose name starts like a granted one is another folder.
        fs::create_dir(place.at("repo-abc")).unwrap();
        assert!(folder(&grants, "../repo-abc").is_err());
    }

    #[test]
    fn a_link_is_judged_by_where_it_leads() {
        let place = Place::new();
        symlink("../elsewhere", place.at("project/link")).unwrap();
        symlink("sub", place.at("project/near")).unwrap();
        let grants = place.grants("project", &[]);
        assert!(folder(&grants, "link").unwrap_err().contains("outside of the project"));
        assert!(folder(&grants, "link/x").is_err());
        assert_eq!(folder(&grants, "near"), Ok(place.at("project/sub")));
    }

    #[test]
    fn another_workspace_is_where_names_start() {
        let place = Place::new();
        let grants = place.grants("elsewhere", &[]);
        assert_eq!(grants.workspace(), place.at("elsewhere"));
        assert_eq!(folder(&grants, "x"), Ok(place.at("elsewhere/x")));
        assert_eq!(folder(&grants, "../project"), Ok(place.at("project")));
        assert!(folder(&grants, "../repo-b").is_err());
    }

    #[test]
    fn nobody_works_among_our_own_files() {
        let place = Place::new();
        let grants = place.grants("project", &[]);
        for given in [".skein", ".skein/runs"] {
            assert!(folder(&grants, given).unwrap_err().contains("Skein keeps its own files"), "{given}");
        }
    }
}
