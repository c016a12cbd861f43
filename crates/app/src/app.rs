//! A front end's access to the operations: the project and the state folder that it works with, and the observer of its
//! operations.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use skein_core::ids::RunId;
use skein_dialects::Diagnostic;
use skein_host::{
    process,
    store::{RunRow, RunSelection, Store},
};

use crate::{
    app_error::AppError,
    project::DiskProject,
    state::{self, DATABASE, RunLookup, StateHandle, display_path},
};

/// Receives what operations report while they work.
pub trait OperationObserver: fmt::Debug + Send + Sync {
    /// Receives a warning; the operation continues.
    fn warn(&self, message: &str);

    /// Receives a warning that a program reads from the result instead.
    fn warn_person(&self, message: &str);

    /// Receives the warnings about a workflow that is about to run. They are also part of the run's result.
    fn warn_diagnostics(&self, diagnostics: &[&Diagnostic]);
}

/// The project and the state folder of a front end, and the observer of its operations.
#[derive(Debug, Clone)]
pub struct App {
    /// The folder where the search for the project starts.
    pub project: PathBuf,
    /// The state folder, if it is not that of the project.
    pub state: Option<PathBuf>,
    pub observer: Arc<dyn OperationObserver>,
}

impl App {
    pub fn warn(&self, message: &str) {
        self.observer.warn(message);
    }

    /// Returns the root of the project. It does not depend on the path of a workflow: a run belongs to the project in
    /// which it was started.
    pub(crate) fn project_root(&self) -> PathBuf {
        DiskProject::find_root(&self.project)
    }

    pub(crate) fn open_project(&self) -> Result<DiskProject, AppError> {
        Ok(DiskProject::open(self.project_root())?)
    }

    /// Returns the path of the state folder, which may not exist.
    pub fn state_path(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| self.project_root().join(state::NAME))
    }

    /// Opens the state folder, which is created if it does not exist.
    pub(crate) fn open_state(&self, project: &Path) -> Result<StateHandle, AppError> {
        StateHandle::open(self.state.as_deref(), project)
    }

    /// Opens the state folder for reading operations: a missing one is not created.
    pub(crate) fn open_existing_state(&self) -> Result<Option<StateHandle>, AppError> {
        let path = self.state_path();
        path.join(DATABASE).exists().then(|| StateHandle::open(Some(&path), &path)).transpose()
    }

    /// Opens the state folder and a run for reading operations: the newest run if none or `-` is named.
    pub(crate) fn open_run_or_newest(&self, text: Option<&str>) -> Result<(StateHandle, RunRow), AppError> {
        if let Some(text) = text.filter(|text| *text != "-") {
            return self.open_run(text);
        }
        let none = |place: &Path| {
            let message = format!("there are no runs in the state folder `{}`", display_path(place));
            AppError::refused(message).with_hint("`skein run FILE` starts one")
        };
        let Some(state) = self.open_existing_state()? else {
            return Err(none(&self.state_path()));
        };
        let newest = state.store.select_runs(RunSelection::Newest(1))?.pop();
        let row = newest.ok_or_else(|| none(&state.path))?;
        Ok((state, row))
    }

    /// Opens the state folder and finds a run by its id, or by a prefix of its id.
    pub(crate) fn open_run(&self, text: &str) -> Result<(StateHandle, RunRow), AppError> {
        let place = self.state_path();
        let missing = |hint: Option<String>| {
            let in_sandbox = process::find_any_worker_mark().map(|mark| {
                format!("a worker of run {} does not see runs; only people outside of runs can decide", mark.run)
            });
            let hint = in_sandbox.or(hint).unwrap_or_else(|| "`skein runs` lists them".to_owned());
            let there = if place.join(DATABASE).exists() { "" } else { ", which does not exist" };
            let message = format!("there is no run `{text}` in the state folder `{}`{there}", display_path(&place));
            AppError::refused(message).with_hint(hint)
        };
        let Some(state) = self.open_existing_state()? else { return Err(missing(None)) };
        match state.look_up_run(text)? {
            RunLookup::One(row) => Ok((state, *row)),
            RunLookup::None { hint } => Err(missing(hint)),
            RunLookup::Several(runs) => {
                let named: Vec<&str> = runs.iter().take(5).map(RunId::as_str).collect();
                let more = if runs.len() > named.len() { ", …" } else { "" };
                let message = format!("`{text}` matches {} runs", runs.len());
                Err(AppError::refused(message).with_hint(format!("it could be {}{more}", named.join(", "))))
            }
        }
    }
}
