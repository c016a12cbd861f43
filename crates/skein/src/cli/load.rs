//! From what a person typed to a checked workflow, or to the exit that says why not.

use std::path::{Path, PathBuf};

use serde_json::json;
use skein_core::closest::did_you_mean;
use skein_dialects::{Diagnostic, Report, check, render};

use crate::{config, exit::Exit, output::Output, project::OnDisk};

/// A workflow that was found, and the project it is in.
#[derive(Debug)]
pub struct Loaded {
    pub project: OnDisk,
    pub report: Report,
}

/// Finds a workflow by path or name and checks it.
pub fn load(text: &str, output: Output) -> Result<Loaded, Exit> {
    let project = open_project(output)?;
    let path = find(&project, text, output)?;
    if let Some(warning) = other_project(&project, &path) {
        output.warn(&warning);
    }
    let source = project.workflow_source(&path).map_err(|error| invalid(&[*error], output))?;
    Ok(Loaded { report: check(source, &project), project })
}

/// The file of a workflow, by path or name.
pub fn find(project: &OnDisk, text: &str, output: Output) -> Result<PathBuf, Exit> {
    project.find(text).map_err(|missing| {
        let hint = did_you_mean(text, missing.known.iter().map(String::as_str));
        let message = format!("there is no workflow `{text}`: {}", missing.why);
        output.refuse(Exit::Refused, &message, hint.as_deref())
    })
}

/// The project of this command.
pub fn open_project(output: Output) -> Result<OnDisk, Exit> {
    OnDisk::open(OnDisk::root()).map_err(|error| invalid(&[*error], output))
}

/// A warning for a workflow that is in another project, whose configuration is not read.
pub fn other_project(project: &OnDisk, file: &Path) -> Option<String> {
    let other = OnDisk::other_root(&project.root, file)?;
    Some(format!(
        "`{}` is not read, because the project is `{}`; to take the other one, add `--project {}`",
        project.shown(&other.join(config::NAME)),
        project.root.display(),
        project.shown(&other)
    ))
}

/// Says what is wrong with a source that cannot be used.
pub fn invalid(diagnostics: &[Diagnostic], output: Output) -> Exit {
    if output.is_json() {
        let objects: Vec<_> = diagnostics.iter().map(render::object).collect();
        output.json(&json!({"valid": false, "diagnostics": objects}));
    } else {
        output.diagnostics(diagnostics);
    }
    Exit::Invalid
}
