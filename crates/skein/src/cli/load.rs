//! Loading of the workflow that a person named: a checked workflow, or the exit status after an error message.

use std::path::{Path, PathBuf};

use skein_app::{
    app_error::{AppError, AppErrorKind},
    config,
    project::DiskProject,
};
use skein_core::suggest::did_you_mean;
use skein_dialects::{SourceReport, check_source};

use crate::output::CliOutput;

/// A workflow that was found, and the project that it is used in.
#[derive(Debug)]
pub struct LoadedWorkflow {
    pub project: DiskProject,
    pub report: SourceReport,
}

/// Finds a workflow by path or name and checks it.
pub fn load_workflow(text: &str, output: CliOutput) -> Result<LoadedWorkflow, AppError> {
    let project = open_project()?;
    let path = find_workflow_file(&project, text)?;
    if let Some(warning) = other_project_warning(&project, &path) {
        output.warn(&warning);
    }
    let source =
        project.read_workflow_source(&path).map_err(|error| AppError::invalid_source(vec![*error]))?;
    Ok(LoadedWorkflow { report: check_source(source, &project), project })
}

/// Finds the file of a workflow by path or name.
pub fn find_workflow_file(project: &DiskProject, text: &str) -> Result<PathBuf, AppError> {
    project.locate_workflow(text).map_err(|missing| {
        let hint = did_you_mean(text, missing.known.iter().map(String::as_str));
        let message = format!("there is no workflow `{text}`: {}", missing.why);
        AppError::new(AppErrorKind::Refused, &message, hint.as_deref())
    })
}

/// Opens the project of this command.
pub fn open_project() -> Result<DiskProject, AppError> {
    DiskProject::open(DiskProject::current_root()).map_err(|error| AppError::invalid_source(vec![*error]))
}

/// Returns a warning for a workflow in another project, whose configuration is not read.
pub fn other_project_warning(project: &DiskProject, file: &Path) -> Option<String> {
    let other = DiskProject::find_other_root(&project.root, file)?;
    Some(format!(
        "`{}` is not read, because the project is `{}`; to use the other one, add `--project {}`",
        project.display_path(&other.join(config::NAME)),
        project.root.display(),
        project.display_path(&other)
    ))
}
