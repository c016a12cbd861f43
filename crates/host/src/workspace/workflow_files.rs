//! Files that a workflow takes from its workspace before it starts and gives back after it has ended.
//!
//! Owns the scratch folder of a run, in which each file is named by its key. Does not know how the workflow finds it
//! and what a missing file means for the run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use skein_core::{
    engine::format_utc,
    ids::{RunId, WorkflowId},
    ir::{InputFileSpec, OutputFileSpec, Workflow},
    limits,
    time::Timestamp,
};

use super::{
    RootFolder, RunDir,
    artifact::{self, KeptFile},
    control_files::control_owner,
    root::{FilePathError, PathProblem},
};

/// The parameter that contains the path of the workflow's files. A value from the caller is ignored.
pub const ROOT_PARAMETER: &str = "_workflowFsRoot";

/// True if a workflow takes or gives files.
pub fn has_files(workflow: &Workflow) -> bool {
    !workflow.files_in.is_empty() || !workflow.files_out.is_empty()
}

/// Returns the parameters with the path of the files.
pub fn with_root_parameter(parameters: &Value, root: &Path) -> Arc<Value> {
    let mut parameters = parameters.clone();
    if let Some(object) = parameters.as_object_mut() {
        object.insert(ROOT_PARAMETER.to_owned(), root.display().to_string().into());
        object.sort_keys();
    }
    Arc::new(parameters)
}

/// The values of the tokens in the paths of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTokens {
    pub run: RunId,
    pub workflow: WorkflowId,
    /// The token is the day of this time in UTC.
    pub at: Timestamp,
}

impl PathTokens {
    /// Replaces the tokens in a path once: inserted values are not replaced again.
    pub(crate) fn fill_path(&self, path: &str) -> String {
        let day = format_utc(self.at);
        let day = day.split('T').next().unwrap_or_default();
        let known = [("<runId>", self.run.as_str()), ("<workflowId>", self.workflow.as_str()), ("<isoDate>", day)];
        let (mut filled, mut rest) = (String::with_capacity(path.len()), path);
        while let Some(at) = rest.find('<') {
            let (before, from) = rest.split_at(at);
            filled.push_str(before);
            let token = known.iter().find(|(token, _)| from.starts_with(token));
            let (text, length) = token.map_or((&from[..1], 1), |(token, text)| (*text, token.len()));
            filled.push_str(text);
            rest = &from[length..];
        }
        filled + rest
    }
}

/// A file that could not be staged.
#[derive(Debug, thiserror::Error)]
#[error("the file `{key}` of the workflow: {error}")]
pub struct StagingError {
    pub key: String,
    pub error: FilePathError,
}

/// The outcome for a file that a workflow gives back.
#[derive(Debug)]
pub struct GivenFile {
    pub key: String,
    /// The target path in the workspace.
    pub path: String,
    pub end: Result<GivenOutcome, FilePathError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenOutcome {
    Written(KeptFile),
    /// The run created no such file.
    NotMade,
}

impl RunDir {
    /// Creates a new scratch folder with the files that the workflow takes. A repeated call before the start creates it
    /// anew.
    pub fn stage_files(
        &self,
        workspace: &RootFolder,
        files: &BTreeMap<String, InputFileSpec>,
        tokens: &PathTokens,
    ) -> Result<RootFolder, StagingError> {
        let failed = |key: &str, error| StagingError { key: key.to_owned(), error };
        let scratch = self.recreate_files().map_err(|error| failed("", error))?;
        for (key, file) in files {
            let path = tokens.fill_path(&file.path);
            copy_file(workspace, Path::new(&path), &scratch, Path::new(key)).map_err(|error| failed(key, error))?;
        }
        Ok(scratch)
    }

    /// Copies the files that the run created into the workspace. A failure for one file does not affect the others.
    pub fn give_files(
        &self,
        workspace: &RootFolder,
        files: &BTreeMap<String, OutputFileSpec>,
        tokens: &PathTokens,
    ) -> Result<Vec<GivenFile>, FilePathError> {
        let scratch = self.find_files()?;
        let give = |(key, file): (&String, &OutputFileSpec)| {
            let path = tokens.fill_path(&file.path);
            let end = match &scratch {
                Some(scratch) => give_file(scratch, key, workspace, Path::new(&path)),
                None => Ok(GivenOutcome::NotMade),
            };
            GivenFile { key: key.clone(), path, end }
        };
        Ok(files.iter().map(give).collect())
    }
}

fn give_file(
    scratch: &RootFolder,
    key: &str,
    workspace: &RootFolder,
    path: &Path,
) -> Result<GivenOutcome, FilePathError> {
    if let Some(of) = control_owner(path) {
        return Err(FilePathError::new(workspace.path(), path, PathProblem::Control(of)));
    }
    match scratch.entry_kind(key)? {
        None => Ok(GivenOutcome::NotMade),
        Some(_) => copy_file(scratch, Path::new(key), workspace, path).map(GivenOutcome::Written),
    }
}

fn copy_file(from: &RootFolder, name: &Path, to: &RootFolder, path: &Path) -> Result<KeptFile, FilePathError> {
    let path: PathBuf = to.normalize_name(path)?;
    let (Some(parent), Some(leaf)) = (path.parent(), path.file_name()) else {
        return Err(FilePathError::new(to.path(), &path, PathProblem::Empty));
    };
    // Opened first, so that no folder is created for a missing file.
    from.open_file(name)?;
    let folder = if parent.as_os_str().is_empty() { to.clone() } else { to.make_folders(parent, false)? };
    artifact::copy_single_file(from, name, &folder, Path::new(leaf), limits::ARTIFACT_BYTES)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        run: RunDir,
        workspace: RootFolder,
    }

    impl Place {
        fn new() -> Place {
            let dir = tempfile::tempdir().unwrap();
            for folder in ["state", "work/in"] {
                fs::create_dir_all(dir.path().join(folder)).unwrap();
            }
            let state = RootFolder::open(&dir.path().join("state")).unwrap();
            let run = RunDir::create(&state, &tokens().run).unwrap();
            let workspace = RootFolder::open(&dir.path().join("work")).unwrap();
            Place { dir, run, workspace }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.dir.path().join("work").join(name)
        }

        fn stage(&self, files: &[(&str, &str)]) -> Result<RootFolder, String> {
            let file = |path: &str| InputFileSpec { path: path.into(), writable: false, content_type: None };
            let files = files.iter().map(|(key, path)| ((*key).to_owned(), file(path))).collect();
            self.run.stage_files(&self.workspace, &files, &tokens()).map_err(|error| error.to_string())
        }

        fn give(&self, files: &[(&str, &str)]) -> Vec<(String, String)> {
            let file =
                |path: &str| OutputFileSpec { path: path.into(), content_type: None, schema: Default::default() };
            let files = files.iter().map(|(key, path)| ((*key).to_owned(), file(path))).collect();
            let given = self.run.give_files(&self.workspace, &files, &tokens()).unwrap();
            let word = |given: GivenFile| match given.end {
                Ok(GivenOutcome::Written(_)) => (given.path, "written".to_owned()),
                Ok(GivenOutcome::NotMade) => (given.path, "not made".to_owned()),
                Err(error) => (given.path, error.why.to_string()),
            };
            given.into_iter().map(word).collect()
        }
    }

    fn tokens() -> PathTokens {
        PathTokens {
            run: RunId::new("<isoDate>").unwrap(),
            workflow: WorkflowId::new("report").unwrap(),
            at: Timestamp(1_700_000_000_000),
        }
    }

    #[test]
    fn tokens_are_filled_in_once() {
        for (path, filled) in [
            ("out/<workflowId>-<isoDate>.md", "out/report-2023-11-14.md"),
            ("<runId>", "<isoDate>"),
            ("a<b<runI", "a<b<runI"),
            ("<<isoDate>>é", "<2023-11-14>é"),
        ] {
            assert_eq!(tokens().fill_path(path), filled, "{path}");
        }
    }

    #[test]
    fn files_go_in_and_come_back() {
        let place = Place::new();
        fs::write(place.at("in/report.csv"), "1,2\n").unwrap();
        let scratch = place.stage(&[("data", "in/<workflowId>.csv")]).unwrap();
        assert_eq!(scratch.read_file("data", 10).unwrap(), b"1,2\n");
        scratch.replace_file("stale", b"x").unwrap();
        assert!(place.stage(&[("data", "in/report.csv")]).unwrap().entry_kind("stale").unwrap().is_none());
        let scratch = place.run.find_files().unwrap().unwrap();
        scratch.replace_file("result", b"done").unwrap();
        let given = place.give(&[("result", "out/<isoDate>/r.md"), ("other", "out/o.md"), ("data", ".git/config")]);
        let said = |path: &str, word: &str| (path.to_owned(), word.to_owned());
        let own = "it is one of Git's own files, which control that program";
        let expected = [said(".git/config", own), said("out/o.md", "not made"), said("out/2023-11-14/r.md", "written")];
        assert_eq!(given, expected);
        assert_eq!(fs::read(place.at("out/2023-11-14/r.md")).unwrap(), b"done");
        assert!(place.run.remove_files().unwrap());
        assert_eq!(place.give(&[("result", "again.md")]), [said("again.md", "not made")]);
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_before_the_run() {
        let place = Place::new();
        let error = place.stage(&[("data", "in/none.csv")]).unwrap_err();
        assert!(error.starts_with("the file `data` of the workflow: ") && error.contains("no such file"), "{error}");
    }

    #[test]
    fn neither_way_leads_out() {
        let place = Place::new();
        fs::write(place.dir.path().join("secret"), "secret").unwrap();
        symlink("../../secret", place.at("in/link")).unwrap();
        for path in ["../secret", "in/link", "/etc/passwd", "in"] {
            assert!(place.stage(&[("data", path)]).is_err(), "{path}");
        }
        let scratch = place.stage(&[]).unwrap();
        symlink(place.dir.path().join("secret"), scratch.path().join("leak")).unwrap();
        scratch.replace_file("mine", b"x").unwrap();
        symlink("..", place.at("up")).unwrap();
        for (key, path) in [("leak", "a"), ("mine", "../secret"), ("mine", "up/secret"), ("../x", "a")] {
            let given = place.give(&[(key, path)]);
            assert!(given[0].1 != "written" && given[0].1 != "not made", "{key} to {path}: {given:?}");
        }
        assert_eq!(fs::read(place.dir.path().join("secret")).unwrap(), b"secret");
        assert!(!place.at("a").exists());
    }
}
