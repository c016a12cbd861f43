//! From what a person typed to a checked workflow, or to the exit that says why not.

use std::path::Path;

use serde_json::json;
use skein_core::closest::did_you_mean;
use skein_dialects::{Diagnostic, Report, check, render};

use crate::{exit::Exit, output::Output, project::OnDisk};

/// A workflow that was found, and the project it is in.
#[derive(Debug)]
pub struct Loaded {
    pub project: OnDisk,
    pub report: Report,
}

/// Finds a workflow by path or name and checks it.
pub fn load(text: &str, output: Output) -> Result<Loaded, Exit> {
    let project = around(Path::new(text), output)?;
    let path = project.find(text).map_err(|missing| {
        let hint = did_you_mean(text, missing.known.iter().map(String::as_str));
        output.refuse(
            Exit::Refused,
            &format!("there is no workflow `{text}`: {}", missing.why),
            hint.as_deref(),
        )
    })?;
    let project = around(&path, output)?;
    let source = project.source(&path).map_err(|error| invalid(&[*error], output))?;
    Ok(Loaded { report: check(source, &project), project })
}

/// The project around a path, or around here.
pub fn around(path: &Path, output: Output) -> Result<OnDisk, Exit> {
    let path = if path.exists() { path } else { Path::new(".") };
    OnDisk::open(OnDisk::root_of(path)).map_err(|error| invalid(&[*error], output))
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
